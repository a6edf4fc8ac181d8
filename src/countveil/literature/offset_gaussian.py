"""The offset-symmetric Gaussian of Sadeghi and Korki, on the integers.

*Offset-Symmetric Gaussians for Differential Privacy* (arXiv 2110.06412) takes a Gaussian's tail beyond an offset m and
its mirror image, and puts the two together around zero. Here that density is taken at the integers and normalised
(~ means "proportional to"):

    p(z) ~ exp(-(|z| + m)^2 / (2 s2)) ~ exp(-z^2 / (2 s2) - |z| m / s2).

m = 0 is the discrete Gaussian; if s2 and m grow together, the law tends to the geometric one with a = e^(-m / s2).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.errors import ParameterError
from countveil.laws.rounding import PRECISE, decimal
from countveil.literature.gaussian import cut_off
from countveil.literature.member import Member, cut_off_member
from countveil.numeric.exact_numbers import Number, number


def offset_gaussian(s2: Number, m: Number) -> Member:
    """Noise with probabilities proportional to exp(-(|z| + m)^2 / (2 s2)): a Gaussian without its middle.

    It is cut off where both tails together weigh at most 2**-100.
    """
    scale, offset = _read("s2", s2, Fraction(1, 1000)), _read("m", m, Fraction(0))
    with localcontext(PRECISE):
        half = cut_off(_weights(decimal(scale), decimal(offset)))
    return cut_off_member(
        "offset-gaussian",
        "offset Gaussian",
        half,
        {"s2": scale, "m": offset},
        "the tails of two Gaussians beyond the offset m, between the Gaussian (m = 0) and the geometric law",
    )


def _weights(s2: Decimal, m: Decimal) -> Iterator[tuple[Decimal, Decimal]]:
    """For z = 0, 1, 2, ...: the weight of z relative to that of 0, and the ratio of the next weight to it."""
    ratio, fall, weight = (-(1 + 2 * m) / (2 * s2)).exp(), (-1 / s2).exp(), Decimal(1)
    while True:
        yield weight, ratio
        weight *= ratio
        ratio *= fall


def _read(argument: str, given: object, least: Fraction) -> Fraction:
    allowed = f"a decimal number from {float(least):g} to 1e10"
    value = number(argument, given, allowed)
    if not least <= value <= 10**10:
        raise ParameterError(argument, given, allowed)
    return value
