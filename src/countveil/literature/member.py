"""A member of a family of mechanisms: its laws as integer weights, and how far those are from the ideal laws.

The mechanisms of the literature are given by formulas with irrational values and, often, unbounded noise. To be
measured by the same exact code as ours, each is written as laws with integer weights. `cut` bounds the resulting error:
it is at least the total variation distance between a law and the ideal law of Y - n, from cut-off tails and rounding.

A family's formula is evaluated to 120 digits, on a finite support. Let q be the ideal law conditioned on that support
(for unbounded noise, the law with its tails cut off) and t the ideal mass outside it: the total variation distance of q
to the ideal law is t. The weights w are rounded from v = floor(2**256 q), each off by less than one unit, decimal
errors included. So the distance of the weights to the ideal law is at most

    t + (1/2) sum |w / 2**192 - v / 2**256| + cells / 2**256,

where the middle term is computed exactly, in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.errors import ParameterError
from countveil.laws import privacy
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.laws.rounding import PRECISE, SCALE, proposals, symmetric_law
from countveil.numeric.exact_numbers import decimal_text, number

BITS = 192
"""Weights of members are over 2**192: rounding is far below every delta that is compared."""

NEGLIGIBLE = Fraction(1, 2**100)
"""Unbounded laws are cut off where the mass of both tails together is at most this."""
SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 1000), Fraction(100)


@dataclass(frozen=True)
class Member:
    """One mechanism of a family, ready to be measured.

    `counts` are the true counts it is defined for: (0, None) for all, (0, N) for mechanisms on a bounded range.
    `source`, if given, is the law of the noise before post-processing. Delta is then measured on `source`:
    post-processing cannot raise it, and counts that post-processing does not change attain it.
    """

    family: str
    name: str
    laws: Laws
    cut: Fraction
    parameters: dict[str, str]
    notes: tuple[str, ...] = ()
    counts: tuple[int, int | None] = field(default=(0, None))
    source: Law | None = None

    def delta(self, order: Fraction, sensitivity: int = 1) -> Fraction:
        """The exact delta of the laws (of `source`, if given) plus cut * (1 + E).

        **Guarantee.** An upper bound for the ideal mechanism: moving a mass t in both laws of a pair changes their
        divergence at order E by at most t * (1 + E).
        """
        measured_on = self.laws if self.source is None else LawsByCount(self.source)
        measured = privacy.delta(measured_on, order, sensitivity).value
        return min(Fraction(1), measured + self.cut * (1 + order))


def cut_off_member(
    family: str, name: str, half: Sequence[Decimal], parameters: dict[str, Fraction | int], *notes: str
) -> Member:
    """Unbounded noise independent of n, P(Z = i) = P(Z = -i) ~ half[i], cut off where 2**-100 of mass is left."""
    law, cut = symmetric(half, NEGLIGIBLE)
    given = {key: text(value) for key, value in parameters.items()}
    beyond = f"unbounded: cut off at +-{law.right}; the mass beyond, at most 2^-100, is added to delta"
    return Member(family, name, LawsByCount(law), cut, given, (beyond, *notes))


def read_epsilon(given: object) -> Fraction:
    """epsilon as a Fraction, within the range that members support."""
    allowed = "a decimal number from 0.001 to 100"
    epsilon = number("epsilon", given, allowed)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ParameterError("epsilon", given, allowed)
    return epsilon


def text(value: Fraction | int) -> str:
    """A parameter as a decimal text, for display and JSON."""
    return decimal_text(Fraction(value), 40)


def symmetric(half: Sequence[Decimal], tail: Fraction = Fraction(0)) -> tuple[Law, Fraction]:
    """The law with P(Z = i) = P(Z = -i) ~ half[i], i = 0..R, and an upper bound on its distance to the ideal law.

    `tail` is at least the ideal mass of |Z| > R.
    """
    with localcontext(PRECISE):
        total = 2 * sum(half, Decimal(0)) - half[0]
        proposed = proposals(value / total for value in half)
    law = symmetric_law(proposed, BITS)
    return law, tail + distance(law, [*proposed[:0:-1], *proposed])


def distance(law: Law, proposed: Sequence[int]) -> Fraction:
    """An upper bound on the total variation distance between a law and the 120-digit law of its proposals."""
    spare = SCALE - law.bits
    moved = sum(abs((w << spare) - v) for w, v in zip(law.weights, proposed, strict=True))
    return Fraction(moved + 2 * len(proposed), 2 << SCALE)
