#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embedding against torch.nn.functional.embedding, bit by bit but for NaNs: those are canonical."""
import torch

import aclnn

DTYPES = (torch.bfloat16, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.float64, torch.complex64, torch.complex128)


def draw_table(draw, shape, dtype):
    if dtype.is_complex:
        parts = [torch.randn(shape, generator=draw.generator, dtype=torch.float64) for _ in range(2)]
        return torch.complex(*parts).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=draw.generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 127, shape,
                         generator=draw.generator).to(dtype)


PARTS = {torch.bfloat16: (torch.int16, 0x7FC0), torch.float16: (torch.int16, 0x7E00),
         torch.float32: (torch.int32, 0x7FC00000), torch.float64: (torch.int64, 0x7FF8 << 48)}


def parts_of(tensor):
    """Floating numbers, the two parts of complex ones included; nothing of integers."""
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if tensor.is_floating_point() else None


def put_nans(draw, table):
    """All bits set is a NaN with a sign and a payload."""
    parts = parts_of(table)
    if parts is not None and draw.random() < 0.5:
        integers = parts.view(PARTS[parts.dtype][0]).view(-1)
        integers[torch.randint(0, integers.numel(), (3,), generator=draw.generator)] = -1


def with_canonical_nans(tensor):
    parts = parts_of(tensor)
    if parts is not None:
        integer, quiet = PARTS[parts.dtype]
        parts.view(integer)[torch.isnan(parts)] = quiet
    return tensor


def bits_of(tensor):
    parts = parts_of(tensor)
    return tensor if parts is None else parts.contiguous().view(PARTS[parts.dtype][0])


def placed(draw, tensor):
    """The same values in a random arrangement."""
    kind = draw.randrange(4)
    if kind == 0 or tensor.dim() == 0:
        return tensor
    shape = list(tensor.shape)
    wide = torch.zeros(shape[:-1] + [2 * shape[-1] + 5], dtype=tensor.dtype)
    view = wide[..., ::2] if kind == 1 else wide
    view = view[..., 1:1 + shape[-1]] if kind == 2 else view[..., : shape[-1]]
    return view.copy_(tensor)


def compare(draw):
    table_rows = draw.choice([1, 2, 3, 10, 100, 2048])
    cols = draw.choice([1, 2, 3, 16, 31, 64, 100, 513, 1100])
    shape = [draw.randint(1, 12) for _ in range(draw.randint(0, 4))]
    if draw.random() < 0.2:
        shape = [draw.randint(1000, 6000)]
    dtype = draw.choice(DTYPES)
    table = draw_table(draw, (table_rows, cols), dtype)
    rows = torch.randint(0, table_rows, shape, generator=draw.generator)
    put_nans(draw, table)
    expected = with_canonical_nans(torch.nn.functional.embedding(rows, table))

    bad = -1
    if draw.random() < 0.2:
        bad = draw.randrange(rows.numel())
        rows.view(-1)[bad] = draw.choice([-1, table_rows, table_rows + 1000])
        expected.view(-1, cols)[bad] = 0
    indices = placed(draw, rows.to(draw.choice((torch.int32, torch.int64))))
    out = placed(draw, torch.zeros(expected.shape, dtype=dtype))
    try:
        aclnn.call("aclnnEmbedding", placed(draw, table), indices, out)
        assert bad < 0, "a bad index was not reported"
    except aclnn.Error as error:
        assert error.status == aclnn.DATA_ERROR and bad >= 0, str(error)
        assert f"position {bad};" in error.message, error.message
    name = f"embedding {dtype} {list(shape)} of {table_rows}x{cols}, indices {indices.dtype}"
    assert torch.equal(bits_of(out), bits_of(expected)), f"{name}: other values than PyTorch's"
    return 0.0


aclnn.main("embedding", compare, 100)
