"""From recorded measurements to the tables of an edition: pure post-processing, which costs no privacy.

**Guarantee.** What is derived depends on the public layout, the certified laws, the recorded measurements and the ids
of the receipts alone. So an edition can be derived again at any time, with the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.reconciler import Reconciler
from countveil.consistency.reconciliation import MarginTable, ReconciledTable, Reconciliation
from countveil.consistency.tree import Ints, Tree
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.layout import Layout, group_margin

Columns = dict[str, NDArray[Any]]
Progress = Callable[[Iterable[int]], Iterable[int]]
QUALITY = (("A", 0.05), ("B", 0.15), ("C", 0.33))
"""The quality marks, each with the largest relative margin for which it is given; above the last margin it is D."""
RULE = "half the width of the 95 % interval over the count: A up to 5 %, B up to 15 %, C up to 33 %, D above"


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """One table of an edition: labels and numbers by column, and the accuracy of its cells."""

    name: str
    by: tuple[str, ...]
    columns: Columns
    coarser: str | None
    measured: bool
    margin_published: int
    """The 95 % margin of the least accurate number."""

    def __len__(self) -> int:
        return len(self.columns["count"])


@dataclass(frozen=True, eq=False)
class PublishedMargin:
    """Sums of cells across the tree: they are no table of the publication."""

    name: str
    by: tuple[str, ...]
    columns: Columns
    table: str
    """The table whose cells are added."""


@dataclass(frozen=True, eq=False)
class Edition:
    """Everything that is derived from the measurements of one edition."""

    layout: Layout
    mechanisms: Mapping[str, Mechanism]
    measurements: Mapping[str, Ints]
    receipts: Sequence[str]
    progress: Progress = iter

    @cached_property
    def receipt_of(self) -> Mapping[str, str]:
        """The receipt of every measured table, coarse to fine."""
        known = dict(zip(self.mechanisms, self.receipts, strict=True))
        return {name: known[name] for name in self.layout.tree.names if name in known}

    @cached_property
    def reconciler(self) -> Reconciler:
        """The reconciler of this edition; its random rounding is seeded by the receipts, so it can be repeated."""
        seed = make_seed(self.layout.digest, tuple(self.receipt_of.values()))
        return Reconciler.of(self.layout.tree, self.mechanisms, tuple(self.mechanisms), seed)

    @cached_property
    def reconciliation(self) -> Reconciliation:
        estimate = self.layout.declared.estimate
        return self.reconciler.reconcile(self.measurements, estimate=estimate, progress=self.progress)

    @cached_property
    def tables(self) -> tuple[PublishedTable, ...]:
        """All tables of the tree, coarse to fine."""
        return tuple(self._publish(place) for place in range(len(self.layout.tree.levels)))

    @cached_property
    def margins(self) -> tuple[PublishedMargin, ...]:
        """The declared margins across the tree."""
        return tuple(self._publish_margin(by, *found) for by, found in self._found.items())

    @cached_property
    def _found(self) -> Mapping[tuple[str, ...], tuple[str, Ints, Mapping[str, Ints]]]:
        """For every margin the table whose cells are added, the sum that each cell belongs to, and labels of sums."""
        return {margin.by: group_margin(self.layout, margin.by) for margin in self.layout.declared.margins}

    def _publish(self, place: int) -> PublishedTable:
        tree = self.layout.tree
        level = tree.levels[place]
        keys = dict(level.labels)
        for table, groups, labels in self._found.values():
            if table == level.name:  # its cells have the labels of the sums that they belong to
                keys |= {column: own[groups] for column, own in labels.items() if column not in keys}
        columns = label_columns(self.layout, keys)
        columns |= number_columns(self.reconciliation[level.name], self.measurements.get(level.name))
        coarser = None
        if place:
            columns["part_of"] = _declared_parents(tree, place)
            coarser = tree.names[level.above]
        measured = level.name in self.measurements
        margin = widest_margin(self.reconciler, level.name)
        return PublishedTable(level.name, tuple(level.labels), columns, coarser, measured, margin)

    def _publish_margin(
        self, by: tuple[str, ...], table: str, groups: Ints, labels: Mapping[str, Ints]
    ) -> PublishedMargin:
        sums = self.reconciliation.margin(table, groups, progress=self.progress)
        return PublishedMargin("*".join(by), by, label_columns(self.layout, labels) | sum_columns(sums), table)


def number_columns(table: ReconciledTable, measured: Ints | None) -> Columns:
    """The columns of a published table besides labels: all but its own measurement are derived from measurements."""
    columns = {name: getattr(table, name) for name in ("count", "low", "high", "certain_low", "certain_high")}
    if measured is not None:
        columns["measured"] = measured
    return columns | {"quality": mark_quality(table.count, table.low, table.high)}


def sum_columns(sums: MarginTable) -> Columns:
    """The columns of a margin across the tree that are derived from the measurements."""
    columns = {name: getattr(sums, name) for name in ("estimate", "low", "high", "sum_of_cells")}
    return columns | {"gap": np.rint(sums.gap).astype(np.int64)}


def widest_margin(reconciler: Reconciler, table: str) -> int:
    """The 95 % margin of the least accurate number of a table, rounded up."""
    return int(np.ceil(reconciler.margins(table).max(initial=0.0)))


def make_seed(digest: str, receipts: Sequence[str]) -> bytes:
    """The seed of the random rounding and of the simulation of an edition."""
    return hashlib.sha256("\n".join([digest, *receipts]).encode()).digest()


def label_columns(layout: Layout, keys: Mapping[str, Ints]) -> Columns:
    """Look up the labels of cells: `keys` has, for every column, the index of the label of each cell."""
    columns: Columns = {}
    for column, indexes in keys.items():
        labels = np.empty(len(layout.labels(column)), dtype=object)
        labels[:] = layout.labels(column)
        columns[column] = labels[indexes]
    return columns


def mark_quality(count: Ints, low: Ints, high: Ints) -> NDArray[Any]:
    """A mark for each cell by its relative margin; see `RULE`."""
    relative = (high - low) / 2 / np.maximum(count, 1)
    marks = np.full(len(count), "D", dtype=object)
    for mark, limit in reversed(QUALITY):
        marks[relative <= limit] = mark
    return marks


def _declared_parents(tree: Tree, place: int) -> Ints:
    """For each declared cell of a table the number of the cell of the coarser table that it is part of."""
    level = tree.levels[place]
    above = tree.levels[level.above]
    numbers = level.parents.astype(np.int64)
    if above.declared is not None:
        numbers = above.declared[numbers]
    parents: Ints = level.restore(numbers)
    return parents
