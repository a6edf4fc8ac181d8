"""What an attacker's suspicion can become: the guarantee in the words of someone who is in the data.

The attacker knows everything but whether one person is counted: the true count is n or its neighbour m. With prior
probability pi for n, the published y makes it

    pi p(y|n) / (pi p(y|n) + (1 - pi) p(y|m)),

which is more than B(pi) = pi t / (pi t + 1 - pi) exactly if p(y|n) > t p(y|m). So B bounds the suspicion in every
release but a share P(p(Y|n) > t p(Y|m) | n); the largest share counts, over neighbours in both directions. Two bounds
are read off the weights: that of t = e^(1.01 epsilon), with its share, and that whose share is 1 %. (At e^epsilon
itself the share says little: optimal laws have p(y|n) = e^epsilon p(y|m) for most y, but for a hair's breadth.) Both
are of the columns that are sampled: of all of them where that is quick, else of a spread of counts, and then the
picture says so. One number needs no exceptions: with a prior of one half the best guess is right with probability at
most (1 + delta(0))/2, where delta(0) is the total variation between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from countveil.exact import decimal_text, exp_bounds
from countveil.law import ColumnFamily, distinct_counts, neighbour_pairs
from countveil.mechanism import Mechanism
from countveil.plots import altair as alt
from countveil.plots import theme
from countveil.privacy import aligned
from countveil.remap import Remap

EXCEPTIONS = Fraction(1, 100)
BREADTH = Fraction(101, 100)
"""Times epsilon: invisible in the picture."""
QUICK_WORK = 1_000_000
"""Weights of neighbouring columns that are looked at without much ado; beyond, a spread of counts is."""
LEAST_SPREAD = 16
SMALL_COUNTS, NEAR_COUNTS = 8, 3
"""In a spread are the first counts, and those this near to where the map or the bias ends or the noise settles."""
POINTS = 60

Pair = tuple[Sequence[int], Sequence[int]]
"""The weights of p(y|n) and p(y|m), over one total, for every y that n can give."""


def order(mechanism: Mechanism) -> Fraction:
    """t = e^(1.01 epsilon), rounded up to a multiple of 2**-64."""
    return Fraction(math.ceil(exp_bounds(mechanism.epsilon * BREADTH)[1] * 2**64), 2**64)


def exceeding_share(mechanism: Mechanism, t: Fraction) -> Fraction:
    """The largest P(p(Y|n) > t p(Y|m) | n) over the neighbouring counts that are looked at, exactly."""
    return max((_share(pair, t) for pair in _columns(mechanism)), default=Fraction(0))


def order_leaving(mechanism: Mechanism, share: Fraction = EXCEPTIONS) -> float:
    """The least t that suspicion exceeds in no more than this share of releases; infinite if there is none."""
    return _largest_quantile(_columns(mechanism), share)


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
        f"at most, but for a share {share} of releases ({decimal_text(BREADTH)} times epsilon)": float(t),
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
        f"For someone who knows all but {who}.",
        f"From 50 %, the best guess is right in at most {_digits(best, 'up')}{_scope(mechanism)}",
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


def _share(pair: Pair, t: Fraction) -> Fraction:
    """P(p(Y|n) > t p(Y|m) | n)."""
    a, b = t.numerator, t.denominator
    here, there = pair
    return Fraction(sum(w for w, v in zip(here, there, strict=True) if b * w > a * v), sum(here))


def _largest_quantile(pairs: Iterable[Pair], share: Fraction) -> float:
    """The least t with P(p(Y|n) > t p(Y|m) | n) <= share for every pair."""
    t = 0.0
    for here, there in pairs:
        left = share * sum(here)
        if math.isinf(t) or sum(w for w, v in zip(here, there, strict=True) if w > t * v) <= left:
            continue
        ratios = ((w / v if v else math.inf, w) for w, v in zip(here, there, strict=True) if w)
        for ratio, weight in sorted(ratios, reverse=True):
            left -= weight
            if left < 0:
                t = max(t, ratio)
                break
    return t


# Which columns


def _columns(mechanism: Mechanism) -> Iterator[Pair]:
    """Neighbouring columns side by side, both directions."""
    family = mechanism.family
    for n, m in compared_counts(mechanism):
        here, there = family.column(n), family.column(m).shifted(m - n)
        bits = max(here.bits, there.bits)
        here, there = here.scaled(bits), there.scaled(bits)
        yield here.weights, aligned(here, there)
        yield there.weights, aligned(there, here)


def compared_counts(mechanism: Mechanism) -> list[tuple[int, int]]:
    """The neighbouring counts that are looked at: all that differ, or a spread of them."""
    family, sensitivity = mechanism.family, mechanism.certificate.sensitivity
    pairs = list(neighbour_pairs(family, sensitivity))
    most = QUICK_WORK // len(family.stationary.weights)
    if len(pairs) <= most:
        return pairs
    counts = _spread(family, max(LEAST_SPREAD, most // 2))
    return [(n, m) for n, m in pairs if n in counts and m - n in (1, sensitivity)]


def _spread(family: ColumnFamily, most: int) -> set[int]:
    """Small counts, counts around those where the map and the bias end and the noise settles, and even steps."""
    counts = distinct_counts(family)
    places = {len(counts) - 1}
    if isinstance(family, Remap):
        places |= {family.T, family.n0}
    chosen = {at + i for at in places for i in range(-NEAR_COUNTS, NEAR_COUNTS + 1)}
    chosen |= set(range(SMALL_COUNTS)) | {len(counts) * i // most for i in range(most)}
    return {counts[i] for i in chosen if 0 <= i < len(counts)}


def _scope(mechanism: Mechanism) -> str:
    looked = compared_counts(mechanism)
    every = sum(1 for _ in neighbour_pairs(mechanism.family, mechanism.certificate.sensitivity))
    if len(looked) == every:
        return " of cases."
    return f". Lines: the largest of {len(looked)} pairs of counts looked at."
