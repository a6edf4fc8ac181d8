"""Publications in `countveil.toml`: sets of tables that add up, paid from the budget of their dataset.

[publication.census]
dataset = "people"
tables = [{ by = [] }, { by = ["county"], weight = "4" }, { by = ["municipality", "sex"], margin = 10 }]
editions = 4                         # how often it can be published, on new data each time; default 1
margins = [["county", "sex"]]        # further sums, which are no table: unbiased estimates, at no cost
cells = "possible_cells.csv"         # which finest cells can exist; default: all
count = "rows"                       # or "people"
estimate = "nearest"                 # or "unbiased": every count is unbiased, and can be negative
output = "publications/census"       # where editions are written; the service serves them from there
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from countveil.config import keys
from countveil.config.public_files import PublicFiles
from countveil.config.values import check_names, read_choice, read_count, read_decimal, read_table, read_text, require
from countveil.errors import ConfigError, shorten
from countveil.planning.grades import LARGEST_MARGIN
from countveil.query.public_tables import PublicTable
from countveil.query.schema import Schema

TOTAL = "total"
VERIFY = "verify"
"""A word of the command line, so no publication has this name."""
MOST_TABLES = 50
MOST_EDITIONS = 1000
RESERVED = ("count", "low", "high", "certain_low", "certain_high", "measured", "quality", "part_of", "margin")
RESERVED_OF_MARGINS = ("estimate", "sum_of_cells", "gap")
"""The columns of published files; no column of a published table has such a name."""


@dataclass(frozen=True)
class DeclaredTable:
    """One table of a publication: its columns, and the accuracy of its published numbers."""

    by: tuple[str, ...]
    margin: int | None = None
    """The 95 % margin that the published numbers keep; None if the table has a weight instead."""
    weight: str | None = None
    """How much the variance of the published numbers counts, if the table has no margin. None counts as 1."""

    @property
    def name(self) -> str:
        """The columns joined by *, or total."""
        return "*".join(self.by) or TOTAL


@dataclass(frozen=True)
class DeclaredPublication:
    """A publication as countveil.toml declares it, checked but not planned."""

    name: str
    dataset: str
    tables: tuple[DeclaredTable, ...]
    output: Path
    editions: int = 1
    margins: tuple[DeclaredTable, ...] = ()
    """Sums across the tree. A sum with a weight counts in the choice of accuracies, as a table does."""
    people: bool = False
    estimate: str = "nearest"
    cells: PublicTable | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all tables and margins, each once."""
        return tuple(dict.fromkeys(column for table in (*self.tables, *self.margins) for column in table.by))

    @property
    def grades(self) -> tuple[str, ...]:
        """The names of the grades that pay for the tables."""
        return tuple(map(self.grade_of, range(len(self.tables))))

    def grade_of(self, place: int) -> str:
        """The name of the grade that pays for the table with this index in `tables`."""
        return f"{self.name}-{place + 1}"


def read_publications(
    entries: Mapping[str, object], schemas: Mapping[str, Schema], directory: Path
) -> dict[str, DeclaredPublication]:
    """The publications of a configuration, checked against the schemas of their datasets."""
    files = PublicFiles(directory)
    return {
        name: _read_publication(name, read_table(entry, f"publication.{name}"), schemas, directory, files)
        for name, entry in entries.items()
    }


def published_datasets(entries: Mapping[str, object]) -> set[object]:
    """The names of the datasets that have a publication, read before publications are checked."""
    return {entry.get("dataset") for entry in entries.values() if isinstance(entry, Mapping)}


def _read_publication(
    name: str, entry: Mapping[str, object], schemas: Mapping[str, Schema], directory: Path, files: PublicFiles
) -> DeclaredPublication:
    key = f"publication.{name}"
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,27}", name) or name == VERIFY:
        raise ConfigError(
            shorten(key, 100),
            f"names of publications have up to 28 of a-z, 0-9, _ and -, begin with a letter, and are not {VERIFY}",
        )
    check_names(entry, keys.PUBLICATION, f"{key}.")
    dataset = read_text(require(entry, "dataset", key), f"{key}.dataset")
    if dataset not in schemas:
        raise ConfigError(f"{key}.dataset", f"{shorten(dataset)} is not declared; declared: {', '.join(schemas)}")
    schema = schemas[dataset]
    tables = _read_tables(require(entry, "tables", key, "such as [{ by = [] }]"), f"{key}.tables", schema)
    margins = _read_margins(entry.get("margins", []), f"{key}.margins", schema)
    for margin in margins:
        if any(set(margin.by) == set(table.by) for table in tables):
            raise ConfigError(f"{key}.margins", f"{margin.name} is a table of the publication; leave it out here")
    people = read_choice(entry.get("count", "rows"), f"{key}.count", ("rows", "people")) == "people"
    several = schema.cells_per_person > 1
    if several and people:
        raise ConfigError(
            f"{key}.count",
            f"tables of people add up only if each person is in one cell, and dataset.{dataset}.cells_per_person is "
            f'{schema.cells_per_person}; set it to 1, or count = "rows"',
        )
    place = os.path.expanduser(read_text(entry.get("output", f"publications/{name}"), f"{key}.output"))
    if place.startswith("~"):
        raise ConfigError(f"{key}.output", f"{shorten(place, 100)}: no such user has a home; give the path of a folder")
    cells = files.read(read_text(entry["cells"], f"{key}.cells"), f"{key}.cells") if "cells" in entry else None
    return DeclaredPublication(
        name,
        dataset,
        tables,
        directory / place,
        read_count(entry.get("editions", 1), f"{key}.editions", MOST_EDITIONS),
        margins,
        people or (schema.rows_per_person == 1 and not several),
        read_choice(entry.get("estimate", "nearest"), f"{key}.estimate", ("nearest", "unbiased")),
        cells,
    )


def _read_tables(value: object, key: str, schema: Schema) -> tuple[DeclaredTable, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TABLES:
        raise ConfigError(key, f"got {shorten(value)}, allowed is a list of 1 to {MOST_TABLES} tables")
    tables = tuple(_read_table(read_table(each, key), f"{key}[{i}]", schema) for i, each in enumerate(value, start=1))
    _check_different(tables, key)
    return tables


def _read_margins(value: object, key: str, schema: Schema) -> tuple[DeclaredTable, ...]:
    """Read `margins`: each entry is a list of columns, or a table with a list of columns and a weight."""
    if not isinstance(value, list) or len(value) > MOST_TABLES:
        raise ConfigError(key, f"got {shorten(value)}, allowed is a list of at most {MOST_TABLES} lists of columns")
    entries = [each if isinstance(each, Mapping) else {"by": each} for each in value]
    margins = tuple(_read_table(each, f"{key}[{i}]", schema) for i, each in enumerate(entries, start=1))
    for margin in margins:
        if margin.margin is not None:
            raise ConfigError(key, f"{margin.name} has a margin; a sum across the tree can only have a weight")
    _check_different(margins, key)
    return margins


def _check_different(tables: tuple[DeclaredTable, ...], key: str) -> None:
    seen: dict[frozenset[str], DeclaredTable] = {}
    for table in tables:
        if frozenset(table.by) in seen:
            raise ConfigError(key, f"{table.name} is declared twice; leave one of them out")
        seen[frozenset(table.by)] = table


def _read_table(entry: Mapping[str, object], key: str, schema: Schema) -> DeclaredTable:
    check_names(entry, keys.PUBLISHED_TABLE, f"{key}.")
    (by,) = _read_lists([require(entry, "by", key, "[] is the total")], f"{key}.by")
    for column in by:
        if schema.column(column) is None:
            declared = shorten(", ".join(each.name for each in schema.columns), 100)
            raise ConfigError(f"{key}.by", f"{shorten(column)} is not a column of the dataset; declared: {declared}")
        if column.casefold() in (*RESERVED, *RESERVED_OF_MARGINS):
            raise ConfigError(f"{key}.by", f"{column} is a column of published files; declare it by another name")
        if column.casefold() == TOTAL:
            hint = "rename it in the source, or derive a column of another name from it"
            raise ConfigError(f"{key}.by", f"{column} is the name of the table without columns, {hint}")
    if "margin" in entry and "weight" in entry:
        raise ConfigError(key, "margin fixes the accuracy, and weight shares what is left; leave one of them out")
    margin = read_count(entry["margin"], f"{key}.margin", LARGEST_MARGIN) if "margin" in entry else None
    weight = read_decimal(entry["weight"], f"{key}.weight", "1e-6", "1e6") if "weight" in entry else None
    return DeclaredTable(by, margin, None if weight is None else str(Fraction(weight)))


def _read_lists(value: object, key: str) -> tuple[tuple[str, ...], ...]:
    """Read a list of lists of column names, in each of which no name occurs twice."""
    allowed = 'lists of names in quotes, such as ["county", "sex"]'
    if not isinstance(value, list):
        raise ConfigError(key, f"got {shorten(value)}, allowed are {allowed}")
    for names in value:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(key, f"got {shorten(names)}, allowed are {allowed}")
        if len(set(names)) < len(names):
            raise ConfigError(key, f"got a column twice in {shorten(names)}; name each once")
    return tuple(tuple(names) for names in value)
