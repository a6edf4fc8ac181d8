"""A released table: the counts as bars, each with its 95 % interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from countveil.plots import altair as alt, theme

MOST_LETTERS = 60


def released_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> theme.Rows:
    """Rows {place, cell, count, low, high}.

    `place` is the number of the row. It keeps cells apart that have the same name after shortening.
    """
    return [
        {
            "place": f"{i:04}",
            "cell": " · ".join(map(str, row[:-3]))[:MOST_LETTERS] or columns[-3],
            **dict(zip(("count", "low", "high"), row[-3:], strict=True)),
        }
        for i, row in enumerate(rows)
    ]


def released_chart(columns: Sequence[str], rows: Iterable[Sequence[Any]], margin: int) -> alt.LayerChart:
    """A bar for each cell, and its interval as a line with ends."""
    data = released_rows(columns, rows)
    names = "{" + ", ".join(f"{row['place']!r}: {row['cell']!r}" for row in data) + "}[datum.value]"
    base = alt.Chart(theme.data(data))
    y = alt.Y("place:N", title=None, sort=None).axis(labelExpr=names, labelLimit=260, grid=False)
    bars = base.mark_bar(color=theme.LIGHT).encode(x=alt.X("count:Q", title=columns[-3]), y=y)
    lines = base.mark_rule(color=theme.INK, strokeWidth=1.4).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y)
    ticks = [
        base.mark_tick(color=theme.INK, size=7, thickness=1.4).encode(x=alt.X(f"{end}:Q"), y=y)
        for end in ("low", "high")
    ]
    groups = " and ".join(columns[:-3])
    heading = theme.title(
        f"Released counts by {groups}" if groups else "A released count",
        f"At most ±{margin:,} for any count in 95 % of releases; lines are 95 % intervals of the single counts.",
    )
    chart = alt.LayerChart(layer=[bars, lines, *ticks], title=heading, width=theme.WIDTH)
    return chart.properties(height={"step": 18})
