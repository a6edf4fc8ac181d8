"""From recorded measurements to the tables of an edition: pure post-processing, which costs no privacy.

**Guarantee.** What is derived depends on the public layout, the certified laws, the recorded measurements and the ids
of the receipts alone. So an edition can be derived again at any time, with the same numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.reconciler import Reconciler
from countveil.consistency.reconciliation import Reconciliation
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


@dataclass(frozen=True, eq=False)
class Edition:
    """Everything that is derived from the measurements of one edition."""

    layout: Layout
    mechanisms: Mapping[str, Mechanism]
    measurements: Mapping[str, Ints]
    receipts: Sequence[str]
    progress: Progress = iter

    @cached_property
    def reconciler(self) -> Reconciler:
        """The reconciler of this edition; its random rounding is seeded by the receipts, so it can be repeated."""
        seed = make_seed(self.layout.digest, self.receipts)
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
        return tuple(self._publish_margin(margin.by) for margin in self.layout.declared.margins)

    def _publish(self, place: int) -> PublishedTable:
        tree = self.layout.tree
        level = tree.levels[place]
        table = self.reconciliation[level.name]
        measured = self.measurements.get(level.name)
        columns = label_columns(self.layout, level.labels)
        columns |= {name: getattr(table, name) for name in ("count", "low", "high", "certain_low", "certain_high")}
        if measured is not None:
            columns["measured"] = measured
        columns["quality"] = mark_quality(table.count, table.low, table.high)
        coarser = None
        if place:
            columns["part_of"] = _declared_parents(tree, place)
            coarser = tree.names[level.above]
        margin = self.reconciler.margins(level.name).max(initial=0.0)
        return PublishedTable(
            level.name, tuple(level.labels), columns, coarser, measured is not None, math.ceil(margin)
        )

    def _publish_margin(self, by: tuple[str, ...]) -> PublishedMargin:
        table, groups, labels = group_margin(self.layout, by)
        sums = self.reconciliation.margin(table, groups, progress=self.progress)
        columns = label_columns(self.layout, labels)
        columns |= {"estimate": sums.estimate, "low": sums.low, "high": sums.high}
        columns |= {"sum_of_cells": sums.sum_of_cells, "gap": np.rint(sums.gap).astype(np.int64)}
        return PublishedMargin("*".join(by), by, columns)


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
