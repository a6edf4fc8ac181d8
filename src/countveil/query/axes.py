"""The axes of a table: how the group columns divide the values of one source column into bins.

A source is a column that is read from the data; other columns are derived from it. All group columns of one source
share an axis. For example, district and county may both be derived from municipality: the bins of their axis are the
pairs of a district and a county that have a municipality in common. Pairs that the public maps exclude get no bin.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

from countveil.query.points import Points, intersection, overlay, set_of, size, union_all
from countveil.query.schema import Column, Value

Run = tuple[int, int, int]
"""An interval of points, as (low, high, number of its bin). Points are the integers that stand for values."""


@dataclass(frozen=True)
class Axis:
    """One axis of a table: a source column, and the group columns derived from this source, in schema order."""

    source: Column
    columns: tuple[Column, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the table is grouped by the source column itself and by no column derived from it."""
        return self.columns == (self.source,)

    memberships = ()

    @property
    def parts(self) -> tuple[Axis, ...]:
        """The axis itself; a `JointAxis` has several."""
        return (self,)

    @property
    def size(self) -> int:
        """How many bins there are."""
        return self.source.keys if self.is_plain else len(self.bins)

    @cached_property
    def touched(self) -> Points:
        """The numbers of those bins of the source itself that have a value in every column."""
        inside = reduce(intersection, (column.inside for column in self.columns))
        return make_axis(self.source, (self.source,)).cover(inside)

    @property
    def least_size(self) -> int:
        """How many bins there are at least, found without listing all values of the source."""
        return size(self.touched) if self.source in self.columns and not self.is_plain else self.size

    @cached_property
    def _split(self) -> tuple[list[Run], list[tuple[int, ...]]]:
        """The intervals of points that have a label in every column; and for each bin, the index of its label in each
        column.

        Bins are numbered in the order in which they first occur among the points of the source.
        """
        runs = self._runs_of(self.columns[0])
        labels: Mapping[int, tuple[int, ...]] = {key: (key,) for *_, key in runs}
        for column in self.columns[1:]:
            pairs: dict[tuple[int, int], int] = {}
            joint = [
                (low, high, pairs.setdefault((one, other), len(pairs)))
                for low, high, one, other in overlay(runs, self._runs_of(column), -1, -1)
                if one >= 0 and other >= 0
            ]
            runs, labels = joint, {key: (*labels[one], other) for (one, other), key in pairs.items()}
        places: dict[int, int] = {}
        runs = [(low, high, places.setdefault(key, len(places))) for low, high, key in runs]
        return runs, [labels[key] for key in places]

    def _runs_of(self, column: Column) -> list[Run]:
        """The runs of a group column; of the source itself, which may have many values, only those that are needed."""
        if column.source is not None:
            return column.runs
        numbers = (number for low, high in self.touched for number in range(low, high + 1))
        return [(low, high, number) for number in numbers for low, high in column.block(number)]

    @property
    def runs(self) -> list[Run]:
        """The intervals of points with their bins, in ascending order. Do not call this for a plain axis of many
        values."""
        return self._split[0]

    @property
    def bins(self) -> list[tuple[int, ...]]:
        """For each bin, the index of its label in each of `columns`."""
        return self._split[1]

    def keys(self, column: Column) -> Sequence[int]:
        """For each bin, the index of its label in one of the group columns."""
        if self.is_plain:
            return range(self.size)
        place = self.columns.index(column)
        return [labels[place] for labels in self.bins]

    def labels(self, column: Column) -> list[Value]:
        """For each bin, its label in one of the group columns."""
        return [column.key_label(key) for key in self.keys(column)]

    def order(self, shown: Sequence[Column]) -> list[int]:
        """The bin numbers, sorted by the declared order of the labels in the first shown column, then in the next."""
        if self.is_plain:
            return list(range(self.size))
        places = [self.columns.index(column) for column in shown if column in self.columns]
        return sorted(range(self.size), key=lambda i: [self.bins[i][place] for place in places])

    def cover(self, points: Points) -> Points:
        """The numbers of the bins that contain any of these points, as a set."""
        if self.is_plain:
            first, step = self.source.first, self.source.step
            return union_all(((low - first) // step, (high - first) // step) for low, high in points)
        bins: set[int] = set()
        for low, high in points:
            i = bisect_left(self.runs, low, key=lambda run: run[1])
            while i < len(self.runs) and self.runs[i][0] <= high:
                bins.add(self.runs[i][2])
                i += 1
        return set_of(bins)

    def points(self, bins: Sequence[int]) -> list[Points]:
        """For each of these bins, the set of its points."""
        if self.is_plain:
            return [self.source.block(i) for i in bins]
        pieces: dict[int, list[tuple[int, int]]] = {i: [] for i in bins}
        for low, high, key in self.runs:
            if key in pieces:
                pieces[key].append((low, high))
        return [union_all(pieces[i]) for i in bins]

    @cached_property
    def canonical(self) -> object:
        """A JSON value that is equal for axes with equal bins: the source's name, with a hash of the bins unless they
        are the source's own."""
        if self.is_plain:
            return self.source.name
        if self.source.declared and self.source.keys == self.size and self.runs == self.source.runs:
            return self.source.name
        return self.describe(range(self.size))

    def describe(self, bins: Sequence[int]) -> object:
        """The canonical form of these bins."""
        described = [self.source.describe_points(points)["values"] for points in self.points(bins)]
        return {"of": self.source.name, "bins": hash_description(described)}


def hash_description(described: object) -> str:
    """The hash of plain JSON values."""
    written = json.dumps(described, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(written.encode()).hexdigest()


@lru_cache(maxsize=256)
def make_axis(source: Column, columns: tuple[Column, ...]) -> Axis:
    """The axis of a source column, for group columns that are the source itself or derived from it; cached."""
    return Axis(source, columns)
