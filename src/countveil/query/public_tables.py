"""Public CSV files that a configuration refers to: lists of values, maps from values to labels, possible cells.

A file is UTF-8 text in the format of RFC 4180 with a header. A field is quoted as a whole or has no quotes. A file is
refused, with a line number, if it breaks these rules, repeats a record, or has a NUL character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from countveil.errors import ConfigError, shorten

MAX_BYTES = 16 << 20
MAX_RECORDS = 1_000_000
_FIELD = re.compile(r'(?:"((?:[^"]|"")*+)"|([^",\r\n]*+))(,|\r?\n|\Z)')

Record = tuple[int, tuple[str, ...]]
"""A record of a CSV file: the number of its line, counted from 1, and its fields."""


@dataclass(frozen=True)
class PublicTable:
    """A public CSV file: its name, the names of its columns, and its records."""

    name: str
    header: tuple[str, ...]
    records: tuple[Record, ...]

    def column(self, name: str, key: str) -> list[tuple[int, str]]:
        """The distinct values of a column, each with the first line on which it occurs."""
        place = self._place(name, key)
        values: dict[str, int] = {}
        for line, fields in self.records:
            if not fields[place]:
                raise ConfigError(key, f"{self.name}, line {line}: no value for {shorten(name)}")
            values.setdefault(fields[place], line)
        return [(line, value) for value, line in values.items()]

    def pairs(self, source: str, target: str, key: str) -> list[tuple[int, str, str]]:
        """The map from column `source` to column `target`, as (line, source value, target value) for each distinct
        source value.

        A source value with two different targets is refused.
        """
        places = self._place(source, key), self._place(target, key)
        known: dict[str, tuple[int, str]] = {}
        for line, fields in self.records:
            value, label = (fields[place] for place in places)
            for name, text in ((source, value), (target, label)):
                if not text:
                    raise ConfigError(key, f"{self.name}, line {line}: no value for {shorten(name)}")
            first, other = known.setdefault(value, (line, label))
            if other != label:
                raise ConfigError(
                    key,
                    f"{self.name}, line {line}: {shorten(value)} belongs to {shorten(label)} here, and to "
                    f"{shorten(other)} in line {first}; a value has one {shorten(target)}",
                )
        return [(line, value, label) for value, (line, label) in known.items()]

    def _place(self, name: str, key: str) -> int:
        if name not in self.header:
            names = shorten(", ".join(self.header), 100)
            raise ConfigError(key, f"{self.name} has no column {shorten(name)}; its header is {names}")
        return self.header.index(name)


Files = Callable[[str, str], PublicTable]
"""A function that reads a public file, given its path and the key of the configuration that names it (for errors)."""


def read_public_table(content: bytes, name: str, key: str) -> PublicTable:
    """Read the content of a public CSV file; every refusal names the line."""

    def refuse(line: int, reason: str) -> ConfigError:
        return ConfigError(key, f"{name}, line {line}: {reason}")

    if len(content) > MAX_BYTES:
        raise ConfigError(key, f"{name} has {len(content):,} bytes; at most {MAX_BYTES:,} are allowed")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(content.count(b"\n", 0, error.start) + 1, "is not UTF-8 text") from None
    if "\0" in text:
        raise refuse(text.count("\n", 0, text.index("\0")) + 1, "a value has NUL characters")
    records: list[Record] = []
    seen: dict[tuple[str, ...], int] = {}
    fields: list[str] = []
    at, line, start = 0, 1, 1
    while at < len(text) or fields:
        field = _FIELD.match(text, at)
        if field is None:
            words = "a quote or carriage return in a field that is not quoted as a whole"
            raise refuse(line, f"{words}, or a quote that is never closed")
        quoted, plain, end = field.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        at, line = field.end(), line + field.group().count("\n")
        if end == "," and at < len(text):
            continue
        if end == ",":
            fields.append("")
        record, fields = tuple(fields), []
        if records and len(record) != len(records[0][1]):
            raise refuse(start, f"{len(record)} fields; the header has {len(records[0][1])}")
        if record in seen:
            raise refuse(start, f"the same record as line {seen[record]}")
        if len(records) > MAX_RECORDS:
            raise refuse(start, f"more than {MAX_RECORDS:,} records")
        seen[record] = start
        records.append((start, record))
        start = line
    if len(records) < 2:
        raise ConfigError(key, f"{name} needs a header and at least one record")
    header = records[0][1]
    if len(set(header)) != len(header) or not all(header):
        raise refuse(1, "the header needs a different name for every column")
    return PublicTable(name, header, tuple(records[1:]))
