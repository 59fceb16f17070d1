#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""against_pytorch.py [problem...]: the operators against PyTorch 2.13 on the CPU, in one process.

Inputs are contiguous and at least 64 MB. PyTorch is called at its best: where there are several ways
to write an operator the fastest counts, and its heap is warm (memory never goes back to the system;
with glibc's defaults every large result pays page faults, 2 to 4 times the time). Both sides are
measured in turns and the medians compared. Exits with 1 when an operator is slower than PyTorch.

ACLGRAD_LIBRARY_DIR names the folder of libopapi.so (build/release/lib64 of this tree by default).
"""
import argparse
import csv
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}
os.environ.setdefault("ACLGRAD_LIBRARY_DIR", str(ROOT / "build" / "release" / "lib64"))
if any(os.environ.get(name) != value for name, value in WARM_HEAP.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WARM_HEAP})

try:
    import torch
except ImportError:
    sys.exit(f"{sys.executable} has no PyTorch; run this with a python that has PyTorch 2.13 "
             "(scripts/oracle.sh find)")
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
import aclnn  # pylint: disable=wrong-import-position

aten = torch.ops.aten
NAMES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
         "f64": torch.float64, "c128": torch.complex128}


def normal(shape, dtype, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(shape).normal_(generator=generator).to(dtype)


def layer_norm(dtype, rows, cols):
    x, w, b = (normal(shape, dtype, seed) for seed, shape in
               enumerate(((rows, cols), (cols,), (cols,))))
    statistics = [torch.empty(rows, 1, dtype=dtype) for _ in range(2)]
    out = [torch.empty_like(x), *statistics]
    ours = aclnn.Prepared("aclnnLayerNorm", x, [cols], w, b, 1e-5, *out)
    rivals = {"native_layer_norm": lambda: torch.native_layer_norm(x, [cols], w, b, 1e-5)}
    return ours, out, rivals


def layer_norm_backward(dtype, rows, cols):
    dy, x, w = (normal(shape, dtype, seed) for seed, shape in
                enumerate(((rows, cols), (rows, cols), (cols,))))
    b = torch.zeros_like(w)
    _, mean, rstd = torch.native_layer_norm(x, [cols], w, b, 1e-5)
    out = [torch.empty_like(x), torch.empty_like(w), torch.empty_like(b)]
    ours = aclnn.Prepared("aclnnLayerNormBackward", dy, x, [cols], mean, rstd, w, b,
                          [True, True, True], *out)
    rivals = {"native_layer_norm_backward": lambda: aten.native_layer_norm_backward(
        dy, x, [cols], mean, rstd, w, b, [True, True, True])}
    return ours, out, rivals


def embedding(dtype, tokens, vocabulary, width):
    weight = normal((vocabulary, width), torch.float32).to(dtype)
    weights = 1.0 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    indices = torch.multinomial(weights, tokens, replacement=True,
                                generator=torch.Generator().manual_seed(2))
    out = [torch.empty(tokens, width, dtype=dtype)]
    theirs = torch.empty_like(out[0])
    ours = aclnn.Prepared("aclnnEmbedding", weight, indices, out[0])
    rivals = {"embedding": lambda: [torch.embedding(weight, indices)],
              "index_select, out given": lambda: [
                  torch.index_select(weight, 0, indices, out=theirs)]}
    return ours, out, rivals


def embedding_dense_backward(dtype, tokens, vocabulary, width, zipf=True):
    grad = normal((tokens, width), dtype)
    generator = torch.Generator().manual_seed(2)
    if zipf:
        weights = 1.0 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
        indices = torch.multinomial(weights, tokens, replacement=True, generator=generator)
    else:
        indices = torch.randint(0, vocabulary, (tokens,), generator=generator)
    out = [torch.empty(vocabulary, width, dtype=dtype)]
    ours = aclnn.Prepared("aclnnEmbeddingDenseBackward", grad, indices, vocabulary, 2**64 - 1,
                          False, out[0])
    rivals = {"embedding_dense_backward": lambda: [
        aten.embedding_dense_backward(grad, indices, vocabulary, -1, False)]}
    return ours, out, rivals


def scaled_masked_softmax_backward(dtype, batch, heads, rows, cols):
    y = torch.softmax(normal((batch, heads, rows, cols), torch.float32), -1).to(dtype)
    g = normal(y.shape, dtype, 2)
    mask = torch.ones(rows, cols, dtype=torch.bool).triu(1).expand(batch, 1, rows, cols).contiguous()
    scale = 0.125
    factors = torch.where(mask, 0.0, scale).to(dtype)
    out = [torch.empty_like(y)]
    ours = aclnn.Prepared("aclnnScaledMaskedSoftmaxBackward", g, y, mask, scale, False, out[0])

    def by_fill():
        result = aten._softmax_backward_data(g, y, -1, dtype)
        return [result.mul_(scale).masked_fill_(mask, 0.0)]

    def by_factors():
        return [aten._softmax_backward_data(g, y, -1, dtype).mul_(factors)]

    return ours, out, {"softmax backward, mul_, masked_fill_": by_fill,
                       "softmax backward, mul_ by scale or 0": by_factors}


def scaled_masked_softmax(dtype, batch, heads, rows, cols):
    x = normal((batch, heads, rows, cols), dtype)
    mask = torch.ones(rows, cols, dtype=torch.bool).triu(1).expand(batch, 1, rows, cols).contiguous()
    scale = 0.125
    shift = torch.where(mask, -10000.0, 0.0).to(dtype)
    out = [torch.empty_like(x)]
    ours = aclnn.Prepared("aclnnScaledMaskedSoftmax", x, mask, scale, False, out[0])
    return ours, out, {
        "mul, masked_fill_, softmax": lambda: [
            torch.softmax((x * scale).masked_fill_(mask, -10000.0), -1)],
        "add to 0 or -10000, softmax": lambda: [
            torch.softmax(torch.add(shift, x, alpha=scale), -1)]}


def grouped_bias_add_grad(dtype, rows, width, groups, giant=False):
    grad = normal((rows, width), dtype)
    ends = [0] * (groups // 2) + [rows] * (groups - groups // 2) if giant else [
        rows * (j + 1) // groups for j in range(groups)]
    out = [torch.empty(groups, width, dtype=dtype)]
    ours = aclnn.Prepared("aclnnGroupedBiasAddGrad", grad, torch.tensor(ends), out[0])

    def sums():
        result = torch.empty(groups, width, dtype=dtype)
        begin = 0
        for j, end in enumerate(ends):
            torch.sum(grad[begin:end], 0, out=result[j])
            begin = end
        return [result]

    return ours, out, {"a sum for each group": sums}


def nsa_compress_grad(dtype, tokens, heads, width, block, stride):
    windows = (tokens - block) // stride + 1
    do, x = normal((windows, heads, width), dtype), normal((tokens, heads, width), dtype, 2)
    w = normal((block, heads), dtype, 3)
    out = [torch.empty_like(x), torch.empty_like(w)]
    ours = aclnn.Prepared("aclnnNsaCompressGrad", do, x, w, None, block, stride, 0, "TND", *out)

    def by_unfold():  # autograd of einsum over the windows
        leaf_x, leaf_w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = torch.einsum("inej,jn->ine", leaf_x.unfold(0, block, stride), leaf_w)
        return list(torch.autograd.grad(y, (leaf_x, leaf_w), do))

    def by_parts():  # a window is block/stride parts; each part of all windows is one slice
        dx = torch.zeros(tokens // stride, stride, heads, width, dtype=dtype)
        dw = torch.empty(block // stride, stride, heads, dtype=dtype)
        parts = x.view(tokens // stride, stride, heads, width)
        weights = w.view(block // stride, stride, heads, 1)
        for part in range(block // stride):
            rows = slice(part, part + windows)
            dx[rows].addcmul_(do[:, None], weights[part])
            dw[part] = torch.einsum("ind,ijnd->jn", do, parts[rows])
        return [dx.view_as(x), dw.view_as(w)]

    return ours, out, {"unfold and einsum": by_unfold, "slices for each part": by_parts}


def nsa_compress(dtype, tokens, heads, width, block, stride):
    windows = (tokens - block) // stride + 1
    x, w = normal((tokens, heads, width), dtype), normal((block, heads), dtype, 2)
    out = [torch.empty(windows, heads, width, dtype=dtype)]
    ours = aclnn.Prepared("aclnnNsaCompress", x, w, [tokens], "TND", block, stride, 0, out[0])

    def by_parts():  # a window is block/stride parts; each part of all windows is one slice
        result = torch.zeros_like(out[0])
        parts = x.view(tokens // stride, stride, heads, width)
        weights = w.view(block // stride, stride, heads)
        for part in range(block // stride):
            result += torch.einsum("ijnd,jn->ind", parts[part:part + windows], weights[part])
        return [result]

    return ours, out, {
        "unfold and einsum": lambda: [torch.einsum("inej,jn->ine", x.unfold(0, block, stride), w)],
        "slices for each part": by_parts}


PROBLEMS = {
    "layer_norm": (layer_norm, ("f32", "f16", "bf16"), {
        "8192x4096": (8192, 4096), "4096x12288": (4096, 12288), "65536x768": (65536, 768),
        "200704x192": (200704, 192), "1600000x24": (1600000, 24)}),
    "embedding": (embedding, ("f32", "f16", "bf16", "i8", "f64", "c128"), {
        "65536x768/v50304": (65536, 50304, 768), "16384x4096/v32000": (16384, 32000, 4096),
        "65536x768/v512": (65536, 512, 768), "1000000x64/v100000": (1000000, 100000, 64)}),
    "layer_norm_backward": (layer_norm_backward, ("f32", "f16", "bf16"), {
        "8192x4096": (8192, 4096), "4096x12288": (4096, 12288), "65536x768": (65536, 768),
        "200704x192": (200704, 192), "1600000x24": (1600000, 24)}),
    "embedding_dense_backward": (embedding_dense_backward, ("f32", "f16", "bf16"), {
        "65536x768/v50304": (65536, 50304, 768), "16384x4096/v32000": (16384, 32000, 4096),
        "65536x768/v2": (65536, 2, 768, False)}),
    "scaled_masked_softmax_backward": (scaled_masked_softmax_backward, ("f32", "f16", "bf16"), {
        "8x16x512x512": (8, 16, 512, 512), "96x12x197x197": (96, 12, 197, 197),
        "4x4x1024x2048": (4, 4, 1024, 2048)}),
    "grouped_bias_add_grad": (grouped_bias_add_grad, ("f32", "f16", "bf16"), {
        "32768x2880/g32": (32768, 2880, 32), "32768x2880/g2048": (32768, 2880, 2048),
        "32768x2880/g2048/giant": (32768, 2880, 2048, True)}),
    "nsa_compress_grad": (nsa_compress_grad, ("f16", "bf16"), {
        "65536x4x128/l32/d16": (65536, 4, 128, 32, 16),
        "65536x4x128/l64/d16": (65536, 4, 128, 64, 16),
        "65536x4x192/l128/d16": (65536, 4, 192, 128, 16)}),
    "scaled_masked_softmax": (scaled_masked_softmax, ("f32", "f16", "bf16"), {
        "8x16x512x512": (8, 16, 512, 512), "96x12x197x197": (96, 12, 197, 197),
        "4x4x1024x2048": (4, 4, 1024, 2048)}),
    "nsa_compress": (nsa_compress, ("f16", "bf16"), {
        "65536x4x128/l32/d16": (65536, 4, 128, 32, 16),
        "65536x4x128/l64/d16": (65536, 4, 128, 64, 16),
        "65536x4x192/l128/d16": (65536, 4, 192, 128, 16)}),
}


def seconds_of(fn):
    begin = time.perf_counter()
    fn()
    return time.perf_counter() - begin


def agree(name, out, expected):
    """A race against another computation would be worthless: the results must be close."""
    for ours, theirs in zip(out, expected):
        ours, theirs = ours.double(), theirs.double()
        error = (ours - theirs.view_as(ours)).abs().max()
        if not error <= 1e-3 * theirs.abs().max():
            sys.exit(f"{name}: results differ from PyTorch's by {error:.3g}")


def measure(name, dtype, make, arguments, rounds):
    """(median seconds of ours, {rival: median seconds})."""
    ours, out, rivals = make(dtype, *arguments)
    ours.run()
    for rival in rivals.values():
        result = rival()
        if dtype == torch.float32:  # in 16 bits PyTorch rounds its sums on the way
            agree(name, out, result)
    slow = {rival for rival, fn in rivals.items() if seconds_of(fn) > 1.0}
    if len(slow) < len(rivals):  # a way to write it that takes seconds is out of the race
        rivals = {rival: fn for rival, fn in rivals.items() if rival not in slow}
    times, rival_times = [], {rival: [] for rival in rivals}
    for _ in range(rounds):
        for rival, fn in rivals.items():
            rival_times[rival].append(seconds_of(fn))
        time.sleep(0.005)  # PyTorch's idle threads spin for a while
        times.append(seconds_of(ours.run))
    ours.release()
    return statistics.median(times), {
        rival: statistics.median(values) for rival, values in rival_times.items()}


def select(wanted):
    for operator, (make, dtypes, shapes) in PROBLEMS.items():
        for shape, arguments in shapes.items():
            for dtype in dtypes:
                name = f"{operator}/{dtype}/{shape}"
                if not wanted or any(name.startswith(text) for text in wanted):
                    yield name, dtype, make, arguments


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("problems", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--csv", default=str(ROOT / "bench" / "pytorch.csv"))
    options = parser.parse_args()
    if not torch.__version__.startswith("2.13."):
        print(f"note: PyTorch is {torch.__version__}; the promise is about 2.13")
    jobs = list(select(options.problems))
    if not jobs:
        sys.exit("no such problem; names begin with one of " + ", ".join(PROBLEMS))
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, warm heap")
    print(f"{'problem':58} {'ms':>9} {'PyTorch':>9} {'faster':>7}  best of PyTorch")
    slower = []
    with open(options.csv, "w", newline="", encoding="ascii") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["problem", "ms", "pytorch_ms", "times_faster", "best_of_pytorch"])
        for number, (name, dtype, make, arguments) in enumerate(jobs, 1):
            if sys.stderr.isatty():
                print(f"[{number}/{len(jobs)}] {name}", end="\r", file=sys.stderr)
            ours, rivals = measure(name, NAMES[dtype], make, arguments, options.rounds)
            best = min(rivals, key=rivals.get)
            ratio = rivals[best] / ours
            row = [name, f"{ours * 1e3:.2f}", f"{rivals[best] * 1e3:.2f}", f"{ratio:.2f}", best]
            table.writerow(row)
            print(f"{row[0]:58} {row[1]:>9} {row[2]:>9} {row[3]:>6}x  {best}", flush=True)
            if ratio < 1:
                slower.append(name)
    if slower:
        sys.exit("slower than PyTorch: " + ", ".join(slower))


if __name__ == "__main__":
    main()
