"""How SQL reads derived columns: between which cuts (edges of bins) a value lies, and in which bin of an axis.

An axis is read in one of two ways. If its source is listed, or has many short runs of days or whole numbers (as with
weekdays), rows are grouped by the value, and a bound relation (v, i) gives the bin of each value. Otherwise the bin is
found by comparing the value with bound cuts: for each row with about log2 of their number, but an engine also spends
a little on each cut and batch of rows, unless its dialect can search a list.

Guarantee: a value and a cut are compared in the source's own type, exactly, and no value makes an engine fail.

- floats: 64-bit floats are compared. A cut is the decimal that is printed for such a float, so that a stored 0.3 is in
  the bin from 0.3; one that was stored with 32 bits is 0.30000001192092896, and 0.7 is 0.699999988079071;
- decimals: the cut is rounded up to the scale of the source, which splits its values in the same way;
- integers: the cut is rounded up to an integer;
- text that matches `DECIMAL` is compared as the decimal that is written; other text that matches `NUMBER` as the 64-bit
  float that it reads as; NaN, infinity, hexadecimal digits, 1d, 1_000 are outside;
- times with a zone: the cut is an instant, so the zone of the database has no effect; text that matches `INSTANT` is
  an instant too in files and frames, where DuckDB or Python converts it before anything is compared;
- NaN is a missing number: it becomes NULL before it is compared, because SQL engines sort NaN above every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

from countveil.query.axes import Axis
from countveil.query.schema import MAX_VALUES, Column, Kind, Value

NUMBER = "^[+-]?([0-9]{1,200}([.][0-9]{0,200})?|[.][0-9]{1,200})([eE][+-]?[0-9]{1,2})?$"
"""The form of numbers in text. Their length is limited: none is too large or too small for a 64-bit float."""
TEXT_SCALE = 19
"""The most digits on each side of the point in a decimal that is read from text; one more than an edge may have."""
DECIMAL = f"^-?[0-9]{{1,{TEXT_SCALE}}}([.][0-9]{{1,{TEXT_SCALE}}})?$"
TIME = "[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?"
DATE = f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}({TIME})?$"
"""Dates of text: YYYY-MM-DD, also with a time without zone, such as 2026-03-29 02:30:00, which is read as its date."""
INSTANT = f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{TIME}(Z|[+-]([01][0-9]|2[0-3])(:[0-5][0-9])?)$"
"""The form of instants in text: ISO 8601 with seconds and an offset, such as 2026-03-29T02:30:00+01:00 or ...Z."""
MOST_COMPARED = 40
"""The most intervals that a value is compared with, where the values in them could be listed instead."""
MOST_NESTED = 50
"""The most intervals that are found by nested comparisons, if the dialect can search a list."""
DIGITS = 38
"""The most digits that an SQL decimal can have."""


class StepDialect:
    """The base of `Dialect`: the SQL that derived columns need, in the syntax of most engines."""

    types: Mapping[Kind, str] = {}
    double = "DOUBLE"

    def list_bins(self, values: str, bins: str, kind: Kind) -> str:
        """A relation (v, i) made of two bound lists of the same length: values, and the number of each value's bin."""
        return f"(SELECT unnest(CAST({values} AS {self.types[kind]}[])) AS v, unnest(CAST({bins} AS BIGINT[])) AS i)"

    def instant(self, seconds: str) -> str:
        """SQL for the moment that is this many seconds after 1970 began in UTC."""
        raise NotImplementedError

    def decimal(self, bind: Callable[[object], str], cut: Fraction, scale: int) -> str:
        """SQL for the cut as a decimal with `scale` digits after the point, rounded up."""
        return f"CAST({bind(write_decimal(cut, scale))} AS DECIMAL({DIGITS}, {scale}))"

    def search(self, relation: str, value: str, cuts: Sequence[str], bins: str, place: str) -> tuple[str, str] | None:
        """A relation that finds the place of each row's value among cuts, and SQL for the one of `bins` at that place.

        `place` begins the names of columns that the relation has beside those of the given relation. None if the
        dialect can only nest comparisons.
        """
        return None

    def try_cast(self, expression: str, kind: str) -> str:
        raise NotImplementedError

    def parse(self, raw: str, pattern: str, value: Callable[[str], str]) -> str:
        raise NotImplementedError


class Reader(Protocol):
    """The part of `Compiler` that the functions of this module need."""

    relation: str
    families: Mapping[str, Any]
    scales: Mapping[str, int]
    values: dict[str, object]

    @property
    def dialect(self) -> StepDialect: ...

    def bind(self, value: object) -> str: ...

    def raw(self, name: str) -> str: ...

    def read(self, column: Column) -> str: ...

    def missing(self, column: Column) -> str: ...


def is_joined(axis: Axis) -> bool:
    """Whether rows are grouped by the value itself, and a join with a list of values then finds each value's bin."""
    source = axis.source
    if source.is_listed:
        return True
    return not axis.is_plain and not source.cuts and len(axis.runs) > MOST_COMPARED and len(_points(axis)) <= MAX_VALUES


def bins_by_value(axis: Axis) -> tuple[list[Value], list[int]]:
    """All values of the source of `axis` that lie in a bin, and the number of each value's bin.

    The axis must be one that `is_joined`.
    """
    source = axis.source
    if axis.is_plain:
        return list(source.values), list(range(len(source.values)))
    pairs = [(source.value(point), key) for low, high, key in axis.runs for point in range(low, high + 1)]
    return [value for value, _ in pairs], [key for _, key in pairs]


def _points(axis: Axis) -> range:
    return range(axis.runs[0][0], axis.runs[-1][1] + 1)


def number_cells(indexes: Sequence[str], sizes: Sequence[int]) -> str:
    """SQL for the number of a cell, from its index on each axis and the axes' sizes; the last index changes fastest."""
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    terms = [f"CAST({index} AS BIGINT) * {stride}" for index, stride in zip(indexes, strides, strict=True)]
    return " + ".join(terms) or "CAST(0 AS BIGINT)"


def bin_of(compiler: Reader, axis: Axis) -> str:
    """SQL that finds the bin of a value by comparisons; NULL for a value in no bin."""
    source = axis.source
    starts: list[tuple[int, int | None]] = []
    after = source.first
    for low, high, key in axis.runs:
        starts += [(after, None)] if low > after else []
        starts.append((low, key))
        after = high + 1
    starts += [(after, None)] if after <= source.last else []
    value = read_value(compiler, source)
    bin = _search_list(compiler, source, value, starts) or _search(compiler, source, value, starts)
    return f"CASE WHEN {between(compiler, source, source.first, source.last)} THEN {bin} END"


def _search_list(compiler: Reader, column: Column, value: str, starts: list[tuple[int, int | None]]) -> str | None:
    """SQL for the same as `_search`, of a relation that replaces the compiler's; None for few starts, for text, which
    is compared in two types, and where the dialect cannot."""
    family = compiler.families[column.name] if column.cuts else None
    cut_off = family == "decimal" and any(_is_beyond(compiler, column, start) for start, _ in starts[1:])
    if len(starts) <= MOST_NESTED or family == "text" or cut_off:
        return None
    name = "_" * (1 + max(map(len, compiler.families))) + str(len(compiler.values))  # longer than each of the source's
    cuts = [bind_point(compiler, column, start) for start, _ in starts[1:]]
    bins = ", ".join("NULL" if key is None else str(key) for _, key in starts)
    found = compiler.dialect.search(compiler.relation, value, cuts, bins, name)
    if found is not None:
        compiler.relation, bin = found
        return bin
    return None


def _search(compiler: Reader, column: Column, value: str, starts: list[tuple[int, int | None]]) -> str:
    """SQL for a binary search in `starts`, sorted pairs of a point and a bin (None for no bin).

    It finds the bin of the last point whose least value is not above the value.
    """
    if len(starts) == 1:
        return "NULL" if starts[0][1] is None else str(starts[0][1])
    middle = len(starts) // 2
    below = _search(compiler, column, value, starts[:middle])
    above = _search(compiler, column, value, starts[middle:])
    return f"CASE WHEN {compare(compiler, column, value, '<', starts[middle][0])} THEN {below} ELSE {above} END"


def between(compiler: Reader, column: Column, low: int, high: int) -> str:
    """SQL that tests whether a value of a source column lies in the points (integers for values) low..high."""
    value = read_value(compiler, column)
    if not column.cuts:
        return f"{value} BETWEEN {bind_point(compiler, column, low)} AND {bind_point(compiler, column, high)}"
    tests = [compare(compiler, column, value, ">=", low)] if low > column.first else []
    tests += [compare(compiler, column, value, "<", high + 1)] if high < column.last else []
    return f"({' AND '.join(tests) or f'{value} IS NOT NULL'})"


def compare(compiler: Reader, column: Column, value: str, sign: str, point: int) -> str:
    """SQL for `value sign start`: `sign` is an operator such as <, `start` the least value that `point` stands for.

    A point stands for a single value or, in a column with cuts, for all values between two cuts. A decimal that is
    stored as text is compared exactly.
    """
    if column.cuts and compiler.families[column.name] == "decimal" and _is_beyond(compiler, column, point):
        return f"{value} IS NOT NULL" if (column.cuts[point - 1] > 0) == (sign == "<") else "FALSE"
    compared = f"{value} {sign} {bind_point(compiler, column, point)}"
    if not column.cuts or compiler.families[column.name] != "text":
        return compared
    dialect = compiler.dialect
    number = dialect.parse(
        compiler.raw(column.name), DECIMAL, lambda text: dialect.try_cast(text, f"DECIMAL({DIGITS}, {TEXT_SCALE})")
    )
    exact = f"{number} {sign} {dialect.decimal(compiler.bind, column.cuts[point - 1], TEXT_SCALE)}"
    return f"coalesce({exact}, {compared})"


def _is_beyond(compiler: Reader, column: Column, point: int) -> bool:
    """Whether a cut is larger than every decimal with the digits of the source, or less than every one."""
    limit: int = 10**DIGITS
    return abs(_units(column.cuts[point - 1], compiler.scales[column.name])) >= limit


def read_value(compiler: Reader, column: Column) -> str:
    """SQL for the value to compare; NULL if it is missing or cannot be read."""
    if not column.cuts:
        return compiler.read(column)
    family, raw, dialect = compiler.families[column.name], compiler.raw(column.name), compiler.dialect
    if family == "text":
        return dialect.parse(raw, NUMBER, lambda text: dialect.try_cast(text, dialect.double))
    missing = compiler.missing(column)
    return raw if missing == f"{raw} IS NULL" else f"CASE WHEN NOT {missing} THEN {raw} END"


def bind_point(compiler: Reader, column: Column, point: int) -> str:
    """Bind the least value that a point stands for (see `compare`), in the type of the source."""
    if not column.cuts:
        return compiler.bind(column.value(point))
    cut = column.cuts[point - 1]
    if column.kind == "instant":
        return compiler.dialect.instant(compiler.bind(int(cut)))
    family = compiler.families[column.name]
    if family == "integer":
        return compiler.bind(-int(-cut // 1))
    if family == "decimal":
        return compiler.dialect.decimal(compiler.bind, cut, compiler.scales[column.name])
    return compiler.bind(float(cut))


def write_decimal(cut: Fraction, scale: int) -> str:
    """The cut as digits, rounded up to `scale` digits after the point.

    >>> write_decimal(Fraction("0.25"), 1), write_decimal(Fraction("-0.25"), 1)
    ('0.3', '-0.2')
    """
    units = _units(cut, scale)
    digits = f"{abs(units):0{scale + 1}}"
    whole, fraction = (digits[:-scale], digits[-scale:]) if scale else (digits, "")
    return f"{'-' if units < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"


def _units(cut: Fraction, scale: int) -> int:
    return -int(-cut * 10**scale // 1)
