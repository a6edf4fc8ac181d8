"""Bounded noise of the literature: truncated Laplace, Laplace on a bounded domain, and the law for many queries.

In all formulas n is the true count, y the released count, z the noise, and ~ means "proportional to".

Truncated Laplace: Geng, Ding, Guo and Kumar, *Tight Analysis of Privacy and Utility Tradeoff in Approximate
Differential Privacy* (2020; arXiv 1810.00877). Density ~ e^(-epsilon |x|) on [-A, A] with

    A = ln(1 + (e^epsilon - 1) / (2 delta)) / epsilon,

here rounded to the nearest integer, which is post-processing: the rounded law keeps the guarantee (epsilon, delta).

Bounded Laplace: Holohan, Antonatos, Braghin and Mac Aonghusa, *The Bounded Laplace Mechanism in Differential Privacy*
(2020). Laplace noise on condition that the answer is within its domain, here on the integers: p(y|n) ~ a^|y - n| on
0..N, normalised for every n. The normalising factors of neighbouring counts differ, so that a must be larger than
e^-epsilon; there is a bias.

Many queries: Dagan and Kur, *A Bounded-Noise Mechanism for Differential Privacy* (COLT 2022; arXiv 2012.03817), show
that bounded noise of magnitude O(sqrt(k log(1/delta)) / epsilon) is enough for k queries. Its density falls doubly
exponentially towards the edges -R and R (`expFunc` of the first author's public code); here it is taken at the
integers:

    p(z) ~ exp(-exp(R^2 / (R^2 - z^2))),    |z| < R.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

from countveil.errors import ParameterError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import PRECISE, SCALE, decimal, exp, proposals
from countveil.literature.geometric import powers
from countveil.literature.member import BITS, NEGLIGIBLE, Member, distance, read_epsilon, symmetric, text
from countveil.numeric.exact_numbers import Number, integer, number

LARGEST_N = 1000
_LOWEST = 10**6
"""exp(-x) counts as zero from this x on: it is then far below the resolution of the weights."""


def truncated_laplace(epsilon: Number, delta: Number) -> Member:
    """Laplace noise truncated to [-A, A] and rounded to integers: (epsilon, delta)-private at sensitivity 1.

    Its density is proportional to e^(-epsilon |x|); the module's docstring gives A.
    """
    value, target = read_epsilon(epsilon), _read("delta", delta, Fraction(1, 10**24), Fraction(499, 1000))
    with localcontext(PRECISE):
        rate = decimal(value)
        A = (1 + (exp(value) - 1) / (2 * decimal(target))).ln() / rate
        edge = max(1, int((A - Decimal("0.5")).to_integral_value(ROUND_CEILING)))
        within = [1 - (-rate * min(A, k + Decimal("0.5"))).exp() for k in range(edge + 1)]
        half = [within[0], *((after - before) / 2 for before, after in pairwise(within))]
    law, cut = symmetric(half)
    return Member(
        family="laplace",
        name="truncated Laplace",
        laws=LawsByCount(law),
        cut=cut,
        parameters={"epsilon": text(value), "delta": text(target)},
        notes=("rounded from the continuous law on [-A, A]; its delta is measured, not the paper's",),
    )


def bounded_laplace(epsilon: Number, N: int) -> Member:
    """Laplace noise on condition that the released count y is in 0..N, for every true count n in 0..N.

    P(y | n) is proportional to e^(-epsilon |y - n|); so `epsilon` is the rate of the noise, not the guarantee. The
    weights are rounded down, and P(n | n) takes the remainder.
    """
    value, top = read_epsilon(epsilon), integer("N", N, 1, LARGEST_N)
    ladder = powers(value, top)
    laws, cut = [], Fraction(0)
    for n in range(top // 2 + 1):
        with localcontext(PRECISE):
            raw = [ladder[abs(y - n)] for y in range(top + 1)]
            total = sum(raw, Decimal(0))
            proposed = proposals(p / total for p in raw)
        weights = [v >> (SCALE - BITS) for v in proposed]
        weights[n] += (1 << BITS) - sum(weights)
        laws.append(Law(tuple(weights), n, BITS))
        cut = max(cut, distance(laws[-1], proposed))
    laws += [laws[top - n].mirror() for n in range(top // 2 + 1, top + 1)]
    return Member(
        family="laplace",
        name="bounded Laplace",
        laws=LawsByCount(laws[top // 2], small=tuple(laws), hi=top),
        cut=cut,
        parameters={"rate": text(value), "N": text(top)},
        notes=("renormalised on 0..N for every count; biased near both ends",),
        counts=(0, top),
    )


def doubly_exponential(R: Number) -> Member:
    """Noise on |z| < R with probabilities proportional to exp(-exp(R^2 / (R^2 - z^2))).

    The outermost values, which together weigh less than 2**-101, are cut off.
    """
    radius = _read("R", R, Fraction(11, 10), Fraction(10**5))
    with localcontext(PRECISE):
        square = decimal(radius * radius)
        half = []
        for z in range(int(radius) + 1):
            inner = square / (square - z * z) if z * z < radius * radius else Decimal(_LOWEST)
            depth = inner.exp() if inner < 100 else Decimal(_LOWEST)
            half.append((1 - depth).exp() if depth < _LOWEST else Decimal(0))
        total, tail = 2 * sum(half, Decimal(0)), Decimal(0)
        for z in range(len(half) - 1, 0, -1):
            tail += 2 * half[z]
            if tail > total * decimal(NEGLIGIBLE) / 4:
                break
            half[z] = Decimal(0)
    law, cut = symmetric(half, NEGLIGIBLE / 2)
    return Member(
        family="doubly exponential",
        name="doubly exponential",
        laws=LawsByCount(law),
        cut=cut,
        parameters={"R": text(radius)},
        notes=("bounded noise for many queries (Dagan, Kur), its density at the integers",),
    )


def _read(argument: str, given: object, low: Fraction, high: Fraction) -> Fraction:
    allowed = f"a decimal number from {float(low):g} to {float(high):g}"
    value = number(argument, given, allowed)
    if not low <= value <= high:
        raise ParameterError(argument, given, allowed)
    return value
