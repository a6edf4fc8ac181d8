"""How PostgreSQL reads a column as the declared type. PostgreSQL has no TRY_CAST, so values are checked before the
cast.

Guarantee: every function and operator is built in, because names are looked up in pg_catalog only, and none of them
fails for any value. A text longer than `LONGEST` can be read as text only. As a person's id it counts as missing, so
the row is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from countveil.data.engines.families import FLOATS, Family
from countveil.data.engines.sql import Dialect
from countveil.data.engines.steps import write_decimal
from countveil.query.schema import Kind

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["int2", "int4", "int8"], "integer"),
    "float8": "float",
    "float4": "single",
    **dict.fromkeys(["text", "varchar", "bpchar", "uuid", "name", "citext"], "text"),
    "numeric": "decimal",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "zoned",
}
NUMBERS = {"float4", "float8", "numeric"}
"""PostgreSQL's types that can hold NaN."""
LONGEST = 1_000_000
"""The largest size, in bytes, of a text that is parsed: on hundreds of megabytes the server would run out of memory."""
LARGEST_ARRAY = 1_000_000
"""Tables with more cells than this do without arrays, which hold a number for each cell of a person in memory."""
_LOW, _HIGH = -(2**63), 2**63 - 1
_DIGITS = 19
"""The largest number of digits in a 64-bit integer."""


class PostgresDialect(Dialect):
    """PostgreSQL's dialect of SQL, for columns as `PostgresCompiler.raw` writes them: text compared by bytes, NaN as
    NULL."""

    types: Mapping[Kind, str] = {**Dialect.types, "text": "text"}

    double = "float8"

    def name(self, name: str) -> str:
        return super().name(name).replace("%", "%%")  # the driver reads % as the start of a parameter

    def characters(self, raw: str) -> str:
        return f'(CAST({raw} AS text) COLLATE "C")'

    def parameter(self, key: str) -> str:
        return f"%({key})s"

    def matches(self, expression: str, pattern: str) -> str:
        return f"{expression} ~ '{pattern}'"

    def try_cast(self, expression: str, kind: str) -> str:
        return f"CAST({expression} AS {kind})"

    def if_short(self, raw: str, value: str) -> str:
        """SQL for `value` if the text `raw` is short enough to be parsed, else NULL."""
        return f"CASE WHEN octet_length({raw}) <= {LONGEST} THEN {value} END"

    def whole_number(self, family: Family, raw: str) -> str:
        number = super().whole_number(family, raw)
        return number if family in FLOATS else f"CASE WHEN {raw} BETWEEN {_LOW} AND {_HIGH} THEN {number} END"

    def parse(self, raw: str, pattern: str, value: Callable[[str], str]) -> str:
        return self.if_short(raw, super().parse(raw, pattern, value))

    def parse_integer(self, text: str) -> str:
        digits = f"ltrim(split_part({text}, '.', 1), '+-0')"
        number = f"CAST(CASE WHEN starts_with({text}, '-') THEN '-0' ELSE '0' END || {digits} AS numeric)"
        fits = f"CASE WHEN {number} BETWEEN {_LOW} AND {_HIGH} THEN CAST({number} AS bigint) END"
        return f"CASE WHEN length({digits}) <= {_DIGITS} THEN {fits} END"

    def parse_date(self, text: str) -> str:
        year, month, day = (f"CAST(substr({text}, {at}, {size}) AS integer)" for at, size in ((1, 4), (6, 2), (9, 2)))
        leap = f"(mod({year}, 4) = 0 AND (mod({year}, 100) <> 0 OR mod({year}, 400) = 0))"
        days = f"CASE {month} WHEN 2 THEN CASE WHEN {leap} THEN 29 ELSE 28 END "
        days += "WHEN 4 THEN 30 WHEN 6 THEN 30 WHEN 9 THEN 30 WHEN 11 THEN 30 ELSE 31 END"
        exists = f"{year} >= 1 AND {month} BETWEEN 1 AND 12 AND {day} BETWEEN 1 AND {days}"
        return f"CASE WHEN {exists} THEN make_date({year}, {month}, {day}) END"

    def read_boolean(self, family: Family, raw: str) -> str:
        read = super().read_boolean(family, raw)
        return self.if_short(raw, read) if family == "text" else read

    def missing(self, family: Family, raw: str) -> str:
        return f"{raw} IS NULL"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        return f"{expression} = ANY (CAST({parameter} AS {self.types[kind]}[]))"

    def instant(self, seconds: str) -> str:
        return f"to_timestamp(CAST({seconds} AS float8))"

    def decimal(self, bind: Callable[[object], str], cut: Fraction, scale: int) -> str:
        return f"CAST({bind(write_decimal(cut, scale))} AS numeric)"

    def list_values(self, parameter: str, kind: Kind) -> str:
        """A relation (v, i) of a list's values and indexes, written with GROUP BY.

        The server knows that grouped values are distinct. For any other list it expects so many rows of each value that
        it hashes the table instead of the list.
        """
        values = f"unnest(CAST({parameter} AS {self.types[kind]}[])) WITH ORDINALITY AS listed (v, place)"
        return f"(SELECT v, min(place) - 1 AS i FROM {values} GROUP BY v)"

    def unnest_least(self, limit: int, cells: int) -> str | None:
        """SQL with a sorted array, which takes less processor time than a window over all rows; None if the table has
        so many cells that a person's array could be large."""
        return f"unnest((array_agg(DISTINCT w ORDER BY w))[1:{limit}])" if cells <= LARGEST_ARRAY else None

    def whole(self, a: str, b: str) -> str:
        return f"({a} / {b})"


def family_of(kind: str, sort: str, modifier: int, own: bool, computed: bool) -> Family:
    """The family of a PostgreSQL type: `sort` is its typtype, `modifier` the column's atttypmod.

    `own` says whether the type is built in. An enumeration is text, and a numeric without decimals is an integer. A
    `computed` column is not read, because it can fail for some rows while it is counted.
    """
    if computed:
        return "other"
    if sort == "e":
        return "text"
    if sort != "b" or not (own or kind == "citext"):
        return "other"
    if kind == "numeric" and modifier >= 4 and (modifier - 4) & 0x7FF == 0:
        return "integer"
    return FAMILIES.get(kind, "other")
