# SPDX-License-Identifier: Apache-2.0
"""Window compression in sparse attention (NSA), as formulas.py has the other operators."""
from typing import NamedTuple

import torch

from tensors import DEVICE, normal, parts


class Padded(NamedTuple):
    """Sequences moved apart so that parts begin at multiples of the stride."""
    parts: int
    places: torch.Tensor     # of the tokens
    tokens: torch.Tensor     # which lies where
    window_of: torch.Tensor  # which begins with each part; as many as there are windows: none
    part_of: torch.Tensor    # with which each window begins


class Windows:
    """The windows of an NSA problem. A window is block / stride parts of stride tokens; sequences may end
    inside a part."""

    def __init__(self, text):
        (self.tokens, self.heads, self.width), options = parts(text)
        self.block, self.stride, count = options["l"], options["d"], options.get("s", 1)
        if self.block % self.stride:
            raise NotImplementedError("written for windows of whole steps")
        self.parts = self.block // self.stride
        quarter = self.tokens // count // 4 if "uneven" in options else 0
        ends = [self.tokens * i // count + (i % 4 - 2) * quarter for i in range(1, count)] + [self.tokens]
        self.sequences = list(zip([0, *ends[:-1]], ends))

    def each(self):
        """(first token, whole parts, first window, windows) of every sequence that has windows."""
        first = 0
        for begin, end in self.sequences:
            whole = (end - begin) // self.stride
            windows = whole - self.parts + 1
            if windows > 0:
                yield begin, whole, first, windows
                first += windows

    def count(self):
        return sum(windows for *_, windows in self.each())

    def padded(self):
        """A Padded, or None where parts begin at multiples of the stride as it is."""
        lengths = [end - begin for begin, end in self.sequences]
        if len(lengths) == 1 and lengths[0] % self.stride == 0:
            return None
        places, window_of, part_of, at = [], [], [], 0
        for length in lengths:
            places.append(torch.arange(length) + at * self.stride)
            whole, all_parts = length // self.stride, -(-length // self.stride)
            windows = max(whole - self.parts + 1, 0)
            window_of += range(len(part_of), len(part_of) + windows)
            window_of += [-1] * (all_parts - windows)
            part_of += range(at, at + windows)
            at += all_parts
        places = torch.cat(places)
        tokens = torch.zeros(at * self.stride, dtype=torch.long)
        tokens[places] = torch.arange(self.tokens)
        window_of = torch.tensor(window_of)
        window_of[window_of < 0] = len(part_of)
        return Padded(at, *(index.to(DEVICE)
                            for index in (places, tokens, window_of, torch.tensor(part_of))))


def nsa_compress_grad(dtype, text):
    cut = Windows(text)
    heads, width, stride = cut.heads, cut.width, cut.stride
    dy, x = normal((cut.count(), heads, width), dtype), normal((cut.tokens, heads, width), dtype, 2)
    w = normal((cut.block, heads), dtype, 3)

    def by_parts():  # each part of all windows of a sequence is one slice
        dx = torch.zeros_like(x)
        dw = torch.zeros(cut.parts, stride, heads, dtype=dtype, device=DEVICE)
        weights = w.view(cut.parts, stride, heads, 1)
        for begin, whole, first, windows in cut.each():
            here = slice(begin, begin + whole * stride)
            x_parts, dx_parts = (tensor[here].view(whole, stride, heads, width) for tensor in (x, dx))
            dy_here = dy[first:first + windows]
            for part in range(cut.parts):
                rows = slice(part, part + windows)
                dx_parts[rows].addcmul_(dy_here[:, None], weights[part])
                dw[part] += torch.einsum("ind,ijnd->jn", dy_here, x_parts[rows])
        return [dx, dw.view_as(w)]

    padded = cut.padded()
    all_parts = cut.tokens // stride if padded is None else padded.parts
    windows = all_parts - cut.parts + 1

    def formula(dy, x, w):
        wide = dy.float()
        if padded is not None:  # a part with which no window begins has gradients of 0
            x = x[padded.tokens]
            wide = torch.cat([wide, torch.zeros_like(wide[:1])])[padded.window_of[:windows]]
        slices = x.view(all_parts, stride, heads, width).float()
        weights = w.view(cut.parts, stride, heads, 1).float()
        dx = torch.zeros_like(slices)
        dw = []
        for part in range(cut.parts):
            after = (0, 0, 0, 0, 0, 0, part, all_parts - windows - part)
            dx = dx + torch.nn.functional.pad(wide[:, None] * weights[part], after)
            dw.append((wide[:, None] * slices[part:part + windows]).sum((0, 3)))
        dx = dx.to(dtype).view(-1, heads, width)
        return [dx if padded is None else dx[padded.places], torch.stack(dw).to(dtype).view_as(w)]

    return {"slices for each part": by_parts}, {"slices for each part": (formula, (dy, x, w))}


def nsa_compress(dtype, text):
    cut = Windows(text)
    heads, width, stride = cut.heads, cut.width, cut.stride
    x, w = normal((cut.tokens, heads, width), dtype), normal((cut.block, heads), dtype, 2)
    padded = cut.padded()
    all_parts = cut.tokens // stride if padded is None else padded.parts

    def formula(x, w):
        if padded is not None:
            x = x[padded.tokens]
        slices = x.view(all_parts, stride, heads, width)
        weights = w.view(cut.parts, stride, heads)
        windows = all_parts - cut.parts + 1
        result = torch.zeros(windows, heads, width, device=DEVICE)
        for part in range(cut.parts):
            here = slices[part:part + windows].float()
            result = result + (here * weights[part][..., None].float()).sum(1)
        return [(result if padded is None else result[padded.part_of]).to(dtype)]

    def by_parts():
        result = torch.zeros(cut.count(), heads, width, dtype=dtype, device=DEVICE)
        weights = w.view(cut.parts, stride, heads)
        for begin, whole, first, windows in cut.each():
            slices = x[begin:begin + whole * stride].view(whole, stride, heads, width)
            for part in range(cut.parts):
                result[first:first + windows] += torch.einsum(
                    "ijnd,jn->ind", slices[part:part + windows], weights[part])
        return [result]

    def by_unfolding():
        found = []
        for begin, whole, first, windows in cut.each():
            unfolded = x[begin:begin + whole * stride].unfold(0, cut.block, stride)
            found.append(torch.einsum("inej,jn->ine", unfolded, w))
        return found if len(found) == 1 else [torch.cat(found)]

    return ({"unfold and einsum": by_unfolding, "slices for each part": by_parts},
            {"slices for each part": (formula, (x, w))})
