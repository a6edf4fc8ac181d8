"""Several mechanisms side by side: the laws of their noise, and the one figure in which they differ.

The `basis` says what is equal for all mechanisms. At an equal guarantee the figure is the variance; at an equal
variance or eta it is delta, or epsilon if delta is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from countveil.errors import ParameterError
from countveil.laws.law import Law
from countveil.numeric.exact_numbers import decimal_text
from countveil.plots import altair as alt, theme

Compared = Mapping[str, Any]
"""One mechanism: its name, the law of its noise and its measured figures, as in the rows of `countveil.comparison`."""

BASES = {
    "guarantee": "guarantee",
    "variance": "variance",
    "eta": "probability of the exact count",
    "eta and D": "probability of the exact count and noise bound",
}
FIGURES = {"variance": "variance (people²)", "delta": "delta", "epsilon": "epsilon"}
LAW_WIDTH, BAR_WIDTH, ROW_HEIGHT = 380, 240, 74
LEAST_SHOWN = 1e-9
MOST_BARS = 161
"""Laws with more values than this are drawn as areas, others as bars."""
NOTHING = Fraction(1, 10**25)
"""A delta below this comes only from cut-off tails and rounding, and is shown as zero."""
WIDE = 30
"""If the largest figure is more than this many times the least, bars are on a log scale."""


def law_rows(law: Law, floor: float = 0.0, step: int = 1) -> theme.Rows:
    """Rows {z, p} of a law's probabilities p for every `step`-th noise z.

    p is the largest probability of the `step` values around z, but at least `floor`. The rows begin and end with the
    first and the last probability above `floor`.
    """
    largest: dict[int, float] = {}
    for z, w in law.items():
        near = (z + step // 2) // step * step
        largest[near] = max(largest.get(near, 0.0), w / law.total)
    shown = [z for z, p in largest.items() if p > floor]
    reach = range(min(shown), max(shown) + 1, step) if shown else range(0)
    rows = [{"z": z, "p": max(largest.get(z, 0.0), floor)} for z in reach]
    return [row for row in rows if row["p"] > 0]


def comparison_chart(
    rows: Sequence[Compared], *, basis: str = "guarantee", figure: str | None = None
) -> alt.VConcatChart:
    """One line for each mechanism, in the given order: the law of its noise on a log scale, and a bar with its figure.

    `figure` is variance, delta or epsilon; `basis` names what the mechanisms share.
    """
    figure = figure or ("variance" if basis == "guarantee" else "delta")
    for argument, given, allowed in (("basis", basis, BASES), ("figure", figure, FIGURES)):
        if given not in allowed:
            raise ParameterError(argument, given, " or ".join(allowed))
    if not rows:
        raise ParameterError("rows", "no mechanism", "at least one mechanism")
    ticks = _probability_ticks([row["law"] for row in rows])
    whole = [law_rows(row["law"], ticks[0]) for row in rows]
    reach = max(abs(at["z"]) for law in whole for at in law)
    areas = 2 * reach + 1 > MOST_BARS
    step = -(-(2 * reach + 1) // LAW_WIDTH)
    laws = [law_rows(row["law"], ticks[0], step) for row in rows] if areas else whole
    figures = [_describe_value(row[figure], figure) for row in rows]
    lines = [
        alt.hconcat(
            _law_chart(row, law, reach, ticks, areas=areas, last=i == len(rows) - 1),
            _bar_chart(figures[i], figures, figure, last=i == len(rows) - 1),
            spacing=28,
            bounds="flush",
        )
        for i, (row, law) in enumerate(zip(rows, laws, strict=True))
    ]
    down = decimal_text(Fraction(str(ticks[0])))
    heading = alt.TitleParams(
        f"Mechanisms at the same {BASES[basis]}",
        subtitle=(
            f"Left: the probability of each noise z, on a log scale, down to {down}. "
            f"Right: {figure}, in which they differ."
        ),
        offset=18,
    )
    return alt.vconcat(*lines, spacing=14).properties(title=heading)


def _probability_ticks(laws: Sequence[Law]) -> list[float]:
    """Ticks for a log axis, from the least probability of the laws (or LEAST_SHOWN) to the largest."""
    least = min(min(w for w in law.weights if w) / law.total for law in laws)
    most = max(max(law.weights) / law.total for law in laws)
    return theme.decades([max(least / 1.5, min(LEAST_SHOWN, most / 10)), most], most=4)


def _law_chart(row: Compared, law: theme.Rows, reach: int, ticks: list[float], *, areas: bool, last: bool) -> alt.Chart:
    floor = ticks[0]
    x = alt.X("z:Q", title="noise z: published minus true count (people)" if last else None)
    x = x.scale(domain=[-reach - 0.7, reach + 0.7], nice=False).axis(labels=last, ticks=last, tickMinStep=1, grid=False)
    y = (
        alt.Y("p:Q", title="P(Z = z)")
        .scale(type="log", domain=[floor, ticks[-1]], nice=False)
        .axis(values=ticks, labelExpr=theme.SMALL_NUMBERS)
    )
    base = alt.Chart(theme.data([{**at, "floor": floor} for at in law]))
    if areas:
        base = base.mark_area(color=theme.DARK, interpolate="step", clip=True)
    else:
        base = base.mark_bar(color=theme.DARK, width=max(1.5, min(12.0, 0.7 * LAW_WIDTH / (2 * reach + 1))))
    chart: alt.Chart = base.encode(x=x, y=y, y2=alt.Y2("floor:Q")).properties(
        title=alt.TitleParams(row["name"] or row["mechanism"], subtitle=_facts(row), fontSize=12, offset=6),
        width=LAW_WIDTH,
        height=ROW_HEIGHT,
    )
    return chart


Shown = tuple[float, str]
"""The length of a bar (0 for no bar), and the text after it."""


def _describe_value(value: Fraction | None, figure: str) -> Shown:
    """The length of the bar and the text for one value.

    There is no bar if no epsilon has the given delta (`value` is None), or for a delta below NOTHING.
    """
    if value is None:
        return 0.0, "none"
    if figure == "delta" and value < NOTHING:
        return 0.0, "~0"
    return float(value), decimal_text(value, 4, "nearest" if figure == "variance" else "up")


def _bar_chart(shown: Shown, all_shown: list[Shown], figure: str, *, last: bool) -> alt.LayerChart:
    """One bar on a scale that all mechanisms share, with its value written after it."""
    value, text = shown
    positive = [v for v, _ in all_shown if v] or [1.0]
    log = max(positive) / min(positive) > WIDE
    ticks = theme.decades([min(positive) / 1.5, max(positive)], most=5)
    domain = [ticks[0], ticks[-1]] if log else [0.0, max(positive) * 1.02]
    x = alt.X("value:Q", title=(FIGURES[figure] + (" (log scale)" if log else "")) if last else None)
    x = x.scale(type="log" if log else "linear", domain=domain, nice=False)
    marks: dict[str, Any] = {"values": ticks} if log else {"tickCount": 4}
    x = x.axis(labels=last, ticks=last, labelExpr=theme.SMALL_NUMBERS, **marks)
    end = max(value, domain[0])
    rows = [{"value": end, "from": domain[0], "text": text, "row": ""}]
    base = alt.Chart(theme.data(rows))
    band = alt.Y("row:N", title=None).axis(None)
    bar = base.mark_bar(color=theme.LIGHT, stroke=theme.DARK, strokeWidth=1, size=26)
    layers = [bar.encode(x=x, x2=alt.X2("from:Q"), y=band)] if value else []
    inside = _share(end, domain, log) > 0.7
    words = base.mark_text(align="right" if inside else "left", dx=-6 if inside else 6, fontWeight="bold")
    layers.append(words.encode(x=x, y=band, text=alt.Text("text:N")))
    return alt.LayerChart(layer=layers, width=BAR_WIDTH, height=ROW_HEIGHT)


def _share(value: float, domain: list[float], log: bool) -> float:
    """The position of a value on its axis, from 0 at the beginning to 1 at the end."""
    low, high = domain
    if log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _facts(row: Compared) -> str:
    """The figures of one mechanism in one line."""
    worst = "unbounded" if row["worst_error"] is None else f"at most {row['worst_error']}"
    sign = "never negative" if row["never_negative"] else "can be negative"
    exact, near = theme.percent(row["eta"]), theme.percent(row["within_3"])
    return f"exact {exact}; within ±3 {near}; error {worst}; {sign}"
