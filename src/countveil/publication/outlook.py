"""What a publication will contain, before anything is paid: a function of public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.reconciler import Reconciler
from countveil.consistency.sums import LARGEST_SIMULATED
from countveil.consistency.tree import Tree
from countveil.display.cards import Card, Shown
from countveil.errors import CountveilError
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.accuracy import estimate_margins, find_margins, share_costs
from countveil.publication.layout import Layout, group_margin

WRITING = 5e-6
"""About how many seconds deriving and writing a node takes, without margins."""
DRAWING, FOLLOWING, ESTIMATING = 1.5e-8, 7e-8, 1.5e-8
"""About how many seconds a run of a simulation takes for a number that is drawn, for a node that is followed to get its
margin, and for a node of which all are estimated to get the margins of sums across the tree."""
WEIGHING = 1.4e-8
"""About how many seconds the weight of one node in one sum across the tree takes."""
FEWEST_SECONDS = 2
GAP = 0.4
"""The mean of the positive part of a standard normal error, rounded up."""


@dataclass(frozen=True)
class TableOutlook:
    """One table of a publication, before it is published.

    `margin_measured` is the 95 % margin of its measurement, `margin_published` that of its published numbers, which
    combine all tables; no published number is ever further than `worst_error` from the truth. An edition takes
    `answers` answers of the grade `grade` for it, which is about `share` of the privacy cost of the edition.
    """

    name: str
    by: tuple[str, ...]
    cells: int
    measured: bool
    margin_measured: int | None
    margin_published: int
    worst_error: int | None
    grade: str | None
    answers: int
    share: float


@dataclass(frozen=True, repr=False)
class PublicationOutlook(Shown):
    """What a publication will contain and cost."""

    name: str
    dataset: str
    pool: str
    tables: tuple[TableOutlook, ...]
    cost: int
    """How many answers an edition takes: one of the grade of each measured table."""
    editions_left: int
    epsilon: str
    delta: str
    seconds: int
    """About how long an edition takes, without the time for counting the data."""
    notes: tuple[str, ...]

    def _line(self) -> str:
        return f"{self.name}: {', '.join(f'{each.name} ±{each.margin_published}' for each in self.tables)}"

    def _card(self) -> Card:
        facts = {
            "costs": f"{self.cost} answers; {self.editions_left} editions left",
            "guarantee": f"epsilon {self.epsilon}, delta {self.delta} for all answers of pool {self.pool}",
        }
        rows = [
            (t.name, t.cells, _describe_cost(t), t.margin_measured or "no", t.margin_published, t.worst_error)
            for t in self.tables
        ]
        head = ("table", "cells", "costs", "measured ±", "published ±", "never more than ±")
        return Card(f"Publication {self.name}, before it is published", facts, "", head, rows, len(rows), self.notes)


def foresee(
    layout: Layout,
    mechanisms: Mapping[str, Mechanism],
    *,
    epsilon: str,
    delta: str,
    pool: str,
    editions_left: int,
    answers: int,
) -> PublicationOutlook:
    """The outlook of a publication whose tables are measured with these mechanisms; `answers` are those of its pool."""
    tree = layout.tree
    grades = {table.name: layout.declared.grade_of(place) for place, table in enumerate(layout.tables)}
    shares = share_costs(layout, mechanisms, answers)
    margins = find_margins(layout, mechanisms)
    bounds = _bound_errors(tree, mechanisms) if layout.declared.estimate == "nearest" else None
    tables = tuple(
        TableOutlook(
            level.name,
            tuple(level.labels),
            level.size,
            level.name in mechanisms,
            mechanisms[level.name].margin_95 if level.name in mechanisms else None,
            math.ceil(margins[level.name]),
            None if bounds is None else bounds[i],
            grades[level.name] if level.name in mechanisms else None,
            int(level.name in mechanisms),
            round(shares.get(level.name, 0.0), 3),
        )
        for i, level in enumerate(tree.levels)
    )
    return PublicationOutlook(
        layout.name,
        layout.declared.dataset,
        pool,
        tables,
        len(mechanisms),
        editions_left,
        epsilon,
        delta,
        _estimate_seconds(layout, mechanisms),
        (*_note_tables(layout, mechanisms), *_note_margins(layout, mechanisms)),
    )


def _describe_cost(table: TableOutlook) -> str:
    return f"{table.answers} of {table.grade}, {100 * table.share:.0f} %" if table.grade else "nothing"


def _estimate_seconds(layout: Layout, mechanisms: Mapping[str, Mechanism]) -> int:
    """About how many seconds an edition takes: most of them are for the simulations, which depend on the tree."""
    simulation = Reconciler.of(layout.tree, mechanisms, tuple(mechanisms), layout.digest.encode()).simulation
    nodes, runs = len(layout.tree), simulation.runs
    seconds = nodes * WRITING + runs * (simulation.draws_per_run * DRAWING + simulation.nodes_per_run * FOLLOWING)
    for margin in layout.declared.margins:
        sums = int(group_margin(layout, margin.by)[1].max()) + 1
        simulated = runs if nodes <= LARGEST_SIMULATED else 0
        seconds += nodes * (sums * WEIGHING + simulated * ESTIMATING)
    return max(FEWEST_SECONDS, math.ceil(seconds))


def _bound_errors(tree: Tree, mechanisms: Mapping[str, Mechanism]) -> list[int]:
    """The largest certain error of the published numbers of each table.

    For each cell it is twice the table's D, or the sum of the errors of its parts if that is less; exact, as Python's
    integers.
    """
    errors: list[NDArray[Any]] = [np.full(len(level), math.inf, dtype=object) for level in tree.levels]
    for i in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[i]
        if level.name in mechanisms:
            errors[i] = np.minimum(errors[i], 2 * mechanisms[level.name].D)
        if i:
            sums = level.sum_families(errors[i])
            above = errors[level.above]
            above[level.filled] = np.minimum(above[level.filled], sums)
    return [int(each.max(initial=0)) for each in errors]


def _note_tables(layout: Layout, mechanisms: Mapping[str, Mechanism]) -> list[str]:
    notes = [
        f"table {name} is added: it is the common part of two tables" for name in layout.tree.added if name != "total"
    ]
    notes += [
        f"table {table.name} is not measured: a measurement would not make its numbers better"
        for table in layout.tables if table.name not in mechanisms
    ]  # fmt: skip
    if layout.question.truth.bounded:
        notes.append(layout.question.truth.sentence)
    if layout.declared.estimate == "unbiased":
        notes.append("every count is unbiased and can be negative; the certain error is not bounded by 2 D")
    return notes


def _note_margins(layout: Layout, mechanisms: Mapping[str, Mechanism]) -> list[str]:
    """For each margin across the tree, how biased sums of published cells can be, and which tables would avoid this."""
    notes = []
    deviations = {name: each / 1.96 for name, each in estimate_margins(layout, mechanisms).items()}
    for margin in layout.declared.margins:
        by, name = margin.by, margin.name
        table, groups, _ = group_margin(layout, by)
        most = int(np.bincount(groups).max())
        gap = math.ceil(GAP * deviations[table] * most)
        notes.append(
            f"margin {name} goes across the tree: it is an unbiased estimate, and published cells of {table} add up to "
            f"more by up to about {gap:,} where all {most:,} cells are empty; {_suggest(layout, by)}"
        )
    return notes


def _suggest(layout: Layout, by: tuple[str, ...]) -> str:
    """Suggest which table to add or leave out, so that a sum across the tree becomes a table of it."""
    tables = [table.by for table in layout.tables]
    if _is_tree(layout, [*tables, by]):
        columns = ", ".join(f'"{column}"' for column in by)
        return f"it becomes a table of the tree if you add {{ by = [{columns}] }} to the tables"
    for i, table in enumerate(tables):
        if _is_tree(layout, [*tables[:i], *tables[i + 1 :], by]):
            return f"it could be a table of the tree instead of table {'*'.join(table) or 'total'}"
    return "it can be a table of another tree only"


def _is_tree(layout: Layout, tables: list[tuple[str, ...]]) -> bool:
    try:
        Tree.from_columns(layout.keys, tables)
    except CountveilError:
        return False
    return True
