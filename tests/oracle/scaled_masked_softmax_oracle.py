#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ScaledMaskedSoftmax against PyTorch's softmax in float64."""
import torch

import aclnn

OPERATOR = "aclnnScaledMaskedSoftmax"
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

    x = draw.normal(shape, dtype)
    if draw.random() < 0.2 and x.numel():  # NaN and Inf, masked or not
        x[tuple(draw.randrange(size) for size in shape)] = draw.choice(
            (float("nan"), float("inf"), float("-inf")))
    mask = draw.integers(0, 1, mask_shape, torch.bool)
    if min(mask_shape) > 0 and draw.random() < 0.3:  # a view that repeats one row
        mask = mask[:, :, :1, :].expand(mask_shape)
    if draw.random() < 0.2:
        mask = torch.ones_like(mask)
    y = aclnn.empty(shape, dtype, draw.arrangement())

    exact = torch.softmax((x.double() * scale).masked_fill(mask, -10000.0), -1)
    aclnn.call(OPERATOR, x, mask, scale, False, y)
    name = f"{OPERATOR} {dtype} {shape} mask {mask_shape} scale {scale}"
    return aclnn.check(name, y, exact, exact, 2)


if __name__ == "__main__":
    aclnn.main("scaled_masked_softmax", compare, 80)
