"""The privacy of many answers by its definition: the hockey-stick divergence of product laws, summed in Fractions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product

import mpmath

from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.pairs import answer_of
from countveil.certificate import Terms
from countveil.law import ColumnFamily, Law, neighbour_pairs
from countveil.mechanism import Mechanism, bind

Ratios = dict[Fraction | None, Fraction]
"""A pair (P, Q): the P-probability of every likelihood ratio P/Q; None is that of outcomes that Q does not have."""


def order_bounds(epsilon: float) -> tuple[Fraction, Fraction]:
    """e^epsilon from below and from above, to a relative 1e-60."""
    if epsilon == 0:
        return Fraction(1), Fraction(1)
    with mpmath.workdps(80):
        sign, mantissa, exponent, _ = mpmath.exp(mpmath.mpf(epsilon))._mpf_
    middle = Fraction(-mantissa if sign else mantissa) * Fraction(2) ** exponent
    return middle * (1 - Fraction(1, 10**60)), middle * (1 + Fraction(1, 10**60))


def ratios(p: Law, q: Law) -> Ratios:
    found: Ratios = {}
    for z, weight in p.items():
        if weight:
            other = q.probability(z)
            ratio = p.probability(z) / other if other else None
            found[ratio] = found.get(ratio, Fraction(0)) + p.probability(z)
    return found


def times(a: Ratios, b: Ratios) -> Ratios:
    """Both answers."""
    found: Ratios = {}
    for (r, p), (s, q) in product(a.items(), b.items()):
        ratio = None if r is None or s is None else r * s
        found[ratio] = found.get(ratio, Fraction(0)) + p * q
    return found


def together(parts: Iterable[Ratios]) -> Ratios:
    return reduce(times, parts, {Fraction(1): Fraction(1)})


def hockey_stick(pair: Ratios, order: Fraction) -> Fraction:
    return sum((p if r is None else p * max(Fraction(0), 1 - order / r) for r, p in pair.items()), Fraction(0))


def change_of(family: ColumnFamily, n: int, m: int) -> Ratios:
    """The pair (column n, column m) in terms of the outcome Y."""
    return ratios(family.column(n), family.column(m).shifted(m - n))


def changes(family: ColumnFamily, sensitivity: int = 1) -> tuple[list[Ratios], list[Ratios]]:
    """All pairs of a person added, and all of a person removed."""
    pairs = list(neighbour_pairs(family, sensitivity))
    return [change_of(family, n, m) for n, m in pairs], [change_of(family, m, n) for n, m in pairs]


def covers(upper: float, pair: Ratios, epsilon: float) -> bool:
    """Is it a safe bound?"""
    low, _ = order_bounds(epsilon)
    return Fraction(upper) >= hockey_stick(pair, low)


def encloses(found: Bounds, ways: Sequence[Ratios], epsilon: float) -> bool:
    """Is the worst of these ways between lower and upper, and the estimate too?"""
    low, high = order_bounds(epsilon)
    most = max(hockey_stick(way, low) for way in ways)
    least = max(hockey_stick(way, high) for way in ways)
    return Fraction(found.lower) <= least and most <= Fraction(found.upper) and found.lower <= found.estimate <= 1


def mechanism(family: ColumnFamily, sensitivity: int = 1) -> Mechanism:
    counts = (family.lo, family.hi)
    terms = Terms(epsilon=Fraction(1), policy="signed", method="program", D=20, sensitivity=sensitivity, counts=counts)
    return bind(family, terms)


def composed(family: ColumnFamily, k: int, sensitivity: int = 1, **more: object) -> Composition:
    return Composition([(answer_of(family, sensitivity), k)], **more)  # type: ignore[arg-type]
