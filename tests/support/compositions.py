"""The privacy of many answers by its definition: the hockey-stick divergence of product laws, summed in Fractions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product

import mpmath

from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.laws.law import Law, Laws, neighbour_pairs
from countveil.mechanism.certificate import Terms
from countveil.mechanism.mechanism import Mechanism, bind

Ratios = dict[Fraction | None, Fraction]
"""A pair (P, Q) as {likelihood ratio P/Q: P-probability}; the ratio None is that of outcomes that Q does not have."""


def order_bounds(epsilon: float) -> tuple[Fraction, Fraction]:
    """A lower and an upper bound on e^epsilon, within a relative 1e-60."""
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
    """The pair of two answers together."""
    found: Ratios = {}
    for (r, p), (s, q) in product(a.items(), b.items()):
        ratio = None if r is None or s is None else r * s
        found[ratio] = found.get(ratio, Fraction(0)) + p * q
    return found


def together(parts: Iterable[Ratios]) -> Ratios:
    return reduce(times, parts, {Fraction(1): Fraction(1)})


def hockey_stick(pair: Ratios, order: Fraction) -> Fraction:
    return sum((p if r is None else p * max(Fraction(0), 1 - order / r) for r, p in pair.items()), Fraction(0))


def change_of(laws: Laws, n: int, m: int) -> Ratios:
    """The pair (law of n, law of m), as laws of the outcome Y."""
    return ratios(laws.law(n), laws.law(m).shift(m - n))


def changes(laws: Laws, sensitivity: int = 1) -> tuple[list[Ratios], list[Ratios]]:
    """All pairs of a person added, and all of a person removed."""
    pairs = list(neighbour_pairs(laws, sensitivity))
    return [change_of(laws, n, m) for n, m in pairs], [change_of(laws, m, n) for n, m in pairs]


def covers(upper: float, pair: Ratios, epsilon: float) -> bool:
    """Whether `upper` is an upper bound of the delta of a pair."""
    low, _ = order_bounds(epsilon)
    return Fraction(upper) >= hockey_stick(pair, low)


def encloses(found: Bounds, ways: Sequence[Ratios], epsilon: float) -> bool:
    """Whether the largest delta of the pairs, and the estimate, are between the lower and the upper bound."""
    low, high = order_bounds(epsilon)
    most = max(hockey_stick(way, low) for way in ways)
    least = max(hockey_stick(way, high) for way in ways)
    return Fraction(found.lower) <= least and most <= Fraction(found.upper) and found.lower <= found.estimate <= 1


def mechanism(laws: Laws, sensitivity: int = 1) -> Mechanism:
    counts = (laws.lo, laws.hi)
    terms = Terms(epsilon=Fraction(1), policy="signed", method="program", D=20, sensitivity=sensitivity, counts=counts)
    return bind(laws, terms)


def composed(laws: Laws, k: int, sensitivity: int = 1, **more: object) -> Composition:
    return Composition([(answer_of(laws, sensitivity), k)], **more)  # type: ignore[arg-type]
