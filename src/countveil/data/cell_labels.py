"""The labels of a table's cells as Arrow columns, computed from cell numbers, for the whole table or a part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import floordiv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.query import Question
from countveil.query.axes import Axis
from countveil.query.schema import Column, Kind, Value

_EPOCH = 719163
"""The day number that Python's dates give to 1970-01-01, which is day 0 in Arrow."""


@dataclass(frozen=True)
class Labels:
    """The labels of one group column, by cell number. The label can change only every `stride` cells."""

    column: Column
    axis: Axis
    stride: int

    @property
    def kind(self) -> Kind:
        return self.column.label_kind

    def lookup(self) -> Callable[[NDArray[np.int64]], Any]:
        """Return a function that maps an array of cell numbers to an Arrow array of their labels."""
        import pyarrow as pa

        column = self.column
        if column.is_listed or column.step > 1 or not self.axis.is_plain:
            labels = arrow_values(self.axis.labels(column), self.kind)
            return lambda cells: labels.take(pa.array(self._index(cells)))
        if column.kind == "date":
            return lambda cells: pa.array((self._index(cells) + (column.low - _EPOCH)).astype(np.int32), pa.date32())
        return lambda cells: pa.array(self._index(cells) + column.low, pa.int64())

    def _index(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        return cells // self.stride % self.axis.size


def labels_of(question: Question) -> tuple[Labels, ...]:
    """One `Labels` for each group column of a question, in the order of the schema."""
    strides = islice(accumulate(question.shape, floordiv, initial=question.cells), 1, None)
    labels = {
        column.name: Labels(column, axis, stride)
        for axis, stride in zip(question.axes, strides, strict=True)
        for column in axis.columns
    }
    return tuple(labels[column.name] for column in question.by)


def arrow_values(values: Sequence[Value], kind: Kind) -> Any:
    """Convert values of a column to an Arrow array."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "integer": pa.int64(), "boolean": pa.bool_(), "date": pa.date32()}
    return pa.array(values, kinds[kind])


def count_name(question: Question) -> str:
    """The name of the column of counts in result files. It differs from the names of all group columns."""
    taken, name = {column.name.casefold() for column in question.by}, "count"
    while name in taken:
        name += "_released"
    return name
