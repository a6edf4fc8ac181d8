"""Maximum-entropy p-tables, as R's package `ptable` (Enderle, 1.0.0) makes them for the cell-key method.

For every true count i the published count is i + v with |v| <= D. It is never negative and never one of the counts
1..js, which are called blocked. Zero stays zero. The law of v has the largest entropy subject to mean 0, variance at
most V and (`monotone`) probabilities that do not fall from the lowest outcome up to the true count. With `pstay`, the
true count keeps at least that probability. Sources: Fraser and Wooton (2006); Giessing, *Computational Issues in the
Design of Transition Probabilities and Disclosure Risk Estimation for Additive Noise* (2016). Small rows follow the
package's source code:

- the counts 1..js are blocked themselves, so their rows have no entry for v = 0: pstay and `monotone` do not apply;
- at i = 1 the variance can be below V, because downward noise is at most one step; `exact_variance` requires V in
  every row, as the package does with optim = 4;
- if pstay keeps the variance below V, pstay is lowered in steps of 0.05 until V is reached (or pstay has no effect).

All rows from count D on (D + js + 1 if js > 0) are the same. These tables have no privacy guarantee of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from countveil.errors import InfeasibleError, ParameterError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import PRECISE, SCALE, decimal, proposals, symmetric_law
from countveil.literature.entropy import TOLERANCE, solve, variance_range
from countveil.literature.member import BITS, Member, distance, text
from countveil.numeric.exact_numbers import Number, decimal_text, integer, number

LARGEST_D = 300
_LOWERED = Fraction(1, 20)
_ATTEMPTS = 20


class _Row(NamedTuple):
    points: Sequence[int]
    law: list[Decimal]
    reached: bool
    stay: Fraction | None


def maximum_entropy(
    D: int,
    V: Number,
    pstay: Number | None = None,
    js: int = 0,
    *,
    monotone: bool = True,
    exact_variance: bool = False,
) -> Member:
    """The p-table of maximum entropy: noise at most D in size, mean 0, and variance at most V.

    With `exact_variance` the variance of every row is V. `pstay` is the least probability that a count is published
    unchanged; the counts 1..js are never published. With `monotone`, probabilities do not fall up to the true count.
    """
    bound = integer("D", D, 1, LARGEST_D)
    variance = number("V", V, "a positive decimal number")
    if not Fraction(1, 1000) <= variance < bound * bound:
        raise ParameterError("V", V, f"a decimal number from 0.001 to below D^2 = {bound * bound}")
    blocked = integer("js", js, 0, bound - 1, "some noise must stay possible for the count 1, so js is less than D")
    stay = None if pstay is None else _probability(pstay)
    last = bound if blocked == 0 else bound + blocked + 1
    rows = [_row(i, bound, variance, stay, blocked, monotone, exact_variance) for i in range(1, last + 1)]
    rounded = [_round(row) for row in rows]
    zero = Law((1 << BITS,), 0, BITS)
    parameters = {"D": text(bound), "V": text(variance), "js": text(blocked)}
    if stay is not None:
        parameters["pstay"] = text(stay)
    return Member(
        family="maximum entropy",
        name="maximum-entropy p-table",
        laws=LawsByCount(rounded[-1][0], small=(zero, *(law for law, _ in rounded[:-1]))),
        cut=max(cut for _, cut in rounded),
        parameters=parameters | {"monotone": str(monotone).lower(), "exact_variance": str(exact_variance).lower()},
        notes=("a table for the cell-key method, without a privacy guarantee; zero stays zero", *_remarks(rows, stay)),
    )


def _row(i: int, D: int, V: Fraction, pstay: Fraction | None, js: int, monotone: bool, exact: bool) -> _Row:
    """The row of the true count i: without pstay if the count then stays often enough, else with pstay."""
    points = [j - i for j in range(max(0, i - D), i + D + 1) if not 1 <= j <= js]
    stays = 0 in points
    chain = points.index(0) + 1 if monotone and stays else 0
    free = solve(points, chain, V, exact=exact)
    if free is None:
        low, high = variance_range(points, chain)
        allowed = f"between {decimal_text(low, 6)} and {decimal_text(high, 6)}" if exact else f"above {low}"
        raise InfeasibleError(
            f"row {i}: noise on {spans(points)} with mean 0 cannot have variance {decimal_text(V, 6)}",
            f"give a variance {allowed}" + ("; monotone=False allows more" if chain and high <= V else ""),
        )
    if pstay is None or not stays:
        return _Row(points, free.law, free.at_bound, None)
    centre = points.index(0)
    others = points[:centre] + points[centre + 1 :]
    for attempt in range(_ATTEMPTS):
        stay = pstay - attempt * _LOWERED
        if stay <= 0 or free.law[centre] >= decimal(stay):
            break
        pinned = solve(others, centre if monotone else 0, V / (1 - stay), exact=exact)
        if pinned is not None and pinned.at_bound:
            with localcontext(PRECISE):
                rest = 1 - decimal(stay)
                law = [p * rest for p in pinned.law]
                if not monotone or centre == 0 or law[centre - 1] <= decimal(stay):
                    return _Row(points, [*law[:centre], decimal(stay), *law[centre:]], True, stay)
    return _Row(points, free.law, free.at_bound, None)


def _round(row: _Row) -> tuple[Law, Fraction]:
    """The row as integer weights with mean exactly zero, and an upper bound on its distance from the ideal row.

    The ideal probabilities are known to within 1e-60, which is far below the rounding of the weights.
    """
    least, greatest = row.points[0], row.points[-1]
    values = dict(zip(row.points, proposals(row.law), strict=True))
    proposed = [values.get(v, 0) for v in range(least, greatest + 1)]
    if -least == greatest and all(abs(a - b) >> 64 == 0 for a, b in zip(proposed, reversed(proposed), strict=True)):
        law = symmetric_law(proposed[greatest:], BITS)
    else:
        law = _balance(proposed, -least)
    return law, distance(law, proposed) + Fraction(TOLERANCE)


def _balance(proposed: Sequence[int], left: int) -> Law:
    """The proposals as weights, rounded down; two neighbouring outcomes take what is missing, so that the mean is zero.

    These two are z and z + 1, the heaviest pair above 0. If `missing` units are lacking and the rounded weights have
    the first moment `moment`, x units on z and y on z + 1 need x + y = missing and x z + y (z + 1) = -moment.
    """
    weights = [v >> (SCALE - BITS) for v in proposed]
    missing = (1 << BITS) - sum(weights)
    moment = sum((k - left) * w for k, w in enumerate(weights))
    z = max(range(1, len(weights) - left - 1), key=lambda z: min(weights[z + left], weights[z + left + 1]))
    upper = -moment - z * missing
    weights[z + left] += missing - upper
    weights[z + left + 1] += upper
    return Law(tuple(weights), left, BITS)


def _remarks(rows: Sequence[_Row], pstay: Fraction | None) -> list[str]:
    below = [i for i, row in enumerate(rows, start=1) if not row.reached]
    remarks = []
    if below:
        remarks.append(f"the variance stays below V for counts {spans(below)}")
    if pstay is not None:
        lowered = [i for i, row in enumerate(rows, start=1) if row.stay is not None and row.stay < pstay]
        loose = [i for i, row in enumerate(rows, start=1) if row.stay is None]
        if lowered:
            remarks.append(f"pstay was lowered, in steps of 0.05, to reach the variance for counts {spans(lowered)}")
        if loose:
            remarks.append(f"pstay does not determine the law for counts {spans(loose)}")
    return remarks


def spans(numbers: Sequence[int]) -> str:
    """Increasing integers as a text, in which runs are shortened.

    >>> spans([0, 1, 2, 7])
    '0..2, 7'
    """
    runs: list[list[int]] = []
    for value in numbers:
        if runs and runs[-1][1] == value - 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs)


def _probability(given: object) -> Fraction:
    allowed = "a probability above 0 and below 1"
    value = number("pstay", given, allowed)
    if not 0 < value < 1:
        raise ParameterError("pstay", given, allowed)
    return value
