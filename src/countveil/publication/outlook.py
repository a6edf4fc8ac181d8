"""What a publication will contain, before anything is paid: a function of public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from countveil.consistency.tree import Floats, Tree
from countveil.display.cards import Card, Shown
from countveil.errors import CountveilError
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.accuracy import estimate_margins, find_margins
from countveil.publication.layout import Layout, group_margin

SECONDS_PER_NODE = 6e-5
"""About how long deriving and writing a node takes; most of it is for the simulation of margins."""
FEWEST_SECONDS = 2
GAP = 0.4
"""The mean of the positive part of a standard normal error, rounded up."""


@dataclass(frozen=True)
class TableOutlook:
    """One table of a publication, before it is published.

    `margin_measured` is the 95 % margin of its measurement, `margin_published` that of its published numbers, which
    combine all tables; no published number is ever further than `worst_error` from the truth.
    """

    name: str
    by: tuple[str, ...]
    cells: int
    measured: bool
    margin_measured: int | None
    margin_published: int
    worst_error: int | None


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
        rows = [(t.name, t.cells, t.margin_measured or "no", t.margin_published, t.worst_error) for t in self.tables]
        head = ("table", "cells", "measured ±", "published ±", "never more than ±")
        return Card(f"Publication {self.name}, before it is published", facts, "", head, rows, len(rows), self.notes)


def foresee(
    layout: Layout,
    mechanisms: Mapping[str, Mechanism],
    *,
    epsilon: str,
    delta: str,
    pool: str,
    editions_left: int,
) -> PublicationOutlook:
    """The outlook of a publication whose tables are measured with these mechanisms."""
    tree = layout.tree
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
        )
        for i, level in enumerate(tree.levels)
    )
    seconds = max(FEWEST_SECONDS, math.ceil(len(tree) * SECONDS_PER_NODE))
    return PublicationOutlook(
        layout.name,
        layout.declared.dataset,
        pool,
        tables,
        len(mechanisms),
        editions_left,
        epsilon,
        delta,
        seconds,
        (*_note_tables(layout, mechanisms), *_note_margins(layout, mechanisms)),
    )


def _bound_errors(tree: Tree, mechanisms: Mapping[str, Mechanism]) -> list[int]:
    """The largest certain error of the published numbers of each table.

    For each cell it is twice the table's D, or the sum of the errors of its parts if that is less.
    """
    errors: list[Floats] = [np.full(len(level), np.inf) for level in tree.levels]
    for i in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[i]
        if level.name in mechanisms:
            errors[i] = np.minimum(errors[i], 2.0 * mechanisms[level.name].D)
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
