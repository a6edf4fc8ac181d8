"""The law of the noise Z for one true count, and the laws of a mechanism for every count n = 0, 1, 2, ...

A law is what is sampled, certified, hashed and charged: `weights[z + left]` of `2**bits` equally likely integers give
the noise z. Probabilities and moments are Fractions derived from the weights.

A mechanism has one law for each true count n: the law of Z = Y - n, where Y is the released count. Only finitely many
of these laws differ: from some count on, the stationary count M, the noise no longer depends on n. Two kinds exist,
with one interface:

- `LawsByCount`: the laws below M are written out (policies signed, floor, and nonnegative by `program`);
- `countveil.laws.remap.Remap`: one signed law and a fixed random map to the non-negative integers.

The curator may promise publicly that lo <= n <= hi. Counts outside that range are moved to its nearest end before noise
is added. That clamp never increases the distance of two counts, so privacy holds for every dataset, whether the promise
is kept or not; only the accuracy properties need the promise: bounded error (P1), the same eta for every count (P2), no
bias (P3). The policy `floor` is the clamp with lo = D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Protocol

from countveil.display.cards import Shown, describe_facts
from countveil.errors import ParameterError
from countveil.numeric.exact_numbers import Number, decimal_text, number


@dataclass(frozen=True, slots=True, repr=False)
class Law(Shown):
    """The law of the noise Z on -left..right: the weight of z is its probability times 2**bits, an integer.

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

    def _line(self) -> str:
        shown = {"eta": self.eta, "mean": self.mean, "variance": self.variance}
        numbers = describe_facts({name: decimal_text(value, 6) for name, value in shown.items()})
        return f"of Z from {self.least} to {self.greatest}: {numbers} bits={self.bits}"

    def pmf(self) -> tuple[Any, Any]:
        """The values of Z and their probabilities as numpy arrays, for pictures and checks; the weights are exact.

        >>> z, p = Law(weights=(1, 2, 1), left=1, bits=2).pmf()
        >>> z.tolist(), p.tolist()
        ([-1, 0, 1], [0.25, 0.5, 0.25])
        """
        import numpy as np

        return np.arange(-self.left, self.right + 1), np.array([weight / self.total for weight in self.weights])

    @property
    def right(self) -> int:
        """The largest noise z that has an entry in the weights; this entry may be 0."""
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
        """P(Z = z), the probability of the noise z."""
        return Fraction(self.weight(z), self.total)

    @property
    def eta(self) -> Fraction:
        """P(Z = 0), the probability that the exact count is released."""
        return self.probability(0)

    @property
    def mean(self) -> Fraction:
        """E[Z], the mean of the noise, which is the bias of the released count."""
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
        """E|Z|, the mean absolute error of the released count."""
        return Fraction(sum(abs(z) * w for z, w in self.items()), self.total)

    @property
    def worst_error(self) -> int:
        """The largest |z| that has positive probability."""
        return max(abs(z) for z, w in self.items() if w)

    @property
    def least(self) -> int:
        """The smallest noise z that has positive probability."""
        return next(z for z, w in self.items() if w)

    @property
    def greatest(self) -> int:
        """The largest noise z that has positive probability."""
        return self.right - next(i for i, w in enumerate(reversed(self.weights)) if w)

    def within(self, distance: int) -> Fraction:
        """P(|Z| <= distance), the probability that the released count is at most `distance` from the truth."""
        start = max(0, self.left - distance)
        return Fraction(sum(self.weights[start : max(0, self.left + distance + 1)]), self.total)

    def margin(self, level: Number) -> int:
        """The least m with P(|Z| <= m) >= level, where `level` is a probability as text or number.

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

    def shift(self, by: int) -> Law:
        """The law of Z + by."""
        return Law(self.weights, self.left - by, self.bits)

    def mirror(self) -> Law:
        """The law of -Z."""
        return Law(self.weights[::-1], self.right, self.bits)

    def is_symmetric(self) -> bool:
        return self.left == self.right and self.weights == self.weights[::-1]

    def is_unimodal(self) -> bool:
        """Whether the weights rise (or stay equal) up to the largest one and fall (or stay equal) after it."""
        mode = self.weights.index(max(self.weights))
        rising, falling = self.weights[: mode + 1], self.weights[mode:]
        return all(a <= b for a, b in pairwise(rising)) and all(a >= b for a, b in pairwise(falling))

    def with_bits(self, bits: int) -> Law:
        """The same probabilities as weights that sum to 2**bits; `bits` must be at least that of this law."""
        if bits == self.bits:
            return self
        return Law(tuple(w << (bits - self.bits) for w in self.weights), self.left, bits)


class Laws(Protocol):
    """The laws of a mechanism, one for every true count: the interface that privacy, sampling and certificates use."""

    @property
    def lo(self) -> int:
        """The least count that has a law of its own; smaller counts are treated as lo."""

    @property
    def hi(self) -> int | None:
        """The largest count with a law of its own, or None if there is no upper limit."""

    @property
    def stationary_from(self) -> int:
        """The stationary count M: from here on the law no longer depends on n (but counts near hi may differ)."""

    @property
    def stationary(self) -> Law:
        """The law of the noise for all counts from the stationary count on."""

    def law(self, n: int) -> Law:
        """The law of the noise Z = Y - n for the true count n."""


@dataclass(frozen=True, slots=True, repr=False)
class LawsByCount(Shown):
    """Laws that are written out: `small` for the counts lo, lo+1, ..., `top` for the last counts up to hi.

    All counts in between have the law `stationary`. Without a largest count, hi is None and `top` is empty.
    """

    stationary: Law
    small: tuple[Law, ...] = ()
    lo: int = 0
    hi: int | None = None
    top: tuple[Law, ...] = ()

    def __post_init__(self) -> None:
        if self.hi is None and self.top:
            raise ValueError("laws in `top` need a largest count; set `hi`")
        if self.hi is not None and self.hi < self.lo + max(1, len(self.small) + len(self.top)) - 1:
            raise ValueError("there are more laws in `small` and `top` than counts from lo to hi")

    def _line(self) -> str:
        return f"from {self.lo} on, {len(self.small) + len(self.top)} of their own: {self.stationary!r}"

    @property
    def stationary_from(self) -> int:
        return self.lo + len(self.small)

    def law(self, n: int) -> Law:
        clamped = max(n, self.lo) if self.hi is None else min(max(n, self.lo), self.hi)
        law = self.stationary
        if clamped < self.stationary_from:
            law = self.small[clamped - self.lo]
        elif self.hi is not None and clamped > self.hi - len(self.top):
            law = self.top[clamped - self.hi - 1]
        return law if clamped == n else law.shift(clamped - n)

    @property
    def first_top(self) -> int | None:
        """The least count that has a law in `top`, or None if there is no such law."""
        return None if self.hi is None or not self.top else self.hi - len(self.top) + 1


def distinct_counts(laws: Laws) -> list[int]:
    """Enough counts to meet every law at least once: lo up to the stationary count, and those with a law in `top`."""
    last = laws.stationary_from
    if laws.hi is None:
        return list(range(laws.lo, last + 1))
    counts = list(range(laws.lo, min(last, laws.hi) + 1))
    first_top = getattr(laws, "first_top", None)
    if first_top is not None:
        counts += range(max(first_top, counts[-1] + 1), laws.hi + 1)
    return counts


def neighbour_pairs(laws: Laws, sensitivity: int) -> Iterator[tuple[int, int]]:
    """Pairs of counts (n, n + s), s = 1..sensitivity, whose laws represent those of all neighbouring pairs.

    From the stationary count M on all laws are the same, so (M, M + s) stands for every (n, n + s) with n >= M. If the
    stationary law is unimodal and there is no largest count, the largest s has the largest divergence at every order
    and in both directions (docs/proofs.md), so (M, M + sensitivity) stands for all s. If there is a largest count,
    pairs that reach the laws in `top` are added. Counts outside lo..hi add nothing: each is treated as the
    nearest end, so its pairs have a smaller s.
    """
    starts = set(distinct_counts(laws))
    first_top = getattr(laws, "first_top", None)
    if first_top is not None:
        starts.update(range(max(laws.lo, first_top - sensitivity), first_top))
    last_only = sensitivity > 1 and laws.hi is None and laws.stationary.is_unimodal()
    for n in sorted(starts):
        shifts = (sensitivity,) if last_only and n >= laws.stationary_from else range(1, sensitivity + 1)
        for s in shifts:
            if laws.hi is None or n + s <= laws.hi:
                yield n, n + s
