"""Tables that add up, with their intervals: what `reconcile` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from countveil.consistency.bounds import CertainBounds
from countveil.consistency.hierarchy import NUMBERS, read_array
from countveil.consistency.simulation import OUTWARD, Progress, Quantiles, Simulation
from countveil.consistency.sums import Groups, find_margins, measure_sums, read_groups
from countveil.consistency.tree import Floats, Ints, Labels, Tree
from countveil.display.cards import MOST_ROWS, Card, Shown, draw_interval
from countveil.errors import ParameterError


@dataclass(frozen=True, eq=False, repr=False)
class ReconciledTable(Shown):
    """One reconciled table: arrays with one value for each cell, in the order in which cells were declared.

    `count` is what to publish. The true count is within `low` and `high` with probability at least 95 %, and within
    `certain_low` and `certain_high` always. `estimate` is the unbiased least-squares estimate, `deviation` its standard
    deviation.
    """

    name: str
    labels: Labels
    measured: bool
    count: Ints
    low: Ints
    high: Ints
    certain_low: Ints
    certain_high: Ints
    estimate: Floats
    deviation: Floats
    _offset: Floats  # the estimate minus the count, exact also where the estimate itself is too large for a float

    def _line(self) -> str:
        return f"{self.name}: {len(self)} cells, total {int(self.count.sum()):,}"

    def _card(self) -> Card:
        labels = {**self.labels} or {"cell": np.arange(len(self))}
        end, values = float(self.high.max(initial=1)), (self.count, self.low, self.high)
        columns = [np.asarray(each)[:MOST_ROWS].tolist() for each in (*labels.values(), *values)]
        rows = [
            (*place, count, f"{low:,} to {high:,}", draw_interval(low, count, high, end))
            for *place, count, low, high in zip(*columns, strict=True)
        ]
        head = (*map(str, labels), "count", "95 % interval", "")
        return Card(f"Table {self.name}", {}, "", head, rows, len(self))

    def __len__(self) -> int:
        return len(self.count)

    def to(self, kind: str) -> Any:
        """The table as a "pandas", "polars" or "pyarrow" frame: its labels, or the number of the cell, and the numbers.

        Args:
            kind: "pandas", "polars" or "pyarrow".

        Returns:
            A frame with the columns count, low, high, certain_low and certain_high beside the labels.

        Raises:
            ParameterError: Another kind, or its package is not installed.

        >>> import countveil as cv
        >>> tree = cv.Tree.from_parents({"town": (None, [0, 0])})
        >>> law = cv.design(epsilon="1", delta="1e-6", policy="signed")
        >>> cv.reconcile(tree, {"town": [7, -2]}, {"town": law})["town"].to("pyarrow").column_names
        ['cell', 'count', 'low', 'high', 'certain_low', 'certain_high']
        """
        from countveil.consistency.frames import make_frame

        labels = self.labels or {"cell": np.arange(len(self))}
        return make_frame({**labels, **{name: getattr(self, name) for name in NUMBERS}}, kind)


@dataclass(frozen=True, eq=False, repr=False)
class MarginTable(Shown):
    """Sums of cells that are not themselves cells of the tree: unbiased estimates, with intervals around them.

    `estimate` is the least-squares estimate rounded to the nearest whole number; the true sum is within `low` and
    `high` with probability at least 95 %. `sum_of_cells` is the sum of the published cells, which is biased upwards
    where many cells are truly 0. `gap` estimates by how much `sum_of_cells` exceeds the true sum on average: it is
    `sum_of_cells` minus the unrounded estimate, and its mean is exactly that excess, whatever the true counts are.
    """

    estimate: Ints
    low: Ints
    high: Ints
    deviation: Floats
    sum_of_cells: Ints
    gap: Floats

    def _line(self) -> str:
        return f"of {len(self)} sums"

    def _card(self) -> Card:
        columns = [each[:MOST_ROWS].tolist() for each in (self.estimate, self.low, self.high, self.sum_of_cells)]
        cells = enumerate(zip(*columns, strict=True))
        rows = [(i, y, f"{low:,} to {high:,}", total) for i, (y, low, high, total) in cells]
        head = ("group", "estimate", "95 % interval", "sum of cells")
        return Card("Sums across the tree", {}, "", head, rows, len(self))

    def __len__(self) -> int:
        return len(self.estimate)


@dataclass(frozen=True, eq=False, repr=False)
class Reconciliation(Shown):
    """The reconciled tables of a tree; `result["county"]` is one of them.

    `claim` says what the 95 % of the intervals hold for: "each cell" or, in very large trees, "cells on average" over a
    table. `uniform` is the random number that unbiased tables were rounded with, None for others.
    """

    tree: Tree
    tables: Mapping[str, ReconciledTable]
    claim: str
    uniform: str | None
    _simulation: Any

    def _line(self) -> str:
        return f"of {self.tree!r}"

    def _card(self) -> Card:
        rows = [
            (table.name, len(table), "yes" if table.measured else "summed", int(table.count.sum()))
            for table in self.tables.values()
        ]
        notes = (f"the intervals hold for {self.claim} in 95 % of releases",)
        return Card("Reconciliation", {}, "", ("table", "cells", "measured", "total"), rows, len(rows), notes)

    def __getitem__(self, name: str) -> ReconciledTable:
        return self.tables[self.tree.names[self.tree.place(name)]]

    def margin(self, table: str, groups: Any, *, progress: Progress = iter) -> MarginTable:
        """Sums of cells of a table by groups that are not in the tree, such as one sex over all towns.

        Args:
            table: The table whose cells are added.
            groups: For each cell of the table its group, a whole number from 0 on; -1 for none. Or the name of a column
                of the table, whose values are then numbered in sorted order.
            progress: Wraps the numbers of steps, to show progress.

        Returns:
            A MarginTable with one sum for each group.

        Raises:
            ParameterError: The table or the groups are not allowed.

        >>> import countveil as cv
        >>> tree = cv.Tree.from_parents({"town": (None, [0, 0]), "sex": ("town", [0, 0, 1, 1])})
        >>> law = cv.design(epsilon="1", delta="1e-6", policy="signed")
        >>> result = cv.reconcile(tree, {"sex": [70, 60, 0, 2]}, {"sex": law})
        >>> result.margin("sex", [0, 1, 0, 1]).estimate.tolist()
        [70, 62]
        """
        place = self.tree.place(table)
        level, own = self.tree.levels[place], self[table]
        numbers, size = read_groups(level, groups)
        chosen = Groups.of(place, level.select(numbers), size)
        errors = measure_sums(self._simulation.fit, self._simulation.laws, chosen, progress)
        margins = find_margins(self._simulation, chosen, errors, progress) * OUTWARD
        sums = Groups.of(place, numbers, size)
        whole = np.rint(own._offset)
        wholes, parts = sums.sum(own.count + whole.astype(np.int64)), sums.sum(own._offset - whole)
        least, most = sums.sum(own.certain_low), sums.sum(own.certain_high)
        low, high = round_outward(wholes, parts, margins)
        nearest = wholes + np.rint(parts).astype(np.int64)
        low, high = np.minimum(np.maximum(low, least), nearest), np.maximum(np.minimum(high, most), nearest)
        total = sums.sum(own.count)
        return MarginTable(nearest, low, high, errors.deviations, total, (total - wholes) - parts)

    def sum(self, table: str, cells: Any) -> MarginTable:
        """The sum of some cells of a table: `margin` with one group.

        Args:
            table: The table whose cells are added.
            cells: The numbers of the cells, each once.

        Returns:
            A MarginTable with one sum.

        Raises:
            ParameterError: The table or a cell is not allowed.

        >>> import countveil as cv
        >>> tree = cv.Tree.from_parents({"town": (None, [0, 0, 0])})
        >>> law = cv.design(epsilon="1", delta="1e-6", policy="signed")
        >>> cv.reconcile(tree, {"town": [70, 60, 2]}, {"town": law}).sum("town", [0, 2]).estimate.tolist()
        [72]
        """
        size = len(self[table])
        given = read_array("cells", cells)
        if given.dtype.kind not in "iu" or given.ndim != 1 or not len(given):
            raise ParameterError("cells", f"an array of {given.dtype}", "a list of at least one cell number")
        if int(given.min()) < 0 or int(given.max()) >= size or len(np.unique(given)) < len(given):
            allowed = f"a list of different numbers from 0 to {size - 1}"
            raise ParameterError("cells", "a number of no cell, or a number twice", allowed)
        groups = np.full(size, -1)
        groups[given] = 0
        return self.margin(table, groups)

    @cached_property
    def nodes(self) -> int:
        """The number of cells that can exist, over all tables."""
        return len(self.tree)


def round_outward(whole: Ints, part: Floats, margin: Floats) -> tuple[Ints, Ints]:
    """The least and the largest whole number within the margin of whole + part."""
    slack = 1e-9 * (1 + np.abs(part))
    low = whole + np.ceil(part - margin - slack).astype(np.int64)
    return low, whole + np.floor(part + margin + slack).astype(np.int64)


def collect(
    tree: Tree,
    simulation: Simulation,
    quantiles: Quantiles,
    reference: Sequence[Ints],
    estimates: Sequence[Floats],
    bounds: CertainBounds,
    published: Sequence[Ints],
    uniform: str | None,
) -> Reconciliation:
    """The reconciled tables, in declared order, with the intervals of every cell.

    `estimates` are differences from the whole tables `reference`.
    """
    tables = {}
    for i, level in enumerate(tree.levels):
        low, high = round_outward(reference[i], estimates[i], quantiles.margins[i] * OUTWARD)
        low = np.minimum(np.maximum(low, bounds.low[i]), published[i])
        high = np.maximum(np.minimum(high, bounds.high[i]), published[i])
        tables[level.name] = ReconciledTable(
            name=level.name,
            labels=level.labels,
            measured=simulation.laws[i] is not None,
            count=level.restore(published[i]),
            low=level.restore(low),
            high=level.restore(high),
            certain_low=level.restore(bounds.low[i]),
            certain_high=level.restore(bounds.high[i]),
            estimate=level.restore(reference[i] + estimates[i]),
            deviation=level.restore(np.sqrt(simulation.fit.variance[i])),
            _offset=level.restore((reference[i] - published[i]) + estimates[i]),
        )
    claim = "each cell" if quantiles.exact else "cells on average"
    return Reconciliation(tree, tables, claim, uniform, simulation)
