"""Maps to the non-negative integers by linear program: least error, with a bounded bias from n0 on.

Let n be the true count, q the law of the signed noise, and Y' = n + Z the signed count. Y' is published as 0 where it
is negative, as f(y') for y' = 0..T, and as it is beyond T. The bias depends on the means m(j) = E f(j) alone,

    b(n) = sum_{y' < 0} q(y' - n) (-y')  +  sum_{j=0..T} q(j - n) (m(j) - j),

and of all f(j) with mean m(j), the one on the two integers around m(j) has the least E f(j)^2, which is convex and
piecewise linear in m(j). So "least total mean squared error over all n, with |b(n)| <= B for every n >= n0" is a linear
program: m(j) is a first value plus units 0 <= u_k <= 1, and the unit that raises m(j) from k - 1 to k costs

    (2k - 1) Q_j - 2 R_j,       Q_j = sum_{n>=0} q(j - n),   R_j = sum_{n>=0} n q(j - n).

Outcomes may be moved up as well as down; this makes a small B possible. T is six standard deviations beyond n0: the
further the map reaches, the less its last rows oscillate. No outcome is moved by more than 2.5 standard deviations (but
4 are always allowed, and 20 is the most). The map has a price: outcomes that f moves are not published as they are, so
P(Y = n) is eta from T + 1 on only.

B = 0 is impossible for a bounded law, but B = 1e-8 often does not increase the error. Where it does, B is doubled (for
laws with a large variance multiplied by 32) until no count has a mean squared error above 5/4 of the variance, but not
beyond a thousandth of the standard deviation. The solver proposes; bias and error are measured exactly on the integers
of the rounded map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import accumulate

from countveil.errors import InfeasibleError
from countveil.laws.law import Law
from countveil.laws.remap import Remap, Row
from countveil.mechanism.certificate import NEARLY
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.linear_program import NoSolution, Program
from countveil.numeric.search import least_integer

MAP_BITS = 64
_ONE = 1 << MAP_BITS
LEAST_BIAS = Fraction(1, 10**8)
"""The smallest bias that is tried: a smaller one has no practical use."""
LARGEST_SHARE = Fraction(5, 4)
"""A small bias is accepted only if no count has a mean squared error above this multiple of the variance."""
AIMED = 1 - Fraction(1, 10**6)
"""The solver aims at this share of the allowed bias; the rest is for rounding."""
REACH, FURTHEST_MOVE, MOST_MOVED = 6, Fraction(5, 2), 20
QUICK, LARGEST = 15_000, 60_000
"""Up to QUICK coefficients the program takes a fraction of a second, up to LARGEST one to two seconds."""
STEP_BITS = 12
"""Square roots are rounded to this many fractional bits."""


def row_of(mean: Fraction) -> Row:
    """The row of the map that sends an outcome to the two integers around `mean`, with this mean (at least 0)."""
    floor = max(0, math.floor(mean))
    up = round((mean - floor) * _ONE)
    if up == 0:
        return ((floor, _ONE),)
    return ((floor, _ONE - up), (floor + 1, up)) if up < _ONE else ((floor + 1, _ONE),)


def without_moves(source: Law, rows: Iterable[Row]) -> Remap:
    """The remap of the signed law `source` by these rows, without moves.

    Its delta is that of the signed law; its D is the largest error that noise and map can cause together.
    """
    kept = list(rows)
    highest = list(accumulate((max(y for y, _ in row) for row in kept), max))  # over all rows so far
    while len(kept) > 1 and kept[-1] == ((len(kept) - 1, _ONE),) and highest[len(kept) - 2] < len(kept) - 1:
        kept.pop()
    far = max(abs(y - j) for j, row in enumerate(kept) for y, _ in row)
    beyond = len(kept) + source.left  # the stationary count: from there on the bias is zero
    laws = Remap(source, ((0, _ONE),), tuple(kept), MAP_BITS, max(1, beyond), max(source.left, source.right) + far)
    return replace(laws, D=laws.reach)


def bias_from(laws: Remap, n0: int) -> Fraction:
    """The largest |bias| of any count n >= n0, exactly, without moves."""
    return Fraction(max((abs(units) for units in laws.residues[n0:]), default=0), 1 << laws.bits)


def worst_error(laws: Remap) -> Fraction:
    """The largest mean squared error of any count."""
    return max((profile.mse for profile in laws.profiles), default=laws.source.mse)


def best_map(source: Law, n0: int) -> Remap:
    """The map of least error for the smallest bias that does not raise errors too much.

    That is the smallest bias, of those tried, at which no count has a mean squared error above 5/4 of the variance; if
    there is none, it is the largest bias tried.
    """
    most = max(LEAST_BIAS, _root(source.variance) / NEARLY)
    biases = [LEAST_BIAS]
    while biases[-1] < most:
        biases.append(min((2 if _cells(source, n0) <= QUICK else 32) * biases[-1], most))
    limit = LARGEST_SHARE * source.variance

    @cache
    def fine(i: int) -> Remap | None:
        try:
            laws = map_within(source, n0, biases[i])
        except InfeasibleError:
            return None
        return laws if worst_error(laws) <= limit else None

    enough = 0 if fine(0) else least_integer(lambda i: fine(i) is not None, 1, len(biases))
    best = fine(enough) if enough < len(biases) else None
    return best if best is not None else map_within(source, n0, biases[-1], explain=True)


def usual_n0(source: Law) -> int:
    """The default n0, one and a half standard deviations: even a Gaussian law then has a map with small errors."""
    return max(1, math.ceil(Fraction(3, 2) * _root(source.variance)))


def is_small(source: Law, n0: int) -> bool:
    """Whether the linear program for this law takes at most a second or two."""
    return _cells(source, n0) <= LARGEST


def _cells(source: Law, n0: int) -> int:
    T = _last(source, n0)
    return (T + 1) * (T + source.left - n0 + 1)


def map_within(source: Law, n0: int, bias: Fraction, *, explain: bool = False) -> Remap:
    """The map of least total mean squared error whose measured bias, for all counts from n0 on, is at most `bias`.

    Raises InfeasibleError if there is no such map; with `explain` the message names the least possible bias, which
    takes a second program.
    """
    try:
        means = _means(source, n0, bias * AIMED)
    except NoSolution:
        least = f"; the least is about {decimal_text(_least_bias(source, n0), 3, 'up')}" if explain else ""
        raise InfeasibleError(
            f"no map has a bias of at most {decimal_text(bias, 6)} from n = {n0} on{least}",
            "raise unbiased_from or max_bias",
        ) from None
    laws = without_moves(source, (row_of(mean) for mean in means))
    if bias_from(laws, n0) > bias:
        measured = decimal_text(bias_from(laws, n0), 6, "up")
        raise InfeasibleError(
            f"the map's bias from n = {n0} on is {measured}, above the allowed {decimal_text(bias, 6)}",
            "raise unbiased_from or max_bias",
        )
    return laws


def _means(source: Law, n0: int, bias: Fraction) -> list[Fraction]:
    """The means m(0), ..., m(T) of the map with the least total mean squared error.

    The constraints on the bias are divided by the allowed bias, so that the solver's tolerances are relative to it.
    """
    T = _last(source, n0)
    program = Program()
    means = [program.variable(*_range(source, j, T)) for j in range(T + 1)]
    for terms, wanted in _bias_rows(source, n0, means):
        scaled = [(variable, weight / bias) for variable, weight in terms]
        program.constrain(scaled, wanted / bias - 1, wanted / bias + 1)
    costs: list[tuple[int, Fraction]] = []
    for j, mean in enumerate(means):
        first, last = _range(source, j, T)
        units = program.variables(last - first, 0, 1)
        program.constrain([(mean, 1), *((unit, -1) for unit in units)], first, first)
        chances = [(n, source.probability(j - n)) for n in range(max(0, j - source.right), j + source.left + 1)]
        mass = sum((p for _, p in chances), Fraction(0))
        moment = sum((n * p for n, p in chances), Fraction(0))
        costs += [(unit, (2 * k - 1) * mass - 2 * moment) for k, unit in enumerate(units, start=first + 1)]
    solution = program.minimize(costs)
    return [min(Fraction(T), max(Fraction(0), solution[mean])) for mean in means]


def _least_bias(source: Law, n0: int) -> Fraction:
    """The least bias that any map can have for all counts from n0 on; 1 if the solver finds no map."""
    T = _last(source, n0)
    program = Program()
    means = [program.variable(*_range(source, j, T)) for j in range(T + 1)]
    largest = program.variable()
    for terms, wanted in _bias_rows(source, n0, means):
        program.constrain([*terms, (largest, -1)], upper=wanted)
        program.constrain([*terms, (largest, 1)], lower=wanted)
    try:
        return program.minimize([(largest, 1)])[largest]
    except NoSolution:
        return Fraction(1)


def _bias_rows(source: Law, n0: int, means: list[int]) -> Iterable[tuple[list[tuple[int, Fraction]], Fraction]]:
    """For each count n >= n0, what makes its bias zero: the terms q(j - n) m(j) must have a certain sum.

    Yields (terms, sum); the sum is that of q(y' - n) y' over all y' <= T, where q is the law `source`.
    """
    T = len(means) - 1
    for n in range(n0, T + source.left + 1):
        reached = range(max(0, n - source.left), min(T, n + source.right) + 1)
        terms = [(means[j], source.probability(j - n)) for j in reached if source.weight(j - n)]
        wanted = sum(y * source.weight(y - n) for y in range(n - source.left, min(T, n + source.right) + 1))
        yield terms, Fraction(wanted, source.total)


def _last(source: Law, n0: int) -> int:
    """T, the last outcome that the map may change: six standard deviations beyond n0."""
    return n0 + math.ceil(REACH * _root(source.variance))


def _range(source: Law, j: int, T: int) -> tuple[int, int]:
    """The least and the largest mean allowed for the outcome j of the map; the outcome 0 always stays 0."""
    move = max(4, min(MOST_MOVED, math.ceil(FURTHEST_MOVE * _root(source.variance))))
    return max(0, j - move), min(T, j + move) if j else 0


def _root(x: Fraction) -> Fraction:
    """The square root of x, rounded down to STEP_BITS fractional bits."""
    return Fraction(math.isqrt(math.floor(x * (1 << 2 * STEP_BITS))), 1 << STEP_BITS)
