"""How far small positive outcomes are pulled down, to cancel the bias of sending negative ones to 0.

Let n be the true count, q the law of the signed noise, and Y' = n + Z the signed count. Y' is published as 0 where it
is negative, and as y' - g(y') on average for y' = 1..T. The bias at count n is

    b(n) = sum_{y' < 0} q(y' - n) (-y')  -  sum_{j=1..T} q(j - n) g(j),        0 <= g(j) <= j.

**Geometric sides**: q(-i) = c a^i for i >= onset. Then b(n) = c a^n (a/(1-a)^2 - sum_j a^-j g(j)) for every n >= T +
onset, so one equation makes all laws unbiased from n0 = T + onset on. Among its solutions we take the one of least
total mean squared error over all n. Pulling j by its k-th unit costs (2k - 1) Q_j + 2 t_j, with Q_j = P(Z <= j) and t_j
= sum_{i > j} i q(i), and contributes a^-j to the sum. Units may be divided, so it is best to take those of least cost
per contribution first (a fractional knapsack).

**Any other law**: a small linear program minimises the largest |b(n)| for n >= n0.

Floats are precise enough here: the remaining bias is measured exactly, and removed where zero is required.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from countveil.laws.law import Law
from countveil.numeric.linear_program import Program
from countveil.numeric.search import bisect

Floats = NDArray[np.float64]
FAR = 300.0
"""If powers of the ratio would exceed e^300, near the limit of floats, all of them are divided by the largest one."""
FLAT = 1e-6
"""A relative tolerance: ratios that differ by less count as equal, and sides that fall by less per outcome as flat."""


def geometric_need(ratio: float) -> float:
    """The total that pulls must reach to cancel the bias: a/(1-a)^2, where a is `ratio`.

    Pulling the outcome j down by g(j) adds a^-j g(j) to the total.
    """
    return ratio / (1 - ratio) ** 2


def least_T(ratio: float) -> int:
    """The least T for which outcomes 1..T, pulled down to 0, cancel the bias: sum_{j<=T} j a^-j >= a/(1-a)^2.

    `ratio` is a, the ratio of the geometric sides.

    >>> least_T(0.36787944117144233), least_T(0.6065306597126334)
    (1, 2)
    """
    T, capacity, need = 0, 0.0, geometric_need(ratio)
    while capacity < need:
        T += 1
        capacity += T * ratio**-T
    return T


def geometric_pulls(law: Law, ratio: float, T: int) -> list[float]:
    """How far to pull the outcomes 1..T down, for a law with geometric sides of this ratio.

    The pulls cancel the bias, with the least total mean squared error.
    """
    q = np.array([w / law.total for w in law.weights])
    most = np.arange(1, T + 1)
    covered = np.cumsum(q)[np.minimum(law.left + most, len(q) - 1)]
    moments = np.append(np.cumsum((np.arange(1, law.right + 1) * q[law.left + 1 :])[::-1])[::-1], 0.0)
    tails = moments[np.minimum(most, law.right)]
    unit = T if -T * math.log(ratio) > FAR else 0  # gains in units of a^-T if they would overflow a float
    gains = ratio ** (unit - most.astype(float))
    need = geometric_need(ratio) * ratio**unit

    def units(price: float) -> Floats:
        """For each outcome j, the number of units to pull it that each cost at most `price` per contribution."""
        wanted: Floats = np.floor(((price * gains - 2 * tails) / covered + 1) / 2)
        return np.minimum(np.maximum(wanted, 0.0), most)

    high = 1.0
    while units(high) @ gains < need:
        high *= 2
    low, high = bisect(lambda price: bool(units(price) @ gains >= need), 0.0, high, steps=64)
    pulls, more = units(low), units(high)
    for j in np.flatnonzero(more > pulls):  # only as much of the marginal units as is needed
        pulls[j] = min(more[j], pulls[j] + max(0.0, need - pulls @ gains) / gains[j])
    return [float(g) for g in pulls]


def program_pulls(law: Law, n0: int, T: int) -> list[float]:
    """How far to pull the outcomes 1..T down so that the largest |bias| of all counts from n0 on is least."""
    program = Program()
    g = [program.variable(0, j) for j in range(1, T + 1)]
    largest = program.variable()
    probability: Sequence[Fraction] = [Fraction(w, law.total) for w in law.weights]

    def q(z: int) -> Fraction:
        return probability[z + law.left] if -law.left <= z <= law.right else Fraction(0)

    pushed = Fraction(0)
    for n in range(n0, T + law.left + 1):
        pushed = sum((-y * q(y - n) for y in range(n - law.left, 0)), Fraction(0))
        terms = [(variable, q(j - n)) for j, variable in enumerate(g, start=1)]
        program.constrain([*terms, (largest, Fraction(-1))], upper=pushed)
        program.constrain([*terms, (largest, Fraction(1))], lower=pushed)
    solution = program.minimize([(largest, 1)])
    return [float(solution[variable]) for variable in g]


def geometric_side(law: Law) -> tuple[float, int] | None:
    """The pair (a, onset) if P(Z = -i) = c a^i for all i >= onset; otherwise None. Onset 0 includes the centre.

    Ratios are compared to 1e-6, among weights that are large enough for that. The outermost weight is left out, because
    cutting a law may lower it. Sides that fall by less than a share of 1e-6 per outcome (epsilon 0) are flat, not
    geometric.
    """
    if not law.is_symmetric():
        return None
    sides = [law.weight(-i) for i in range(law.left)]
    while sides and sides[-1] < 1 << 24:
        sides.pop()
    if len(sides) < 3 or sides[-2] <= sides[-1]:
        return None
    ratio = sides[-1] / sides[-2]
    onset = len(sides) - 2
    while onset > 0 and abs(sides[onset] / sides[onset - 1] - ratio) < FLAT * ratio:
        onset -= 1
    heaviest = max(onset, 1)  # not 0, as the centre may differ; the ratio of heavy weights has the least rounding error
    if onset + 3 > len(sides) or sides[heaviest] - sides[heaviest + 1] < FLAT * sides[heaviest]:
        return None
    return sides[heaviest + 1] / sides[heaviest], onset
