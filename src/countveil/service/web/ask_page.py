"""The page to ask: fields and SQL in step, the dry run first, then the question, and what came of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import FormData

from countveil.answers import Table
from countveil.curator import Curator
from countveil.errors import BudgetError, CountveilError, QueryError
from countveil.keys import Key
from countveil.service.metrics import ANSWERS
from countveil.service.page import fields as fielding
from countveil.service.page.fields import Fields
from countveil.service.problems import problem

MOST_ROWS = 500
MOST_DRAWN = 40
WORD = re.compile(
    r"""(?:date\s*)?'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z)|[-+]?\d[\w.]*|\w+|.""", re.IGNORECASE | re.DOTALL
)
RIGHT_TO = 10
"""A cell is useful where its 95 % interval is at most a tenth of the count to either side."""


@dataclass(frozen=True)
class Cell:
    """One row of the table, as it is shown."""

    labels: tuple[str, ...]
    y: int
    low: int
    high: int
    weak: bool


def page(curator: Curator, key: Key, form: FormData) -> dict[str, Any]:
    """What the page shows for a form as it was sent."""
    ready = {name: each for name, each in curator.config.datasets.items() if each.ready}
    if not ready:
        return {"datasets": [], "status": 200}
    name = str(form.get("dataset", ""))
    schema = (ready.get(name) or next(iter(ready.values()))).schema
    fresh = str(form.get("dataset_was", name)) != name  # the fields that were sent are those of another dataset
    said = Fields(schema.name) if fresh else fielding.from_form(form, schema)
    sql = str(form.get("sql", ""))[:100_000].strip()
    do, was = str(form.get("do", "")), str(form.get("sql_was", "")).strip()
    untouched = sql == was and "dataset" in form and do != "sql"
    if not sql or do == "fields" or (untouched and _changed(curator, sql, said, str(form.get("fields_was")))):
        sql = fielding.to_sql(said, schema)
    values: dict[str, Any] = {"datasets": list(ready), "do": do, "status": 200, "key": key}
    try:
        question = curator.question(sql)
        schema, said = question.schema, fielding.from_question(question)
        if do == "plan" or (do == "count" and form.get("priced") != question.sha256):  # the price comes first
            values["dry"] = curator.dry_run(sql, analyst=key.name, most=key.answers)
        elif do == "count":
            values |= _answered(curator, key, sql)
    except CountveilError as error:
        values |= _refused(error, sql)
    return {
        **values,
        "schema": schema,
        "fields": said,
        "sql": sql,
        "shown": fielding.shown,
        "most": fielding.MOST_LISTED,
    }


def _changed(curator: Curator, sql: str, said: Fields, was: str) -> bool:
    """Do the fields say otherwise than the SQL beside them? Then they were changed, and the SQL was not. Beside SQL
    that was refused they say what they said before, unless they were changed."""
    try:
        before = fielding.from_question(curator.question(sql))
    except CountveilError:
        return said.mark != was
    return replace(before, beyond=False) != said  # what fields cannot say, they do not change


def _answered(curator: Curator, key: Key, sql: str) -> dict[str, Any]:
    table = curator.count(sql, analyst=key.name, most=key.answers)
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
        "python": _python(sql),
        "curl": _curl(sql),
    }


def _cells(table: Table) -> list[Cell]:
    """Rows with a flag that depends on the published numbers alone."""
    found = []
    for row in table.rows:
        *labels, y, low, high = row
        weak = RIGHT_TO * max(high - y, y - low) > y
        found.append(Cell(tuple(fielding.shown(label) for label in labels), y, low, high, weak))
    return found


def _refused(error: CountveilError, sql: str) -> dict[str, Any]:
    """The refusal in the words of the service, with the place in the SQL marked."""
    said = problem(error)
    values: dict[str, Any] = {
        "problem": said,
        "refusal": said.detail,
        "status": said.kind.status,
        "spent": isinstance(error, BudgetError),
    }
    if isinstance(error, QueryError) and error.position is not None:
        values["marked"] = marked(sql, error.position)
    return values


def marked(sql: str, position: int) -> tuple[str, str, str]:
    """The text before, at and after a position (from 1): the word, number or quoted text that stands there."""
    start = min(max(0, position - 1), len(sql))
    word = WORD.match(sql, start)
    end = word.end() if word else start
    return sql[:start], sql[start:end] or "(here)", sql[end:]


def recorded(curator: Curator, key: Key, receipt: str, question: str) -> Table | None:
    """An answer from the record: one's own, or one whose question one has asked too, as its hash shows."""
    found = curator.receipt(receipt)
    if found is None or (key.role != "curator" and key.name != found[0].analyst and question != found[0].question):
        return None
    return curator.recorded(found[0])


def _python(sql: str) -> str:
    return f"import countveil as cv\n\nservice = cv.connect(URL, key=KEY)\ntable = service.count({sql!r})\ntable.frame"


def _curl(sql: str) -> str:
    body = json.dumps({"sql": sql}).replace("'", "'\\''")
    lines = (
        'curl URL/v1/count -H "Authorization: Bearer $COUNTVEIL_KEY"',
        f"  -H 'Content-Type: application/json' -d '{body}'",
    )
    return " \\\n".join(lines)
