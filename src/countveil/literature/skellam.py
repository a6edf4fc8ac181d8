"""Skellam noise: the difference of two Poisson counts of mean V/2 each.

    p(z) = e^-V I_|z|(V),    I the modified Bessel function,

from Agarwal, Kairouz and Liu, *The Skellam Mechanism for Differentially Private Federated Learning* (arXiv 2110.04995).
It was proposed for noise to which many parties contribute: sums of Skellam noise are Skellam noise. One curator has no
use for that: for one answer the geometric law needs far less variance, for many answers Skellam noise is close to the
Gaussian.

The Bessel functions are computed by Miller's recurrence I_(k-1) = I_(k+1) + (2 k / V) I_k, downwards from far beyond
the noise, and normalised by I_0 + 2 (I_1 + I_2 + ...) = e^V. All terms are positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.errors import ParameterError
from countveil.laws.rounding import PRECISE, decimal
from countveil.literature.gaussian import cut_off
from countveil.literature.member import Member, cut_off_member
from countveil.numeric.exact_numbers import Number, number


def skellam(V: Number) -> Member:
    """Skellam noise of variance V, cut off where both tails together weigh at most 2**-100."""
    allowed = "a decimal number from 0.001 to 1e5"
    variance = number("V", V, allowed)
    if not Fraction(1, 1000) <= variance <= 10**5:
        raise ParameterError("V", V, allowed)
    with localcontext(PRECISE):
        half = cut_off(_weights(variance))
    note = "made for noise that many parties add together"
    return cut_off_member("skellam", "Skellam", half, {"V": variance}, note)


def _weights(V: Fraction) -> Iterator[tuple[Decimal, Decimal]]:
    """For z = 0, 1, 2, ...: the Bessel function I_z(V) up to a constant, and the ratio I_(z+1)(V) / I_z(V).

    This ratio falls with z.
    """
    x = decimal(V)
    last = math.ceil(40 * math.sqrt(V)) + 200
    table = [Decimal(0)] * (last + 2)
    table[last] = Decimal(1)
    for k in range(last, 0, -1):
        table[k - 1] = table[k + 1] + 2 * k / x * table[k]
    for z in range(last):
        yield table[z], table[z + 1] / table[z]
