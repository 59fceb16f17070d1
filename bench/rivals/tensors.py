# SPDX-License-Identifier: Apache-2.0
"""What the problems of the PyTorch rival are made of: names of shapes, and random tensors."""
import sys

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
DEVICE = "cuda" if "--cuda" in sys.argv[1:] else "cpu"


def random_numbers(seed):
    return torch.Generator(DEVICE).manual_seed(seed)


def normal(shape, dtype, seed=1):
    numbers = torch.empty(shape, device=DEVICE).normal_(generator=random_numbers(seed))
    return numbers.to(dtype)


def sizes(text):
    return [int(number) for number in text.split("x")]


def parts(text):
    """'65536x4x128-l32-d16' -> ([65536, 4, 128], {'l': 32, 'd': 16}); a word alone is {'word': 1}."""
    shape, *options = text.split("-")
    values = {}
    for option in options:
        name = option.rstrip("0123456789")
        values[name] = int(option[len(name):] or 1)
    return sizes(shape), values
