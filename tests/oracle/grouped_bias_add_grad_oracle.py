#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""aclnnGroupedBiasAddGrad and V2 against PyTorch's autograd in float64."""
import aclnn
import torch


def exact_gradient(grad, bias_of_row, groups):
    """Of the bias in y[i] = x[i] + bias[bias_of_row[i]], and the sum of its terms' magnitudes."""
    bias = torch.zeros(groups, grad.shape[1], dtype=torch.float64, requires_grad=True)
    x = torch.ones_like(grad)
    gradients = []
    for upstream in (grad, grad.abs()):
        y = x + bias[bias_of_row]
        gradients += torch.autograd.grad(y, bias, upstream)
    return gradients


def drawn_sizes(draw, groups):
    kind = draw.choice(("even", "skewed", "one"))
    if kind == "even":
        return [draw.randint(0, 40) for _ in range(groups)]
    if kind == "skewed":
        return [draw.choice((0, 0, 1, draw.randint(1, 900))) for _ in range(groups)]
    sizes = [0] * groups
    sizes[draw.randrange(groups)] = draw.randint(1, 3000)
    return sizes


def compare(draw):
    dtype = draw.choice(aclnn.FLOATS)
    cols = draw.choice((1, 2, 3, 8, 15, 16, 17, 24, 64, 100, 127, 256, 257, 300, 1000))
    groups = draw.randint(1, 12)
    second = draw.random() < 0.5
    name = "aclnnGroupedBiasAddGradV2" if second else "aclnnGroupedBiasAddGrad"
    out = aclnn.empty((groups, cols), dtype, draw.arrangement())
    if draw.random() < 0.3:
        rows = draw.randint(0, 600)
        sizes = [rows] * groups
        grad = draw.normal((groups, rows, cols), dtype)
        index = None
    else:
        sizes = drawn_sizes(draw, groups)
        grad = draw.normal((sum(sizes), cols), dtype)
        index = torch.tensor(sizes)
    by_size = second and draw.random() < 0.5
    if index is not None:
        index = aclnn.arranged((index if by_size else index.cumsum(0)).to(
            draw.choice((torch.int32, torch.int64))), draw.arrangement())
    kind = (int(by_size),) if second else ()
    flipped = [d for d in range(grad.dim()) if draw.random() < 0.15]
    aclnn.call(name, aclnn.Tensor(grad, flipped), index, *kind, out)

    seen = grad.flip(flipped).to(torch.float64).reshape(-1, cols)
    bias_of_row = torch.repeat_interleave(torch.arange(groups), torch.tensor(sizes))
    exact, magnitude = exact_gradient(seen, bias_of_row, groups)
    where = f"{name} {dtype} {tuple(grad.shape)} strides {grad.stride()} groups {sizes}"
    return aclnn.check(where, out, exact, magnitude, terms=max(sizes))


if __name__ == "__main__":
    aclnn.main("grouped_bias_add_grad", compare, count=150)
