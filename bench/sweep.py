#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sweep.py [--rival NAME=COMMAND]... BENCH_PROGRAM SWEEP.csv [operator...]: looks for cliffs between
neighbouring shapes.

Every operator has families of shapes: one dimension varies by one step around chosen numbers and around
random ones (200 groups over all operators, always the same; there the other dimensions are drawn, too),
and another one takes up the rest, so that about 100 MB move. A shape at less than 60 % of a neighbour's
speed is a cliff: it and its neighbours are measured up to five times more, the run with the least difference
counts, and if it stays one the sweep exits with 1. Only a neighbour that does nearly as much arithmetic for a
byte counts: windows of 128 tokens every 16 cover each token eight times, every 32 four times. Rows that are
looked up are compared by the lines of memory in which they lie, too: those of 68 bytes in two each, those of 64
in one. Shapes that are slow beside others are named all the same.
Where all neighbours are slow only a rival shows it: the shapes that one of them computes faster are named, too
(an hour with PyTorch, which takes seconds where rows are very short).
"""
import argparse
import csv
import datetime
import math
import pathlib
import random
import re
import subprocess
import sys
from typing import Callable, NamedTuple

import table

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES = 100e6
LEAST = 0.6
LEVEL = 0.95  # times as fast as a rival: less than a race of five rounds can tell
AGAIN = 5
ALIKE = 1.5  # times the multiply-adds of a neighbour
RANDOM = 200
LINE = 64  # elements: rows of a multiple of these begin with a cache line
LINE_BYTES = 64
DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2}
ALL, HALVES = ("f32", "bf16", "f16"), ("bf16", "f16")


def product(of):
    return math.prod(of.values())


class Family(NamedTuple):
    """Shapes of an operator in which one dimension varies."""
    operator: str
    dtypes: tuple
    text: str         # the shape with the names of its dimensions
    varied: str
    free: str         # the dimension that takes up the bytes that are left
    middles: tuple    # of the groups of three neighbours
    most: int         # the varied dimension's
    step: int = 1
    least: int = 1
    others: dict = {}  # name: (usual size, the least and most that are drawn, step)
    elements: Callable = product  # that are read or written, but for those that hardly count

    def group(self, middle, others, dtype):
        """(size, problem) of three neighbours. A free row length stays the same among them."""
        sizes = [size for size in (middle - self.step, middle, middle + self.step)
                 if max(self.step, self.least) <= size <= self.most]
        for size in sizes:
            filled = middle if self.free == "cols" else size
            free = self.free_size({**others, self.varied: filled}, dtype)
            dims = {**others, self.varied: size, self.free: free}
            yield size, f"{self.operator}/{dtype}/{self.text.format(**dims)}"

    def free_size(self, dims, dtype):
        """elements() is a constant and so much for each of the free dimension."""
        constant = self.elements({**dims, self.free: 0})
        each = self.elements({**dims, self.free: 1}) - constant
        size = max(1, round((BYTES / DTYPE_BYTES[dtype] - constant) / each))
        return size // LINE * LINE if self.free == "cols" and size > LINE else size


def times(tensors):
    return lambda dims: tensors * product(dims)


def looked_up(dims):
    """The table and the rows that are taken of it, or the gradients of both."""
    return (dims["count"] + dims["table"]) * dims["cols"]


def windowed(tensors):
    return lambda dims: tensors * dims["tokens"] * dims["heads"] * dims["width"]


def powers(most, least=1):
    return tuple(2 ** k for k in range(15) if least <= 2 ** k <= most)


def families_of_norm(operator, tensors):
    args = (operator, ALL, "{rows}x{cols}")
    return [Family(*args, "cols", "rows", powers(16384, 2), 16384, elements=times(tensors)),
            Family(*args, "rows", "cols", (2, 64, 1024, 4096), 65536, elements=times(tensors))]


def families_of_lookups(operator):
    args = (operator, ALL)
    text = "{count}x{table}x{cols}"
    narrow = {"cols": (256, 16, 256, 1)}
    rows = {"table": (1000, 2, 65536, 1)}
    return [Family(*args, "{count}x{count}x{cols}", "cols", "count", powers(8192, 2), 8192,
                   elements=times(2)),
            Family(*args, text, "table", "count", (2, 4096, 65536), 65537, others=narrow,
                   elements=looked_up),
            Family(*args, text, "count", "cols", (64, 4096, 65536), 100000, others=rows,
                   elements=looked_up)]


def families_of_softmax(operator, tensors, least):
    args = (operator, ALL)
    cols = {"s2": (256, 2, 2048, 1)}
    both = {"s1": (64, 1, 512, 1), **cols}
    four = {"heads": (4, 1, 16, 1)}
    return [Family(*args, "1x{heads}x{s1}x{s2}", "s2", "s1", powers(4096, 2), 4096, least=least,
                   others=four, elements=times(tensors)),
            Family(*args, "1x{heads}x{s1}x{s2}", "s1", "heads", (1, 16, 256), 4096, others=cols,
                   elements=times(tensors)),
            Family(*args, "{batch}x{heads}x{s1}x{s2}", "heads", "batch", (1, 32), 1024,
                   others=both, elements=times(tensors))]


def families_of_groups(operator):
    args = (operator, ALL)
    groups = {"groups": (32, 1, 2048, 1)}
    return [Family(*args, "{rows}x{cols}-g{groups}", "cols", "rows", powers(16384, 2), 16384,
                   others=groups, elements=lambda dims: dims["rows"] * dims["cols"]),
            Family(*args, "{rows}x{cols}-g{groups}", "groups", "rows", (1, 64, 2048), 2048,
                   others={"cols": (256, 1, 4096, 1)},
                   elements=lambda dims: dims["rows"] * dims["cols"]),
            Family(*args, "{groups}x{rows}x{cols}", "rows", "groups", (2, 16, 256), 4096,
                   others={"cols": (64, 1, 1024, 1)})]


def families_of_windows(operator, tensors):
    args = (operator, HALVES, "{tokens}x{heads}x{width}-l{l}-d{d}-s{s}")
    usual = {"heads": (4, 1, 32, 1), "width": (128, 16, 256, 16), "l": (32, 48, 128, 16),
             "d": (16, 16, 32, 16), "s": (1, 1, 8, 1)}
    # Of many sequences each still has windows.
    narrow = {"heads": (4, 1, 4, 1), "width": (128, 16, 128, 16), "l": (32, 48, 112, 16)}

    def family(varied, middles, most, step, least=1, **other):
        others = {key: value for key, value in {**usual, **other}.items() if key != varied}
        return Family(*args, varied, "tokens", middles, most, step, least,
                      others, windowed(tensors))
    return [family("width", powers(256, 32), 256, 16), family("heads", (1, 16), 128, 1),
            family("l", (32, 64, 112), 128, 16, 32, d=(16, 16, 16, 16)),
            family("d", (32, 64, 96), 112, 16, l=(128, 128, 128, 16)),
            family("s", (16, 200), 256, 1, **narrow)]


FAMILIES = [*families_of_norm("layer_norm_backward", 3), *families_of_norm("layer_norm", 2),
            *families_of_lookups("embedding_dense_backward"), *families_of_lookups("embedding"),
            # forward rows of one element are 1 whatever x is: no neighbour of anything
            *families_of_softmax("scaled_masked_softmax_backward", 3, 1),
            *families_of_softmax("scaled_masked_softmax", 2, 2),
            *families_of_groups("grouped_bias_add_grad"),
            *families_of_windows("nsa_compress_grad", 3), *families_of_windows("nsa_compress", 2)]


def drawn(draw, least, most, step):
    """A size, as often between 16 and 32 as between 1024 and 2048."""
    return step * round(2 ** draw.uniform(math.log2(least / step), math.log2(most / step)))


def groups_of(operators):
    """Lists of (size, problem) in which neighbours in the list are neighbours in size."""
    lines = [(family, dtype) for family in FAMILIES for dtype in family.dtypes
             if not operators or family.operator in operators]
    for family, dtype in lines:
        usual = {name: values[0] for name, values in family.others.items()}
        for middle in family.middles:
            yield list(family.group(middle, usual, dtype))
    draw = random.Random(1)
    every = [(family, dtype) for family in FAMILIES for dtype in family.dtypes]
    draw.shuffle(every)
    for number in range(RANDOM):
        family, dtype = every[number % len(every)]
        middle = drawn(draw, max(family.least, family.step), family.most, family.step)
        others = {name: drawn(draw, *values[1:]) for name, values in family.others.items()}
        if (family, dtype) in lines:
            yield list(family.group(middle, others, dtype))


class Bench(NamedTuple):
    program: str
    folder: pathlib.Path
    rivals: list  # NAME=COMMAND

    def names(self):
        return [rival.split("=", maxsplit=1)[0] for rival in self.rivals]

    def measure(self, problems):
        """What is known of the run, and (GB/s, share of the roof, times as fast as each rival) of
        each problem."""
        measured = self.folder / "sweep.measured.csv"
        raced = [word for rival in self.rivals for word in ("--rival", rival)]
        subprocess.run([self.program, "--rounds", "5", "--csv", measured, *raced, *problems],
                       check=True)
        machine, rows = table.read(measured)
        measured.unlink()
        run = f"{machine}; {rows[0]['threads']:.0f} threads; {rows[0]['target']}"
        return run, {row["problem"]: (row["gb_per_s"], row["share_of_roof"],
                                      *(row[f"{name}_ratio"] for name in self.names()))
                     for row in rows}


def multiply_adds(name):
    """Of one element, where that depends on the shape: the windows that cover a token."""
    window = re.search(r"-l(\d+)-d(\d+)", name)
    return int(window[1]) / int(window[2]) if window else 1


def moved_for_a_byte(name):
    """Bytes that memory moves for each of a row that is looked up: the lines that it touches on
    average, which are fetched for each row, because rows follow each other and come in any order,
    and the row itself, which is written in sequence."""
    looked_up_rows = re.fullmatch(r"embedding\w*/(\w+)/\d+x\d+x(\d+)", name)
    if not looked_up_rows:
        return 1
    row = DTYPE_BYTES[looked_up_rows[1]] * int(looked_up_rows[2])
    step = math.gcd(row, LINE_BYTES)  # between the places in a line where rows begin
    touched = [math.ceil((begin + row) / LINE_BYTES) for begin in range(0, LINE_BYTES, step)]
    return 1 + LINE_BYTES * sum(touched) / len(touched) / row


def of_best_neighbour(group, speed, most=math.inf):
    """(problem, its part of the best neighbour's speed) for each of a group. With `most`, neighbours
    count that have at least 1 / most of its multiply-adds, at the speed that its lines leave them."""
    def speed_of(other, name):
        more = 1 if most == math.inf else moved_for_a_byte(name) / moved_for_a_byte(other)
        return speed[other][0] / max(1, more)

    for i, (_, name) in enumerate(group):
        near = [speed_of(other, name) for _, other in group[max(i - 1, 0):i + 2]
                if other != name and multiply_adds(name) <= most * multiply_adds(other)]
        yield name, speed[name][0] / max(near, default=speed[name][0])


def slow(groups, speed, most=math.inf):
    """{problem: part} of those that are slow beside a neighbour."""
    return {name: part for group in groups for name, part in of_best_neighbour(group, speed, most)
            if part < LEAST}


def suspects(groups, speed):
    return [group for group in groups if slow([group], speed, ALIKE)]


def least(group, speed):
    return min(part for _, part in of_best_neighbour(group, speed, ALIKE))


def take_again(groups, speed, found):
    """Of each suspect group all figures of one run: memory may have changed its pace in between."""
    for group in suspects(groups, speed):
        here = {name: found[name] for _, name in group}
        if least(group, here) > least(group, speed):
            speed.update(here)


def commit():
    """The tree that is measured."""
    named = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=10",
                            "--exclude=*"], check=False, text=True, stdout=subprocess.PIPE)
    return named.stdout.strip() or "no commit"


def behind(speed, names):
    """(problem, rival, times as fast) where that is too little."""
    return [(problem, name, ratio) for problem, figures in speed.items()
            for name, ratio in zip(names, figures[2:]) if ratio and ratio < LEVEL]


def write(out, run, names, groups, speed):
    with open(out, "w", newline="", encoding="utf-8") as file:
        file.write(f"# {run}; {datetime.date.today().isoformat()}; {commit()}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["problem", "size", "gb_per_s", "share_of_roof", "of_best_neighbour",
                        *(f"{name}_ratio" for name in names)])
        for group in groups:
            for (size, name), (_, part) in zip(group, of_best_neighbour(group, speed)):
                rate, share, *ratios = speed[name]
                lines.writerow([name, size, f"{rate:.2f}", f"{share:.3f}", f"{part:.2f}",
                                *(f"{ratio:.2f}" if ratio else "" for ratio in ratios)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rival", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("program")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_args()
    known = {family.operator for family in FAMILIES}
    if not known.issuperset(arguments.operators):
        sys.exit(f"sweep.py: {', '.join(sorted(set(arguments.operators) - known))}: no such operator; "
                 f"expected some of {', '.join(sorted(known))}")
    groups = list(groups_of(arguments.operators))
    problems = list(dict.fromkeys(name for group in groups for _, name in group))
    bench = Bench(arguments.program, arguments.out.parent, arguments.rival)
    run, speed = bench.measure(problems)
    for _ in range(AGAIN):
        raced = [name for name, *_ in behind(speed, bench.names())]
        again = list(dict.fromkeys([name for group in suspects(groups, speed) for _, name in group]
                                   + raced))
        if again:
            found = bench.measure(again)[1]
            take_again(groups, speed, found)
            speed.update({name: max(found[name], speed[name]) for name in raced})
    write(arguments.out, run, bench.names(), groups, speed)
    cliffs = slow(groups, speed, ALIKE)
    for name, part in slow(groups, speed).items():
        if name not in cliffs:
            print(f"{name}: {part:.0%} of a neighbour with less arithmetic or fewer lines")
    slower = [f"{name}: {ratio:.2f} times as fast as {rival}"
              for name, rival, ratio in behind(speed, bench.names())]
    if cliffs or slower:
        sys.exit("\n".join([*(["cliffs:"] if cliffs else []),
                            *(f"{name}: {part:.0%} of its neighbour"
                              for name, part in cliffs.items()),
                            *(["behind:"] if slower else []), *slower]))
    print(f"no cliff among {len(problems)} shapes; {arguments.out} is written")


if __name__ == "__main__":
    main()
