"""An unbiased count that is almost never negative, by post-processing the geometric law.

Hillebrand, Imola, Pagh and Sejer, *Privacy by Postprocessing the Discrete Laplace Mechanism* (arXiv 2605.06502): let X
= n + Z with geometric noise, P(Z = z) proportional to a^|z|. For every function f that grows slower than a^-|x|,

    g(x) = f(x) - a / (1 - a)^2 (f(x + 1) - 2 f(x) + f(x - 1))

has E g(X) = f(n). With f(x) = max(x, 0) this publishes X itself for X >= 1, 0 for X < 0, and the negative number -a /
(1 - a)^2 for X = 0: the price of no bias at any n >= 0. Here that number is rounded at random to one of the two
integers around it, which keeps the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, localcontext
from fractions import Fraction

from countveil.laws.law import Law
from countveil.laws.rounding import PRECISE, SCALE, exp, proposals
from countveil.literature.geometric import geometric
from countveil.literature.member import BITS, Member, read_epsilon, text
from countveil.numeric.exact_numbers import Number


def unbiased_geometric(epsilon: Number) -> Member:
    """A mechanism without bias at any count: geometric noise, and a map that corrects the bias of max(n + Z, 0).

    Its delta is that of the geometric noise. The module's docstring gives the map.
    """
    value = read_epsilon(epsilon)
    source = geometric(value)
    noise = source.laws.stationary
    with localcontext(PRECISE):
        a = exp(-value)
        depth = a / (1 - a) ** 2
        deep = int(depth.to_integral_value(ROUND_CEILING))
        share = Fraction(proposals([depth - (deep - 1)])[0], 1 << SCALE)  # the share of X = 0 that goes to -deep
    return Member(
        family="geometric",
        name="unbiased geometric",
        laws=UnbiasedLaws(noise, deep, share),
        cut=source.cut + Fraction(1, 1 << (BITS - 1)),
        parameters={"epsilon": text(value)},
        notes=(
            f"no bias at any count; a noisy 0 is published as {-deep} or {1 - deep}, negative noisy counts as 0",
            *source.notes,
        ),
        source=noise,
    )


@dataclass(frozen=True)
class UnbiasedLaws:
    """The laws of Y - n, where the released count Y is made from X = n + Z by a fixed map.

    X < 0 becomes 0; X = 0 becomes -deep with probability `share`, else 1 - deep; all other X stay.
    """

    source: Law
    deep: int
    share: Fraction

    lo = 0
    hi = None

    @property
    def stationary_from(self) -> int:
        """From this count on X = n + Z is always positive, so that the map changes nothing."""
        return self.source.left + 1

    @property
    def stationary(self) -> Law:
        return self.source

    def law(self, n: int) -> Law:
        """The law of Y - n for the true count n; a negative count is treated as 0."""
        if n < 0:
            return self.law(0).shift(-n)
        if n > self.source.left:
            return self.source
        weights = [0] * (self.deep + n + self.source.right + 1)  # of y = -deep, ..., n + right
        for z, weight in self.source.items():
            x = n + z
            if x == 0:
                low = int(weight * self.share)
                weights[0] += low
                weights[1] += weight - low
            else:
                weights[self.deep + max(x, 0)] += weight
        return Law(tuple(weights), self.deep + n, self.source.bits)
