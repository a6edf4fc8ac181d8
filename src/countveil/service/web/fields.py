"""The form's fields against SQL text, both ways.

Fields say for every column: group by it or not, and which of its values (a list), or from where to where (a range).
That is a conjunction of one test a column; SQL that says more stays SQL, and the fields say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import FormData

from countveil.query import Question
from countveil.query.condition import All, Member
from countveil.query.tokens import quoted
from countveil.schema import Column, Schema

MOST_LISTED = 60
"""Values that are shown as boxes; longer lists are asked for in SQL."""


@dataclass(frozen=True)
class Filter:
    """What one column's fields say: grouped, and the values or the range that are kept (empty: all)."""

    grouped: bool = False
    values: tuple[str, ...] = ()
    low: str = ""
    high: str = ""


@dataclass(frozen=True)
class Fields:
    """What all fields say; `beyond` if the SQL says more than fields can."""

    dataset: str
    people: bool = False
    filters: Mapping[str, Filter] = field(default_factory=dict)
    beyond: bool = False

    @property
    def mark(self) -> str:
        """What tells fields that say one thing from fields that say another."""
        said = sorted((name, repr(each)) for name, each in self.filters.items() if each != Filter())
        return hashlib.sha256(repr((self.dataset, self.people, said)).encode()).hexdigest()[:16]


def from_form(form: FormData, schema: Schema) -> Fields:
    """The fields as they were sent."""
    filters = {}
    for i, column in enumerate(schema.columns):
        values = tuple(str(value) for value in form.getlist(f"v{i}"))
        low, high = (str(form.get(f"{end}{i}", "")).strip() for end in ("a", "b"))
        filters[column.name] = Filter(f"g{i}" in form, values, low, high)
    return Fields(schema.name, "people" in form, filters)


def to_sql(fields: Fields, schema: Schema) -> str:
    """The fields as a question."""
    groups, tests = [], []
    for column in schema.columns:
        said = fields.filters.get(column.name, Filter())
        name = quoted(column.name)
        if said.grouped:
            groups.append(name)
        if said.values:
            tests.append(_among(name, column, said.values))
        ends = [(op, end) for op, end in ((">=", said.low), ("<=", said.high)) if end]
        tests += [f"{name} {op} {_literal(column, end)}" for op, end in ends]
    count = f"count(DISTINCT {quoted(schema.unit)})" if fields.people and not schema.unit_is_row else "count(*)"
    text = f"SELECT {', '.join([*groups, count])} FROM {quoted(schema.name)}"
    if tests:
        text += f" WHERE {' AND '.join(tests)}"
    return text + (f" GROUP BY {', '.join(groups)}" if groups else "")


def from_question(question: Question) -> Fields:
    """What the fields say of a question, as far as they can."""
    schema = question.schema
    grouped = {column.name for column in question.by}
    where = question.where
    parts: Sequence[object] = () if where is None else where.parts if isinstance(where, All) else (where,)
    filters = {column.name: Filter(column.name in grouped) for column in schema.columns}
    beyond = False
    for part in parts:
        found = _filter(part, grouped) if isinstance(part, Member) else None
        if found is None:
            beyond = True
        elif isinstance(part, Member):
            filters[part.column.name] = found
    people = question.people and schema.rows_per_person > 1
    return Fields(schema.name, people, filters, beyond)


def _filter(part: Member, grouped: set[str]) -> Filter | None:
    """One test as fields; None if it is not one list or one range of declared values."""
    column = part.column
    if any(low < column.first for low, _ in part.points):  # NULL is asked for in SQL
        return None
    held = column.name in grouped
    if column.listed:
        if len(column.values) > MOST_LISTED:
            return None
        kept = [column.value(point) for low, high in part.points for point in range(low, high + 1)]
        return Filter(held, tuple(shown(value) for value in kept))
    if len(part.points) != 1:
        return None
    low, high = part.points[0]
    ends = ("" if low == column.low else str(column.value(low)), "" if high == column.high else str(column.value(high)))
    return Filter(held, (), *ends)


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _among(name: str, column: Column, values: Sequence[str]) -> str:
    written = [_literal(column, value) for value in values]
    return f"{name} = {written[0]}" if len(written) == 1 else f"{name} IN ({', '.join(written)})"


def _literal(column: Column, value: str) -> str:
    """What was typed or ticked, as a literal; what is not one is refused by the parser, with its place."""
    if column.kind == "text":
        return "'" + value.replace("'", "''") + "'"
    if column.kind == "date":
        return "DATE '" + value.replace("'", "''") + "'"
    return value.upper() if column.kind == "boolean" else value
