"""Questions: a closed, typed language for "how many?", written as SQL or in Python.

    text --tokens, sql--> Query --question--> Question (typed, simplified, hashed) --> an engine
    Python (expression) --^

    expression   untyped queries and conditions, built from SQL text or in Python
    tokens       SQL text as tokens with positions
    sql          SQL text -> Query, by a parser for a closed language
    refusals     error messages for SQL that the language does not have
    schema       the public schema: which columns exist, and which values they may have
    declarations, derived    read columns from the configuration: lists and ranges, and columns derived from others
    calendar, public_tables  where months and days of a time zone begin; public CSV files of a configuration
    question     Query and schema -> Question: typed, canonical, hashed
    truth        what an answer counts: people or rows, within which bounds
    condition    typed conditions: tests on columns, joined by AND and OR
    points       sets of points (integers that stand for the values of a column)
    axes, joint_axes  how group columns divide the values of their sources into the cells of a table
    possible_cells    the public list of the combinations that can exist
    diagram      the canonical form of a condition: a decision diagram
    writing      typed conditions as SQL text

An engine sees only a `Question`: declared columns, comparisons with literals, IN, BETWEEN, IS NULL, AND, OR, NOT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from countveil.errors import QueryError, shorten, warn_deprecated
from countveil.query.expression import Condition, Name, Query, col, write_condition
from countveil.query.question import Question, bind
from countveil.query.schema import MAX_NAME, Schema
from countveil.query.sql import count_name, parse, parse_condition

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
    "write_condition",
]


class Form(TypedDict, total=False):
    """A question in Python: a dataset, the group columns `by` and the condition `where`.

    `people=True` counts people, as count(DISTINCT unit) does. Otherwise rows are counted, as count(*) does, with at
    most `rows_per_person` rows of one person in each cell, a number that the schema declares. If it is 1, both ways
    count the same. `name` is the name of the count in the answer.
    """

    dataset: str | None
    by: str | Iterable[str]
    where: Condition | str | None
    people: bool
    name: str | None


def ask(
    schemas: Schema | Mapping[str, Schema], question: str | Question | None = None, **form: Unpack[Form]
) -> Question:
    """Build a Question from SQL text or from the arguments of `Form`; a Question of the same schema is returned
    unchanged.

    >>> from countveil.query.schema import Column
    >>> people = Schema("people", (Column("age", "integer", low=0, high=120, step=10),))
    >>> question = ask(people, "SELECT count(*) FROM people WHERE NOT age < 65")
    >>> question.text
    'SELECT count(*) FROM people WHERE age >= 65'
    >>> ask(people, dataset="people", where=col("age") >= 65) == ask(people, question) == question
    True
    """
    known = {schemas.name: schemas} if isinstance(schemas, Schema) else schemas
    question = take_question(question, form)
    _check_keywords(form)
    if question is None:
        query = _from_python(known, **form)
    elif _is_filled(form):
        what = "a question" if isinstance(question, Question) else "SQL text"
        raise QueryError(f"{what} together with dataset, by, where, people or name", "give one or the other")
    elif isinstance(question, Question):
        if _schema(Name(question.schema.name), known) != question.schema:
            allowed = "ask with its text instead: count(question.text)"
            raise QueryError("a Question that was made for another schema", allowed)
        return question
    else:
        query = parse(question)
    return bind(query, _schema(query.dataset, known))


def take_question(question: str | Question | None, form: Form) -> str | Question | None:
    """The question; if there is none, the deprecated argument `sql`, which is accepted for one release.

    `sql` is removed from `form`.
    """
    arguments: Any = form
    if question is not None or "sql" not in arguments:
        return question
    warn_deprecated("sql=", "question=, or give the text first", stacklevel=5)
    text: str | None = arguments.pop("sql")
    return text


def _is_filled(form: Form) -> bool:
    """Whether any argument was given a value."""
    has_values = any(form.get(word) is not None for word in ("dataset", "where", "name"))
    return has_values or bool(form.get("by")) or bool(form.get("people"))


def _check_keywords(form: Form) -> None:
    for word in form.keys() - Form.__annotations__.keys():
        raise TypeError(f"unknown argument {word}; a question has {', '.join(Form.__annotations__)}")


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
    count = count_name(columns) if name is None else name
    return Query(Name(dataset), tuple(Name(column) for column in columns), condition, distinct, count)


def check_form(**form: Unpack[Form]) -> list[str]:
    """Check those arguments of the Python form that need no schema; return the names of the group columns."""
    _check_keywords(form)
    dataset, by, where, name = form.get("dataset"), form.get("by", ()), form.get("where"), form.get("name")
    if dataset is not None and not isinstance(dataset, str):
        raise QueryError(f"a dataset name of type {type(dataset).__name__}", 'give the name as text: dataset="people"')
    if not isinstance(by, Iterable):
        raise QueryError(f"by of type {type(by).__name__}", 'give a column name or a list of names: by=["region"]')
    columns: dict[str, None] = {}
    for column in [by] if isinstance(by, str) else by:
        if not isinstance(column, str):
            raise QueryError(f"a column name of type {type(column).__name__}", 'give names as text: by=["region"]')
        if column in columns:
            raise QueryError(f"the column {shorten(column, 40)} twice", "name each column once")
        columns[column] = None
    if name is not None and (not _is_name(name) or name in columns):
        allowed = f"use 1 to {MAX_NAME} printable characters, and no name of a group column"
        raise QueryError(f"the name {shorten(name, 40)} for the count", allowed)
    if where is not None and not isinstance(where, (str, Condition)):
        raise QueryError(
            f"where of type {type(where).__name__}", 'give SQL text or a condition: where=cv.col("age") >= 65'
        )
    return list(columns)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME


def _schema(name: Name, known: Mapping[str, Schema]) -> Schema:
    schema = known.get(name.text)
    if schema is None and not name.quoted:
        alike = [other for other in known if other.isascii() and other.lower() == name.text.lower()]
        schema = known[alike[0]] if len(alike) == 1 else None
    if schema is None:
        names = shorten(", ".join(sorted(known)), 100)
        raise QueryError(f"the dataset {shorten(name.text, 40)} is not declared", f"declared are {names}", name.at)
    return schema
