#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""accept.py BENCH.csv: appends what the bench measured to bench/history.csv, with date and commit; what
aclgrad_small_calls measured to bench/small_calls.csv.

The tree must be as committed, and what was measured must have been built from it: a file that is
older than the last commit to src or bench is refused, and so is one of problems that stayed in the caches.
"""
import csv
import datetime
import os
import pathlib
import subprocess
import sys

import table

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ("date", "commit", "machine", "problem", "view", "target", "threads", "us_20", "us", "us_80",
           "gb_per_s", "roof", "share_of_roof", "pytorch_us", "compiled_us", "onednn_us",
           "pytorch_ratio", "compiled_ratio", "onednn_ratio", "bytes", "copy_gb_per_s",
           "read_gb_per_s", "add_gb_per_s", "rounds", "disturbed_rounds", "workspace_bytes",
           "peak_bytes", "pytorch_way", "compiled_way", "onednn_way")
SMALL_CALLS = ("date", "commit", "machine", "problem", "target", "threads", "whole_us", "phase_two_us",
               "idle_us", "idle_phase_one_us", "idle_phase_two_us", "repeat_us", "queued_us",
               "among_1000_us", "crowded_us")
# Above it the roof, not the operator, was disturbed.
MOST_SHARE = 1.1


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    if not os.path.isfile(sys.argv[1]):
        sys.exit(f"{sys.argv[1]}: no such file; expected a CSV of aclgrad_bench or aclgrad_small_calls")
    sources = ("--", "src", "bench", ":!bench/*.csv")
    if git("status", "--porcelain", "--untracked-files=no", *sources):
        sys.exit("src or bench are not as committed: commit first, measure then")
    if os.path.getmtime(sys.argv[1]) < int(git("log", "-1", "--format=%ct", *sources)):
        sys.exit(f"{sys.argv[1]} is older than the last commit to src or bench: measure again")
    machine, rows = table.read(sys.argv[1])
    if not rows:
        sys.exit(f"{sys.argv[1]} has no rows")
    if "in the caches" in machine:
        sys.exit(f"{sys.argv[1]} was measured with --cached")
    small = "whole_us" in rows[0]
    if not small and "disturbed_rounds" not in rows[0]:
        sys.exit(f"{sys.argv[1]} is no table of aclgrad_bench or aclgrad_small_calls")
    for row in () if small else rows:
        if row["share_of_roof"] > MOST_SHARE:
            print(f"{row['problem']}: {row['share_of_roof']:.0%} of the roof: was the machine busy?",
                  file=sys.stderr)
        if row["disturbed_rounds"]:
            print(f"{row['problem']}: {row['disturbed_rounds']:.0f} rounds beside other work",
                  file=sys.stderr)
    name, columns = ("small_calls.csv", SMALL_CALLS) if small else ("history.csv", COLUMNS)
    history = ROOT / "bench" / name
    is_new = not history.exists()
    with open(history, "a", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        if is_new:
            lines.writeheader()
        for row in rows:
            numbers = {key: value if not isinstance(value, float) else f"{value:.6g}"
                       for key, value in row.items()}
            lines.writerow({**numbers, "date": datetime.date.today().isoformat(),
                            "commit": git("rev-parse", "--short=10", "HEAD"), "machine": machine})
    print(f"{len(rows)} rows added to {history}")


if __name__ == "__main__":
    main()
