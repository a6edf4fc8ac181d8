"""The two-sided geometric law (discrete Laplace), its bounded versions, and rounded Laplace noise.

    p(z) = (1 - a) / (1 + a) a^|z|,    a = e^-epsilon,

from Ghosh, Roughgarden and Sundararajan, *Universally Utility-Maximizing Privacy Mechanisms* (2009). It is exactly
epsilon-differentially private at sensitivity 1. Three ways to bound it:

- truncated: the law of Z given |Z| <= D; the outcomes at the edges cost a delta, P(Z = D);
- clamped: Y = n + Z moved to the nearest end of 0..N, the authors' range-restricted mechanism, at no cost in privacy;
- folded: n + Z reflected at the ends, |n + Z| without an upper end, at no cost in privacy either.

The probability of |Z| > R is 2 a^(R+1) / (1 + a).

Its continuous relative is Laplace noise of scale 1/epsilon, here rounded to the nearest integer:

    P(0) = 1 - e^(-epsilon/2),    P(z) = e^(-epsilon |z|) sinh(epsilon/2).

Rounding n + noise is post-processing of the Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006), so the ideal law
is epsilon-differentially private. Samplers are another matter: Mironov, *On Significance of the Least Significant Bits
for Differential Privacy* (2012), shows that the textbook sampler in floating-point numbers is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import PRECISE, decimal, exp
from countveil.literature.member import NEGLIGIBLE, Member, cut_off_member, read_epsilon, symmetric, text
from countveil.numeric.exact_numbers import Number, integer

LARGEST_D = 100_000
LARGEST_N = 10**9
SHORT_RANGE = 300
_OPTIMAL = (
    "among epsilon-private mechanisms optimal for every user who has a prior and a loss that grows with the error, and "
    "remaps the answer (Ghosh, Roughgarden, Sundararajan 2009), and for every minimax user (Gupte, Sundararajan 2010)"
)


def geometric(epsilon: Number) -> Member:
    """The two-sided geometric law: p(z) = (1 - a)/(1 + a) a^|z| with a = e^-epsilon.

    It is cut off where both tails together weigh at most 2**-100.
    """
    value = read_epsilon(epsilon)
    return cut_off_member("geometric", "geometric", _cut_off(value), {"epsilon": value})


def truncated_geometric(epsilon: Number, D: int) -> Member:
    """The geometric law on condition that |Z| <= D. Its `cut` covers rounding only, because no tail is cut off."""
    value, bound = read_epsilon(epsilon), integer("D", D, 1, LARGEST_D)
    law, cut = symmetric(powers(value, bound))
    return Member(
        family="geometric",
        name="truncated geometric",
        laws=LawsByCount(law),
        cut=cut,
        parameters={"epsilon": text(value), "D": text(bound)},
        notes=("renormalised on -D..D: the outcomes at the edge, which a neighbour does not have, are its delta",),
    )


def clamped_geometric(epsilon: Number, N: int | None = None) -> Member:
    """The geometric mechanism on 0..N: n + Z, where values beyond an end of 0..N are released as that end.

    At sensitivity up to N clamping hides nothing: the best test between two neighbours asks whether y is at most some t
    in 0..N-1, and clamping does not change the answer. So the clamped laws have the same delta as the law of Z.
    """
    top = _top(N)
    if top is None:
        return _processed_member("clamped geometric", epsilon, top, lambda y: max(y, 0), (_OPTIMAL,))
    return _processed_member("clamped geometric", epsilon, top, lambda y: min(max(y, 0), top), (_OPTIMAL,))


def folded_geometric(epsilon: Number, N: int | None = None) -> Member:
    """The geometric mechanism with reflection: |n + Z| or, if N is given, n + Z reflected at 0 and N into 0..N.

    Reflection never raises delta, and on a short range it lowers delta. So the delta of the reflected laws is measured
    if N is at most 300; for a larger N, and without N, the delta of Z is taken, which is an upper bound.
    """
    top = _top(N)
    if top is None:
        return _processed_member("folded geometric", epsilon, top, abs, ())
    member = _processed_member("folded geometric", epsilon, top, lambda y: top - abs(y % (2 * top) - top), ())
    return replace(member, source=None, notes=member.notes[:-1]) if top <= SHORT_RANGE else member


def rounded_laplace(epsilon: Number) -> Member:
    """The ideal law of Laplace noise of scale 1/epsilon, rounded to integers.

    It is cut off where both tails together weigh at most 2**-100; the mass beyond R is e^(-epsilon (R + 1/2)).
    """
    value = read_epsilon(epsilon)
    with localcontext(PRECISE):
        root = exp(-value / 2)
        R = reach(value, root)
        sinh = (1 / root - root) / 2
        half = [1 - root, *(sinh * power for power in powers(value, R)[1:])]
    note = "the ideal law: the textbook floating-point sampler has none of this guarantee (Mironov 2012)"
    return cut_off_member("laplace", "rounded Laplace", half, {"epsilon": value}, note)


@dataclass(frozen=True)
class Processed:
    """The laws of f(n + Z) - n, where the map f (`send`) brings a count with noise into 0..hi.

    f is not random, and leaves values in 0..hi alone (all values >= 0 if hi is None). Post-processing costs no privacy,
    so the delta of these laws is at most that of Z at every order. A law is computed on demand, by moving the weights
    beyond an end: there are as many different laws as the noise is wide.
    """

    source: Law
    send: Callable[[int], int]
    hi: int | None = None

    lo = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", lru_cache(maxsize=64)(self.law))

    @property
    def stationary_from(self) -> int:
        """From this count on the map changes nothing, except near the upper end; `hi` if there is no such count."""
        first = self.source.left
        return first if self.hi is None or first + self.source.right <= self.hi else self.hi

    @property
    def first_top(self) -> int | None:
        """The least count whose noise can pass the upper end."""
        return None if self.hi is None else max(0, self.hi - self.source.right + 1)

    @property
    def stationary(self) -> Law:
        return self.source

    def law(self, n: int) -> Law:
        """The law of Y - n; a count n outside 0..hi is moved to its nearest end first."""
        inside = max(n, 0) if self.hi is None else min(max(n, 0), self.hi)
        if inside != n:
            return self.law(inside).shift(inside - n)
        least, greatest = n - self.source.left, n + self.source.right
        if least >= 0 and (self.hi is None or greatest <= self.hi):
            return self.source
        low = max(0, least)
        high = greatest if self.hi is None else min(greatest, self.hi)
        weights = list(self.source.weights[low - least : high - least + 1])
        for y in (*range(least, low), *range(high + 1, greatest + 1)):
            target = self.send(y)
            if target > high:
                weights += [0] * (target - high)
                high = target
            elif target < low:
                weights[:0] = [0] * (low - target)
                low = target
            weights[target - low] += self.source.weights[y - least]
        return Law(tuple(weights), n - low, self.source.bits)


def powers(epsilon: Fraction, R: int) -> list[Decimal]:
    """The powers a^0, a^1, ..., a^R of a = e^-epsilon, as Decimals."""
    with localcontext(PRECISE):
        a = exp(-epsilon)
        falling = [Decimal(1)]
        for _ in range(R):
            falling.append(falling[-1] * a)
        return falling


def reach(epsilon: Fraction, factor: Decimal) -> int:
    """The least R >= 1 with factor * a^R at most 2**-100, where a = e^-epsilon."""
    with localcontext(PRECISE):
        least = (factor / decimal(NEGLIGIBLE)).ln() / decimal(epsilon)
        return max(1, int(least.to_integral_value(ROUND_CEILING)))


def _cut_off(epsilon: Fraction) -> list[Decimal]:
    with localcontext(PRECISE):
        a = exp(-epsilon)
        return powers(epsilon, reach(epsilon, 2 * a / (1 + a)))


def _processed_member(
    name: str, epsilon: Number, N: int | None, send: Callable[[int], int], notes: tuple[str, ...]
) -> Member:
    value = read_epsilon(epsilon)
    source = cut_off_member("geometric", name, _cut_off(value), {"epsilon": value} | ({} if N is None else {"N": N}))
    law = source.laws.stationary
    measured = "delta is measured on the noise before the map to the range: the map cannot raise it"
    notes = (*notes, *source.notes, measured)
    return replace(source, laws=Processed(law, send, N), notes=notes, counts=(0, N), source=law)


def _top(N: int | None) -> int | None:
    return None if N is None else integer("N", N, 1, LARGEST_N)
