"""Question -> one SQL statement, and how its SQL reads a column of a source as the declared type.

What an engine must provide to run these statements is in the docstring of `SqlEngine` (module `engine`).

**The statement.** Nothing in it comes from an analyst's text; every value of a condition is bound.

    counted   rows that satisfy the condition: the number of rows for each group key, or the person and key of each row
    placed    the same with cell numbers in place of keys; keys outside the domain are dropped, and so are
              combinations that a public list lacks; only then are a person's cells chosen
    words     if a person's cells must be chosen: an integer for each cell of each person; see module `bounding`
    kept      the words of the cells that are kept
    result    (cell, n), without cells that have no rows

Names of the statement cannot collide with column names of the source: the innermost SELECT gives all columns the
statement's names, and GROUP BY uses positions.

Rows without a person (NULL) are not counted, nor are rows in which the person's id contains `garbled`, which replaces
bytes that are not text: different people could have the same id.

**Reading.** There are few families of physical types and few ways to read one as another. A value that cannot be read
is *outside*: it reads as NULL, and `missing` distinguishes it from a true NULL. The same rules for all engines:

- integers: whole numbers of any numeric type (12.0 is 12, -0.0 is 0, 12.5 is outside); text of ASCII digits with an
  optional sign and a fraction of zeros, spaces around it ignored ("1e3", "0x10", "1_000" are outside);
- dates: dates; time stamps without zone by their day; text YYYY-MM-DD, also with a time without zone, spaces around it
  ignored;
- booleans: booleans; values that read as the integer 0 or 1; text true, false, t, f in any case, spaces around it
  ignored;
- text: text as it is, character by character; integers, and floats that are whole numbers, as their digits;
- floats are read if they are whole numbers below 2^53. Above, several integers become the same float, so it is outside,
  and rows whose person has such an id are not counted. Floats of 32 or 16 bits are the 64-bit floats that they equal;
- people: text, integers and 64-bit floats; narrower floats are refused in files and databases;
- NaN is a missing number, so it reads as NULL.

pandas turns integers into floats as soon as one is missing: every kind that reads integers also reads such floats.

A space is U+0020 and nothing else. No value of a source may make an engine fail: values that overflow are outside too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from countveil.data.engines.bounding import ContributionBounds
from countveil.data.engines.families import EXACT, FLOATS, Family, check_readable
from countveil.data.engines.steps import (
    DATE,
    MOST_COMPARED,
    StepDialect,
    between,
    bin_of,
    bins_by_value,
    is_joined,
    number_cells,
)
from countveil.query import Question
from countveil.query.axes import Axis
from countveil.query.condition import All, Membership, Typed, domain_of, null_of
from countveil.query.joint_axes import JointAxis
from countveil.query.points import contains, intersection, size
from countveil.query.schema import MAX_VALUES, Column, Kind, Value


class Dialect(StepDialect):
    """Writes standard SQL; the dialects of engines override what differs. Arguments and results are SQL expressions."""

    types: Mapping[Kind, str] = {"text": "VARCHAR", "integer": "BIGINT", "boolean": "BOOLEAN", "date": "DATE"}
    ignores_repeats = True  # `unnest_least` leaves out a w that is repeated, so rows need not be grouped before
    integer_text = "^[+-]?[0-9]+([.]0*)?$"
    date_text = DATE

    def name(self, name: str) -> str:
        """A quoted name."""
        return '"' + name.replace('"', '""') + '"'

    def characters(self, raw: str) -> str:
        """A text column, compared character by character. With the source's collation, one text could equal two
        declared values."""
        return raw

    def parameter(self, key: str) -> str:
        """A placeholder for a bound value."""
        return f"${key}"

    def matches(self, expression: str, pattern: str) -> str:
        raise NotImplementedError

    def try_cast(self, expression: str, kind: str) -> str:
        return f"TRY_CAST({expression} AS {kind})"

    def among(self, expression: str, parameter: str, kind: Kind) -> str:
        """A test: the value is in a bound list."""
        raise NotImplementedError

    def list_values(self, parameter: str, kind: Kind) -> str:
        """A relation (v, i) of the values in a bound list and their indexes from 0."""
        values = f"CAST({parameter} AS {self.types[kind]}[])"
        return f"(SELECT unnest({values}) AS v, generate_subscripts({values}, 1) - 1 AS i)"

    def legible(self, text: str) -> list[str]:
        """Tests that are true for valid text. None are needed if the source has only valid text."""
        return []

    def hash(self, person: str, cell: str, salt: str) -> str:
        """A 64-bit hash as a BIGINT that depends only on its arguments: equal people have equal hashes. A good hash
        puts a person's cells in an order that is as good as random."""
        raise NotImplementedError

    def unnest_least(self, limit: int, cells: int) -> str | None:
        """SQL for the `limit` smallest different words w of a group, each in a row of its own. Groups of up to `cells`
        different words are held in memory. None if a window shall find the smallest words."""
        return None

    def trim(self, expression: str) -> str:
        """A text without the spaces around it; other white space is kept."""
        return f"trim(BOTH ' ' FROM {expression})"

    def days(self, later: str, earlier: str) -> str:
        """The number of days between two dates."""
        return f"({later} - {earlier})"

    def whole(self, a: str, b: str) -> str:
        """The quotient of two non-negative integers, rounded down."""
        return f"({a} // {b})"

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, column: Column, family: Family, raw: str) -> str:
        """The value of a column as the declared type; NULL if it is missing or cannot be read as that type."""
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
        return f"CASE WHEN {raw} > -{EXACT} AND {raw} < {EXACT} THEN {number} END" if family in FLOATS else number

    def whole_number(self, family: Family, raw: str) -> str:
        """A float or decimal as an integer; NULL if it is not whole or is too large."""
        return f"CASE WHEN {raw} = trunc({raw}) THEN {self.try_cast(raw, 'BIGINT')} END"

    def parse(self, raw: str, pattern: str, value: Callable[[str], str]) -> str:
        """The value of a text that matches the pattern, ignoring spaces around it; NULL if the text does not match."""
        text = self.trim(raw)
        return f"CASE WHEN {self.matches(text, pattern)} THEN {value(text)} END"

    def parse_integer(self, text: str) -> str:
        return self.try_cast(text, "BIGINT")

    def parse_date(self, text: str) -> str:
        return self.try_cast(f"substr({text}, 1, 10)", "DATE")

    def read_text(self, family: Family, raw: str) -> str:
        value = self.read_integer(family, raw) if family in FLOATS else raw
        return f"CAST({value} AS {self.types['text']})"

    def read_person(self, family: Family, raw: str) -> str:
        """The value of a unit column as a person's id; NULL if it cannot be one."""
        return self.read_integer(family, raw) if family == "float" else raw

    def read_boolean(self, family: Family, raw: str) -> str:
        if family == "boolean":
            return raw
        number = f"CASE {self.read_integer(family, raw)} WHEN 1 THEN TRUE WHEN 0 THEN FALSE END"
        if family != "text":
            return number
        word = f"lower({self.trim(raw)})"
        return f"CASE WHEN {word} IN ('true', 't') THEN TRUE WHEN {word} IN ('false', 'f') THEN FALSE ELSE {number} END"

    def read_date(self, family: Family, raw: str) -> str:
        if family == "date":
            return raw
        if family == "timestamp":
            return self.try_cast(raw, "DATE")  # NULL if it is out of the range of dates
        return self.parse(raw, self.date_text, self.parse_date)

    def missing(self, family: Family, raw: str) -> str:
        """A test: the value is NULL or NaN."""
        return f"({raw} IS NULL OR isnan({raw}))" if family in FLOATS else f"{raw} IS NULL"


INLINE = 32


@dataclass(frozen=True)
class Statement:
    """SQL text, and the values that are bound to its parameters."""

    sql: str
    values: Mapping[str, object]


class Compiler:
    """Builds statements in one dialect that read one relation.

    `families` are the types of the relation's columns, `scales` the digits after the point of decimal columns.
    `garbled` is the source's substitute for bytes that are not text: people whose id contains it are not counted.
    """

    def __init__(
        self,
        dialect: Dialect,
        relation: str,
        families: Mapping[str, Family],
        garbled: str | None = None,
        scales: Mapping[str, int] | None = None,
    ) -> None:
        self.dialect, self.relation, self.families, self.garbled = dialect, relation, families, garbled
        self.scales = scales or {}
        self.values: dict[str, object] = {}

    def statement(self, sql: str) -> Statement:
        return Statement(sql, dict(self.values))

    def bind(self, value: object) -> str:
        """Bind a value to a new parameter; return the parameter's placeholder."""
        key = f"p{len(self.values)}"
        self.values[key] = value
        return self.dialect.parameter(key)

    # -- columns -----------------------------------------------------------------------------------------------------

    def raw(self, name: str) -> str:
        """A column of the source; text is compared character by character, and narrow floats as 64-bit floats."""
        quoted = self.dialect.name(name)
        if self.families[name] == "single":
            return f"CAST({quoted} AS {self.dialect.double})"
        return self.dialect.characters(quoted) if self.families[name] == "text" else quoted

    def read(self, column: Column) -> str:
        """The value of a column as its declared type."""
        return self.dialect.read(column, self.families[column.name], self.raw(column.name))

    def person(self, name: str) -> str:
        """The value of the unit column `name` as a person's id; NULL if it cannot be one."""
        return self.dialect.read_person(self.families[name], self.raw(name))

    def identifies(self, name: str) -> list[str]:
        """Tests that are true if the value of the unit column `name` identifies a person."""
        unit = self.person(name)
        tests = [f"{unit} IS NOT NULL"]
        if self.families[name] == "text":
            tests += self.dialect.legible(unit)
            tests += [f"position({self.bind(self.garbled)} IN {unit}) = 0"] if self.garbled else []
        return tests

    def missing(self, column: Column) -> str:
        return self.dialect.missing(self.families[column.name], self.raw(column.name))

    # -- conditions --------------------------------------------------------------------------------------------------

    def condition(self, where: Typed) -> str:
        """A condition as SQL. It is true for exactly the rows that the condition accepts, and never fails."""
        if isinstance(where, Membership):
            return self.member(where)
        if not where.parts:
            return "TRUE" if isinstance(where, All) else "FALSE"
        joint = " AND " if isinstance(where, All) else " OR "
        return "(" + joint.join(self.condition(part) for part in where.parts) + ")"

    def member(self, member: Membership) -> str:
        column = member.column
        inside = intersection(member.points, domain_of(column))
        tests = [] if not contains(member.points, null_of(column)) else [self.missing(column)]
        if column.cuts:
            tests += [between(self, column, low, high) for low, high in inside]
            inside = ()
        elif not column.is_listed and (len(inside) <= MOST_COMPARED or size(inside) > MAX_VALUES):
            long = [piece for piece in inside if piece[0] < piece[1]]
            tests += [between(self, column, low, high) for low, high in long]
            inside = tuple(piece for piece in inside if piece[0] == piece[1])
        if inside:
            tests.append(self.among(column, [column.value(p) for low, high in inside for p in range(low, high + 1)]))
        return "(" + (" OR ".join(tests) or "FALSE") + ")"

    def among(self, column: Column, members: list[Value]) -> str:
        if len(members) > INLINE:
            return self.dialect.among(self.read(column), self.bind(members), column.kind)
        return f"{self.read(column)} IN ({', '.join(self.bind(value) for value in members)})"

    # -- counting ----------------------------------------------------------------------------------------------------

    def count(self, question: Question, salt: int) -> Statement:
        """The statement that counts a question. `salt` chooses the cells of people with rows in too many."""
        people = not question.schema.unit_is_row
        keys = [self.key(part) for part in question.parts]
        parts = {
            "counted": self.select_counts(question, keys, people),
            "placed": self.select_cells(question, people),
        }
        result = "SELECT cell, n FROM placed"  # one row for each cell already
        if people:
            limit, rows = question.schema.cells_per_person, question.sensitivity
            bounds = ContributionBounds(question.cells, limit, rows, self.dialect.whole)
            if bounds.keep_all:
                more, result = bounds.select_all()
            else:
                hashed = self.hash(question.schema.unit, self.bind(salt))
                least = self.dialect.unnest_least(limit, question.cells)
                more, result = bounds.select_some(hashed, least, ignores_repeats=self.dialect.ignores_repeats)
            parts |= more
        elif any(is_joined(part) and not part.is_plain for part in question.parts):  # several values of one bin
            result = "SELECT cell, CAST(sum(n) AS BIGINT) AS n FROM placed GROUP BY cell"
        return self.statement(f"WITH {', '.join(f'{name} AS ({sql})' for name, sql in parts.items())} {result}")

    def hash(self, unit: str, salt: str) -> str:
        """The hash of person u, cell and salt; `unit` is the column that identifies people."""
        return self.dialect.hash("u", "cell", salt)

    def select_counts(self, question: Question, keys: list[str], people: bool) -> str:
        filters = [self.condition(question.where)] if question.where is not None else []
        ranges = [part.source for part in question.parts if part.is_plain and not part.source.is_listed]
        filters += [between(self, column, column.low, column.high) for column in ranges]
        shown = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        grouped = ""
        if people:
            filters += self.identifies(question.schema.unit)
            shown.insert(0, f"{self.person(question.schema.unit)} AS u")
        else:
            grouped = f" GROUP BY {', '.join(str(i + 1) for i in range(len(shown)))}" if shown else ""
            shown.append("count(*) AS n")
        where = f" WHERE {' AND '.join(filters)}" if filters else ""
        return f"SELECT {', '.join(shown)} FROM {self.relation}{where}{grouped}"

    def key(self, axis: Axis) -> str:
        """The expression by which rows are grouped: the value, or the number of its bin. It cannot overflow."""
        column = axis.source
        if not (axis.is_plain or is_joined(axis)):
            return bin_of(self, axis)
        read = self.read(column)
        if is_joined(axis) or column.step == 1:
            return read
        low, high = self.bind(column.value(column.low)), self.bind(column.value(column.high))
        offset = self.offset(column, read, low)
        return f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {self.dialect.whole(offset, str(column.step))} END"

    def offset(self, column: Column, value: str, low: str) -> str:
        """The distance of a value from the lower end of its domain, as a 64-bit integer."""
        if column.kind == "date":
            return self.dialect.days(value, low)
        return f"(CAST({value} AS BIGINT) - CAST({low} AS BIGINT))"

    def select_cells(self, question: Question, people: bool) -> str:
        """SQL for flat cell numbers, the last axis changing fastest; combinations that cannot exist are left out."""
        joins, tests, indexes = [], [], []
        for i, part in enumerate(question.parts):
            if is_joined(part):
                joins.append(f"JOIN {self.listing(part)} AS d{i} ON k{i} = d{i}.v")
            elif not part.is_plain:
                tests.append(f"k{i} IS NOT NULL")
            indexes.append(f"d{i}.i" if is_joined(part) else self.index(part, f"k{i}"))
        numbers: list[str] = []
        for i, axis in enumerate(question.axes):
            own, indexes = indexes[: len(axis.parts)], indexes[len(axis.parts) :]
            if isinstance(axis, JointAxis):
                number = number_cells(own, [part.size for part in axis.parts])
                joins.append(f"JOIN {self.numbering(axis)} AS j{i} ON {number} = j{i}.v")
                own = [f"j{i}.i"]
            numbers += own
        cell = number_cells(numbers, question.shape)
        kept = f"u, {cell} AS cell" if people else f"{cell} AS cell, n"
        where = [f"WHERE {' AND '.join(tests)}"] if tests else []
        return " ".join([f"SELECT {kept} FROM counted", *joins, *where])

    def index(self, axis: Axis, key: str) -> str:
        """The index that belongs to a key within the range of its source; NULL for a key outside the range."""
        column = axis.source
        if column.step > 1 or not axis.is_plain:
            return key
        low, high = self.bind(column.value(column.low)), self.bind(column.value(column.high))
        return f"CASE WHEN {key} BETWEEN {low} AND {high} THEN {self.offset(column, key, low)} END"

    def listing(self, axis: Axis) -> str:
        """A relation (v, i) of the values of an axis and the number of each value's bin."""
        values, bins = bins_by_value(axis)
        if axis.is_plain:
            return self.dialect.list_values(self.bind(values), axis.source.kind)
        return self.dialect.list_bins(self.bind(values), self.bind(bins), axis.source.kind)

    def numbering(self, axis: JointAxis) -> str:
        """A relation (v, i) of the combinations that can exist.

        v is the number of a combination in the product of the parts, i its index among those that can exist.
        """
        return self.dialect.list_values(self.bind(axis.numbers.tolist()), "integer")
