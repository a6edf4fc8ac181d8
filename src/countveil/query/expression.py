"""Queries and conditions as they are built from SQL text or in Python, before they are checked against a schema.

Positions count the characters of the SQL text from 1. They appear only in error messages; comparisons ignore them.

    where = (cv.col("age") >= 65) & cv.col("region").isin(["North", "South"])
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from countveil.errors import QueryError
from countveil.query.schema import INT64
from countveil.query.tokens import ARITHMETIC, UNWRITABLE, literal

MAX_LIST = 10_000
MAX_NODES = 20_000
MAX_DEPTH = 200

Literal = str | int | bool | datetime.date

FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column or dataset. A name that is not quoted in SQL matches names that differ only by case."""

    text: str
    quoted: bool = True
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal value and its position in the SQL text."""

    value: Literal
    at: int | None = field(default=None, compare=False)


class Condition:
    """A condition on one row. Conditions combine with & (and), | (or) and ~ (not)."""

    __slots__ = ()

    def __and__(self, other: object) -> Both:
        before = self.parts if isinstance(self, Both) else (self,)
        return Both((*before, _condition(other)))

    def __or__(self, other: object) -> Either:
        before = self.parts if isinstance(self, Either) else (self,)
        return Either((*before, _condition(other)))

    def __rand__(self, other: object) -> NoReturn:
        raise _not_a_condition(other)

    __ror__ = __rand__

    def __invert__(self) -> Negation:
        return Negation(self)

    def __bool__(self) -> NoReturn:
        raise QueryError(
            "a condition has no truth value in Python", "join conditions with & | ~, not with and, or, not"
        )


@dataclass(frozen=True, slots=True)
class ColumnComparison(Condition):
    """The test `column op constant`, where op is one of = <> < <= > >=."""

    column: Name
    op: str
    constant: Constant


@dataclass(frozen=True, slots=True)
class Among(Condition):
    """The test `column IN (constants)`."""

    column: Name
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Between(Condition):
    """The test `column BETWEEN low AND high`; low and high are included."""

    column: Name
    low: Constant
    high: Constant


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """The test `column IS NULL`."""

    column: Name


@dataclass(frozen=True, slots=True)
class Both(Condition):
    """A conjunction (AND): true if every part is true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either(Condition):
    """A disjunction (OR): true if some part is true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation(Condition):
    """A negation (NOT): true if the part is false; not true if the part is unknown because of NULL."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Query:
    """The query SELECT by, count(*) AS name FROM dataset WHERE where GROUP BY by.

    If `distinct` is given, the query has count(DISTINCT distinct) in place of count(*).
    """

    dataset: Name
    by: tuple[Name, ...] = ()
    where: Condition | None = None
    distinct: Name | None = None
    name: str = "count"


class ColumnReference:
    """A column in a condition that is written in Python, such as `cv.col("age") >= 65`."""

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise QueryError(f"a column name of type {type(name).__name__}", 'give the name as text: cv.col("age")')
        _check_text(name)
        self._name = Name(name)

    def __eq__(self, other: object) -> ColumnComparison:  # type: ignore[override]
        return ColumnComparison(self._name, "=", _constant(other))

    def __ne__(self, other: object) -> ColumnComparison:  # type: ignore[override]
        return ColumnComparison(self._name, "<>", _constant(other))

    def __lt__(self, other: object) -> ColumnComparison:
        return ColumnComparison(self._name, "<", _constant(other))

    def __le__(self, other: object) -> ColumnComparison:
        return ColumnComparison(self._name, "<=", _constant(other))

    def __gt__(self, other: object) -> ColumnComparison:
        return ColumnComparison(self._name, ">", _constant(other))

    def __ge__(self, other: object) -> ColumnComparison:
        return ColumnComparison(self._name, ">=", _constant(other))

    def isin(self, values: Iterable[object]) -> Among:
        """The condition that the column's value is one of `values`."""
        if isinstance(values, (str, bytes)):
            raise QueryError("isin with a text", 'give a list: col("region").isin(["North"])')
        if not isinstance(values, Iterable):
            raise QueryError(
                f"isin with a value of type {type(values).__name__}", 'give a list: col("region").isin(["North"])'
            )
        constants: list[Constant] = []
        for value in values:
            constants.append(_constant(value))
            if len(constants) > MAX_LIST:
                raise QueryError("a list of too many values", f"at most {MAX_LIST} are allowed")
        return Among(self._name, tuple(constants))

    def between(self, low: object, high: object) -> Between:
        """The condition low <= value <= high."""
        return Between(self._name, _constant(low), _constant(high))

    def is_null(self) -> IsNull:
        """The condition that the column has no value (is NULL)."""
        return IsNull(self._name)

    def __and__(self, other: object) -> NoReturn:
        raise _not_a_condition(self)

    __or__ = __rand__ = __ror__ = __and__

    def __invert__(self) -> NoReturn:
        raise _not_a_condition(self)

    def __add__(self, other: object) -> NoReturn:
        raise QueryError(*ARITHMETIC)

    __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __add__
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __add__

    def __bool__(self) -> NoReturn:
        raise QueryError("a column has no truth value in Python", 'compare it: cv.col("ok") == True')

    def __repr__(self) -> str:
        return f"col({self._name.text!r})"


def col(name: str) -> ColumnReference:
    """A column of the dataset, to be compared with values.

    Args:
        name: The name of a declared column.

    Returns:
        A reference to the column. Its operators `==`, `!=`, `<`, `<=`, `>`, `>=` and its methods `isin`, `between` and
        `is_null` return conditions, which can be combined with `&`, `|` and `~`.

    Raises:
        QueryError: A comparison with a value that the query language does not have.

    >>> (col("age") >= 65) & ~col("region").isin(["North"])  # doctest: +ELLIPSIS
    Both(parts=(ColumnComparison(column=Name(text='age', ...
    """
    return ColumnReference(name)


def _constant(value: object) -> Constant:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():  # numpy scalars
        value = item()
    if isinstance(value, ColumnReference):
        raise QueryError("a comparison of two columns", "compare a column with a value")
    if value is None:
        raise QueryError("a comparison with None", 'write col("age").is_null()')
    if isinstance(value, datetime.datetime) or not isinstance(value, (str, int, bool, datetime.date)):
        raise QueryError(f"a value of type {type(value).__name__}", "values are text, integers, booleans or dates")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int) and not INT64[0] <= value <= INT64[1]:
        raise QueryError("a number beyond 64 bits", "whole numbers lie in -2^63..2^63-1")
    return Constant(value)


def _check_text(text: str) -> None:
    unwritable = UNWRITABLE.search(text)
    if unwritable:
        raise QueryError(f"the character U+{ord(unwritable.group()):04X}", "remove it")


def _condition(value: object) -> Condition:
    if not isinstance(value, Condition):
        raise _not_a_condition(value)
    return value


def _not_a_condition(value: object) -> QueryError:
    what = "a column" if isinstance(value, ColumnReference) else f"a value of type {type(value).__name__}"
    return QueryError(
        f"{what} in place of a condition", 'put comparisons in parentheses: (col("a") == 1) & (col("b") == 2)'
    )


# -- as text of the query language -------------------------------------------------------------------------------------


def write_condition(condition: Condition, depth: int = 0) -> str:
    """The condition as SQL text that can follow WHERE, with parentheses only where they are needed.

    >>> write_condition((col("age") >= 65) & ~(col("town").isin(["Ash", "O'Hara"]) | col("age").is_null()))
    '"age" >= 65 AND NOT ("town" IN (\\'Ash\\', \\'O\\'\\'Hara\\') OR "age" IS NULL)'
    """
    if depth > MAX_DEPTH:
        raise QueryError(
            "a condition of too many parts", f"at most {MAX_NODES} parts, nested {MAX_DEPTH} deep, are allowed"
        )
    if isinstance(condition, Negation):
        part = condition.part
        if isinstance(part, Negation):
            return write_condition(part.part, depth + 2)
        inner = write_condition(part, depth + 1)
        return f"NOT ({inner})" if isinstance(part, (Both, Either)) else f"NOT {inner}"
    if isinstance(condition, Both):
        return " AND ".join(_operand(part, depth + 1) for part in condition.parts)
    if isinstance(condition, Either):
        return " OR ".join(write_condition(part, depth + 1) for part in condition.parts)
    return _write_test(condition)


def _operand(part: Condition, depth: int) -> str:
    """The text of one operand of AND: a condition with OR gets parentheses, even inside a double negation."""
    while isinstance(part, Negation) and isinstance(part.part, Negation):
        part, depth = part.part.part, depth + 2
    text = write_condition(part, depth)
    return f"({text})" if isinstance(part, Either) else text


def _write_test(test: Condition) -> str:
    if isinstance(test, ColumnComparison):
        return f"{_quoted_name(test.column)} {test.op} {literal(test.constant.value)}"
    if isinstance(test, Between):
        return f"{_quoted_name(test.column)} BETWEEN {literal(test.low.value)} AND {literal(test.high.value)}"
    if isinstance(test, IsNull):
        return f"{_quoted_name(test.column)} IS NULL"
    if not isinstance(test, Among):
        raise QueryError(f"a condition of type {type(test).__name__}", 'write cv.col("age") >= 65')
    if not test.constants:
        raise QueryError("an empty list of values", "name at least one value")
    return f"{_quoted_name(test.column)} IN ({', '.join(literal(constant.value) for constant in test.constants)})"


def _quoted_name(name: Name) -> str:
    """The name in double quotes, because names that are given in Python are matched with their case."""
    return '"' + name.text.replace('"', '""') + '"'
