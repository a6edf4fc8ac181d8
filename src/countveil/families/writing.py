"""Writing an ideal law as integer weights, with a bound on what that changes; and reading parameters.

A family's formula is evaluated to 120 digits, on a finite support. Let q be the ideal law conditioned on that support
(for unbounded noise, the law with its tails cut off) and t the ideal mass beyond it: their total variation distance is
t. The weights w come from the proposals v = floor(2**256 q), each off by less than one unit, decimal errors included.
So the distance of the weights to the ideal law is at most

    t + (1/2) sum |w / 2**192 - v / 2**256| + cells / 2**256,

where the middle term is computed exactly, in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.errors import ParameterError
from countveil.exact import decimal_text, number
from countveil.families.member import BITS
from countveil.law import Law
from countveil.rounding import PRECISE, SCALE, proposals, symmetric_law

SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 1000), Fraction(100)


def epsilon_given(given: object, argument: str = "epsilon") -> Fraction:
    """epsilon as a Fraction, within what comparators are written out for."""
    allowed = "a decimal number from 0.001 to 100"
    epsilon = number(argument, given, allowed)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ParameterError(argument, given, allowed)
    return epsilon


def text(value: Fraction | int) -> str:
    """A parameter as it is shown and stored."""
    return decimal_text(Fraction(value), 40)


def symmetric(half: Sequence[Decimal], tail: Fraction = Fraction(0)) -> tuple[Law, Fraction]:
    """The law with P(Z = i) = P(Z = -i) proportional to half[i], i = 0..R, and its distance to the ideal law at most.

    `tail` is at least the ideal mass of |Z| > R.
    """
    with localcontext(PRECISE):
        total = 2 * sum(half, Decimal(0)) - half[0]
        proposed = proposals(value / total for value in half)
    law = symmetric_law(proposed, BITS)
    return law, tail + distance(law, [*proposed[:0:-1], *proposed])


def distance(law: Law, proposed: Sequence[int]) -> Fraction:
    """At most the total variation distance between a law and the 120-digit one its proposals came from."""
    spare = SCALE - law.bits
    moved = sum(abs((w << spare) - v) for w, v in zip(law.weights, proposed, strict=True))
    return Fraction(moved + 2 * len(proposed), 2 << SCALE)
