"""What the panels of figures share: how a series looks, lines with marks, log axes, titles."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from countveil.plots import theme

if TYPE_CHECKING:
    import altair as alt

WORDS_WIDE = 128
GREY = "#dcdcdc"
POWERS_FONT = "DejaVu Sans, Verdana, sans-serif"
"""A font that has a raised minus sign."""


@dataclass(frozen=True)
class Style:
    """How one series looks, and its words in the legend."""

    label: str
    colour: str
    dash: list[int]
    shape: str
    width: float = 2.2


def curves(
    rows: theme.Rows, styles: list[Style], x: alt.X, y: alt.Y, *, columns: int, size: int = 42
) -> list[alt.Chart]:
    """A line for each series, the widest first, and the marks."""
    import altair as alt

    colour, shape = encodings(styles, columns=columns)
    layers = []
    for style in sorted(styles, key=lambda style: -style.width):
        mine = [row for row in rows if row["series"] == style.label]
        line = alt.Chart(theme.data(mine)).mark_line(strokeWidth=style.width, strokeDash=style.dash, clip=True)
        layers.append(line.encode(x=x, y=y, color=colour))
    marks = alt.Chart(theme.data([row for row in rows if row["mark"]])).mark_point(size=size, filled=True, opacity=1)
    layers.append(marks.encode(x=x, y=y, color=colour, shape=shape))
    return layers


def encodings(styles: list[Style], *, columns: int) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of the series, with one legend for both."""
    import altair as alt

    names = [style.label for style in styles]
    legend = alt.Legend(title=None, columns=columns, rowPadding=4, symbolSize=110)
    colour = alt.Color("series:N", sort=names).scale(domain=names, range=[style.colour for style in styles])
    shape = alt.Shape("series:N", sort=names).scale(domain=names, range=[style.shape for style in styles])
    return colour.legend(legend), shape.legend(legend)


def ground(rows: theme.Rows, start: str, end: str) -> alt.Chart:
    """A grey ground from one value of the x axis to another."""
    import altair as alt

    base = alt.Chart(theme.data(rows)).mark_rect(color=GREY)
    chart: alt.Chart = base.encode(x=alt.X(f"{start}:Q"), x2=alt.X2(f"{end}:Q"))
    return chart


def log_y(name: str, title: str | None, low: float, high: float = 2) -> alt.Y:
    """A log axis labelled 10^k; for probabilities a little more than 1, so that marks at 1 are whole."""
    import altair as alt

    ticks = [tick for tick in theme.decades([low, high], most=14) if low <= tick <= high]
    y = alt.Y(f"{name}:Q", title=title).scale(type="log", domain=[low, high], nice=False)
    return y.axis(values=ticks, labelExpr=_powers(ticks), labelFont=POWERS_FONT)


def _powers(ticks: list[float]) -> str:
    """Labels of powers of ten, as an expression of Vega."""
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    cases = []
    for tick in ticks:
        exponent = round(float(f"{tick:e}".split("e")[1]))
        words = {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(digits))
        cases.append(f"abs(log(datum.value / {tick!r})) < 0.1 ? '{words}' : ")
    return "".join(cases) + "datum.value"


def headline(text: str, words: str, *, width: int = WORDS_WIDE) -> alt.TitleParams:
    """A title and what the figure says in words."""
    import altair as alt

    return alt.TitleParams(text, subtitle=textwrap.wrap(words, width), offset=14)
