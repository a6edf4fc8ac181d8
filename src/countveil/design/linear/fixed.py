"""Exact numbers as big-integer arrays in fixed point, and the exact matrix of a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = int | Fraction
Exact = NDArray[np.object_]
Floats = NDArray[np.float64]
Bits = NDArray[np.int32]

BITS = 256
"""Fractional bits of every exact number."""
ONE = 1 << BITS
INFINITE = 1 << (BITS + 400)


def fixed(value: Number) -> int:
    if isinstance(value, int):
        return value << BITS
    return ((value.numerator << (BITS + 1)) // value.denominator + 1) >> 1


def fixed_bound(value: Number | None, absent: int) -> int:
    return absent if value is None else fixed(value)


def exact(values: Sequence[int]) -> Exact:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def zeros(count: int) -> Exact:
    return exact([0] * count)


def to_floats(values: Exact, shift: int | Bits) -> Floats:
    """values * 2^shift."""
    return np.ldexp(values.astype(np.float64), shift)


def exponent_of(values: Floats) -> int:
    """The exponent of the power of two next above the largest value, or far below if none is positive."""
    top = float(values.max(initial=0.0))
    return math.frexp(top)[1] if top else -4 * BITS


def from_floats(values: Floats, shift: int) -> Exact:
    """values * 2^shift, rounded down."""
    mantissas, exponents = np.frexp(values)
    integers = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    shifts = (exponents + (shift - 53)).tolist()
    return exact([m << s if s >= 0 else m >> -s for m, s in zip(integers, shifts, strict=True)])


def top(values: Exact) -> int:
    """The largest value, or 0 if none is positive."""
    return int(values.max(initial=0))


class Matrix:
    """W = (A, -1): the coefficients, and a slack for every row."""

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
        """W z."""
        return _segment_sums(self.values * z[self.columns], self.starts[1:])

    def transposed_times(self, y: Exact) -> Exact:
        """y W."""
        return _segment_sums(self._by_column * y[self._rows_by_column], self._ends)


def _segment_sums(products: Exact, ends: NDArray[Any]) -> Exact:
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    filled = starts < ends
    sums = zeros(len(ends))
    if filled.any():
        sums[filled] = np.add.reduceat(products, starts[filled])
    return sums
