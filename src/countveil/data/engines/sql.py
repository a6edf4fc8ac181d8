"""Question -> one SQL statement, and how its SQL reads a column of a source as the declared type.

**The statement.** Nothing in it comes from an analyst's text; every value of a condition is bound.

    counted   rows that satisfy the condition: their group keys and how many there are of each, or the person of each
    placed    the same with the flat number of their cell, keys outside the domain gone
    bounded   of each person at most `cells_per_person` cells, with at most `rows_per_person` rows in each
    answer    (cell, n), cells without rows left out

Names of ours never meet names of the source: they are given in the innermost SELECT, and GROUP BY counts positions.

Guarantee (bounding): what is kept of a person depends on that person's rows and the key alone, because ranks are taken
within the person. Removing a person removes exactly that person's kept rows: at most `cells_per_person` cells change,
each by at most `rows_per_person`, and nobody else's rows move. Rows that name no person (NULL) are not counted, nor
rows whose person cannot be read: where a source puts `garbled` for what is no text, they could be one person or many.

**Reading.** The families of physical types are few, and so are the ways to read one as another. What cannot be read is
*outside*: it gives NULL here, and `missing` tells it from a true NULL. One rule set for all engines:

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from countveil.errors import DataError
from countveil.query import Question
from countveil.query.condition import All, Member, Typed, contains, domain_of, intersection, null_of
from countveil.schema import Column, Kind, Value

if TYPE_CHECKING:
    from countveil.engines.engine import SqlEngine

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
OUTSIDE = "\ufffd"
"""What a frame's value reads as that is outside every domain; U+FFFD, as for bytes that are no text."""


class Dialect:
    """Standard SQL; engines override what they spell differently."""

    types: Mapping[Kind, str] = {"text": "VARCHAR", "integer": "BIGINT", "boolean": "BOOLEAN", "date": "DATE"}
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

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        """The value is in a bound list."""
        raise NotImplementedError

    def listed(self, parameter: str, kind: Kind) -> str:
        """A relation (v, i) of a bound list's values and their indexes from 0."""
        values = f"CAST({parameter} AS {self.types[kind]}[])"
        return f"(SELECT unnest({values}) AS v, generate_subscripts({values}, 1) - 1 AS i)"

    def legible(self, text: str) -> list[str]:
        """What a text of the source must satisfy to be text at all; nothing, where it cannot be otherwise."""
        return []

    def digest(self, expression: str) -> str:
        """The MD5 of a text in hexadecimal: the keyed hash that chooses a person's cells, the same on every engine."""
        return f"md5({expression})"

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
            return self.parse(raw, self.integer_text, self.parse_integer)
        number = self.whole_number(family, raw)
        return self.precise(family, raw, number) if family in FLOATS else number

    def whole_number(self, family: Family, raw: str) -> str:
        """A float or a decimal as an integer; NULL for one that is not whole or too large."""
        return f"CASE WHEN {raw} = trunc({raw}) THEN {self.try_cast(raw, 'BIGINT')} END"

    def parse(self, raw: str, pattern: str, value: Callable[[str], str]) -> str:
        """The value of a text that has this pattern, spaces around it ignored; NULL for any other."""
        text = self.trimmed(raw)
        return f"CASE WHEN {self.matches(text, pattern)} THEN {value(text)} END"

    def parse_integer(self, text: str) -> str:
        return self.try_cast(text, "BIGINT")

    def parse_date(self, text: str) -> str:
        return self.try_cast(text, "DATE")

    def precise(self, family: Family, raw: str, value: str) -> str:
        """The value of a float that is told apart from its neighbours; NULL for any other."""
        return f"CASE WHEN {raw} > -{PRECISE[family]} AND {raw} < {PRECISE[family]} THEN {value} END"

    def read_text(self, family: Family, raw: str) -> str:
        value = self.read_integer(family, raw) if family in FLOATS else raw
        return f"CAST({value} AS {self.types['text']})"

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
            return self.try_cast(raw, "DATE")  # NULL for one that is too far away to have a date
        return self.parse(raw, self.date_text, self.parse_date)

    def missing(self, family: Family, raw: str) -> str:
        """The value is NULL, or NaN."""
        return f"({raw} IS NULL OR isnan({raw}))" if family in FLOATS else f"{raw} IS NULL"


def check_readable(column: Column, family: Family) -> None:
    """Refuse a source whose physical type can never be read as the declared one; values are not looked at."""
    if family in READABLE[column.kind]:
        return
    advice = {
        "zoned": "times with a zone have no date of their own: store dates",
        "boolean": 'declare it as { type = "boolean" }',
    }.get(family, f"a {column.kind} column is read from {', '.join(READABLE[column.kind])}")
    raise DataError(f"column {column.name}: declared {column.kind}, but the source holds {family} values; {advice}")


INLINE = 32


@dataclass(frozen=True)
class Statement:
    """SQL text and the values bound to its parameters."""

    sql: str
    values: Mapping[str, object]


class Compiler:
    """Builds statements for one engine, in its dialect and against its source."""

    def __init__(self, engine: SqlEngine) -> None:
        self.engine, self.dialect, self.families = engine, engine.dialect, engine.columns()
        self.values: dict[str, object] = {}

    def statement(self, sql: str) -> Statement:
        return Statement(sql, dict(self.values))

    def bind(self, value: object) -> str:
        """A placeholder for a value."""
        key = f"p{len(self.values)}"
        self.values[key] = value
        return self.dialect.parameter(key)

    # -- columns -----------------------------------------------------------------------------------------------------

    def raw(self, name: str) -> str:
        """A column of the source as it is; text as text."""
        quoted = self.dialect.name(name)
        return self.dialect.characters(quoted) if self.families[name] == "text" else quoted

    def read(self, column: Column) -> str:
        """The declared value of a column."""
        return self.dialect.read(column, self.families[column.name], self.raw(column.name))

    def person(self, name: str) -> str:
        """What the column of the unit names a person with; NULL for nobody."""
        return self.dialect.read_person(self.families[name], self.raw(name))

    def missing(self, column: Column) -> str:
        return self.dialect.missing(self.families[column.name], self.raw(column.name))

    # -- conditions --------------------------------------------------------------------------------------------------

    def condition(self, where: Typed) -> str:
        """A condition as SQL that is true, and never an error, for exactly the rows it accepts."""
        if isinstance(where, Member):
            return self.member(where)
        if not where.parts:
            return "TRUE" if isinstance(where, All) else "FALSE"
        joint = " AND " if isinstance(where, All) else " OR "
        return "(" + joint.join(self.condition(part) for part in where.parts) + ")"

    def member(self, member: Member) -> str:
        column = member.column
        inside = intersection(member.points, domain_of(column))
        tests = [] if not contains(member.points, null_of(column)) else [self.missing(column)]
        if not column.listed:
            long = [piece for piece in inside if piece[0] < piece[1]]
            tests += [self.between(column, low, high) for low, high in long]
            inside = tuple(piece for piece in inside if piece[0] == piece[1])
        if inside:
            tests.append(self.among(column, [column.value(p) for low, high in inside for p in range(low, high + 1)]))
        return "(" + (" OR ".join(tests) or "FALSE") + ")"

    def between(self, column: Column, low: int, high: int) -> str:
        first, last = self.bind(column.value(low)), self.bind(column.value(high))
        return f"{self.read(column)} BETWEEN {first} AND {last}"

    def among(self, column: Column, members: list[Value]) -> str:
        if len(members) > INLINE:
            return self.dialect.among(self.read(column), self.bind(members), column.kind)
        return f"{self.read(column)} IN ({', '.join(self.bind(value) for value in members)})"

    # -- counting ----------------------------------------------------------------------------------------------------

    def count(self, question: Question, key: str) -> Statement:
        """The statement that counts a question; `key` chooses the cells of people with too many."""
        people = not question.schema.unit_is_row
        keys = [self.key(column) for column in question.by]
        parts = [f"counted AS ({self.counted(question, keys, people)})", f"placed AS ({self.placed(question, people)})"]
        answer = "SELECT cell, n FROM placed"  # one row for each cell already
        if people:
            parts.append(f"bounded AS ({self.bounded(question, key)})")
            answer = "SELECT cell, CAST(sum(n) AS BIGINT) AS n FROM bounded GROUP BY cell"
        return self.statement(f"WITH {', '.join(parts)} {answer}")

    def counted(self, question: Question, keys: list[str], people: bool) -> str:
        filters = [self.condition(question.where)] if question.where is not None else []
        filters += [self.between(column, column.low, column.high) for column in question.by if not column.listed]
        shown = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        grouped = ""
        if people:
            unit = self.person(question.schema.unit)
            filters.append(f"{unit} IS NOT NULL")
            if self.families[question.schema.unit] == "text":
                garbled = self.engine.garbled
                filters += self.dialect.legible(unit)
                filters += [f"position({self.bind(garbled)} IN {unit}) = 0"] if garbled else []
            shown.insert(0, f"{unit} AS u")
        else:
            grouped = f" GROUP BY {', '.join(str(i + 1) for i in range(len(shown)))}" if shown else ""
            shown.append("count(*) AS n")
        where = f" WHERE {' AND '.join(filters)}" if filters else ""
        return f"SELECT {', '.join(shown)} FROM {self.engine.relation}{where}{grouped}"

    def key(self, column: Column) -> str:
        """What rows are grouped by: a value itself, or the number of the bin, guarded so it cannot overflow."""
        read = self.read(column)
        if column.listed or column.step == 1:
            return read
        low, high = self.bind(column.value(column.low)), self.bind(column.value(column.high))
        offset = self.offset(column, read, low)
        return f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {self.dialect.whole(offset, str(column.step))} END"

    def offset(self, column: Column, value: str, low: str) -> str:
        """How far a value of the domain is above its low end, in 64 bits."""
        if column.kind == "date":
            return self.dialect.days(value, low)
        return f"(CAST({value} AS BIGINT) - CAST({low} AS BIGINT))"

    def placed(self, question: Question, people: bool) -> str:
        """Flat cell numbers, the last group column running fastest."""
        terms, joins = [], []
        stride = question.cells
        for i, column in enumerate(question.by):
            stride //= column.keys
            index = f"d{i}.i" if column.listed else self.index(column, f"k{i}")
            if column.listed:
                joins.append(f"JOIN {self.listing(column)} AS d{i} ON k{i} = d{i}.v")
            terms.append(f"CAST({index} AS BIGINT) * {stride}")
        cell = " + ".join(terms) or "CAST(0 AS BIGINT)"
        kept = f"u, {cell} AS cell" if people else f"{cell} AS cell, n"
        return " ".join([f"SELECT {kept} FROM counted", *joins])

    def index(self, column: Column, key: str) -> str:
        """The index of a key in the range of its column, NULL for one that is not in it."""
        if column.step > 1:
            return key
        low, high = self.bind(column.value(column.low)), self.bind(column.value(column.high))
        return f"CASE WHEN {key} BETWEEN {low} AND {high} THEN {self.offset(column, key, low)} END"

    def listing(self, column: Column) -> str:
        """A relation (v, i) of a column's listed values and their indexes from 0."""
        return self.dialect.listed(self.bind(list(column.values)), column.kind)

    def bounded(self, question: Question, key: str) -> str:
        """At most `cells_per_person` cells of a person, chosen by a keyed hash, at most `sensitivity` rows in each."""
        limit, rows = question.schema.cells_per_person, question.sensitivity
        grouped = "SELECT u, cell, count(*) AS n FROM placed GROUP BY u, cell"
        if limit >= question.cells:
            return f"SELECT cell, least(n, {rows}) AS n FROM ({grouped}) AS pairs"
        if limit == rows == 1:  # one row of each person: which of the rows in the chosen cell does not matter
            grouped = "SELECT u, cell, 1 AS n FROM placed"
        text = self.dialect.types["text"]
        mixed = f"concat(CAST({self.bind(key)} AS {text}), '|', CAST(u AS {text}), '|', CAST(cell AS {text}))"
        rank = f"row_number() OVER (PARTITION BY u ORDER BY {self.dialect.digest(mixed)})"
        ranked = f"SELECT cell, n, {rank} AS place FROM ({grouped}) AS pairs"
        return f"SELECT cell, least(n, {rows}) AS n FROM ({ranked}) AS ranked WHERE place <= {limit}"
