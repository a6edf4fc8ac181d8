"""The two-sided geometric law (discrete Laplace) and what is made of it.

    p(z) = (1 - a) / (1 + a) a^|z|,    a = e^-epsilon,

from Ghosh, Roughgarden and Sundararajan, *Universally Utility-Maximizing Privacy Mechanisms* (2009). It is exactly
epsilon-differentially private at sensitivity 1. Three ways to bound it:

- truncated: the law of Z given |Z| <= D; the edges cost a delta, P(Z = D);
- clamped: Y = n + Z moved to the nearest end of 0..N, the authors' range-restricted mechanism, at no cost in privacy;
- folded: n + Z reflected at the ends, |n + Z| without an upper end, at no cost in privacy either.

The mass of |Z| > R is 2 a^(R+1) / (1 + a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from countveil.exact import Number, integer
from countveil.families.member import NEGLIGIBLE, Member, epsilon_given, symmetric, text, unbounded
from countveil.families.processed import Processed
from countveil.law import Columns
from countveil.rounding import PRECISE, decimal, exp

LARGEST_D = 100_000
LARGEST_N = 10**9
SHORT_RANGE = 300
_OPTIMAL = (
    "optimal for every user with a prior and a loss that grows with the error (Ghosh, Roughgarden, Sundararajan 2009), "
    "and for every minimax user (Gupte, Sundararajan 2010)"
)


def geometric(epsilon: Number) -> Member:
    """p(z) = (1 - a)/(1 + a) a^|z|, cut off where both tails together weigh at most 2**-100."""
    value = epsilon_given(epsilon)
    return unbounded("geometric", "geometric", _cut_off(value), {"epsilon": value})


def truncated_geometric(epsilon: Number, D: int) -> Member:
    """The geometric law given |Z| <= D; `cut` is rounding only."""
    value, bound = epsilon_given(epsilon), integer("D", D, 1, LARGEST_D)
    law, cut = symmetric(powers(value, bound))
    return Member(
        family="geometric",
        name="truncated geometric",
        columns=Columns(law),
        cut=cut,
        parameters={"epsilon": text(value), "D": text(bound)},
        notes=("renormalised on -D..D: the outcomes at the edge, which a neighbour does not have, are its delta",),
    )


def clamped_geometric(epsilon: Number, N: int | None = None) -> Member:
    """Y = min(max(n + Z, 0), N): mass beyond an end goes to that end.

    At sensitivity up to N the clamp hides nothing: two neighbours are told apart best by whether y is at most some t in
    0..N-1, which clamping does not change. So the source law's delta is that of the columns too.
    """
    top = _top(N)
    if top is None:
        return _bounded("clamped geometric", epsilon, top, lambda y: max(y, 0), (_OPTIMAL,))
    return _bounded("clamped geometric", epsilon, top, lambda y: min(max(y, 0), top), (_OPTIMAL,))


def folded_geometric(epsilon: Number, N: int | None = None) -> Member:
    """Y = |n + Z|, reflected at N too if N is given (as often as needed).

    Folding on a short range hides something, so there the columns themselves are measured.
    """
    top = _top(N)
    if top is None:
        return _bounded("folded geometric", epsilon, top, abs, ())
    member = _bounded("folded geometric", epsilon, top, lambda y: top - abs(y % (2 * top) - top), ())
    return replace(member, source=None, notes=member.notes[:-1]) if top <= SHORT_RANGE else member


def powers(epsilon: Fraction, R: int) -> list[Decimal]:
    """a^0, ..., a^R."""
    with localcontext(PRECISE):
        a = exp(-epsilon)
        found = [Decimal(1)]
        for _ in range(R):
            found.append(found[-1] * a)
        return found


def reach(epsilon: Fraction, factor: Decimal) -> int:
    """The least R >= 1 with factor * a^R at most 2**-100."""
    with localcontext(PRECISE):
        least = (factor / decimal(NEGLIGIBLE)).ln() / decimal(epsilon)
        return max(1, int(least.to_integral_value(ROUND_CEILING)))


def _cut_off(epsilon: Fraction) -> list[Decimal]:
    with localcontext(PRECISE):
        a = exp(-epsilon)
        return powers(epsilon, reach(epsilon, 2 * a / (1 + a)))


def _bounded(name: str, epsilon: Number, N: int | None, send: Callable[[int], int], notes: tuple[str, ...]) -> Member:
    value = epsilon_given(epsilon)
    source = unbounded("geometric", name, _cut_off(value), {"epsilon": value} | ({} if N is None else {"N": N}))
    law = source.columns.stationary
    measured = "delta is measured on the noise before the map to the range: the map cannot raise it"
    notes = (*notes, *source.notes, measured)
    return replace(source, columns=Processed(law, send, N), notes=notes, counts=(0, N), source=law)


def _top(N: int | None) -> int | None:
    return None if N is None else integer("N", N, 1, LARGEST_N)
