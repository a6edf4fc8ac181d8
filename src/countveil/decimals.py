"""High-precision decimals for proposals: e^epsilon to 120 digits, with exponents that cannot overflow.

Nothing computed here is a guarantee. Proposals are rounded to integers and measured by `certify`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

from countveil.rounding import SCALE

PRECISE = Context(prec=120, Emax=MAX_EMAX, Emin=MIN_EMIN)


def decimal(x: Fraction) -> Decimal:
    """x to 120 digits."""
    return PRECISE.divide(Decimal(x.numerator), Decimal(x.denominator))


def fraction(x: Decimal) -> Fraction:
    """x to the proposals' resolution of 2**-SCALE."""
    return Fraction(_proposal(x), 1 << SCALE)


def exp(epsilon: Fraction) -> Decimal:
    """e^epsilon to 120 digits."""
    return PRECISE.exp(decimal(epsilon))


def proposals(values: Iterable[Decimal]) -> list[int]:
    """Probabilities as integers over 2**SCALE, as `rounding` takes them."""
    return [_proposal(value) for value in values]


def _proposal(value: Decimal) -> int:
    return max(0, int(PRECISE.multiply(value, _UNIT)))


_UNIT = Decimal(1 << SCALE)
