"""The labels of a table's cells by arithmetic: cell numbers in, Arrow columns out, for the part of a table at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.query import Question
from countveil.schema import Column, Kind, Value

_EPOCH = 719163
"""The day number of 1970-01-01."""


@dataclass(frozen=True)
class Labels:
    """The labels of a group column: a listing, or the consecutive numbers or days from `low` on."""

    kind: Kind
    keys: int
    stride: int
    low: int = 0
    listing: tuple[Value, ...] = ()

    def lookup(self) -> Callable[[NDArray[np.int64]], Any]:
        """Cells to their labels, as an Arrow array."""
        import pyarrow as pa

        if self.listing:
            kind = {"text": pa.string(), "integer": pa.int64(), "boolean": pa.bool_(), "date": pa.date32()}[self.kind]
            listing = pa.array(self.listing, kind)
            return lambda cells: listing.take(pa.array(self._index(cells)))
        if self.kind == "date":
            return lambda cells: pa.array((self._index(cells) + (self.low - _EPOCH)).astype(np.int32), pa.date32())
        return lambda cells: pa.array(self._index(cells) + self.low, pa.int64())

    def _index(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        return cells // self.stride % self.keys


def labels_of(question: Question) -> tuple[Labels, ...]:
    """The labels of every group column, in the order of cells."""
    found, stride = [], question.cells
    for column in question.by:
        stride //= column.keys
        found.append(_labels(column, stride))
    return tuple(found)


def _labels(column: Column, stride: int) -> Labels:
    if column.listed or column.step > 1:
        kind = column.kind if column.step == 1 else "text"
        return Labels(kind, column.keys, stride, listing=tuple(column.key_labels()))
    return Labels(column.kind, column.keys, stride, column.low)


def count_name(question: Question) -> str:
    """The name of the column of counts in the files: no group column's."""
    taken, name = {column.name.casefold() for column in question.by}, "count"
    while name in taken:
        name += "_released"
    return name
