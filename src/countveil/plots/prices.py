"""What a number of answers costs in accuracy: the error of one answer against the number of answers in the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from countveil.errors import ParameterError, RequestError
from countveil.numeric.exact_numbers import decimal_text
from countveil.planning.plans import Plan, price_list
from countveil.plots import altair as alt, theme
from countveil.plots.theme import Style, curves

MARGIN, DEVIATION = "95 % margin", "standard deviation"
STYLES = [
    Style(MARGIN, theme.MIDDLE, theme.SOLID, "circle", 2.5),
    Style(DEVIATION, theme.DARK, theme.DASHED, "triangle-up", 2.4),
]
NARROW = 1.3
"""If all values of an axis are equal, the axis extends by this factor to both sides of the value."""


def price_rows(prices: Sequence[Mapping[str, Any]]) -> theme.Rows:
    """Rows {answers, people, series, mark}: the 95 % margin and the standard deviation of one answer, in people.

    A margin of 0 is left out: a log scale has no place for zero.
    """
    rows = []
    for price in prices:
        deviation = math.sqrt(float(price["variance"]))
        for series, people in ((MARGIN, float(price["margin_95"])), (DEVIATION, deviation)):
            if people > 0:
                rows.append({"answers": price["answers"], "people": people, "series": series, "mark": True})
    return rows


def prices_chart(prices: Sequence[Mapping[str, Any]], budget: str = "the same budget") -> alt.LayerChart:
    """The error of one answer against the number of answers, on log axes, with a line at the planned number."""
    rows = price_rows(prices)
    if not rows:
        raise ParameterError("prices", len(prices), "at least one price")
    across, up = _domain([row["answers"] for row in rows]), _domain([row["people"] for row in rows])
    x = alt.X("answers:Q", title="number of answers in the budget (log scale)")
    x = x.scale(type="log", domain=across, nice=False).axis(format=",d", grid=False, values=_whole_ticks(*across))
    y = alt.Y("people:Q", title="error of one answer (people, log scale)")
    y = y.scale(type="log", domain=up, nice=False).axis(format=",~r", values=theme.log_ticks(*up))
    layers: list[alt.Chart | alt.LayerChart] = [*curves(rows, STYLES, x, y, columns=2)]
    words = f"More answers within {budget} need more noise in every one of them."
    for price in prices:
        if price["chosen"]:
            k = int(price["answers"])
            deviation = _short(math.sqrt(float(price["variance"])))
            words = f"{_answers(k)} within {budget}: a 95 % margin of about {price['margin_95']}, standard deviation "
            words += f"{deviation}."
            layers += [theme.rule("x", k), theme.label(k, up[1], f"planned: {k:,}", dy=8, **theme.side(k, *across))]
    zero = "The margin is 0 where it is not drawn." if len(rows) < 2 * len(prices) else ""
    return theme.picture(theme.title("What does a number of answers cost?", words, zero), *layers)


def plan_chart(plan: Plan) -> alt.LayerChart:
    """The price list of a plan, computed if the plan has none."""
    if len(plan.grades) > 1:
        raise RequestError(
            "the picture of a plan is the price list of answers of one accuracy; draw the mechanism of a grade: "
            "plan.grades[0].mechanism.plot()"
        )
    budget = f"epsilon {decimal_text(plan.ask.epsilon)}, delta {decimal_text(plan.ask.delta)}"
    return prices_chart(plan.price_list or price_list(plan), budget)


def _answers(k: int) -> str:
    return "1 answer" if k == 1 else f"{k:,} answers"


def _short(x: float) -> str:
    return f"{x:,.3g}" if x < 1000 else f"{x:,.0f}"


def _domain(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [low / NARROW, high * NARROW] if low == high else [low / 1.1, high * 1.1]


def _whole_ticks(low: float, high: float) -> list[float]:
    return [tick for tick in theme.log_ticks(low, high) if tick >= 1] or [math.ceil(low)]
