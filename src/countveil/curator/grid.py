"""The cells of a table: the product of its axes, each with the labels of one or several group columns."""

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
"""The most columns of one axis for which the sizes of all subtotals are stated."""


@dataclass(frozen=True)
class Grid:
    """Group columns by their labels along their axes: `axes[i]` is the axis of column i, from 0 in order of cells."""

    labels: tuple[list[Any], ...]
    axes: tuple[int, ...]

    @property
    def groups(self) -> list[list[int]]:
        """The columns of every axis."""
        return [[i for i, axis in enumerate(self.axes) if axis == a] for a in range(max(self.axes, default=-1) + 1)]

    @property
    def sizes(self) -> list[int]:
        """How many bins each axis has."""
        return [len(self.labels[columns[0]]) for columns in self.groups]

    def places(self) -> Iterator[Labels]:
        """The labels of every cell, in order."""
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
        """For every cell, the position of its label along the axis of a column."""
        sizes, axis = self.sizes, self.axes[column]
        return np.arange(math.prod(sizes)) // math.prod(sizes[axis + 1 :]) % sizes[axis]

    def split(self, columns: Sequence[int]) -> list[tuple[Labels, NDArray[np.int64]]]:
        """The combinations of labels of some columns that occur, and the numbers of the cells that have each."""
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
        """How many cells a subtotal can have."""
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
    """The grid of a question's table as it is shown, and its counts in that order; they come in the order of its axes.

    Bins are in the declared order of their labels, of the first shown column first.
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
    """The grid of a table's rows, given the values of its group columns row by row; ValueError if they are no grid."""
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
