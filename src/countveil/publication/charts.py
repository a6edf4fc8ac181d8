"""Pictures of an edition's accuracy: half the width of intervals against the count, and shares of quality marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.display import svg
from countveil.display.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from countveil.plots.theme import decades, log_ticks
from countveil.publication.edition import QUALITY, PublishedTable

POINTS = 500
"""The most points of the chart."""
SERIES = 6
"""The most tables in the chart: the colours that are easily told apart."""
ZERO = 0.5
"""Where a log axis shows 0."""
BAR = 120


def spread_ranks(size: int, most: int) -> list[int]:
    """At most `most` ranks of a sorted array of this size, evenly spread from the first to the last.

    >>> spread_ranks(3, 5), spread_ranks(101, 3)
    ([0, 1, 2], [0, 50, 100])
    """
    return sorted({round(rank) for rank in np.linspace(0, size - 1, min(size, most)).tolist()})


def choose_series(tables: Sequence[PublishedTable]) -> list[PublishedTable]:
    """The tables of the chart, in their order: the largest ones if there are too many."""
    largest = sorted(tables, key=len, reverse=True)[:SERIES]
    return [table for table in tables if table in largest]


def draw_errors(series: Sequence[PublishedTable]) -> str:
    """Half the width of the interval against the count for cells of each table, evenly sampled by rank of the count."""
    points = _sample(series)
    counts = np.concatenate([each[0] for each in points])
    halves = np.concatenate([each[1] for each in points])
    low, high = float(counts.min()) / 1.3, max(float(counts.max()), 10.0) * 1.3
    least, most = float(halves.min()) / 1.4, max(float(halves.max()), 4 * float(halves.min())) * 1.4
    x = svg.logarithmic(low, high, LEFT, WIDTH - RIGHT)
    y = svg.logarithmic(least, most, HEIGHT - BOTTOM, TOP)
    parts = _draw_axes(x, y, [low, high], [least, most])
    for place, (count, half) in enumerate(points):
        dots = sorted({(round(x(c)), round(y(h))) for c, h in zip(count.tolist(), half.tolist(), strict=True)})
        parts.append(svg.shape("path", f"dots s{place}", d="".join(f"M{a} {b}h0" for a, b in dots)))
    parts += _draw_limits(x, y, (low, high), (least, most))
    return svg.draw(parts, "Half the width of the 95 % interval against the published count, both on log axes")


def _sample(series: Sequence[PublishedTable]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Counts, and half the widths of the intervals, of some cells of each table: of all cells if the table is small."""
    left, sizes = POINTS, {}
    for i, table in enumerate(sorted(series, key=len)):
        sizes[table.name] = min(len(table), left // (len(series) - i))
        left -= sizes[table.name]
    points = []
    for table in series:
        numbers = table.columns
        rows = np.argsort(numbers["count"], kind="stable")[spread_ranks(len(table), sizes[table.name])]
        half = (numbers["high"][rows] - numbers["low"][rows]) / 2
        points.append((np.maximum(numbers["count"][rows], ZERO), np.maximum(half, ZERO)))
    return points


def _draw_axes(x: svg.Scale, y: svg.Scale, across: Sequence[float], up: Sequence[float]) -> list[str]:
    bottom, right, parts = HEIGHT - BOTTOM, WIDTH - RIGHT, []
    for tick in [ZERO] * (across[0] < ZERO) + _choose_ticks(decades([1, *across]), x, across, 36):
        parts += [
            svg.line(x(tick), TOP, x(tick), bottom, "grid"),
            svg.text(x(tick), bottom + 17, _write(tick), "middle"),
        ]
    for tick in [ZERO] * (up[0] < ZERO) + _choose_ticks(log_ticks(*up), y, up, 17):
        parts += [svg.line(LEFT, y(tick), right, y(tick), "grid"), svg.text(LEFT - 6, y(tick) + 4, _write(tick), "end")]
    parts.append(svg.line(LEFT, bottom, right, bottom, "axis"))
    parts.append(svg.text((LEFT + right) / 2, bottom + 35, "published count", "middle", "quiet"))
    return parts


def _choose_ticks(ticks: Sequence[float], scale: svg.Scale, ends: Sequence[float], apart: float) -> list[float]:
    """The ticks of at least 1 that are between the ends of an axis, each at least `apart` from the one before."""
    chosen: list[float] = []
    for tick in ticks:
        if max(1.0, ends[0]) <= tick <= ends[1] and (not chosen or abs(scale(tick) - scale(chosen[-1])) >= apart):
            chosen.append(tick)
    return chosen


def _draw_limits(x: svg.Scale, y: svg.Scale, across: tuple[float, float], up: tuple[float, float]) -> list[str]:
    """A line for each quality mark, at the largest half width that it allows, labelled near the bottom."""
    parts = []
    for place, (_, limit) in enumerate(QUALITY):
        start, end = max(across[0], up[0] / limit), min(across[1], up[1] / limit)
        if start < end:
            first, last = (x(start), y(limit * start)), (x(end), y(limit * end))
            parts.append(svg.line(*first, *last, "rule"))
            at = max(last[1] + 8, min(first[1] - 8, HEIGHT - BOTTOM - 12 - 18 * place))
            beside = first[0] + (last[0] - first[0]) * (first[1] - at) / (first[1] - last[1])
            left = beside > WIDTH - RIGHT - 40
            words = f"{100 * limit:.0f} %"
            parts.append(svg.text(beside + (-6 if left else 6), at + 4, words, "end" if left else "start", "limit"))
    return parts


def _write(tick: float) -> str:
    """A tick in few letters.

    >>> _write(0.5), _write(20.0), _write(10_000.0), _write(1e6)
    ('0', '20', '10k', '1M')
    """
    if tick < 1:
        return "0"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tick >= size:
            return f"{tick / size:g}{letter}"
    return f"{tick:g}"


def count_marks(table: PublishedTable) -> dict[str, int]:
    """The number of cells with each quality mark."""
    marks = [mark for mark, _ in QUALITY] + ["D"]
    return {mark: int(np.count_nonzero(table.columns["quality"] == mark)) for mark in marks}


def draw_shares(marks: Mapping[str, int]) -> str:
    """A bar with the share of each mark."""
    total, at, parts = sum(marks.values()), 0.0, []
    for mark, number in marks.items():
        wide = BAR * number / total
        if number:
            parts.append(svg.rect(round(at, 1), 0, round(wide, 1), 12, f"q{mark}", f"{mark}: {number:,} of {total:,}"))
        at += wide
    return svg.draw(parts, ", ".join(f"{mark} {number:,}" for mark, number in marks.items()), 12, BAR)
