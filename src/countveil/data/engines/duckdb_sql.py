"""DuckDB's dialect of SQL, and how its types are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from countveil.data.engines.families import Family
from countveil.data.engines.sql import Dialect
from countveil.data.engines.steps import INSTANT
from countveil.query.schema import Kind

NANOSECONDS = "TIMESTAMPTZ_NS"
"""The type of times with a zone in nanoseconds, which DuckDB does not compare with other times."""
LOCAL_NANOSECONDS = "TIMESTAMP_NS"
"""The type of times without zone in nanoseconds. DuckDB's cast to a date rounds the last ones of a day up."""
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"], "integer"),
    **dict.fromkeys(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"], "integer"),
    "UHUGEINT": "decimal",  # a comparison with a BIGINT overflows
    "DOUBLE": "float",
    "FLOAT": "single",
    **dict.fromkeys(["VARCHAR", "UUID", '"NULL"'], "text"),
    **dict.fromkeys(["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", LOCAL_NANOSECONDS], "timestamp"),
    **dict.fromkeys(["TIMESTAMP WITH TIME ZONE", NANOSECONDS], "zoned"),
    "BOOLEAN": "boolean",
    "DATE": "date",
}
SCALE = re.compile(r"^DECIMAL\([0-9]+,([0-9]+)\)$")
FEW = 4
"""The largest limit for DuckDB's aggregate min(w, limit), which reserves room for so many words of every person."""


class DuckDBDialect(Dialect):
    """DuckDB's dialect of SQL."""

    ignores_repeats = False

    def characters(self, raw: str) -> str:
        return f'(CAST({raw} AS VARCHAR) COLLATE "binary")'

    def matches(self, expression: str, pattern: str) -> str:
        return f"regexp_matches({expression}, '{pattern}')"

    def instant(self, seconds: str) -> str:
        return f"make_timestamptz(CAST({seconds} AS BIGINT) * 1000000)"

    def search(self, relation: str, value: str, cuts: Sequence[str], bins: str, place: str) -> tuple[str, str]:
        """The number of cuts that are not above the value, by one subquery for each bit of it.

        A tree of nested CASE would cost a little for every cut and every 2,048 rows.
        """
        columns = f"{value} AS {place}v, [{', '.join(cuts)}] AS {place}c, 0 AS {place}"
        relation = f"(SELECT *, {columns} FROM {relation})"
        for bit in reversed(range(len(cuts).bit_length())):
            next = f"{place} + {1 << bit}"  # beyond the end of the list is NULL
            step = f"CASE WHEN {place}v >= list_extract({place}c, {next}) THEN {next} ELSE {place} END"
            relation = f"(SELECT * REPLACE ({step} AS {place}) FROM {relation})"
        return relation, f"list_extract([{bins}], {place} + 1)"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        return f"{expression} IN (SELECT unnest(CAST({parameter} AS {self.types[kind]}[])))"

    def hash(self, person: str, cell: str, salt: str) -> str:
        """DuckDB's hash, applied twice and shifted to a BIGINT.

        Applied once to several arguments, it combines the last one by XOR only. Hashes of the same person under two
        salts would then always differ by the same value.
        """
        return f"CAST(hash(hash({person}, {cell}, CAST({salt} AS BIGINT))) >> 1 AS BIGINT)"

    def unnest_least(self, limit: int, cells: int) -> str:
        """For few words the aggregate min(w, limit) is faster than a list, but it reserves room for `limit` words of
        everybody. A window over all rows takes twice the time and three times the memory of a list."""
        return f"unnest(min(w, {limit}))" if limit <= FEW else f"unnest(list_sort(list(w), 'ASC')[:{limit}])"

    def read_instant(self, name: str, kind: str | None) -> str:
        """A column of text or nanoseconds as times with a zone in microseconds, rounded down. Any other text, and
        infinity in nanoseconds, become the first instant of the year 1, which is before every period."""
        if kind == NANOSECONDS:
            read = f"make_timestamptz({self.microseconds(name)})"
        else:
            text = self.trim(self.characters(name))
            read = f"CASE WHEN {self.matches(text, INSTANT)} THEN TRY_CAST({text} AS TIMESTAMPTZ) END"
        return f"CASE WHEN {name} IS NOT NULL THEN coalesce({read}, {self.instant('-62135596800')}) END"

    def read_local(self, name: str) -> str:
        """A column of nanoseconds without zone as times in microseconds, rounded down; infinity stays infinity."""
        read = f"make_timestamp({self.microseconds(name)})"
        return f"CASE WHEN {name} IS NOT NULL THEN coalesce({read}, TIMESTAMP 'infinity') END"

    def microseconds(self, name: str) -> str:
        """The microseconds since 1970 of a time in nanoseconds, rounded down as no cast does; NULL for infinity."""
        nanos = f"epoch_ns({name})"
        return f"{nanos} // 1000 - CAST({nanos} % 1000 < 0 AS BIGINT)"


def family_of(kind: str) -> Family:
    if kind.startswith("DECIMAL"):
        return "integer" if kind.endswith(",0)") else "decimal"
    return "text" if kind.startswith("ENUM") else FAMILIES.get(kind, "other")


def scales_of(kinds: Mapping[str, str]) -> dict[str, int]:
    """For each decimal column, its number of digits after the point."""
    return {name: int(scale[1]) for name, kind in kinds.items() if (scale := SCALE.search(kind))}
