"""The finest cells of a publication, its tables as sums of them, and the tree that they form.

Every table is a sum of cells of one question, the common refinement: it is grouped by the columns of all tables. The
engine bounds each person once, in these cells, and counts once; all tables are then added up from the same counts, so
the true tables add up exactly.

**Guarantee.** A person is in at most m cells of the refinement, with at most r rows in each. So one person changes at
most m cells of a table by at most r each if the table is the refinement itself, and its cells by at most m * r in total
if the table is coarser. With m = 1 it is one cell by at most r in either case. With r = 1 and m > 1 a coarser table is
one of rows, not of people: a person counts up to m times in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from countveil.config.publications import DeclaredPublication, DeclaredTable
from countveil.consistency.hierarchy import Grouping, group_rows
from countveil.consistency.tree import TOTAL, Ints, Tree
from countveil.errors import ConfigError, RequestError, shorten
from countveil.query import Question, ask
from countveil.query.public_tables import PublicTable
from countveil.query.schema import Column, Schema

PUBLISH = "PUBLISH "
"""How the text of a charge for a published table begins; no question begins like this."""
MOST_CELLS = 20_000_000
"""The most finest cells of a publication: one process collects and reconciles them."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The public shape of a publication; make one with `lay_out`."""

    declared: DeclaredPublication
    question: Question
    """The common refinement of all tables."""

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def tables(self) -> tuple[DeclaredTable, ...]:
        return self.declared.tables

    @cached_property
    def digest(self) -> str:
        """The hash of all that decides what is measured: tables, accuracies, editions, columns, hierarchies, bounds."""
        declared = self.declared
        measured = {column for table in declared.tables for column in table.by}
        body = {
            "name": declared.name,
            "tables": [[list(table.by), table.margin, table.weight] for table in declared.tables],
            "weights": [[list(margin.by), margin.weight] for margin in declared.margins if margin.weight],
            "editions": declared.editions,
            "cells": None if declared.cells is None else [list(record) for _, record in declared.cells.records],
            "question": self.question.sha256,
            "hierarchies": [
                [[column.name, *map(str, axis.labels(column))] for column in axis.columns if column.name in measured]
                for axis in self.question.axes
                if not axis.is_plain
            ],
        }
        written = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(f"publication\n{written}".encode()).hexdigest()

    def digest_of(self, table: DeclaredTable, plan: str) -> str:
        """The hash of one table of this publication: what its charge is for.

        `plan` is a digest of the laws of all measured tables. So after a new plan the same data is a new edition, and
        no edition has measurements of two plans.
        """
        return hashlib.sha256(f"{self.digest}\n{plan}\n{json.dumps(table.by)}".encode()).hexdigest()

    def text_of(self, table: DeclaredTable) -> str:
        """How the ledger names one table of this publication."""
        return f"{PUBLISH}{self.name}: {table.name}"

    @cached_property
    def possible(self) -> Ints | None:
        """The numbers of the finest cells that can exist, if a list of them is declared."""
        return None if self.declared.cells is None else _read_possible(self.declared, self.question)

    @cached_property
    def keys(self) -> Mapping[str, Ints]:
        """For every column the index of its label, for each finest cell that can exist."""
        numbers = np.arange(self.question.cells, dtype=np.int64) if self.possible is None else self.possible
        return _read_keys(self.question, numbers)

    def labels(self, column: str) -> list[Any]:
        """The labels of a column; `keys` has their indexes."""
        return _column(self.question, column).key_labels()

    @cached_property
    def tree(self) -> Tree:
        """The tree of all tables; columns are given by the indexes of their labels."""
        keys = self.keys or {"": np.zeros(1, dtype=np.int64)}
        try:
            return Tree.from_columns(keys, [table.by for table in self.tables], names=[t.name for t in self.tables])
        except RequestError as error:
            raise ConfigError(f"publication.{self.name}.tables", str(error)) from None

    def group(self, by: Sequence[str]) -> Grouping:
        """Group the finest cells by some columns. Groups are numbered as the cells of a table by these columns."""
        rows = self.question.cells if self.possible is None else len(self.possible)
        return group_rows("", [_number(self.keys[column]) for column in by], rows, tuple(by))

    def sum_table(self, counts: Ints, table: DeclaredTable) -> Ints:
        """Add up the counts of a table from the counts of the finest cells. Cells that cannot exist are left out."""
        possible = counts if self.possible is None else counts[self.possible]
        groups = self.group(table.by)
        sums = np.zeros(len(groups), dtype=np.int64)
        np.add.at(sums, groups.groups, possible)
        return sums

    def is_finest(self, table: DeclaredTable) -> bool:
        """Whether a table is the refinement itself."""
        return len(self.tree.levels[self.tree.place(table.name)]) == len(next(iter(self.keys.values()), [0]))

    def sensitivity_of(self, table: DeclaredTable) -> tuple[int, int]:
        """By how much one person changes one cell of a table at most, and in how many cells; see the module."""
        rows, cells = self.question.sensitivity, self.question.schema.cells_per_person
        if cells == 1 or self.is_finest(table):
            return rows, cells
        return rows * cells, 1


def lay_out(declared: DeclaredPublication, schema: Schema) -> Layout:
    """The layout of a declared publication over the public schema of its dataset."""
    wide = replace(schema, max_cells=MOST_CELLS)
    question = ask(wide, None, dataset=schema.name, by=list(declared.columns), people=declared.people)
    return Layout(declared, replace(question, people=declared.people))  # `ask` counts people if rows_per_person is 1


def group_margin(layout: Layout, by: tuple[str, ...]) -> tuple[str, Ints, dict[str, Ints]]:
    """Find the smallest table whose cells add up to a sum across the tree.

    Returns its name, for each of its cells the number of the sum that the cell belongs to, and for each column of the
    sum the indexes of the labels of all sums.
    """
    if any(set(by) == set(level.labels) or "*".join(by) == level.name for level in layout.tree.levels):
        raise ConfigError(
            f"publication.{layout.name}.margins",
            f"{'*'.join(by) or TOTAL} is a table of the publication, also if it was added; leave it out here",
        )
    margin = layout.group(by)
    for table in sorted(layout.tables, key=lambda table: len(layout.tree.levels[layout.tree.place(table.name)])):
        cells = layout.group(table.by)
        if margin.is_coarser(cells):
            labels = {column: layout.keys[column][margin.first] for column in by}
            return table.name, margin.groups[cells.first], labels
    raise ConfigError(
        f"publication.{layout.name}.margins",
        f"no table is finer than {'*'.join(by)}, so nothing adds up to it; add a table with these columns",
    )


def check_layout(layout: Layout) -> None:
    """Refuse a publication that cannot be measured: tables that do not form a tree, a faulty list of possible cells, or
    a sum across the tree that cannot be made by adding cells of one table."""
    _ = layout.tree
    for margin in layout.declared.margins:
        group_margin(layout, margin.by)


def _column(question: Question, name: str) -> Column:
    return next(column for column in question.by if column.name == name)


def _read_keys(question: Question, numbers: Ints) -> dict[str, Ints]:
    """For every column of a question, the index of the label of each of the cells with these numbers."""
    keys: dict[str, Ints] = {}
    stride = question.cells
    for axis in question.axes:
        stride //= axis.size
        bins = numbers // stride % axis.size
        for column in axis.columns:
            keys[column.name] = bins if axis.is_plain else np.asarray(axis.keys(column), dtype=np.int64)[bins]
    return {column.name: keys[column.name] for column in question.by}


def _number(keys: Ints) -> Ints:
    """Renumber keys as 0, 1, 2, ... without gaps, in the same order."""
    present = np.zeros(int(keys.max()) + 1, dtype=np.int64)
    present[keys] = 1
    numbers: Ints = (np.cumsum(present) - 1)[keys]
    return numbers


def _read_possible(declared: DeclaredPublication, question: Question) -> Ints:
    """The numbers of the finest cells that a public list names, sorted; every refusal names the line."""
    table, key = declared.cells, f"publication.{declared.name}.cells"
    assert isinstance(table, PublicTable)
    columns = [column.name for column in question.by]
    if sorted(table.header) != sorted(columns):
        raise ConfigError(key, f"{table.name} has the columns {shorten(', '.join(table.header), 100)}; give "
                          f"{shorten(', '.join(columns), 100)}")  # fmt: skip
    places: list[tuple[list[int], dict[tuple[str, ...], int], int]] = []
    stride = question.cells
    for axis in question.axes:
        stride //= axis.size
        texts = [[_write(label) for label in axis.labels(column)] for column in axis.columns]
        bins = {labels: i for i, labels in enumerate(zip(*texts, strict=True))}
        places.append(([table.header.index(column.name) for column in axis.columns], bins, stride))
    numbers = np.zeros(len(table.records), dtype=np.int64)
    for row, (line, fields) in enumerate(table.records):
        for own, bins, stride in places:
            labels = tuple(fields[i] for i in own)
            if labels not in bins:
                raise ConfigError(
                    key, f"{table.name}, line {line}: no cell has the labels {shorten(', '.join(labels), 60)}"
                )
            numbers[row] += bins[labels] * stride
    if not len(numbers):
        raise ConfigError(key, f"{table.name} lists no cell; list at least one")
    return np.unique(numbers)


def _write(label: object) -> str:
    """A label as public CSV files write it."""
    return str(label).lower() if isinstance(label, bool) else str(label)
