"""The discrete Gaussian of Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy* (2020).

    p(z) = exp(-z^2 / (2 s2)) / sum_y exp(-y^2 / (2 s2)), z an integer.

The parameter s2 is not the variance: by Poisson's summation formula their relative difference is about 8 pi^2 s2 exp(-2
pi^2 s2). That is negligible from s2 = 1 on but large for small s2 (s2 = 0.2660 has variance 0.2370). For a comparison
at equal variance, `parameter_for_variance` therefore finds the s2 that has a given variance.

The truncated Gaussian is the law given |Z| <= D.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import islice

from countveil.errors import ParameterError
from countveil.laws.law import LawsByCount
from countveil.laws.rounding import PRECISE, decimal
from countveil.literature.member import NEGLIGIBLE, Member, cut_off_member, symmetric, text
from countveil.numeric.exact_numbers import Number, integer, number

_SOLVING = Context(prec=60, Emax=PRECISE.Emax, Emin=PRECISE.Emin)
LARGEST_D = 100_000
_LARGE = 10
"""From this variance on, the variance and the parameter s2 agree to more than 80 digits."""


def discrete_gaussian(s2: Number) -> Member:
    """The discrete Gaussian: probabilities proportional to exp(-z^2 / (2 s2)) on the integers.

    It is cut off where both tails together weigh at most 2**-100.
    """
    parameter = _positive("s2", s2)
    with localcontext(PRECISE):
        half = cut_off(_weights(1 / (2 * decimal(parameter))))
    note = "s2 is the parameter, not the variance; they differ where s2 is small"
    return cut_off_member("gaussian", "discrete Gaussian", half, {"s2": parameter}, note)


def truncated_gaussian(s2: Number, D: int) -> Member:
    """The discrete Gaussian on condition that |Z| <= D. Its `cut` covers rounding only, because no tail is cut off."""
    parameter, bound = _positive("s2", s2), integer("D", D, 1, LARGEST_D)
    with localcontext(PRECISE):
        half = [weight for weight, _ in islice(_weights(1 / (2 * decimal(parameter))), bound + 1)]
    law, cut = symmetric(half)
    return Member(
        family="gaussian",
        name="truncated Gaussian",
        laws=LawsByCount(law),
        cut=cut,
        parameters={"s2": text(parameter), "D": text(bound)},
        notes=("renormalised on -D..D: the outcomes at the edge, which a neighbour does not have, add to delta",),
    )


def cut_off(weights: Iterator[tuple[Decimal, Decimal]]) -> list[Decimal]:
    """The weights of z = 0..R of a symmetric law, where both tails beyond R together hold at most 2**-100 of the mass.

    `weights` yields for z = 0, 1, 2, ... the weight p(z), up to a constant factor, and the ratio p(z + 1) / p(z), which
    must fall with z. So the mass beyond R is at most 2 p(R + 1) / (1 - p(R + 2) / p(R + 1)).
    """
    limit, total = decimal(NEGLIGIBLE), Decimal(0)
    half: list[Decimal] = []
    for weight, ratio in weights:
        if len(half) > 1 and ratio < 1 and 2 * weight <= limit * (1 - ratio) * total:
            break
        half.append(weight)
        total += weight if len(half) == 1 else 2 * weight
    return half


def parameter_for_variance(V: Number) -> Fraction:
    """The parameter s2 with which the discrete Gaussian has the variance V, to 40 digits.

    Newton's method solves for x = 1/(2 s2), with ln(variance) as the function; d variance / dx = -Var(Z^2).

    >>> from countveil.numeric.exact_numbers import decimal_text
    >>> decimal_text(parameter_for_variance("0.25"), 10), decimal_text(parameter_for_variance("4"), 10)
    ('0.2757499847', '4')
    """
    variance = _positive("V", V, "1e-30")
    if variance >= _LARGE:
        return variance
    with localcontext(_SOLVING):
        target = decimal(variance)
        x = (2 / target).ln() if variance < Fraction(1, 3) else 1 / (2 * target)
        step = Decimal(1)
        while abs(step) > Decimal("1e-45"):
            second, fourth = _moments(x)
            step = (second / target).ln() * second / (fourth - second * second)
            x += max(step, -x / 2)
        return Fraction(str((1 / (2 * x)).normalize(Context(prec=40))))


def _moments(x: Decimal) -> tuple[Decimal, Decimal]:
    """E Z^2 and E Z^4 of the law with probabilities proportional to exp(-x z^2), in the current decimal context."""
    total, second, fourth = Decimal(1), Decimal(0), Decimal(0)
    for z, (weight, _) in enumerate(islice(_weights(x), 1, None), start=1):
        total += 2 * weight
        second += 2 * z * z * weight
        fourth += 2 * z**4 * weight
        if z**4 * weight < second * Decimal("1e-55"):
            break
    return second / total, fourth / total


def _weights(x: Decimal) -> Iterator[tuple[Decimal, Decimal]]:
    """For z = 0, 1, 2, ...: the weight exp(-x z^2), and the ratio of the next weight to it.

    This ratio falls by the factor exp(-2x) at every step.
    """
    ratio = (-x).exp()
    fall = ratio * ratio
    weight = Decimal(1)
    while True:
        yield weight, ratio
        weight *= ratio
        ratio *= fall


def _positive(argument: str, given: object, least: str = "0.001") -> Fraction:
    allowed = f"a decimal number from {least} to 1e8"
    value = number(argument, given, allowed)
    if not Fraction(least) <= value <= 10**8:
        raise ParameterError(argument, given, allowed)
    return value
