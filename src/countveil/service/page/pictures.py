"""Inline SVG, drawn here and coloured by the style sheet: light and dark, on paper, with a title for who cannot see it.

Every picture is a text; numbers in it are rounded for the eye. `standalone` adds the colours for a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import Any
from unicodedata import east_asian_width

from countveil.exact import decimal_text

Rows = Sequence[Mapping[str, Any]]
Scale = Callable[[float], float]
WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 20, 40
LABEL, JOINED = 190.0, " · "
"""The room for the names of a line, and what stands between them."""

STYLE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#333}.axis{stroke:#777}.grid{stroke:#e4e4e4}"
    ".bar{fill:#14508c}.tail{fill:#8fb4d8}.band{fill:#eaf1f8}.line{fill:none;stroke:#14508c;stroke-width:2.5}"
    ".second{stroke:#c2570c;stroke-dasharray:6 3}.rule{stroke:#c2570c;stroke-dasharray:3 3}.dot{fill:#c2570c}"
    ".cell{fill:#14508c}.exact{fill:none;stroke:#c2570c;stroke-width:1.6}.strong{fill:#111;font-weight:600}"
    ".small{fill:#111;font-size:10px}.on-dark{fill:#fff}.quiet{fill:#666}.error{stroke:#14508c;stroke-width:2}.weak{opacity:.45}"
)


def linear(low: float, high: float, start: float, end: float) -> Scale:
    span = (high - low) or 1.0
    return lambda x: start + (x - low) / span * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    inner = linear(math.log(low), math.log(high), start, end)
    return lambda x: inner(math.log(max(x, 1e-320)))


def standalone(picture: str) -> str:
    """A picture as a file of its own."""
    head, mark, rest = picture.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"{mark}<style>{STYLE}</style>{rest}'


def noise(rows: Rows, D: int, margin: int, eta: str) -> str:
    """P(Z = z) as bars: the 95 % band shaded, the hard bound ruled."""
    top = max(row["p"] for row in rows) * 1.12
    edge = D + max(0.6, 0.04 * D)
    x, y = linear(-edge, edge, LEFT, WIDTH - RIGHT), linear(0, top, HEIGHT - BOTTOM, TOP)
    step = rows[1]["z"] - rows[0]["z"] if len(rows) > 1 else 1
    wide = max(1.0, min(22.0, 0.8 * step * (x(1) - x(0))))
    bars = [
        _rect(x(r["z"]) - wide / 2, y(r["p"]), wide, y(0) - y(r["p"]), "bar" if r["within"] else "tail") for r in rows
    ]
    parts = [
        _rect(x(-margin - 0.5), TOP, x(margin + 0.5) - x(-margin - 0.5), HEIGHT - BOTTOM - TOP, "band"),
        *_axes(x, y, _nice(-D, D, whole=True), _nice(0, top), "noise: published − true count", _percent),
        *bars,
        _vertical(x(-D), "rule"),
        _vertical(x(D), "rule"),
        _text(x(-D) + 4, TOP + 10, f"−{D}"),
        _text(x(D) - 4, TOP + 10, f"{D}", "end"),
        _text(x(0), y(max(r["p"] for r in rows)) - 5, f"exact {eta} %", "middle", "strong"),
    ]
    return _svg(
        parts, f"The noise of a typical count: within ±{margin} in 95 % of its releases (shaded), never beyond ±{D}."
    )


def heat(rows: Rows) -> str:
    """From every true count (down), where the published count goes (across)."""
    counts, places = sorted({r["n"] for r in rows}), sorted({r["y"] for r in rows})
    across, down = (WIDTH - LEFT - RIGHT) / len(places), (HEIGHT + 60 - TOP - BOTTOM) / len(counts)
    largest = max(r["p"] for r in rows)
    parts = []
    for r in rows:
        x, y = LEFT + places.index(r["y"]) * across, TOP + counts.index(r["n"]) * down
        shade, dark = _shade(r["p"] / largest)
        if shade >= 0.02:
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{across:.2f}" height="{down:.2f}" class="cell" '
                f'fill-opacity="{shade:.3f}"><title>true {r["n"]} → published {_span(r)}: {100 * r["p"]:.2g} %</title>'
                "</rect>"
            )
        if r["exact"]:
            parts.append(_rect(x + 0.8, y + 0.8, across - 1.6, down - 1.6, "exact"))
        if across >= 15 and r["p"] >= 0.005:
            kind = "on-dark small" if dark else "small"
            parts.append(_text(x + across / 2, y + down / 2 + 4, f"{100 * r['p']:.0f}", "middle", kind))
    every = max(1, -(-len(places) // 14))
    group = rows[0]["last"] - rows[0]["y"] + 1
    bottom = HEIGHT + 60 - BOTTOM
    for i, place in enumerate(places):
        if i % every == 0:
            label = str(place) if group == 1 else f"{place}–"
            parts.append(_text(LEFT + (i + 0.5) * across, bottom + 14, label, "middle"))
    for i, n in enumerate(counts):
        parts.append(_text(LEFT - 8, TOP + (i + 0.5) * down + 4, str(n), "end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 32, "published count", "middle", "quiet"))
    parts.append(
        f'<text transform="translate(13 {(TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle" class="quiet">'
        "true count</text>"
    )
    return _svg(parts, "Where small true counts go: darker is more likely; outlined is the exact count.", HEIGHT + 60)


def useful(rows: Rows, found: int | None) -> str:
    """The error relative to the size of the cell; from where it is at most 10 %."""
    sizes = [r["n"] for r in rows]
    heights = [100 * r["relative"] for r in rows if r["relative"] > 0]
    low, high = max(0.01, min(heights) * 0.8), max(heights) * 1.2
    x = logarithmic(min(sizes), max(max(sizes), min(sizes) + 1), LEFT, WIDTH - RIGHT)
    y = logarithmic(low, high, HEIGHT - BOTTOM, TOP)
    parts = _axes(x, y, _decades(min(sizes), max(sizes)), _decades(low, high), "people in the cell", _short_percent)
    for name, kind in (("95 % margin / n", "line"), ("root mean squared error / n", "line second")):
        parts.append(_path([(x(r["n"]), y(100 * r["relative"])) for r in rows if r["series"] == name], kind))
    if low < 10 < high:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10):.1f}" y2="{y(10):.1f}" class="rule"/>')
    if found is not None:
        at = x(max(found, min(sizes)))
        left = at > (LEFT + WIDTH) * 0.6
        parts += [
            _vertical(at, "rule"),
            _text(at - 6 if left else at + 6, TOP + 10, f"useful from {found:,} people", "end" if left else "start"),
        ]
    words = "no cell is large enough" if found is None else f"from {found:,} people on the 95 % margin is at most 10 %"
    return _svg(parts, f"Error against the size of the cell: {words}.")


def curve(rows: Rows, certified: Mapping[str, float]) -> str:
    """delta at every epsilon, on a log scale; the certified pair is the dot at the knee."""
    if len(rows) < 2:
        return _svg([_text(WIDTH / 2, HEIGHT / 2, "delta is 0 at every epsilon", "middle")], "delta is 0 everywhere")
    low = max(1e-15, min(min(r["delta"] for r in rows), certified["delta"] or 1.0) / 3)
    x = linear(0, rows[-1]["epsilon"], LEFT, WIDTH - RIGHT)
    y = logarithmic(low, 1.0, HEIGHT - BOTTOM, TOP)
    parts = _axes(x, y, _nice(0, rows[-1]["epsilon"]), _powers(low), "epsilon", lambda v: f"1e{round(math.log10(v))}")
    parts.append(_path([(x(r["epsilon"]), y(max(r["delta"], low))) for r in rows], "line"))
    if certified["delta"] > 0:
        at, height = x(certified["epsilon"]), y(certified["delta"])
        left = at > (LEFT + WIDTH) * 0.6
        parts += [
            f'<circle cx="{at:.1f}" cy="{height:.1f}" r="5" class="dot"/>',
            _text(at - 9 if left else at + 9, height - 8, "certified", "end" if left else "start", "strong"),
        ]
    return _svg(parts, "delta at every epsilon (log scale); the dot is the certified pair.")


def suspicion(order: float | None, half: float) -> str:
    """Suspicion after the release against suspicion before."""
    x, y = linear(0, 100, LEFT, WIDTH - RIGHT), linear(0, 100, HEIGHT - BOTTOM, TOP)
    ticks = [0, 25, 50, 75, 100]
    parts = _axes(x, y, ticks, ticks, "suspicion before, %", lambda v: f"{v:.0f} %")
    parts.append(_path([(x(0), y(0)), (x(100), y(100))], "grid strong-grid"))
    most = decimal_text(100 * Fraction(half), 3, "up")
    priors = [math.sin(math.pi * i / 120) ** 2 for i in range(61)]
    after = [p * order / (p * order + 1 - p) if order is not None else float(p > 0) for p in priors]
    parts.append(_path([(x(100 * p), y(100 * q)) for p, q in zip(priors, after, strict=True)], "line"))
    parts += [
        f'<line x1="{x(50):.1f}" x2="{x(50):.1f}" y1="{y(50):.1f}" y2="{y(100 * half):.1f}" class="rule"/>',
        f'<circle cx="{x(50):.1f}" cy="{y(100 * half):.1f}" r="5" class="dot"/>',
        _text(x(50) + 9, y(100 * half) + 16, f"50 % can become {most} %", "start", "strong"),
        _text(x(50) + 9, y(100 * half) + 31, "at most, in 99 % of releases", "start", "strong"),
    ]
    return _svg(parts, f"An attacker's suspicion: 50 % can become {most} % at most, in 99 % of releases.")


def answers(labels: Sequence[Sequence[str]], rows: Sequence[tuple[int, int, int]], weak: Sequence[bool]) -> str:
    """Published counts with their 95 % intervals, one line a cell, named by its keys."""
    short = [_shortened(keys) for keys in labels]
    line, left = 22, 16 + max(44.0, *(_wide(words) for words in short))
    high = max(max(r[2] for r in rows), 1)
    low = min(0, min(r[1] for r in rows))
    height = TOP + line * len(rows) + BOTTOM
    x = linear(low, high, left, WIDTH - RIGHT)
    parts = []
    for tick in _nice(low, high, whole=True):
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{height - BOTTOM}" class="grid"/>')
        parts.append(_text(x(tick), height - BOTTOM + 16, f"{tick:,.0f}", "middle"))
    for i, (keys, (y, a, b)) in enumerate(zip(labels, rows, strict=True)):
        at = TOP + line * (i + 0.5)
        faint = " weak" if weak[i] else ""
        parts.append(_text(left - 8, at + 4, short[i], "end", whole=JOINED.join(keys)))
        parts.append(_rect(x(min(0, y)), at - 6, abs(x(y) - x(0)), 12, f"tail{faint}"))
        ends = "".join(f"M{x(end):.1f} {at - 4:.1f}v8" for end in (a, b))
        parts.append(f'<path d="M{x(a):.1f} {at:.1f}H{x(b):.1f}{ends}" class="error"/>')
    return _svg(parts, "Published counts with their 95 % intervals; cells too small to be useful are faint.", height)


def bars(rows: Sequence[tuple[str, float]], unit: str) -> str:
    """A few quantities side by side."""
    line, left = 34, 140
    height = TOP + line * len(rows) + 6
    high = max(value for _, value in rows) or 1.0
    parts = []
    for i, (name, value) in enumerate(rows):
        at = TOP + line * (i + 0.5)
        wide = max(1.0, (WIDTH - left - 90) * value / high)
        parts.append(_text(left - 8, at + 4, name, "end", "strong" if i == 0 else ""))
        parts.append(_rect(left, at - 9, wide, 18, "bar" if i == 0 else "tail"))
        parts.append(_text(left + wide + 6, at + 4, f"{value:.3g}"))
    return _svg(parts, f"{unit}: " + ", ".join(f"{name} {value:.3g}" for name, value in rows), height)


# -- pieces ------------------------------------------------------------------------------------------------------------


def _svg(parts: Iterable[str], title: str, height: float = HEIGHT) -> str:
    words = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{words}">'
        f"<title>{words}</title>{''.join(parts)}</svg>"
    )


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.2f}" height="{max(0.0, height):.2f}" class="{kind}"/>'
    )


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "", whole: str = "") -> str:
    """Words at a place; `whole` is what they are short for."""
    shown = f' class="{kind}"' if kind else ""
    title = f"<title>{escape(whole)}</title>" if whole not in ("", words) else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{shown}>{title}{escape(words)}</text>'


def _wide(words: str) -> float:
    """About how many pixels a text of 12 px takes, rather too many."""
    return sum(
        12.0 if c in "mwMW@%…" or east_asian_width(c) in "WF" else 9.3 if c.isupper() else 7.5 if c != " " else 4.0
        for c in words
    )


def _shortened(keys: Sequence[str]) -> str:
    """All keys of a cell in the room that there is; of a long one, its beginning and its end."""
    for longest in range(max((len(key) for key in keys), default=0), 2, -1):
        words = JOINED.join(_cut(key, longest) for key in keys)
        if _wide(words) <= LABEL:
            return words
    words = JOINED.join(_cut(key, 3) for key in keys)
    while _wide(words) > LABEL:
        words = words[: len(words) // 2 - 1] + "…" + words[len(words) // 2 + 1 :]
    return words


def _cut(key: str, longest: int) -> str:
    return key if len(key) <= longest else key[: longest // 2] + "…" + key[len(key) - (longest - 1) // 2 :]


def _shade(share: float) -> tuple[float, bool]:
    """How opaque a cell is, and whether it is dark; between the two neither dark nor white text could be read."""
    shade = math.sqrt(share)
    return (0.77 + 0.92 * (shade - 0.75), True) if shade >= 0.75 else (0.84 * shade, False)


def _path(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" class="{kind}"/>' if points else ""


def _vertical(x: float, kind: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="{kind}"/>'


def _axes(
    x: Scale, y: Scale, across: Sequence[float], up: Sequence[float], label: str, written: Callable[[float], str]
) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in up:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>')
        parts.append(_text(LEFT - 6, y(tick) + 4, written(tick), "end"))
    parts += [_text(x(tick), bottom + 16, f"{tick:,.10g}", "middle") for tick in across]
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" class="axis"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 33, label, "middle", "quiet"))
    return parts


def _nice(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers between two, about five of them."""
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step = next(step * k for k in (1, 2, 5, 10, 20) if span / (step * k) <= 5)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    found = [10.0**k for k in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]
    return found if len(found) > 1 else sorted({*found, low, high})


def _powers(low: float) -> list[float]:
    every = max(1, -(-int(-math.log10(low)) // 6))
    return [10.0**-k for k in range(0, int(-math.log10(low)) + 1, every)]


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _short_percent(value: float) -> str:
    return f"{value:,.0f} %" if value >= 1 else f"{value:.3g} %"


def _span(row: Mapping[str, Any]) -> str:
    return str(row["y"]) if row["last"] == row["y"] else f"{row['y']}–{row['last']}"
