"""The question: a closed, typed language for "how many?", with SQL text and Python as its two syntaxes.

    text --tokens, sql--> Query --question--> Question (typed, simplified, hashed) --> an engine
    Python (expression) --^

Nothing but `Question` goes further: declared columns, comparisons with literals, IN, BETWEEN, IS NULL, AND, OR, NOT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from countveil.errors import QueryError, shortened
from countveil.query.expression import Condition, Name, Query, col, count_name
from countveil.query.question import Question, bind
from countveil.query.sql import parse, parse_condition
from countveil.query.writing import written
from countveil.schema import MAX_NAME, Schema

__all__ = ["Condition", "Query", "Question", "ask", "bind", "check_form", "col", "parse", "parse_condition", "written"]


def ask(
    schemas: Schema | Mapping[str, Schema],
    sql: str | None = None,
    *,
    dataset: str | None = None,
    by: str | Iterable[str] = (),
    where: Condition | str | None = None,
    people: bool = False,
    name: str | None = None,
) -> Question:
    """The question asked by SQL text, or by the Python form `dataset`, `by`, `where`, `people`.

    >>> from countveil.schema import Column
    >>> people = Schema("people", (Column("age", "integer", low=0, high=120, step=10),))
    >>> ask(people, "SELECT count(*) FROM people WHERE NOT age < 65").text
    'SELECT count(*) FROM people WHERE age >= 65'
    >>> ask(people, dataset="people", where=col("age") >= 65) == ask(people, "SELECT count(*) FROM people WHERE age>64")
    True
    """
    known = {schemas.name: schemas} if isinstance(schemas, Schema) else schemas
    if sql is not None:
        if dataset is not None or by or where is not None or people or name is not None:
            raise QueryError("SQL text together with dataset, by, where, people or name", "give one or the other")
        query = parse(sql)
    else:
        query = _from_python(known, dataset, by, where, people, name)
    return bind(query, _schema(query.dataset, known))


def _from_python(
    known: Mapping[str, Schema],
    dataset: str | None,
    by: str | Iterable[str],
    where: Condition | str | None,
    people: bool,
    name: str | None,
) -> Query:
    if dataset is None:
        if len(known) != 1:
            raise QueryError("no dataset", f"name one of {', '.join(sorted(known))}")
        dataset = next(iter(known))
    columns = check_form(dataset, by, where, name)
    name = count_name(columns) if name is None else name
    condition = parse_condition(where) if isinstance(where, str) else where
    schema = known.get(dataset)
    distinct = Name(schema.unit) if people and schema is not None and not schema.unit_is_row else None
    return Query(Name(dataset), tuple(Name(column) for column in columns), condition, distinct, name)


def check_form(
    dataset: str | None, by: str | Iterable[str], where: Condition | str | None, name: str | None
) -> list[str]:
    """The group columns of the Python form; what no schema could allow is refused."""
    if dataset is not None and not isinstance(dataset, str):
        raise QueryError(f"a dataset named by {type(dataset).__name__}", 'write dataset="people"')
    if not isinstance(by, Iterable):
        raise QueryError(f"a column named by {type(by).__name__}", 'write by=["region"]')
    columns: dict[str, None] = {}
    for column in [by] if isinstance(by, str) else by:
        if not isinstance(column, str):
            raise QueryError(f"a column named by {type(column).__name__}", 'write by=["region"]')
        if column in columns:
            raise QueryError(f"the column {shortened(column, 40)} twice", "name each column once")
        columns[column] = None
    if name is not None and (not _nameable(name) or name in columns):
        raise QueryError(f"the name {shortened(name, 40)} for the count", "give the count a name of its own")
    if where is not None and not isinstance(where, (str, Condition)):
        raise QueryError(f"where of type {type(where).__name__}", 'write where=cv.col("age") >= 65')
    return list(columns)


def _nameable(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME


def _schema(name: Name, known: Mapping[str, Schema]) -> Schema:
    found = known.get(name.text)
    if found is None and not name.quoted:
        alike = [other for other in known if other.isascii() and other.lower() == name.text.lower()]
        found = known[alike[0]] if len(alike) == 1 else None
    if found is None:
        names = shortened(", ".join(sorted(known)), 100)
        raise QueryError(f"the dataset {shortened(name.text, 40)} is not declared", f"declared are {names}", name.at)
    return found
