"""The figure of many answers: their cost together, the variance that they need, alone and relative to a plan's.

Lines differ in colour, lightness, dashes and the shape of their marks; both axes are logarithmic throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from countveil.plots import altair as alt, theme
from countveil.plots.theme import DASH_DOT, Style, curves, headline

WIDTH, HEIGHT = 300, 290
TICKS = [1, 10, 100, 1000]
GREY = "#8c8c8c"

COST = {
    "basic": Style("basic composition", theme.MIDDLE, theme.DASHED, "circle", 2.0),
    "advanced": Style("advanced composition (Kairouz, Oh, Viswanath)", GREY, DASH_DOT, "diamond", 2.0),
    "exact": Style("exact", theme.DARK, theme.SOLID, "triangle-up", 1.8),
    "gaussian-zcdp": Style("discrete Gaussian of the same variance, by zCDP", theme.INK, theme.DOTTED, "cross", 1.6),
    "gaussian": Style("discrete Gaussian of the same variance, exact", theme.LIGHT, theme.SOLID, "square", 3.2),
}
NEED = {
    "basic-need": Style("geometric, basic composition", theme.MIDDLE, theme.DASHED, "circle", 2.0),
    "geometric-need": Style("geometric, exact", theme.MIDDLE, theme.SOLID, "diamond", 2.4),
    "plan": Style("planned for k answers, exact", theme.DARK, theme.SOLID, "triangle-up", 1.5),
    "zcdp-need": Style("discrete Gaussian, by zCDP", theme.INK, theme.DOTTED, "cross", 1.8),
    "gaussian-need": Style("discrete Gaussian, exact", theme.LIGHT, theme.SOLID, "square", 3.6),
}


def composition_chart(points: Sequence[Mapping[str, Any]]) -> alt.TopLevelMixin:
    """Three panels: the epsilon of k answers, the variance that a budget needs, and that variance over the plan's."""
    left = _panel(
        _rows(points, COST, "epsilon"),
        COST,
        "epsilon of all answers at delta 1e-6",
        "k answers of one mechanism: epsilon 0.1 each",
        columns=1,
    )
    middle = _panel(
        _rows(points, NEED, "variance"),
        NEED,
        "variance of one answer (people²)",
        "variance for epsilon 3, delta 1e-6 in total",
        columns=2,
    )
    right = _panel(
        _rows(points, NEED, "ratio"),
        NEED,
        "variance / variance of the plan",
        "the same, divided by the plan's",
        columns=2,
    )
    needs = alt.hconcat(middle, right, spacing=30).resolve_scale(y="independent")
    heading = headline(
        "Many answers about the same people",
        "Left: the same answers, composed in different ways; only the exact lines are the true cost. The Gaussian "
        "is worse for few answers and better for many. Middle and right: what a fixed budget needs. A plan is "
        "geometric for few answers, Gaussian for many, and better than both between. All scales are logarithmic.",
        width=175,
    )
    page = alt.hconcat(left, needs, spacing=36).properties(title=heading)
    chart: alt.HConcatChart = page.resolve_scale(color="independent", shape="independent", y="independent")
    return chart


def _rows(points: Sequence[Mapping[str, Any]], styles: Mapping[str, Style], column: str) -> theme.Rows:
    """Rows for `curves`. The thinnest line comes last, so that its marks stay visible where lines meet."""
    shown = sorted((p for p in points if p["series"] in styles), key=lambda p: -styles[p["series"]].width)
    return [
        {"answers": p["answers"], "value": float(p[column]), "series": styles[p["series"]].label, "mark": True}
        for p in shown
    ]


def _panel(rows: theme.Rows, styles: Mapping[str, Style], y_title: str, title: str, *, columns: int) -> alt.LayerChart:
    x = alt.X("answers:Q", title="number of answers k").axis(values=TICKS, format=",d", grid=False)
    x = x.scale(type="log", domain=[0.85, 1200], nice=False)
    values = [row["value"] for row in rows]
    low, high = 0.85 * min(values), 1.2 * max(values)
    y = alt.Y("value:Q", title=y_title).scale(type="log", domain=[low, high], nice=False)
    ticks = theme.log_ticks(low, high)
    if len(ticks) < 4:
        ticks = [tick * step for tick in ticks for step in (1, 2, 5) if tick * step < high]
    y = y.axis(values=ticks, format=",~r")
    return alt.LayerChart(
        layer=curves(rows, list(styles.values()), x, y, columns=columns, size=46),
        width=WIDTH,
        height=HEIGHT,
        title=alt.TitleParams(title, fontSize=12, anchor="middle", offset=6),
    )
