"""The page to ask: its fields and its SQL always say the same, and the dry run comes before the question."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import FormData

from countveil.config.configuration import Dataset
from countveil.curator.curator import Curator
from countveil.curator.results import Table
from countveil.errors import BudgetError, CountveilError, QueryError
from countveil.service.api_keys import Key
from countveil.service.metrics import ANSWERS
from countveil.service.problem_json import to_problem
from countveil.service.web import fields as fielding
from countveil.service.web.fields import Fields

MOST_ROWS = 500
MOST_DRAWN = 40
WORD = re.compile(
    r"""(?:date\s*)?'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z)|[-+]?\d[\w.]*|\w+|.""", re.IGNORECASE | re.DOTALL
)
RIGHT_TO = 10
"""A cell counts as useful if its 95 % interval extends at most a tenth of the count to either side."""


@dataclass(frozen=True)
class Cell:
    """One row of the answer as the page shows it; `weak` if its interval is too wide for it to be useful."""

    labels: tuple[str, ...]
    y: int
    low: int
    high: int
    weak: bool


def build_page(curator: Curator, key: Key, form: FormData) -> dict[str, Any]:
    """The values that the template of the page shows for a submitted form."""
    ready = {
        name: each
        for name, each in curator.config.datasets.items()
        if each.ready and each.require_budget().grades  # a budget without grades pays for publications only
    }
    if not ready:
        return {"datasets": [], "status": 200}
    name = str(form.get("dataset", ""))
    schema = (ready.get(name) or next(iter(ready.values()))).schema
    fresh = str(form.get("dataset_was", name)) != name  # the submitted fields belong to another dataset
    fields = Fields(schema.name) if fresh else fielding.from_form(form, schema)
    sql = str(form.get("sql", ""))[:100_000].strip()
    grade = str(form.get("grade", "")).strip()[:100] or None
    do, was = str(form.get("do", "")), str(form.get("sql_was", "")).strip()
    untouched = sql == was and "dataset" in form and do != "sql"
    if not sql or do == "fields" or (untouched and _have_changed(curator, sql, fields, str(form.get("fields_was")))):
        sql = fielding.to_sql(fields, schema)
    values: dict[str, Any] = {"datasets": list(ready), "do": do, "status": 200, "key": key, "grade": grade}
    try:
        question = curator.question(sql)
        schema, fields = question.schema, fielding.from_question(question)
        priced = f"{question.sha256} {grade or ''}".strip()
        if do == "plan" or (do == "count" and form.get("priced") != priced):  # the dry run must come first
            values["dry"] = curator.dry_run(sql, grade=grade, analyst=key.name, most=key.answers)
            values["priced"] = priced
        elif do == "count":
            values |= _count(curator, key, sql, grade)
    except CountveilError as error:
        values |= _describe_refusal(error, sql)
    return {
        **values,
        "schema": schema,
        "fields": fields,
        **(_list_grades(curator, key, ready[schema.name]) if schema.name in ready else {}),
        "sql": sql,
        "format_value": fielding.format_value,
        "most": fielding.MOST_LISTED,
    }


def _have_changed(curator: Curator, sql: str, fields: Fields, was: str) -> bool:
    """Whether the user has changed the fields since the page was shown, while the SQL beside them is unchanged.

    The fields are compared with the SQL or, if the SQL is refused, with their earlier values.
    """
    try:
        before = fielding.from_question(curator.question(sql))
    except CountveilError:
        return fields.mark != was
    return replace(before, beyond=False) != fields  # fields do not change what they cannot express


def _list_grades(curator: Curator, key: Key, dataset: Dataset) -> dict[str, Any]:
    """The grades to choose from, with the answers left for this key. Empty if there is only one grade."""
    budget = dataset.require_budget()
    if len(budget.grades) < 2:
        return {}
    grades: Sequence[object] = [{"name": name} for name in budget.grades]
    with suppress(CountveilError):  # the refusal of the question itself says why
        if curator.ledger.plan(budget.pool) is not None:  # without a plan, computing the margins would take seconds
            known = curator.grades_left(dataset, key.name, key.answers)
            grades = [each for each in known if each.name in budget.grades]
    return {"grades": grades, "default_grade": budget.default_grade}


def _count(curator: Curator, key: Key, sql: str, grade: str | None) -> dict[str, Any]:
    table = curator.count(sql, grade=grade, analyst=key.name, most=key.answers)
    ANSWERS.labels("replayed" if table.replayed else "charged").inc()
    cells = _cells(table)
    drawn = cells[:MOST_DRAWN]
    return {
        "table": table,
        "left": curator.left(curator.config.dataset(table.receipt.dataset), key.name, key.answers),
        "cells": cells[:MOST_ROWS],
        "more": max(0, table.cells - MOST_ROWS),
        "total": table.total() if table.cells > 1 else None,
        "drawn": len(drawn) if len(drawn) < table.cells else None,
        "chart": ([c.labels or ("all",) for c in drawn], [(c.y, c.low, c.high) for c in drawn]),
        "weak": [c.weak for c in drawn],
        "largest": max(1, *(cell.high for cell in cells)),
        "python": _python(sql, grade),
        "curl": _curl(sql, grade),
    }


def _cells(table: Table) -> list[Cell]:
    """The rows of the answer. Whether a row is `weak` depends only on published numbers."""
    cells = []
    for row in table.rows:
        *labels, y, low, high = row
        weak = RIGHT_TO * max(high - y, y - low) > y
        cells.append(Cell(tuple(fielding.format_value(label) for label in labels), y, low, high, weak))
    return cells


def _describe_refusal(error: CountveilError, sql: str) -> dict[str, Any]:
    """The values that show a refusal: its message as over HTTP, and its position marked in the SQL."""
    problem = to_problem(error)
    values: dict[str, Any] = {
        "problem": problem,
        "refusal": problem.detail,
        "status": problem.kind.status,
        "spent": isinstance(error, BudgetError),
    }
    if isinstance(error, QueryError) and error.position is not None:
        values["marked"] = split_at_error(sql, error.position)
    return values


def split_at_error(sql: str, position: int) -> tuple[str, str, str]:
    """Split SQL text into the parts before, at and after a position (from 1).

    The part at the position is the whole word, number or quoted text there.
    """
    start = min(max(0, position - 1), len(sql))
    word = WORD.match(sql, start)
    end = word.end() if word else start
    return sql[:start], sql[start:end] or "(here)", sql[end:]


def find_recorded(curator: Curator, key: Key, receipt: str, question: str) -> Table | None:
    """The recorded answer with this receipt id, if this key may see it; else None.

    A key may see the answers that it paid for. It may also see an answer if it gives the hash of the question, as the
    links on the page do after the same question was asked. Curators may see all answers.
    """
    charge = curator.ledger.charge_of(receipt)
    if charge is None or (key.role != "curator" and key.name != charge.analyst and question != charge.question):
        return None
    return curator.read_recorded_table(charge)


def _python(sql: str, grade: str | None) -> str:
    call = f"service.count({sql!r})" if grade is None else f"service.count({sql!r}, grade={grade!r})"
    return f"import countveil as cv\n\nservice = cv.connect(URL, key=KEY)\ntable = {call}\ntable.frame"


def _curl(sql: str, grade: str | None) -> str:
    body = json.dumps({"sql": sql} if grade is None else {"sql": sql, "grade": grade}).replace("'", "'\\''")
    lines = (
        'curl URL/v1/count -H "Authorization: Bearer $COUNTVEIL_KEY"',
        f"  -H 'Content-Type: application/json' -d '{body}'",
    )
    return " \\\n".join(lines)
