"""Derived columns: columns computed from a source column by a public rule, such as bands, months, bins or a map.

    age_group = { from = "age", bands = [0, 15, 25, 45, 65] }         # 0-14, 15-24, ..., 65+
    month     = { from = "date", by = "month", min = "2024-01", max = "2026-12" }
    income    = { from = "income_raw", bins = ["0", "10000", "50000"] }
    county    = { from = "municipality", map = "geography.csv" }      # the columns municipality and county of the file

Each becomes a `Column` that stores, for each of its labels, the set of source values with that label. `from` names a
declared column or a column of the data that is not declared. For an undeclared source a `Column` is made here that
distinguishes just as many values as its derived columns need.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from countveil.errors import ConfigError, shorten
from countveil.query import calendar
from countveil.query.declarations import check_keys, check_name, parse_column, parse_labels, read_value
from countveil.query.points import Points, intersection, interval, set_of, union_all
from countveil.query.public_tables import Files
from countveil.query.schema import MAX_VALUES, Column, Kind, Value

MAX_CUTS = 4_000
"""The most cuts (edges of bands, bins or periods) of one source: an engine compares each value with the cuts."""
MAX_CHAIN = 20
KEYS = {
    "bands": ("from", "bands", "below", "max", "labels", "guessed"),
    "bins": ("from", "bins", "below", "max", "labels", "guessed"),
    "by": ("from", "by", "min", "max", "zone", "labels", "guessed"),
    "map": ("from", "map", "guessed"),
}
EDGE = re.compile(r"[+-]?[0-9]{1,18}([.][0-9]{1,18})?")
WHOLE = (-(2**61), 2**61 - 1)
"""The range of an undeclared source of whole numbers. Numbers beyond this range count as outside the domain."""


@dataclass(frozen=True)
class Steps:
    """A step function from values to labels: all values between two neighbouring cuts have the same label.

    Values from `cuts[i - 1]` (included) to `cuts[i]` (excluded) have the label `labels[groups[i]]`, or no label if
    `groups[i]` is None. Cuts are numbers, days, or seconds since 1970.
    """

    kind: Kind
    cuts: tuple[Fraction, ...]
    groups: tuple[int | None, ...]
    labels: tuple[str, ...]
    has_gaps: bool = False
    """Whether labels without a value are left out, such as weekdays if only a few days are declared."""


@dataclass(frozen=True)
class Codes:
    """A map from values to labels, read from a CSV file; each entry of `pairs` is (line of the file, value, label)."""

    file: str
    pairs: tuple[tuple[int, str, str], ...]


Rule = Steps | Codes


def parse_columns(declared: Mapping[str, object], key: str, files: Files | None = None) -> tuple[Column, ...]:
    """Read all columns of a dataset from the configuration, in the declared order.

    >>> ages = {"age": {"min": 0, "max": 99}, "group": {"from": "age", "bands": [0, 18, 65]}}
    >>> [column.key_labels()[-1] for column in parse_columns(ages, "columns")]
    [99, '65+']
    """
    return _Declarations(declared, key, files).parse()


class _Declarations:
    """Reads the columns of one dataset; each derived column is read after the column that it is derived from."""

    def __init__(self, declared: Mapping[str, object], key: str, files: Files | None) -> None:
        self.declared, self.key, self.files = declared, key, files
        self.derived: dict[str, Mapping[str, object]] = {
            name: entry for name, entry in declared.items() if isinstance(entry, Mapping) and "from" in entry
        }
        self.rules: dict[str, Rule] = {}
        self.columns: dict[str, Column] = {}

    def parse(self) -> tuple[Column, ...]:
        for name, entry in self.declared.items():
            if name not in self.derived:
                self.columns[name] = parse_column(name, entry, self.at(name), self.files)
        for name in self.derived:
            check_name(name, self.at(name))
            self.check_chain(name)
        undeclared: dict[str, list[str]] = {}
        for name in self.derived:
            if self.reads_data(name):
                undeclared.setdefault(self.parent(name), []).append(name)
        for source, names in undeclared.items():
            self.derive_undeclared(source, names)
        for name in self.derived:
            self.derive(name)
        return tuple(replace(self.columns[name], guessed=self.is_guessed(name)) for name in self.declared)

    def is_guessed(self, name: str) -> bool:
        entry = self.derived.get(name)
        guessed = self.columns[name].guessed if entry is None else entry.get("guessed", False)
        if not isinstance(guessed, bool):
            raise ConfigError(self.at(name), "guessed must be true or false")
        return guessed

    def at(self, name: str) -> str:
        return f"{self.key}.{name}"

    def parent(self, name: str) -> str:
        parent = self.derived[name]["from"]
        check_name(parent, f"{self.at(name)}.from")
        return str(parent)

    def reads_data(self, name: str) -> bool:
        """Whether the derived column `name` reads a column of the data that is not declared.

        It does if no other declared column has the name of its source. It also does if it is not a map and its source
        has the name of a derived column that reads the data under the same name (`age = { from = "age", ... }`).
        """
        parent = self.parent(name)
        if parent == name or parent not in self.declared:
            return True
        return "map" not in self.derived[name] and parent in self.derived and self.parent(parent) == parent

    def check_chain(self, name: str) -> None:
        """Refuse columns that are derived from each other in a cycle, or in a chain of more than `MAX_CHAIN`.

        A column may have the name of its own source.
        """
        chain = [name]
        while chain[-1] in self.derived and (parent := self.parent(chain[-1])) != chain[-1]:
            if parent in chain or len(chain) > MAX_CHAIN:
                chain = [*chain, parent]
                what = "a cycle" if parent in chain[:-1] else f"a chain of over {MAX_CHAIN} columns"
                raise ConfigError(f"{self.at(name)}.from", f"{what}: {' from '.join(chain)}")
            chain.append(parent)

    def rule(self, name: str, source: Column | None) -> Rule:
        if name not in self.rules:
            self.rules[name] = _parse_rule(
                name, self.parent(name), self.derived[name], source, self.at(name), self.files
            )
        return self.rules[name]

    def derive_undeclared(self, source: str, names: list[str]) -> None:
        """Make a column for an undeclared source, and all columns that are derived from it."""
        rules = {name: self.rule(name, None) for name in names}
        kinds = {name: rule.kind if isinstance(rule, Steps) else "text" for name, rule in rules.items()}
        first = kinds[names[0]]
        for name in names:
            if kinds[name] != first:
                raise ConfigError(
                    self.at(name),
                    f"reads {shorten(source)} as {kinds[name]}, but {shorten(names[0])} reads it as {first}; "
                    "a column of the data is read in one way",
                )
        root = _make_source(source, first, list(rules.values()))
        if len(root.cuts) > MAX_CUTS:
            raise ConfigError(self.at(names[0]), f"{len(root.cuts)} edges; at most {MAX_CUTS} are allowed")
        for name in names:
            self.columns[name] = _derive(name, rules[name], root, self.at(name))

    def derive(self, name: str) -> Column:
        if name not in self.columns:
            source = self.parent(name)
            parent = self.derive(source) if source in self.derived else self.columns[source]
            rule = self.rule(name, parent)
            if isinstance(rule, Steps) and parent.source is not None:
                raise ConfigError(self.at(name), f"{shorten(source)} is derived; only map can follow a derived column")
            self.columns[name] = _derive(name, rule, parent, self.at(name))
        return self.columns[name]


def _make_source(name: str, kind: Kind, rules: list[Rule]) -> Column:
    """Make the column for an undeclared source, with just the distinctions that the rules of derived columns need."""
    if kind == "text":
        keys = (key for rule in rules if isinstance(rule, Codes) for _, key, _ in rule.pairs)
        return Column(name, "text", tuple(dict.fromkeys(keys)), declared=False)
    if kind in ("number", "instant"):
        cuts = tuple(sorted({cut for rule in rules if isinstance(rule, Steps) for cut in rule.cuts}))
        return Column(name, kind, low=0, high=len(cuts), cuts=cuts, declared=False)
    low, high = WHOLE if kind == "integer" else (1, datetime.date.max.toordinal())
    return Column(name, kind, low=low, high=high, declared=False)


# -- one derived column ------------------------------------------------------------------------------------------------


def _derive(name: str, rule: Rule, parent: Column, key: str) -> Column:
    if isinstance(rule, Codes):
        labels, blocks = _map_codes(rule, parent, key)
    else:
        labels, blocks = rule.labels, _apply_steps(rule, parent, key)
        if rule.has_gaps and any(blocks) and not parent.cuts:
            labels = tuple(label for label, block in zip(labels, blocks, strict=True) if block)
            blocks = [block for block in blocks if block]
        for label, block in zip(labels, blocks, strict=True):
            if not block and not parent.cuts:
                raise ConfigError(key, f"{label}: no value of {shorten(parent.name)} belongs to it; remove it")
    if len(labels) > MAX_VALUES:
        raise ConfigError(key, f"{len(labels)} values; at most {MAX_VALUES} are allowed")
    return Column(name, "text", tuple(labels), source=parent.root, blocks=tuple(blocks))


def _apply_steps(rule: Steps, source: Column, key: str) -> list[Points]:
    """For each label of a step function, the points (integers that stand for values) of the source that have it."""
    kinds = {"integer": ("integer", "number"), "date": ("date",)}.get(source.kind, (source.kind,))
    if rule.kind not in kinds:
        raise ConfigError(key, f"{shorten(source.name)} has values of type {source.kind}, not {rule.kind}")
    pieces: list[list[tuple[int, int]]] = [[] for _ in rule.labels]
    if source.is_listed:
        for point, value in enumerate(source.values):
            number = value.toordinal() if isinstance(value, datetime.date) else int(value)
            group = rule.groups[bisect_right(rule.cuts, number)]
            if group is not None:
                pieces[group].append((point, point))
        return [union_all(each) for each in pieces]
    starts = [bisect_left(source.cuts, cut) + 1 if source.cuts else -int(-cut // 1) for cut in rule.cuts]
    domain = interval(source.first, source.last)
    for low, high, group in zip([source.first, *starts], [*starts, source.last + 1], rule.groups, strict=True):
        if group is not None:
            pieces[group] += intersection(interval(low, high - 1), domain)
    return [union_all(each) for each in pieces]


def _map_codes(rule: Codes, parent: Column, key: str) -> tuple[tuple[str, ...], list[Points]]:
    """The labels of a map in the order of the file, and for each label the set of source values that have it."""
    points: dict[str, list[int]] = {}
    known: dict[int, tuple[int, str, str]] = {}  # a point may be written in several ways, such as 7 and 07
    for line, code, label in rule.pairs:
        value: Value | None = read_value(code, parent.kind)
        point = None if value is None else point_of(parent, value)
        if point is None:
            raise ConfigError(
                key, f"{rule.file}, line {line}: {shorten(code)} is not a value of {shorten(parent.name)}"
            )
        first, same, other = known.setdefault(point, (line, code, label))
        if other != label:
            raise ConfigError(
                key,
                f"{rule.file}, line {line}: {shorten(code)} belongs to {shorten(label)} here, and as {shorten(same)} "
                f"to {shorten(other)} in line {first}; a value has one label",
            )
        points.setdefault(label, []).append(point)
    return tuple(points), [parent.pull_back(set_of(each)) for each in points.values()]


def point_of(column: Column, value: Value) -> int | None:
    """The point (integer) that stands for a value, or for a label of a derived column; None outside the domain."""
    if column.is_listed:
        return column.index.get(value)
    number = value.toordinal() if isinstance(value, datetime.date) else int(value)
    return number if column.low <= number <= column.high else None


# -- reading the configuration -----------------------------------------------------------------------------------------


def _parse_rule(
    name: str, parent: str, entry: Mapping[str, object], source: Column | None, key: str, files: Files | None
) -> Rule:
    words = [word for word in KEYS if word in entry]
    if len(words) != 1:
        raise ConfigError(key, "a column with from needs exactly one of bands, bins, by and map")
    check_keys(entry, KEYS[words[0]], key)
    if words[0] == "map":
        path = entry["map"]
        if not isinstance(path, str) or not path or files is None:
            raise ConfigError(f"{key}.map", "give the path of a CSV file with a header")
        table = files(path, f"{key}.map")
        pairs = table.pairs(parent, name, f"{key}.map")
        for line, _, label in pairs:
            if not label.isprintable():
                raise ConfigError(f"{key}.map", f"{table.name}, line {line}: {shorten(label)} is not printable")
        return Codes(table.name, tuple(pairs))
    steps = _parse_by(entry, source, key) if words[0] == "by" else _parse_edges(words[0], entry, key)
    labels = parse_labels(entry.get("labels"), steps.labels, key)
    return replace(steps, labels=labels or steps.labels)


def _parse_edges(word: str, entry: Mapping[str, object], key: str) -> Steps:
    """Read `bands` (of whole numbers or dates) or `bins` (of decimals), given by the values at which they begin.

    The last band or bin is open, or ends at `max`.
    """
    edges, below = entry[word], entry.get("below", False)
    if not isinstance(edges, list) or not edges:
        raise ConfigError(f"{key}.{word}", f"give a list of the values at which the {word} begin, such as [0, 15, 65]")
    if not isinstance(below, bool):
        raise ConfigError(
            f"{key}.below", "below must be true or false: whether all smaller values are a separate group"
        )
    written = [*edges, *([entry["max"]] if "max" in entry else [])]
    is_date = word == "bands" and not all(type(edge) is int for edge in written)
    # a max such as 2024 is the last day of its period
    cuts = [_read_edge(edge, word, is_date, f"{key}.{word}", last=i == len(edges)) for i, edge in enumerate(written)]
    is_open = "max" not in entry
    if not is_open and word == "bands":
        cuts[-1] += 1  # the last value of a closed band is in it
    if any(a >= b for a, b in itertools.pairwise(cuts)):
        raise ConfigError(f"{key}.{word}", "every edge must be greater than the one before")
    kind: Kind = "date" if is_date else "integer" if word == "bands" else "number"
    if len(cuts) > MAX_CUTS:
        raise ConfigError(f"{key}.{word}", f"{len(cuts)} edges; at most {MAX_CUTS} are allowed")
    shown = [str(edge).lstrip("+") for edge in written]
    names = [_name_bin(kind, shown[i : i + 2], cuts[i : i + 2]) for i in range(len(cuts) - 1)]
    if is_open:
        names.append(f"from {shown[-1]}" if is_date else f"{shown[-1]}+")
    groups: list[int | None] = [0 if below else None, *(i + below for i in range(len(names)))]
    if not is_open:
        groups.append(None)
    return Steps(kind, tuple(cuts), tuple(groups), ((f"under {shown[0]}",) if below else ()) + tuple(names))


def _name_bin(kind: Kind, edges: list[str], cuts: list[Fraction]) -> str:
    """The label of a bin: its first and last value if it is a band, else its two edges."""
    if kind == "number":
        return " to under ".join(edges)
    return Column("", kind).write_range(int(cuts[0]), int(cuts[1]) - 1)


def _read_edge(edge: object, word: str, is_date: bool, key: str, *, last: bool) -> Fraction:
    if is_date:
        day = calendar.read_day(edge, last=last) if not isinstance(edge, int) else None
        if day is None:
            raise ConfigError(key, f"{shorten(edge)} is not a whole number or a date; for decimals, write bins")
        return Fraction(day.toordinal())
    text = str(edge) if isinstance(edge, str) or type(edge) is int else ""
    if not EDGE.fullmatch(text):
        raise ConfigError(key, f'{shorten(edge)} is not an edge; write decimals in quotes, such as "0.5", below 10^18')
    if word == "bins" and Fraction(repr(float(text))) != Fraction(text):  # the values of a source may be such floats
        near = (float(text), math.nextafter(float(text), 0))
        written = next(each for each in (f"{Decimal(repr(n)):f}" for n in near) if EDGE.fullmatch(each))
        advice = f"write {written.removesuffix('.0')}"
        raise ConfigError(key, f"{shorten(edge)} has more digits than a 64-bit float can hold; {advice}")
    return Fraction(text)


def _parse_by(entry: Mapping[str, object], source: Column | None, key: str) -> Steps:
    by, zone_name = entry["by"], entry.get("zone")
    if by not in calendar.PERIODS:
        raise ConfigError(f"{key}.by", f"got {shorten(by)}, allowed are {', '.join(calendar.PERIODS)}")
    zone = calendar.load_zone(zone_name) if isinstance(zone_name, str) else None
    if zone_name is not None and zone is None:
        raise ConfigError(f"{key}.zone", f"{shorten(zone_name)} is not a time zone; write one such as Europe/Berlin")
    ends = [entry.get(end) for end in ("min", "max")]
    low, high = calendar.read_day(ends[0]), calendar.read_day(ends[1], last=True)
    for end, written, day in zip(("min", "max"), ends, (low, high), strict=True):
        if written is not None and day is None:
            raise ConfigError(f"{key}.{end}", f"{shorten(written)} is not a date or a period, such as 2024-01")
    if source is not None and source.kind == "date":
        days = source.values if source.is_listed else (source.value(source.low), source.value(source.high))
        known = [day for day in days if isinstance(day, datetime.date)]
        low, high = low or min(known), high or max(known)
    if low is None or high is None:
        raise ConfigError(key, "give min and max, the first and the last period")
    least = 2 if zone is None else 1800
    if not datetime.date(least, 1, 1) <= low <= high <= datetime.date(2999, 12, 31):
        raise ConfigError(key, f"min must not be after max, and both must be in the years {least} to 2999")
    parts = list(calendar.periods(by, low, high))
    after = calendar.end_of(high, by)
    labels = tuple(calendar.WEEKDAYS) if by == "weekday" else tuple(label for _, label in parts)
    places = {label: i for i, label in enumerate(labels)}
    starts = [*(start for start, _ in parts), after]
    cuts = [Fraction(day.toordinal() if zone is None else calendar.instant_of(day, zone)) for day in starts]
    if len(cuts) > (most := MAX_CUTS if zone is not None else MAX_VALUES):
        raise ConfigError(key, f"{len(cuts)} edges; at most {most} are allowed; declare a shorter range of time")
    groups = (None, *(places[label] for _, label in parts), None)
    has_gaps = by == "weekday" or (source is not None and source.is_listed)
    return Steps("date" if zone is None else "instant", tuple(cuts), groups, labels, has_gaps)
