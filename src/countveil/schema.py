"""The public schema of a dataset: which columns exist and which values they may have.

A domain is public: it is declared, never read from the data. Every column has finitely many values, either *listed*
(text, integers, booleans, dates, in the order declared) or a *range* of integers or dates. Inside the package a value
is its **point**: the index of a listed value, the integer itself, or the day number of a date. A value of the source is
then one of three things: a point, NULL, or *outside* (not in the domain, or not of the declared type).

A group column splits its domain into **keys**: one for every listed value, or one for every `step` consecutive points
of a range. The cells of a table are the product of the keys of its group columns, zeros included.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from countveil.errors import ConfigError, shortened

Kind = Literal["text", "integer", "boolean", "date"]
Value = str | int | bool | datetime.date
Neighbours = Literal["add-remove", "replace"]

KINDS: tuple[Kind, ...] = ("text", "integer", "boolean", "date")
MAX_VALUES = 100_000
MAX_NAME = 200
INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Column:
    """One declared column; `values` for a listed domain, otherwise the range low..high in steps for grouping."""

    name: str
    kind: Kind
    values: tuple[Value, ...] = field(default=(), hash=False)  # thousands of values: compared, but not hashed
    low: int = 0
    high: int = 0
    step: int = 1
    guessed: bool = False

    @property
    def listed(self) -> bool:
        return bool(self.values)

    @property
    def first(self) -> int:
        """The least point of the domain."""
        return 0 if self.listed else self.low

    @property
    def last(self) -> int:
        """The greatest point of the domain."""
        return len(self.values) - 1 if self.listed else self.high

    @cached_property
    def index(self) -> Mapping[Value, int]:
        """The point of every listed value."""
        return {value: i for i, value in enumerate(self.values)}

    def value(self, point: int) -> Value:
        """The value at a point of the domain."""
        if self.listed:
            return self.values[point]
        return datetime.date.fromordinal(point) if self.kind == "date" else point

    @property
    def keys(self) -> int:
        """How many cells the column makes when it groups."""
        return (self.last - self.first) // self.step + 1

    def key_labels(self) -> list[Value]:
        """What the answer shows for each key: the value, or "first..last" of a bin of several.

        >>> Column("age", "integer", low=0, high=25, step=10).key_labels()
        ['0-9', '10-19', '20-25']
        """
        if self.step == 1:
            return [self.value(point) for point in range(self.first, self.last + 1)]
        return [self._bin(start) for start in range(self.first, self.last + 1, self.step)]

    def _bin(self, start: int) -> str:
        end = min(start + self.step - 1, self.last)
        if start == end:
            return str(self.value(start))
        dash = "-" if self.kind == "integer" and start >= 0 else ".."
        return f"{self.value(start)}{dash}{self.value(end)}"

    def described(self) -> dict[str, object]:
        """The domain as plain JSON values: what the public schema shows."""
        shape: dict[str, object] = {"name": self.name, "type": self.kind}
        if self.listed:
            return shape | {"values": [v.isoformat() if isinstance(v, datetime.date) else v for v in self.values]}
        shape |= {"min": str(self.value(self.low)), "max": str(self.value(self.high))}
        return shape | {"step": self.step}

    @cached_property
    def sha256(self) -> str:
        """The hash of the domain: the part of a question's hash that says what the column means."""
        written = json.dumps(self.described(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(written.encode()).hexdigest()


@dataclass(frozen=True)
class Schema:
    """The public part of a dataset: its columns, who a person is, and how much of a table one person can touch.

    `unit` is the column that identifies a person, or "row" when every row is one person. A person counts in at most
    `cells_per_person` cells of a table, with at most `rows_per_person` rows in each.
    """

    name: str
    columns: tuple[Column, ...]
    unit: str = "row"
    rows_per_person: int = 1
    cells_per_person: int = 1
    neighbours: Neighbours = "add-remove"
    max_cells: int = 2_000_000
    by_name: Mapping[str, Column] = field(init=False, compare=False, repr=False, default_factory=dict)
    by_plain_name: Mapping[str, Column] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        folded: dict[str, str] = {}
        for column in self.columns:
            folded_name = column.name.casefold()
            if folded_name in folded:
                names = f"{shortened(folded[folded_name])} and {shortened(column.name)}"
                raise ConfigError(f"dataset.{self.name}.columns", f"{names} are the same, or differ only by case")
            folded[folded_name] = column.name
        plain = {column.name.lower(): column for column in self.columns if column.name.isascii()}
        object.__setattr__(self, "by_name", {column.name: column for column in self.columns})
        object.__setattr__(self, "by_plain_name", plain)

    @property
    def unit_is_row(self) -> bool:
        return self.unit == "row"

    def column(self, name: str, quoted: bool = True) -> Column | None:
        """The column of this name; an unquoted name may differ by the case of its ASCII letters."""
        found = self.by_name.get(name)
        return found if found is not None or quoted else self.by_plain_name.get(name.lower())


def parse_column(name: str, declared: object, key: str) -> Column:
    """A column from its entry in the configuration: a list of values, or a table with `values` or `min` and `max`.

    >>> parse_column("age", {"min": 0, "max": 120, "step": 10}, "columns.age").keys
    13
    """
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or not name.isprintable():
        raise ConfigError(key, f"column names have 1 to {MAX_NAME} printable characters")
    table = {"values": declared} if isinstance(declared, list) else declared
    if not isinstance(table, Mapping):
        raise ConfigError(key, "give a list of values, or a table such as { min = 0, max = 120 }")
    unknown = sorted(str(word) for word in set(table) - {"values", "min", "max", "step", "type", "guessed"})
    if unknown:
        raise ConfigError(
            key, f"unknown key {shortened(unknown[0])}; allowed are values, min, max, step, type, guessed"
        )
    kind = table.get("type")
    if kind is not None and kind not in KINDS:
        raise ConfigError(key, f"type is {shortened(kind)}; allowed are {', '.join(KINDS)}")
    guessed = table.get("guessed", False)
    if not isinstance(guessed, bool):
        raise ConfigError(key, "guessed is true or false")
    if "values" in table:
        if set(table) & {"min", "max", "step"}:
            raise ConfigError(key, "give values, or min and max, not both")
        return _listed(name, kind, table["values"], guessed, key)
    if kind == "boolean" and not set(table) & {"min", "max", "step"}:
        return Column(name, "boolean", (False, True), guessed=guessed)
    return _ranged(name, kind, table, guessed, key)


def _listed(name: str, kind: object, values: object, guessed: bool, key: str) -> Column:
    if not isinstance(values, list) or not values:
        raise ConfigError(key, "values is a list with at least one value")
    if len(values) > MAX_VALUES:
        raise ConfigError(key, f"{len(values)} values; at most {MAX_VALUES} are allowed")
    found = _kind_of(values[0])
    kind = kind or found
    if kind not in KINDS:
        raise ConfigError(key, f"{shortened(values[0])} is no text, integer, boolean or date")
    if kind == "date":
        values = [_date(v, key) for v in values]
    if any(_kind_of(v) != kind for v in values):
        odd = next(v for v in values if _kind_of(v) != kind)
        raise ConfigError(key, f"{shortened(odd)} is not of type {kind}; all values of a column have one type")
    if len(set(values)) != len(values):
        counted = Counter(values)
        twice = next(v for v in values if counted[v] > 1)
        raise ConfigError(key, f"{shortened(twice)} is listed twice")
    if any(isinstance(v, int) and not INT64[0] <= v <= INT64[1] for v in values):
        raise ConfigError(key, "integers lie in -2^63..2^63-1")
    if any(isinstance(v, str) and ("\x00" in v or not _encodable(v)) for v in values):
        raise ConfigError(key, "text values are Unicode without NUL")
    return Column(name, kind, tuple(values), guessed=guessed)


def _ranged(name: str, kind: object, table: Mapping[str, object], guessed: bool, key: str) -> Column:
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
        raise ConfigError(key, f"min {shortened(ends[0])} is greater than max {shortened(ends[1])}")
    if kind == "integer" and not (INT64[0] < low <= high <= INT64[1] and high - low < 2**62):
        raise ConfigError(key, "min and max lie in -2^63+1..2^63-1, less than 2^62 apart")
    step = table.get("step", 1)
    if _kind_of(step) != "integer" or not 1 <= step <= high - low + 1:  # type: ignore[operator]
        raise ConfigError(key, f"step is {shortened(step)}; allowed is an integer from 1 to the length of the range")
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
    found = date_from_text(value) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(key, f"{shortened(value)} is not a date; write 2026-01-31")
    return found


def date_from_text(text: str) -> datetime.date | None:
    """The date written as YYYY-MM-DD, and no other way.

    >>> date_from_text("2026-01-31"), date_from_text("2026-1-31"), date_from_text("2026-02-30")
    (datetime.date(2026, 1, 31), None, None)
    """
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
