"""Pictures of the pages: of docs/consistency.md from benchmarks/results, and of README from a mechanism.

    python -m tests.support.figures      writes zeros.svg, publication.svg and released.svg in docs/figures

Lines differ in colour, lightness and dashes, and each has its name beside its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

import countveil as cv
from countveil.display import svg
from countveil.mechanism.intervals import Intervals

REPOSITORY = Path(__file__).parents[2]
RESULTS, FIGURES = REPOSITORY / "benchmarks" / "results", REPOSITORY / "docs" / "figures"
STYLE = """
svg { background: #fff } text { font: 12px system-ui, sans-serif; fill: #1a1a1a } .head { font-weight: 600 }
.quiet { fill: #6b6b6b } .grid { stroke: #e3e3e3 } .axis { stroke: #6b6b6b } path { fill: none; stroke-width: 2.2 }
.ours { stroke: #0b3c6f } .plain { stroke: #5b8fb9; stroke-dasharray: 2 3 } .other { stroke: #d4600a;
stroke-dasharray: 7 3 } .worse { stroke: #8a8f98; stroke-dasharray: 7 3 2 3 } rect.ours { fill: #0b3c6f; stroke: none }
rect.plain { fill: #5b8fb9; stroke: none } .whisker { stroke: #1a1a1a; stroke-width: 1.6 } .truth { fill: #d4600a }
@media (prefers-color-scheme: dark) { svg { background: #14171c } text { fill: #e8e8e8 } .quiet { fill: #a0a7b1 }
.grid { stroke: #2b313a } .axis { stroke: #a0a7b1 } .ours { stroke: #7fb2d9 } .plain { stroke: #a9c7df }
.other { stroke: #f0904a } .worse { stroke: #858c97 } rect.ours { fill: #7fb2d9 } rect.plain { fill: #4d7ea6 }
.whisker { stroke: #e8e8e8 } .truth { fill: #f0904a } }
"""
NAMES = 170
"""Room for the names of lines, to the right of the axes."""
METHODS = {
    "blocks, cut": ("blocks alone, cut at 0", "worse", 4),
    "TopDown": ("TopDown", "other", 4),
    "published": ("published", "ours", 1),
    "planned": ("margins", "plain", 7),
}
"""The name of the line of a method, its class, and how far below its end the name stands."""


def read_rows(name: str) -> list[list[str]]:
    """The lines of a result, split where there are at least two blanks."""
    return [re.split(r"\s{2,}", row.strip()) for row in (RESULTS / name).read_text().splitlines()]


def frame(parts: Sequence[str], title: str, width: float, height: float = svg.HEIGHT) -> str:
    """A picture with the colours for light and dark."""
    picture = svg.draw([f"<style>{STYLE}</style>", *parts], title, height, width)
    return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def draw_zeros() -> str:
    """Left: the mean error of a cell by its true count. Right: how far sums across branches are off, in percent."""
    rows = read_rows("zeros.txt")
    cells = [[float(word) for word in (row[0], *row[2:])] for row in rows if len(row) == 5 and row[0].isdigit()]
    x, y = (
        svg.linear(0, 15, svg.LEFT, svg.WIDTH - svg.RIGHT),
        svg.linear(-0.6, 1, svg.HEIGHT - svg.BOTTOM, svg.TOP + 14),
    )
    ups = (-0.5, 0.0, 0.5, 1.0)
    parts = svg.axes(x, y, range(0, 16, 3), ups, "true count of the cell", lambda tick: f"{tick:+.1f}")
    parts.append(svg.text(svg.LEFT, 14, "mean error of a cell", kind="head"))
    lines = (("published", "ours", -0.32), ("unbiased estimate", "plain", 0.07), ("measured, cut at 0", "worse", 0.28))
    for column, (name, kind, height) in enumerate(lines, start=1):
        parts.append(svg.path([(x(row[0]), y(row[column])) for row in cells], kind))
        parts.append(svg.text(x(15) if column < 3 else x(2.2), y(height), name, "end" if column < 3 else "start"))
    sums = [row for row in rows if len(row) == 7 and row[0][0].isdigit()]
    left, bottom = svg.WIDTH + 150, svg.HEIGHT - svg.BOTTOM
    across = svg.linear(-20, 200, left, left + 270)
    parts.append(svg.text(svg.WIDTH + 30, 14, "error of a category's sum over all districts", kind="head"))
    for tick in range(0, 201, 50):
        parts.append(svg.line(across(tick), svg.TOP + 6, across(tick), bottom, "grid" if tick else "axis"))
        parts.append(svg.text(across(tick), bottom + 16, f"{tick:+d} %" if tick else "0", "middle"))
    words = "upper bar: sum of published cells; lower bar: margin"
    parts.append(svg.text(left + 135, bottom + 33, words, "middle", "quiet"))
    for i, (mean, _, published, estimate, *_) in enumerate(sums):
        top, over = svg.TOP + 12 + i * 34, float(published)
        parts.append(svg.text(left - 30, top + 17, f"{mean} a district", "end"))
        for value, kind, y0 in ((over, "ours", top), (float(estimate), "plain", top + 13)):
            start, end = sorted((across(0), across(value)))
            parts.append(svg.rect(start, y0, max(1.0, end - start), 11, kind))
        side = 1 if over > 0 else -1
        parts.append(svg.text(across(over) + 5 * side, top + 10, f"{over:+.0f} %", "start" if over > 0 else "end"))
    return frame(parts, "The price of numbers that are never negative, by true count and in sums", svg.WIDTH + 480)


def draw_publication() -> str:
    """The error over precincts against epsilon, all adults, with all blocks as public cells."""
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    pattern = re.compile(r"^ +44,113 ([0-9.]+) +(" + "|".join(METHODS) + r") .* ([0-9.]+) \([-+0-9.]+\)$")
    for row in (RESULTS / "publication.txt").read_text().splitlines():
        if match := pattern.match(row):
            errors[match[2]].append((float(match[1]), float(match[3])))
    x = svg.logarithmic(0.25, 2, svg.LEFT, svg.WIDTH - svg.RIGHT)
    y = svg.logarithmic(15, 1000, svg.HEIGHT - svg.BOTTOM, svg.TOP + 14)
    ups = (20, 50, 100, 200, 500, 1000)
    parts = svg.axes(x, y, (0.25, 0.5, 1, 2), ups, "epsilon", lambda tick: f"{tick:,.0f}")
    parts.append(svg.text(svg.LEFT - 40, 14, "root mean square error, all adults of a precinct", kind="head"))
    for name, (words, kind, drop) in METHODS.items():
        points = [(x(epsilon), y(error)) for epsilon, error in errors[name]]
        parts.append(svg.path(points, kind))
        parts.append(svg.text(points[-1][0] + 8, points[-1][1] + drop, words))
    return frame(parts, "Error of precincts against epsilon, for TopDown and for countveil", svg.WIDTH + NAMES)


VILLAGES = {"Ashby": 0, "Birch": 3, "Cedar": 9, "Dale": 14, "Elmley": 22, "Farrow": 31, "Glen": 43}
"""True counts of an invented table."""


def draw_released() -> str:
    """Left: a table of counts, released, with intervals and the truth. Right: the law of the noise.

    The draws are fixed quantiles of the laws, so that the picture is the same every time.
    """
    m = cv.design(epsilon="1", delta="1e-6")
    names, truth = list(VILLAGES), list(VILLAGES.values())
    released = [n + quantile(m.law(n), Fraction(2 * (3 * i % 7) + 1, 14)) for i, n in enumerate(truth)]
    low, high = Intervals(m).of(np.array(released))
    x, height = svg.linear(0, 50, 70, 440), 26.0
    parts = [svg.text(8, 16, "people with a rare condition, released", kind="head")]
    for tick in range(0, 51, 10):
        parts.append(svg.line(x(tick), 26, x(tick), 222, "grid" if tick else "axis"))
        parts.append(svg.text(x(tick), 238, str(tick), "middle", "quiet"))
    for i, name in enumerate(names):
        top = 32 + i * (height + 1)
        parts.append(svg.text(62, top + 15, name, "end"))
        parts.append(svg.rect(x(0), top + 3, x(released[i]) - x(0), height - 10, "plain"))
        parts.append(svg.line(x(low[i]), top + 11, x(high[i]), top + 11, "whisker"))
        parts += [svg.line(x(end), top + 6, x(end), top + 16, "whisker") for end in (low[i], high[i])]
        parts.append(svg.circle(x(truth[i]), top + 11, 3.4, "truth"))
        parts.append(svg.text(x(high[i]) + 8, top + 15, str(released[i])))
    parts.append(
        svg.text(70, 262, "bar: released; line: 95 % interval; dot: the truth, which stays secret", kind="quiet")
    )
    law, left = m.law(100), 500.0
    across = svg.linear(-6.5, 6.5, left, left + 270)
    up = svg.linear(0, 0.5, 222, 40)
    parts.append(svg.text(left, 16, "the noise of one count", kind="head"))
    for z in range(-6, 7):
        p = law.weight(z) / law.total
        parts.append(svg.rect(across(z - 0.42), up(p), across(z + 0.42) - across(z - 0.42), 222 - up(p), "ours"))
        parts.append(svg.text(across(z), 238, f"{z:+d}" if z else "0", "middle", "quiet"))
    parts.append(svg.line(left, 222, left + 270, 222, "axis"))
    parts.append(svg.text(across(0), up(law.weight(0) / law.total) - 5, f"exact: {float(law.eta):.0%}", "middle"))
    words = f"epsilon 1, delta 1e-6; never more than {m.D} off"
    parts.append(svg.text(left, 262, words, kind="quiet"))
    return frame(parts, "A released table with its 95 % intervals, and the noise behind one of its counts", 790, 272)


def quantile(law: cv.Law, level: Fraction) -> int:
    """The least z with P(Z <= z) >= level."""
    below = 0
    for z, weight in law.items():
        below += weight
        if below >= level * law.total:
            return z
    raise AssertionError("the weights of a law sum to their total")


PICTURES = {"zeros.svg": draw_zeros, "publication.svg": draw_publication, "released.svg": draw_released}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FIGURES / name).write_text(draw())
