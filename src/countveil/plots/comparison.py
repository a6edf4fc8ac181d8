"""Several mechanisms side by side: the laws of their noise, and the one figure in which they differ.

Mechanisms are compared at something equal, the `basis`. At an equal guarantee the figure is the variance; at an equal
variance or eta it is delta, or epsilon where delta is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from countveil.errors import ParameterError
from countveil.exact import decimal_text
from countveil.plots import theme

if TYPE_CHECKING:
    import altair as alt

BASES = {
    "guarantee": "guarantee",
    "variance": "variance",
    "eta": "probability of the exact count",
    "eta and D": "probability of the exact count and noise bound",
}
FIGURES = {"variance": "variance (people²)", "delta": "delta", "epsilon": "epsilon"}
LAW_WIDTH, BAR_WIDTH, ROW_HEIGHT = 380, 240, 74
LEAST_SHOWN = 1e-9
WIDE = 30
"""Beyond this ratio of the largest to the least figure, bars are on a log scale."""


def law_rows(row: Mapping[str, Any]) -> theme.Rows:
    """{z, p} of one mechanism's noise."""
    found = [{"z": int(z), "p": float(p)} for z, p in row["law"].items()]
    return sorted((at for at in found if at["p"] > 0), key=lambda at: at["z"])


def comparison_chart(
    rows: Sequence[Mapping[str, Any]], *, basis: str = "guarantee", figure: str | None = None
) -> alt.VConcatChart:
    """One line per mechanism, in the order given: the law of its noise on a log scale, and a bar with its figure.

    A row has the texts and numbers of `Row.describe`; `figure` is variance, delta or epsilon.
    """
    import altair as alt

    figure = figure or ("variance" if basis == "guarantee" else "delta")
    for argument, given, allowed in (("basis", basis, BASES), ("figure", figure, FIGURES)):
        if given not in allowed:
            raise ParameterError(argument, given, " or ".join(allowed))
    if not rows:
        raise ParameterError("rows", "no mechanism", "at least one")
    laws = [law_rows(row) for row in rows]
    reach = max(abs(at["z"]) for law in laws for at in law if at["p"] > LEAST_SHOWN)
    least = min(at["p"] for law in laws for at in law)
    ticks = theme.decades([max(least, LEAST_SHOWN), 1.0], most=4)
    figures = [None if row[figure] is None else float(row[figure]) for row in rows]
    lines = [
        alt.hconcat(
            _law_chart(row, law, reach, ticks, last=i == len(rows) - 1),
            _bar_chart(figures[i], figures, figure, last=i == len(rows) - 1),
            spacing=28,
        )
        for i, (row, law) in enumerate(zip(rows, laws, strict=True))
    ]
    heading = alt.TitleParams(
        f"Mechanisms at the same {BASES[basis]}",
        subtitle=f"Left: the probability of each noise z, on a log scale. Right: {figure}, in which they differ.",
        offset=18,
    )
    return alt.vconcat(*lines, spacing=14).properties(title=heading)


def _law_chart(row: Mapping[str, Any], law: theme.Rows, reach: int, ticks: list[float], *, last: bool) -> alt.Chart:
    import altair as alt

    floor = ticks[0]
    shown = [{**at, "floor": floor} for at in law if at["p"] > floor]
    x = alt.X("z:Q", title="noise z: published minus true count (people)" if last else None)
    x = x.scale(domain=[-reach - 0.7, reach + 0.7], nice=False).axis(labels=last, ticks=last, tickMinStep=1, grid=False)
    y = (
        alt.Y("p:Q", title="P(Z = z)")
        .scale(type="log", domain=[floor, 1], nice=False)
        .axis(values=ticks, labelExpr=theme.SMALL_NUMBERS)
    )
    width = max(1.5, min(12.0, 0.7 * LAW_WIDTH / (2 * reach + 1)))
    base = alt.Chart(theme.data(shown)).mark_bar(color=theme.DARK, width=width)
    chart: alt.Chart = base.encode(x=x, y=y, y2=alt.Y2("floor:Q")).properties(
        title=alt.TitleParams(str(row.get("name") or row["mechanism"]), subtitle=_facts(row), fontSize=12, offset=6),
        width=LAW_WIDTH,
        height=ROW_HEIGHT,
    )
    return chart


def _bar_chart(value: float | None, values: list[float | None], figure: str, *, last: bool) -> alt.LayerChart:
    """One bar on a scale that all mechanisms share, with its value written after it."""
    import altair as alt

    positive = [v for v in values if v] or [1.0]
    log = max(positive) / min(positive) > WIDE
    ticks = theme.decades([min(positive) / 1.5, max(positive)], most=5)
    domain = [ticks[0], ticks[-1]] if log else [0.0, max(positive) * 1.02]
    x = alt.X("value:Q", title=(FIGURES[figure] + (" (log scale)" if log else "")) if last else None)
    x = x.scale(type="log" if log else "linear", domain=domain, nice=False)
    marks: dict[str, Any] = {"values": ticks, "labelExpr": theme.SMALL_NUMBERS} if log else {"tickCount": 4}
    x = x.axis(labels=last, ticks=last, **marks)
    end = max(value or 0.0, domain[0])
    rows = [{"value": end, "from": domain[0], "text": _number(value), "row": ""}]
    base = alt.Chart(theme.data(rows))
    band = alt.Y("row:N", title=None).axis(None)
    bar = base.mark_bar(color=theme.LIGHT, stroke=theme.DARK, strokeWidth=1, size=26)
    layers = [bar.encode(x=x, x2=alt.X2("from:Q"), y=band)] if value else []
    inside = _share(end, domain, log) > 0.7
    words = base.mark_text(align="right" if inside else "left", dx=-6 if inside else 6, fontWeight="bold")
    layers.append(words.encode(x=x, y=band, text=alt.Text("text:N")))
    return alt.LayerChart(layer=layers, width=BAR_WIDTH, height=ROW_HEIGHT)


def _number(value: float | None) -> str:
    """For reading; a mechanism can have no epsilon for a delta."""
    return "none" if value is None else decimal_text(Fraction(value), 4)


def _share(value: float, domain: list[float], log: bool) -> float:
    """How far along its axis a value lies."""
    low, high = domain
    if log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _facts(row: Mapping[str, Any]) -> str:
    """The figures of one mechanism in a line."""
    worst = "unbounded" if row["worst_error"] is None else f"at most {row['worst_error']}"
    sign = "never negative" if row["never_negative"] else "can be negative"
    exact, near = theme.percent(float(row["eta"])), theme.percent(float(row["within_3"]))
    return f"exact {exact}; within ±3 {near}; error {worst}; {sign}"
