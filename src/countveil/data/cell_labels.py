"""The labels of a table's cells by arithmetic: cell numbers in, Arrow columns out, for the part of a table at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import floordiv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.query import Question
from countveil.schema import Column, Kind, Value

_EPOCH = 719163
"""The day number of 1970-01-01."""


@dataclass(frozen=True)
class Labels:
    """The labels of a group column whose key changes every `stride` cells."""

    column: Column
    stride: int

    @property
    def kind(self) -> Kind:
        return self.column.kind if self.column.step == 1 else "text"

    def lookup(self) -> Callable[[NDArray[np.int64]], Any]:
        """Cells to their labels, as an Arrow array: a listing, or the consecutive numbers or days of a range."""
        import pyarrow as pa

        column = self.column
        if column.listed or column.step > 1:
            listing = arrow_values(column.key_labels(), self.kind)
            return lambda cells: listing.take(pa.array(self._index(cells)))
        if column.kind == "date":
            return lambda cells: pa.array((self._index(cells) + (column.low - _EPOCH)).astype(np.int32), pa.date32())
        return lambda cells: pa.array(self._index(cells) + column.low, pa.int64())

    def _index(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        return cells // self.stride % self.column.keys


def labels_of(question: Question) -> tuple[Labels, ...]:
    """The labels of every group column, in the order of cells."""
    strides = accumulate((column.keys for column in question.by), floordiv, initial=question.cells)
    return tuple(map(Labels, question.by, islice(strides, 1, None)))


def arrow_values(values: Sequence[Value], kind: Kind) -> Any:
    """Values of a column as an Arrow array."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "integer": pa.int64(), "boolean": pa.bool_(), "date": pa.date32()}
    return pa.array(values, kinds[kind])


def count_name(question: Question) -> str:
    """The name of the column of counts in the files: no group column's."""
    taken, name = {column.name.casefold() for column in question.by}, "count"
    while name in taken:
        name += "_released"
    return name
