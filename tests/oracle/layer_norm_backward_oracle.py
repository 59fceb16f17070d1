#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LayerNormBackward against PyTorch in float64.

mean and rstd are what the caller gives, rounded to their dtypes, so PyTorch's own backward takes them as
they are; in FP32 the result is compared with autograd through layer_norm from end to end, too."""
import math

import torch

import aclnn

OPERATOR = "aclnnLayerNormBackward"
WIDTHS = (1, 2, 3, 15, 16, 17, 24, 64, 100, 192, 768, 1000, 1025, 4096, 4097, 9000)


def magnitudes(dy, x, mean, rstd, gamma):
    """A of gradInput, gradWeight and gradBias; all [rows, cols] or [rows, 1] in float64."""
    g = (dy * gamma).abs()
    bound = (x.abs() + mean.abs()) * rstd.abs()
    dx = rstd.abs() * (g + g.mean(1, keepdim=True) + bound * (g * bound).mean(1, keepdim=True))
    return dx, (dy.abs() * bound).sum(0), dy.abs().sum(0)


def compare(draw):
    dtype = draw.choice(aclnn.FLOATS)
    head = [draw.randint(1, 7) for _ in range(draw.randint(0, 3))]
    tail = [draw.choice(WIDTHS)] if draw.random() < 0.7 else [draw.randint(1, 9), draw.randint(1, 40)]
    if draw.random() < 0.2:
        head, tail = [draw.randint(500, 6000)], [draw.randint(1, 40)]
    rows, cols = math.prod(head), math.prod(tail)
    shape = head + tail
    x = draw.normal(shape, dtype, draw.arrangement())
    dy = draw.normal(shape, dtype, draw.arrangement())
    gamma_dtype = draw.choice((None, torch.float32, dtype))
    gamma = None if gamma_dtype is None else draw.normal(tail, gamma_dtype)

    wide_x = x.to(torch.float64).detach().clone().requires_grad_(True)
    wide_dy = dy.to(torch.float64)
    ones = torch.ones(tail, dtype=torch.float64)
    wide_gamma = (ones if gamma is None else gamma.to(torch.float64)).requires_grad_(True)
    beta = torch.zeros(tail, dtype=torch.float64, requires_grad=True)
    y, true_mean, true_rstd = torch.native_layer_norm(wide_x, tail, wide_gamma, beta, 1e-5)
    mean = true_mean.detach().to(draw.choice((torch.float32, dtype)))
    rstd = true_rstd.detach().to(draw.choice((torch.float32, dtype)))
    outputs = [aclnn.empty(dims, draw.choice(aclnn.FLOATS), draw.arrangement())
               for dims in (shape, tail, tail)]

    wide_mean, wide_rstd = mean.to(torch.float64), rstd.to(torch.float64)
    exact = torch.ops.aten.native_layer_norm_backward(
        wide_dy, wide_x.detach(), tail, wide_mean, wide_rstd, wide_gamma.detach(), beta.detach(),
        [True, True, True])
    flat = [t.reshape(rows, -1) for t in (wide_dy, wide_x.detach(), wide_mean, wide_rstd)]
    bounds = magnitudes(*flat, wide_gamma.detach().reshape(1, cols))

    aclnn.call(OPERATOR, dy, x, tail, mean, rstd, gamma, None,
               [True, True, True], *outputs)
    name = f"{OPERATOR} {dtype} {shape} normalized {tail}"
    worst = 0.0
    parts = list(zip(("gradInput", "gradWeight", "gradBias"), outputs, exact, bounds))
    for part, out, right, bound in parts:
        worst = max(worst, aclnn.check(f"{name} {part}", out, right, bound.reshape(out.shape),
                                       rows + cols))
    if dtype == mean.dtype == rstd.dtype == torch.float32:  # the statistics were rounded, too
        end_to_end = torch.autograd.grad(y, (wide_x, wide_gamma, beta), wide_dy)
        for (part, out, _, bound), right in zip(parts, end_to_end):
            aclnn.check(f"{name} {part} (end to end)", out, right, 2 * bound.reshape(out.shape),
                        rows + cols)
    return worst


if __name__ == "__main__":
    aclnn.main("layer_norm_backward", compare, 80)
