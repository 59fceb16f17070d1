#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""goals.py [--all] [WORD]: the newest accepted figures on two threads against bench/goals.csv.

goals.csv has the share of the roof, in per cent, that a problem is to reach in FP32 and in 16 bits. Printed are, for
every machine whose name contains WORD, the rows that miss their goal (--all: every row), in parentheses
the share of an addition of as many bytes (two reads, a write), and the rival that came nearest: its time over
the operator's.
"""
import csv
import pathlib
import signal
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
RIVALS = ("pytorch", "compiled", "onednn")


def goals():
    """Per cent by problem."""
    found = {}
    with open(FOLDER / "goals.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for dtype in ("f32", "bf16", "f16"):
                goal = row["f32" if dtype == "f32" else "half"]
                if goal:
                    found[f"{row['operator']}/{dtype}/{row['shape']}"] = int(goal)
    return found


def newest(word):
    """{machine: {problem: row}}; two rows of a machine differ in what they say of its peak. Of one commit's rows the
    one of most rounds counts, and of every rival its newest ratio: it may have been raced apart."""
    machines = {}
    with open(FOLDER / "history.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            machine = f"{row['machine'].split(';')[0]}, {row['target']}"
            if row["threads"] != "2" or row["view"] != "contiguous" or word not in machine:
                continue
            rows = machines.setdefault(machine, {})
            before = rows.get(row["problem"])
            row["raced_at"] = {rival: row["commit"] for rival in RIVALS if row[f"{rival}_ratio"]}
            kept, other = row, before
            if before and before["commit"] == row["commit"] and int(before["rounds"] or 0) > int(row["rounds"] or 0):
                kept, other = before, row
            for rival in other["raced_at"] if other else ():
                own = kept["raced_at"].get(rival)
                if own is None or (other is row and own != row["commit"]):
                    kept[f"{rival}_ratio"] = other[f"{rival}_ratio"]
                    kept["raced_at"][rival] = other["raced_at"][rival]
            rows[row["problem"]] = kept
    return machines


def nearest(row):
    ratios = [(float(row[f"{rival}_ratio"]), rival) for rival in RIVALS if row[f"{rival}_ratio"]]
    return "{:5.2f} {}".format(*min(ratios)) if ratios else "    -"


def main():
    words = [word for word in sys.argv[1:] if word != "--all"]
    if len(words) > 1:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    word = words[0] if words else ""
    machines = newest(word)
    if not machines:
        sys.exit(f"no accepted figures of a machine whose name contains {word!r}; there are:\n  "
                 + "\n  ".join(newest("")))
    for machine, rows in machines.items():
        wanted = {problem: goal for problem, goal in goals().items() if problem in rows}
        missed = [problem for problem, goal in wanted.items()
                  if round(100 * float(rows[problem]["share_of_roof"])) < goal]
        print(f"{machine}: {len(missed)} of {len(wanted)} miss their goal")
        for problem in wanted if "--all" in sys.argv else missed:
            row = rows[problem]
            addition = ""
            if row["add_gb_per_s"] and row["roof"] == "copy":
                addition = f" ({100 * float(row['gb_per_s']) / float(row['add_gb_per_s']):.0f} of 2r+w)"
            print(f"  {problem:62} goal {wanted[problem]:3}  share {100 * float(row['share_of_roof']):4.0f}"
                  f"{addition}  {float(row['us']):9.0f} us  nearest {nearest(row)}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    main()
