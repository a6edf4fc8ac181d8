"""Signed mechanisms made never negative by a fixed map f at no privacy cost: f(n + Z) is published instead of n + Z.

This is post-processing: the delta of the signed law holds at every order and for any number of answers. Accuracy
changes, and is measured: counts below n0 are biased, and from n0 on the bias is at most `bias_from_n0`; D grows by at
most the furthest move of the map.
"""

from __future__ import annotations

import math
from fractions import Fraction

from countveil.design.remap import map_program
from countveil.design.remap.designer import remap_nearly
from countveil.errors import ParameterError, RequestError
from countveil.laws.law import LawsByCount
from countveil.laws.remap import Remap
from countveil.laws.rounding import SCALE, symmetric_law
from countveil.literature.gaussian import discrete_gaussian
from countveil.mechanism.certificate import NEARLY, Terms
from countveil.mechanism.mechanism import Mechanism, bind
from countveil.numeric.exact_numbers import Number, decimal_text, integer, number

LARGEST_N0 = 100_000
LARGEST_D = 2_000
GAUSSIAN_BITS = 128


def make_nonnegative(
    signed: Mechanism, *, unbiased_from: int | str | None = None, max_bias: Number | None = None
) -> Mechanism:
    """The signed mechanism followed by a map to 0, 1, 2, ...; described at `countveil.design.make_nonnegative`."""
    laws = signed.laws
    if not isinstance(laws, LawsByCount) or laws.small or laws.top or laws.lo or signed.counts != (0, None):
        raise RequestError(
            "only noise that does not depend on n can be made non-negative; design it with policy signed and no counts"
        )
    if laws.stationary.right < 2:
        raise RequestError("noise of at most 1 leaves no room for a map; design it with D of at least 2")
    n0, bias = read_n0(unbiased_from), read_bias(max_bias)
    mapped = remap_nearly(laws.stationary, n0, bias)
    terms = Terms(
        epsilon=signed.epsilon,
        policy="nonnegative",
        method="remap",
        D=mapped.D,
        sensitivity=signed.certificate.sensitivity,
        notes=(
            *signed.notes,
            "made never negative by a fixed random map, which costs no privacy",
            describe_map(mapped),
        ),
        details=details(mapped, n0),
    )
    return bind(mapped, terms)


def gaussian(s2: Number, *, epsilon: Number, D: int | str | None = None, sensitivity: int | str = 1) -> Mechanism:
    """A signed mechanism whose law is the discrete Gaussian of parameter s2, cut off at D.

    By default D is so large that the tails beyond have a probability of at most 2^-100.

    >>> m = gaussian("72", epsilon="1", D=60)
    >>> round(float(m.certificate.variance), 6), m.D
    (72.0, 60)
    """
    at = number("epsilon", epsilon, "a decimal number from 0 to 100")
    if not 0 <= at <= 100:
        raise ParameterError("epsilon", epsilon, "a decimal number from 0 to 100")
    whole = discrete_gaussian(s2).laws.stationary
    bound = min(whole.right, LARGEST_D) if D is None else integer("D", D, 3, LARGEST_D)
    weights = [whole.weight(z) for z in range(min(bound, whole.right) + 1)]
    total = 2 * sum(weights) - weights[0]
    law = symmetric_law([(w << SCALE) // total for w in weights], GAUSSIAN_BITS)
    terms = Terms(
        epsilon=at,
        policy="signed",
        method="gaussian",
        D=law.right,
        sensitivity=integer("sensitivity", sensitivity, 1, 100),
        notes=(f"discrete Gaussian of parameter {decimal_text(Fraction(number('s2', s2)))}, cut at {law.right}",),
    )
    return bind(LawsByCount(law), terms)


def details(laws: Remap, n0: int | None) -> dict[str, object]:
    """The count `n0` from which on the bias is tiny, and the largest |bias| from there. **Guarantee.** Rounded up."""
    start = nearly_unbiased_from(laws) if n0 is None else n0
    return {"n0": start, "bias_from_n0": decimal_text(map_program.bias_from(laws, start), rounding="up")}


def nearly_unbiased_from(laws: Remap) -> int:
    """The least count from which on the size of the bias is at most a thousandth of the standard deviation."""
    limit = math.floor(laws.source.variance / NEARLY**2 * (1 << 2 * laws.bits))
    large = [n for n, units in enumerate(laws.residues) if units**2 > limit]
    return large[-1] + 1 if large else 0


def describe_map(laws: Remap) -> str:
    """A sentence for the notes of a mechanism that says what its map does to small outcomes."""
    moves = [y - j for j, row in enumerate(laws.rows) for y, _ in row]
    up, down = max(0, *moves), max(0, *(-move for move in moves))
    ups = f" and up by at most {up}" if up else ""
    return f"outcomes below 0 become 0; outcomes up to {laws.T} are moved down by at most {down}{ups}, at random"


def read_n0(unbiased_from: object) -> int | None:
    return None if unbiased_from is None else integer("unbiased_from", unbiased_from, 1, LARGEST_N0)


def read_bias(max_bias: object) -> Fraction | None:
    if max_bias is None:
        return None
    allowed = "a decimal number from 1e-9 to 1"
    value = number("max_bias", max_bias, allowed)
    if not Fraction(1, 10**9) <= value <= 1:
        raise ParameterError("max_bias", max_bias, allowed, "for a bias of exactly zero use design --method remap")
    return value
