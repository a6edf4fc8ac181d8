"""Guesses, from the data, which columns to ask about and which values they have, as a colleague would propose them.

A guess reveals data. So it is shown to the curator only, who confirms it from public knowledge before any answer.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from countveil.data.engines.engine import Engine
from countveil.data.engines.families import EXACT, READABLE
from countveil.data.engines.steps import read_value
from countveil.data.survey import read_numbers
from countveil.query.schema import MAX_VALUES, Column

MOST_VALUES = 60
"""The most values that are listed in the configuration itself; longer lists go to a file.

A column with at most this many different values is not taken for an id merely because its values are unique.
"""
ROWS_PER_VALUE = 10
"""Text columns with more than `MOST_VALUES` values and fewer rows per value than this are names, ids or free text."""
NEARLY_UNIQUE = Fraction(9, 10)
FEW_VALUES = 10
"""A list of at most this many values is not taken for an id of people, even if each value belongs to one person."""
LONG_RANGE = 100
SPARSE = Fraction(1, 10)
"""Whole numbers are codes if most of them lie in a range of more than `LONG_RANGE` numbers, fewer than this share of
which occur, with at least `ROWS_PER_VALUE` rows each on average. Ages, years and counts leave fewer gaps."""
PADDED = "^-?0[0-9]+$"
MIDDLE = {"low": "0.05", "high": "0.95"}
"""The quantiles between which most values lie."""
BINS = 8
LARGEST, SMALLEST = 10**15, Decimal("1e-15")
INDEX = re.compile(
    r"__index_level_[0-9]+__|unnamed: ?[0-9]+|level_[0-9]+|index|rowid|row_?(id|number|nr)", re.IGNORECASE
)
ID = re.compile(r"(^|_)(id|pid|uid|uuid|guid)$", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnGuess:
    """A proposal for one column: a domain with every value that is present, or bins of decimals, or neither;
    `reason` says why."""

    column: Column | None
    reason: str
    bins: tuple[str, ...] = ()
    below: bool = False
    """Whether the data has values below the first bin."""
    name: str = ""

    @property
    def is_coded(self) -> bool:
        """Whether the column's values are two codes, such as 0 and 1."""
        return self.column is not None and self.column.kind == "integer" and len(self.column.values) == 2

    @property
    def has_months(self) -> bool:
        """Whether the column has dates of several months, all in years that can be grouped by month."""
        if self.column is None or self.column.kind != "date":
            return False
        low, high = (datetime.date.fromordinal(day) for day in (self.column.low, self.column.high))
        return low.year > 1 and high.year < 3000 and (low.year, low.month) != (high.year, high.month)


def guess_column(engine: Engine, name: str, unit: str | None = None) -> ColumnGuess:
    """Guess one column. A text column counts as numbers or dates if all of its values can be read as such, except that
    whole numbers with leading zeros, such as 01067, are texts. If column `unit` identifies people, another column that
    does so is not proposed as a list."""
    guess = _guess_column(engine, name)
    if unit is not None and guess.column is not None and _belongs_to_people(engine, guess.column, unit):
        return ColumnGuess(None, "an id: nearly every value belongs to one person only")
    return guess


def _guess_column(engine: Engine, name: str) -> ColumnGuess:
    family = engine.columns()[name]
    if re.fullmatch(r"__index_level_[0-9]+__", name):
        return ColumnGuess(None, "an index that a program wrote")
    is_padded = False
    for kind in ("boolean", "integer", "date", "number", "text"):
        unlikely = {"text": family == "integer", "boolean": family != "boolean"}
        unlikely["number"] = family == "integer" or is_padded
        if family not in READABLE[kind] or unlikely.get(kind):  # 0 and 1 are proposed as numbers
            continue
        compiler = engine.compiler()
        probe = Column(name, kind, (False, True)) if kind == "boolean" else Column(name, kind)
        probe = Column(name, kind, high=1, cuts=(Fraction(0),)) if kind == "number" else probe
        read, missing = read_value(compiler, probe), compiler.missing(probe)
        sums = f"count(*) - count(CASE WHEN {missing} THEN 1 END) AS present, count({read}) AS readable"
        sql = f"SELECT {sums}, count(DISTINCT {read}) AS different FROM {compiler.relation}"
        present, readable, different = read_numbers(engine, compiler, sql)
        if present == 0:
            return ColumnGuess(None, "it has no values")
        is_padded |= readable == present and kind == "integer" and family == "text" and _is_padded(engine, name)
        if kind == "integer" and is_padded:
            continue
        if readable == present and kind == "number":
            return _guess_bins(engine, probe)
        if readable == present:
            return _guess_domain(engine, probe, present, different)
    reasons = {"zoned": 'times with a zone: declare by = "month" with from, min, max and zone'}
    return ColumnGuess(None, reasons.get(family, f"a type that cannot be declared ({family})"))


def _is_padded(engine: Engine, name: str) -> bool:
    """Whether a column of texts has whole numbers with leading zeros."""
    compiler = engine.compiler()
    test = compiler.dialect.matches(compiler.dialect.trim(compiler.raw(name)), PADDED)
    sql = f"SELECT count(CASE WHEN {test} THEN 1 END) AS padded FROM {compiler.relation}"
    return read_numbers(engine, compiler, sql) != [0]


def by_numbers(text: str) -> tuple[tuple[bool, int, str], ...]:
    """A sort key that compares the numbers in texts as numbers, so that labels such as 5-14 and 15-64 are in order.

    >>> sorted(["65+", "5-14", "15-64", "0-4", "West"], key=by_numbers)
    ['0-4', '5-14', '15-64', '65+', 'West']
    """
    parts = re.findall(r"([0-9]{1,18})|([^0-9]+|[0-9]+)", text)
    return tuple((not digits, int(digits or 0), other) for digits, other in parts)


def _is_identifier(probe: Column, present: int, different: int) -> str:
    """Why the values of a column seem to identify rows or people, in words; empty if they do not."""
    unique = different >= NEARLY_UNIQUE * present
    if unique and INDEX.fullmatch(probe.name):
        return "an index: nearly every row has its own value"
    if probe.kind in ("boolean", "date") or different <= MOST_VALUES:
        return "an id: nearly every row has its own value" if unique and present > 1 and ID.search(probe.name) else ""
    if ID.search(probe.name):
        return f"named like an id, with over {MOST_VALUES} values"
    if unique:
        return "an id: nearly every row has its own value; if it is a measurement, give it bands"
    if probe.kind == "text" and present < ROWS_PER_VALUE * different:
        return f"names or free text: fewer than {ROWS_PER_VALUE} rows per value"
    return ""


def _belongs_to_people(engine: Engine, column: Column, unit: str) -> bool:
    """Whether nearly every value of a list belongs to one person only, so that it seems to identify the person."""
    if len(column.values) <= FEW_VALUES:
        return False
    compiler = engine.compiler()
    people = f"SELECT {compiler.read(column)} AS v, {compiler.person(unit)} AS u FROM {compiler.relation}"
    values = f"SELECT count(DISTINCT u) AS people FROM ({people}) AS pairs WHERE v IS NOT NULL GROUP BY v"
    single = "count(CASE WHEN people <= 1 THEN 1 END) AS single"
    owned, different = read_numbers(engine, compiler, f"SELECT {single}, count(*) AS n FROM ({values}) AS owners")
    return owned >= NEARLY_UNIQUE * different


def _guess_domain(engine: Engine, probe: Column, present: int, different: int) -> ColumnGuess:
    if probe.kind == "boolean":
        return ColumnGuess(Column(probe.name, "boolean", (False, True), guessed=True), "true and false")
    reason = _is_identifier(probe, present, different)
    if reason:
        return ColumnGuess(None, reason)
    compiler = engine.compiler()
    read = compiler.read(probe)
    if probe.kind == "text":
        if different > MAX_VALUES:
            return ColumnGuess(None, f"over {MAX_VALUES:,} values")
        distinct = engine.run(compiler.statement(f"SELECT DISTINCT {read} AS v FROM {compiler.relation}"))
        texts = sorted((str(v) for v in distinct["v"] if isinstance(v, str)), key=by_numbers)
        reason = f"over {MOST_VALUES} values, in a file" if len(texts) > MOST_VALUES else "a few values"
        return ColumnGuess(Column(probe.name, "text", tuple(texts), guessed=True), reason)
    text = compiler.dialect.types["text"]
    sql = f"SELECT CAST(min({read}) AS {text}) AS low, CAST(max({read}) AS {text}) AS high FROM {compiler.relation}"
    ends = engine.run(compiler.statement(sql))
    number = (lambda text: datetime.date.fromisoformat(text).toordinal()) if probe.kind == "date" else int
    try:
        low, high = (number(str(ends[end][0])) for end in ("low", "high"))
    except ValueError:
        return ColumnGuess(None, "a date before the year 1, after 9999, or infinitely far away")
    if probe.kind == "integer" and (low, high) in ((0, 1), (1, 2)):
        return ColumnGuess(Column(probe.name, "integer", (low, high), guessed=True), "two codes, with room for labels")
    codes = _list_codes(engine, probe, present, different, high - low) if probe.kind == "integer" else []
    if codes and max(map(abs, codes)) >= EXACT:
        reason = "codes of 2^53 and more, as text: frames and floats do not tell such numbers apart"
        return ColumnGuess(Column(probe.name, "text", tuple(map(str, codes)), guessed=True), reason)
    if codes:
        reason = f"codes: fewer than {SPARSE} of the numbers in their range occur"
        return ColumnGuess(Column(probe.name, "integer", tuple(codes), guessed=True), reason)
    guess = ColumnGuess(Column(probe.name, probe.kind, low=low, high=high, guessed=True), "whole numbers")
    if probe.kind == "date":
        return ColumnGuess(guess.column, "dates, and their months" if guess.has_months else "dates")
    return guess


def _list_codes(engine: Engine, probe: Column, present: int, different: int, width: int) -> list[int]:
    """All values of a column of whole numbers if they are codes; else an empty list.

    The gaps are looked for between the quantiles of `MIDDLE`, so a few outliers do not make codes of ages or counts.
    """
    if width < LONG_RANGE or different >= SPARSE * width or present < ROWS_PER_VALUE * different:
        return []
    if different > MAX_VALUES:
        return []
    compiler = engine.compiler()
    text = compiler.dialect.types["text"]  # as numbers, DuckDB rounds wide integers and decimals to floats
    quantiles = {end: f"percentile_disc({share}) WITHIN GROUP (ORDER BY v)" for end, share in MIDDLE.items()}
    ends = ", ".join(f"CAST({quantile} AS {text}) AS {end}" for end, quantile in quantiles.items())
    values = f"(SELECT {compiler.read(probe)} AS v FROM {compiler.relation}) AS numbers WHERE v IS NOT NULL"
    low, high = read_numbers(engine, compiler, f"SELECT {ends} FROM {values}")
    distinct = engine.run(compiler.statement(f"SELECT DISTINCT CAST(v AS {text}) AS v FROM {values}"))
    codes = sorted(int(v) for v in distinct["v"])
    width = high - low + 1
    inner = sum(low <= code <= high for code in codes)
    return codes if width > LONG_RANGE and inner < SPARSE * width else []


def _guess_bins(engine: Engine, probe: Column) -> ColumnGuess:
    """Propose about `BINS` bins with round edges that cover the middle 90 % of the values; the last bin is open."""
    compiler = engine.compiler()
    double = compiler.dialect.double
    values = f"SELECT CAST({read_value(compiler, probe)} AS {double}) AS v FROM {compiler.relation}"
    ends = [f"percentile_disc({share}) WITHIN GROUP (ORDER BY v) AS {end}" for end, share in MIDDLE.items()]
    where = f"v > -{LARGEST} AND v < {LARGEST}"
    sql = f"SELECT min(v) AS least, {', '.join(ends)} FROM ({values}) AS decimals WHERE {where}"
    result = engine.run(compiler.statement(sql))
    numbers = [str(result[name][0]) for name in ("least", *MIDDLE)]
    if not all(re.match(r"-?[0-9]", number) for number in numbers):
        return ColumnGuess(None, f"no decimals within {LARGEST:.0e} of 0")
    least, low, high = (Decimal(str(end)) for end in numbers)
    edges = round_edges(low, high)
    if not edges:
        return ColumnGuess(None, "decimals that differ too little for round bins")
    bins = tuple(f"{edge:f}" for edge in edges)
    return ColumnGuess(None, "decimals, in round bins", bins, least < edges[0], probe.name)


def round_edges(low: Decimal, high: Decimal) -> list[Decimal]:
    """Round numbers at equal distances. The first is at or below `low`, and the last is at or below `high`.

    >>> [str(edge) for edge in round_edges(Decimal("0.13"), Decimal("3.7"))]
    ['0.0', '0.5', '1.0', '1.5', '2.0', '2.5', '3.0', '3.5']
    """
    width = (high - low) / BINS or Decimal(1)
    if width < SMALLEST:
        return []
    unit = Decimal(10) ** width.adjusted()
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= width)
    first, last = ((end / step).to_integral_value("ROUND_FLOOR") for end in (low, high))
    return [(first + i) * step + 0 for i in range(int(last - first) + 1)]
