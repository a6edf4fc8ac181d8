"""The axes of a table. A public list may say which combinations of their bins can exist.

The cells of a table are the product of its axes. Each source of group columns has an axis of its own, but sources of
the columns of a public list share a `JointAxis`: a cell can exist if some row of the list lies in it. This depends on
the points of the cell alone. So the list also restricts tables that are grouped by only some of its columns, or by
columns derived from them. And if municipalities consist of whole districts, a table by district is still the same
question as a table by district and municipality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from countveil.errors import QueryError, shorten
from countveil.query.axes import Axis, hash_description, make_axis
from countveil.query.condition import Membership
from countveil.query.points import Points, intersection, size, union_all
from countveil.query.schema import MAX_VALUES, Column, PossibleCells, Schema, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_POSSIBLE = 10_000_000
"""The most combinations that a joint axis may have."""
LARGEST_PRODUCT = 2**62
"""The most combinations of the bins of several axes, possible or not, that engines can number."""


@dataclass(frozen=True, eq=False)
class JointAxis:
    """Several axes as one: its bins are the combinations of their bins that can exist.

    `numbers` are the numbers of these combinations in the product of the `parts`, in ascending order; the last part
    changes fastest.
    """

    parts: tuple[Axis, ...]
    numbers: NDArray[np.int64]

    is_plain = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for part in self.parts for column in part.columns)

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return len(self.numbers)

    @cached_property
    def _bins(self) -> tuple[NDArray[np.int64], ...]:
        """For every combination, the bin of each part."""
        import numpy as np

        return tuple(np.unravel_index(self.numbers, [part.size for part in self.parts]))

    def keys(self, column: Column) -> NDArray[np.int64]:
        """For every combination, the index of its label in one of the group columns."""
        import numpy as np

        part, bins = next((p, bins) for p, bins in zip(self.parts, self._bins, strict=True) if column in p.columns)
        return bins if part.is_plain else np.asarray(part.keys(column), np.int64)[bins]

    def labels(self, column: Column) -> list[Value]:
        """For every combination, its label in one of the group columns."""
        keys = self.keys(column).tolist()
        labels = {key: column.key_label(key) for key in set(keys)}
        return [labels[key] for key in keys]

    def order(self, shown: Sequence[Column]) -> list[int]:
        """The indexes of the combinations, sorted by their labels: in the first shown column, then in the next."""
        import numpy as np

        keys = [self.keys(column) for column in shown if column in self.columns]
        order: list[int] = np.lexsort(keys[::-1]).tolist()
        return order

    @cached_property
    def memberships(self) -> list[Membership]:
        """For every source, the test that its value occurs in some combination."""
        import numpy as np

        points = [part.points(np.unique(own).tolist()) for part, own in zip(self.parts, self._bins, strict=True)]
        unions = [union_all(piece for each in own for piece in each) for own in points]
        return [Membership(part.source, own) for part, own in zip(self.parts, unions, strict=True)]

    @cached_property
    def canonical(self) -> object:
        """The canonical form: the bins that occur in some combination, and how they are combined."""
        import numpy as np

        used = [np.unique(bins, return_inverse=True) for bins in self._bins]
        described = [part.describe(own.tolist()) for part, (own, _) in zip(self.parts, used, strict=True)]
        if len(described) == 1:
            return described[0]
        cells = np.ravel_multi_index([index for _, index in used], [len(own) for own, _ in used])
        return {"of": described, "cells": hash_description(cells.tolist())}


def axes_of(by: Sequence[Column], schema: Schema) -> tuple[Axis | JointAxis, ...]:
    """The axes of a table grouped by these columns, in the order of their (first) sources."""
    axes, parts = _group(by, schema)
    if schema.possible is None or not parts:
        return axes
    joint = {axis.parts[0].source.name: axis for axis in _join_axes(parts, schema.possible)}
    return tuple(joint.get(axis.source.name, axis) for axis in axes if axis not in parts or axis.source.name in joint)


def count_cells(by: Sequence[Column], schema: Schema) -> int:
    """How many cells a table grouped by these columns has. Of a table with more cells than the schema allows nothing is
    built, and the number may be too small, but it is more than the schema allows too."""
    axes, parts = _group(by, schema)
    most = max(MAX_VALUES, schema.max_cells)
    for axis in parts:
        if not axis.is_plain and axis.least_size > most:
            names = ", ".join(column.name for column in axis.columns)
            raise QueryError(
                f"a table by {shorten(names, 100)}, which has {axis.least_size} bins",
                f"at most {most} are allowed for columns of one source; group by a column with fewer",
            )
    number = math.prod(axis.least_size for axis in axes if axis not in parts)
    if schema.possible is not None and parts:
        number *= _combine(parts, schema.possible).size
    return number if number > schema.max_cells else math.prod(axis.size for axis in axes_of(by, schema))


def _group(by: Sequence[Column], schema: Schema) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """An axis for each source of these columns; and those of them whose combinations a public list restricts."""
    grouped: dict[str, list[Column]] = {}
    for column in by:
        grouped.setdefault(column.root.name, []).append(column)
    axes = tuple(make_axis(source, tuple(grouped[source.name])) for source in schema.sources if source.name in grouped)
    listed = set() if schema.possible is None else {column.root.name for column in schema.possible.columns}
    return axes, tuple(axis for axis in axes if axis.source.name in listed)


@lru_cache(maxsize=64)
def _join_axes(parts: tuple[Axis, ...], possible: PossibleCells) -> tuple[Axis | JointAxis, ...]:
    """The axes with exactly those combinations of bins that can exist.

    If these combinations are a product, each part keeps an axis of its own, so that equal tables have equal axes.
    """
    import numpy as np

    joint = JointAxis(parts, _combine(parts, possible).list_numbers([part.size for part in parts]))
    used = [np.unique(bins) for bins in joint._bins]
    if math.prod(map(len, used)) > joint.size:
        return (joint,)
    return tuple(
        part if len(own) == part.size else JointAxis((part,), own) for part, own in zip(parts, used, strict=True)
    )


@dataclass(frozen=True, eq=False)
class _Combinations:
    """The combinations of bins that can exist, for bins of a few classes: bins of one class are in the same rows.

    `classes` has for every part the bins of each class, and every row of `chosen` the number of a class of each part.
    """

    classes: list[list[Points]]
    chosen: NDArray[np.int64]

    @property
    def size(self) -> int:
        """How many combinations of bins there are; at most `LARGEST_PRODUCT`, because every one is counted once."""
        import numpy as np

        counts = [np.array([size(bins) for bins in own], np.int64) for own in self.classes]
        each = [own[self.chosen[:, i]] for i, own in enumerate(counts)]
        return int(np.prod(each, axis=0).sum())

    def list_numbers(self, sizes: Sequence[int]) -> NDArray[np.int64]:
        """The numbers of the combinations in the product of all parts, in ascending order; `sizes` are those of the
        parts."""
        import numpy as np

        bins = self.chosen
        for place, own in enumerate(self.classes):
            members = [np.concatenate([np.arange(low, high + 1) for low, high in each]) for each in own]
            bins = _replace(bins, place, members)
        return np.sort(np.ravel_multi_index(tuple(bins.T), sizes))


@lru_cache(maxsize=64)
def _combine(parts: tuple[Axis, ...], possible: PossibleCells) -> _Combinations:
    """The combinations of bins that can exist: those in which a row of the public list lies."""
    import numpy as np

    rows = np.array(possible.rows, np.int64).reshape(len(possible.rows), len(possible.columns))
    chosen = np.empty((len(rows), len(parts)), np.int64)  # for each row and part: the index of the row's set of bins
    classes: list[list[Points]] = []
    held: list[list[NDArray[np.int64]]] = []
    for place, part in enumerate(parts):
        own = [i for i, column in enumerate(possible.columns) if column.root.name == part.source.name]
        values, of_row = np.unique(rows[:, own], axis=0, return_inverse=True)
        different: dict[Points, int] = {}
        known = [possible.columns[i] for i in own]
        covers = [part.cover(common_points(known, value)) for value in values.tolist()]
        index = [different.setdefault(bins, len(different)) for bins in covers]
        chosen[:, place] = np.array(index)[of_row.reshape(-1)]
        mine, numbers = _classify(list(different))
        classes.append(mine)
        held.append([np.array(each, np.int64) for each in numbers])
    chosen = np.unique(chosen, axis=0)
    for place, of_set in enumerate(held):
        _check_size(parts, sum(len(of_set[i]) for i in chosen[:, place]))
        chosen = np.unique(_replace(chosen, place, of_set), axis=0)
    if not len(chosen):
        names = ", ".join(column.name for part in parts for column in part.columns)
        raise QueryError(f"a table by {names}, which has no cell", "the list of possible cells has none of its values")
    found = _Combinations(classes, chosen)
    _check_size(parts, found.size)
    return found


def _check_size(parts: Sequence[Axis], listed: int) -> None:
    product = math.prod(part.size for part in parts)
    if listed > MOST_POSSIBLE or product > LARGEST_PRODUCT:
        raise QueryError(
            f"a table of {float(product):.3g} combinations, of which {listed:.3g} are possible",
            f"at most {float(LARGEST_PRODUCT):.3g} and {MOST_POSSIBLE:,} are allowed; group by fewer columns",
        )


def _classify(sets: Sequence[Points]) -> tuple[list[Points], list[list[int]]]:
    """Divide the bins in these sets into classes, so that every set is a union of classes: for each class its bins, and
    for each set its classes."""
    ends = sorted({end for own in sets for low, high in own for end in (low, high + 1)})
    place = {end: i for i, end in enumerate(ends)}
    members: list[list[int]] = [[] for _ in ends]  # for each piece between two ends: the sets that it is in
    for i, own in enumerate(sets):
        for low, high in own:
            for piece in range(place[low], place[high + 1]):
                members[piece].append(i)
    classes: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for (low, end), inside in zip(pairwise(ends), map(tuple, members), strict=False):
        classes.setdefault(inside, []).append((low, end - 1))
    classes.pop((), None)
    held: list[list[int]] = [[] for _ in sets]
    for number, inside in enumerate(classes):
        for i in inside:
            held[i].append(number)
    return [tuple(pieces) for pieces in classes.values()], held


def _replace(rows: NDArray[np.int64], place: int, members: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Repeat every row for each member of the set that it names in one column, and put the member in its place."""
    import numpy as np

    lengths = np.array([len(each) for each in members], np.int64)
    starts, own = np.cumsum(lengths) - lengths, lengths[rows[:, place]]
    repeated = np.repeat(rows, own, axis=0)
    within = np.arange(len(repeated)) - np.repeat(np.cumsum(own) - own, own)
    repeated[:, place] = np.concatenate([np.empty(0, np.int64), *members])[starts[repeated[:, place]] + within]
    return repeated


def common_points(columns: Sequence[Column], labels: Sequence[int]) -> Points:
    """The points of a source that have all of these labels: `labels[i]` is the index of a label of `columns[i]`."""
    points = columns[0].block(labels[0])
    for column, label in zip(columns[1:], labels[1:], strict=True):
        points = intersection(points, column.block(label))
    return points
