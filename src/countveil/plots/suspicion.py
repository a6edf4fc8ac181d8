"""How far a release can raise an attacker's suspicion: the guarantee for someone who is in the data.

The attacker knows everything except whether one person is counted: the true count is n or its neighbour m. Before the
release the attacker gives n the probability pi, the suspicion. After the release of y the suspicion is

    pi p(y|n) / (pi p(y|n) + (1 - pi) p(y|m)),

where p(y|n) is the probability that n is published as y. This is more than B(pi) = pi t / (pi t + 1 - pi) exactly if
p(y|n) > t p(y|m). So B bounds the suspicion in all releases except for a share, P(p(Y|n) > t p(Y|m) | n); the largest
share over neighbours in both directions is used. Two bounds are computed from the weights: the bound with t = e^(1.01
epsilon), together with its share, and the bound whose share is 1 %. (With t = e^epsilon itself the share says little:
optimal laws have p(y|n) = e^epsilon p(y|m) for most y, up to rounding.) Both are measured on the sampled laws: on all
of them if that is quick, else on a selection of counts, and then the picture says so.

One number has no exceptions: with a prior of one half the best guess is right with probability at most (1 +
delta(0))/2, where delta(0) is the total variation between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from countveil.laws.law import Laws, distinct_counts, neighbour_pairs
from countveil.laws.privacy import align
from countveil.laws.remap import Remap
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text, exp_bounds
from countveil.plots import altair as alt, theme

EXCEPTIONS = Fraction(1, 100)
BREADTH = Fraction(101, 100)
"""The factor on epsilon in e^(1.01 epsilon), so close to 1 that the picture does not show it."""
QUICK_WORK = 1_000_000
"""At most this many weights of neighbouring laws are compared; beyond, only a selection of counts is compared."""
LEAST_SPREAD = 16
SMALL_COUNTS, NEAR_COUNTS = 8, 3
"""A selection of counts has the SMALL_COUNTS smallest, and NEAR_COUNTS on each side of where laws change kind."""
POINTS = 60

Pair = tuple[Sequence[int], Sequence[int]]
"""The weights of p(y|n) and of p(y|m), over one total, for every y that can be released for n."""


def order(mechanism: Mechanism) -> Fraction:
    """The number t = e^(1.01 epsilon), rounded up to a multiple of 2**-64."""
    return Fraction(math.ceil(exp_bounds(mechanism.epsilon * BREADTH)[1] * 2**64), 2**64)


def exceeding_share(mechanism: Mechanism, t: Fraction) -> Fraction:
    """The largest share of releases y of a count n with p(y|n) > t p(y|m), where m is a neighbouring count.

    p(y|n) is the probability that n is released as y. The share is exact, over the compared pairs of counts.
    """
    return max((_share(pair, t) for pair in _pairs_of_laws(mechanism)), default=Fraction(0))


def order_leaving(mechanism: Mechanism, share: Fraction = EXCEPTIONS) -> float:
    """The least t for which `exceeding_share` is at most `share`; infinite if there is none."""
    return _largest_quantile(_pairs_of_laws(mechanism), share)


def posterior(prior: float, t: float) -> float:
    """The posterior probability of a hypothesis with prior probability pi, if data are t times likelier under it.

    It is pi t / (pi t + 1 - pi).
    """
    if math.isinf(t):
        return 1.0 if prior > 0 else 0.0
    return prior * t / (prior * t + 1 - prior)


def orders(mechanism: Mechanism) -> dict[str, float]:
    """The t of each line of the picture, by the name of the line.

    The lines are: nothing learnt, the bound of epsilon, and the bound for 99 % of releases.
    """
    t = order(mechanism)
    share = decimal_text(exceeding_share(mechanism, t), 2, "up")
    return {
        "nothing learnt": 1.0,
        f"at most, but for a share {share} of releases ({decimal_text(BREADTH)} times epsilon)": float(t),
        f"at most, in {theme.percent(1 - EXCEPTIONS)} of releases": order_leaving(mechanism),
    }


def suspicion_rows(lines: Mapping[str, float]) -> theme.Rows:
    """Rows {prior, posterior, series} for several lines, each given by the factor t of `posterior`."""
    priors = [math.sin(math.pi * i / POINTS / 2) ** 2 for i in range(POINTS + 1)]  # closer together at both ends
    return [
        {"prior": prior, "posterior": posterior(prior, t), "series": name}
        for name, t in lines.items()
        for prior in priors
    ]


def suspicion_chart(mechanism: Mechanism) -> alt.LayerChart:
    """Suspicion after the release against suspicion before; a dot marks what 50 % can become in 99 % of releases."""
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
    """x as percent, with enough digits to differ from 50 %."""
    return theme.percent(x, 3 if x > Fraction(51, 100) else 4, rounding)


def _share(pair: Pair, t: Fraction) -> Fraction:
    """If the true count is n: the probability of a release y with p(y|n) > t p(y|m), for a pair of counts n and m."""
    a, b = t.numerator, t.denominator
    here, there = pair
    return Fraction(sum(w for w, v in zip(here, there, strict=True) if b * w > a * v), sum(here))


def _largest_quantile(pairs: Iterable[Pair], share: Fraction) -> float:
    """The least t for which `_share` is at most `share` for every pair."""
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


# Which laws


def _pairs_of_laws(mechanism: Mechanism) -> Iterator[Pair]:
    """Yield the weights of the laws of neighbouring counts as pairs, in both directions."""
    laws = mechanism.laws
    for n, m in compared_counts(mechanism):
        here, there = laws.law(n), laws.law(m).shift(m - n)
        bits = max(here.bits, there.bits)
        here, there = here.with_bits(bits), there.with_bits(bits)
        yield here.weights, align(here, there)
        yield there.weights, align(there, here)


def compared_counts(mechanism: Mechanism) -> list[tuple[int, int]]:
    """The pairs of neighbouring counts to compare: all whose laws differ, or a selection of them if there are many."""
    laws, sensitivity = mechanism.laws, mechanism.certificate.sensitivity
    pairs = list(neighbour_pairs(laws, sensitivity))
    most = QUICK_WORK // len(laws.stationary.weights)
    if len(pairs) <= most:
        return pairs
    counts = _spread(laws, max(LEAST_SPREAD, most // 2))
    return [(n, m) for n, m in pairs if n in counts and m - n in (1, sensitivity)]


def _spread(laws: Laws, most: int) -> set[int]:
    """A selection of counts: the smallest, some on each side of where laws change kind, others in even steps."""
    counts = distinct_counts(laws)
    places = {len(counts) - 1}
    if isinstance(laws, Remap):
        places |= {laws.T, laws.n0}
    chosen = {at + i for at in places for i in range(-NEAR_COUNTS, NEAR_COUNTS + 1)}
    chosen |= set(range(SMALL_COUNTS)) | {len(counts) * i // most for i in range(most)}
    return {counts[i] for i in chosen if 0 <= i < len(counts)}


def _scope(mechanism: Mechanism) -> str:
    looked = compared_counts(mechanism)
    every = sum(1 for _ in neighbour_pairs(mechanism.laws, mechanism.certificate.sensitivity))
    if len(looked) == every:
        return " of cases."
    return f". Lines: the largest of {len(looked)} pairs of counts looked at."
