"""Counting by its definition, in plain Python: written from the rules in the docs, not from the engines' code."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from countveil.query.schema import Column, Schema


class Outside:
    """A value that is not in the domain, or not of the declared type."""


OUTSIDE = Outside()
Row = dict[str, Any]


def precise(rows: list[Row], frame: bool = False) -> list[Row]:
    """The rows with every float that could stand for several integers replaced by infinity; both are outside.

    In a frame, a decimal or an integer that is so large counts as the float that is nearest to it.
    """

    def told_apart(value: Any) -> Any:
        value = nearest_float(value) if frame else value
        return math.inf if isinstance(value, float) and abs(value) >= 2**53 else value

    return [{name: told_apart(value) for name, value in row.items()} for row in rows]


def nearest_float(value: Any) -> Any:
    """A decimal, or an integer from 2^53 on, as the float that it becomes in some frames; any other value as it is."""
    return float(value) if isinstance(value, Decimal) or (isinstance(value, int) and abs(value) >= 2**53) else value


def read(column: Column, raw: Any) -> Any:
    """The value in the declared type, None if it is missing, or OUTSIDE if it is not in the domain."""
    if raw is None or (isinstance(raw, (float, Decimal)) and math.isnan(raw)):
        return None
    value = {"integer": integer, "text": text, "boolean": boolean, "date": date}[column.kind](raw)
    if column.is_listed:
        return value if value in column.values and type(value) is type(column.values[0]) else OUTSIDE
    if value is OUTSIDE:
        return OUTSIDE
    point = value.toordinal() if column.kind == "date" else value
    return value if column.low <= point <= column.high else OUTSIDE


def integer(raw: Any) -> Any:
    if isinstance(raw, str):
        found = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", raw.strip(" "))
        return int(found[1]) if found else OUTSIDE
    if isinstance(raw, (float, Decimal)):
        return int(raw) if math.isfinite(raw) and raw == int(raw) else OUTSIDE
    return raw


def text(raw: Any) -> Any:
    return str(raw) if isinstance(raw, (str, int)) else OUTSIDE


def boolean(raw: Any) -> Any:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        words = {"true": True, "t": True, "false": False, "f": False}
        word = raw.strip(" ").lower()
        return words[word] if word in words else boolean(integer(raw))
    return bool(raw) if raw in (0, 1) else OUTSIDE


def date(raw: Any) -> Any:
    if isinstance(raw, datetime.datetime):
        return raw.date()
    if isinstance(raw, str):
        trimmed = raw.strip(" ")
        day, time = trimmed[:10], trimmed[10:]
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", day):
            return OUTSIDE
        if time and not re.fullmatch(r"[ T](0[0-9]|1[0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,9})?", time):
            return OUTSIDE
        try:
            return datetime.date.fromisoformat(day)
        except ValueError:
            return OUTSIDE
    return raw


@dataclass(frozen=True)
class Test:
    """A condition of our own: `op` is and, or, not, null, in, or a comparison; `args` are parts, or column, values."""

    __test__ = False

    op: str
    args: tuple[Any, ...]

    def sql(self) -> str:
        if self.op in ("and", "or"):
            return "(" + f" {self.op} ".join(part.sql() for part in self.args) + ")"
        if self.op == "not":
            return f"(NOT {self.args[0].sql()})"
        name = f'"{self.args[0].name}"'
        if self.op == "null":
            return f"{name} IS NULL"
        values = [literal(value) for value in self.args[1]]
        return f"{name} IN ({', '.join(values)})" if self.op == "in" else f"{name} {self.op} {values[0]}"

    def holds(self, row: Row) -> bool | None:
        """The truth value in SQL's logic: True, False, or None for unknown, as is every test of a value outside."""
        if self.op in ("and", "or"):
            found = [part.holds(row) for part in self.args]
            decisive = self.op == "or"
            return decisive if decisive in found else (None if None in found else not decisive)
        if self.op == "not":
            inner = self.args[0].holds(row)
            return None if inner is None else not inner
        value = read(self.args[0], row[self.args[0].name])
        if value is OUTSIDE:
            return None
        if self.op == "null":
            return value is None
        if value is None:
            return None
        given = self.args[1]
        compare = {
            "in": lambda: value in given,
            "=": lambda: value == given[0],
            "<>": lambda: value != given[0],
            "<": lambda: value < given[0],
            "<=": lambda: value <= given[0],
            ">": lambda: value > given[0],
            ">=": lambda: value >= given[0],
        }
        return compare[self.op]()


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"DATE '{value.isoformat()}'" if isinstance(value, datetime.date) else str(value)


def key_of(column: Column, value: Any) -> int:
    """The number of the key that a value of the domain belongs to."""
    if column.is_listed:
        return column.values.index(value)
    point = value.toordinal() if column.kind == "date" else value
    return (point - column.low) // column.step


def cell_of(schema: Schema, by: list[str], row: Row) -> int | None:
    cell = 0
    for column in schema.columns:  # cells are ordered as the schema orders its columns
        if column.name in by:
            value = read(column, row[column.name])
            if value is None or value is OUTSIDE:
                return None
            cell = cell * column.keys + key_of(column, value)
    return cell


def cells_of(schema: Schema, by: list[str]) -> int:
    return math.prod(column.keys for column in schema.columns if column.name in by)


def kept(
    schema: Schema, by: list[str], where: Test | None, distinct: bool, rows: list[Row]
) -> dict[Any, dict[int, int]]:
    """The counted rows of every person: {person: {cell: n}}; of too many cells those with the lowest numbers."""
    people: dict[Any, Counter[int]] = {}
    for number, row in enumerate(rows):
        person = number if schema.unit_is_row else row[schema.unit]
        cell = cell_of(schema, by, row)
        if person is not None and cell is not None and (where is None or where.holds(row) is True):
            people.setdefault(person, Counter())[cell] += 1
    if schema.unit_is_row:
        return {person: dict(found) for person, found in people.items()}
    most = 1 if distinct else schema.rows_per_person
    bounded = {}
    for person, found in people.items():
        bounded[person] = {cell: min(found[cell], most) for cell in sorted(found)[: schema.cells_per_person]}
    return bounded


def count(schema: Schema, by: list[str], where: Test | None, distinct: bool, rows: list[Row]) -> list[int]:
    counts = [0] * cells_of(schema, by)
    for found in kept(schema, by, where, distinct, rows).values():
        for cell, n in found.items():
            counts[cell] += n
    return counts


def sql(schema: Schema, by: list[str], where: Test | None = None, distinct: bool = False) -> str:
    names = [f'"{name}"' for name in by]
    counted = f'count(DISTINCT "{schema.unit}")' if distinct else "count(*)"
    words = f'SELECT {", ".join([*names, counted])} FROM "{schema.name}"'
    words += f" WHERE {where.sql()}" if where else ""
    return words + (f" GROUP BY {', '.join(names)}" if names else "")
