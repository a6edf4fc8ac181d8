"""How every picture looks: fonts, colours, sizes, numbers and titles, in one place.

Colours are told apart by people who see no red or green, and by a printer without ink of colour: the three inks have
clearly different lightness, and lines that share a picture also differ in dashes, points in shape.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from countveil.exact import decimal_text

if TYPE_CHECKING:
    import altair as alt

Rows = list[dict[str, Any]]

FONT = "Helvetica Neue, Arial, Liberation Sans, DejaVu Sans, sans-serif"
WIDTH, HEIGHT = 440, 250
WORDS_WIDE = 88
"""Characters of a subtitle's line above a picture of WIDTH."""
SUBTITLE_LINES = 2
"""Titles of one row of pictures begin at the same height."""

INK = "#1a1a1a"
QUIET = "#6b6b6b"
DARK = "#0b3c6f"
MIDDLE = "#d4600a"
LIGHT = "#7fb2d9"
BAND = "#e9eef3"
SHADES = ["#ffffff", "#d3e3f1", "#8fbbdc", "#3f83b9", "#0b3c6f", "#04172e"]
SOLID, DASHED, DOTTED = [1, 0], [7, 3], [2, 3]
FONT_SIZE = 11

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
"""Labels of an axis for delta: 1, 0.1, 0.01, 0.001, 1e-4."""


def title(text: str, *sentences: str) -> alt.TitleParams:
    """A title and what the picture says in words, wrapped to its width."""
    import altair as alt

    lines = textwrap.wrap(" ".join(sentences), WORDS_WIDE)
    return alt.TitleParams(text, subtitle=lines + [" "] * (SUBTITLE_LINES - len(lines)))


def picture(heading: alt.TitleParams, *layers: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Layers as one picture of the common size."""
    import altair as alt

    return alt.LayerChart(layer=list(layers), title=heading, width=WIDTH, height=HEIGHT)


def data(rows: Rows) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=rows)


def rule(axis: str, value: float, dash: Sequence[int] = DASHED) -> alt.Chart:
    """A line across the picture at a value of one axis."""
    import altair as alt

    base = alt.Chart(data([{"at": value}])).mark_rule(color=INK, strokeDash=list(dash), strokeWidth=1.2)
    chart: alt.Chart = base.encode(x=alt.X("at:Q")) if axis == "x" else base.encode(y=alt.Y("at:Q"))
    return chart


def label(x: float, y: float, text: str, **mark: Any) -> alt.LayerChart:
    """Words at a point of the picture, with a white edge so that lines behind them do not hurt."""
    import altair as alt

    base = alt.Chart(data([{"x": x, "y": y, "text": text}]))
    base = base.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
    mark = {"align": "left", "baseline": "middle", **mark}
    edge = base.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **mark)
    return alt.LayerChart(layer=[edge, base.mark_text(**mark)])


def dot(x: float, y: float, shape: str = "circle") -> alt.Chart:
    """A point that stands out."""
    import altair as alt

    base = alt.Chart(data([{"x": x, "y": y}]))
    point = base.mark_point(shape=shape, size=90, filled=True, fill=MIDDLE, stroke="white", opacity=1)
    chart: alt.Chart = point.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    return chart


def decades(values: Iterable[float], most: int = 8) -> list[float]:
    """Powers of ten for the ticks of a log axis: from below the least value to above the largest, no more than `most`.

    >>> decades([0.002, 0.4])
    [0.001, 0.01, 0.1, 1.0]
    """
    found = [value for value in values if value > 0]
    low, high = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
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
    """A probability for reading.

    >>> percent(Fraction(46212, 100000)), percent(0.5), percent(Fraction(1, 10**6))
    ('46.2 %', '50 %', '0.0001 %')
    """
    return f"{decimal_text(Fraction(x) * 100, digits, rounding)} %"
