#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme_test.py <source folder>: the program in README.md is examples/quickstart.c, and what README.md
says it prints is examples/quickstart.expected (which the examples test compares with what it prints)."""
import pathlib
import re
import sys


def blocks(text, language):
    return re.findall(r"```" + language + r"\n(.*?)```", text, re.DOTALL)


def main():
    root = pathlib.Path(sys.argv[1])
    readme = (root / "README.md").read_text()
    program = (root / "examples/quickstart.c").read_text()
    printed = (root / "examples/quickstart.expected").read_text()
    # The licence line is the file's alone.
    shown = program.split("\n", 1)[1]
    failures = []
    if shown not in blocks(readme, "c"):
        failures.append("no C block of README.md equals examples/quickstart.c")
    if printed not in blocks(readme, "text"):
        failures.append("no text block of README.md equals examples/quickstart.expected")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


sys.exit(main())
