"""Question -> one SQL statement. Nothing in it comes from an analyst's text; every value of a condition is bound.

    counted   rows that satisfy the condition: their group keys and how many there are of each, or the person of each
    placed    the same with the flat number of their cell, keys outside the domain gone
    bounded   of each person at most `cells_per_person` cells, with at most `rows_per_person` rows in each
    answer    (cell, n), cells without rows left out

Names of ours never meet names of the source: they are given in the innermost SELECT, and GROUP BY counts positions.

Guarantee (bounding): what is kept of a person depends on that person's rows and the key alone, because ranks are taken
within the person. Removing a person removes exactly that person's kept rows: at most `cells_per_person` cells change,
each by at most `rows_per_person`, and nobody else's rows move. Rows that name no person (NULL) are not counted, nor
rows whose person cannot be read: where a source puts `garbled` for what is no text, they could be one person or many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from countveil.engines.dialect import Dialect, Family
from countveil.query import Question
from countveil.query.condition import All, Member, Typed, contains, domain_of, intersection, null_of
from countveil.schema import Column, Value

INLINE = 32


@dataclass(frozen=True)
class Statement:
    """SQL text and the values bound to its parameters."""

    sql: str
    values: Mapping[str, object]


class Compiler:
    """Builds statements against one source: `relation` is its SQL name, `families` the types of its columns; `stored`
    names columns beside the declared ones that hold, for a listed one, the index of its value, NULL outside."""

    def __init__(
        self,
        dialect: Dialect,
        relation: str,
        families: Mapping[str, Family],
        garbled: str | None = None,
        stored: Mapping[Column, str] | None = None,
    ) -> None:
        self.garbled, self.stored = garbled, stored or {}
        self.dialect = dialect
        self.relation = relation
        self.families = families
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
            answer = f"SELECT cell, CAST(sum(n) AS {self.dialect.integer_type}) AS n FROM bounded GROUP BY cell"
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
                filters += self.dialect.legible(unit)
                filters += [f"position({self.bind(self.garbled)} IN {unit}) = 0"] if self.garbled else []
            shown.insert(0, f"{unit} AS u")
        else:
            grouped = f" GROUP BY {', '.join(str(i + 1) for i in range(len(shown)))}" if shown else ""
            shown.append("count(*) AS n")
        where = f" WHERE {' AND '.join(filters)}" if filters else ""
        return f"SELECT {', '.join(shown)} FROM {self.relation}{where}{grouped}"

    def key(self, column: Column) -> str:
        """What rows are grouped by: a listed value itself, or its stored index, or the number of the bin, guarded so it
        cannot overflow."""
        if column in self.stored:
            return self.dialect.name(self.stored[column])
        read = self.read(column)
        if column.listed or column.step == 1:
            return read
        low, high = self.bind(column.value(column.low)), self.bind(column.value(column.high))
        offset = self.offset(column, read, low)
        return f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {self.dialect.whole(offset, str(column.step))} END"

    def above(self, column: Column) -> str:
        """How far the point of a value is above the least of its column, NULL for a value that is not in the domain."""
        if column in self.stored:
            return self.dialect.name(self.stored[column])
        return self.within(column, self.read(column))

    def within(self, column: Column, value: str) -> str:
        """How far a value is above the low end of its range, NULL for one that is not in it."""
        low, high = self.bind(column.value(column.low)), self.bind(column.value(column.high))
        return f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {self.offset(column, value, low)} END"

    def offset(self, column: Column, value: str, low: str) -> str:
        """How far a value of the domain is above its low end, in 64 bits."""
        if column.kind == "date":
            return self.dialect.days(value, low)
        wide = self.dialect.integer_type
        return f"(CAST({value} AS {wide}) - CAST({low} AS {wide}))"

    def placed(self, question: Question, people: bool) -> str:
        """Flat cell numbers, the last group column running fastest."""
        terms, joins, known = [], [], []
        stride = question.cells
        for i, column in enumerate(question.by):
            stride //= column.keys
            if not column.listed:
                index = self.index(column, f"k{i}")
            elif column in self.stored:
                index = f"k{i}"
                known.append(f"{index} IS NOT NULL")
            else:
                index = f"d{i}.i"
                joins.append(f"JOIN {self.listing(column)} AS d{i} ON k{i} = d{i}.v")
            terms.append(f"CAST({index} AS {self.dialect.integer_type}) * {stride}")
        cell = " + ".join(terms) or f"CAST(0 AS {self.dialect.integer_type})"
        kept = f"u, {cell} AS cell" if people else f"{cell} AS cell, n"
        where = [f"WHERE {' AND '.join(known)}"] if known else []
        return " ".join([f"SELECT {kept} FROM counted", *joins, *where])

    def index(self, column: Column, key: str) -> str:
        """The index of a key in the range of its column."""
        return key if column.step > 1 else self.within(column, key)

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
        text = self.dialect.text_type
        mixed = f"concat(CAST({self.bind(key)} AS {text}), '|', CAST(u AS {text}), '|', CAST(cell AS {text}))"
        rank = f"row_number() OVER (PARTITION BY u ORDER BY {self.dialect.digest(mixed)})"
        ranked = f"SELECT cell, n, {rank} AS place FROM ({grouped}) AS pairs"
        return f"SELECT cell, least(n, {rows}) AS n FROM ({ranked}) AS ranked WHERE place <= {limit}"
