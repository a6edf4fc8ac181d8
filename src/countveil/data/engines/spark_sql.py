"""Spark's SQL: the names of types, how a column is read, how a value is bound."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from zlib import crc32

from countveil.data.engines.sql import FLOATS, Dialect, Family
from countveil.query.schema import Kind, Value

BUCKETS = 128
"""The number of buckets of a list of values; a value is searched in one bucket only."""
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
    """Spark's SQL."""

    types: Mapping[Kind, str] = {**Dialect.types, "text": "STRING"}

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def parameter(self, key: str) -> str:
        return f":{key}"

    def matches(self, expression: str, pattern: str) -> str:
        whole = pattern.removesuffix("$") + r"\z"  # Java's $ also matches before a final line break
        return f"{expression} RLIKE r'{whole}'"

    def whole_number(self, family: Family, raw: str) -> str:
        number = self.try_cast(raw, "BIGINT")
        same = f"CAST({number} AS DOUBLE)" if family in FLOATS else number
        return f"CASE WHEN {same} = {raw} THEN {number} END"

    def parse_integer(self, text: str) -> str:
        return self.try_cast(f"split_part({text}, '.', 1)", "BIGINT")

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        """The list is passed as JSON text, because Spark refuses arguments that are long arrays or have extreme values.
        It is split into buckets (see `group_in_buckets`), because Spark searches an array from its beginning.
        """
        buckets, value = f"from_json({parameter}, 'ARRAY<ARRAY<STRING>>')", expression
        if kind != "text":
            value = self.try_cast(value, self.types[kind])
            buckets = f"CAST({buckets} AS ARRAY<ARRAY<{self.types[kind]}>>)"
        spread = {"text": f"crc32(CAST({value} AS BINARY))", "integer": value}.get(kind, "0")
        return f"array_contains(element_at({buckets}, CAST(pmod({spread}, {BUCKETS}) AS INT) + 1), {value})"

    def hash(self, person: str, cell: str, salt: str) -> str:
        return f"xxhash64({person}, {cell}, CAST({salt} AS BIGINT))"

    def instant(self, seconds: str) -> str:
        return f"timestamp_seconds({seconds})"

    def legible(self, text: str) -> list[str]:
        return [f"is_valid_utf8({text})"]

    def days(self, later: str, earlier: str) -> str:
        return f"datediff({later}, {earlier})"

    def whole(self, a: str, b: str) -> str:
        return f"({a} DIV {b})"


def group_in_buckets(members: Sequence[Value]) -> list[list[str]]:
    """The members of a list in buckets: text by its CRC-32, integers by their remainder, others in the first bucket."""
    buckets: list[list[str]] = [[] for _ in range(BUCKETS)]
    for member in members:
        number = member if type(member) is int else 0
        spread = crc32(member.encode()) if isinstance(member, str) else number
        buckets[spread % BUCKETS].append(str(bind_value(member)))
    return buckets


def bind_value(value: object) -> object:
    """A value as an argument of Spark: lists as JSON, dates as text, because Java does not accept all of Python's."""
    if isinstance(value, list):
        return json.dumps(group_in_buckets(value))
    return value.isoformat() if isinstance(value, datetime.date) else value


def scales_of(kinds: Mapping[str, str]) -> dict[str, int]:
    """The digits after the point of the columns that are decimals."""
    scales = {name: re.fullmatch(r"decimal\([0-9]+,([0-9]+)\)", kind) for name, kind in kinds.items()}
    return {name: int(scale[1]) for name, scale in scales.items() if scale is not None}


def family_of(kind: str) -> Family:
    if kind.startswith("decimal"):
        return "integer" if kind.endswith(",0)") else "decimal"
    return "text" if kind.startswith(("char", "varchar")) else FAMILIES.get(kind, "other")
