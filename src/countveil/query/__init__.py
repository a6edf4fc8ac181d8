"""The question: a closed, typed language for "how many?", with SQL text and Python as its two syntaxes.

    text --tokens, sql--> Query --question--> Question (typed, simplified, hashed) --> an engine
    Python (expression) --^

Nothing but `Question` goes further: declared columns, comparisons with literals, IN, BETWEEN, IS NULL, AND, OR, NOT.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from countveil.errors import QueryError, shortened
from countveil.query.expression import Condition, Name, Query, col, count_name, written
from countveil.query.question import Question, bind
from countveil.query.sql import parse, parse_condition
from countveil.schema import MAX_NAME, Schema

__all__ = [
    "Condition",
    "Form",
    "Query",
    "Question",
    "ask",
    "bind",
    "check_form",
    "col",
    "parse",
    "parse_condition",
    "take_question",
    "written",
]


class Form(TypedDict, total=False):
    """A question in Python: which dataset, grouped by which columns, under which condition.

    `people` counts people and not rows; `name` is the name of the count in the answer.
    """

    dataset: str | None
    by: str | Iterable[str]
    where: Condition | str | None
    people: bool
    name: str | None


def ask(
    schemas: Schema | Mapping[str, Schema], question: str | Question | None = None, **form: Unpack[Form]
) -> Question:
    """The question asked by SQL text, or by the Python form; one that was asked before of the same schema is itself.

    >>> from countveil.schema import Column
    >>> people = Schema("people", (Column("age", "integer", low=0, high=120, step=10),))
    >>> asked = ask(people, "SELECT count(*) FROM people WHERE NOT age < 65")
    >>> asked.text
    'SELECT count(*) FROM people WHERE age >= 65'
    >>> ask(people, dataset="people", where=col("age") >= 65) == ask(people, asked) == asked
    True
    """
    known = {schemas.name: schemas} if isinstance(schemas, Schema) else schemas
    question = take_question(question, form)
    _check_keywords(form)
    if question is None:
        query = _from_python(known, **form)
    elif _says_something(form):
        what = "a question" if isinstance(question, Question) else "SQL text"
        raise QueryError(f"{what} together with dataset, by, where, people or name", "give one or the other")
    elif isinstance(question, Question):
        if _schema(Name(question.schema.name), known) != question.schema:
            raise QueryError("a question that was asked of another schema", "ask it again, by its text")
        return question
    else:
        query = parse(question)
    return bind(query, _schema(query.dataset, known))


def take_question(question: str | Question | None, form: Form) -> str | Question | None:
    """The question, also by its old name `sql`, which is accepted for one release."""
    given: Any = form
    if question is not None or "sql" not in given:
        return question
    warnings.warn("sql= is question= now; or give the text as the first argument", DeprecationWarning, stacklevel=4)
    text: str | None = given.pop("sql")
    return text


def _says_something(form: Form) -> bool:
    """Is anything given that is not what it is by default?"""
    named = any(form.get(word) is not None for word in ("dataset", "where", "name"))
    return named or bool(form.get("by")) or bool(form.get("people"))


def _check_keywords(form: Form) -> None:
    for word in form.keys() - Form.__annotations__.keys():
        raise TypeError(f"a question has no {word}; it has {', '.join(Form.__annotations__)}")


def _from_python(known: Mapping[str, Schema], **form: Unpack[Form]) -> Query:
    dataset = form.get("dataset")
    if dataset is None:
        if len(known) != 1:
            raise QueryError("no dataset", f"name one of {', '.join(sorted(known))}")
        dataset = next(iter(known))
    columns = check_form(**form)
    where, name = form.get("where"), form.get("name")
    condition = parse_condition(where) if isinstance(where, str) else where
    schema = known.get(dataset)
    distinct = Name(schema.unit) if form.get("people") and schema is not None and not schema.unit_is_row else None
    shown = count_name(columns) if name is None else name
    return Query(Name(dataset), tuple(Name(column) for column in columns), condition, distinct, shown)


def check_form(**form: Unpack[Form]) -> list[str]:
    """The group columns of the Python form; what no schema could allow is refused."""
    _check_keywords(form)
    dataset, by, where, name = form.get("dataset"), form.get("by", ()), form.get("where"), form.get("name")
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
