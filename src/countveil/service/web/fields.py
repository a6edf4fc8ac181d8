"""Converts between the fields of the form and SQL text.

For every column, the fields say whether to group by it, and which values (a list or a range) to keep. Together they
express one test per column, joined by AND. `beyond` is set if the SQL says more than that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import FormData

from countveil.query import Question
from countveil.query.condition import All, Membership
from countveil.query.points import Points
from countveil.query.schema import Column, Schema
from countveil.query.tokens import quote_name
from countveil.query.writing import restate

MOST_LISTED = 60
"""The most values that are shown as check boxes. A condition on a column with more values needs SQL."""


@dataclass(frozen=True)
class Filter:
    """The fields of one column: whether to group by it, and the values or the range to keep (all if empty)."""

    grouped: bool = False
    values: tuple[str, ...] = ()
    low: str = ""
    high: str = ""

    @property
    def is_free(self) -> bool:
        """Whether the fields keep all values."""
        return not (self.values or self.low or self.high)


@dataclass(frozen=True)
class Fields:
    """The fields of the whole form. `beyond` is True if the SQL says more than fields can."""

    dataset: str
    people: bool = False
    filters: Mapping[str, Filter] = field(default_factory=dict)
    beyond: bool = False

    @property
    def mark(self) -> str:
        """A hash of the fields, to see whether they have changed."""
        filters = sorted((name, repr(each)) for name, each in self.filters.items() if each != Filter())
        return hashlib.sha256(repr((self.dataset, self.people, filters)).encode()).hexdigest()[:16]


def from_form(form: FormData, schema: Schema) -> Fields:
    """Read the fields of a submitted form."""
    filters = {}
    for i, column in enumerate(schema.columns):
        values = tuple(str(value) for value in form.getlist(f"v{i}"))
        low, high = (str(form.get(f"{end}{i}", "")).strip() for end in ("a", "b"))
        filters[column.name] = Filter(f"g{i}" in form, values, low, high)
    return Fields(schema.name, "people" in form, filters)


def to_sql(fields: Fields, schema: Schema) -> str:
    """Write the fields as SQL text."""
    groups, tests = [], []
    for column in schema.columns:
        column_filter = fields.filters.get(column.name, Filter())
        name = quote_name(column.name)
        if column_filter.grouped:
            groups.append(name)
        if column_filter.values:
            tests.append(_among(name, column, column_filter.values))
        ends = [(op, end) for op, end in ((">=", column_filter.low), ("<=", column_filter.high)) if end]
        tests += [f"{name} {op} {_literal(column, end)}" for op, end in ends]
    count = f"count(DISTINCT {quote_name(schema.unit)})" if fields.people and not schema.unit_is_row else "count(*)"
    text = f"SELECT {', '.join([*groups, count])} FROM {quote_name(schema.name)}"
    if tests:
        text += f" WHERE {' AND '.join(tests)}"
    return text + (f" GROUP BY {', '.join(groups)}" if groups else "")


def from_question(question: Question) -> Fields:
    """The fields that say what a question asks, as far as fields can say it."""
    schema = question.schema
    grouped = {column.name for column in question.by}
    where = question.where
    parts: Sequence[object] = () if where is None else where.parts if isinstance(where, All) else (where,)
    filters = {column.name: Filter(column.name in grouped) for column in schema.columns}
    beyond = False
    for part in parts:
        views = [view for view in _views(part, schema) if filters[view[0].name].is_free]
        tests = {column.name: test for column, points in views if (test := _filter(column, points, grouped))}
        if tests:
            name = min(tests, key=lambda name: len(tests[name].values))
            filters[name] = tests[name]
        else:
            beyond = True
    people = question.people and schema.rows_per_person > 1
    return Fields(schema.name, people, filters, beyond)


def _views(part: object, schema: Schema) -> list[tuple[Column, Points]]:
    """All ways to write a condition as one test on a declared column; empty if the condition is not a single test."""
    if not isinstance(part, Membership):
        return []
    columns = schema.columns_of[part.column.name]
    return [view for column in columns if (view := restate(part, column)) is not None]


def _filter(column: Column, points: Points, grouped: set[str]) -> Filter | None:
    """The fields that express a test on a column; None unless the test is one list or range of declared values."""
    if any(low < column.first for low, _ in points):  # NULL needs SQL
        return None
    is_grouped = column.name in grouped
    if column.is_listed:
        if len(column.values) > MOST_LISTED:
            return None
        values = [column.value(point) for low, high in points for point in range(low, high + 1)]
        return Filter(is_grouped, tuple(format_value(value) for value in values))
    if len(points) != 1:
        return None
    low, high = points[0]
    ends = ("" if low == column.low else str(column.value(low)), "" if high == column.high else str(column.value(high)))
    return Filter(is_grouped, (), *ends)


def format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _among(name: str, column: Column, values: Sequence[str]) -> str:
    literals = [_literal(column, value) for value in values]
    return f"{name} = {literals[0]}" if len(literals) == 1 else f"{name} IN ({', '.join(literals)})"


def _literal(column: Column, value: str) -> str:
    """Write a typed or ticked value as an SQL literal. An invalid value is refused later, by the parser."""
    if column.kind == "text":
        return "'" + value.replace("'", "''") + "'"
    if column.kind == "date":
        return "DATE '" + value.replace("'", "''") + "'"
    return value.upper() if column.kind == "boolean" else value
