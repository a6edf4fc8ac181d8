"""How many rows people have in the cells of tables, and what contribution bounds leave out; for the curator only.

Let a person have rows in m cells of a table. With the bounds c (`cells_per_person`) and r (`rows_per_person`), the
person counts in at most c of these cells, each equally likely, with at most r rows in each. Of a cell with n rows of
the person, min(n, r) min(1, c/m) rows are kept on average. One statement reads the source once. For every cell it
returns sums over the people, grouped by ranges of m. The rows kept follow from these sums for every choice of r and c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.data.engines.engine import Engine
from countveil.data.engines.sql import Compiler
from countveil.query.condition import Membership, domain_of
from countveil.query.schema import Column

Floats = NDArray[np.float64]
Group = tuple[Column, ...]
"""The group columns of one table."""
MOST_SURVEYED = 1_000_000
"""Of a source with more rows than this, only a sample is surveyed: all rows of some people, about this many rows."""


@dataclass(frozen=True, eq=False)
class TableContributions:
    """What people contribute to one table, for its cells that have rows.

    `bounds` has the choices of `rows_per_person` and of `cells_per_person`. Below, n is a person's rows in a cell, m
    the number of the person's cells, and r a choice of `rows_per_person`. A class of m is the range between two
    neighbouring choices of `cells_per_person`.
    """

    by: tuple[str, ...]
    bounds: tuple[Sequence[int], Sequence[int]]
    labels: tuple[tuple[str, ...], ...]
    rows: Floats
    """The number of rows in each cell."""
    people: float
    most_rows: int
    """The largest number of rows that one person has in one cell."""
    most_cells: int
    """The largest number of cells in which one person has rows."""
    cut: Floats
    """The sum of min(n, r) over people, indexed by cell, class of m and choice of r."""
    spread: Floats
    """The sum of min(n, r) / m over people, indexed by cell, class of m and choice of r."""
    complete: Floats
    """How many people have at most r rows in each of their cells, indexed by class of m and choice of r."""

    def count_kept_rows(self, row: int, cell: int) -> Floats:
        """For each cell, how many rows are kept on average with the bounds at these indexes of `bounds`."""
        c = self.bounds[1][cell]
        kept: Floats = self.cut[:, : cell + 1, row].sum(axis=1) + c * self.spread[:, cell + 1 :, row].sum(axis=1)
        return kept

    def whole(self, row: int, cell: int) -> float:
        """The share of people who lose no row with the bounds at these indexes of `bounds`."""
        return float(self.complete[: cell + 1, row].sum()) / max(self.people, 1.0)


def survey_contributions(
    engine: Engine, unit: str, tables: Sequence[Group], rows: Sequence[int], cells: Sequence[int], one_in: int = 1
) -> list[TableContributions]:
    """Survey what people contribute to each table, in one pass over the source.

    `rows` and `cells` are the choices of `rows_per_person` and `cells_per_person`. Only one person in `one_in` is
    surveyed, chosen by a hash; the results describe this sample.
    """
    compiler = engine.compiler()
    columns = list(dict.fromkeys(column for table in tables for column in table))
    keys = [f"k{i}" for i in range(len(columns))]
    masks = [sum(1 << i for i, column in enumerate(columns) if column not in table) for table in tables]
    text = compiler.dialect.types["text"]

    bins = [f"{_bin(compiler, column)} AS {key}" for column, key in zip(columns, keys, strict=True)]
    read = [f"{compiler.person(unit)} AS u", *bins]
    names, chosen = ", ".join(["t", *keys]), "u IS NOT NULL"
    if one_in > 1:
        chosen += f" AND substr(md5(CAST(u AS {text})), 1, 6) < '{(1 << 24) // one_in:06x}'"
    sets = [", ".join(["u", *(keys[columns.index(column)] for column in table)]) for table in tables]
    mask = " + ".join(f"grouping({key}) * {1 << i}" for i, key in enumerate(keys)) or "0"
    groups = (
        f"SELECT {', '.join([f'{mask} AS t', 'u', *keys])}, count(*) AS n "
        f"FROM (SELECT {', '.join(read)} FROM {compiler.relation}) AS source WHERE {chosen} "
        f"GROUP BY GROUPING SETS ({', '.join(f'({each})' for each in sets)})"
    )
    inside = [
        " AND ".join([f"t = {m}", *(f"{keys[columns.index(column)]} IS NOT NULL" for column in table)])
        for m, table in zip(masks, tables, strict=True)
    ]
    pairs = (
        f"SELECT {names}, n, count(*) OVER (PARTITION BY t, u) AS m, "
        f"max(n) OVER (PARTITION BY t, u) AS most FROM ({groups}) AS cells WHERE {' OR '.join(inside)}"
    )
    alike = f"SELECT {names}, n, m, most, count(*) AS p FROM ({pairs}) AS pairs GROUP BY {names}, n, m, most"
    level = " ".join(f"WHEN m <= {c} THEN {i}" for i, c in enumerate(cells))
    sums = [
        *(f"sum(least(n, {r}) * p) AS c{i}" for i, r in enumerate(rows)),
        *(f"sum(least(n, {r}) * p * 1e0 / m) AS s{i}" for i, r in enumerate(rows)),
        *(f"sum(CASE WHEN most <= {r} THEN p * 1e0 / m ELSE 0e0 END) AS w{i}" for i, r in enumerate(rows)),
        *("sum(p * 1e0 / m) AS people", "sum(n * p) AS total", "max(n) AS largest", "max(m) AS widest"),
    ]
    shown = ", ".join(["t", *(f"CAST({key} AS {text}) AS {key}" for key in keys)])
    places = ", ".join(str(i + 1) for i in range(len(keys) + 2))
    sql = f"SELECT {shown}, CASE {level} ELSE {len(cells)} END AS level, {', '.join(sums)} FROM ({alike}) AS alike"
    result = engine.run(compiler.statement(f"{sql} GROUP BY {places}"))
    return [
        _collect(result, mask, table, {column: keys[i] for i, column in enumerate(columns)}, (rows, cells))
        for mask, table in zip(masks, tables, strict=True)
    ]


def _bin(compiler: Compiler, column: Column) -> str:
    """SQL for the value of a column or, if it is grouped, the number of its bin; NULL for values outside the domain."""
    if column.source is not None:
        tests = (compiler.member(Membership(column.source, block)) for block in column.blocks)
        return f"CASE {' '.join(f'WHEN {test} THEN {i}' for i, test in enumerate(tests))} END"
    inside, value = compiler.member(Membership(column, domain_of(column))), compiler.read(column)
    if not column.is_listed and column.step > 1:
        low = compiler.bind(column.value(column.low))
        value = compiler.dialect.whole(compiler.offset(column, value, low), str(column.step))
    return f"CASE WHEN {inside} THEN {value} END"


def _collect(
    result: dict[str, NDArray[np.generic]],
    mask: int,
    table: Group,
    keys: dict[Column, str],
    bounds: tuple[Sequence[int], Sequence[int]],
) -> TableContributions:
    """Take the rows of a query result that belong to one table, which `mask` identifies."""
    rows, cells = bounds
    mine = np.array([int(t) == mask for t in result["t"]], dtype=bool)
    level = np.array([int(v) for v in result["level"][mine]], dtype=np.int64)
    labels = list(zip(*(result[keys[column]][mine].tolist() for column in table), strict=True)) or [()] * len(level)
    index = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    place = np.array([index[label] for label in labels], dtype=np.int64)

    def values(name: str) -> Floats:
        return np.array([float(v) for v in result[name][mine].tolist()])

    def cube(letter: str) -> Floats:
        sums = np.zeros((len(index), len(cells) + 1, len(rows)))
        sums[place, level] = np.stack([values(f"{letter}{i}") for i in range(len(rows))], axis=-1)
        return sums

    return TableContributions(
        tuple(column.name for column in table),
        bounds,
        tuple(tuple(_label(c, key) for c, key in zip(table, label, strict=True)) for label in index),
        np.bincount(place, values("total"), len(index)).astype(np.float64),
        float(values("people").sum()),
        int(values("largest").max(initial=0)),
        int(values("widest").max(initial=0)),
        cube("c"),
        cube("s"),
        cube("w").sum(axis=0),
    )


def _label(column: Column, key: object) -> str:
    """The label of a bin, given the bin's value or number in the query result."""
    is_value = column.source is None and (column.is_listed or column.step == 1)
    return str(key) if is_value else str(column.key_labels()[int(str(key))])
