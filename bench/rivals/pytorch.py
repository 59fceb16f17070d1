#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pytorch.py [--compiled] [--cuda]: PyTorch as a rival of the bench (orders: bench/rival.h).

PyTorch is called at its best. Where there are several ways to write an operator all are tried, those near
the fastest with all copies of the problem, and the fastest runs; its heap is warm (memory never goes back
to the system: with glibc's defaults every large result pays page faults, 2 to 4 times the time) and lies in
huge pages, as aclgrad's does. With --compiled the ways are plain formulas that torch.compile turns into
kernels. Results of a problem's ways must agree. With --cuda all of it happens on the first GPU and is timed
by its events, from the first call's beginning to the last one's end.
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

from formulas import OPERATORS  # pylint: disable=wrong-import-position
from tensors import DEVICE, DTYPES  # pylint: disable=wrong-import-position

PIECE = 1 << 24  # elements that are compared together


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


class Turns:
    """One way to compute a problem, each time with the next of its copies. A copy's result lives until its
    next turn: were it freed at once, the next call would get the same block and find it in the cache,
    where a result in memory is what the others write."""

    def __init__(self, calls):
        self.calls, self.next = calls, 0
        self.results = [call() for call in calls]

    def run(self):
        self.results[self.next] = None
        self.results[self.next] = self.calls[self.next]()
        self.next = (self.next + 1) % len(self.calls)


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
        near = ways_near_the_fastest(ways)
        of_copies = [ways, *(self.ways()[1] for _ in range(copies - 1))]
        calls = {way: [of_copy[way] for of_copy in of_copies] for way in near}
        self.way = near[0] if len(near) == 1 else min(near, key=lambda way: pace_of(calls[way]))
        self.run = Turns(calls[self.way]).run

    def ways(self):
        """The eager ways, and those that race."""
        eager, formulas = OPERATORS[self.operator](self.dtype, self.text)
        if not self.compiled:
            return eager, eager
        return eager, {way: bind(*formula) for way, formula in formulas.items()}


def ways_near_the_fastest(ways):
    """Those that take less than twice the least time for one copy, which caches may hold."""
    times = {way: min(seconds_of(fn) for _ in range(3)) for way, fn in ways.items()}
    return [way for way, seconds in times.items() if seconds < 2 * min(times.values())]


def pace_of(calls):
    """Of all copies, as they race; the better of two passes."""
    turns = Turns(calls)
    pace = min(seconds_of(turns.run, len(calls)) for _ in range(2))
    del turns
    shrink_heap()
    return pace


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
