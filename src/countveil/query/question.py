"""Checks a Query against the public schema and makes a Question: names looked up, literals typed, in canonical form.

An engine sees only the Question. It has none of the analyst's text: its columns are columns of the schema, and its
values are points (integers that stand for declared values).
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import cached_property

from countveil.display.cards import Shown
from countveil.errors import QueryError, shorten
from countveil.query.axes import Axis
from countveil.query.condition import (
    NEVER,
    All,
    Any,
    Effort,
    Membership,
    Typed,
    domain_of,
    known_of,
    null_of,
    simplify,
    tests,
)
from countveil.query.diagram import canonical
from countveil.query.expression import (
    FLIPPED,
    MAX_DEPTH,
    MAX_NODES,
    Among,
    Between,
    Both,
    ColumnComparison,
    Condition,
    Constant,
    Either,
    IsNull,
    Name,
    Negation,
    Query,
)
from countveil.query.joint_axes import JointAxis, axes_of, count_cells
from countveil.query.points import EMPTY, Points, difference, intersection, interval, set_of
from countveil.query.schema import Column, Schema, Value, date_from_text
from countveil.query.sql import parse
from countveil.query.tokens import quote_name
from countveil.query.truth import Truth, truth_of
from countveil.query.writing import text

MAX_COLUMNS = 200
MAX_TESTS = 1_000
MAX_GROUPS = 50
LONG_TEXT = 1_000
"""Texts of at most this many characters need no check that they can be parsed again."""


@dataclass(frozen=True, repr=False)
class Question(Shown):
    """One count query on one dataset.

    `by` has the group columns in the order of the schema; `shown` has the same columns in the analyst's order. `people`
    says whether people are counted instead of rows. `where` is the simplified condition, or None. `name` is the
    analyst's name for the count. Neither `shown` nor `name` changes the hash of the question.

    The cells are the product of the `axes`, the last axis changing fastest; see `joint_axes`.
    """

    schema: Schema
    by: tuple[Column, ...]
    people: bool
    where: Typed | None
    shown: tuple[Column, ...]
    name: str = "count"

    def _line(self) -> str:
        return self.text

    @cached_property
    def axes(self) -> tuple[Axis | JointAxis, ...]:
        """The axes of the table, in the order of cells."""
        return axes_of(self.by, self.schema)

    @property
    def parts(self) -> tuple[Axis, ...]:
        """The axes of single sources: `axes` with the parts of each joint axis in its place."""
        return tuple(part for axis in self.axes for part in axis.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many bins each axis has."""
        return tuple(axis.size for axis in self.axes)

    @property
    def cells(self) -> int:
        """How many cells the table has, which is how many counts the answer has."""
        return math.prod(self.shape)

    @property
    def never(self) -> bool:
        """Whether no row with declared values can satisfy the condition, so that the answer is noise around zero."""
        return self.where == NEVER

    @property
    def sensitivity(self) -> int:
        """By how much one person can change one cell."""
        return 1 if self.people else self.schema.rows_per_person

    @property
    def truth(self) -> Truth:
        """What is counted, and the bounds on what one person adds."""
        return truth_of(self.schema, self.people, self.cells)

    @cached_property
    def text(self) -> str:
        """The simplified question as SQL text. Parsing this text gives an equal question."""
        columns = [quote_name(column.name) for column in self.by]
        unit = quote_name(self.schema.unit)
        count = f"count(DISTINCT {unit})" if self.people and self.schema.rows_per_person > 1 else "count(*)"
        words = f"SELECT {', '.join([*columns, count])} FROM {quote_name(self.schema.name)}"
        if self.where is not None:
            words += f" WHERE {self._where_text()}"
        return words + (f" GROUP BY {', '.join(columns)}" if columns else "")

    def _where_text(self) -> str:
        if self.where is None or not self.never:
            return text(self.where, self.schema) if self.where is not None else ""
        name = quote_name(self.schema.columns[0].name)
        return f"{name} IS NULL AND {name} IS NOT NULL"

    @cached_property
    def canonical(self) -> dict[str, object]:
        """The canonical form as JSON values: equal for questions that count the same rows into the same cells."""
        known = [*known_of(self.by).values(), *(known for axis in self.axes for known in axis.memberships)]
        where = canonical(All((*([self.where] if self.where is not None else []), *known)))
        used = {part.source.name for part in self.parts} | {node[0] for node in where if isinstance(node, list)}
        sources = {source.name: source for source in self.schema.sources if source.name in used}
        return {
            "dataset": self.schema.name,
            "unit": self.schema.unit,
            "people": self.people,
            "rows_per_person": self.schema.rows_per_person,
            "cells_per_person": self.schema.cells_per_person,
            "by": [axis.canonical for axis in self.axes],
            "columns": [[name, sources[name].sha256] for name in sorted(used)],
            "where": where,
        }

    @cached_property
    def sha256(self) -> str:
        """The hash of the canonical form."""
        written = json.dumps(self.canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(written.encode()).hexdigest()


def bind(query: Query, schema: Schema) -> Question:
    """Check a query against the schema and make it a Question. Whether it is refused never depends on the data."""
    shown = tuple(_column(name, schema) for name in query.by)
    seen: set[str] = set()
    for name, column in zip(query.by, shown, strict=True):
        if column.name in seen:
            raise QueryError(f"the column {shorten(column.name, 40)} twice", "name each column once", name.at)
        seen.add(column.name)
    if len(seen) > MAX_GROUPS:
        raise QueryError(f"{len(seen)} group columns", f"at most {MAX_GROUPS} are allowed", query.by[MAX_GROUPS].at)
    by = tuple(column for column in schema.columns if column.name in seen)
    people = _people(query.distinct, schema)
    question = Question(schema, by, people, None, shown, query.name)
    if (number := count_cells(by, schema)) > schema.max_cells:
        sizes: dict[str, list[str]] = {}  # by source
        for column in by:
            sizes.setdefault(column.root.name, []).append(f"{shorten(column.name, 40)} {column.keys}")
        shape = shorten(" x ".join(map(" with ".join, sizes.values())), 100)
        cells = str(number) if number < 10**18 else "over 10^18"
        raise QueryError(
            f"a table of {cells} cells ({shape})",
            f"at most {schema.max_cells} are allowed; group by fewer columns, or declare a larger step",
            query.by[0].at,
        )
    try:
        if query.where is not None:
            question = replace(question, where=_where(query.where, by, schema))
        _ = question.sha256  # refuses a condition that is too complex to compare, before anything is charged
        _check_text(question)
    except QueryError as error:
        if error.position is not None or query.where is None:
            raise
        raise QueryError(error.construct, error.allowed, _position(query.where)) from None
    return question


def _check_text(question: Question) -> None:
    """Refuse a question whose simplified text is too long to be parsed: the ledger stores it, to be asked again."""
    if len(question.text) > LONG_TEXT:
        try:
            parse(question.text)
        except QueryError:
            raise QueryError("a condition whose simplified text is too long", "name fewer values, or a range") from None


def _where(condition: Condition, by: tuple[Column, ...], schema: Schema) -> Typed | None:
    """The condition, typed and simplified. Tests that are implied by grouping by `by` are removed; None if nothing
    remains."""
    effort = Effort()
    typed = _Typer(schema, effort).type_condition(condition, negated=False)
    known = known_of(by)
    where = simplify(All((typed, *known.values())), effort)
    if tests(where) > MAX_TESTS:
        raise QueryError(
            f"a condition of {tests(where)} tests", f"at most {MAX_TESTS} are allowed; a list after IN counts as one"
        )
    parts = where.parts if isinstance(where, All) else (where,)
    rest = tuple(part for part in parts if not (isinstance(part, Membership) and part == known.get(part.column.name)))
    if where == NEVER or len(rest) == len(parts):
        return where
    return None if not rest else simplify(All(rest), effort)


def _position(condition: Condition) -> int | None:
    """The position, in the SQL text, of the first test of a condition."""
    while not isinstance(condition, (ColumnComparison, Among, Between, IsNull)):
        if isinstance(condition, Negation):
            condition = condition.part
        elif isinstance(condition, (Both, Either)) and condition.parts:
            condition = condition.parts[0]
        else:
            return None
    return condition.column.at


def _people(distinct: Name | None, schema: Schema) -> bool:
    """Whether the question counts people, not rows. Always true if a person has at most one row in a cell: both counts
    are then equal."""
    if distinct is None:
        return schema.rows_per_person == 1
    if schema.unit_is_row:
        raise QueryError(
            "count(DISTINCT ...)",
            f"in {shorten(schema.name, 40)} every row is a person, so count(*) counts people: write count(*)",
            distinct.at,
        )
    plain = not distinct.quoted and schema.unit.isascii()
    if distinct.text != schema.unit and not (plain and distinct.text.lower() == schema.unit.lower()):
        unit = shorten(quote_name(schema.unit), 60)
        raise QueryError(
            f"count(DISTINCT {shorten(distinct.text, 40)})",
            f"count(DISTINCT {unit}) counts people; {_meaning(schema)}",
            distinct.at,
        )
    return True


def _meaning(schema: Schema) -> str:
    """What count(*) counts, in words for an error message: rows of people within the declared bounds."""
    rows = schema.rows_per_person
    return f"count(*) counts rows, at most {rows} of a person in a cell" if rows > 1 else "so does count(*)"


def _column(name: Name, schema: Schema) -> Column:
    column = schema.column(name.text, name.quoted)
    if column is not None:
        return column
    names = [column.name for column in schema.columns]
    alike = schema.column(name.text, quoted=False)
    if alike is not None:
        spelling = shorten(quote_name(alike.name), 100)
        raise QueryError(f"the column {shorten(name.text, 40)} is not declared", f"write it as {spelling}", name.at)
    near = difflib.get_close_matches(name.text[:40], names[:2000], 1)
    hint = f"did you mean {shorten(near[0], 100)}?" if near else f"declared are {shorten(', '.join(names), 100)}"
    raise QueryError(f"the column {shorten(name.text, 40)} is not declared", hint, name.at)


class _Typer:
    """Turns an untyped condition into tests on sets of points: converts its literals and applies NOT to the single
    tests."""

    def __init__(self, schema: Schema, effort: Effort) -> None:
        self.schema = schema
        self.spend = effort.spend
        self.nodes = 0
        self.columns: set[str] = set()

    def type_condition(self, condition: Condition, negated: bool, depth: int = 0) -> Typed:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise QueryError(
                "a condition of too many parts", f"at most {MAX_NODES} parts, nested {MAX_DEPTH} deep, are allowed"
            )
        if isinstance(condition, Negation):
            return self.type_condition(condition.part, not negated, depth + 1)
        if isinstance(condition, (Both, Either)):
            parts = tuple(self.type_condition(part, negated, depth + 1) for part in condition.parts)
            return All(parts) if isinstance(condition, Both) != negated else Any(parts)
        return self.test(condition, negated)

    def column(self, name: Name) -> Column:
        column = _column(name, self.schema)
        self.columns.add(column.name)
        if len(self.columns) > MAX_COLUMNS:
            raise QueryError("a condition on too many columns", f"at most {MAX_COLUMNS} are allowed", name.at)
        return column

    def test(self, condition: Condition, negated: bool) -> Membership:
        """Convert one test to a set of points. The negated test has all other points of the domain, but not NULL."""
        if not isinstance(condition, (ColumnComparison, Among, Between, IsNull)):
            raise QueryError(f"a condition of type {type(condition).__name__}", 'write cv.col("age") >= 65')
        column = self.column(condition.column)
        if isinstance(condition, IsNull):
            return Membership(column.root, column.inside if negated else null_of(column.root))
        if isinstance(condition, ColumnComparison):
            points = self.select_points(column, condition.op, condition.constant)
        elif isinstance(condition, Among):
            if not condition.constants:
                raise QueryError("an empty list of values", "name at least one value", condition.column.at)
            each = [_point(column, constant) for constant in condition.constants]
            points = set_of(point for point in each if point is not None)
        else:
            low = self.select_points(column, ">=", condition.low)
            points = intersection(low, self.select_points(column, "<=", condition.high))
        if column.source is not None:
            self.spend(10 + sum(len(block) for block in column.blocks))
        points = column.pull_back(points)
        self.spend(10 + len(points))
        return Membership(column.root, difference(column.inside, points) if negated else points)

    def select_points(self, column: Column, op: str, constant: Constant) -> Points:
        """The points for which `value op constant` is true. Text compares by code points, labels by declared order."""
        domain = domain_of(column)
        if op in ("=", "<>"):
            point = _point(column, constant)
            equal = EMPTY if point is None else interval(point, point)
            return equal if op == "=" else difference(domain, equal)
        if op not in FLIPPED:
            raise QueryError(f"the operator {shorten(op, 20)}", "the operators are = <> < <= > >=", constant.at)
        if column.kind == "boolean":
            name = shorten(column.name, 40)
            raise QueryError(f"{op} on the boolean column {name}", "write = TRUE or = FALSE", constant.at)
        if column.source is not None:  # labels are in the declared order
            place = _point(column, constant)
            assert place is not None
            low, high = domain[0]
            ends = {"<": (low, place - 1), "<=": (low, place), ">": (place + 1, high), ">=": (place, high)}
            return interval(*ends[op])
        value = _convert(column, constant)
        if column.is_listed:
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
    """The point (integer) that stands for a literal or label; None for a number or date outside the domain."""
    if constant.value in column.labels:
        return column.labels.index(str(constant.value))
    value = _convert(column, constant)
    if column.is_listed:
        point = column.index.get(value)
        if point is None and column.kind == "text":
            near = difflib.get_close_matches(str(value)[:40], [str(v)[:40] for v in column.values[:2000]], 1)
            listed = shorten(", ".join(str(v)[:100] for v in column.values[:50]), 100)
            hint = f"did you mean '{shorten(near[0])}'?" if near else f"declared are {listed}"
            what = f"{shorten(column.name, 40)} has no value {shorten(value, 40)}"
            raise QueryError(what, hint, constant.at)
        return point
    number = value.toordinal() if isinstance(value, datetime.date) else int(value)
    return number if column.low <= number <= column.high else None


def _convert(column: Column, constant: Constant) -> Value:
    """Convert a literal to a value of the column's type, or refuse it."""
    value = constant.value
    if column.kind == "date" and isinstance(value, str):
        value = date_from_text(value) or value
    kind = {"text": str, "integer": int, "boolean": bool, "date": datetime.date}[column.kind]
    if isinstance(value, kind) and isinstance(value, bool) == (column.kind == "boolean"):
        return value
    literal = {
        "text": "text in quotes",
        "integer": "a whole number",
        "boolean": "TRUE or FALSE",
        "date": "a date such as DATE '2026-01-31'",
    }[column.kind]
    what = f"{shorten(value, 40)} for the {column.kind} column {shorten(column.name, 40)}"
    raise QueryError(what, f"write {literal}", constant.at)
