"""How an engine's SQL reads a source column as the declared type.

The families of physical types are few, and so are the ways to read one as another. What cannot be read is *outside*: it
gives NULL here, and `missing` tells it from a true NULL. One rule set for all engines:

- integers: whole numbers of any numeric type (12.0 is 12, -0.0 is 0, 12.5 is outside); text of ASCII digits with an
  optional sign and a fraction of zeros, spaces around it ignored ("1e3", "0x10", "1_000" are outside);
- dates: dates; time stamps without zone by their day; text YYYY-MM-DD, spaces around it ignored;
- booleans: booleans; what reads as the integer 0 or 1; text true, false, t, f in any case, spaces around it ignored;
- text: text as it is, character by character; integers, and floats that are whole numbers, as their digits;
- floats are whole numbers below 2^53 (of 32 bits: below 2^24). From there on several integers become the same float, so
  it is outside, and as an id names nobody;
- people: text, integers and floats of 64 bits; those of 32 bits are refused;
- NaN is a missing number, so it reads as NULL.

pandas makes floats of integers as soon as one is missing: whatever reads as integers reads as such floats too.

A space is U+0020 and nothing else. No value of a source may make an engine fail: what overflows is outside too.
"""

from __future__ import annotations

from typing import Literal

from countveil.errors import DataError
from countveil.schema import Column, Kind

Family = Literal["integer", "float", "single", "decimal", "text", "boolean", "date", "timestamp", "zoned", "other"]

FLOATS: tuple[Family, ...] = ("float", "single")
"""Of 64 and of 32 bits."""
UNITS: tuple[Family, ...] = ("integer", "text", "float")
"""What people are identified by."""
READABLE: dict[Kind, tuple[Family, ...]] = {
    "integer": ("integer", *FLOATS, "decimal", "text"),
    "text": ("text", "integer", *FLOATS),
    "boolean": ("boolean", "integer", *FLOATS, "decimal", "text"),
    "date": ("date", "timestamp", "text"),
}
EXACT = 2**53
"""Floats of 64 bits below it are told apart from their neighbours."""
PRECISE: dict[Family, int] = {"float": EXACT, "single": 2**24}


class Dialect:
    """Standard SQL; engines override what they spell differently."""

    integer_type = "BIGINT"
    text_type = "VARCHAR"
    integer_text = "^[+-]?[0-9]+([.]0*)?$"
    date_text = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

    def name(self, name: str) -> str:
        """A quoted name."""
        return '"' + name.replace('"', '""') + '"'

    def characters(self, raw: str) -> str:
        """A text column compared character by character, whatever collation its source gave it: otherwise one row could
        equal several declared values."""
        return raw

    def parameter(self, key: str) -> str:
        """A placeholder for a bound value."""
        return f"${key}"

    def matches(self, expression: str, pattern: str) -> str:
        raise NotImplementedError

    def try_cast(self, expression: str, kind: str) -> str:
        return f"TRY_CAST({expression} AS {kind})"

    def is_nan(self, expression: str) -> str:
        return f"isnan({expression})"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        """The value is in a bound list."""
        raise NotImplementedError

    def listed(self, parameter: str, kind: Kind) -> str:
        """A relation (v, i) of a bound list's values and their indexes from 0."""
        raise NotImplementedError

    def legible(self, text: str) -> list[str]:
        """What a text of the source must satisfy to be text at all; nothing, where it cannot be otherwise."""
        return []

    def digest(self, expression: str) -> str:
        """The MD5 of a text in hexadecimal: the keyed hash that chooses a person's cells, the same on every engine."""
        return f"md5({expression})"

    def day(self, expression: str) -> str:
        """The day of a time stamp, NULL for one that is too far away to have a date."""
        return self.try_cast(expression, "DATE")

    def trimmed(self, expression: str) -> str:
        """A text without the spaces around it; other white space stays."""
        return f"trim(BOTH ' ' FROM {expression})"

    def days(self, later: str, earlier: str) -> str:
        """The number of days between two dates."""
        return f"({later} - {earlier})"

    def whole(self, a: str, b: str) -> str:
        """The quotient of two non-negative integers, rounded down."""
        return f"({a} // {b})"

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, column: Column, family: Family, raw: str) -> str:
        """The declared value of a source column, NULL where it is missing or does not read as the declared type."""
        check_readable(column, family)
        return {
            "integer": self.read_integer,
            "text": self.read_text,
            "boolean": self.read_boolean,
            "date": self.read_date,
        }[column.kind](family, raw)

    def read_integer(self, family: Family, raw: str) -> str:
        if family == "integer":
            return raw
        if family == "text":
            trimmed = self.trimmed(raw)
            cast = self.try_cast(trimmed, self.integer_type)
            return f"CASE WHEN {self.matches(trimmed, self.integer_text)} THEN {cast} END"
        whole = f"CASE WHEN {raw} = trunc({raw}) THEN {self.try_cast(raw, self.integer_type)} END"
        return self.precise(family, raw, whole) if family in FLOATS else whole

    def precise(self, family: Family, raw: str, value: str) -> str:
        """The value of a float that is told apart from its neighbours; NULL for any other."""
        return f"CASE WHEN {raw} > -{PRECISE[family]} AND {raw} < {PRECISE[family]} THEN {value} END"

    def read_text(self, family: Family, raw: str) -> str:
        value = self.read_integer(family, raw) if family in FLOATS else raw
        return f"CAST({value} AS {self.text_type})"

    def read_person(self, family: Family, raw: str) -> str:
        """What names a person, NULL for nobody."""
        return self.read_integer(family, raw) if family == "float" else raw

    def read_boolean(self, family: Family, raw: str) -> str:
        if family == "boolean":
            return raw
        number = f"CASE {self.read_integer(family, raw)} WHEN 1 THEN TRUE WHEN 0 THEN FALSE END"
        if family != "text":
            return number
        word = f"lower({self.trimmed(raw)})"
        return f"CASE WHEN {word} IN ('true', 't') THEN TRUE WHEN {word} IN ('false', 'f') THEN FALSE ELSE {number} END"

    def read_date(self, family: Family, raw: str) -> str:
        if family == "date":
            return raw
        if family == "timestamp":
            return self.day(raw)
        trimmed = self.trimmed(raw)
        return f"CASE WHEN {self.matches(trimmed, self.date_text)} THEN {self.try_cast(trimmed, 'DATE')} END"

    def missing(self, family: Family, raw: str) -> str:
        """The value is NULL, or NaN."""
        return f"({raw} IS NULL OR {self.is_nan(raw)})" if family in FLOATS else f"{raw} IS NULL"


def check_readable(column: Column, family: Family) -> None:
    """Refuse a source whose physical type can never be read as the declared one; values are not looked at."""
    if family in READABLE[column.kind]:
        return
    advice = {
        "zoned": "times with a zone have no date of their own: store dates",
        "boolean": 'declare it as { type = "boolean" }',
    }.get(family, f"a {column.kind} column is read from {', '.join(READABLE[column.kind])}")
    raise DataError(f"column {column.name}: declared {column.kind}, but the source holds {family} values; {advice}")
