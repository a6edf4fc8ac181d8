"""One line and an HTML card for every object that users receive.

A class that inherits from `Shown` says what it shows: `_line` for `repr`, `_card` for notebooks. Cards inherit fonts
and colours from the page, so they are readable in light and dark. **Guarantee.** All texts are escaped here; only
`picture` and values of type `Markup` are HTML already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from countveil.display import svg

MOST_ROWS = 25
MOST_LETTERS = 200
"""The most characters of a text that is shown in a line or in a cell."""
LINE = "border-bottom:1px solid currentColor"
CELL = "padding:2px 10px;background:none"


class Markup(str):
    """Text that is HTML already."""


@dataclass(frozen=True)
class Card:
    """What a notebook shows of an object."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    picture: str = ""
    head: Sequence[str] = ()
    rows: Iterable[Sequence[object]] = ()
    size: int = 0
    """The number of rows."""
    notes: Sequence[str] = ()


_painters: list[Callable[[Any, str | Path | None], Any]] = []


def set_painter(painter: Callable[[Any, str | Path | None], Any]) -> None:
    """Set the function that draws objects. The packages of pictures are above this one, so the top package sets it."""
    _painters.append(painter)


class Shown:
    """An object with one line in a prompt and a card in a notebook."""

    __slots__ = ()

    def _line(self) -> str:
        """The facts that the one line shows."""
        raise NotImplementedError

    def _card(self) -> Card:
        return Card(type(self).__name__, {"": self._line()})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_cut(self._line())}>"

    def _repr_html_(self) -> str:
        return render(self._card())


class Drawable(Shown):
    """An object that has a picture."""

    __slots__ = ()

    def plot(self, path: str | Path | None = None) -> Any:
        """A picture of this object, which a notebook shows inline.

        Args:
            path: A file that ends in .svg, .png or .html, to save the picture too.

        Returns:
            The chart: `chart.save(path)` saves it, `chart.altair` is the altair chart.

        Raises:
            ParameterError: The file has another ending or cannot be written.
            MissingExtraError: The extra `plots` is not installed.

        >>> import countveil as cv
        >>> cv.design(epsilon="1", eta="0.5", D=3, policy="signed").plot()
        <Chart ConcatChart>
        """
        return _painters[-1](self, path)


def render(card: Card) -> str:
    """The card as HTML.

    >>> "&lt;b&gt;" in render(Card("<b>", {"a": "<b>"})), "<b>" in render(Card("<b>", {"a": "<b>"}))
    (True, False)
    """
    facts = "".join(
        f'<tr><td style="{CELL};text-align:left;opacity:.7">{_text(name)}</td>'
        f'<td style="{CELL};text-align:left">{_text(value)}</td></tr>'
        for name, value in card.facts.items()
        if value is not None
    )
    parts = [f"<div><strong>{_text(card.title)}</strong></div>"]
    if facts or card.picture:
        table = f'<table style="border-collapse:collapse;margin:0"><tbody>{facts}</tbody></table>' if facts else ""
        parts.append(
            f'<div style="display:flex;flex-wrap:wrap;gap:8px 24px;align-items:center">{table}{card.picture}</div>'
        )
    if card.head:
        parts.append(_grid(card))
    parts += [f'<div style="opacity:.7">{_text(note)}</div>' for note in card.notes]
    return f'<div class="countveil" style="font-size:.95em;line-height:1.4">{"".join(parts)}</div>'


def _grid(card: Card) -> str:
    """The rows under their head: numbers to the right, texts to the left."""
    shown = [list(row) for row in islice(iter(card.rows), MOST_ROWS)]
    sides = ["right" if _is_number(cell) else "left" for cell in (shown[0] if shown else card.head)]

    def line(cells: Sequence[object], tag: str, style: str = "") -> str:
        inner = "".join(
            f'<{tag} style="{CELL};text-align:{side}{style}">{_text(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in shown)
    left_out = card.size - len(shown)
    more = f'<div style="opacity:.7">… {left_out:,} more rows</div>' if left_out > 0 else ""
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:4px 0;'
        f'font-variant-numeric:tabular-nums"><thead>{line(card.head, "th", ";" + LINE)}</thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def draw_bars(
    heights: Sequence[float], title: str, within: Sequence[bool] = (), labels: tuple[str, str] = ("", "")
) -> str:
    """Bars in the colour of the text, with a label below either end; a bar that is not `within` the margin is paler."""
    width, height, base = 280.0, 96.0, 78.0
    across, top = svg.linear(0, len(heights), 0, width), max(heights, default=1.0) or 1.0
    bars = [
        svg.rect(across(i) + 0.5, base - 72 * h / top, width / len(heights) - 1, 72 * h / top, "", fill_opacity=o)
        for i, h in enumerate(heights)
        for o in (0.85 if not within or within[i] else 0.35,)
    ]
    ends = [svg.text(0, height - 4, labels[0]), svg.text(width, height - 4, labels[1], "end")]
    axis = svg.rect(0, base, width, 0.8, "", fill_opacity=0.5)
    return _inline(svg.draw([*bars, axis, *ends], title, height, width), width)


def draw_interval(low: float, value: float, high: float, end: float) -> Markup:
    """A bar from 0 up to the value, with its interval as a line, on an axis from 0 to `end`."""
    width = 160.0
    scale = svg.linear(0, max(end, 1), 1, width - 1)

    def x(at: float) -> float:
        return scale(max(at, 0))

    parts = [
        svg.rect(1, 4, x(value) - 1, 8, "", fill_opacity=0.3),
        svg.rect(x(low), 7.4, max(1.0, x(high) - x(low)), 1.2, ""),
        svg.rect(x(low), 4, 1, 8, ""),
        svg.rect(x(high) - 1, 4, 1, 8, ""),
    ]
    return Markup(_inline(svg.draw(parts, f"{low:,.0f} to {high:,.0f}", 16, width), width))


def _inline(picture: str, width: float) -> str:
    style = f'fill="currentColor" font-size="11" style="width:{width:.0f}px;max-width:100%;vertical-align:middle" '
    return picture.replace("<svg ", "<svg " + style, 1)


def _text(value: object) -> str:
    if isinstance(value, Markup):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(_cut(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def describe_facts(facts: Mapping[str, Any]) -> str:
    """Facts as one line: name=value, without those that are None.

    >>> describe_facts({"D": 3, "eta": None})
    'D=3'
    """
    return " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
