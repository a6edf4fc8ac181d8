"""The explicit fair mechanism: the true count is published with the same probability, whatever it is.

Cormode, Kulkarni and Srivastava, *Constrained Private Mechanisms for Count Data* (2018), for counts 0..N. With
a = e^-epsilon and m = min(j, N - j), the law of the published count i for the true count j is

    P(i | j) = y a^|i-j| if |i - j| < m,  else y a^ceil((|i-j| + m) / 2).

The exponents of a law are 0 once, then 1, 1, 2, 2, ... up to N/2 twice or, for odd N, (N+1)/2 once: the same in every
law, only in another order. So y does not depend on j, and neither does P(j | j) = y: the mechanism is fair. From j to
j + 1 no exponent changes by more than 1: the mechanism is exactly epsilon-differentially private.
"""

from __future__ import annotations

from decimal import localcontext

from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import PRECISE, SCALE, proposals
from countveil.literature.geometric import powers
from countveil.literature.member import BITS, Member, distance, read_epsilon, text
from countveil.numeric.exact_numbers import Number, integer

LARGEST_N = 1000


def explicit_fair(epsilon: Number, N: int) -> Member:
    """The explicit fair mechanism for counts 0..N: P(Y = n | n) is the same for every count n.

    With a = e^-epsilon, a law gives each published count a probability y a^k with a whole exponent k. The weight of
    each exponent is rounded down, and the true count takes the remainder: all laws sum to 2**192 and are exactly fair.
    """
    value, top = read_epsilon(epsilon), integer("N", N, 1, LARGEST_N)
    exponents = [_exponent(i, 0, top) for i in range(top + 1)]
    with localcontext(PRECISE):
        ladder = powers(value, max(exponents))
        total = sum(ladder[k] for k in exponents)
        proposed = proposals(step / total for step in ladder)
    weights = [v >> (SCALE - BITS) for v in proposed]
    weights[0] += (1 << BITS) - sum(weights[k] for k in exponents)
    laws = [Law(tuple(weights[_exponent(i, j, top)] for i in range(top + 1)), j, BITS) for j in range(top + 1)]
    return Member(
        family="fair",
        name="explicit fair",
        laws=LawsByCount(laws[top // 2], small=tuple(laws), hi=top),
        cut=distance(laws[0], [proposed[k] for k in exponents]),
        parameters={"epsilon": text(value), "N": text(top)},
        notes=("the probability of the exact count is the same for every count; biased near both ends",),
        counts=(0, top),
    )


def _exponent(i: int, j: int, N: int) -> int:
    far, near = abs(i - j), min(j, N - j)
    return far if far < near else (far + near + 1) // 2
