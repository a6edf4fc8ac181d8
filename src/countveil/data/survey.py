"""Surveys a source for the curator: how values fit the declared domains, and how many rows people have.

All results reveal data: they are for the curator only and must never reach an analyst.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from countveil.data.engines.engine import Engine
from countveil.data.engines.families import Family
from countveil.data.engines.sql import Compiler
from countveil.query import Question
from countveil.query.condition import All, Membership, known_of
from countveil.query.schema import Column, Kind, Schema

EXAMPLES = 5
"""How many different values outside a domain are shown."""


@dataclass(frozen=True)
class ColumnSurvey:
    """How the values of one declared column fit its domain."""

    name: str
    declared: Kind
    held: Family
    rows: int
    inside: int
    null: int
    examples: tuple[tuple[str, int], ...]

    @property
    def outside(self) -> int:
        """How many rows have a value that is neither in the domain nor NULL; no question on this column counts them."""
        return self.rows - self.inside - self.null


@dataclass(frozen=True)
class PeopleSurvey:
    """How many rows people have. `unnamed` is the number of rows without a person.

    `most_rows` is the largest number of rows of one person, and `over` the number of people who have more rows than one
    table can count of them.
    """

    people: int
    rows: int
    unnamed: int
    most_rows: int
    over: int


def survey_column(engine: Engine, column: Column) -> ColumnSurvey:
    """Count how many rows have a value in the domain, NULL, or a value outside; list the most frequent ones outside."""
    root = column.root
    family = engine.columns()[root.name]
    compiler = engine.compiler()
    inside = compiler.member(Membership(root, column.inside))
    missing = compiler.missing(root)
    sums = f"count(CASE WHEN {inside} THEN 1 END) AS inside, count(CASE WHEN {missing} THEN 1 END) AS missing"
    n, within, null = read_numbers(engine, compiler, f"SELECT count(*) AS n, {sums} FROM {compiler.relation}")
    value = f"CAST({compiler.raw(root.name)} AS {compiler.dialect.types['text']})"
    outside = f"NOT coalesce({missing}, FALSE) AND NOT coalesce({inside}, FALSE)"
    sql = f"SELECT {value} AS v, count(*) AS n FROM {compiler.relation} WHERE {outside}"
    examples = engine.run(compiler.statement(f"{sql} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {EXAMPLES}"))
    pairs = tuple((str(v), int(n)) for v, n in zip(examples["v"], examples["n"], strict=True))
    return ColumnSurvey(column.name, column.kind, family, n, within, null, pairs)


def survey_people(engine: Engine, schema: Schema) -> PeopleSurvey:
    """Count the people, and those who have more rows than one table can count of them."""
    compiler = engine.compiler()
    unit = f"CASE WHEN {' AND '.join(compiler.identifies(schema.unit))} THEN {compiler.person(schema.unit)} END"
    bound = schema.rows_per_person * schema.cells_per_person
    sql = (
        f"SELECT count(u) AS people, coalesce(sum(n), 0) AS n, "
        f"coalesce(sum(CASE WHEN u IS NULL THEN n END), 0) AS unnamed, "
        f"coalesce(max(CASE WHEN u IS NOT NULL THEN n END), 0) AS most, "
        f"count(CASE WHEN u IS NOT NULL AND n > {bound} THEN 1 END) AS more "
        f"FROM (SELECT {unit} AS u, count(*) AS n FROM {compiler.relation} GROUP BY 1) AS people"
    )
    return PeopleSurvey(*read_numbers(engine, compiler, sql))


def count_impossible(engine: Engine, schema: Schema) -> int | None:
    """How many rows have a declared value in every column of the list of possible cells, but are in no cell of that
    list.

    None if there is no list.
    """
    if schema.possible is None:
        return None
    rows = replace(schema, unit="row", rows_per_person=1, cells_per_person=1)
    columns = tuple(column for column in schema.columns if column in schema.possible.columns)
    counts = engine.run(engine.compiler().count(Question(rows, columns, True, None, columns), 0))
    compiler = engine.compiler()
    inside = compiler.condition(All(tuple(known_of(columns).values())))
    declared = read_numbers(engine, compiler, f"SELECT count(*) AS n FROM {compiler.relation} WHERE {inside}")[0]
    return declared - sum(int(n) for n in counts["n"])


def count_rows(engine: Engine) -> int:
    """The number of rows in the source."""
    compiler = engine.compiler()
    return read_numbers(engine, compiler, f"SELECT count(*) AS n FROM {compiler.relation}")[0]


def read_numbers(engine: Engine, compiler: Compiler, sql: str) -> list[int]:
    """Run a statement that returns one row of numbers; return them in the order of the columns."""
    return [int(values[0]) for values in engine.run(compiler.statement(sql)).values()]
