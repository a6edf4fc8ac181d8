"""A curator's look at the source: what columns hold, what is outside their domains, how many rows a person has.

Everything here is data and stays with the curator: nothing of it may reach an analyst.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from countveil.engines.engine import SqlEngine
from countveil.engines.sql import READABLE, Compiler, Family
from countveil.query.condition import Member, domain_of
from countveil.schema import Column, Kind, Schema, Value

EXAMPLES = 5
"""Values outside a domain that are shown."""


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
        """Rows that no question on this column counts: neither in the domain nor NULL."""
        return self.rows - self.inside - self.null


@dataclass(frozen=True)
class PeopleSurvey:
    """How rows are spread over people; `most_rows` is the largest number of rows of one person."""

    people: int
    rows: int
    unnamed: int
    most_rows: int
    over: int


def survey_column(engine: SqlEngine, column: Column) -> ColumnSurvey:
    """Count the rows inside the domain, NULL and outside, with the most frequent values outside."""
    family = engine.columns()[column.name]
    compiler = engine.compiler()
    inside = compiler.member(Member(column, domain_of(column)))
    missing = compiler.missing(column)
    sums = f"count(CASE WHEN {inside} THEN 1 END) AS inside, count(CASE WHEN {missing} THEN 1 END) AS missing"
    n, within, null = _numbers(compiler, f"SELECT count(*) AS n, {sums} FROM {engine.relation}")
    value = f"CAST({compiler.raw(column.name)} AS {engine.dialect.types['text']})"
    outside = f"NOT coalesce({missing}, FALSE) AND NOT coalesce({inside}, FALSE)"
    sql = f"SELECT {value} AS v, count(*) AS n FROM {engine.relation} WHERE {outside}"
    shown = engine.run(compiler.statement(f"{sql} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {EXAMPLES}"))
    pairs = tuple((str(v), int(n)) for v, n in zip(shown["v"], shown["n"], strict=True))
    return ColumnSurvey(column.name, column.kind, family, n, within, null, pairs)


def survey_people(engine: SqlEngine, schema: Schema) -> PeopleSurvey:
    """How many people there are, and how many of them have more rows than one table counts."""
    compiler = engine.compiler()
    unit = compiler.person(schema.unit)
    bound = schema.rows_per_person * schema.cells_per_person
    sql = (
        f"SELECT count(u) AS people, coalesce(sum(n), 0) AS n, "
        f"coalesce(sum(CASE WHEN u IS NULL THEN n END), 0) AS unnamed, "
        f"coalesce(max(CASE WHEN u IS NOT NULL THEN n END), 0) AS most, "
        f"count(CASE WHEN u IS NOT NULL AND n > {bound} THEN 1 END) AS more "
        f"FROM (SELECT {unit} AS u, count(*) AS n FROM {engine.relation} GROUP BY 1) AS people"
    )
    return PeopleSurvey(*_numbers(compiler, sql))


def count_rows(engine: SqlEngine) -> int:
    """The number of rows."""
    return _numbers(engine.compiler(), f"SELECT count(*) AS n FROM {engine.relation}")[0]


def guess_column(engine: SqlEngine, name: str, most_values: int) -> Column | None:
    """A domain that holds every value of a column now; None for a column that cannot be declared, or has too many.

    A text column is taken as integers or dates when all its values read as such.
    """
    family = engine.columns()[name]
    for kind in ("boolean", "integer", "date", "text"):
        unlikely = {"text": family == "integer", "boolean": family != "boolean"}  # 0 and 1 are numbers
        if family not in READABLE[kind] or unlikely.get(kind):
            continue
        compiler = engine.compiler()
        probe = Column(name, kind, (False, True)) if kind == "boolean" else Column(name, kind)
        read, held = compiler.read(probe), f"count(*) - count(CASE WHEN {compiler.missing(probe)} THEN 1 END)"
        sums = f"{held} AS present, count({read}) AS readable, count(DISTINCT {read}) AS different"
        present, readable, different = _numbers(compiler, f"SELECT {sums} FROM {engine.relation}")
        if present == 0:
            return None
        if readable == present:
            return _domain(engine, probe, different, most_values)
    return None


def _domain(engine: SqlEngine, probe: Column, different: int, most_values: int) -> Column | None:
    if probe.kind == "boolean":
        return Column(probe.name, "boolean", (False, True), guessed=True)
    compiler = engine.compiler()
    read = compiler.read(probe)
    if probe.kind == "text":
        if different > most_values:
            return None
        found = engine.run(compiler.statement(f"SELECT DISTINCT {read} AS v FROM {engine.relation}"))
        values: list[Value] = sorted(str(v) for v in found["v"] if isinstance(v, str))
        return Column(probe.name, "text", tuple(values), guessed=True)
    text = engine.dialect.types["text"]
    sql = f"SELECT CAST(min({read}) AS {text}) AS low, CAST(max({read}) AS {text}) AS high FROM {engine.relation}"
    ends = engine.run(compiler.statement(sql))
    number = (lambda text: datetime.date.fromisoformat(text).toordinal()) if probe.kind == "date" else int
    try:
        low, high = (number(str(ends[end][0])) for end in ("low", "high"))
    except ValueError:  # a date before the year 1, after 9999, or infinitely far away
        return None
    return Column(probe.name, probe.kind, low=low, high=high, guessed=True)


def _numbers(compiler: Compiler, sql: str) -> list[int]:
    """The only row of a result, in the order of its columns."""
    return [int(values[0]) for values in compiler.engine.run(compiler.statement(sql)).values()]
