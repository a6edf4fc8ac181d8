"""What an analyst writes: an untyped question, from SQL text or from Python.

The nodes know nothing of a schema. Positions (characters from 1) are carried for messages and never compared.

    where = (cv.col("age") >= 65) & cv.col("region").isin(["North", "South"])
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from countveil.errors import QueryError

Literal = str | int | bool | datetime.date

FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column or dataset; unquoted names of SQL text may differ in case."""

    text: str
    quoted: bool = True
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal and where it stands."""

    value: Literal
    at: int | None = field(default=None, compare=False)


class Condition:
    """A condition on one row; combine with & | ~."""

    __slots__ = ()

    def __and__(self, other: object) -> Both:
        before = self.parts if isinstance(self, Both) else (self,)
        return Both((*before, _condition(other)))

    def __or__(self, other: object) -> Either:
        before = self.parts if isinstance(self, Either) else (self,)
        return Either((*before, _condition(other)))

    def __invert__(self) -> Negation:
        return Negation(self)

    def __bool__(self) -> NoReturn:
        raise QueryError(
            "a condition has no truth value of its own", "join conditions with & | ~, not with and, or, not"
        )


@dataclass(frozen=True, slots=True)
class Comparison(Condition):
    """column op constant, op one of = <> < <= > >=."""

    column: Name
    op: str
    constant: Constant


@dataclass(frozen=True, slots=True)
class Among(Condition):
    """column IN (constants)."""

    column: Name
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Between(Condition):
    """column BETWEEN low AND high, both included."""

    column: Name
    low: Constant
    high: Constant


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """column IS NULL."""

    column: Name


@dataclass(frozen=True, slots=True)
class Both(Condition):
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either(Condition):
    """Some part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Negation(Condition):
    """The part is false (not merely unknown)."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT by, count(*) or count(DISTINCT distinct) AS name FROM dataset WHERE where GROUP BY by."""

    dataset: Name
    by: tuple[Name, ...] = ()
    where: Condition | None = None
    distinct: Name | None = None
    name: str = "count"


class ColumnReference:
    """A column in a Python condition: `cv.col("age") >= 65`."""

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise QueryError(f"a column named by {type(name).__name__}", 'write cv.col("age")')
        self._name = Name(name)

    def __eq__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison(self._name, "=", _constant(other))

    def __ne__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison(self._name, "<>", _constant(other))

    def __lt__(self, other: object) -> Comparison:
        return Comparison(self._name, "<", _constant(other))

    def __le__(self, other: object) -> Comparison:
        return Comparison(self._name, "<=", _constant(other))

    def __gt__(self, other: object) -> Comparison:
        return Comparison(self._name, ">", _constant(other))

    def __ge__(self, other: object) -> Comparison:
        return Comparison(self._name, ">=", _constant(other))

    def isin(self, values: Iterable[object]) -> Among:
        """The value is one of these."""
        if isinstance(values, (str, bytes)):
            raise QueryError("isin of a text", 'give a list: col("region").isin(["North"])')
        return Among(self._name, tuple(_constant(value) for value in values))

    def between(self, low: object, high: object) -> Between:
        """low <= value <= high."""
        return Between(self._name, _constant(low), _constant(high))

    def is_null(self) -> IsNull:
        """The value is missing."""
        return IsNull(self._name)

    def __repr__(self) -> str:
        return f"col({self._name.text!r})"


def col(name: str) -> ColumnReference:
    """A column of the dataset, to compare with values.

    >>> (col("age") >= 65) & ~col("region").isin(["North"])  # doctest: +ELLIPSIS
    Both(parts=(Comparison(column=Name(text='age', ...
    """
    return ColumnReference(name)


def _constant(value: object) -> Constant:
    item = getattr(value, "item", None)
    if callable(item):  # numpy scalars
        value = item()
    if isinstance(value, ColumnReference):
        raise QueryError("a comparison of two columns", "compare a column with a value")
    if value is None:
        raise QueryError("a comparison with None", 'write col("age").is_null()')
    if isinstance(value, datetime.datetime) or not isinstance(value, (str, int, bool, datetime.date)):
        raise QueryError(f"a value of type {type(value).__name__}", "values are text, integers, booleans or dates")
    return Constant(value)


def _condition(value: object) -> Condition:
    if not isinstance(value, Condition):
        hint = 'put comparisons in parentheses: (col("a") == 1) & (col("b") == 2)'
        raise QueryError(f"{type(value).__name__} is not a condition", hint)
    return value
