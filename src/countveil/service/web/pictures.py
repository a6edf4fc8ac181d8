"""Pictures as inline SVG, coloured by the style sheet for light, dark and print, each with a title for screen readers.

`standalone` adds the colours, for a picture in a separate file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any
from unicodedata import east_asian_width

from countveil.display import svg
from countveil.display.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, line, rect, text
from countveil.numeric.exact_numbers import decimal_text
from countveil.plots.suspicion import posterior
from countveil.plots.theme import decades, log_ticks, percent
from countveil.plots.usefulness import ERROR, MARGIN

Rows = Sequence[Mapping[str, Any]]
LABEL, JOINED = 190.0, " · "
"""The width in pixels for the labels of a cell in the picture of answers, and the separator between the labels."""

STYLE = (
    "svg{font:12px system-ui,sans-serif;background:#fff}text{fill:#333}.axis{stroke:#777}.grid{stroke:#e4e4e4}"
    ".bar{fill:#14508c}.tail{fill:#8fb4d8}.band{fill:#eaf1f8}.rule{stroke:#c2570c;stroke-dasharray:3 3}"
    ".cell{fill:#14508c}.exact{fill:none;stroke:#c2570c;stroke-width:1.6}.strong{fill:#111;font-weight:600}"
    ".small{fill:#111;font-size:10px}.on-dark{fill:#fff}.quiet{fill:#666}"
)
"""The colours of pictures that can be downloaded as separate files, which have no style sheet."""


def standalone(picture: str) -> str:
    """A picture with its colours, to be saved as a separate file."""
    head, mark, rest = picture.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"{mark}<style>{STYLE}</style>{rest}'


def noise(rows: Rows, D: int, margin: int, eta: str) -> str:
    """The probability of each noise z as a bar. The 95 % margin is shaded; lines mark the largest possible noise D."""
    most = max(row["p"] for row in rows)
    edge = D + max(0.6, 0.04 * D)
    x, y = svg.linear(-edge, edge, LEFT, WIDTH - RIGHT), svg.linear(0, 1.12 * most, HEIGHT - BOTTOM, TOP)
    step = rows[1]["z"] - rows[0]["z"] if len(rows) > 1 else 1
    wide = max(1.0, min(22.0, 0.8 * step * (x(1) - x(0))))
    ticks = svg.round_ticks(-D, D, whole=True), svg.round_ticks(0, 1.12 * most)
    parts = [
        rect(x(-margin - 0.5), TOP, x(margin + 0.5) - x(-margin - 0.5), HEIGHT - BOTTOM - TOP, "band"),
        *svg.axes(x, y, *ticks, "noise: published − true count", percent),
    ]
    for row in rows:
        height, kind = y(row["p"]), "bar" if row["within"] else "tail"
        parts.append(rect(x(row["z"]) - wide / 2, height, wide, y(0) - height, kind))
    parts += [
        *(line(x(end), TOP, x(end), HEIGHT - BOTTOM, "rule") for end in (-D, D)),
        text(x(-D) + 4, TOP + 10, f"−{D}"),
        text(x(D) - 4, TOP + 10, f"{D}", "end"),
        text(x(0), y(most) - 5, f"exact {eta} %", "middle", "strong"),
    ]
    return svg.draw(
        parts, f"The noise of a typical count: within ±{margin} in 95 % of its releases (shaded), never beyond ±{D}."
    )


def heat(rows: Rows) -> str:
    """A heat map of the probability of each published count (across) for every true count (down)."""
    counts, places = sorted({r["n"] for r in rows}), sorted({r["y"] for r in rows})
    bottom, largest = HEIGHT + 60 - BOTTOM, max(r["p"] for r in rows)
    across, down = (WIDTH - LEFT - RIGHT) / len(places), (bottom - TOP) / len(counts)
    parts = []
    for r in rows:
        x, y = LEFT + places.index(r["y"]) * across, TOP + counts.index(r["n"]) * down
        shade, dark = _shade(r["p"] / largest)
        if shade >= 0.02:
            span = str(r["y"]) if r["last"] == r["y"] else f"{r['y']}–{r['last']}"
            words = f"true {r['n']} → published {span}: {100 * r['p']:.2g} %"
            parts.append(rect(x, y, across, down, "cell", words, fill_opacity=f"{shade:.3f}"))
        if r["exact"]:
            parts.append(rect(x + 0.8, y + 0.8, across - 1.6, down - 1.6, "exact"))
        if across >= 15 and r["p"] >= 0.005:
            kind = "on-dark small" if dark else "small"
            parts.append(text(x + across / 2, y + down / 2 + 4, f"{100 * r['p']:.0f}", "middle", kind))
    every, grouped = max(1, -(-len(places) // 14)), rows[0]["last"] > rows[0]["y"]
    for i, place in enumerate(places):
        if i % every == 0:
            parts.append(text(LEFT + (i + 0.5) * across, bottom + 14, f"{place}{'–' * grouped}", "middle"))
    parts += [text(LEFT - 8, TOP + (i + 0.5) * down + 4, str(n), "end") for i, n in enumerate(counts)]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 32, "published count", "middle", "quiet"))
    turned = f"translate(13 {(TOP + bottom) / 2:.0f}) rotate(-90)"
    parts.append(svg.shape("text", "quiet", inside="true count", transform=turned, text_anchor="middle"))
    return svg.draw(
        parts, "Where small true counts go: darker is more likely; outlined is the exact count.", HEIGHT + 60
    )


def useful(rows: Rows, start: int | None) -> str:
    """A curve of the relative error by the size of the cell, with a mark where the error becomes at most 10 %."""
    low, high = min(r["n"] for r in rows), max(r["n"] for r in rows)
    up = decades([0.1, *(r["relative"] for r in rows)])
    x = svg.logarithmic(low, max(high, low + 1), LEFT, WIDTH - RIGHT)
    y = svg.logarithmic(up[0], up[-1], HEIGHT - BOTTOM, TOP)
    parts = svg.axes(x, y, log_ticks(low, high), up, "people in the cell", percent)
    for name, kind in ((MARGIN, "line"), (ERROR, "line second")):
        parts.append(svg.path([(x(r["n"]), y(r["relative"])) for r in rows if r["series"] == name], kind))
    parts.append(line(LEFT, y(0.1), WIDTH - RIGHT, y(0.1), "rule"))
    words = "no cell is large enough"
    if start is not None:
        words = f"from {start:,} people on the 95 % margin is at most 10 %"
        at = x(max(start, low))
        parts.append(line(at, TOP, at, HEIGHT - BOTTOM, "rule"))
        parts.append(_beside(at, TOP + 10, f"useful from {start:,} people"))
    return svg.draw(parts, f"Error against the size of the cell: {words}.")


def curve(rows: Rows, certified: Mapping[str, float]) -> str:
    """A curve of delta by epsilon on a log scale, with values on hover. A dot marks the certified pair."""
    if len(rows) < 2:
        return svg.draw([text(WIDTH / 2, HEIGHT / 2, "delta is 0 at every epsilon", "middle")], "delta is 0 everywhere")
    up = decades([1.0, *(max(1e-15, delta) for delta in (certified["delta"] or 1.0, *(r["delta"] for r in rows)))])
    x = svg.linear(0, rows[-1]["epsilon"], LEFT, WIDTH - RIGHT)
    y = svg.logarithmic(up[0], 1.0, HEIGHT - BOTTOM, TOP)
    places = [(x(r["epsilon"]), y(max(r["delta"], up[0]))) for r in rows]
    parts = svg.axes(
        x, y, svg.round_ticks(0, rows[-1]["epsilon"]), up, "epsilon", lambda v: decimal_text(Fraction(v), 1)
    )
    parts.append(svg.path(places, "line"))
    if certified["delta"] > 0:
        at, height = x(certified["epsilon"]), y(certified["delta"])
        parts += [svg.circle(at, height, 5, "dot"), _beside(at, height - 8, "certified", "strong")]
    edges = [LEFT, *((a + b) / 2 for (a, _), (b, _) in pairwise(places)), WIDTH - RIGHT]
    for i, (row, (at, height)) in enumerate(zip(rows, places, strict=True)):
        epsilon, delta = (decimal_text(Fraction(row[name]), 3, "up") for name in ("epsilon", "delta"))
        strip = rect(edges[i], TOP, edges[i + 1] - edges[i], HEIGHT - BOTTOM - TOP, "strip")
        words = f"epsilon {epsilon}: delta {delta}"
        parts.append(svg.shape("g", "point", words, strip + svg.circle(at, height, 4, "mark")))
    return svg.draw(parts, "delta at every epsilon (log scale); the dot is the certified pair.")


def suspicion(order: float | None, half: float) -> str:
    """A curve of how strong a suspicion can be after the release, given how strong it was before."""
    x, y = svg.linear(0, 100, LEFT, WIDTH - RIGHT), svg.linear(0, 100, HEIGHT - BOTTOM, TOP)
    ticks = [0, 25, 50, 75, 100]
    most = decimal_text(100 * Fraction(half), 3, "up")
    priors = [math.sin(math.pi * i / 120) ** 2 for i in range(61)]
    after = [posterior(prior, math.inf if order is None else order) for prior in priors]
    parts = [
        *svg.axes(x, y, ticks, ticks, "suspicion before, %", lambda v: f"{v:.0f} %"),
        svg.path([(x(0), y(0)), (x(100), y(100))], "grid strong-grid"),
        svg.path([(x(100 * p), y(100 * q)) for p, q in zip(priors, after, strict=True)], "line"),
        line(x(50), y(50), x(50), y(100 * half), "rule"),
        svg.circle(x(50), y(100 * half), 5, "dot"),
        text(x(50) + 9, y(100 * half) + 16, f"50 % can become {most} %", kind="strong"),
        text(x(50) + 9, y(100 * half) + 31, "at most, in 99 % of releases", kind="strong"),
    ]
    return svg.draw(parts, f"An attacker's suspicion: 50 % can become {most} % at most, in 99 % of releases.")


def answers(labels: Sequence[Sequence[str]], rows: Sequence[tuple[int, int, int]], weak: Sequence[bool]) -> str:
    """Published counts with their 95 % intervals, one line per cell with its labels."""
    short = [_shorten_labels(keys) for keys in labels]
    step, left = 22, 16 + max(44.0, *(_wide(words) for words in short))
    low, high = min(0, *(r[1] for r in rows)), max(1, *(r[2] for r in rows))
    bottom = TOP + step * len(rows)
    x = svg.linear(low, high, left, WIDTH - RIGHT)
    parts = []
    for tick in svg.round_ticks(low, high, whole=True):
        parts += [line(x(tick), TOP, x(tick), bottom, "grid"), text(x(tick), bottom + 16, f"{tick:,.0f}", "middle")]
    for i, (keys, (y, a, b)) in enumerate(zip(labels, rows, strict=True)):
        at = TOP + step * (i + 0.5)
        parts.append(text(left - 8, at + 4, short[i], "end", whole=JOINED.join(keys)))
        parts.append(rect(x(min(0, y)), at - 6, abs(x(y) - x(0)), 12, "tail weak" if weak[i] else "tail"))
        ends = "".join(f"M{x(end):.1f} {at - 4:.1f}v8" for end in (a, b))
        parts.append(svg.shape("path", "error", d=f"M{x(a):.1f} {at:.1f}H{x(b):.1f}{ends}"))
    words = "Published counts with their 95 % intervals; cells too small to be useful are faint."
    return svg.draw(parts, words, bottom + BOTTOM)


def bars(rows: Sequence[tuple[str, float]], unit: str) -> str:
    """A bar chart of a few quantities."""
    step, left = 34, 140
    high = max(value for _, value in rows) or 1.0
    parts = []
    for i, (name, value) in enumerate(rows):
        at = TOP + step * (i + 0.5)
        wide = max(1.0, (WIDTH - left - 90) * value / high)
        parts.append(text(left - 8, at + 4, name, "end", "strong" if i == 0 else ""))
        parts.append(rect(left, at - 9, wide, 18, "bar" if i == 0 else "tail"))
        parts.append(text(left + wide + 6, at + 4, f"{value:.3g}"))
    return svg.draw(
        parts, f"{unit}: " + ", ".join(f"{name} {value:.3g}" for name, value in rows), TOP + step * len(rows) + 6
    )


# -- pieces ------------------------------------------------------------------------------------------------------------


def _beside(x: float, y: float, words: str, kind: str = "") -> str:
    """Text beside a point: to its left or right, where there is room."""
    left = x > (LEFT + WIDTH) * 0.6
    return text(x - 8 if left else x + 8, y, words, "end" if left else "start", kind)


def _wide(words: str) -> float:
    """An estimate of a text's width in pixels at 12 px, too large rather than too small."""
    return sum(
        12.0 if c in "mwMW@%…" or east_asian_width(c) in "WF" else 9.3 if c.isupper() else 7.5 if c != " " else 4.0
        for c in words
    )


def _shorten_labels(labels: Sequence[str]) -> str:
    """The labels of a cell joined and shortened until they fit. A long label keeps its beginning and its end."""
    for longest in range(max((len(label) for label in labels), default=0), 2, -1):
        words = JOINED.join(_cut(label, longest) for label in labels)
        if _wide(words) <= LABEL:
            return words
    words = JOINED.join(_cut(label, 3) for label in labels)
    while _wide(words) > LABEL:
        words = words[: len(words) // 2 - 1] + "…" + words[len(words) // 2 + 1 :]
    return words


def _cut(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest // 2] + "…" + label[len(label) - (longest - 1) // 2 :]


def _shade(share: float) -> tuple[float, bool]:
    """For a share of the largest probability: the opacity of its cell, and whether the text on it must be white.

    Opacities at which neither dark nor white text is legible are skipped.
    """
    shade = math.sqrt(share)
    return (0.77 + 0.92 * (shade - 0.75), True) if shade >= 0.75 else (0.84 * shade, False)
