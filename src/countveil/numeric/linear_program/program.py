"""Linear programs solved far beyond double precision, with HiGHS doing the pivoting.

HiGHS works in doubles with tolerances near 1e-9, too coarse for optima near 1e-12. The method here is iterative
refinement for linear programming (Gleixner, Steffy, Wolter), carried out on bases. Every row is given a slack, so that
the program reads: min c.z subject to W z = 0 and bounds on z = (variables, slacks).

1. HiGHS solves the program and returns a basis.
2. The primal and dual solution of that basis (the point) is computed to about 2^-200. Residuals are computed exactly
   in big-integer fixed point; each correction is one solve with HiGHS's float factorisation of the
   basis.
3. The bound violations of the primal and the sign violations of the dual are measured exactly. If any
   remain, HiGHS solves the correction program, which starts from the present basis and has the same matrix.
   Its bounds are the distances of the present point to the bounds, magnified by 2^primal_bits; its costs
   are the present reduced costs, magnified by 2^dual_bits. Continue with step 2.

The float program is scaled by powers of two so that all values of the present point are close to one. That makes
HiGHS's tolerances relative, and matters more than any option: without such scaling, programs whose variables decay over
many orders of magnitude cannot be solved. The first solve of a program has no point to scale by, unless the caller
gives expected sizes (`Program.expect`).

Coefficients, costs and bounds are rounded once, on entry, to multiples of 2^-256; everything called exact is exact for
the rounded program. The only guarantee is ``Solution.residual``, which is measured exactly on the values returned.
Optimality depends on HiGHS having found the right basis, and infeasibility and unboundedness are reported as HiGHS
reports them. Callers who need a proof must certify the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from countveil.numeric.linear_program.fixed_point import (
    BASIC,
    BITS,
    INFINITE,
    LOWER,
    UPPER,
    Bits,
    Data,
    Exact,
    Floats,
    Matrix,
    Number,
    Point,
    Scale,
    SimplexBasis,
    Solution,
    exact,
    exponent_of,
    from_floats,
    scale_of,
    to_fixed,
    to_fixed_bound,
    to_floats,
    top,
    zeros,
)
from countveil.numeric.linear_program.highs import COLD, HINTED, WARM, Attempts, NoSolution, Solver

SOLVE_BITS = 220
TOLERANCE_BITS = 180
MAX_ROUNDS = 40
MAX_GROWTH = 40
LEAST_GROWTH = 1
MAX_COST = 2.0**60


class Program:
    """A linear program with exact coefficients: minimise a sum of terms, subject to bounds on rows and on variables."""

    def __init__(self) -> None:
        self._lower: list[int] = []
        self._upper: list[int] = []
        self._row_lower: list[int] = []
        self._row_upper: list[int] = []
        self._rows: list[dict[int, int]] = []
        self._sizes: dict[int, int] = {}
        self._last: Point | None = None

    def variable(self, lower: Number | None = 0, upper: Number | None = None) -> int:
        """Add a variable and return its index; None means no bound."""
        self._lower.append(to_fixed_bound(lower, -INFINITE))
        self._upper.append(to_fixed_bound(upper, INFINITE))
        return len(self._lower) - 1

    def variables(self, count: int, lower: Number | None = 0, upper: Number | None = None) -> range:
        """Add `count` variables with the same bounds, and return the range of their indices."""
        first = len(self._lower)
        for _ in range(count):
            self.variable(lower, upper)
        return range(first, first + count)

    def constrain(
        self,
        terms: Iterable[tuple[int, Number]],
        lower: Number | None = None,
        upper: Number | None = None,
    ) -> int:
        """Add the row lower <= sum of terms <= upper, and return its index.

        A term is a pair (variable, coefficient); the coefficients of a variable that occurs several times are added.
        """
        self._rows.append(self._collect(terms))
        self._row_lower.append(to_fixed_bound(lower, -INFINITE))
        self._row_upper.append(to_fixed_bound(upper, INFINITE))
        return len(self._rows) - 1

    def set_row_bounds(self, row: int, lower: Number | None, upper: Number | None) -> None:
        """Replace the bounds of a row."""
        self._row_lower[row] = to_fixed_bound(lower, -INFINITE)
        self._row_upper[row] = to_fixed_bound(upper, INFINITE)

    def set_variable_bounds(self, var: int, lower: Number | None, upper: Number | None) -> None:
        """Replace the bounds of a variable."""
        self._lower[var] = to_fixed_bound(lower, -INFINITE)
        self._upper[var] = to_fixed_bound(upper, INFINITE)

    def expect(self, sizes: Iterable[tuple[int, Number]]) -> None:
        """Give rough sizes of some variables at the optimum. This is a hint: it only scales the first solve."""
        self._sizes = self._collect(sizes)

    def minimize(self, terms: Iterable[tuple[int, Number]]) -> Solution:
        """Minimise the sum of the terms, pairs of a variable and its coefficient; raises NoSolution if it fails.

        Every later call starts from the basis with which the previous call ended.
        """
        cost = self._collect(terms)
        width = len(self._lower)
        data = Data(
            Matrix(self._rows, width),
            exact([cost.get(index, 0) for index in range(width)] + [0] * len(self._rows)),
            exact(self._lower + self._row_lower),
            exact(self._upper + self._row_upper),
        )
        if (data.lower > data.upper).any():
            raise NoSolution("infeasible")
        start = self._start(data)
        sizes = start.z if self._last else exact([self._sizes.get(j, 0) for j in range(len(data.cost))])
        self._last, rounds = _refine(data, start, sizes)
        return self._last.solution(rounds)

    def _collect(self, terms: Iterable[tuple[int, Number]]) -> dict[int, int]:
        sums: dict[int, int] = {}
        for index, coefficient in terms:
            if not 0 <= index < len(self._lower):
                raise IndexError(f"variable {index} does not exist; allowed are 0 to {len(self._lower) - 1}")
            sums[index] = sums.get(index, 0) + to_fixed(coefficient)
        return {index: total for index, total in sums.items() if total}

    def _start(self, data: Data) -> Point:
        """The point at which the previous call of `minimize` ended, extended by what was added to the program since.

        New variables start at zero, as nonbasic columns; new rows start with their slack in the basis.
        """
        width, height = len(self._lower), len(self._rows)
        columns = np.repeat(np.array([LOWER, BASIC], dtype=np.int8), [width, height])
        rows = np.full(height, LOWER, dtype=np.int8)
        z = zeros(width + height)
        if self._last:
            last, old = self._last.basis, self._last.width
            columns[:old], columns[width : width + len(last.rows)] = last.columns[:old], last.columns[old:]
            rows[: len(last.rows)] = last.rows
            z[:old] = self._last.z[:old]
            z[width:] = data.matrix.times(z) >> BITS
        basis = SimplexBasis(data.at_present_bounds(columns), rows)
        return Point(data, basis, z, zeros(height))


def _refine(data: Data, start: Point, sizes: Exact) -> tuple[Point, int]:
    """The point with the smallest violation that refinement reaches, and the number of float programs solved."""
    solver = Solver(data.matrix)
    scale = scale_of(data.matrix, sizes)
    primal_bits, dual_bits = 0, 0
    if data.cost.any():
        dual_bits = -exponent_of(to_floats(abs(data.cost), scale.columns - BITS))
    attempts = COLD
    if sizes.any():
        attempts = (WARM if start.z.any() else HINTED, *COLD)
    best = point = _correct(solver, start, scale, primal_bits, dual_bits, attempts)
    growth = MAX_GROWTH
    for rounds in range(1, MAX_ROUNDS):
        if best.violation.bit_length() <= 2 * BITS - TOLERANCE_BITS:
            return best, rounds
        scale = scale_of(data.matrix, point.z)
        primal_bits = _magnification(point.primal_exponent(scale), primal_bits, growth)
        dual_bits = _magnification(point.dual_exponent(scale), dual_bits, growth)
        try:
            point = _correct(solver, point, scale, primal_bits, dual_bits, (WARM, *COLD))
        except NoSolution as stop:
            if growth <= LEAST_GROWTH:
                if stop.reason == "infeasible":
                    raise
                return best, rounds
            growth, primal_bits, dual_bits = growth // 2, primal_bits // 2, dual_bits // 2
        best = min(best, point, key=lambda candidate: candidate.violation)
    return best, MAX_ROUNDS


def _magnification(exponent: int, before: int, growth: int) -> int:
    """The exponent e for which 2^e magnifies a violation below 2^exponent to about one.

    e is at most `before + growth`; if there is no violation, it is `before`, the exponent of the round before.
    """
    return before if exponent < -TOLERANCE_BITS else max(0, min(-exponent, before + growth))


def _correct(solver: Solver, point: Point, scale: Scale, primal_bits: int, dual_bits: int, attempts: Attempts) -> Point:
    """Solve the correction program around a point, and return the point of its optimal basis."""
    data = point.data
    cost = np.clip(to_floats(point.reduced, scale.columns + (dual_bits - 2 * BITS)), -MAX_COST, MAX_COST)
    shift = (primal_bits - BITS) - scale.columns
    lower, upper = to_floats(data.lower - point.z, shift), to_floats(data.upper - point.z, shift)
    right = to_floats(point.residual, scale.rows + (primal_bits - 2 * BITS))
    solver.load(scale, cost, lower, upper, right)
    basis = solver.solve(point.basis, attempts)
    return _basic_point(data, SimplexBasis(data.at_present_bounds(basis.columns), basis.rows), solver, scale)


def _basic_point(data: Data, basis: SimplexBasis, solver: Solver, scale: Scale) -> Point:
    """The primal and the dual solution that a basis determines."""
    wide_cost = data.cost << BITS
    z = _improve(
        np.where(basis.columns == LOWER, data.lower, np.where(basis.columns == UPPER, data.upper, 0)),
        lambda z: np.where(basis.rows == BASIC, 0, -data.matrix.times(z)),
        lambda residual: np.ldexp(solver.basis_solve(residual), scale.columns),
        scale.rows,
    )
    y = _improve(
        zeros(len(basis.rows)),
        lambda y: np.where(basis.columns == BASIC, wide_cost - data.matrix.transposed_times(y), 0),
        lambda residual: np.ldexp(solver.transposed_solve(residual), scale.rows),
        scale.columns,
    )
    return Point(data, basis, z, y)


def _improve(
    value: Exact, residual_of: Callable[[Exact], Exact], step: Callable[[Floats], Floats], scale: Bits
) -> Exact:
    """Add corrections to `value` until its residual is negligible or stops shrinking.

    Each correction is a float `step`, computed from the residual scaled to size one.
    """
    residual = residual_of(value)
    while top(abs(residual)).bit_length() > 2 * BITS - SOLVE_BITS:
        scaled = to_floats(residual, scale - 2 * BITS)
        exponent = exponent_of(abs(scaled))
        trial = value + from_floats(step(np.ldexp(scaled, -exponent)), exponent + BITS)
        residual = residual_of(trial)
        if exponent_of(abs(to_floats(residual, scale - 2 * BITS))) >= exponent:
            break
        value = trial
    return value
