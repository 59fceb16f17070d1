#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ScaledMaskedSoftmaxBackward against PyTorch in float64: autograd through scale, mask and softmax.

y is what the caller gives, rounded to its dtype, so the softmax step takes PyTorch's own backward at
that y; in FP32 the result is compared with autograd from end to end, too."""
import torch

import aclnn

OPERATOR = "aclnnScaledMaskedSoftmaxBackward"
WIDTHS = (1, 2, 3, 8, 15, 16, 17, 31, 64, 197, 512, 1000, 1025, 1500, 2048, 4095, 4096)


def compare(draw):
    dtype = draw.choice(aclnn.FLOATS)
    cols = draw.choice(WIDTHS) if draw.random() < 0.7 else draw.randint(1, 300)
    shape = [draw.randint(1, 4), draw.randint(1, 5), draw.randint(1, 40), cols]
    if draw.random() < 0.1:
        shape[draw.randrange(4)] = 0
    if draw.random() < 0.1:
        shape[:3] = draw.choice(([1, 20, 100], [60, 30, 1], [1, 1, 2000]))
        shape[3] = min(shape[3], 100)
    mask_shape = [draw.choice((1, shape[0])), draw.choice((1, shape[1])), shape[2], shape[3]]
    scale = draw.choice((1.0, 0.125, 0.08838834764831845, -2.5, 1e-3, 37.0))

    x = torch.randn(shape, generator=draw.generator, dtype=torch.float64, requires_grad=True)
    mask = draw.integers(0, 1, mask_shape, torch.bool)
    if min(mask_shape) > 0 and draw.random() < 0.3:  # a view that repeats one row
        mask = mask[:, :, :1, :].expand(mask_shape)
    scores = (x * scale).masked_fill(mask, -30.0)
    exact_y = torch.softmax(scores, -1)
    y = aclnn.arranged(exact_y.detach().to(dtype), draw.arrangement())
    grad = draw.normal(shape, dtype)
    out = draw.choice((aclnn.empty(shape, dtype, draw.arrangement()), grad, y))

    wide_grad, wide_y = grad.to(torch.float64), y.to(torch.float64)
    at_y = torch.ops.aten._softmax_backward_data(wide_grad, wide_y, -1, torch.float64)
    (exact,) = torch.autograd.grad(scores, x, at_y, retain_graph=True)
    (end_to_end,) = torch.autograd.grad(exact_y, x, wide_grad)
    product = (wide_grad * wide_y).abs()
    magnitude = abs(scale) * (product + wide_y.abs() * product.sum(-1, keepdim=True))
    magnitude = magnitude.masked_fill(mask, 0.0)

    aclnn.call(OPERATOR, grad, y, mask, scale, False, out)
    name = f"{OPERATOR} {dtype} {shape} mask {mask_shape} scale {scale}"
    worst = aclnn.check(name, out, exact, magnitude, cols + 2)
    if dtype == torch.float32:  # y was rounded, to a subnormal even
        terms = (cols + 2) * max(1.0, abs(scale))
        aclnn.check(name + " (end to end)", out, end_to_end, 2 * magnitude, terms)
    return worst


if __name__ == "__main__":
    aclnn.main("scaled_masked_softmax_backward", compare, 80)
