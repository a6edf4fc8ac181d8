"""The public schema of a dataset: which columns exist and which values they may have.

The domain of a column, the set of its possible values, is public: it is declared, never read from the data. A domain is
finite. It is either *listed* (text, integers, booleans or dates, in the declared order) or a *range* of integers or
dates. The package represents each value by an integer, its **point**: the index of a listed value, the integer itself,
or the day number of a date. A value in the data has a point, or is NULL, or is *outside* (not in the domain, or not of
the declared type).

Grouping by a column splits its domain into **bins**: one for every listed value, or one for every `step` consecutive
points of a range. The cells of a table are the product of the bins of its group columns, including cells without rows;
if there is a public list of the combinations that can exist, only those.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal

from countveil.errors import ConfigError, shorten
from countveil.query.points import Points, difference, union_all

Kind = Literal["text", "integer", "boolean", "date", "number", "instant"]
"""The types of values. The types number (fractions) and instant exist only in undeclared sources of derived columns."""
Value = str | int | bool | datetime.date
Neighbours = Literal["add-remove", "replace"]

KINDS: tuple[Kind, ...] = ("text", "integer", "boolean", "date")
MAX_VALUES = 100_000
MAX_NAME = 200
INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Column:
    """A column: `values` if its domain is listed, otherwise the range low..high, grouped by `step`.

    A **derived** column is a public function of another column, its `source`. Its `values` are labels, and `blocks[i]`
    is the set of the source's points with the label `values[i]`. A point of the source in no block counts as outside;
    NULL stays NULL. Conditions and groups are stated in points of the source, so that equal questions are recognised
    however they are written.

    A source that is not `declared` can only be asked about through the columns derived from it. If its values are
    fractions or instants, `cuts` divides them into points: point 0 is everything below `cuts[0]`, and point i is
    everything from `cuts[i - 1]` (included) to `cuts[i]` (excluded).
    """

    name: str
    kind: Kind
    values: tuple[Value, ...] = field(default=(), hash=False)  # hashing thousands of values is slow
    low: int = 0
    high: int = 0
    step: int = 1
    guessed: bool = False
    labels: tuple[str, ...] = field(default=(), hash=False)
    """Texts that stand for the listed values in answers and can be written in conditions."""
    source: Column | None = field(default=None, hash=False)
    blocks: tuple[Points, ...] = field(default=(), hash=False)
    cuts: tuple[Fraction, ...] = field(default=(), hash=False)
    declared: bool = True

    @property
    def is_listed(self) -> bool:
        return bool(self.values)

    @property
    def root(self) -> Column:
        """The column of the data that this column's values come from: the source of a derived column, or the column
        itself."""
        return self if self.source is None else self.source

    @property
    def first(self) -> int:
        """The least point (integer that stands for a value) of the domain."""
        return 0 if self.is_listed else self.low

    @property
    def last(self) -> int:
        """The greatest point (integer that stands for a value) of the domain."""
        return len(self.values) - 1 if self.is_listed else self.high

    @cached_property
    def inside(self) -> Points:
        """The source's points that have a value in this column; for a column that is not derived, its whole domain."""
        if self.source is None:
            return ((self.first, self.last),)
        return union_all(piece for block in self.blocks for piece in block)

    def block(self, i: int) -> Points:
        """The points of the root in bin i."""
        if self.source is not None:
            return self.blocks[i]
        low = self.first + i * self.step
        return ((low, min(low + self.step - 1, self.last)),)

    @cached_property
    def runs(self) -> list[tuple[int, int, int]]:
        """Sorted intervals (low, high, bin) of points of the root, each with the number of its bin.

        Neighbouring intervals have different bins. The list is long if the source has many values.
        """
        return sorted((low, high, i) for i in range(self.keys) for low, high in self.block(i))

    @cached_property
    def block_sizes(self) -> list[int]:
        """How many points of the source have each label."""
        return [sum(high - low + 1 for low, high in block) for block in self.blocks]

    @cached_property
    def index(self) -> Mapping[Value, int]:
        """The point (integer) of each listed value and of each label; a text that is both stands for the value."""
        labels: dict[Value, int] = {label: i for i, label in enumerate(self.labels)}
        return labels | {value: i for i, value in enumerate(self.values)}

    def value(self, point: int) -> Value:
        """The value that a point of the domain stands for."""
        if self.is_listed:
            return self.values[point]
        return datetime.date.fromordinal(point) if self.kind == "date" else point

    @property
    def keys(self) -> int:
        """How many bins the column has when a table is grouped by it."""
        return (self.last - self.first) // self.step + 1

    @property
    def label_kind(self) -> Kind:
        """The type of the labels in an answer."""
        return "text" if self.labels or self.step > 1 else self.kind

    def key_labels(self) -> list[Value]:
        """The labels of the bins in an answer: the value, or the first and last value where a bin has several.

        >>> Column("age", "integer", low=0, high=25, step=10).key_labels()
        ['0-9', '10-19', '20-25']
        """
        return [self.key_label(i) for i in range(self.keys)]

    def key_label(self, i: int) -> Value:
        """The label of bin i in an answer."""
        if self.labels:
            return self.labels[i]
        start = self.first + i * self.step
        return self.value(start) if self.step == 1 else self.write_range(start, min(start + self.step - 1, self.last))

    @property
    def is_numeric(self) -> bool:
        """Whether the values in the data, before any bands or bins, are numbers."""
        return self.root.kind in ("integer", "number")

    def bin_ends(self) -> list[tuple[Fraction | None, Fraction | None]] | None:
        """The least and greatest value of each bin (dates as day numbers); an open end is None.

        The result is None if the bins have no natural order.
        """
        root = self.root
        pieces = [(low, high) for low, high, _ in self.runs]
        in_order = [bin for *_, bin in self.runs] == list(range(self.keys))
        if not in_order or (root.is_listed and root.kind not in ("integer", "date")):
            return None
        if root.cuts:
            cuts = [None, *root.cuts, None]
            return [(cuts[low], cuts[high + 1]) for low, high in pieces]
        numbers = [v.toordinal() if isinstance(v, datetime.date) else int(v) for v in root.values]
        if numbers != sorted(numbers):
            return None
        ends = [(numbers[low], numbers[high]) if numbers else (low, high) for low, high in pieces]
        outer = () if root.declared else (root.first, root.last)
        return [
            (None if low in outer else Fraction(low), None if high in outer else Fraction(high)) for low, high in ends
        ]

    def write_range(self, start: int, end: int) -> str:
        """The label of the points start..end of a range."""
        if start == end:
            return str(self.value(start))
        dash = "-" if self.kind == "integer" and start >= 0 else ".."
        return f"{self.value(start)}{dash}{self.value(end)}"

    def pull_back(self, points: Points) -> Points:
        """The source's points whose value in this derived column is in a given set of the derived column's points.

        If the given set contains NULL, so does the result.
        """
        if self.source is None:
            return points
        null = [(self.source.first - 1, self.source.first - 1)] if points and points[0][0] < 0 else []
        chosen = (block for low, high in points for block in self.blocks[max(low, 0) : high + 1])
        return union_all([*null, *(piece for block in chosen for piece in block)])

    def describe(self) -> dict[str, object]:
        """The column as plain JSON values, as the public schema shows it."""
        shape = self._describe_domain()
        return shape | {"labels": list(self.labels)} if self.labels else shape

    def _describe_domain(self) -> dict[str, object]:
        shape: dict[str, object] = {"name": self.name, "type": self.kind}
        if self.cuts or (self.is_listed and not self.declared):
            return shape
        if self.is_listed:
            return shape | {"values": [v.isoformat() if isinstance(v, datetime.date) else v for v in self.values]}
        shape |= {"min": str(self.value(self.low)), "max": str(self.value(self.high))}
        return shape | {"step": self.step}

    def describe_points(self, points: Points) -> dict[str, object]:
        """A set of points as JSON values: the first and last value of each interval, in the declared order of listed
        values.

        The point numbers of an undeclared source change when another column is derived from it. Sets of its points
        are therefore described by the cuts at their ends, or by every value.
        """
        inside = difference(points, ((self.first - 1, self.first - 1),))
        values: list[list[str]]
        if self.cuts:
            ends = ["", *map(str, self.cuts), ""]
            values = [[ends[low], ends[high + 1]] for low, high in inside]
        elif self.is_listed and not self.declared:
            values = sorted([str(self.value(i))] for low, high in inside for i in range(low, high + 1))
        else:
            values = [[str(self.value(low)), str(self.value(high))] for low, high in inside]
        return {"null": inside != points, "values": values}

    @cached_property
    def sha256(self) -> str:
        """The hash of the column's domain. The hash of a question contains the hashes of all columns that it uses."""
        written = json.dumps(self._describe_domain(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(written.encode()).hexdigest()


@dataclass(frozen=True)
class PossibleCells:
    """A public list of the combinations that can exist: in each row the index of a label of every column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[int, ...], ...] = field(hash=False)


@dataclass(frozen=True)
class Schema:
    """The public part of a dataset: its columns, what identifies a person, and how much one person can change a table.

    `unit` is the column that identifies a person, or "row" when every row is one person. A person counts in at most
    `cells_per_person` cells of a table, with at most `rows_per_person` rows in each. `possible` is the public
    list of the combinations that can exist, if there is one. It restricts tables that are grouped by its columns or by
    other columns of the same sources.
    """

    name: str
    columns: tuple[Column, ...]
    unit: str = "row"
    rows_per_person: int = 1
    cells_per_person: int = 1
    neighbours: Neighbours = "add-remove"
    max_cells: int = 2_000_000
    possible: PossibleCells | None = None
    by_name: Mapping[str, Column] = field(init=False, compare=False, repr=False, default_factory=dict)
    by_plain_name: Mapping[str, Column] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        folded: dict[str, str] = {}
        for column in self.columns:
            folded_name = column.name.casefold()
            if folded_name in folded:
                names = f"{shorten(folded[folded_name])} and {shorten(column.name)}"
                raise ConfigError(f"dataset.{self.name}.columns", f"{names} are the same, or differ only by case")
            folded[folded_name] = column.name
        plain = {column.name.lower(): column for column in self.columns if column.name.isascii()}
        object.__setattr__(self, "by_name", {column.name: column for column in self.columns})
        object.__setattr__(self, "by_plain_name", plain)

    @property
    def unit_is_row(self) -> bool:
        return self.unit == "row"

    @cached_property
    def sources(self) -> tuple[Column, ...]:
        """The columns that are read from the data: declared ones in their order, then undeclared sources of derived
        columns."""
        plain = [column for column in self.columns if column.source is None]
        names = {column.name for column in plain}
        hidden = {c.root.name: c.root for c in self.columns if not c.root.declared}
        assert names.isdisjoint(hidden)
        return (*plain, *hidden.values())

    @cached_property
    def columns_of(self) -> Mapping[str, tuple[Column, ...]]:
        """The declared columns by the name of their source: the source itself, if it is declared, then the columns that
        are derived from it."""
        known: dict[str, list[Column]] = {source.name: [] for source in self.sources}
        for column in sorted(self.columns, key=lambda column: column.source is not None):
            known[column.root.name].append(column)
        return {name: tuple(columns) for name, columns in known.items()}

    def column(self, name: str, quoted: bool = True) -> Column | None:
        """The column of this name, or None. A name without quotes may differ in the case of its ASCII letters."""
        column = self.by_name.get(name)
        return column if column is not None or quoted else self.by_plain_name.get(name.lower())


def date_from_text(text: str) -> datetime.date | None:
    """The date that is written as YYYY-MM-DD; None for any other text.

    >>> date_from_text("2026-01-31"), date_from_text("2026-1-31"), date_from_text("2026-02-30")
    (datetime.date(2026, 1, 31), None, None)
    """
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None
