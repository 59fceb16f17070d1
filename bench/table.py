# SPDX-License-Identifier: Apache-2.0
"""The bench's tables of comma-separated values, for the scripts beside this file."""
import csv
import sys

WORDS = ("problem", "view", "target", "roof")


def read(path):
    """(machine, rows): what the first line says about the machine, and a dict a problem with numbers
    as floats and empty cells as None; a rival's "..._way" is how it computes, or why it does not. Ends the
    program, with a message, where there is no such table."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            first = file.readline()
            rows = list(csv.DictReader(file))
        if first and not first.startswith("# "):
            raise ValueError
        for row in rows:
            for key, value in row.items():
                if key not in WORDS and not key.endswith("_way"):
                    row[key] = float(value) if value else None
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; expected a CSV of aclgrad_bench or aclgrad_small_calls")
    except (AttributeError, TypeError, ValueError):
        sys.exit(f"{path} is no table of aclgrad_bench or aclgrad_small_calls")
    return first.lstrip("# ").strip(), rows


def rivals(row):
    """Microseconds of each rival that has the problem."""
    return {key[:-3]: value for key, value in row.items()
            if key.endswith("_us") and value is not None}
