"""How large a cell must be for its published count to be useful: the relative error against the size of the cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from countveil.laws.law import Law
from countveil.mechanism.mechanism import Mechanism
from countveil.plots import altair as alt, theme

TOLERANCE = Fraction(1, 10)
LEVEL = Fraction(95, 100)
POINTS = 40


def useful_from(mechanism: Mechanism, tolerance: Fraction = TOLERANCE) -> int | None:
    """The least promised count n from which on the 95 % margin is at most `tolerance` times n, or None."""
    low, high = mechanism.counts
    least = max(low, next(_useless_counts(mechanism, tolerance), low - 1) + 1)
    return None if high is not None and least > high else least


def _useless_counts(mechanism: Mechanism, tolerance: Fraction) -> Iterator[int]:
    """The promised counts whose 95 % margin is above `tolerance` times the count, from the largest down.

    Of the counts with the stationary law, only the largest is yielded.
    """
    low, high = mechanism.counts
    laws = mechanism.laws
    first_top = getattr(laws, "first_top", None)
    stationary = max(low, laws.stationary_from)
    top = range(0) if high is None or first_top is None else range(max(low, first_top), high + 1)
    yield from (n for n in reversed(top) if _margin(mechanism, n) > tolerance * n)
    last = math.ceil(laws.stationary.margin(LEVEL) / tolerance) - 1  # the largest n with margin > tolerance * n
    if high is not None:
        last = min(last, high if first_top is None else first_top - 1)
    if last >= stationary:
        yield last
    small = range(low, stationary if high is None else min(stationary, high + 1))
    yield from (n for n in reversed(small) if _margin(mechanism, n) > tolerance * n)


def usefulness_rows(mechanism: Mechanism, tolerance: Fraction = TOLERANCE) -> theme.Rows:
    """Rows {n, relative, series}: the 95 % margin and the root mean squared error of the count n, each divided by n.

    A margin of 0 is left out: a log scale has no place for zero.
    """
    rows = []
    for n in _sizes(mechanism, tolerance):
        law = mechanism.law(n)
        rows.append({"n": n, "relative": _root(law) / n, "series": ERROR})
        margin = law.margin(LEVEL)
        if margin:
            rows.append({"n": n, "relative": margin / n, "series": MARGIN})
    return rows


MARGIN, ERROR = "95 % margin / n", "root mean squared error / n"


def _sizes(mechanism: Mechanism, tolerance: Fraction) -> list[int]:
    """Cell sizes for the picture: promised counts, in even steps of the logarithm."""
    low, high = mechanism.counts
    first = max(1, low)
    threshold = useful_from(mechanism, tolerance) or first
    last = max(30 * first, 10 * threshold, 100)
    if high is not None:
        last = min(last, high)
    ratio = last / first
    even = {round(first * ratio ** (i / POINTS)) for i in range(POINTS + 1)}
    return sorted(even | {min(max(first, threshold), last)})


def _margin(mechanism: Mechanism, n: int) -> int:
    return mechanism.law(n).margin(LEVEL)


def _root(law: Law) -> float:
    return math.sqrt(law.mse)


def usefulness_chart(mechanism: Mechanism, tolerance: Fraction = TOLERANCE) -> alt.LayerChart:
    """Relative errors against the size of a cell, on log axes, with a line where cells become useful."""
    rows = usefulness_rows(mechanism, tolerance)
    least = useful_from(mechanism, tolerance)
    sizes = [row["n"] for row in rows]
    up = theme.decades([*(row["relative"] for row in rows), float(tolerance)])
    across = theme.log_ticks(min(sizes), max(sizes))
    names = [MARGIN, ERROR]
    x = alt.X("n:Q", title="size of the cell n (people, log scale)").axis(format=",d", grid=False, values=across)
    x = x.scale(type="log", domain=[min(sizes), max(sizes) + (min(sizes) == max(sizes))], nice=False)
    y = alt.Y("relative:Q", title="error relative to n (log scale)").axis(format=",~%", values=up)
    y = y.scale(type="log", domain=[up[0], up[-1]], nice=False)
    legend = alt.Legend(title=None)
    colours = alt.Color("series:N", sort=names).scale(domain=names, range=[theme.MIDDLE, theme.DARK])
    dashes = alt.StrokeDash("series:N", sort=names).scale(domain=names, range=[theme.SOLID, theme.DASHED])
    line = alt.Chart(theme.data(rows)).mark_line(strokeWidth=2.5)
    line = line.encode(x=x, y=y, color=colours.legend(legend), strokeDash=dashes.legend(legend))
    layers: list[alt.Chart | alt.LayerChart] = [line, theme.rule("y", float(tolerance), theme.DOTTED)]
    share = theme.percent(tolerance)
    if least is None:
        words = f"No promised count is large enough for a 95 % margin of at most {share}."
    else:
        at = max(1, least)
        words = f"From n = {at:,} on, the 95 % margin is at most {share} of the count."
        side = theme.side(at, min(sizes), max(sizes))
        layers += [theme.rule("x", at), theme.label(at, up[-1], f"useful from {at:,} people", dy=8, **side)]
    zero = " The margin is 0 where it is not drawn." if len(rows) < 2 * len(set(sizes)) else ""
    heading = theme.title("How large must a cell be?", words, f"Dotted: {share}.{zero}")
    return theme.picture(heading, *layers)
