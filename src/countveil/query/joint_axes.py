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
from typing import TYPE_CHECKING

from countveil.errors import QueryError
from countveil.query.axes import Axis, hash_description, make_axis
from countveil.query.condition import Membership
from countveil.query.points import Points, intersection, size, union_all
from countveil.query.schema import Column, PossibleCells, Schema, Value

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
        return np.asarray(part.keys(column), np.int64)[bins]

    def labels(self, column: Column) -> list[Value]:
        """For every combination, its label in one of the group columns."""
        labels = column.key_labels()
        return [labels[key] for key in self.keys(column).tolist()]

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
    grouped: dict[str, list[Column]] = {}
    for column in by:
        grouped.setdefault(column.root.name, []).append(column)
    axes = [make_axis(source, tuple(grouped[source.name])) for source in schema.sources if source.name in grouped]
    listed = set() if schema.possible is None else {column.root.name for column in schema.possible.columns}
    parts = tuple(axis for axis in axes if axis.source.name in listed)
    if schema.possible is None or not parts:
        return tuple(axes)
    joint = {axis.parts[0].source.name: axis for axis in _join_axes(parts, schema.possible)}
    return tuple(joint.get(axis.source.name, axis) for axis in axes if axis not in parts or axis.source.name in joint)


@lru_cache(maxsize=64)
def _join_axes(parts: tuple[Axis, ...], possible: PossibleCells) -> tuple[Axis | JointAxis, ...]:
    """The axes with exactly those combinations of bins that can exist.

    If these combinations are a product, each part keeps an axis of its own, so that equal tables have equal axes.
    """
    import numpy as np

    joint = JointAxis(parts, _list_combinations(parts, possible))
    if not joint.size:
        names = ", ".join(column.name for column in joint.columns)
        raise QueryError(f"a table by {names}, which has no cell", "the list of possible cells has none of its values")
    used = [np.unique(bins) for bins in joint._bins]
    if math.prod(map(len, used)) > joint.size:
        return (joint,)
    return tuple(
        part if len(own) == part.size else JointAxis((part,), own) for part, own in zip(parts, used, strict=True)
    )


def _list_combinations(parts: Sequence[Axis], possible: PossibleCells) -> NDArray[np.int64]:
    """Number the combinations of bins of all parts, and return, sorted, the numbers of those that can exist.

    A combination can exist if a row of the public list lies in it."""
    import numpy as np

    rows = np.array(possible.rows, np.int64).reshape(len(possible.rows), len(possible.columns))
    sets: list[list[Points]] = []  # for each part: the different sets of bins that rows lie in
    chosen = np.empty((len(rows), len(parts)), np.int64)  # for each row and part: the index of the row's set in `sets`
    for place, part in enumerate(parts):
        own = [i for i, column in enumerate(possible.columns) if column.root.name == part.source.name]
        values, of_row = np.unique(rows[:, own], axis=0, return_inverse=True)
        different: dict[Points, int] = {}
        known = [possible.columns[i] for i in own]
        covers = [part.cover(common_points(known, value)) for value in values.tolist()]
        index = [different.setdefault(bins, len(different)) for bins in covers]
        chosen[:, place] = np.array(index)[of_row.reshape(-1)]
        sets.append(list(different))
    chosen = np.unique(chosen, axis=0)
    sizes = [np.array([float(size(bins)) for bins in own]) for own in sets]
    listed = np.prod([own[chosen[:, i]] for i, own in enumerate(sizes)], axis=0).sum()
    product = math.prod(part.size for part in parts)
    if listed > MOST_POSSIBLE or product > LARGEST_PRODUCT:
        raise QueryError(
            f"a table of {float(product):.3g} combinations, of which {listed:.3g} are possible",
            f"at most {float(LARGEST_PRODUCT):.3g} and {MOST_POSSIBLE:,} are allowed; group by fewer columns",
        )
    numbers = np.zeros(len(chosen), np.int64)
    for i, part in enumerate(parts):  # every row is repeated for each bin of this part that it lies in
        members = [np.arange(low, high + 1) for own in sets[i] for low, high in own]
        starts = np.cumsum([0, *map(size, sets[i])])
        lengths = np.diff(starts)[chosen[:, i]]
        row = np.repeat(np.arange(len(chosen)), lengths)
        within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        bins = np.concatenate([[], *members]).astype(np.int64)[starts[chosen[row, i]] + within]
        numbers, chosen = numbers[row] * part.size + bins, chosen[row]
    return np.unique(numbers)


def common_points(columns: Sequence[Column], labels: Sequence[int]) -> Points:
    """The points of a source that have all of these labels: `labels[i]` is the index of a label of `columns[i]`."""
    points = columns[0].block(labels[0])
    for column, label in zip(columns[1:], labels[1:], strict=True):
        points = intersection(points, column.block(label))
    return points
