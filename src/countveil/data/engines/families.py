"""The families of physical types (the types of a source's columns), and the declared kinds that each can be read as."""

from __future__ import annotations

from typing import Literal

from countveil.errors import DataError
from countveil.query.schema import Column, Kind

Family = Literal["integer", "float", "single", "decimal", "text", "boolean", "date", "timestamp", "zoned", "other"]

FLOATS: tuple[Family, ...] = ("float", "single")
"""Floats of 64 bits, and narrower ones, which are read as the 64-bit floats that they are equal to."""
UNITS: tuple[Family, ...] = ("integer", "text", "float")
"""Families of columns whose values can identify people."""
READABLE: dict[Kind, tuple[Family, ...]] = {
    "integer": ("integer", *FLOATS, "decimal", "text"),
    "text": ("text", "integer", *FLOATS),
    "boolean": ("boolean", "integer", *FLOATS, "decimal", "text"),
    "date": ("date", "timestamp", "text"),
    "number": (*FLOATS, "decimal", "integer", "text"),
    "instant": ("zoned",),
}
EXACT = 2**53
"""Below this bound, 64-bit floats represent every integer exactly."""
OUTSIDE = "\ufffd"
"""The text that replaces values of a frame that are outside every domain: U+FFFD, as for bytes that are not text."""


def check_readable(column: Column, family: Family) -> None:
    """Refuse a column whose type in the source, a type of this family, cannot be read as the declared kind.

    This depends on the types alone, not on any value.
    """
    if family in READABLE[column.kind]:
        return
    advice = {
        "zoned": "the date of a time with a zone depends on the zone: "
        'group it with by and zone, such as zone = "Europe/Berlin", or store dates',
        "boolean": 'declare it as { type = "boolean" }',
    }.get(family, f"a {column.kind} column is read from {', '.join(READABLE[column.kind])}")
    if column.kind == "instant":
        advice = "periods of a zone need time stamps with a zone; text with an offset is read in files and frames"
    raise DataError(f"column {column.name}: declared {column.kind}, but the source holds {family} values; {advice}")
