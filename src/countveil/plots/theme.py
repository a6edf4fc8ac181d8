"""How every picture looks: fonts, colours, sizes, numbers, titles, lines with marks and log axes, in one place.

People with red-green blindness and readers of a grey print can distinguish the colours: the three inks clearly differ
in lightness, and lines that share a picture also differ in dashes, points in shape.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from countveil.numeric.exact_numbers import decimal_text
from countveil.plots import altair as alt

Rows = list[dict[str, Any]]

FONT = "Helvetica Neue, Arial, Liberation Sans, DejaVu Sans, sans-serif"
WIDTH, HEIGHT = 440, 250
WORDS_WIDE = 88
"""Characters in a line of the subtitle of one picture."""
WIDE_WORDS = 128
"""Characters in a line of the subtitle above several panels side by side."""
SUBTITLE_LINES = 2
"""Subtitles are padded to this many lines, so that the titles of a row of pictures begin at the same height."""

INK = "#1a1a1a"
QUIET = "#6b6b6b"
DARK = "#0b3c6f"
MIDDLE = "#d4600a"
LIGHT = "#7fb2d9"
BAND = "#e9eef3"
SHADES = ["#ffffff", "#d3e3f1", "#8fbbdc", "#3f83b9", "#0b3c6f", "#04172e"]
GROUND = "#dcdcdc"
SOLID, DASHED, DOTTED, DASH_DOT = [1, 0], [7, 3], [2, 3], [9, 3, 2, 3]
FONT_SIZE = 11
POWERS_FONT = "DejaVu Sans, Verdana, sans-serif"
"""A font that has a raised minus sign."""

_AXIS = {
    "domainColor": QUIET,
    "tickColor": QUIET,
    "gridColor": "#e3e3e3",
    "labelColor": INK,
    "titleColor": INK,
    "titleFontWeight": "normal",
    "labelFontSize": FONT_SIZE,
    "titleFontSize": FONT_SIZE,
    "titlePadding": 8,
    "labelPadding": 4,
    "labelOverlap": True,
    "labelSeparation": 5,
}
CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    "padding": 16,
    "view": {"stroke": None},
    "axis": _AXIS,
    "text": {"font": FONT, "fontSize": FONT_SIZE, "fill": INK},
    "title": {
        "anchor": "start",
        "frame": "group",
        "color": INK,
        "fontSize": 14,
        "fontWeight": "bold",
        "subtitleColor": QUIET,
        "subtitleFontSize": FONT_SIZE,
        "subtitleLineHeight": 15,
        "subtitlePadding": 5,
        "offset": 10,
    },
    "legend": {
        "orient": "bottom",
        "direction": "horizontal",
        "labelFontSize": FONT_SIZE,
        "titleFontSize": FONT_SIZE,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "labelLimit": 420,
        "symbolStrokeWidth": 2.5,
        "symbolSize": 260,
        "columnPadding": 18,
    },
}


SMALL_NUMBERS = (
    "datum.value == 0 ? '0' : datum.value < 0.00099 || datum.value >= 1e6 ? format(datum.value, '~e') : "
    "format(datum.value, '~r')"
)
"""A Vega expression that labels an axis for delta: 1, 0.1, 0.01, 0.001, 1e-4."""


def title(text: str, *sentences: str) -> alt.TitleParams:
    """A title with sentences below it that say what the picture shows, wrapped to the width of the picture."""
    lines = textwrap.wrap(" ".join(sentences), WORDS_WIDE)
    return alt.TitleParams(text, subtitle=lines + [" "] * (SUBTITLE_LINES - len(lines)))


def picture(heading: alt.TitleParams, *layers: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Layers put together to one picture of the common size."""
    return alt.LayerChart(layer=list(layers), title=heading, width=WIDTH, height=HEIGHT)


def data(rows: Rows) -> alt.InlineData:
    return alt.InlineData(values=rows)


def rule(axis: str, value: float, dash: Sequence[int] = DASHED) -> alt.Chart:
    """A line across the picture at a value of the x axis or the y axis."""
    base = alt.Chart(data([{"at": value}])).mark_rule(color=INK, strokeDash=list(dash), strokeWidth=1.2)
    chart: alt.Chart = base.encode(x=alt.X("at:Q")) if axis == "x" else base.encode(y=alt.Y("at:Q"))
    return chart


def label(x: float, y: float, text: str, **mark: Any) -> alt.LayerChart:
    """Text at a point of the picture, with a white outline so that it stays readable over lines."""
    base = alt.Chart(data([{"x": x, "y": y, "text": text}]))
    base = base.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
    mark = {"align": "left", "baseline": "middle", **mark}
    edge = base.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **mark)
    return alt.LayerChart(layer=[edge, base.mark_text(**mark)])


def side(value: float, low: float, high: float) -> dict[str, Any]:
    """Arguments for `label` that put the text on that side of a value on a log axis where there is room."""
    late = math.log(value / low) > 0.6 * math.log(high / low)
    return {"dx": -5, "align": "right"} if late else {"dx": 5}


def dot(x: float, y: float, shape: str = "circle") -> alt.Chart:
    """A point of the picture that stands out."""
    base = alt.Chart(data([{"x": x, "y": y}]))
    point = base.mark_point(shape=shape, size=90, filled=True, fill=MIDDLE, stroke="white", opacity=1)
    chart: alt.Chart = point.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    return chart


def decades(values: Iterable[float], most: int = 8) -> list[float]:
    """Powers of ten as ticks of a log axis, at most `most` of them, from below the least value to above the largest.

    >>> decades([0.002, 0.4])
    [0.001, 0.01, 0.1, 1.0]
    """
    positive = [value for value in values if value > 0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    if low == high:
        low -= 1
    step = -(-(high - low) // (most - 1))
    low = high - step * -(-(high - low) // step)
    return [float(f"1e{exponent}") for exponent in range(low, high + 1, step)]


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a log axis from low to high: powers of ten, with others between them where there is room.

    >>> log_ticks(1, 3), log_ticks(1, 30), log_ticks(3, 2000)
    ([1.0, 2.0, 3.0], [1.0, 2.0, 5.0, 10.0, 20.0], [10.0, 100.0, 1000.0])
    """
    steps = tuple(range(1, 10)) if high / low < 10 else (1, 2, 5) if high / low < 100 else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for e in exponents for step in steps if low <= (tick := float(f"{step}e{e}")) <= high]


def percent(x: Fraction | float, digits: int = 3, rounding: str = "nearest") -> str:
    """A probability as percent, for display.

    >>> percent(Fraction(46212, 100000)), percent(0.5), percent(Fraction(1, 10**6))
    ('46.2 %', '50 %', '0.0001 %')
    """
    return f"{decimal_text(Fraction(x) * 100, digits, rounding)} %"


# Panels of figures


@dataclass(frozen=True)
class Style:
    """How one series looks, and its label in the legend."""

    label: str
    colour: str
    dash: list[int]
    shape: str
    width: float = 2.2


def curves(rows: Rows, styles: list[Style], x: alt.X, y: alt.Y, *, columns: int, size: int = 42) -> list[alt.Chart]:
    """The lines of several series, thinner ones on top of wider ones, and their marks."""
    colour, shape = encodings(styles, columns=columns)
    layers = []
    for style in sorted(styles, key=lambda style: -style.width):
        mine = [row for row in rows if row["series"] == style.label]
        line = alt.Chart(data(mine)).mark_line(strokeWidth=style.width, strokeDash=style.dash, clip=True)
        layers.append(line.encode(x=x, y=y, color=colour))
    marks = alt.Chart(data([row for row in rows if row["mark"]])).mark_point(size=size, filled=True, opacity=1)
    layers.append(marks.encode(x=x, y=y, color=colour, shape=shape))
    return layers


def encodings(styles: list[Style], *, columns: int) -> tuple[alt.Color, alt.Shape]:
    """The colours and the shapes of several series, with one legend for both."""
    names = [style.label for style in styles]
    legend = alt.Legend(title=None, columns=columns, rowPadding=4, symbolSize=110)
    colour = alt.Color("series:N", sort=names).scale(domain=names, range=[style.colour for style in styles])
    shape = alt.Shape("series:N", sort=names).scale(domain=names, range=[style.shape for style in styles])
    return colour.legend(legend), shape.legend(legend)


def ground(rows: Rows, start: str, end: str) -> alt.Chart:
    """A grey background from one value of the x axis to another."""
    base = alt.Chart(data(rows)).mark_rect(color=GROUND)
    chart: alt.Chart = base.encode(x=alt.X(f"{start}:Q"), x2=alt.X2(f"{end}:Q"))
    return chart


def log_y(name: str, title: str | None, low: float, high: float = 2) -> alt.Y:
    """A log axis with the labels 10^k; by default it ends above 1, so that marks at 1 are not cut off."""
    ticks = [tick for tick in decades([low, high], most=14) if low <= tick <= high]
    y = alt.Y(f"{name}:Q", title=title).scale(type="log", domain=[low, high], nice=False)
    return y.axis(values=ticks, labelExpr=_powers(ticks), labelFont=POWERS_FONT)


def _powers(ticks: list[float]) -> str:
    """A Vega expression that labels ticks as powers of ten."""
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    cases = []
    for tick in ticks:
        exponent = round(float(f"{tick:e}".split("e")[1]))
        words = {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(digits))
        cases.append(f"abs(log(datum.value / {tick!r})) < 0.1 ? '{words}' : ")
    return "".join(cases) + "datum.value"


def headline(text: str, words: str, *, width: int = WIDE_WORDS) -> alt.TitleParams:
    """A title with a text below it that says what the figure shows."""
    return alt.TitleParams(text, subtitle=textwrap.wrap(words, width), offset=14)
