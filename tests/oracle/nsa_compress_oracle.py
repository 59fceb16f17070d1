#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""aclnnNsaCompress against PyTorch in float64."""
import aclnn
import torch


def compress(x, w, ends, stride):
    """Windows of len(w) tokens of each sequence, weighted and summed."""
    block = w.shape[0]
    parts, begin = [x[:0]], 0
    for end in ends:
        if end - begin >= block:
            windows = x[begin:end].unfold(0, block, stride)  # [windows, heads, width, block]
            parts.append(torch.einsum("incj,jn->inc", windows, w))
        begin = end
    return torch.cat(parts)


def drawn_ends(draw, tokens):
    """Cumulative ends of up to six sequences, empty and short ones among them."""
    last = tokens if draw.random() < 0.7 else draw.randint(0, tokens)
    ends = sorted(draw.randint(0, last) for _ in range(draw.randint(0, 5))) + [last]
    return ([0] if draw.random() < 0.3 else []) + ends


def compare(draw):
    dtype = draw.choice((torch.float16, torch.bfloat16))
    heads, width = draw.choice((1, 2, 3, 4, 9, 128)), 16 * draw.choice((1, 2, 3, 4, 8, 12, 16))
    stride = 16 * draw.choice((1, 1, 1, 2, 3))
    block = min(128, stride + 16 * draw.choice((0, 1, 1, 2, 3, 7)))
    tokens = draw.randint(0, 100 + 60000 // (heads * width))
    ends = drawn_ends(draw, tokens)
    x = draw.normal((tokens, heads, width), dtype)
    w = draw.normal((block, heads), dtype)
    flipped = [d for d in range(3) if draw.random() < 0.15]
    seen = x.flip(flipped).double()
    exact = compress(seen, w.double(), ends, stride)
    magnitude = compress(seen.abs(), w.double().abs(), ends, stride)
    y = aclnn.empty(exact.shape, dtype, draw.arrangement())
    layout = draw.choice((None, "TND"))
    aclnn.call("aclnnNsaCompress", aclnn.Tensor(x, flipped), w, ends, layout, block, stride, 0, y)
    where = (f"aclnnNsaCompress {dtype} {tuple(x.shape)} strides {x.stride()} l {block} "
             f"d {stride} ends {ends}")
    return aclnn.check(where, y, exact, magnitude, terms=block)


if __name__ == "__main__":
    aclnn.main("nsa_compress", compare, count=150)
