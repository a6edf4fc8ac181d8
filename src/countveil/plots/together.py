"""Many answers together: an upper bound of delta at every epsilon."""

from __future__ import annotations

from countveil.accounting.composition import Composition
from countveil.plots import altair as alt, theme

POINTS = 25
TOP = 8.0
"""The largest epsilon of the picture."""
LEAST = 1e-12
"""The curve ends where delta is smaller."""


def together_rows(composition: Composition) -> theme.Rows:
    """Rows {epsilon, delta}, from epsilon 0 on, as long as delta can be shown on a log scale."""
    points = ((TOP * i / (POINTS - 1), composition.upper(TOP * i / (POINTS - 1))) for i in range(POINTS))
    return [{"epsilon": epsilon, "delta": delta} for epsilon, delta in points if delta > LEAST]


def together_chart(composition: Composition) -> alt.LayerChart:
    """delta against epsilon on a log scale."""
    rows = together_rows(composition)
    ticks = theme.decades([row["delta"] for row in rows])
    x = alt.X("epsilon:Q", title="epsilon of all answers together").axis(grid=False)
    y = alt.Y("delta:Q", title="delta (log scale)").scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    y = y.axis(values=ticks, labelExpr=theme.SMALL_NUMBERS)
    line = alt.Chart(theme.data(rows)).mark_line(color=theme.DARK, strokeWidth=2.5).encode(x=x, y=y)
    answers = sum(k for _, k in composition.terms)
    words = f"An upper bound of delta; {composition.note}."
    return theme.picture(theme.title(f"The guarantee of {answers:,} answers together", words), line)
