#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""EmbeddingDenseBackward against the autograd of torch.nn.functional.embedding in float64."""
import math

import torch

import aclnn

INDEX_TYPES = (torch.float32, torch.float16, torch.float64, torch.int32, torch.int64, torch.int16,
               torch.int8, torch.uint8, torch.bool)
LARGEST = {torch.float16: 2048, torch.int8: 127, torch.uint8: 255, torch.bool: 1}


def gradient(rows, grad, table_rows, padding, scale):
    table = torch.zeros(table_rows, grad.shape[-1], dtype=torch.float64, requires_grad=True)
    looked_up = torch.nn.functional.embedding(rows, table, padding_idx=padding,
                                              scale_grad_by_freq=scale)
    looked_up.backward(grad)
    return table.grad


def shape_of(draw, count):
    """Some factorisation of count."""
    dims = []
    while count > 1 and len(dims) < 6 and draw.random() < 0.7:
        factor = draw.choice([d for d in range(1, count + 1) if count % d == 0])
        dims.append(factor)
        count //= factor
    return dims + [count]


def draw_indices(draw, count, table_rows):
    """Indices as the operator gets them, and the rows they mean (-1: none, a data error)."""
    dtype = draw.choice(INDEX_TYPES)
    last = min(table_rows - 1, LARGEST.get(dtype, 2**24))
    if draw.random() < 0.5:  # a few rows get most of the gradient
        drawn = torch.rand(count, generator=draw.generator, dtype=torch.float64) ** 6
        rows = (drawn * (last + 1)).floor().clamp(max=last).to(torch.int64)
    else:
        rows = torch.randint(0, last + 1, (count,), generator=draw.generator)
    values = rows.to(torch.float64)
    if dtype.is_floating_point:
        values += torch.where(torch.arange(count) % 2 == 0, 0.0, 0.25 if last < 512 else 0.0)
    if dtype != torch.bool and draw.random() < 0.2:
        bad = table_rows if table_rows <= LARGEST.get(dtype, 2**15 - 1) else -1
        if bad >= 0 or dtype != torch.uint8:
            position = draw.randrange(count)
            values[position], rows[position] = bad, -1
    indices = aclnn.arranged(values.to(dtype).reshape(shape_of(draw, count)), draw.arrangement())
    return indices, rows


def compare(draw):
    count = draw.choice([1, 2, 15, 16, 17, 100, 257, 1500, 5000, 40000])
    cols = draw.choice([1, 3, 16, 31, 64, 100] if count > 2000 else [1, 7, 48, 65, 513, 1100])
    table_rows = draw.choice([1, 2, 3, 10, 100, 2048, 5000])
    padding = draw.choice([None, draw.randrange(table_rows)])
    scale = draw.random() < 0.5
    grad = draw.normal(shape_of(draw, count) + [cols], draw.choice(aclnn.FLOATS))
    indices, rows = draw_indices(draw, count, table_rows)
    out = aclnn.empty((table_rows, cols), draw.choice(aclnn.FLOATS), draw.arrangement())

    no_padding = draw.choice([2**64 - 1, 2**32 - 1, table_rows])
    bad = (rows < 0).nonzero().reshape(-1)
    try:
        aclnn.call("aclnnEmbeddingDenseBackward", grad, indices, table_rows,
                   no_padding if padding is None else padding, scale, out)
        assert bad.numel() == 0, "a bad index was not reported"
    except aclnn.Error as error:
        assert error.status == aclnn.DATA_ERROR and bad.numel() > 0, str(error)
        assert f"position {int(bad[0])};" in error.message, error.message

    terms = grad.to(torch.float64).reshape(count, cols)[rows >= 0]
    rows = rows[rows >= 0]
    exact = gradient(rows, terms, table_rows, padding, scale)
    magnitude = gradient(rows, terms.abs(), table_rows, padding, scale)
    name = (f"embedding_dense_backward {grad.dtype} to {out.dtype}, {count}x{table_rows}x{cols}, "
            f"indices {indices.dtype} {math.prod(indices.shape)}")
    return aclnn.check(name, out, exact, magnitude, count)


aclnn.main("embedding_dense_backward", compare)
