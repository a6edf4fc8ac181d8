"""Linear programs solved far beyond double precision, with HiGHS doing the pivoting.

HiGHS works in doubles with tolerances near 1e-9, too coarse for optima near 1e-12. The method here is
iterative refinement for linear programming (Gleixner, Steffy, Wolter), carried out on bases. Every row is
given a slack, so that the program reads: min c.z subject to W z = 0 and bounds on z = (variables, slacks).

1. HiGHS solves the program and returns a basis.
2. The primal and dual solution of that basis is computed to about 2^-200. Residuals are computed exactly
   in big-integer fixed point; each correction to them is one solve with the float factorisation that
   HiGHS holds.
3. The bound violations of the primal and the sign violations of the dual are measured exactly. If any is
   left, HiGHS solves the correction program: the same matrix, with bounds shifted by the present point
   and magnified by 2^primal_bits, and with the present reduced costs magnified by 2^dual_bits as costs.
   It starts from the present basis. Continue with 2.

The float program is scaled by powers of two so that the present point looks like ones to HiGHS. That makes
its tolerances relative, and matters more than any option: it is what keeps programs solvable whose
variables decay over many orders of magnitude. The first solve of a program has no point to go by, unless
the caller tells the sizes to expect.

Coefficients, costs and bounds are rounded once, on entry, to multiples of 2^-256; everything called exact
is exact for the rounded program. Nothing is guaranteed to the caller beyond ``Solution.residual``, which is
measured exactly on the values returned: optimality rests on a float solver having found the right basis,
and infeasibility and unboundedness are its word. Callers who need a proof certify what they get.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = int | Fraction
Exact = NDArray[np.object_]
Floats = NDArray[np.float64]
Status = NDArray[np.int8]
Bits = NDArray[np.int32]
Attempts = tuple[dict[str, Any], ...]

BITS = 256
SOLVE_BITS = 220
TOLERANCE_BITS = 180
MAX_ROUNDS = 40
MAX_GROWTH = 40
LEAST_GROWTH = 1
MAX_COST = 2.0**60
LEAST_LEVEL = 2.0**-60
CLOSE = 1e-3
ONE = 1 << BITS
INFINITE = 1 << (BITS + 400)

BASIC, LOWER, UPPER, ZERO = range(4)

FIXED_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "small_matrix_value": 1e-12,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}
# Strategy 1 is the dual simplex method, 4 the primal. HiGHS's own scaling is for starts without known sizes.
WARM: dict[str, Any] = {"solver": "simplex", "simplex_strategy": 4, "simplex_scale_strategy": 0}
HINTED: dict[str, Any] = {"solver": "simplex", "simplex_strategy": 1, "simplex_scale_strategy": 0}
COLD: Attempts = (
    {"solver": "simplex", "simplex_strategy": 1, "simplex_scale_strategy": 2},
    {"solver": "simplex", "simplex_strategy": 4, "simplex_scale_strategy": 2},
    {"solver": "ipm", "simplex_strategy": 1, "simplex_scale_strategy": 2},
)


class NoSolution(Exception):  # noqa: N818
    """The program has no optimum, or none was found; ``reason`` is infeasible, unbounded or failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Solution:
    """A point, with exact measures of how far it is from feasible and (by its dual) from optimal."""

    values: list[Fraction]
    objective: Fraction
    residual: Fraction
    gap: Fraction
    rounds: int

    def __getitem__(self, variable: int) -> Fraction:
        return self.values[variable]


class Program:
    """min c.x subject to row bounds and variable bounds; coefficients exact."""

    def __init__(self) -> None:
        self._lower: list[int] = []
        self._upper: list[int] = []
        self._row_lower: list[int] = []
        self._row_upper: list[int] = []
        self._rows: list[dict[int, int]] = []
        self._sizes: dict[int, int] = {}
        self._last: _Point | None = None

    def variable(self, lower: Number | None = 0, upper: Number | None = None) -> int:
        """Add a variable and return its index; None means no bound."""
        self._lower.append(_bound(lower, -INFINITE))
        self._upper.append(_bound(upper, INFINITE))
        return len(self._lower) - 1

    def variables(self, count: int, lower: Number | None = 0, upper: Number | None = None) -> range:
        """Add variables that share their bounds."""
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
        """Add the row lower <= terms <= upper and return its index; repeated variables add up."""
        self._rows.append(self._collect(terms))
        self._row_lower.append(_bound(lower, -INFINITE))
        self._row_upper.append(_bound(upper, INFINITE))
        return len(self._rows) - 1

    def set_row_bounds(self, row: int, lower: Number | None, upper: Number | None) -> None:
        """Replace the bounds of a row."""
        self._row_lower[row] = _bound(lower, -INFINITE)
        self._row_upper[row] = _bound(upper, INFINITE)

    def set_variable_bounds(self, var: int, lower: Number | None, upper: Number | None) -> None:
        """Replace the bounds of a variable."""
        self._lower[var] = _bound(lower, -INFINITE)
        self._upper[var] = _bound(upper, INFINITE)

    def expect(self, sizes: Iterable[tuple[int, Number]]) -> None:
        """Tell rough sizes of variables at the optimum: a hint that scales the first solve, no more."""
        self._sizes = self._collect(sizes)

    def minimize(self, terms: Iterable[tuple[int, Number]]) -> Solution:
        """Minimise the terms; later calls start from the basis the last one ended with."""
        cost = self._collect(terms)
        width = len(self._lower)
        data = _Data(
            _Matrix(self._rows, width),
            _exact([cost.get(index, 0) for index in range(width)] + [0] * len(self._rows)),
            _exact(self._lower + self._row_lower),
            _exact(self._upper + self._row_upper),
        )
        if (data.lower > data.upper).any():
            raise NoSolution("infeasible")
        start = self._start(data)
        sizes = start.z if self._last else _exact([self._sizes.get(j, 0) for j in range(len(data.cost))])
        self._last, rounds = _refine(data, start, sizes)
        return self._last.solution(rounds)

    def _collect(self, terms: Iterable[tuple[int, Number]]) -> dict[int, int]:
        sums: dict[int, int] = {}
        for index, coefficient in terms:
            if not 0 <= index < len(self._lower):
                raise IndexError(f"no variable {index}")
            sums[index] = sums.get(index, 0) + _fixed(coefficient)
        return {index: total for index, total in sums.items() if total}

    def _start(self, data: _Data) -> _Point:
        """The last point, with what was added since: variables at zero and nonbasic, slacks basic."""
        width, height = len(self._lower), len(self._rows)
        columns = np.repeat(np.array([LOWER, BASIC], dtype=np.int8), [width, height])
        rows = np.full(height, LOWER, dtype=np.int8)
        z = _zeros(width + height)
        if self._last:
            last, old = self._last.basis, self._last.width
            columns[:old], columns[width : width + len(last.rows)] = last.columns[:old], last.columns[old:]
            rows[: len(last.rows)] = last.rows
            z[:old] = self._last.z[:old]
            z[width:] = data.matrix.times(z) >> BITS
        basis = _Basis(data.at_present_bounds(columns), rows)
        return _Point(data, basis, z, _zeros(height))


def _fixed(value: Number) -> int:
    if isinstance(value, int):
        return value << BITS
    return ((value.numerator << (BITS + 1)) // value.denominator + 1) >> 1


def _bound(value: Number | None, absent: int) -> int:
    return absent if value is None else _fixed(value)


def _exact(values: Sequence[int]) -> Exact:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _zeros(count: int) -> Exact:
    return _exact([0] * count)


def _to_floats(values: Exact, shift: int | Bits) -> Floats:
    """values * 2^shift."""
    return np.ldexp(values.astype(np.float64), shift)


def _exponent(values: Floats) -> int:
    """The exponent of the power of two next above the largest value, or far below if none is positive."""
    top = float(values.max(initial=0.0))
    return math.frexp(top)[1] if top else -4 * BITS


def _from_floats(values: Floats, shift: int) -> Exact:
    """values * 2^shift, rounded down."""
    mantissas, exponents = np.frexp(values)
    integers = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    shifts = (exponents + (shift - 53)).tolist()
    return _exact([m << s if s >= 0 else m >> -s for m, s in zip(integers, shifts, strict=True)])


def _top(values: Exact) -> int:
    """The largest value, or 0 if none is positive."""
    return int(values.max(initial=0))


class _Matrix:
    """W = (A, -1): the coefficients, and a slack for every row."""

    def __init__(self, rows: Sequence[dict[int, int]], width: int) -> None:
        height = len(rows)
        counts = np.array([len(row) + 1 for row in rows], dtype=np.int64)
        self.shape = height, width + height
        self.starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        self.columns = np.array(
            [column for slack, row in enumerate(rows, width) for column in (*row, slack)], dtype=np.int32
        )
        self.values = _exact([value for row in rows for value in (*row.values(), -ONE)])
        self.floats = _to_floats(self.values, -BITS)
        self.rows = np.repeat(np.arange(height), counts)
        order = np.argsort(self.columns, kind="stable")
        self._rows_by_column = self.rows[order]
        self._by_column = self.values[order]
        self._ends = np.cumsum(np.bincount(self.columns, minlength=width + height))

    def times(self, z: Exact) -> Exact:
        """W z."""
        return _segment_sums(self.values * z[self.columns], self.starts[1:])

    def transposed_times(self, y: Exact) -> Exact:
        """y W."""
        return _segment_sums(self._by_column * y[self._rows_by_column], self._ends)


def _segment_sums(products: Exact, ends: NDArray[Any]) -> Exact:
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    filled = starts < ends
    sums = _zeros(len(ends))
    if filled.any():
        sums[filled] = np.add.reduceat(products, starts[filled])
    return sums


@dataclass(frozen=True)
class _Data:
    """The program in fixed point: min cost.z subject to matrix z = 0 and lower <= z <= upper."""

    matrix: _Matrix
    cost: Exact
    lower: Exact
    upper: Exact

    def at_present_bounds(self, columns: Status) -> Status:
        """Statuses moved off bounds that are absent."""
        no_lower, no_upper = self.lower <= -INFINITE, self.upper >= INFINITE
        held, upper = columns != BASIC, columns == UPPER
        moved = np.where(held, np.where(no_lower | upper & ~no_upper, UPPER, LOWER), BASIC)
        return np.where(held & no_lower & no_upper, ZERO, moved).astype(np.int8)


@dataclass(frozen=True)
class _Basis:
    """The status of every column (variable or slack) and of every row of W z = 0."""

    columns: Status
    rows: Status


class _Point:
    """A primal and a dual solution, with exact measures of what is wrong with it."""

    def __init__(self, data: _Data, basis: _Basis, z: Exact, y: Exact) -> None:
        self.data = data
        self.width = len(data.cost) - len(data.matrix.starts) + 1
        self.basis = basis
        self.z = z
        self.y = y
        self.residual = -data.matrix.times(z)
        self.reduced = (data.cost << BITS) - data.matrix.transposed_times(y)

    @cached_property
    def _wrong_signs(self) -> Exact:
        """The sizes of reduced costs that are not zero, or of the sign that holds a column at its bound."""
        status = self.basis.columns
        loose = (status == BASIC) | (self.data.lower != self.data.upper)
        wrong = np.where(self.reduced < 0, status != UPPER, status != LOWER)
        return np.where(loose & wrong, abs(self.reduced), 0)

    @cached_property
    def violation(self) -> int:
        """The largest violation of a bound, of a row, or of the sign of a reduced cost."""
        outside = max(_top(self.data.lower - self.z), _top(self.z - self.data.upper))
        return max(outside << BITS, _top(abs(self.residual)), _top(self._wrong_signs))

    def primal_exponent(self, scale: _Scale) -> int:
        """The binary exponent of the primal violation that the scaled float program sees."""
        outside = np.maximum(self.data.lower - self.z, self.z - self.data.upper)
        return max(
            _exponent(_to_floats(outside, -scale.columns - BITS)),
            _exponent(_to_floats(abs(self.residual), scale.rows - 2 * BITS)),
        )

    def dual_exponent(self, scale: _Scale) -> int:
        """The binary exponent of the dual violation that the scaled float program sees."""
        return _exponent(_to_floats(self._wrong_signs, scale.columns - 2 * BITS))

    def solution(self, rounds: int) -> Solution:
        """The point in fractions; its residual is taken with the rows themselves, not with their slacks."""
        x = self.z.copy()
        x[self.width :] = 0
        rows = self.data.matrix.times(x)
        wide = np.concatenate((x[: self.width] << BITS, rows))
        outside = max(_top((self.data.lower << BITS) - wide), _top(wide - (self.data.upper << BITS)))
        unit = 1 << (2 * BITS)
        return Solution(
            values=[Fraction(value, ONE) for value in x[: self.width]],
            objective=Fraction(int((self.data.cost * self.z).sum()), unit),
            residual=Fraction(outside, unit),
            gap=Fraction(self._gap(), unit << BITS),
            rounds=rounds,
        )

    def _gap(self) -> int:
        """The primal less the dual objective, each term taken as positive.

        A column with no bound on the side its reduced cost points to counts with its own size.
        """
        bound = np.where(self.reduced > 0, self.data.lower, self.data.upper)
        distance = np.where(abs(bound) >= INFINITE, abs(self.z) + ONE, abs(self.z - bound))
        return int((abs(self.reduced) * distance).sum() + (abs(self.y) * abs(self.residual)).sum())


@dataclass(frozen=True)
class _Scale:
    """Exponents of the powers of two that the float program multiplies its columns and rows by."""

    columns: Bits
    rows: Bits


def _scale(matrix: _Matrix, z: Exact) -> _Scale:
    """Scales that make a point look like ones.

    A column is measured by the least row it is in, a row by its largest term. Where the point does not
    tell, the scale is one.
    """
    height, width = matrix.shape
    size = abs(matrix.floats)
    levels = np.zeros(height)
    np.maximum.at(levels, matrix.rows, size * abs(_to_floats(z, -BITS))[matrix.columns])
    levels[levels < LEAST_LEVEL] = np.inf
    reach = np.full(width, np.inf)
    np.minimum.at(reach, matrix.columns, levels[matrix.rows] / size)
    reach[np.isinf(reach)] = 1.0
    terms = np.zeros(height)
    np.maximum.at(terms, matrix.rows, size * reach[matrix.columns])
    return _Scale(np.frexp(reach)[1], -np.frexp(terms)[1])


def _refine(data: _Data, start: _Point, sizes: Exact) -> tuple[_Point, int]:
    """The best point that refinement reaches, and the number of float programs solved."""
    solver = _Solver(data.matrix)
    scale = _scale(data.matrix, sizes)
    primal_bits, dual_bits = 0, 0
    if data.cost.any():
        dual_bits = -_exponent(_to_floats(abs(data.cost), scale.columns - BITS))
    attempts = COLD
    if sizes.any():
        attempts = (WARM if start.z.any() else HINTED, *COLD)
    best = point = _corrected(solver, start, scale, primal_bits, dual_bits, attempts)
    growth = MAX_GROWTH
    for rounds in range(1, MAX_ROUNDS):
        if best.violation.bit_length() <= 2 * BITS - TOLERANCE_BITS:
            return best, rounds
        scale = _scale(data.matrix, point.z)
        primal_bits = _magnification(point.primal_exponent(scale), primal_bits, growth)
        dual_bits = _magnification(point.dual_exponent(scale), dual_bits, growth)
        try:
            point = _corrected(solver, point, scale, primal_bits, dual_bits, (WARM, *COLD))
        except NoSolution as stop:
            if growth <= LEAST_GROWTH:
                if stop.reason == "infeasible":
                    raise
                return best, rounds
            growth, primal_bits, dual_bits = growth // 2, primal_bits // 2, dual_bits // 2
        best = min(best, point, key=lambda candidate: candidate.violation)
    return best, MAX_ROUNDS


def _magnification(exponent: int, before: int, growth: int) -> int:
    """The power of two that brings a violation to about one, within limits; unchanged if there is none."""
    return before if exponent < -TOLERANCE_BITS else max(0, min(-exponent, before + growth))


def _corrected(
    solver: _Solver, point: _Point, scale: _Scale, primal_bits: int, dual_bits: int, attempts: Attempts
) -> _Point:
    """The solution of the basis that is optimal in the program magnified around a point."""
    data = point.data
    cost = np.clip(_to_floats(point.reduced, scale.columns + (dual_bits - 2 * BITS)), -MAX_COST, MAX_COST)
    shift = (primal_bits - BITS) - scale.columns
    lower, upper = _to_floats(data.lower - point.z, shift), _to_floats(data.upper - point.z, shift)
    right = _to_floats(point.residual, scale.rows + (primal_bits - 2 * BITS))
    solver.load(scale, cost, lower, upper, right)
    basis = solver.solve(point.basis, attempts)
    return _basic_point(data, _Basis(data.at_present_bounds(basis.columns), basis.rows), solver, scale)


def _basic_point(data: _Data, basis: _Basis, solver: _Solver, scale: _Scale) -> _Point:
    """The solution that a basis determines."""
    wide_cost = data.cost << BITS
    z = _improved(
        np.where(basis.columns == LOWER, data.lower, np.where(basis.columns == UPPER, data.upper, 0)),
        lambda z: np.where(basis.rows == BASIC, 0, -data.matrix.times(z)),
        lambda residual: np.ldexp(solver.basis_solve(residual), scale.columns),
        scale.rows,
    )
    y = _improved(
        _zeros(len(basis.rows)),
        lambda y: np.where(basis.columns == BASIC, wide_cost - data.matrix.transposed_times(y), 0),
        lambda residual: np.ldexp(solver.transposed_solve(residual), scale.rows),
        scale.columns,
    )
    return _Point(data, basis, z, y)


def _improved(
    value: Exact, residual_of: Callable[[Exact], Exact], step: Callable[[Floats], Floats], scale: Bits
) -> Exact:
    """Add float steps for the scaled residual, magnified to size one, for as long as it keeps shrinking."""
    residual = residual_of(value)
    while _top(abs(residual)).bit_length() > 2 * BITS - SOLVE_BITS:
        scaled = _to_floats(residual, scale - 2 * BITS)
        exponent = _exponent(abs(scaled))
        trial = value + _from_floats(step(np.ldexp(scaled, -exponent)), exponent + BITS)
        residual = residual_of(trial)
        if _exponent(abs(_to_floats(residual, scale - 2 * BITS))) >= exponent:
            break
        value = trial
    return value


class _Solver:
    """HiGHS, loaded with the matrix of one program; bounds and costs change from solve to solve."""

    def __init__(self, matrix: _Matrix) -> None:
        self._api: Any = importlib.import_module("highspy")
        self._highs = self._api.Highs()
        self._set(FIXED_OPTIONS)
        self._matrix = matrix
        self._basic = np.zeros(0, dtype=np.int32)
        codes = self._api.HighsBasisStatus
        self._codes = (codes.kBasic, codes.kLower, codes.kUpper, codes.kZero)

    def _set(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            self._highs.setOptionValue(name, value)

    def load(self, scale: _Scale, cost: Floats, lower: Floats, upper: Floats, right: Floats) -> None:
        """Pass a program that is scaled already, but for its matrix."""
        matrix = self._matrix
        model = self._api.HighsLp()
        model.num_row_, model.num_col_ = matrix.shape
        model.col_cost_, model.col_lower_, model.col_upper_ = cost, lower, upper
        model.row_lower_ = model.row_upper_ = right
        model.a_matrix_.format_ = self._api.MatrixFormat.kRowwise
        model.a_matrix_.start_, model.a_matrix_.index_ = matrix.starts, matrix.columns
        model.a_matrix_.value_ = np.ldexp(
            matrix.floats, scale.columns[matrix.columns] + scale.rows[matrix.rows]
        )
        self._highs.passModel(model)

    def solve(self, start: _Basis, attempts: Attempts) -> _Basis:
        """An optimal basis; where HiGHS finds none, a second attempt has to agree before this raises."""
        reasons: list[str] = []
        for options in attempts:
            self._set(options)
            if reasons:
                self._highs.clearSolver()
            else:
                self._set_basis(start)
            reason = self._run()
            if not reason:
                return self._get_basis()
            reasons.append(reason)
            if reason != "failed" and reasons.count(reason) == 2:
                break
        raise NoSolution(next((reason for reason in reasons if reason != "failed"), "failed"))

    def _run(self) -> str:
        """Run HiGHS; the reason why there is no solution, or nothing."""
        self._highs.run()
        status = self._highs.getModelStatus()
        known = self._api.HighsModelStatus
        if status in (known.kOptimal, known.kModelEmpty) or (status == known.kUnknown and self._is_close()):
            return ""
        return {known.kInfeasible: "infeasible", known.kUnbounded: "unbounded"}.get(status, "failed")

    def _is_close(self) -> bool:
        """Whether a basis that HiGHS has doubts about is good enough to refine."""
        info = self._highs.getInfo()
        return bool(max(info.max_primal_infeasibility, info.max_dual_infeasibility) < CLOSE)

    def _set_basis(self, start: _Basis) -> None:
        basis = self._api.HighsBasis()
        basis.col_status = [self._codes[status] for status in start.columns]
        basis.row_status = [self._codes[status] for status in start.rows]
        basis.valid = True
        self._highs.setBasis(basis)

    def _get_basis(self) -> _Basis:
        number = {code: status for status, code in enumerate(self._codes)}
        basis = self._highs.getBasis()
        if len(basis.row_status):
            self._basic = np.array(self._highs.getBasicVariables()[1])
        return _Basis(
            np.array([number.get(code, LOWER) for code in basis.col_status], dtype=np.int8),
            np.array([number.get(code, LOWER) for code in basis.row_status], dtype=np.int8),
        )

    def basis_solve(self, right: Floats) -> Floats:
        """The change of the basic columns that changes the rows by the given right-hand side."""
        step = np.zeros(self._matrix.shape[1])
        structural = self._basic >= 0
        step[self._basic[structural]] = np.asarray(self._highs.getBasisSolve(right)[1])[structural]
        return step

    def transposed_solve(self, costs: Floats) -> Floats:
        """The change of the row duals that takes the given costs off the basic columns."""
        right = np.where(self._basic >= 0, costs[np.maximum(self._basic, 0)], 0.0)
        step: Floats = np.asarray(self._highs.getBasisTransposeSolve(right)[1], dtype=np.float64)
        return step
