"""Exact privacy of the laws of all counts.

E = e^epsilon > 0 is called the order (epsilon may be zero or negative). The exact delta at order E is the hockey-stick
divergence, the least delta for which (epsilon, delta)-differential privacy holds:

    delta(E) = max over neighbouring counts (n, m) and both directions of sum_y max(0, p(y|n) - E p(y|m)).

Here p(y|n) is the probability that y is released for the true count n. All sums are over integers. Orders are
Fractions: with a lower bound of e^epsilon the result is an upper bound of delta, because delta(E) never increases with
E.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from countveil.laws.law import Law, Laws, LawsByCount, neighbour_pairs
from countveil.laws.remap import Remap


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence and the pair of neighbouring counts n, m that has it.

    The probabilities of releases of n are compared with E = e^epsilon times those of releases of m.
    """

    value: Fraction
    n: int
    m: int


def hockey_stick(p: Law, q: Law, order: Fraction) -> Fraction:
    """The hockey-stick divergence sum_z max(0, p(z) - order * q(z)) of two laws.

    >>> hockey_stick(Law((1,), 0, 0), Law((1, 1), 0, 1), Fraction(1))
    Fraction(1, 2)
    """
    bits = max(p.bits, q.bits)
    excess = sum(x for x in _excesses(p, q, order) if x > 0)
    return Fraction(excess, order.denominator << bits)


def largest_excess(p: Law, q: Law, order: Fraction) -> Fraction:
    """The largest p(z) - order * q(z) of any single outcome z, or 0 if all are negative."""
    bits = max(p.bits, q.bits)
    return Fraction(max(0, max(_excesses(p, q, order))), order.denominator << bits)


def delta(laws: Laws, order: Fraction, sensitivity: int = 1) -> Divergence:
    """The exact delta at the order E = e^epsilon: the largest over all neighbouring counts, in both directions.

    **Guarantee.** For remapped laws the value is an upper bound. The signed law before the map has some delta at every
    order E' <= E; adding slack * (1 + E') covers the moves of the remap, and the least of these sums is the bound. It
    exceeds the exact delta by at most slack * (1 + E).
    """
    if isinstance(laws, Remap):
        return _remapped_delta(laws, order, sensitivity)
    return _worst(laws, order, sensitivity, hockey_stick)


def _remapped_delta(laws: Remap, order: Fraction, sensitivity: int) -> Divergence:
    """An upper bound on the delta of remapped laws at the order E.

    For every order E' <= E, the delta of the signed law at E' plus slack * (1 + E') is such a bound; the least of them
    is returned. The bound is convex in E'. Let p and q be the laws of the worst pair of counts. The bound rises with E'
    where the outcomes with p > E' q have less probability under q than the slack. So the next E' to try is the largest
    one at which these outcomes have at least that probability.
    """
    signed = LawsByCount(laws.source)
    far = laws.stationary_from
    best = None
    while True:
        worst = _worst(signed, order, sensitivity, hockey_stick)
        value = min(Fraction(1), worst.value + laws.slack * (1 + order))
        if best is None or value < best.value:
            best = Divergence(value, worst.n + far, worst.m + far)
        else:
            return best
        p, q = laws.source, laws.source.shift(worst.m - worst.n)
        if not laws.slack or _active_weight(p, q, order) >= laws.slack:
            return best
        order = _order_with(p, q, laws.slack)


def _order_with(p: Law, q: Law, share: Fraction) -> Fraction:
    """The largest order E at which the outcomes with p >= E q have at least the probability `share` under q."""
    ratios = sorted(
        ((Fraction(w << q.bits, v << p.bits), v) for w, v in zip(p.weights, align(p, q), strict=True) if v),
        reverse=True,
    )
    covered = 0
    for ratio, weight in ratios:
        covered += weight
        if Fraction(covered, q.total) >= share:
            return ratio
    return ratios[-1][0]


def singleton(laws: Laws, order: Fraction, sensitivity: int = 1) -> Divergence:
    """The largest p(y|n) - E p(y|m) of any single outcome y and neighbouring counts n, m, where E is the order.

    This is delta* of the source paper. It is NOT a privacy parameter: sets of outcomes can be worse.
    """
    return _worst(laws, order, sensitivity, largest_excess)


def epsilon_order(laws: Laws, target: Fraction, sensitivity: int = 1, guess: Fraction = Fraction(1)) -> Fraction | None:
    """The least order E = e^epsilon >= 1 at which the exact delta is at most `target`, or None if there is none.

    There is none if outcomes that are possible at only one of two neighbouring counts are likelier than `target`. For
    each pair of counts delta is a convex, decreasing and piecewise linear function of E, so Newton's method from the
    left never overshoots and ends on the exact root. The search begins at `guess` if delta is above the target there,
    else at 1.
    """
    order = max(Fraction(1), guess)
    if order > 1 and delta(laws, order, sensitivity).value <= target:
        order = Fraction(1)
    while True:
        worst = delta(laws, order, sensitivity)
        if worst.value <= target:
            return order
        p, q, slack = _pair_laws(laws, worst)
        while (excess := hockey_stick(p, q, order) + slack * (1 + order) - target) > 0:
            slope = _active_weight(p, q, order) - slack
            if slope <= 0:
                return None
            order += excess / slope


def _pair_laws(laws: Laws, worst: Divergence) -> tuple[Law, Law, Fraction]:
    """The laws of the released count at the two counts of a divergence, both as offsets from `worst.n`, and the slack.

    The slack is the largest share of a law that a remap moves; it is 0 for `LawsByCount`.
    """
    n, m = worst.n, worst.m
    slack = laws.slack if isinstance(laws, Remap) else Fraction(0)
    return laws.law(n), laws.law(m).shift(m - n), slack


def _active_weight(p: Law, q: Law, order: Fraction) -> Fraction:
    """The total probability under q of the outcomes with p(z) > order * q(z).

    The hockey-stick divergence falls by this probability for each unit by which the order rises.
    """
    bits = max(p.bits, q.bits)
    active = sum(v for x, v in zip(_excesses(p, q, order), align(p, q), strict=True) if x > 0)
    return Fraction(active << (bits - q.bits), 1 << bits)


def _worst(
    laws: Laws,
    order: Fraction,
    sensitivity: int,
    divergence: Callable[[Law, Law, Fraction], Fraction],
) -> Divergence:
    worst = Divergence(Fraction(-1), 0, 0)
    for n, m in neighbour_pairs(laws, sensitivity):
        p, q = laws.law(n), laws.law(m)
        for a, b, there in ((n, m, q.shift(m - n)), (m, n, p.shift(n - m))):
            here = p if a == n else q
            value = divergence(here, there, order)
            if value > worst.value:
                worst = Divergence(value, a, b)
            if p is q and p.is_symmetric():
                break  # the other direction is the mirror image
    return worst if worst.value >= 0 else Divergence(Fraction(0), laws.lo, laws.lo)


def _excesses(p: Law, q: Law, order: Fraction) -> Iterator[int]:
    """For every z of p, an integer proportional to p(z) - order * q(z), with the same positive factor for all z."""
    bits = max(p.bits, q.bits)
    a = order.numerator << (bits - q.bits)
    b = order.denominator << (bits - p.bits)
    return (b * w - a * v for w, v in zip(p.weights, align(p, q), strict=True))


def align(p: Law, q: Law) -> list[int]:
    """The weights of q at every z on which p is defined, from the least to the greatest; 0 where q has none."""
    start = q.left - p.left
    end = start + len(p.weights)
    inside = q.weights[max(0, start) : max(0, end)]
    before = min(len(p.weights), max(0, -start))
    return [0] * before + list(inside) + [0] * (len(p.weights) - before - len(inside))
