"""What an attacker's suspicion can become: the guarantee in the words of someone who is in the data.

The attacker knows everything but whether one person is counted: the true count is n or its neighbour m. With prior
probability pi for n, the published y makes it

    pi p(y|n) / (pi p(y|n) + (1 - pi) p(y|m)),

which is more than B(pi) = pi t / (pi t + 1 - pi) exactly if p(y|n) > t p(y|m). So B bounds the suspicion in every
release but a share P(p(Y|n) > t p(Y|m) | n); the largest share counts, over all neighbours in both directions. Two
bounds are read off the weights: that of t = e^(epsilon + 0.001), with its share, and that whose share is 1 %. (At
e^epsilon itself the share says little: optimal laws have p(y|n) = e^epsilon p(y|m) for most y, but for a hair's
breadth.) One number needs no exceptions: with a prior of one half the best guess is right with probability at most
(1 + delta(0))/2, where delta(0) is the total variation between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from countveil.columns import ColumnFamily, Columns, neighbour_pairs
from countveil.exact import decimal_text, exp_bounds
from countveil.mechanism import Mechanism
from countveil.plots import theme
from countveil.remap import Remap

if TYPE_CHECKING:
    import altair as alt

EXCEPTIONS = Fraction(1, 100)
BREADTH = Fraction(1, 1000)
"""Added to epsilon: invisible in the picture."""
LARGEST_MAP = 400
"""Stationary counts up to which the columns of a remapped law are all compared."""
POINTS = 60

Pair = list[tuple[int, int]]
"""The weights of p(y|n) and p(y|m), over one total, for every y that n can give."""


def order(mechanism: Mechanism) -> Fraction:
    """t = e^(epsilon + 0.001), rounded up."""
    return exp_bounds(mechanism.epsilon + BREADTH)[1]


def exceeding_share(mechanism: Mechanism, t: Fraction) -> Fraction:
    """The largest P(p(Y|n) > t p(Y|m) | n) over neighbouring counts, exactly."""
    a, b = t.numerator, t.denominator
    shares = (Fraction(sum(w for w, v in pair if b * w > a * v), sum(w for w, _ in pair)) for pair in _pairs(mechanism))
    return max(shares, default=Fraction(0))


def order_leaving(mechanism: Mechanism, share: Fraction = EXCEPTIONS) -> float:
    """The least t that suspicion exceeds in no more than this share of releases; infinite if there is none."""
    return max((_quantile(pair, share) for pair in _pairs(mechanism)), default=1.0)


def posterior(prior: float, t: float) -> float:
    """pi t / (pi t + 1 - pi)."""
    if math.isinf(t):
        return 1.0 if prior > 0 else 0.0
    return prior * t / (prior * t + 1 - prior)


def orders(mechanism: Mechanism) -> dict[str, float]:
    """The t of each line, by its name: nothing learnt, the bound of epsilon, and the bound for 99 % of releases."""
    t = order(mechanism)
    share = decimal_text(exceeding_share(mechanism, t), 2, "up")
    return {
        "nothing learnt": 1.0,
        f"at most, but for a share {share} of releases (epsilon + {decimal_text(BREADTH)})": float(t),
        f"at most, in {theme.percent(1 - EXCEPTIONS)} of releases": order_leaving(mechanism),
    }


def suspicion_rows(lines: Mapping[str, float]) -> theme.Rows:
    """{prior, posterior, series} for the orders of some lines."""
    priors = [math.sin(math.pi * i / POINTS / 2) ** 2 for i in range(POINTS + 1)]  # closer together at both ends
    return [
        {"prior": prior, "posterior": posterior(prior, t), "series": name}
        for name, t in lines.items()
        for prior in priors
    ]


def suspicion_chart(mechanism: Mechanism) -> alt.LayerChart:
    """Suspicion after the release against suspicion before; what 50 % can become in 99 % of releases is marked."""
    import altair as alt

    lines = orders(mechanism)
    names = list(lines)
    rows = suspicion_rows(lines)
    x = alt.X("prior:Q", title="suspicion before the release").scale(domain=[0, 1]).axis(format="~%", grid=False)
    y = alt.Y("posterior:Q", title="suspicion after the release").scale(domain=[0, 1]).axis(format="~%")
    legend = alt.Legend(title=None, columns=1, rowPadding=3)
    colours = alt.Color("series:N", sort=names).scale(domain=names, range=[theme.QUIET, theme.DARK, theme.MIDDLE])
    dashes = alt.StrokeDash("series:N", sort=names)
    dashes = dashes.scale(domain=names, range=[theme.DOTTED, theme.SOLID, theme.DASHED])
    line = alt.Chart(theme.data(rows)).mark_line(strokeWidth=2.5)
    line = line.encode(x=x, y=y, color=colours.legend(legend), strokeDash=dashes.legend(legend))
    half = posterior(0.5, lines[names[-1]])
    best = (1 + mechanism.delta_at(0)) / 2
    people = mechanism.certificate.sensitivity
    who = "whether one person is counted" if people == 1 else f"the {people} that one person may add"
    heading = theme.title(
        "What an attacker can learn",
        f"Someone who knows all but {who}: suspicion before and after.",
        f"From 50 %, the best guess is right in at most {_digits(best, 'up')} of cases.{_scope(mechanism)}",
    )
    words = f"50 % can become {_digits(half)}"
    return theme.picture(
        heading,
        line,
        theme.label(0.5, half, words, dx=-8, dy=16 if half > 0.965 else -10, align="right"),
        theme.dot(0.5, half),
    )


def _digits(x: Fraction | float, rounding: str = "nearest") -> str:
    """Percent, with digits enough to be told from 50 %."""
    return theme.percent(x, 3 if x > Fraction(51, 100) else 4, rounding)


def _quantile(pair: Pair, share: Fraction) -> float:
    """The least t with P(p(Y|n) > t p(Y|m) | n) <= share."""
    ratios = sorted(((w / v if v else math.inf, w) for w, v in pair if w), reverse=True)
    left = share * sum(w for w, _ in pair)
    for ratio, weight in ratios:
        left -= weight
        if left < 0:
            return ratio
    return 0.0


def _pairs(mechanism: Mechanism) -> Iterator[Pair]:
    """Neighbouring columns side by side, both directions; beyond LARGEST_MAP those of the law before the map."""
    family = _compared(mechanism)
    for n, m in neighbour_pairs(family, mechanism.certificate.sensitivity):
        here, there = family.column(n), family.column(m).shifted(m - n)
        bits = max(here.bits, there.bits)
        here, there = here.scaled(bits), there.scaled(bits)
        yield [(w, there.weight(z)) for z, w in here.items()]
        yield [(v, here.weight(z)) for z, v in there.items()]


def _compared(mechanism: Mechanism) -> ColumnFamily:
    family = mechanism.family
    if isinstance(family, Remap) and family.stationary_from > LARGEST_MAP:
        return Columns(family.source)
    return family


def _scope(mechanism: Mechanism) -> str:
    return "" if _compared(mechanism) is mechanism.family else " Shares: before the map."
