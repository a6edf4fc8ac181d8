"""The axis of the group columns of one source: how they split its points together.

Group columns of one source (a hierarchy such as district, municipality, county) share an axis: its bins are the
combinations of their labels that exist. So grouping by district is grouping by district, municipality and county, and a
table has no cell that the public maps exclude.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from countveil.query.points import Points, overlay, set_of, union_all
from countveil.query.schema import Column, Value

Run = tuple[int, int, int]
"""The points low..high and the number of their bin."""


@dataclass(frozen=True)
class Axis:
    """The group columns of one source, in the order of the schema."""

    source: Column
    columns: tuple[Column, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the bins are the source's own: its values, or steps of its range."""
        return self.columns == (self.source,)

    known = ()

    @property
    def parts(self) -> tuple[Axis, ...]:
        """The axis itself; a `JointAxis` has several."""
        return (self,)

    @property
    def size(self) -> int:
        """How many bins there are."""
        return self.source.keys if self.is_plain else len(self.bins)

    @cached_property
    def _split(self) -> tuple[list[Run], list[tuple[int, ...]]]:
        """The runs of points with a label in every column, and for every bin the indexes of its labels. Bins are
        numbered as the points of the source have them first."""
        runs = self.columns[0].runs
        labels: list[tuple[int, ...]] = [(i,) for i in range(self.columns[0].keys)]
        for column in self.columns[1:]:
            pairs: dict[tuple[int, int], int] = {}
            joint = [
                (low, high, pairs.setdefault((one, other), len(pairs)))
                for low, high, one, other in overlay(runs, column.runs, -1, -1)
                if one >= 0 and other >= 0
            ]
            runs, labels = joint, [(*labels[one], other) for one, other in pairs]
        places: dict[int, int] = {}
        runs = [(low, high, places.setdefault(key, len(places))) for low, high, key in runs]
        return runs, [labels[key] for key in places]

    @property
    def runs(self) -> list[Run]:
        """The bins as intervals of points, in order; not for a plain axis of many values."""
        return self._split[0]

    @property
    def bins(self) -> list[tuple[int, ...]]:
        """For every bin, the index of the label of each column."""
        return self._split[1]

    def keys(self, column: Column) -> Sequence[int]:
        """The index of the label of one of the columns in every bin."""
        if self.is_plain:
            return range(self.size)
        place = self.columns.index(column)
        return [labels[place] for labels in self.bins]

    def labels(self, column: Column) -> list[Value]:
        """The label of one of the columns for every bin."""
        labels = column.key_labels()
        return labels if self.is_plain else [labels[key] for key in self.keys(column)]

    def order(self, shown: Sequence[Column]) -> list[int]:
        """The bins sorted by the labels' declared order, of the first shown column first."""
        if self.is_plain:
            return list(range(self.size))
        places = [self.columns.index(column) for column in shown if column in self.columns]
        return sorted(range(self.size), key=lambda i: [self.bins[i][place] for place in places])

    def cover(self, points: Points) -> Points:
        """The bins that have some of these points, as a set of their numbers."""
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
        """The points of some of the bins."""
        if self.is_plain:
            return [self.source.block(i) for i in bins]
        pieces: dict[int, list[tuple[int, int]]] = {i: [] for i in bins}
        for low, high, key in self.runs:
            if key in pieces:
                pieces[key].append((low, high))
        return [union_all(pieces[i]) for i in bins]

    @cached_property
    def canonical(self) -> object:
        """The canonical form: the name of the source if the bins are its own, else with the hash of the bins."""
        if self.is_plain:
            return self.source.name
        if self.source.declared and self.source.keys == self.size and self.runs == self.source.runs:
            return self.source.name
        return self.describe(range(self.size))

    def describe(self, bins: Sequence[int]) -> object:
        """The canonical form of some of the bins."""
        described = [self.source.describe_points(points)["values"] for points in self.points(bins)]
        return {"of": self.source.name, "bins": hash_description(described)}


def hash_description(described: object) -> str:
    """The hash of plain JSON values."""
    written = json.dumps(described, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(written.encode()).hexdigest()


@lru_cache(maxsize=256)
def make_axis(source: Column, columns: tuple[Column, ...]) -> Axis:
    """The axis of these columns of a source."""
    return Axis(source, columns)
