"""Rows of a small source as points: to count them is to compare integers.

Of every declared column there is one array. It holds, row by row, how far the point of the value is above the least of
the domain; NULL just below the domain, as in every set of points, and what is outside, which no set holds, below that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from countveil.query import Question
from countveil.query.condition import All, Member, Typed, columns_of
from countveil.schema import Column

NULL, OUTSIDE = -1, -2


class PointRows:
    """The rows of a source whose rows are counted as they are."""

    def __init__(self, rows: int, offsets: Mapping[Column, NDArray[np.signedinteger]]) -> None:
        self._rows, self._offsets = rows, dict(offsets)

    def can(self, question: Question) -> bool:
        """Every column of the question is one of these."""
        asked = columns_of(question.where) if question.where is not None else set()
        return all(column in self._offsets for column in (*question.by, *asked))

    def count(self, question: Question) -> NDArray[np.int64]:
        """The count of every cell; the last group column runs fastest, and a row with a key outside is in no cell."""
        kept = self._all(True) if question.where is None else self._where(question.where)
        cells = np.zeros(self._rows, dtype=np.int64)
        for column in question.by:
            offsets = self._offsets[column]
            kept &= offsets >= 0
            cells = cells * column.keys + (offsets if column.step == 1 else offsets.astype(np.int64) // column.step)
        return np.bincount(cells[kept], minlength=question.cells).astype(np.int64, copy=False)

    def _where(self, condition: Typed) -> NDArray[np.bool_]:
        """Which rows a condition accepts, in an array of its own."""
        if isinstance(condition, Member):
            return self._member(condition)
        every = isinstance(condition, All)
        if not condition.parts:
            return self._all(every)
        return reduce(np.logical_and if every else np.logical_or, map(self._where, condition.parts))

    def _member(self, member: Member) -> NDArray[np.bool_]:
        offsets, first = self._offsets[member.column], member.column.first
        pieces = [(low - first, high - first) for low, high in member.points]
        if len(pieces) == 1:
            low, high = pieces[0]
            return np.equal(offsets, low) if low == high else (offsets >= low) & (offsets <= high)
        lows, highs = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
        at = np.searchsorted(lows, offsets, side="right")  # the piece that could hold it is the one before
        return np.concatenate(([OUTSIDE - 1], highs))[at] >= offsets

    def _all(self, value: bool) -> NDArray[np.bool_]:
        return np.full(self._rows, value)
