#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sweep.py BENCH_PROGRAM SWEEP.csv [operator...]: looks for cliffs between neighbouring shapes.

For every operator and dtype: row lengths one below, at and one above the powers of two, and random
ones (200 in all, always the same), each with its two neighbours. The rest of a shape is chosen so that
about 100 MB move. A shape at less than 60 % of a neighbour's speed is a cliff: it and its neighbours
are measured twice more, the best counts, and if it stays one the sweep exits with 1.
"""
import csv
import math
import pathlib
import random
import subprocess
import sys

import table

BYTES = 100e6
LEAST = 0.6
RANDOM = 200
DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def rows_for(cols, dtype, tensors):
    return max(1, round(BYTES / (cols * DTYPE_BYTES[dtype] * tensors)))


# Each operator: its dtypes, the row lengths it knows and the shape with rows of that length.
def layer_norm(cols, dtype):
    return f"{rows_for(cols, dtype, 2)}x{cols}"


def layer_norm_backward(cols, dtype):
    return f"{rows_for(cols, dtype, 3)}x{cols}"


def embedding(cols, dtype):
    rows = rows_for(cols, dtype, 2)
    return f"{rows}x{rows}x{cols}"


def softmax(cols, dtype, tensors):
    if tensors == 2 and cols == 1:
        return None  # forward: 1 whatever x is; no neighbour of anything
    return f"1x4x{max(1, rows_for(cols, dtype, tensors) // 4)}x{cols}"


def grouped_bias_add_grad(cols, dtype):
    return f"{rows_for(cols, dtype, 1)}x{cols}-g32"


def nsa(width, dtype, tensors):
    return f"{rows_for(4 * width, dtype, tensors)}x4x{width}-l32-d16"


ALL, HALVES = ("f32", "bf16", "f16"), ("bf16", "f16")
OPERATORS = {
    "layer_norm_backward": (ALL, 16384, 1, layer_norm_backward),
    "embedding_dense_backward": (ALL, 8192, 1, embedding),
    "scaled_masked_softmax_backward": (ALL, 4096, 1, lambda n, dtype: softmax(n, dtype, 3)),
    "grouped_bias_add_grad": (ALL, 16384, 1, grouped_bias_add_grad),
    "nsa_compress_grad": (HALVES, 256, 16, lambda n, dtype: nsa(n, dtype, 3)),
    "layer_norm": (ALL, 16384, 1, layer_norm),
    "embedding": (ALL, 8192, 1, embedding),
    "scaled_masked_softmax": (ALL, 4096, 1, lambda n, dtype: softmax(n, dtype, 2)),
    "nsa_compress": (HALVES, 256, 16, lambda n, dtype: nsa(n, dtype, 2)),
}


def families(operators):
    """Lists of (length, problem) in which neighbours in the list are neighbours in length."""
    draw = random.Random(1)
    lines = [(op, dtype) for op, (dtypes, *_) in OPERATORS.items() for dtype in dtypes]
    for number in range(RANDOM + len(lines)):
        op, dtype = lines[number % len(lines)]
        _, most, step, shape = OPERATORS[op]
        if number < len(lines):
            powers = [2 ** k for k in range(15) if step < 2 ** k <= most]
            groups = [[n - step, n, n + step] for n in powers]
        else:
            middle = step * round(2 ** draw.uniform(1, math.log2(most / step)))
            groups = [[middle - step, middle, middle + step]]
        for group in groups:
            lengths = [n for n in group if step <= n <= most]
            if not operators or op in operators:
                yield [(n, f"{op}/{dtype}/{shape(n, dtype)}") for n in lengths if shape(n, dtype)]


def measure(program, problems, folder):
    """The machine, and (GB/s, share of the roof) of each problem."""
    measured = folder / "sweep.measured.csv"
    subprocess.run([program, "--rounds", "5", "--csv", measured, *problems], check=True)
    machine, rows = table.read(measured)
    measured.unlink()
    return machine, {row["problem"]: (row["gb_per_s"], row["share_of_roof"]) for row in rows}


def of_best_neighbour(group, speed):
    """(problem, its part of the best neighbour's speed) for each of a group."""
    for i, (_, name) in enumerate(group):
        near = [speed[other][0] for _, other in group[max(i - 1, 0):i + 2] if other != name]
        yield name, speed[name][0] / max(near, default=speed[name][0])


def suspects(groups, speed):
    return [group for group in groups
            if any(part < LEAST for _, part in of_best_neighbour(group, speed))]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    program, out, operators = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    groups = list(families(operators))
    problems = list(dict.fromkeys(name for group in groups for _, name in group))
    machine, speed = measure(program, problems, out.parent)
    for _ in range(2):
        again = list(dict.fromkeys(name for group in suspects(groups, speed) for _, name in group))
        if again:
            found = measure(program, again, out.parent)[1]
            speed.update({name: max(found[name], speed[name]) for name in again})
    with open(out, "w", newline="", encoding="utf-8") as file:
        file.write(f"# {machine}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["problem", "length", "gb_per_s", "share_of_roof", "of_best_neighbour"])
        for group in groups:
            for (length, name), (_, part) in zip(group, of_best_neighbour(group, speed)):
                rate, share = speed[name]
                lines.writerow([name, length, f"{rate:.2f}", f"{share:.3f}", f"{part:.2f}"])
    cliffs = [f"{name}: {part:.0%} of its neighbour" for group in suspects(groups, speed)
              for name, part in of_best_neighbour(group, speed) if part < LEAST]
    if cliffs:
        sys.exit("cliffs:\n" + "\n".join(cliffs))
    print(f"no cliff among {len(problems)} shapes; {out} is written")


if __name__ == "__main__":
    main()
