"""The discrete staircase for counts that one person changes by up to d.

    p(i) = A for 0 <= i < r,  A b for r <= i < d,  b p(i - d) for i >= d,  p(-i) = p(i),    b = e^-epsilon,
    A = (1 - b) / (2 r + 2 b (d - r) - (1 - b)),

from Geng and Viswanath, *The Optimal Noise-Adding Mechanism in Differential Privacy* (2016): for integer queries of
sensitivity d, some r in 1..d is optimal among all epsilon-differentially private additive noise, for every symmetric
increasing loss. d = 1 is the geometric law.

The probability of |Z| >= K d is 2 A b^K (r + b (d - r)) / (1 - b).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.laws.rounding import PRECISE, exp
from countveil.literature.geometric import powers, reach
from countveil.literature.member import Member, cut_off_member, read_epsilon
from countveil.numeric.exact_numbers import Number, integer

LARGEST_SENSITIVITY = 100


def staircase(epsilon: Number, sensitivity: int, r: int | None = None) -> Member:
    """The staircase noise for epsilon at the given sensitivity d: in each step of d values, the first r are likelier.

    It is cut off after a whole step. Without r, the r that gives the least variance is chosen.
    """
    value = read_epsilon(epsilon)
    d = integer("sensitivity", sensitivity, 1, LARGEST_SENSITIVITY)
    chosen = best_r(value, d) if r is None else integer("r", r, 1, d)
    with localcontext(PRECISE):
        b = exp(-value)
        broad = chosen + b * (d - chosen)
        steps = reach(value, 2 * broad / (2 * broad - (1 - b)))  # 2 A broad / (1 - b)
        heights = powers(value, steps)
        half = [heights[k if i < chosen else k + 1] for k in range(steps) for i in range(d)]
    return cut_off_member(
        "staircase",
        "staircase",
        half if len(half) > 1 else heights,
        {"epsilon": value, "sensitivity": d, "r": chosen},
        f"epsilon holds for counts that one person changes by up to {d}",
        *(("r was chosen for least variance",) if r is None else ()),
    )


def best_r(epsilon: Fraction, d: int) -> int:
    """The r in 1..d for which the staircase has the least variance; if several have it, the smallest.

    >>> best_r(Fraction(1), 1), best_r(Fraction(2), 10), best_r(Fraction(1, 10), 10)
    (1, 4, 5)
    """
    return min(range(1, d + 1), key=lambda r: _variance(epsilon, d, r))


def _variance(epsilon: Fraction, d: int, r: int) -> Decimal:
    """The variance of the staircase with these parameters, in closed form.

    It is 2 A sum_k b^k (sum over 0 <= i < r, plus b times the sum over r <= i < d, of (k d + i)^2), with b =
    e^-epsilon.
    """
    with localcontext(PRECISE):
        b = exp(-epsilon)
        A = (1 - b) / (2 * r + 2 * b * (d - r) - (1 - b))
        count = r + b * (d - r)
        first = sum(range(r)) + b * sum(range(r, d))
        second = sum(i * i for i in range(r)) + b * sum(i * i for i in range(r, d))
        once, twice = b / (1 - b) ** 2, b * (1 + b) / (1 - b) ** 3
        return 2 * A * (d * d * twice * count + 2 * d * once * first + second / (1 - b))
