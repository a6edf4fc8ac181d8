"""Reads columns that are declared in the configuration as lists of values or as ranges. `derived` reads all others."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from countveil.errors import ConfigError, shorten
from countveil.query.public_tables import Files
from countveil.query.schema import INT64, KINDS, MAX_NAME, MAX_VALUES, Column, Value, date_from_text

KEYS = ("values", "min", "max", "step", "type", "labels", "guessed")


def parse_column(name: str, declared: object, key: str, files: Files | None = None) -> Column:
    """Read a column from the configuration: a list of values, or a table with the keys `values`, or `min` and `max`.

    >>> parse_column("age", {"min": 0, "max": 120, "step": 10}, "columns.age").keys
    13
    """
    check_name(name, key)
    table = {"values": declared} if isinstance(declared, list) else declared
    if not isinstance(table, Mapping):
        raise ConfigError(key, "give a list of values, or a table such as { min = 0, max = 120 }")
    check_keys(table, KEYS, key)
    kind = table.get("type")
    if kind is not None and kind not in KINDS:
        raise ConfigError(key, f"type is {shorten(kind)}; allowed are {', '.join(KINDS)}")
    guessed = table.get("guessed", False)
    if not isinstance(guessed, bool):
        raise ConfigError(key, "guessed must be true or false")
    if "values" in table:
        if set(table) & {"min", "max", "step"}:
            raise ConfigError(key, "give values, or min and max, not both")
        values = table["values"]
        if isinstance(values, str):
            values = _read_values(name, kind, values, key, files)
        column = _parse_values(name, kind, values, guessed, key)
        return replace(column, labels=parse_labels(table.get("labels"), column.values, key))
    if kind == "boolean" and not set(table) & {"min", "max", "step"}:
        column = Column(name, "boolean", (False, True), guessed=guessed)
        return replace(column, labels=parse_labels(table.get("labels"), column.values, key))
    if "labels" in table:
        raise ConfigError(key, "labels are for listed values; give values, not min and max")
    return _parse_range(name, kind, table, guessed, key)


def check_name(name: object, key: str) -> None:
    """Refuse a name that no column can have."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or not name.isprintable():
        raise ConfigError(key, f"column names have 1 to {MAX_NAME} printable characters")


def check_keys(table: Mapping[str, object], allowed: Sequence[str], key: str) -> None:
    """Refuse a table of the configuration that has keys other than the allowed ones."""
    unknown = sorted(str(word) for word in set(table) - set(allowed))
    if unknown:
        raise ConfigError(key, f"unknown key {shorten(unknown[0])}; allowed are {', '.join(allowed)}")


def parse_labels(labels: object, values: Sequence[Value], key: str) -> tuple[str, ...]:
    """Read the texts to show in place of values: a list in the order of the values, or a table from values to texts.

    >>> parse_labels({"1": "male", "2": "female"}, (1, 2), "labels")
    ('male', 'female')
    """
    if labels is None:
        return ()
    texts = list(labels) if isinstance(labels, list) else None
    if isinstance(labels, Mapping):
        written = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
        unknown = [name for name in labels if name not in written]
        if unknown:
            raise ConfigError(f"{key}.labels", f"{shorten(unknown[0])} is not a value of this column")
        texts = [labels.get(value, value) for value in written]
    if texts is None or len(texts) != len(values):
        raise ConfigError(f"{key}.labels", f"give a list of {len(values)} texts, or a table from values to texts")
    kind, known = _kind_of(values[0]), set(values)
    for value, text in zip(values, texts, strict=True):
        if not isinstance(text, str) or not text or not text.isprintable() or not is_encodable(text):
            raise ConfigError(f"{key}.labels", f"{shorten(text)} is not a label; labels are printable texts")
        if texts.count(text) > 1 or read_value(text, kind) in known - {value}:
            raise ConfigError(f"{key}.labels", f"{shorten(text)} stands for two values")
    return tuple(texts)


def _read_values(name: str, kind: object, path: str, key: str, files: Files | None) -> list[object]:
    """Read the values of a column from the public CSV file at `path`, converted to the declared type `kind`."""
    if files is None:
        raise ConfigError(key, "give a list with at least one value; only countveil.toml can name a CSV file")
    table = files(path, key)
    values: list[object] = []
    for line, text in table.column(name, key):
        value = read_value(text, kind)
        if value is None:
            raise ConfigError(key, f"{table.name}, line {line}: {shorten(text)} is not of type {kind}")
        values.append(value)
    return values


def read_value(text: str, kind: object) -> Value | None:
    """Convert text to a value of type `kind`; None if the text does not represent such a value."""
    if kind == "integer":
        return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None
    if kind == "boolean":
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
    return date_from_text(text) if kind == "date" else text


def _parse_values(name: str, kind: object, values: object, guessed: bool, key: str) -> Column:
    if not isinstance(values, list) or not values:
        raise ConfigError(key, "give values as a list with at least one value")
    if len(values) > MAX_VALUES:
        raise ConfigError(key, f"{len(values)} values; at most {MAX_VALUES} are allowed")
    first_kind = _kind_of(values[0])
    kind = kind or first_kind
    if kind not in KINDS:
        raise ConfigError(key, f"{shorten(values[0])} is not a text, integer, boolean or date")
    if kind == "date":
        values = [_date(v, key) for v in values]
    if any(_kind_of(v) != kind for v in values):
        odd = next(v for v in values if _kind_of(v) != kind)
        raise ConfigError(key, f"{shorten(odd)} is not of type {kind}; all values of a column have one type")
    if len(set(values)) != len(values):
        counted = Counter(values)
        twice = next(v for v in values if counted[v] > 1)
        raise ConfigError(key, f"{shorten(twice)} is listed twice")
    if any(isinstance(v, int) and not INT64[0] <= v <= INT64[1] for v in values):
        raise ConfigError(key, "integers lie in -2^63..2^63-1")
    if any(isinstance(v, str) and ("\x00" in v or not is_encodable(v)) for v in values):
        raise ConfigError(key, "text values are Unicode without NUL")
    return Column(name, kind, tuple(values), guessed=guessed)


def _parse_range(name: str, kind: object, table: Mapping[str, object], guessed: bool, key: str) -> Column:
    if "min" not in table or "max" not in table:
        raise ConfigError(key, "give values, or both min and max")
    ends = [table["min"], table["max"]]
    if kind == "date" or (kind is None and any(_kind_of(end) in ("date", "text") for end in ends)):
        low, high = (_date(end, key).toordinal() for end in ends)
        kind = "date"
    elif kind in (None, "integer") and all(_kind_of(end) == "integer" for end in ends):
        low, high = ends  # type: ignore[assignment]
        kind = "integer"
    else:
        raise ConfigError(key, "min and max are integers or dates")
    if low > high:
        raise ConfigError(key, f"min {shorten(ends[0])} is greater than max {shorten(ends[1])}")
    if kind == "integer" and not (INT64[0] < low <= high <= INT64[1] and high - low < 2**62):
        raise ConfigError(key, "min and max lie in -2^63+1..2^63-1, less than 2^62 apart")
    step = table.get("step", 1)
    if _kind_of(step) != "integer" or not 1 <= step <= high - low + 1:  # type: ignore[operator]
        raise ConfigError(key, f"step is {shorten(step)}; allowed is an integer from 1 to the length of the range")
    return Column(name, kind, low=low, high=high, step=step, guessed=guessed)  # type: ignore[arg-type]


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return "date"
    return "text" if isinstance(value, str) else "of another type"


def _date(value: object, key: str) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    date = date_from_text(value) if isinstance(value, str) else None
    if date is None:
        raise ConfigError(key, f"{shorten(value)} is not a date; write 2026-01-31")
    return date


def is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
