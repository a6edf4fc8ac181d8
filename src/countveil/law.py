"""The law of the noise Z for one true count, as integer weights over a power of two.

A law is what is sampled, certified, hashed and charged: `weights[z + left]` of `2**bits` equally
likely integers give the noise z. Probabilities and moments are Fractions derived from the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

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
