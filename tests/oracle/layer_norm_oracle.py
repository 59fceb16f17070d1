#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LayerNorm against torch.native_layer_norm in float64."""
import math

import torch

import aclnn

WIDTHS = (1, 2, 3, 15, 16, 17, 24, 64, 100, 192, 768, 1000, 1025, 4096, 4097, 9000, 20000)


def compare(draw):
    dtype = draw.choice(aclnn.FLOATS)
    head = [draw.randint(1, 7) for _ in range(draw.randint(0, 3))]
    tail = [draw.choice(WIDTHS)] if draw.random() < 0.7 else [draw.randint(1, 9), draw.randint(1, 40)]
    if draw.random() < 0.2:
        head, tail = [draw.randint(500, 6000)], [draw.randint(1, 40)]
    rows, cols = math.prod(head), math.prod(tail)
    shape = head + tail
    scale, shift = draw.choice(((1.0, 0.0), (2.0, 0.5), (0.01, 10.0), (1000.0, -3.0)))
    numbers = torch.randn(shape, generator=draw.generator, dtype=torch.float64) * scale + shift
    x = aclnn.arranged(numbers.to(dtype), draw.arrangement())
    affine = draw.choice((torch.float32, dtype))
    weight = draw.normal(tail, affine) if draw.random() < 0.8 else None
    bias = draw.normal(tail, affine) if draw.random() < 0.8 else None
    eps = draw.choice((1e-5, 1e-6, 1e-3, 1.0))
    out = aclnn.empty(shape, draw.choice(aclnn.FLOATS), draw.arrangement())
    statistics = [aclnn.empty(head + [1] * len(tail), draw.choice(aclnn.FLOATS), draw.arrangement())
                  if draw.random() < 0.8 else None for _ in range(2)]

    wide = [None if t is None else t.to(torch.float64) for t in (x, weight, bias)]
    exact, mean, rstd = torch.native_layer_norm(wide[0], tail, wide[1], wide[2], eps)
    flat = wide[0].reshape(rows, cols)
    centre, spread = mean.reshape(rows, 1), rstd.reshape(rows, 1)
    gamma = torch.ones(cols) if weight is None else wide[1].reshape(cols).abs()
    beta = torch.zeros(cols) if bias is None else wide[2].reshape(cols).abs()
    magnitude = gamma * (flat.abs() + centre.abs()) * spread + beta

    arguments = [x, tail, weight, bias, eps, out, *statistics]
    mode = draw.choice((None, 0, 1))
    operator = "aclnnLayerNorm" if mode is None else "aclnnLayerNormWithImplMode"
    aclnn.call(operator, *arguments, *([] if mode is None else [mode]))
    name = f"{operator} {dtype} {shape} normalized {tail} eps {eps}"
    worst = aclnn.check(f"{name} out", out, exact, magnitude, cols)
    parts = (("mean", mean, flat.abs().mean(1)), ("rstd", rstd, rstd))
    for (part, right, bound), got in zip(parts, statistics):
        if got is not None:
            worst = max(worst, aclnn.check(f"{name} {part}", got, right, bound, cols))
    return worst


aclnn.main("layer_norm", compare, 80)
