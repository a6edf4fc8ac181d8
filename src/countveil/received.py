"""What a service gave: tables, dry runs and budgets, read strictly; refusals as the errors that they are locally."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from itertools import product
from typing import Any, TypeVar

import numpy as np

from countveil.answers import DryRun, PoolBudget, Receipt, Table, Total
from countveil.errors import (
    BudgetError,
    ConfigError,
    ConflictError,
    CountveilError,
    QueryError,
    RequestError,
    ServiceError,
)
from countveil.ledger import Standing
from countveil.problem_kinds import Kind
from countveil.schema import date_from_text

REFUSALS = {kind.slug: kind.error for kind in Kind}
"""The error of every problem that a service can give."""
_QUERY = re.compile(r"query not allowed(?: at position [0-9]+)?: (.*?); (.*)", re.DOTALL)
_KINDS = {"text": str, "integer": int, "boolean": bool, "date": str}
R = TypeVar("R")


def refusal(title: str, detail: str, facts: Mapping[str, Any], *, positions: bool = True) -> CountveilError:
    """The error of a problem. `positions`: the text that they count in is the caller's own."""
    kind = REFUSALS.get(str(facts.get("name")), ServiceError)
    if kind is QueryError:
        parts = _QUERY.fullmatch(detail)
        construct, allowed = parts.groups() if parts else (detail, "see the query language of the service")
        position = facts.get("position") if positions else None
        return QueryError(construct, allowed, position if type(position) is int else None)
    if kind is BudgetError:
        spent = BudgetError.__new__(BudgetError, detail)  # in the words of the service, which are for who asks
        spent.pool, spent.answers, spent.analyst = str(facts.get("pool")), facts.get("answers", 0), None
        return spent
    if kind is ConfigError:
        return ConfigError("dataset", detail)
    return kind(detail if kind in (RequestError, ConflictError) else f"{title}: {detail}")


def read_table(body: dict[str, Any], kind: str | None) -> Table:
    """The table in the body of an answer; a body that is none raises one of the errors of reading."""
    columns, kinds, rows = body["columns"], body["kinds"], body["rows"]
    if len(columns) < 3 or any(type(name) is not str for name in columns) or len(set(columns)) != len(columns):
        raise ValueError
    values = list(zip(*rows, strict=True))
    data = [_column(column, of) for _, column, of in zip(columns, values, kinds, strict=True)]
    labels = tuple(list(dict.fromkeys(column)) for column in data[:-3])
    if [row[:-3] for row in zip(*data, strict=True)] != list(product(*labels)):
        raise ValueError  # every combination of labels occurs once, in order, or it is not a table of ours
    total, margins = _record(Total, body["total"]), body.get("sum_margins", {})
    if any(type(margin) is not int for margin in margins.values()):
        raise ValueError
    released, low, high = (np.array(counts, dtype=np.int64) for counts in data[-3:])
    return Table(
        columns,
        kinds,
        labels,
        released,
        low,
        high,
        body["margin_95"],
        body["worst_error"],
        _record(Receipt, body["receipt"]),
        body["replayed"],
        kind,
        stated_margins={total.cells: total.margin_95} | {int(cells): margin for cells, margin in margins.items()},
    )


def _column(values: tuple[Any, ...], kind: str) -> list[Any]:
    """The values of one column, each of its kind; dates travel as text."""
    if any(type(value) is not _KINDS[kind] for value in values):
        raise ValueError
    if kind != "date":
        return list(values)
    known = {value: date_from_text(value) for value in values}
    if None in known.values():
        raise ValueError
    return [known[value] for value in values]


def read_dry_run(body: dict[str, Any]) -> DryRun:
    """The dry run in the body of an answer."""
    return _record(DryRun, {**body, "notes": tuple(body["notes"])})


def read_pools(body: dict[str, Any]) -> list[PoolBudget]:
    """The budgets in the body of an answer."""
    return [_pool(each) for each in body["pools"]]


def _pool(body: dict[str, Any]) -> PoolBudget:
    shares = {
        who: Standing(share["answers"], share["answers"] - share["left"])
        for who, share in (body["shares"] or {}).items()
    }
    notes = tuple(body.get("notes", ()))
    return _record(PoolBudget, {**body, "datasets": tuple(body["datasets"]), "shares": shares, "notes": notes})


def _record(kind: type[R], body: dict[str, Any]) -> R:
    """A dataclass from members of the same names; further members are of later versions, missing ones with a default of
    earlier ones."""
    expected = [each.name for each in fields(kind) if each.default is MISSING or each.name in body]  # type: ignore[arg-type]
    return kind(**{name: body[name] for name in expected})
