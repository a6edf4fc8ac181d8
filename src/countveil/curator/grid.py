"""The cells of a table: all combinations of the bins of its axes.

A bin has a label for each group column of its axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.query import Question

Labels = tuple[Any, ...]
MOST_SUBSETS = 5
"""The most group columns on one axis for which the sizes of all possible subtotals are computed."""


@dataclass(frozen=True)
class Grid:
    """How the cells of a table are arranged: along axes, each divided into bins, one cell for each combination of bins.

    Group columns that are derived from one source column share an axis. `axes[i]` is the number of column i's axis,
    from 0, and `labels[i]` has the column's label for each bin of that axis. The last axis changes fastest from cell to
    cell.
    """

    labels: tuple[list[Any], ...]
    axes: tuple[int, ...]

    @property
    def groups(self) -> list[list[int]]:
        """For each axis, the indexes of its group columns."""
        return [[i for i, axis in enumerate(self.axes) if axis == a] for a in range(max(self.axes, default=-1) + 1)]

    @property
    def sizes(self) -> list[int]:
        """How many bins each axis has."""
        return [len(self.labels[columns[0]]) for columns in self.groups]

    def places(self) -> Iterator[Labels]:
        """The labels of each cell, in the order of cells."""
        groups = self.groups
        bins = [list(zip(*(self.labels[i] for i in columns), strict=True)) for columns in groups]
        flat = [i for columns in groups for i in columns]
        if flat == sorted(flat):
            for place in product(*bins):
                yield tuple(label for part in place for label in part)
        else:
            order = [flat.index(i) for i in range(len(flat))]
            for place in product(*bins):
                labels = [label for part in place for label in part]
                yield tuple(labels[i] for i in order)

    def positions(self, column: int) -> NDArray[np.int64]:
        """For each cell, the number of its bin on the axis of this column."""
        sizes, axis = self.sizes, self.axes[column]
        return np.arange(math.prod(sizes)) // math.prod(sizes[axis + 1 :]) % sizes[axis]

    def split(self, columns: Sequence[int]) -> list[tuple[Labels, NDArray[np.int64]]]:
        """Group the cells by their labels in some columns. For each combination of labels: the labels, and the
        positions of its cells in the table."""
        number = np.zeros(math.prod(self.sizes), np.int64)
        parts: list[list[tuple[Labels, tuple[int, ...]]]] = []
        for axis in dict.fromkeys(self.axes[i] for i in columns):
            own = [i for i in columns if self.axes[i] == axis]
            bins = list(zip(*(self.labels[i] for i in own), strict=True))
            different = {labels: k for k, labels in enumerate(dict.fromkeys(bins))}
            index = np.array([different[labels] for labels in bins], np.int64)
            number = number * len(different) + index[self.positions(own[0])]
            parts.append([(labels, tuple(own)) for labels in different])
        cells = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
        places = []
        for part in product(*parts):
            of = {column: label for labels, own in part for column, label in zip(own, labels, strict=True)}
            places.append(tuple(of[i] for i in columns))
        return list(zip(places, cells, strict=True))

    def sum_sizes(self) -> set[int]:
        """Every number of cells that a subtotal can cover."""
        sizes = {1}
        for columns in self.groups:
            counts = {1, len(self.labels[columns[0]])}
            for n in range(1, len(columns) + 1 if len(columns) <= MOST_SUBSETS else 2):
                for chosen in combinations(columns, n):
                    bins = list(zip(*(self.labels[i] for i in chosen), strict=True))
                    numbers = {labels: k for k, labels in enumerate(dict.fromkeys(bins))}
                    counts |= set(np.bincount([numbers[labels] for labels in bins]).tolist())
            sizes = {size * count for size in sizes for count in counts}
        return sizes


def lay_out(question: Question, counts: NDArray[np.int64]) -> tuple[Grid, NDArray[np.int64]]:
    """The grid of a table with its columns in the order asked for, and the counts rearranged to fit it.

    The given counts are in the order of the question's axes. Bins are sorted by the declared order of their labels.
    """
    shown = question.shown
    number = {column.name: i for i, axis in enumerate(question.axes) for column in axis.columns}
    order = list(dict.fromkeys(number[column.name] for column in shown))
    bins = [question.axes[i].order(shown) for i in order]
    cube = counts.reshape(question.shape).transpose(order)
    axes = tuple(order.index(number[column.name]) for column in shown)
    labels = []
    for column, axis in zip(shown, axes, strict=True):
        along = question.axes[order[axis]].labels(column)
        labels.append([along[i] for i in bins[axis]])
    return Grid(tuple(labels), axes), np.ascontiguousarray(cube[np.ix_(*bins)] if bins else cube).reshape(-1)


def read_grid(columns: Sequence[Sequence[Any]], axes: Sequence[int]) -> Grid:
    """Recover the grid from a table's rows, given its group columns; ValueError if the rows are not a full grid."""
    if list(dict.fromkeys(axes)) != list(range(len(set(axes)))) or len(axes) != len(columns):
        raise ValueError
    labels: list[list[Any]] = [[] for _ in columns]
    for axis in range(len(set(axes))):
        own = [i for i in range(len(axes)) if axes[i] == axis]
        bins = dict.fromkeys(zip(*(columns[i] for i in own), strict=True))
        for i, values in zip(own, zip(*bins, strict=True), strict=True):
            labels[i] = list(values)
    grid = Grid(tuple(labels), tuple(axes))
    if columns and list(zip(*columns, strict=True)) != list(grid.places()):
        raise ValueError
    return grid
