#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""aclnnNsaCompressGrad against PyTorch's autograd in float64."""
import aclnn
import torch


def compress(x, w, ends, stride):
    """The forward operator: windows of len(w) tokens of each sequence, weighted and summed."""
    block = w.shape[0]
    parts, begin = [x[:0]], 0
    for end in ends:
        if end - begin >= block:
            windows = x[begin:end].unfold(0, block, stride)  # [windows, heads, width, block]
            parts.append(torch.einsum("incj,jn->inc", windows, w))
        begin = end
    return torch.cat(parts)


def exact_gradients(dy, x, w, ends, stride):
    """Of x and w, and the sums of the magnitudes of their terms."""
    out = []
    for grad, leaf_x, leaf_w in ((dy, x, w), (dy.abs(), x.abs(), w.abs())):
        leaf_x, leaf_w = leaf_x.clone().requires_grad_(), leaf_w.clone().requires_grad_()
        y = compress(leaf_x, leaf_w, ends, stride)
        out += torch.autograd.grad(y, (leaf_x, leaf_w), grad, allow_unused=True,
                                   materialize_grads=True)
    return out


def drawn_ends(draw, tokens):
    """Cumulative ends of up to six sequences, empty and short ones among them."""
    kind = draw.random()
    if kind < 0.3:
        return None
    last = tokens if kind < 0.8 else draw.randint(0, tokens)
    ends = sorted(draw.randint(0, last) for _ in range(draw.randint(0, 5))) + [last]
    return ([0] if draw.random() < 0.3 else []) + ends


def compare(draw):
    dtype = draw.choice((torch.float16, torch.bfloat16))
    heads, width = draw.choice((1, 2, 3, 4, 9)), 16 * draw.choice((1, 2, 3, 4, 8, 12, 16, 17))
    stride = 16 * draw.choice((1, 1, 1, 2, 3))
    block = stride + 16 * draw.choice((1, 1, 2, 3, 7, 16))
    tokens = draw.randint(0, 60000 // (heads * width))
    ends = drawn_ends(draw, tokens)
    x = draw.normal((tokens, heads, width), dtype)
    w = draw.normal((block, heads), dtype)
    seen_x, seen_w = x.double(), w.double()
    windows = compress(seen_x, seen_w, ends or [tokens], stride).shape[0]
    dy = draw.normal((windows, heads, width), dtype)
    flipped = [d for d in range(3) if draw.random() < 0.15]
    in_place = draw.random() < 0.25
    dx = x if in_place else aclnn.empty(x.shape, dtype, draw.arrangement())
    dw = aclnn.empty(w.shape, dtype, draw.arrangement())
    layout = draw.choice((None, "TND"))
    aclnn.call("aclnnNsaCompressGrad", aclnn.Tensor(dy, flipped), x, w, ends, block, stride, 0,
               layout, dx, dw)

    exact = exact_gradients(dy.flip(flipped).double(), seen_x, seen_w, ends or [tokens], stride)
    where = (f"aclnnNsaCompressGrad {dtype} {tuple(x.shape)} strides {x.stride()} l {block} "
             f"d {stride} ends {ends} in place {in_place}")
    return max(aclnn.check(where + " inputGradOut", dx, exact[0], exact[2], terms=windows),
               aclnn.check(where + " weightGradOut", dw, exact[1], exact[3], terms=windows * width))


if __name__ == "__main__":
    aclnn.main("nsa_compress_grad", compare, count=150)
