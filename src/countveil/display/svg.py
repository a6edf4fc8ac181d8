"""SVG as text: shapes, scales and axes. Colours come from a style sheet, by class; coordinates are rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

Scale = Callable[[float], float]
WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 20, 40
"""The margins around the area between the axes."""


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """A function that maps values from low..high linearly to positions from start..end."""
    span = (high - low) or 1.0
    return lambda x: start + (x - low) / span * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    inner = linear(math.log(low), math.log(high), start, end)
    return lambda x: inner(math.log(max(x, 1e-320)))


def draw(parts: Iterable[str], title: str, height: float = HEIGHT, width: float = WIDTH) -> str:
    """A whole SVG picture made of its parts, with a title for screen readers."""
    words = escape(title)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{words}">'
        f"<title>{words}</title>{''.join(parts)}</svg>"
    )


def shape(tag: str, kind: str, title: str = "", inside: str = "", **attributes: Any) -> str:
    """An SVG element with a class. The title is shown on hover; `inside` must already be escaped.

    >>> shape("circle", "dot", "1 < 2", cx=1 / 3, cy=2, r=5)
    '<circle cx="0.33" cy="2" r="5" class="dot"><title>1 &lt; 2</title></circle>'
    """
    given = {**attributes, **({"class": kind} if kind else {})}
    texts = {name: str(round(value, 2) if isinstance(value, float) else value) for name, value in given.items()}
    head = tag + "".join(f' {name.replace("_", "-")}="{text}"' for name, text in texts.items())
    inside = (f"<title>{escape(title)}</title>" if title else "") + inside
    return f"<{head}>{inside}</{tag}>" if inside else f"<{head}/>"


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "", **more: Any) -> str:
    return shape("rect", kind, title, x=x, y=y, width=max(0.0, width), height=max(0.0, height), **more)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return shape("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)


def circle(x: float, y: float, r: float, kind: str) -> str:
    return shape("circle", kind, cx=x, cy=y, r=r)


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through points, as an SVG path; an empty text if there are no points."""
    return shape("path", kind, d="M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)) if points else ""


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "", whole: str = "") -> str:
    """Text at a position; `whole` is the unabbreviated text, shown on hover."""
    return shape("text", kind, "" if whole == words else whole, escape(words), x=x, y=y, text_anchor=anchor)


def axes(
    x: Scale, y: Scale, across: Sequence[float], up: Sequence[float], label: str, written: Callable[[float], str]
) -> list[str]:
    """The ticks, grid lines and label of both axes.

    `across` are the ticks of the x axis, which has the label; `up` are those of the y axis, whose texts `written`
    makes.
    """
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [line(LEFT, y(tick), right, y(tick), "grid") for tick in up]
    parts += [text(LEFT - 6, y(tick) + 4, written(tick), "end") for tick in up]
    parts += [text(x(tick), bottom + 16, f"{tick:,.10g}", "middle") for tick in across]
    return [
        *parts,
        line(LEFT, bottom, right, bottom, "axis"),
        text((LEFT + right) / 2, bottom + 33, label, "middle", "quiet"),
    ]


def round_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About five round numbers between two values, for the ticks of an axis.

    >>> round_ticks(0, 1), round_ticks(-7, 7, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-5, 0, 5])
    """
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step = next(step * k for k in (1, 2, 5, 10, 20) if span / (step * k) <= 5)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]
