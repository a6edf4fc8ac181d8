"""A member of a family of mechanisms: its laws as integer weights, and how far those are from the ideal laws.

The mechanisms of the literature are given by formulas with irrational values and, often, unbounded noise. To be
measured by the same exact code as ours, each is written as laws with integer weights. `cut` bounds the resulting error,
from cut-off tails and rounding: the total variation distance between a law and the ideal law of Y - n is at most `cut`.

A family's formula is evaluated to 120 digits, on a finite support. Let q be the ideal law conditioned on that support
(for unbounded noise, the law with its tails cut off) and t the ideal probability outside it: the total variation
distance between q and the ideal law is t. Let v = floor(2**256 q); each v is off by less than one unit, decimal errors
included. The weights w are rounded from v. So the distance of the weights to the ideal law is at most

    t + (1/2) sum |w / 2**192 - v / 2**256| + (number of outcomes) / 2**256,

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
"""The weights of a mechanism of the literature sum to 2**192: rounding is far below every delta that is compared."""

NEGLIGIBLE = Fraction(1, 2**100)
"""Unbounded laws are cut off where both tails together have at most this probability."""
SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 1000), Fraction(100)


@dataclass(frozen=True)
class Member:
    """One mechanism of a family, ready to be measured.

    `cut` bounds the distance between its laws and the ideal ones. `counts` are the true counts that it is defined for:
    (0, None) for all, (0, N) for a bounded range. `source`, if given, is the law of the noise before post-processing.
    Delta is then measured on `source`: post-processing cannot raise delta, and counts that it does not change have
    exactly that delta.
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
        """An upper bound on the delta of the ideal mechanism at the order E = e^epsilon.

        It is the exact delta of the laws (of `source`, if given) plus cut * (1 + E). **Guarantee.** An upper bound for
        the ideal mechanism: moving a probability t in both laws of a pair changes their divergence at order E by at
        most t * (1 + E).
        """
        measured_on = self.laws if self.source is None else LawsByCount(self.source)
        measured = privacy.delta(measured_on, order, sensitivity).value
        return min(Fraction(1), measured + self.cut * (1 + order))


def cut_off_member(
    family: str, name: str, half: Sequence[Decimal], parameters: dict[str, Fraction | int], *notes: str
) -> Member:
    """A member whose noise is symmetric, unbounded and the same for every count.

    P(Z = i) and P(Z = -i) are proportional to half[i]; at most 2**-100 of the probability is beyond the last entry.
    """
    law, cut = symmetric(half, NEGLIGIBLE)
    given = {key: text(value) for key, value in parameters.items()}
    beyond = f"unbounded: cut off at +-{law.right}; the mass beyond, at most 2^-100, is added to delta"
    return Member(family, name, LawsByCount(law), cut, given, (beyond, *notes))


def read_epsilon(given: object) -> Fraction:
    """epsilon as a Fraction, checked to be in the range that the mechanisms of the literature support here."""
    allowed = "a decimal number from 0.001 to 100"
    epsilon = number("epsilon", given, allowed)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ParameterError("epsilon", given, allowed)
    return epsilon


def text(value: Fraction | int) -> str:
    """A parameter as a decimal text, for display and JSON."""
    return decimal_text(Fraction(value), 40)


def symmetric(half: Sequence[Decimal], tail: Fraction = Fraction(0)) -> tuple[Law, Fraction]:
    """The law with P(Z = i) = P(Z = -i) proportional to half[i], and a bound on its distance from the ideal law.

    `tail` is an upper bound on the ideal probability beyond the last entry of `half`. The distance is that in total
    variation.
    """
    with localcontext(PRECISE):
        total = 2 * sum(half, Decimal(0)) - half[0]
        proposed = proposals(value / total for value in half)
    law = symmetric_law(proposed, BITS)
    return law, tail + distance(law, [*proposed[:0:-1], *proposed])


def distance(law: Law, proposed: Sequence[int]) -> Fraction:
    """An upper bound on the total variation distance between a law and the probabilities it was rounded from.

    `proposed` are these probabilities times 2**256, rounded down.
    """
    spare = SCALE - law.bits
    moved = sum(abs((w << spare) - v) for w, v in zip(law.weights, proposed, strict=True))
    return Fraction(moved + 2 * len(proposed), 2 << SCALE)
