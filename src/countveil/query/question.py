"""Query + public schema -> Question: names looked up, literals typed, the condition in canonical form.

A Question is all that an engine sees. It holds no text of the analyst: columns are the schema's, values are points of
their domains.
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import cached_property

from countveil.errors import QueryError, shortened
from countveil.query.condition import (
    EMPTY,
    NEVER,
    All,
    Any,
    Effort,
    Member,
    Points,
    Typed,
    difference,
    domain_of,
    intersection,
    interval,
    null_of,
    set_of,
    simplified,
    tests,
    text,
)
from countveil.query.diagram import canonical
from countveil.query.expression import (
    FLIPPED,
    MAX_DEPTH,
    MAX_NODES,
    Among,
    Between,
    Both,
    Comparison,
    Condition,
    Constant,
    Either,
    IsNull,
    Name,
    Negation,
    Query,
)
from countveil.query.sql import parse
from countveil.query.tokens import quoted
from countveil.schema import Column, Schema, Value, date_from_text

MAX_COLUMNS = 200
MAX_TESTS = 1_000
MAX_GROUPS = 50
LONG_TEXT = 1_000
"""Characters of a question's own text up to which it can surely be asked again."""


@dataclass(frozen=True)
class Question:
    """One count query on one dataset.

    `by` are the group columns in the order of the schema: the order of cells. `shown` are the same columns in the order
    the analyst named them, and `name` is the analyst's name for the count; neither is part of the question. `people`
    says that people are counted rather than rows; `where` is the simplified condition, None if there is none.
    """

    schema: Schema
    by: tuple[Column, ...]
    people: bool
    where: Typed | None
    shown: tuple[Column, ...]
    name: str = "count"

    @property
    def shape(self) -> tuple[int, ...]:
        """How many keys each group column has."""
        return tuple(column.keys for column in self.by)

    @property
    def cells(self) -> int:
        """How many counts the answer has."""
        return math.prod(self.shape)

    @property
    def never(self) -> bool:
        """No row with declared values can satisfy the condition; the answer will be noise around zero."""
        return self.where == NEVER

    @property
    def sensitivity(self) -> int:
        """By how much one person can change one cell."""
        return 1 if self.people else self.schema.rows_per_person

    @cached_property
    def text(self) -> str:
        """The question in the query language, simplified; asking it again asks the same."""
        columns = [quoted(column.name) for column in self.by]
        unit = quoted(self.schema.unit)
        count = f"count(DISTINCT {unit})" if self.people and self.schema.rows_per_person > 1 else "count(*)"
        words = f"SELECT {', '.join([*columns, count])} FROM {quoted(self.schema.name)}"
        if self.where is not None:
            words += f" WHERE {self._where_text()}"
        return words + (f" GROUP BY {', '.join(columns)}" if columns else "")

    def _where_text(self) -> str:
        if self.where is None or not self.never:
            return text(self.where) if self.where is not None else ""
        name = quoted(self.schema.columns[0].name)
        return f"{name} IS NULL AND {name} IS NOT NULL"

    @cached_property
    def canonical(self) -> dict[str, object]:
        """What makes the question this question: equal for questions that count the same rows into the same cells."""
        inside = All((*([self.where] if self.where is not None else []), *_domains(self.by)))
        where = canonical(inside)
        used = {column.name for column in self.by} | {node[0] for node in where if isinstance(node, list)}
        return {
            "dataset": self.schema.name,
            "unit": self.schema.unit,
            "people": self.people,
            "rows_per_person": self.schema.rows_per_person,
            "cells_per_person": self.schema.cells_per_person,
            "by": [column.name for column in self.by],
            "columns": [[name, self.schema.by_name[name].sha256] for name in sorted(used)],
            "where": where,
        }

    @cached_property
    def sha256(self) -> str:
        """The hash of the canonical form."""
        written = json.dumps(self.canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(written.encode()).hexdigest()


def bind(query: Query, schema: Schema) -> Question:
    """The question that a query asks of a dataset with this schema, or a refusal that depends on the schema alone."""
    shown = tuple(_column(name, schema) for name in query.by)
    seen: set[str] = set()
    for name, column in zip(query.by, shown, strict=True):
        if column.name in seen:
            raise QueryError(f"the column {shortened(column.name, 40)} twice", "name each column once", name.at)
        seen.add(column.name)
    if len(seen) > MAX_GROUPS:
        raise QueryError(f"{len(seen)} group columns", f"at most {MAX_GROUPS} are allowed", query.by[MAX_GROUPS].at)
    by = tuple(column for column in schema.columns if column.name in seen)
    people = _people(query.distinct, schema)
    question = Question(schema, by, people, None, shown, query.name)
    if question.cells > schema.max_cells:
        sizes = shortened(" x ".join(f"{shortened(column.name, 40)} {column.keys}" for column in by), 100)
        cells = str(question.cells) if question.cells < 10**18 else "over 10^18"
        raise QueryError(
            f"a table of {cells} cells ({sizes})",
            f"at most {schema.max_cells} are allowed; group by fewer columns, or declare a larger step",
            query.by[0].at,
        )
    try:
        if query.where is not None:
            question = replace(question, where=_where(query.where, by, schema))
        _ = question.sha256  # what cannot be compared with other questions is refused here, before it is asked
        _check_text(question)
    except QueryError as error:
        if error.position is not None or query.where is None:
            raise
        raise QueryError(error.construct, error.allowed, _position(query.where)) from None
    return question


def _check_text(question: Question) -> None:
    """The text of a question goes on record, so it has to ask the same again: within the limits of the language."""
    if len(question.text) > LONG_TEXT:
        try:
            parse(question.text)
        except QueryError:
            raise QueryError("a condition that takes too long to write", "name fewer values, or a range") from None


def _where(condition: Condition, by: tuple[Column, ...], schema: Schema) -> Typed | None:
    """The typed condition, simplified, without the tests that grouping makes anyway."""
    effort = Effort()
    typed = _Typing(schema, effort).of(condition, negated=False)
    known = {column.name: Member(column, domain_of(column)) for column in by}
    where = simplified(All((typed, *known.values())), effort)
    if tests(where) > MAX_TESTS:
        raise QueryError(
            f"a condition of {tests(where)} tests", f"at most {MAX_TESTS} are allowed; a list after IN counts as one"
        )
    parts = where.parts if isinstance(where, All) else (where,)
    kept = tuple(part for part in parts if not (isinstance(part, Member) and part == known.get(part.column.name)))
    if where == NEVER or len(kept) == len(parts):
        return where
    return None if not kept else simplified(All(kept), effort)


def _position(condition: Condition) -> int | None:
    """Where the first test of a condition stands in the text."""
    while not isinstance(condition, (Comparison, Among, Between, IsNull)):
        if isinstance(condition, Negation):
            condition = condition.part
        elif isinstance(condition, (Both, Either)) and condition.parts:
            condition = condition.parts[0]
        else:
            return None
    return condition.column.at


def _domains(by: tuple[Column, ...]) -> list[Typed]:
    return [Member(column, domain_of(column)) for column in by]


def _people(distinct: Name | None, schema: Schema) -> bool:
    """Are people counted? With at most one row of a person in a cell, rows and people are the same."""
    if distinct is None:
        return schema.rows_per_person == 1
    if schema.unit_is_row:
        raise QueryError(
            "count(DISTINCT ...)", f"in {shortened(schema.name, 40)} every row is a person: write count(*)", distinct.at
        )
    plain = not distinct.quoted and schema.unit.isascii()
    if distinct.text != schema.unit and not (plain and distinct.text.lower() == schema.unit.lower()):
        unit = shortened(quoted(schema.unit), 60)
        raise QueryError(
            f"count(DISTINCT {shortened(distinct.text, 40)})",
            f"people are identified by {unit}: write count(*) or count(DISTINCT {unit})",
            distinct.at,
        )
    return True


def _column(name: Name, schema: Schema) -> Column:
    found = schema.column(name.text, name.quoted)
    if found is not None:
        return found
    names = [column.name for column in schema.columns]
    alike = schema.column(name.text, quoted=False)
    if alike is not None:
        shown = shortened(quoted(alike.name), 100)
        raise QueryError(f"the column {shortened(name.text, 40)} is not declared", f"write it as {shown}", name.at)
    near = difflib.get_close_matches(name.text[:40], names[:2000], 1)
    hint = f"did you mean {shortened(near[0], 100)}?" if near else f"declared are {shortened(', '.join(names), 100)}"
    raise QueryError(f"the column {shortened(name.text, 40)} is not declared", hint, name.at)


class _Typing:
    """Conditions with typed literals, NOT pushed down to the tests."""

    def __init__(self, schema: Schema, effort: Effort) -> None:
        self.schema = schema
        self.spend = effort.spend
        self.nodes = 0
        self.columns: set[str] = set()

    def of(self, condition: Condition, negated: bool, depth: int = 0) -> Typed:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise QueryError("a condition of too many parts", f"at most {MAX_NODES}, {MAX_DEPTH} deep, are allowed")
        if isinstance(condition, Negation):
            return self.of(condition.part, not negated, depth + 1)
        if isinstance(condition, (Both, Either)):
            parts = tuple(self.of(part, negated, depth + 1) for part in condition.parts)
            return All(parts) if isinstance(condition, Both) != negated else Any(parts)
        return self.test(condition, negated)

    def column(self, name: Name) -> Column:
        column = _column(name, self.schema)
        self.columns.add(column.name)
        if len(self.columns) > MAX_COLUMNS:
            raise QueryError("a condition on too many columns", f"at most {MAX_COLUMNS} are allowed", name.at)
        return column

    def test(self, condition: Condition, negated: bool) -> Member:
        """One test as a set; its negation is the rest of the domain, because unknown is not false."""
        if not isinstance(condition, (Comparison, Among, Between, IsNull)):
            raise QueryError(f"a condition of type {type(condition).__name__}", 'write cv.col("age") >= 65')
        column = self.column(condition.column)
        if isinstance(condition, IsNull):
            return Member(column, domain_of(column) if negated else null_of(column))
        if isinstance(condition, Comparison):
            points = self.compared(column, condition.op, condition.constant)
        elif isinstance(condition, Among):
            if not condition.constants:
                raise QueryError("an empty list of values", "name at least one value", condition.column.at)
            found = [_point(column, constant) for constant in condition.constants]
            points = set_of(point for point in found if point is not None)
        else:
            low = self.compared(column, ">=", condition.low)
            points = intersection(low, self.compared(column, "<=", condition.high))
        self.spend(10 + len(points))
        return Member(column, difference(domain_of(column), points) if negated else points)

    def compared(self, column: Column, op: str, constant: Constant) -> Points:
        """The points of the domain that compare so with a literal; text by its code points."""
        domain = domain_of(column)
        if op in ("=", "<>"):
            point = _point(column, constant)
            equal = EMPTY if point is None else interval(point, point)
            return equal if op == "=" else difference(domain, equal)
        if op not in FLIPPED:
            raise QueryError(f"the operator {shortened(op, 20)}", "the operators are = <> < <= > >=", constant.at)
        if column.kind == "boolean":
            name = shortened(column.name, 40)
            raise QueryError(f"{op} on the boolean column {name}", "write = TRUE or = FALSE", constant.at)
        value = _typed(column, constant)
        if column.listed:
            self.spend(2 * len(column.values))
            return set_of(i for i, other in enumerate(column.values) if _holds(other, op, value))
        number = value.toordinal() if isinstance(value, datetime.date) else int(value)
        low, high = domain[0]
        bounds = {"<": (low, number - 1), "<=": (low, number), ">": (number + 1, high), ">=": (number, high)}[op]
        return intersection(domain, interval(*bounds))


def _holds(a: Value, op: str, b: Value) -> bool:
    if op in ("<", ">="):
        return (a < b) == (op == "<")  # type: ignore[operator]
    return (a > b) == (op == ">")  # type: ignore[operator]


def _point(column: Column, constant: Constant) -> int | None:
    """The point of a literal; None for a number or date that the domain does not hold."""
    value = _typed(column, constant)
    if column.listed:
        point = column.index.get(value)
        if point is None and column.kind == "text":
            near = difflib.get_close_matches(str(value)[:40], [str(v)[:40] for v in column.values[:2000]], 1)
            listed = shortened(", ".join(str(v)[:100] for v in column.values[:50]), 100)
            raise QueryError(
                f"{shortened(column.name, 40)} has no value {shortened(value, 40)}",
                f"did you mean '{shortened(near[0])}'?" if near else f"declared are {listed}",
                constant.at,
            )
        return point
    number = value.toordinal() if isinstance(value, datetime.date) else int(value)
    return number if column.low <= number <= column.high else None


def _typed(column: Column, constant: Constant) -> Value:
    """The literal as a value of the column's type."""
    value = constant.value
    if column.kind == "date" and isinstance(value, str):
        value = date_from_text(value) or value
    kinds = {"text": str, "integer": int, "boolean": bool, "date": datetime.date}
    fits = isinstance(value, kinds[column.kind]) and not (column.kind == "integer" and isinstance(value, bool))
    if not fits:
        wanted = {
            "text": "text in quotes",
            "integer": "a whole number",
            "boolean": "TRUE or FALSE",
            "date": "a date such as DATE '2026-01-31'",
        }[column.kind]
        raise QueryError(
            f"{shortened(value, 40)} for the {column.kind} column {shortened(column.name, 40)}",
            f"write {wanted}",
            constant.at,
        )
    return value
