"""A p-table in two pictures: what it protects at every epsilon, in four readings, and what it does to each count."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from countveil.numeric.exact_numbers import decimal_text
from countveil.plots import altair as alt, theme
from countveil.plots.theme import Style, curves
from countveil.ptables.audit import Audit
from countveil.ptables.readings import READINGS

if TYPE_CHECKING:
    from countveil.ptables.table import PTable

STYLES = {
    "designed": Style("all rows, as designed", theme.DARK, theme.SOLID, "circle", 4.2),
    "zero_frozen": Style("zero frozen, as applied", theme.MIDDLE, theme.DASHED, "square"),
    "from_n0": Style("counts from n0 on", theme.LIGHT, theme.SOLID, "triangle-up", 3.0),
    "last_row": Style("last row", theme.INK, theme.DOTTED, "diamond"),
}
MOST_ROWS = 40
SMALLEST = Fraction(1, 10**12)


def curve_rows(audit: Audit) -> theme.Rows:
    """Rows {series, epsilon, delta, mark}: the delta of each reading along the curve; marks at whole epsilons."""
    rows = []
    for name in READINGS:
        for epsilon, deltas in audit.curve.items():
            if deltas[name] > SMALLEST:
                values = {"epsilon": float(epsilon), "delta": float(deltas[name])}
                rows.append({"series": STYLES[name].label, "mark": epsilon.denominator == 1, **values})
    return rows


def cell_rows(table: PTable) -> theme.Rows:
    """Rows {i, j, p}: the probability p that the true count i is published as j, for the first rows, without zeros."""
    shown = range(min(table.last + 1, MOST_ROWS))
    return [{"i": i, "j": i + v, "p": w / table.total} for i in shown for v, w in table.rows[i].items()]


def ptable_chart(audit: Audit, name: str) -> alt.HConcatChart:
    """The guarantee of an audited p-table on the left, its probabilities on the right."""
    heading = alt.TitleParams(
        f"p-table {name}: D = {audit.table.D}, variance of the last row "
        f"{decimal_text(audit.table.rows[-1].variance, 4)}",
        fontSize=18,
        offset=22,
    )
    page = alt.hconcat(_guarantee(audit), _table(audit.table), spacing=48).properties(title=heading)
    chart: alt.HConcatChart = page.resolve_scale(color="independent", shape="independent")
    return chart


def _guarantee(audit: Audit) -> alt.LayerChart:
    rows = curve_rows(audit)
    ticks = theme.decades([row["delta"] for row in rows] + [1.0])
    x = alt.X("epsilon:Q", title="privacy loss epsilon").scale(nice=False).axis(grid=False)
    y = alt.Y("delta:Q", title="delta (log scale)").scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    y = y.axis(values=ticks, labelExpr=theme.SMALL_NUMBERS)
    layers = curves(rows, [STYLES[name] for name in READINGS], x, y, columns=2)
    heading = theme.title(
        "What one published cell protects",
        "The least delta at each epsilon, for one person more or less; smaller is better.",
        f"n0 = {audit.n0}. As applied is what the tools do: zero stays zero.",
    )
    return theme.picture(heading, *layers)


def _table(table: PTable) -> alt.LayerChart:
    rows = cell_rows(table)
    last = max(row["i"] for row in rows)
    x = alt.X("j:O", title="published count j").axis(labelAngle=0, grid=False)
    y = alt.Y("i:O", title="true count i", sort="ascending").axis(grid=False)
    colour = alt.Color("p:Q").scale(range=theme.SHADES[1:], domain=[0, max(row["p"] for row in rows)])
    legend = alt.Legend(title="probability", format="~%", gradientLength=200)
    cells = alt.Chart(theme.data(rows)).mark_rect().encode(x=x, y=y, color=colour.legend(legend))
    stay = alt.Chart(theme.data([row for row in rows if row["i"] == row["j"]])).mark_point(
        shape="circle", size=9, filled=True, color=theme.MIDDLE, opacity=1
    )
    more = f"Rows 0..{last} of {table.last + 1}." if last < table.last else f"Larger counts use row {table.last}."
    heading = theme.title(
        "What happens to each count",
        "How likely each published count is, for every true count; the darker, the likelier.",
        f"Dots: the true count itself; white: never published. {more}",
    )
    return theme.picture(heading, cells, stay.encode(x=x, y=y))
