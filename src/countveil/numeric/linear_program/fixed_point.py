"""Linear programs in fixed point: exact numbers as integers times 2^-256.

Holds the program and its matrix, its points (pairs of a primal and a dual solution) with exact measures of how far they
violate the program, and the powers of two that scale the program for a float solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = int | Fraction
Exact = NDArray[np.object_]
Floats = NDArray[np.float64]
Bits = NDArray[np.int32]

BITS = 256
"""Every exact number is stored as an integer: its value times 2^BITS."""
ONE = 1 << BITS
INFINITE = 1 << (BITS + 400)

Status = NDArray[np.int8]
BASIC, LOWER, UPPER, ZERO = range(4)
LEAST_LEVEL = 2.0**-60


def to_fixed(value: Number) -> int:
    if isinstance(value, int):
        return value << BITS
    return ((value.numerator << (BITS + 1)) // value.denominator + 1) >> 1


def to_fixed_bound(value: Number | None, absent: int) -> int:
    return absent if value is None else to_fixed(value)


def exact(values: Sequence[int]) -> Exact:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def zeros(count: int) -> Exact:
    return exact([0] * count)


def to_floats(values: Exact, shift: int | Bits) -> Floats:
    """values * 2^shift, as floats."""
    return np.ldexp(values.astype(np.float64), shift)


def exponent_of(values: Floats) -> int:
    """The least e such that every value is below 2^e, or -4 * BITS (for minus infinity) if none is positive."""
    top = float(values.max(initial=0.0))
    return math.frexp(top)[1] if top else -4 * BITS


def from_floats(values: Floats, shift: int) -> Exact:
    """values * 2^shift, as integers rounded down."""
    mantissas, exponents = np.frexp(values)
    integers = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    shifts = (exponents + (shift - 53)).tolist()
    return exact([m << s if s >= 0 else m >> -s for m, s in zip(integers, shifts, strict=True)])


def top(values: Exact) -> int:
    """The largest value, or 0 if none is positive."""
    return int(values.max(initial=0))


class Matrix:
    """The matrix W of a program: the coefficients of the variables, then one slack column for every row.

    A slack equals the value of its row, so W times (variables, slacks) is zero.
    """

    def __init__(self, rows: Sequence[dict[int, int]], width: int) -> None:
        height = len(rows)
        counts = np.array([len(row) + 1 for row in rows], dtype=np.int64)
        self.shape = height, width + height
        self.starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        self.columns = np.array(
            [column for slack, row in enumerate(rows, width) for column in (*row, slack)], dtype=np.int32
        )
        self.values = exact([value for row in rows for value in (*row.values(), -ONE)])
        self.floats = to_floats(self.values, -BITS)
        self.rows = np.repeat(np.arange(height), counts)
        order = np.argsort(self.columns, kind="stable")
        self._rows_by_column = self.rows[order]
        self._by_column = self.values[order]
        self._ends = np.cumsum(np.bincount(self.columns, minlength=width + height))

    def times(self, z: Exact) -> Exact:
        """The product of W and a column vector z."""
        return _segment_sums(self.values * z[self.columns], self.starts[1:])

    def transposed_times(self, y: Exact) -> Exact:
        """The product of a row vector y and W."""
        return _segment_sums(self._by_column * y[self._rows_by_column], self._ends)


def _segment_sums(products: Exact, ends: NDArray[Any]) -> Exact:
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    filled = starts < ends
    sums = zeros(len(ends))
    if filled.any():
        sums[filled] = np.add.reduceat(products, starts[filled])
    return sums


@dataclass(frozen=True)
class Solution:
    """The values of the variables, with exact measures of their errors.

    `residual` is the largest amount by which a constraint is violated. `gap` is an upper bound on the difference
    between the objective and that of the dual solution. `rounds` is the number of float programs that were solved.
    """

    values: list[Fraction]
    objective: Fraction
    residual: Fraction
    gap: Fraction
    rounds: int

    def __getitem__(self, variable: int) -> Fraction:
        return self.values[variable]


@dataclass(frozen=True)
class Data:
    """The program in fixed point: minimise cost.z for z = (variables, slacks), matrix z = 0 and lower <= z <= upper."""

    matrix: Matrix
    cost: Exact
    lower: Exact
    upper: Exact

    def at_present_bounds(self, columns: Status) -> Status:
        """The statuses of the columns, corrected where a status names a bound that the column does not have.

        Such a column is put at its other bound, or at zero if it has no bound at all.
        """
        no_lower, no_upper = self.lower <= -INFINITE, self.upper >= INFINITE
        nonbasic, upper = columns != BASIC, columns == UPPER
        moved = np.where(nonbasic, np.where(no_lower | upper & ~no_upper, UPPER, LOWER), BASIC)
        return np.where(nonbasic & no_lower & no_upper, ZERO, moved).astype(np.int8)


@dataclass(frozen=True)
class SimplexBasis:
    """A basis of the simplex method: the status of every column (variable or slack) and of every row.

    The statuses are BASIC, LOWER and UPPER (at that bound), and ZERO (not basic, without bounds).
    """

    columns: Status
    rows: Status


class Point:
    """A primal solution `z` and a dual solution `y` of a program, with exact measures of their violations."""

    def __init__(self, data: Data, basis: SimplexBasis, z: Exact, y: Exact) -> None:
        self.data = data
        self.width = len(data.cost) - len(data.matrix.starts) + 1
        self.basis = basis
        self.z = z
        self.y = y
        self.residual = -data.matrix.times(z)
        self.reduced = (data.cost << BITS) - data.matrix.transposed_times(y)

    @cached_property
    def _wrong_signs(self) -> Exact:
        """For every column: the size of its reduced cost if the sign of that cost rules out an optimum, else 0."""
        status = self.basis.columns
        loose = (status == BASIC) | (self.data.lower != self.data.upper)
        wrong = np.where(self.reduced < 0, status != UPPER, status != LOWER)
        return np.where(loose & wrong, abs(self.reduced), 0)

    @cached_property
    def violation(self) -> int:
        """The largest violation of a bound, of a row, or of the sign of a reduced cost, times 2^(2 * BITS)."""
        outside = max(top(self.data.lower - self.z), top(self.z - self.data.upper))
        return max(outside << BITS, top(abs(self.residual)), top(self._wrong_signs))

    def primal_exponent(self, scale: Scale) -> int:
        """The least e such that every violation of bounds and rows is below 2^e in the scaled float program."""
        outside = np.maximum(self.data.lower - self.z, self.z - self.data.upper)
        return max(
            exponent_of(to_floats(outside, -scale.columns - BITS)),
            exponent_of(to_floats(abs(self.residual), scale.rows - 2 * BITS)),
        )

    def dual_exponent(self, scale: Scale) -> int:
        """The least e such that every reduced cost of the wrong sign is below 2^e in the scaled float program."""
        return exponent_of(to_floats(self._wrong_signs, scale.columns - 2 * BITS))

    def solution(self, rounds: int) -> Solution:
        """The values of the variables as Fractions, with the exact residual and gap.

        The residual is measured by recomputing every row from the variables; the values of the slacks are not trusted.
        """
        x = self.z.copy()
        x[self.width :] = 0
        rows = self.data.matrix.times(x)
        wide = np.concatenate((x[: self.width] << BITS, rows))
        outside = max(top((self.data.lower << BITS) - wide), top(wide - (self.data.upper << BITS)))
        unit = 1 << (2 * BITS)
        return Solution(
            values=[Fraction(value, ONE) for value in x[: self.width]],
            objective=Fraction(int((self.data.cost * self.z).sum()), unit),
            residual=Fraction(outside, unit),
            gap=Fraction(self._gap(), unit << BITS),
            rounds=rounds,
        )

    def _gap(self) -> int:
        """An upper bound on the primal minus the dual objective: the sum of the sizes of its terms.

        The term of a column is its reduced cost times the distance of its value to the bound that the sign of this cost
        points to. Where that bound is missing, the size of the value, plus one, replaces the distance. The term of a
        row is its dual value times its residual.
        """
        bound = np.where(self.reduced > 0, self.data.lower, self.data.upper)
        distance = np.where(abs(bound) >= INFINITE, abs(self.z) + ONE, abs(self.z - bound))
        return int((abs(self.reduced) * distance).sum() + (abs(self.y) * abs(self.residual)).sum())


@dataclass(frozen=True)
class Scale:
    """How the float program is scaled: the exponents of the powers of two that multiply its columns and its rows."""

    columns: Bits
    rows: Bits


def scale_of(matrix: Matrix, z: Exact) -> Scale:
    """The powers of two that bring the values of the point z close to one in the scaled program.

    The size of a row is that of its largest term at z. A column is scaled so that its term reaches the size of the
    smallest row it appears in, and a row so that its largest scaled term is close to one. Rows and columns in which z
    is zero have the scale one.
    """
    height, width = matrix.shape
    size = abs(matrix.floats)
    levels = np.zeros(height)
    np.maximum.at(levels, matrix.rows, size * abs(to_floats(z, -BITS))[matrix.columns])
    levels[levels < LEAST_LEVEL] = np.inf
    reach = np.full(width, np.inf)
    np.minimum.at(reach, matrix.columns, levels[matrix.rows] / size)
    reach[np.isinf(reach)] = 1.0
    terms = np.zeros(height)
    np.maximum.at(terms, matrix.rows, size * reach[matrix.columns])
    return Scale(np.frexp(reach)[1], -np.frexp(terms)[1])
