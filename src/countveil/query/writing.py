"""A condition of Python as text of the query language, for a question that travels; it parses to the same."""

from __future__ import annotations

from countveil.errors import QueryError
from countveil.query.expression import Among, Between, Both, Comparison, Condition, Either, IsNull, Name, Negation
from countveil.query.question import MAX_DEPTH, MAX_NODES
from countveil.query.tokens import literal


def written(condition: Condition, depth: int = 0) -> str:
    """The condition as it is written after WHERE, with parentheses where they are needed and nowhere else.

    >>> from countveil.query.expression import col
    >>> written((col("age") >= 65) & ~(col("town").isin(["Ash", "O'Hara"]) | col("age").is_null()))
    '"age" >= 65 AND NOT ("town" IN (\\'Ash\\', \\'O\\'\\'Hara\\') OR "age" IS NULL)'
    """
    if depth > MAX_DEPTH:
        raise QueryError("a condition of too many parts", f"at most {MAX_NODES}, {MAX_DEPTH} deep, are allowed")
    if isinstance(condition, Negation):
        part = condition.part
        if isinstance(part, Negation):
            return written(part.part, depth + 2)
        inner = written(part, depth + 1)
        return f"NOT ({inner})" if isinstance(part, (Both, Either)) else f"NOT {inner}"
    if isinstance(condition, Both):
        return " AND ".join(_operand(part, depth + 1) for part in condition.parts)
    if isinstance(condition, Either):
        return " OR ".join(written(part, depth + 1) for part in condition.parts)
    return _test(condition)


def _operand(part: Condition, depth: int) -> str:
    """A part of a conjunction; OR binds less than AND, also below a double negation."""
    while isinstance(part, Negation) and isinstance(part.part, Negation):
        part, depth = part.part.part, depth + 2
    shown = written(part, depth)
    return f"({shown})" if isinstance(part, Either) else shown


def _test(test: Condition) -> str:
    if isinstance(test, Comparison):
        return f"{_name(test.column)} {test.op} {literal(test.constant.value)}"
    if isinstance(test, Between):
        return f"{_name(test.column)} BETWEEN {literal(test.low.value)} AND {literal(test.high.value)}"
    if isinstance(test, IsNull):
        return f"{_name(test.column)} IS NULL"
    if not isinstance(test, Among):
        raise QueryError(f"a condition of type {type(test).__name__}", 'write cv.col("age") >= 65')
    if not test.constants:
        raise QueryError("an empty list of values", "name at least one value")
    return f"{_name(test.column)} IN ({', '.join(literal(constant.value) for constant in test.constants)})"


def _name(name: Name) -> str:
    """Always in quotes: a column of Python is meant as it is spelled."""
    return '"' + name.text.replace('"', '""') + '"'
