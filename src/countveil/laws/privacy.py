"""Exact privacy of a family of columns.

For an order E = e^epsilon > 0 (epsilon may be zero or negative) the exact delta is the hockey-stick
divergence, the least delta for which (epsilon, delta)-differential privacy holds:

    delta(E) = max over neighbouring counts (n, m) and both directions of sum_y max(0, p(y|n) - E p(y|m)).

All sums are over integers. Orders are Fractions: with a lower bound of e^epsilon the result is an upper
bound of delta, because delta(E) never increases with E.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from countveil.law import ColumnFamily, Columns, Law, neighbour_pairs
from countveil.remap import Remap


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence and where it is attained: p(.|n) against E p(.|m)."""

    value: Fraction
    n: int
    m: int


def hockey_stick(p: Law, q: Law, order: Fraction) -> Fraction:
    """sum_z max(0, p(z) - order * q(z)).

    >>> hockey_stick(Law((1,), 0, 0), Law((1, 1), 0, 1), Fraction(1))
    Fraction(1, 2)
    """
    bits = max(p.bits, q.bits)
    excess = sum(x for x in _excesses(p, q, order) if x > 0)
    return Fraction(excess, order.denominator << bits)


def largest_excess(p: Law, q: Law, order: Fraction) -> Fraction:
    """max_z of p(z) - order * q(z), at least 0: the divergence over single outcomes."""
    bits = max(p.bits, q.bits)
    return Fraction(max(0, max(_excesses(p, q, order))), order.denominator << bits)


def delta(family: ColumnFamily, order: Fraction, sensitivity: int = 1) -> Divergence:
    """The exact delta at order E, over all neighbouring counts, shifts 1..sensitivity, both directions.

    **Guarantee.** For a remapped family the value is that of its signed law plus slack * (1 + E), or less: what holds
    at a smaller order holds at E too. An upper bound, attained up to the slack by counts beyond the reach of the map.
    """
    if isinstance(family, Remap):
        return _remapped_delta(family, order, sensitivity)
    return _worst(family, order, sensitivity, hockey_stick)


def _remapped_delta(family: Remap, order: Fraction, sensitivity: int) -> Divergence:
    """The least of bound(E') = signed delta(E') + slack * (1 + E') over E' <= E, which is convex in E'.

    Where it rises, too few outcomes lose more than E' to pay for the slack: the order at which just enough do is the
    next one looked at.
    """
    signed = Columns(family.source)
    far = family.stationary_from
    best = None
    while True:
        worst = _worst(signed, order, sensitivity, hockey_stick)
        value = min(Fraction(1), worst.value + family.slack * (1 + order))
        if best is None or value < best.value:
            best = Divergence(value, worst.n + far, worst.m + far)
        else:
            return best
        p, q = family.source, family.source.shifted(worst.m - worst.n)
        if not family.slack or _active_weight(p, q, order) >= family.slack:
            return best
        order = _order_with(p, q, family.slack)


def _order_with(p: Law, q: Law, share: Fraction) -> Fraction:
    """The largest order E at which outcomes with p >= E q have at least so much q-probability."""
    ratios = sorted(
        ((Fraction(w << q.bits, v << p.bits), v) for w, v in zip(p.weights, aligned(p, q), strict=True) if v),
        reverse=True,
    )
    held = 0
    for ratio, weight in ratios:
        held += weight
        if Fraction(held, q.total) >= share:
            return ratio
    return ratios[-1][0]


def singleton(family: ColumnFamily, order: Fraction, sensitivity: int = 1) -> Divergence:
    """The largest p(y|n) - E p(y|m) over single outcomes y: the paper's delta*. NOT a privacy parameter."""
    return _worst(family, order, sensitivity, largest_excess)


def epsilon_order(family: ColumnFamily, target: Fraction, sensitivity: int = 1) -> Fraction | None:
    """The least order E >= 1 with delta(E) <= target, or None: outcomes that only one count has weigh more.

    For each pair delta(E) is convex, decreasing and piecewise linear, so Newton's method from the left never
    overshoots and ends on the exact root.
    """
    order = Fraction(1)
    while True:
        worst = delta(family, order, sensitivity)
        if worst.value <= target:
            return order
        p, q, slack = _pair_laws(family, worst)
        while (excess := hockey_stick(p, q, order) + slack * (1 + order) - target) > 0:
            slope = _active_weight(p, q, order) - slack
            if slope <= 0:
                return None
            order += excess / slope


def _pair_laws(family: ColumnFamily, worst: Divergence) -> tuple[Law, Law, Fraction]:
    """The two laws of Y that attain a divergence, both as laws of Y - n, and the family's slack."""
    n, m = worst.n, worst.m
    slack = family.slack if isinstance(family, Remap) else Fraction(0)
    return family.column(n), family.column(m).shifted(m - n), slack


def _active_weight(p: Law, q: Law, order: Fraction) -> Fraction:
    """Minus the right derivative of the hockey stick: the q-probability of {p > order * q}."""
    bits = max(p.bits, q.bits)
    active = sum(v for x, v in zip(_excesses(p, q, order), aligned(p, q), strict=True) if x > 0)
    return Fraction(active << (bits - q.bits), 1 << bits)


def _worst(
    family: ColumnFamily,
    order: Fraction,
    sensitivity: int,
    divergence: Callable[[Law, Law, Fraction], Fraction],
) -> Divergence:
    worst = Divergence(Fraction(-1), 0, 0)
    for n, m in neighbour_pairs(family, sensitivity):
        p, q = family.column(n), family.column(m)
        for a, b, there in ((n, m, q.shifted(m - n)), (m, n, p.shifted(n - m))):
            here = p if a == n else q
            value = divergence(here, there, order)
            if value > worst.value:
                worst = Divergence(value, a, b)
            if p is q and p.is_symmetric():
                break  # the other direction is the mirror image
    return worst if worst.value >= 0 else Divergence(Fraction(0), family.lo, family.lo)


def _excesses(p: Law, q: Law, order: Fraction) -> Iterator[int]:
    """Integers proportional to p(z) - order * q(z), for every z in p's range."""
    bits = max(p.bits, q.bits)
    a = order.numerator << (bits - q.bits)
    b = order.denominator << (bits - p.bits)
    return (b * w - a * v for w, v in zip(p.weights, aligned(p, q), strict=True))


def aligned(p: Law, q: Law) -> list[int]:
    """q's weights at the z of p's slots."""
    start = q.left - p.left
    end = start + len(p.weights)
    inside = q.weights[max(0, start) : max(0, end)]
    before = min(len(p.weights), max(0, -start))
    return [0] * before + list(inside) + [0] * (len(p.weights) - before - len(inside))
