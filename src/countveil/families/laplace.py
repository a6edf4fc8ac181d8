"""Continuous Laplace noise of scale 1/epsilon, rounded to the nearest integer.

    P(0) = 1 - e^(-epsilon/2),    P(z) = e^(-epsilon |z|) sinh(epsilon/2).

Rounding n + noise is post-processing of the Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006), so the ideal law
is epsilon-differentially private. Samplers are another matter: Mironov, *On Significance of the Least
Significant Bits for Differential Privacy* (2012), shows that the textbook sampler in floating-point numbers is not.
"""

from __future__ import annotations

from decimal import localcontext

from countveil.decimals import PRECISE, exp
from countveil.exact import Number
from countveil.families.geometric import powers, reach
from countveil.families.member import NEGLIGIBLE, Member
from countveil.families.writing import epsilon_given, symmetric, text
from countveil.law import Columns


def rounded_laplace(epsilon: Number) -> Member:
    """The ideal law of round(Laplace(1/epsilon)), cut off where both tails together weigh at most 2**-100.

    The mass beyond R is e^(-epsilon (R + 1/2)).
    """
    value = epsilon_given(epsilon)
    with localcontext(PRECISE):
        root = exp(-value / 2)
        R = reach(value, root)
        sinh = (1 / root - root) / 2
        half = [1 - root, *(sinh * power for power in powers(value, R)[1:])]
    law, cut = symmetric(half, NEGLIGIBLE)
    return Member(
        family="laplace",
        name="rounded Laplace",
        columns=Columns(law),
        cut=cut,
        parameters={"epsilon": text(value)},
        notes=(
            f"unbounded: cut off at +-{R}; the mass beyond, at most 2^-100, is added to delta",
            "the ideal law: the textbook floating-point sampler has none of this guarantee (Mironov 2012)",
        ),
    )
