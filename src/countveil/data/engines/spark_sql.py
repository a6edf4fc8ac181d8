"""Spark's SQL: how a type is called, how a column is read, how a value is bound."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from zlib import crc32

from countveil.engines.sql import FLOATS, Dialect, Family
from countveil.schema import Kind, Value

BUCKETS = 128
"""Parts of a list of values, of which a value is looked for in one."""
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["tinyint", "smallint", "int", "bigint"], "integer"),
    "double": "float",
    "float": "single",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "zoned",
}


class SparkDialect(Dialect):
    """Spark's spelling."""

    types: Mapping[Kind, str] = {**Dialect.types, "text": "STRING"}

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def parameter(self, key: str) -> str:
        return f":{key}"

    def matches(self, expression: str, pattern: str) -> str:
        whole = pattern.removesuffix("$") + r"\z"  # Java's $ is also true before a last line break
        return f"{expression} RLIKE r'{whole}'"

    def whole_number(self, family: Family, raw: str) -> str:
        number = self.try_cast(raw, "BIGINT")
        same = f"CAST({number} AS DOUBLE)" if family in FLOATS else number
        return f"CASE WHEN {same} = {raw} THEN {number} END"

    def parse_integer(self, text: str) -> str:
        return self.try_cast(f"split_part({text}, '.', 1)", "BIGINT")

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        """The list is JSON text, because Spark takes no long or extreme arrays as arguments; and in buckets, because
        Spark looks through an array from its beginning. See `bucketed`."""
        buckets, value = f"from_json({parameter}, 'ARRAY<ARRAY<STRING>>')", expression
        if kind != "text":
            value = self.try_cast(value, self.types[kind])
            buckets = f"CAST({buckets} AS ARRAY<ARRAY<{self.types[kind]}>>)"
        spread = {"text": f"crc32(CAST({value} AS BINARY))", "integer": value}.get(kind, "0")
        return f"array_contains(element_at({buckets}, CAST(pmod({spread}, {BUCKETS}) AS INT) + 1), {value})"

    def legible(self, text: str) -> list[str]:
        return [f"is_valid_utf8({text})"]

    def days(self, later: str, earlier: str) -> str:
        return f"datediff({later}, {earlier})"

    def whole(self, a: str, b: str) -> str:
        return f"({a} DIV {b})"


def bucketed(members: Sequence[Value]) -> list[list[str]]:
    """The members of a list: texts by their CRC-32, integers by their remainder, all others together."""
    buckets: list[list[str]] = [[] for _ in range(BUCKETS)]
    for member in members:
        number = member if type(member) is int else 0
        spread = crc32(member.encode()) if isinstance(member, str) else number
        buckets[spread % BUCKETS].append(str(bind_value(member)))
    return buckets


def bind_value(value: object) -> object:
    """A value as Spark takes it: lists as JSON, dates as text, because not all of Python's are Java's."""
    if isinstance(value, list):
        return json.dumps(bucketed(value))
    return value.isoformat() if isinstance(value, datetime.date) else value


def family_of(kind: str) -> Family:
    if kind.startswith("decimal"):
        return "integer" if kind.endswith(",0)") else "decimal"
    return "text" if kind.startswith(("char", "varchar")) else FAMILIES.get(kind, "other")
