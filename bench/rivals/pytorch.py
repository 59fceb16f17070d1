#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pytorch.py [--compiled] [--cuda]: PyTorch as a rival of the bench (orders: bench/rival.h).

PyTorch is called at its best. Where there are several ways to write an operator all are tried and the
fastest runs; its heap is warm (memory never goes back to the system: with glibc's defaults every large
result pays page faults, 2 to 4 times the time) and lies in huge pages, as aclgrad's does. With --compiled the ways are plain formulas that
torch.compile turns into kernels. Results of a problem's ways must agree. With --cuda all of it happens on
the first GPU and is timed by its events, from the first call's beginning to the last one's end.
"""
import ctypes
import gc
import os
import sys
import time

WARM_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000",
             "THP_MEM_ALLOC_ENABLE": "1"}
if any(os.environ.get(name) != value for name, value in WARM_HEAP.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WARM_HEAP})

import torch  # pylint: disable=wrong-import-position

aten = torch.ops.aten
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
DEVICE = "cuda" if "--cuda" in sys.argv[1:] else "cpu"
SCALE = 0.125
PIECE = 1 << 24  # elements that are compared together
MOST_UNROLLED = 64  # groups that a compiled loop may have


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


def zipf(count, rows):
    uniform = torch.rand(count, dtype=torch.float64, device=DEVICE, generator=random_numbers(2))
    return (torch.floor((rows + 1.0) ** uniform) - 1).long()


# Each gives (eager ways, compiled ways): functions without arguments by name.


def layer_norm(dtype, text):
    (rows, cols), _ = parts(text)
    x, w, b = normal((rows, cols), dtype), normal(cols, dtype, 2), normal(cols, dtype, 3)

    def formula(x, w, b):
        x = x.float()
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        rstd = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return [(centred * rstd * w + b).to(dtype), mean, rstd]

    return ({"native_layer_norm": lambda: torch.native_layer_norm(x, [cols], w, b, 1e-5)},
            {"the formula": (formula, (x, w, b))})


def layer_norm_backward(dtype, text):
    (rows, cols), _ = parts(text)
    dy, x, w = normal((rows, cols), dtype), normal((rows, cols), dtype, 2), normal(cols, dtype, 3)
    b = torch.zeros_like(w)
    _, mean, rstd = torch.native_layer_norm(x, [cols], w, b, 1e-5)

    def formula(dy, x, mean, rstd, w):
        dy = dy.float()
        xhat = (x.float() - mean) * rstd
        g = dy * w
        dx = rstd * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
        return [dx.to(dtype), (dy * xhat).sum(0).to(dtype), dy.sum(0).to(dtype)]

    return ({"native_layer_norm_backward": lambda: aten.native_layer_norm_backward(
        dy, x, [cols], mean, rstd, w, b, [True, True, True])},
            {"the formula": (formula, (dy, x, mean, rstd, w))})


def indices_of(count, rows, options):
    if "uniform" in options:
        return torch.randint(0, rows, (count,), device=DEVICE, generator=random_numbers(2))
    if "equal" in options:
        return torch.zeros(count, dtype=torch.long, device=DEVICE)
    return zipf(count, rows)


def embedding(dtype, text):
    (count, rows, cols), options = parts(text)
    w, indices = normal((rows, cols), dtype), indices_of(count, rows, options)
    out = torch.empty(count, cols, dtype=dtype, device=DEVICE)
    return ({"embedding": lambda: [torch.embedding(w, indices)],
             "index_select, out given": lambda: [torch.index_select(w, 0, indices, out=out)]},
            {"rows by index": (lambda w, indices: [w[indices]], (w, indices))})


def embedding_dense_backward(dtype, text):
    (count, rows, cols), options = parts(text)
    dy, indices = normal((count, cols), dtype), indices_of(count, rows, options)
    by_freq = "freq" in options
    ways = {"embedding_dense_backward": lambda: [
        aten.embedding_dense_backward(dy, indices, rows, -1, by_freq)]}
    if not by_freq:
        ways["index_add_"] = lambda: [
            torch.zeros(rows, cols, dtype=dtype, device=DEVICE).index_add_(0, indices, dy)]

    def formula(dy, indices):
        return [aten.embedding_dense_backward(dy, indices, rows, -1, by_freq)]

    return ways, {"embedding_dense_backward": (formula, (dy, indices))}


def causal_mask(batch, rows, cols):
    mask = torch.ones(rows, cols, dtype=torch.bool, device=DEVICE).triu(1)
    return mask.expand(batch, 1, rows, cols).contiguous()


def scaled_masked_softmax_backward(dtype, text):
    (batch, heads, rows, cols), _ = parts(text)
    y = torch.softmax(normal((batch, heads, rows, cols), torch.float32), -1).to(dtype)
    dy = normal(y.shape, dtype, 2)
    mask = causal_mask(batch, rows, cols)
    factors = torch.where(mask, 0.0, SCALE).to(dtype)

    def by_fill():
        dx = aten._softmax_backward_data(dy, y, -1, dtype)
        return [dx.mul_(SCALE).masked_fill_(mask, 0.0)]

    def by_factors():
        return [aten._softmax_backward_data(dy, y, -1, dtype).mul_(factors)]

    def formula(dy, y, mask):
        dy, y = dy.float(), y.float()
        dx = SCALE * (dy * y - y * (dy * y).sum(-1, keepdim=True))
        return [dx.masked_fill(mask, 0.0).to(dtype)]

    return ({"softmax backward, mul_, masked_fill_": by_fill,
             "softmax backward, mul_ by scale or 0": by_factors},
            {"the formula": (formula, (dy, y, mask))})


def scaled_masked_softmax(dtype, text):
    (batch, heads, rows, cols), _ = parts(text)
    x = normal((batch, heads, rows, cols), dtype)
    mask = causal_mask(batch, rows, cols)
    shift = torch.where(mask, -10000.0, 0.0).to(dtype)

    def formula(x, mask):
        return [torch.softmax((x.float() * SCALE).masked_fill(mask, -10000.0), -1).to(dtype)]

    return ({"mul, masked_fill_, softmax": lambda: [
        torch.softmax((x * SCALE).masked_fill_(mask, -10000.0), -1)],
             "add to 0 or -10000, softmax": lambda: [
                 torch.softmax(torch.add(shift, x, alpha=SCALE), -1)]},
            {"the formula": (formula, (x, mask))})


def grouped_bias_add_grad(dtype, text):
    dims, options = parts(text)
    if "g" not in options:
        dy = normal(dims, dtype)
        ones = torch.ones(dims[0], 1, dims[1], dtype=dtype, device=DEVICE)
        return ({"sum": lambda: [torch.sum(dy, 1)],
                 "ones @ dy": lambda: [torch.bmm(ones, dy)[:, 0]]},
                {"sum": (lambda dy: [torch.sum(dy, 1)], (dy,))})
    (rows, width), groups = dims, options["g"]
    dy = normal((rows, width), dtype)
    ends = [rows * (j + 1) // groups for j in range(groups)]
    if "giant" in options:
        ends = [0] * (groups // 2) + [rows] * (groups - groups // 2)
    begins = [0] + ends[:-1]

    def sums():
        out = torch.empty(groups, width, dtype=dtype, device=DEVICE)
        for j, (begin, end) in enumerate(zip(begins, ends)):
            torch.sum(dy[begin:end], 0, out=out[j])
        return [out]

    ones = torch.ones(1, rows, dtype=dtype, device=DEVICE)

    def products():
        out = torch.empty(groups, width, dtype=dtype, device=DEVICE)
        for j, (begin, end) in enumerate(zip(begins, ends)):
            torch.mm(ones[:, begin:end], dy[begin:end], out=out[j:j + 1])
        return [out]

    def formula(dy):
        return [torch.stack([dy[begin:end].sum(0) for begin, end in zip(begins, ends)])]

    every_row = torch.arange(rows, dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, *ends], dtype=torch.int32, device=DEVICE)
    ways = {"a sum for each group": sums, "ones @ dy for each group": products,
            "embedding_bag of all rows": lambda: [
                aten.embedding_bag(dy, every_row, offsets, False, 0, False, None, True)[0]]}
    formulas = {"a sum for each group": (formula, (dy,))} if groups <= MOST_UNROLLED else {}
    if rows % groups == 0 and "giant" not in options:
        def equal_groups(dy):
            return [dy.view(groups, -1, width).sum(1)]

        ways["one sum over equal groups"] = lambda: equal_groups(dy)
        formulas["one sum over equal groups"] = (equal_groups, (dy,))
    return ways, formulas


def nsa_sizes(text):
    (tokens, heads, width), options = parts(text)
    return tokens, heads, width, options["l"], options["d"], options.get("s", 1)


def nsa_compress_grad(dtype, text):
    tokens, heads, width, block, stride, sequences = nsa_sizes(text)
    if sequences != 1 or tokens % stride or block % stride:
        raise NotImplementedError("written for one sequence of whole parts")
    windows = (tokens - block) // stride + 1
    dy, x = normal((windows, heads, width), dtype), normal((tokens, heads, width), dtype, 2)
    w = normal((block, heads), dtype, 3)

    def by_parts():  # a window is block / stride parts; each part of all windows is one slice
        dx = torch.zeros(tokens // stride, stride, heads, width, dtype=dtype, device=DEVICE)
        dw = torch.empty(block // stride, stride, heads, dtype=dtype, device=DEVICE)
        slices = x.view(tokens // stride, stride, heads, width)
        weights = w.view(block // stride, stride, heads, 1)
        for part in range(block // stride):
            rows = slice(part, part + windows)
            dx[rows].addcmul_(dy[:, None], weights[part])
            dw[part] = torch.einsum("ind,ijnd->jn", dy, slices[rows])
        return [dx.view_as(x), dw.view_as(w)]

    def formula(dy, x, w):
        slices = x.view(tokens // stride, stride, heads, width).float()
        weights = w.view(block // stride, stride, heads, 1).float()
        wide = dy.float()
        dx = torch.zeros_like(slices)
        dw = []
        for part in range(block // stride):
            after = (0, 0, 0, 0, 0, 0, part, tokens // stride - windows - part)
            dx = dx + torch.nn.functional.pad(wide[:, None] * weights[part], after)
            dw.append((wide[:, None] * slices[part:part + windows]).sum((0, 3)))
        return [dx.to(dtype).view_as(x), torch.stack(dw).to(dtype).view_as(w)]

    return {"slices for each part": by_parts}, {"slices for each part": (formula, (dy, x, w))}


def nsa_compress(dtype, text):
    tokens, heads, width, block, stride, sequences = nsa_sizes(text)
    if sequences != 1 or tokens % stride or block % stride:
        raise NotImplementedError("written for one sequence of whole parts")
    windows = (tokens - block) // stride + 1
    x, w = normal((tokens, heads, width), dtype), normal((block, heads), dtype, 2)

    def formula(x, w):
        slices = x.view(tokens // stride, stride, heads, width)
        weights = w.view(block // stride, stride, heads)
        result = torch.zeros(windows, heads, width, device=DEVICE)
        for part in range(block // stride):
            here = slices[part:part + windows].float()
            result = result + (here * weights[part][..., None].float()).sum(1)
        return [result.to(dtype)]

    def by_parts():
        result = torch.zeros(windows, heads, width, dtype=dtype, device=DEVICE)
        slices = x.view(tokens // stride, stride, heads, width)
        weights = w.view(block // stride, stride, heads)
        for part in range(block // stride):
            result += torch.einsum("ijnd,jn->ind", slices[part:part + windows], weights[part])
        return [result]

    return ({"unfold and einsum": lambda: [
        torch.einsum("inej,jn->ine", x.unfold(0, block, stride), w)],
             "slices for each part": by_parts}, {"slices for each part": (formula, (x, w))})


OPERATORS = {fn.__name__: fn for fn in (
    layer_norm, layer_norm_backward, embedding, embedding_dense_backward, scaled_masked_softmax,
    scaled_masked_softmax_backward, grouped_bias_add_grad, nsa_compress, nsa_compress_grad)}


def seconds_on_gpu(fn, repeats):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        fn()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def seconds_of(fn, repeats=1):
    if DEVICE == "cuda":
        return seconds_on_gpu(fn, repeats)
    begin = time.perf_counter()
    for _ in range(repeats):
        fn()
    return (time.perf_counter() - begin) / repeats


def check_agreement(ways):
    """A race against another computation would be worthless. In pieces: results may have gigabytes."""
    expected, *others = [way() for way in ways]
    for result in others:
        for theirs, ours in zip(result, expected):
            error = largest = 0.0
            for a, b in zip(theirs.reshape(-1).split(PIECE), ours.reshape(-1).split(PIECE)):
                apart = (a.double() - b.double()).abs().max().item()
                error, largest = max(apart, error), max(b.abs().max().item(), largest)
                if apart != apart:
                    raise ArithmeticError("a result is NaN")
            if error > 0.05 * largest:
                raise ArithmeticError(f"two ways differ by {error:.3g}")


def bind(formula, arguments):
    compiled = torch.compile(formula, dynamic=False)
    return lambda: compiled(*arguments)


class Problem:
    """The named problem in as many copies, each with the fastest way to compute it."""

    def __init__(self, name, copies, compiled):
        self.operator, dtype, self.text = name.split("/", 2)
        if self.operator not in OPERATORS:
            raise NotImplementedError(self.operator)
        self.dtype, self.compiled = DTYPES[dtype], compiled
        eager, ways = self.ways()
        if not ways:
            raise NotImplementedError("nothing to compile")
        if self.dtype == torch.float32:  # in 16 bits PyTorch rounds its sums on the way
            check_agreement([*eager.values(), *ways.values()])
            shrink_heap()
        times = {way: min(seconds_of(fn) for _ in range(3)) for way, fn in ways.items()}
        self.way = min(times, key=times.get)
        self.calls = [ways[self.way], *(self.ways()[1][self.way] for _ in range(copies - 1))]
        for call in self.calls:
            call()
        self.next = 0

    def ways(self):
        """The eager ways, and those that race."""
        eager, formulas = OPERATORS[self.operator](self.dtype, self.text)
        if not self.compiled:
            return eager, eager
        return eager, {way: bind(*formula) for way, formula in formulas.items()}

    def run(self):
        self.calls[self.next]()
        self.next = (self.next + 1) % len(self.calls)


def shrink_heap():
    """One that never shrinks by itself would fill the machine problem after problem."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def main():
    compiled = "--compiled" in sys.argv[1:]
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit("this PyTorch has no CUDA, or finds no GPU")
    problem = None
    for line in sys.stdin:
        order, *words = line.split()
        if order == "threads":
            torch.set_num_threads(int(words[0]))
            answer = "ok"
        elif order == "make":
            problem = None
            torch.compiler.reset()
            shrink_heap()
            try:
                problem = Problem(words[0], int(words[1]), compiled)
                answer = f"ok {problem.way}"
            except (ArithmeticError, KeyError, RuntimeError, ValueError) as error:
                answer = f"no {type(error).__name__}: {error}".replace("\n", " ")
        else:
            answer = f"{seconds_of(problem.run, int(words[0]))}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
