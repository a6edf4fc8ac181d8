"""The whole guarantee: the exact delta at every epsilon, not only at the epsilon of the request.

A mechanism has a delta for every epsilon. Readers who prefer another pair (epsilon, delta) find it in this picture.
"""

from __future__ import annotations

from fractions import Fraction

from countveil.laws.law import distinct_counts
from countveil.laws.remap import Remap
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text
from countveil.plots import altair as alt, theme

STRETCH = Fraction(5, 2)
EVEN_POINTS = 50
NEAR_POINTS = 8
MOST_WORK = 2_000_000
"""For the whole curve at most this many weights are evaluated; larger mechanisms get fewer points."""


def curve_rows(mechanism: Mechanism) -> theme.Rows:
    """Rows {epsilon, delta}: the exact delta for epsilons from 0 to 2.5 times the certified one, densest near it.

    Points where delta is exactly 0 are left out: a log scale has no place for them.
    """
    points = ((epsilon, mechanism.delta_at(epsilon)) for epsilon in _grid(mechanism))
    return [{"epsilon": float(epsilon), "delta": float(delta)} for epsilon, delta in points if delta > 0]


def _grid(mechanism: Mechanism) -> list[Fraction]:
    """The epsilons at which the curve is computed: in even steps, and closer together just below the certified epsilon.

    At the certified epsilon the curve of an optimal law breaks off.
    """
    epsilon = mechanism.epsilon
    top = epsilon * STRETCH if epsilon else Fraction(2)
    even = max(10, min(EVEN_POINTS, MOST_WORK // _work(mechanism)))
    near = NEAR_POINTS * even // EVEN_POINTS
    gap = top / even
    grid = {top * i / even for i in range(even + 1)} | {epsilon}
    grid |= {epsilon - gap / 2**i for i in range(1, near + 1) if epsilon > gap}
    return sorted(grid)


def _work(mechanism: Mechanism) -> int:
    """How many weights have to be evaluated for one exact delta of this mechanism."""
    laws = mechanism.laws
    pairs = 1 if isinstance(laws, Remap) else 2 * len(distinct_counts(laws))
    return pairs * len(laws.stationary.weights) * mechanism.certificate.sensitivity


def _which(mechanism: Mechanism) -> str:
    """The words before "delta": "A proved" if delta is an upper bound, as for remaps with moves, else "The least"."""
    laws = mechanism.laws
    return "A proved" if isinstance(laws, Remap) and laws.slack else "The least"


def curve_chart(mechanism: Mechanism) -> alt.LayerChart:
    """delta against epsilon, delta on a log scale; the certified pair (epsilon, delta) is marked."""
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
