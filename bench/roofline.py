#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""roofline.py BENCH.csv PICTURE.svg: a roofline chart of what the bench measured.

A point a problem: to the right the operations that its formula asks for a byte that must move, upwards
the operations a second, both logarithmic. The slanted roofs are the copy of this machine and, dashed,
its read, for what hardly writes; the level one is its arithmetic. What only copies stands where an
operation for every twenty bytes would be: what counts is how near the roof it is. Rivals are hollow,
each with a mark of its own, in the colour of their operator.
"""
import math
import re
import sys

import table

WIDTH, HEIGHT, LEFT, BOTTOM, LEGEND = 760, 520, 70, 60, 250
COLOURS = ("#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#b9770e", "#117a65", "#5d6d7e", "#a04000",
           "#2e4053")
BYTES_ONLY = 0.05  # operations a byte, in place of none
# Outlines around a point, by turns for the rivals.
MARKS = ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M-3.5,-3.5h7v7h-7z", "M0,-5l5,5l-5,5l-5,-5z",
         "M0,-5l4.5,8h-9z")


class Axes:
    """Where numbers lie in the picture."""

    def __init__(self, xs, ys):
        self.x_low, self.x_high = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
        self.y_low, self.y_high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def x(self, value):
        part = (math.log10(value) - self.x_low) / (self.x_high - self.x_low)
        return LEFT + part * (WIDTH - LEFT - 20)

    def y(self, value):
        part = (math.log10(value) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - 20)


def label(x, y, text, anchor="middle", size=12):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">'
            f"{text}</text>")


def frame(axes):
    lines = []
    for power in range(axes.x_low, axes.x_high + 1):
        x = axes.x(10.0 ** power)
        lines.append(f'<line x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" '
                     'stroke="#ddd"/>')
        lines.append(label(x, HEIGHT - BOTTOM + 18, f"{10.0 ** power:g}"))
    for power in range(axes.y_low, axes.y_high + 1):
        y = axes.y(10.0 ** power)
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" '
                     'stroke="#ddd"/>')
        lines.append(label(LEFT - 8, y + 4, f"{10.0 ** power:g}", "end"))
    lines.append(label((LEFT + WIDTH) / 2, HEIGHT - 18, "operations a byte"))
    lines.append(f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" font-size="12" '
                 'text-anchor="middle">GFLOP/s</text>')
    return lines


def roof(axes, bandwidth, peak, style=""):
    left = max(10.0 ** axes.x_low, 10.0 ** axes.y_low / bandwidth)  # not below the frame
    right = 10.0 ** axes.x_high
    ridge = peak / bandwidth
    points = [(left, bandwidth * left), (min(ridge, right), bandwidth * min(ridge, right))]
    if ridge < right:
        points.append((right, peak))
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="#333" stroke-width="2"{style}/>'


def mark(x, y, outline, colour, filled, title=""):
    return (f'<path transform="translate({x:.1f} {y:.1f})" d="{outline}" stroke="{colour}" '
            f'fill="{colour if filled else "none"}">{f"<title>{title}</title>" if title else ""}</path>')


def operations(row):
    return row["flops"] or BYTES_ONLY * row["bytes"]


def middle(numbers):
    return sorted(numbers)[len(numbers) // 2]


def points(axes, rows, colour, rivals):
    for row in rows:
        own = colour[row["problem"].split("/")[0]]
        for name, us in [*table.rivals(row).items(), ("aclgrad", row["us"])]:
            ours = name == "aclgrad"
            outline = MARKS[0] if ours else MARKS[rivals.index(name) % len(MARKS)]
            yield mark(axes.x(operations(row) / row["bytes"]), axes.y(operations(row) / us / 1e3),
                       outline, own, ours, f'{row["problem"]}, {name}: {us:.0f} us')


def legend(roofs, colour, rivals):
    height = 34
    for line in roofs:
        yield label(WIDTH, height, line, "start")
        height += 20
    for operator, own in colour.items():
        yield mark(WIDTH + 6, height - 4, MARKS[0], own, True)
        yield label(WIDTH + 16, height, operator, "start")
        height += 20
    for i, rival in enumerate(rivals):
        yield mark(WIDTH + 6, height - 4, MARKS[i % len(MARKS)], "#333", False)
        yield label(WIDTH + 16, height, rival, "start")
        height += 20


def draw(machine, rows):
    found = re.search(r"peak ([0-9.e+]+) GFLOP/s", machine)
    peak = float(found.group(1)) if found else 100.0
    copy = middle([row["copy_gb_per_s"] for row in rows])
    read = middle([row["read_gb_per_s"] for row in rows])
    slopes = [copy] + [read] * any(row["roof"] == "read" for row in rows)
    speeds = [operations(row) / us / 1e3
              for row in rows for us in (row["us"], *table.rivals(row).values())]
    axes = Axes([*(operations(row) / row["bytes"] for row in rows), peak / min(slopes) * 2],
                [*speeds, peak])
    operators = sorted({row["problem"].split("/")[0] for row in rows})
    rivals = list(dict.fromkeys(name for row in rows for name in table.rivals(row)))
    colour = dict(zip(operators, COLOURS))
    texts = [f"roof: copy {copy:.0f} GB/s, {peak:.0f} GFLOP/s", f"dashed: read {read:.0f} GB/s"]
    dashes = ("", ' stroke-dasharray="6 4"')
    lines = [*frame(axes), *(roof(axes, *each) for each in zip(slopes, [peak] * 2, dashes)),
             *points(axes, rows, colour, rivals), *legend(texts[:len(slopes)], colour, rivals),
             label(LEFT, 14, machine, "start")]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEGEND}" height="{HEIGHT}" '
            'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(lines) + "\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    machine, rows = table.read(sys.argv[1])
    if not rows:
        sys.exit(f"{sys.argv[1]} has no problem to draw")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(machine, rows))


if __name__ == "__main__":
    main()
