"""The axes of a table: for each source, how its group columns split its points together.

The cells of a table are the product of its axes. Group columns of one source (a hierarchy such as district,
municipality, county) share an axis: its bins are the combinations of their labels that exist. So grouping by district
is grouping by district, municipality and county, and a table has no cell that the public maps exclude.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from countveil.query.points import overlay, union_all
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

    def key(self, i: int, column: Column) -> int:
        """The index of the label of one of the columns in bin i."""
        return i if self.is_plain else self.bins[i][self.columns.index(column)]

    def labels(self, column: Column) -> list[Value]:
        """The label of one of the columns for every bin."""
        labels = column.key_labels()
        return labels if self.is_plain else [labels[self.key(i, column)] for i in range(self.size)]

    def order(self, shown: Sequence[Column]) -> list[int]:
        """The bins sorted by the labels' declared order, of the first shown column first."""
        if self.is_plain:
            return list(range(self.size))
        places = [self.columns.index(column) for column in shown if column in self.columns]
        return sorted(range(self.size), key=lambda i: [self.bins[i][place] for place in places])

    @cached_property
    def canonical(self) -> object:
        """The canonical form: the name of the source if the bins are its own, else with the hash of the bins."""
        if self.is_plain:
            return self.source.name
        if self.source.declared and self.source.keys == self.size and self.runs == self.source.runs:
            return self.source.name
        points: list[list[tuple[int, int]]] = [[] for _ in self.bins]
        for low, high, key in self.runs:
            points[key].append((low, high))
        described = [self.source.describe_points(union_all(each))["values"] for each in points]
        written = json.dumps(described, separators=(",", ":"), ensure_ascii=True)
        return {"of": self.source.name, "bins": hashlib.sha256(written.encode()).hexdigest()}


def axes_of(by: Sequence[Column], sources: Sequence[Column]) -> tuple[Axis, ...]:
    """The axes of a table grouped by these columns, in the order of the sources."""
    grouped: dict[str, list[Column]] = {}
    for column in by:
        grouped.setdefault(column.root.name, []).append(column)
    return tuple(_make_axis(source, tuple(grouped[source.name])) for source in sources if source.name in grouped)


@lru_cache(maxsize=256)
def _make_axis(source: Column, columns: tuple[Column, ...]) -> Axis:
    return Axis(source, columns)
