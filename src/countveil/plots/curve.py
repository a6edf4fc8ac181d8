"""The whole guarantee: the exact delta at every epsilon, not only at the one that was asked for.

One mechanism has an epsilon for every delta. Readers who hold another pair to be right find it here.
"""

from __future__ import annotations

from fractions import Fraction

from countveil.exact import decimal_text
from countveil.law import distinct_counts
from countveil.mechanism import Mechanism
from countveil.plots import altair as alt
from countveil.plots import theme
from countveil.remap import Remap

STRETCH = Fraction(5, 2)
EVEN_POINTS = 50
NEAR_POINTS = 8
MOST_WORK = 2_000_000
"""Weights looked at for the whole curve; larger mechanisms get fewer points."""


def curve_rows(mechanism: Mechanism) -> theme.Rows:
    """{epsilon, delta}: the exact delta from epsilon 0 to 2.5 times the certified one, closer together near it.

    Points where delta is exactly 0 are left out: a log scale has no place for them.
    """
    found = ((epsilon, mechanism.delta_at(epsilon)) for epsilon in _grid(mechanism))
    return [{"epsilon": float(epsilon), "delta": float(delta)} for epsilon, delta in found if delta > 0]


def _grid(mechanism: Mechanism) -> list[Fraction]:
    """Even steps, and steps that halve towards the certified epsilon, where the curve of an optimal law breaks off."""
    epsilon = mechanism.epsilon
    top = epsilon * STRETCH if epsilon else Fraction(2)
    even = max(10, min(EVEN_POINTS, MOST_WORK // _work(mechanism)))
    near = NEAR_POINTS * even // EVEN_POINTS
    gap = top / even
    grid = {top * i / even for i in range(even + 1)} | {epsilon}
    grid |= {epsilon - gap / 2**i for i in range(1, near + 1) if epsilon > gap}
    return sorted(grid)


def _work(mechanism: Mechanism) -> int:
    """How many weights one exact delta looks at."""
    family = mechanism.family
    laws = 1 if isinstance(family, Remap) else 2 * len(distinct_counts(family))
    return laws * len(family.stationary.weights) * mechanism.certificate.sensitivity


def _which(mechanism: Mechanism) -> str:
    """Remapped laws are bounded by their signed law and the slack of their moves; others are measured themselves."""
    family = mechanism.family
    return "A proved" if isinstance(family, Remap) and family.slack else "The least"


def curve_chart(mechanism: Mechanism) -> alt.LayerChart:
    """delta against epsilon on a log scale; the certified pair is marked."""
    rows = curve_rows(mechanism)
    epsilon, delta = float(mechanism.epsilon), float(mechanism.delta)
    ticks = theme.decades([row["delta"] for row in rows] + [delta, min(1.0, 1.5 * delta)])
    x = alt.X("epsilon:Q", title="privacy loss epsilon").scale(nice=False).axis(grid=False)
    y = alt.Y("delta:Q", title="delta (log scale)").scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    y = y.axis(values=ticks, labelExpr=theme.SMALL_NUMBERS)
    line = alt.Chart(theme.data(rows)).mark_line(color=theme.DARK, strokeWidth=2.5).encode(x=x, y=y)
    pair = f"epsilon {decimal_text(mechanism.epsilon, 4)}, delta {decimal_text(mechanism.delta, 3, 'up')}"
    layers: list[alt.Chart | alt.LayerChart] = [line]
    if delta > 0:
        layers += [theme.dot(epsilon, delta), theme.label(epsilon, delta, pair, dx=9, dy=-15)]
    people = mechanism.certificate.sensitivity
    whom = "one person more or less" if people == 1 else f"a change of up to {people}"
    end = "" if len(rows) == len(_grid(mechanism)) else f" It is exactly 0 from epsilon {rows[-1]['epsilon']:.3g} on."
    heading = theme.title(
        "The guarantee at every epsilon",
        f"{_which(mechanism)} delta that holds at each epsilon, for {whom} in any dataset.",
        f"Dot: the certified pair.{end}",
    )
    return theme.picture(heading, *layers)
