"""The law of the noise Z for one true count, and the laws of a mechanism for every count n = 0, 1, 2, ...

A law is what is sampled, certified, hashed and charged: `weights[z + left]` of `2**bits` equally
likely integers give the noise z. Probabilities and moments are Fractions derived from the weights.

A mechanism has one column, the law of Z = Y - n, for each count. Only finitely many differ: from the
stationary count M on the noise no longer depends on n. Two kinds exist, with one interface:

- `Columns`: the columns below M are written out (policies signed, floor, and nonnegative by `program`);
- `countveil.remap.Remap`: one signed law and a fixed random map to the non-negative integers.

Counts outside a public promise lo <= n <= hi are moved to its nearest end before noise is added. That
clamp never increases the distance of two counts, so privacy holds for every dataset, promise kept or
not; only the accuracy properties P1-P3 rest on the promise. The policy `floor` is the clamp lo = D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from countveil.errors import ParameterError
from countveil.exact import Number, number


@dataclass(frozen=True, slots=True)
class Law:
    """The law of Z on -left..right as integer weights that sum to 2**bits.

    >>> coin = Law(weights=(1, 2, 1), left=1, bits=2)
    >>> coin.eta, coin.mean, coin.variance
    (Fraction(1, 2), Fraction(0, 1), Fraction(1, 2))
    """

    weights: tuple[int, ...]
    left: int
    bits: int

    def __post_init__(self) -> None:
        if not self.weights or min(self.weights) < 0 or sum(self.weights) != 1 << self.bits:
            raise ValueError("a law needs non-negative integer weights that sum to 2**bits")

    @property
    def right(self) -> int:
        """The largest z that has a slot."""
        return len(self.weights) - 1 - self.left

    @property
    def total(self) -> int:
        return 1 << self.bits

    def items(self) -> Iterator[tuple[int, int]]:
        """Pairs (z, weight) from -left to right."""
        return zip(range(-self.left, self.right + 1), self.weights, strict=True)

    def weight(self, z: int) -> int:
        slot = z + self.left
        return self.weights[slot] if 0 <= slot < len(self.weights) else 0

    def probability(self, z: int) -> Fraction:
        """P(Z = z)."""
        return Fraction(self.weight(z), self.total)

    @property
    def eta(self) -> Fraction:
        """P(Z = 0), the probability that the exact count is released."""
        return self.probability(0)

    @property
    def mean(self) -> Fraction:
        """E[Z], the bias."""
        return Fraction(sum(z * w for z, w in self.items()), self.total)

    @property
    def mse(self) -> Fraction:
        """E[Z^2], the mean squared error of the released count."""
        return Fraction(sum(z * z * w for z, w in self.items()), self.total)

    @property
    def variance(self) -> Fraction:
        return self.mse - self.mean**2

    @property
    def mean_absolute_error(self) -> Fraction:
        """E|Z|."""
        return Fraction(sum(abs(z) * w for z, w in self.items()), self.total)

    @property
    def worst_error(self) -> int:
        """The largest |z| of positive probability."""
        return max(abs(z) for z, w in self.items() if w)

    @property
    def least(self) -> int:
        """The smallest z of positive probability."""
        return next(z for z, w in self.items() if w)

    @property
    def greatest(self) -> int:
        """The largest z of positive probability."""
        return self.right - next(i for i, w in enumerate(reversed(self.weights)) if w)

    def within(self, distance: int) -> Fraction:
        """P(|Z| <= distance)."""
        start = max(0, self.left - distance)
        return Fraction(sum(self.weights[start : max(0, self.left + distance + 1)]), self.total)

    def margin(self, level: Number) -> int:
        """The least m with P(|Z| <= m) >= level, a probability as text or number.

        >>> Law(weights=(1, 2, 1), left=1, bits=2).margin("0.95")
        1
        """
        allowed = "a probability: a decimal number from 0 to 1"
        share = number("level", level, allowed)
        if not 0 <= share <= 1:
            raise ParameterError("level", level, allowed)
        covered = self.weight(0)
        m = 0
        while covered < share * self.total:
            m += 1
            covered += self.weight(m) + self.weight(-m)
        return m

    def shifted(self, by: int) -> Law:
        """The law of Z + by."""
        return Law(self.weights, self.left - by, self.bits)

    def mirrored(self) -> Law:
        """The law of -Z."""
        return Law(self.weights[::-1], self.right, self.bits)

    def is_symmetric(self) -> bool:
        return self.left == self.right and self.weights == self.weights[::-1]

    def scaled(self, bits: int) -> Law:
        """The same law over 2**bits, bits at least as many as now."""
        if bits == self.bits:
            return self
        return Law(tuple(w << (bits - self.bits) for w in self.weights), self.left, bits)


class ColumnFamily(Protocol):
    """What privacy, sampling and certificates need to know of a mechanism."""

    @property
    def lo(self) -> int:
        """The least count that has a column of its own; smaller ones are treated as lo."""

    @property
    def hi(self) -> int | None:
        """The largest count with a column, or None: every count has one."""

    @property
    def stationary_from(self) -> int:
        """The count M from which the law of Z no longer depends on n (up to the top columns)."""

    @property
    def stationary(self) -> Law:
        """The law of Z for n >= M."""

    def column(self, n: int) -> Law:
        """The law of Z = Y - n."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns written out: `small` for n = lo, lo+1, ..., then `stationary`, then `top` up to hi."""

    stationary: Law
    small: tuple[Law, ...] = ()
    lo: int = 0
    hi: int | None = None
    top: tuple[Law, ...] = ()

    def __post_init__(self) -> None:
        if self.hi is None and self.top:
            raise ValueError("top columns need a largest count")
        if self.hi is not None and self.hi < self.lo + max(1, len(self.small) + len(self.top)) - 1:
            raise ValueError("more columns than counts")

    @property
    def stationary_from(self) -> int:
        return self.lo + len(self.small)

    def column(self, n: int) -> Law:
        clamped = max(n, self.lo) if self.hi is None else min(max(n, self.lo), self.hi)
        law = self.stationary
        if clamped < self.stationary_from:
            law = self.small[clamped - self.lo]
        elif self.hi is not None and clamped > self.hi - len(self.top):
            law = self.top[clamped - self.hi - 1]
        return law if clamped == n else law.shifted(clamped - n)

    @property
    def first_top(self) -> int | None:
        """The least count that has a top column, or None."""
        return None if self.hi is None or not self.top else self.hi - len(self.top) + 1


def distinct_counts(family: ColumnFamily) -> list[int]:
    """Counts lo..M and the top ones: every law of Z occurs at one of them."""
    last = family.stationary_from
    if family.hi is None:
        return list(range(family.lo, last + 1))
    counts = list(range(family.lo, min(last, family.hi) + 1))
    first_top = getattr(family, "first_top", None)
    if first_top is not None:
        counts += range(max(first_top, counts[-1] + 1), family.hi + 1)
    return counts


def neighbour_pairs(family: ColumnFamily, sensitivity: int) -> Iterator[tuple[int, int]]:
    """Pairs (n, n + s), s = 1..sensitivity, whose laws represent all neighbouring pairs.

    Beyond M both columns are the stationary law, so (M, M + s) stands for all (n, n + s), n >= M. With a
    largest count, pairs that reach the top columns are added. A clamped count equals an end of the range
    and makes a pair of smaller s.
    """
    starts = set(distinct_counts(family))
    first_top = getattr(family, "first_top", None)
    if first_top is not None:
        starts.update(range(max(family.lo, first_top - sensitivity), first_top))
    for n in sorted(starts):
        for s in range(1, sensitivity + 1):
            if family.hi is None or n + s <= family.hi:
                yield n, n + s
