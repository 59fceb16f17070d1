#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""roofline.py BENCH.csv PICTURE.svg: a roofline chart of what the bench measured.

A point a problem: to the right the operations that its formula asks for a byte that must move, upwards
the operations a second, both logarithmic. The slanted roof is the copy of this machine, the level one
its arithmetic. Rivals are hollow points in the colour of their operator.
"""
import math
import re
import sys

import table

WIDTH, HEIGHT, LEFT, BOTTOM, LEGEND = 760, 520, 70, 60, 250
COLOURS = ("#1b6ca8", "#c0392b", "#1e8449", "#8e44ad", "#b9770e", "#117a65", "#5d6d7e", "#a04000",
           "#2e4053")


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


def roof(axes, bandwidth, peak):
    left, right = 10.0 ** axes.x_low, 10.0 ** axes.x_high
    ridge = peak / bandwidth
    points = [(left, bandwidth * left), (min(ridge, right), bandwidth * min(ridge, right))]
    if ridge < right:
        points.append((right, peak))
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    return [f'<polyline points="{path}" fill="none" stroke="#333" stroke-width="2"/>']


def draw(machine, rows):
    rows = [row for row in rows if row["flops"]]
    if not rows:
        sys.exit("no problem with operations to draw")
    found = re.search(r"peak ([0-9.e+]+) GFLOP/s", machine)
    peak = float(found.group(1)) if found else 100.0
    bandwidth = sorted(row["copy_gb_per_s"] for row in rows)[len(rows) // 2]
    intensity = [row["flops"] / row["bytes"] for row in rows]
    times = [[row["us"], *table.rivals(row).values()] for row in rows]
    speeds = [row["flops"] / us / 1e3 for row, all_us in zip(rows, times) for us in all_us]
    axes = Axes([*intensity, peak / bandwidth * 2], [*speeds, peak])
    operators = sorted({row["problem"].split("/")[0] for row in rows})
    colour = dict(zip(operators, COLOURS))
    lines = [*frame(axes), *roof(axes, bandwidth, peak)]
    for row, x in zip(rows, intensity):
        own = colour[row["problem"].split("/")[0]]
        for name, us in [*table.rivals(row).items(), ("aclgrad", row["us"])]:
            fill = own if name == "aclgrad" else "none"
            y = axes.y(row["flops"] / us / 1e3)
            lines.append(f'<circle cx="{axes.x(x):.1f}" cy="{y:.1f}" r="4" fill="{fill}" '
                         f'stroke="{own}"><title>{row["problem"]}, {name}: {us:.0f} us</title>'
                         "</circle>")
    lines.append(label(WIDTH, 34, f"roof: copy {bandwidth:.0f} GB/s, {peak:.0f} GFLOP/s", "start"))
    for i, operator in enumerate(operators):
        lines.append(f'<circle cx="{WIDTH + 6}" cy="{56 + 20 * i}" r="4" '
                     f'fill="{colour[operator]}"/>')
        lines.append(label(WIDTH + 16, 60 + 20 * i, operator, "start"))
    lines.append(label(WIDTH, 70 + 20 * len(operators), "hollow: rivals", "start"))
    lines.append(label(LEFT, 14, machine, "start"))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEGEND}" height="{HEIGHT}" '
            'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(lines) + "\n</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(*table.read(sys.argv[1])))


if __name__ == "__main__":
    main()
