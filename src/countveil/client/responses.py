"""Reads responses of a service strictly: tables, dry runs, budgets. Refusals become errors, as with a Curator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from countveil.curator.grid import read_grid
from countveil.curator.receipts import GradeBudget, PoolBudget, Receipt, Share
from countveil.curator.results import DryRun, FrameKind, Table, Total
from countveil.curator.summaries import ColumnSummary, DatasetSummary, HistoryEntry, MechanismSummary
from countveil.errors import (
    BudgetError,
    ConfigError,
    ConflictError,
    CountveilError,
    ProblemKind,
    QueryError,
    RequestError,
    ServiceError,
)
from countveil.ledger import Standing
from countveil.query.schema import date_from_text
from countveil.query.truth import Truth

REFUSALS = {kind.slug: kind.error for kind in ProblemKind}
"""For each kind of problem that a service reports, the class of the error to raise."""
_QUERY = re.compile(r"query not allowed(?: at position [0-9]+)?: (.*?); (.*)", re.DOTALL)
_KINDS = {"text": str, "integer": int, "boolean": bool, "date": str}
R = TypeVar("R")


def read_refusal(title: str, detail: str, facts: Mapping[str, Any], *, positions: bool = True) -> CountveilError:
    """The error that a problem document describes.

    With `positions`, a position in the document refers to text that the caller wrote, and the error keeps this
    position.
    """
    kind = REFUSALS.get(str(facts.get("name")), ServiceError)
    if kind is QueryError:
        parts = _QUERY.fullmatch(detail)
        construct, allowed = parts.groups() if parts else (detail, "see the query language of the service")
        position = facts.get("position") if positions else None
        return QueryError(construct, allowed, position if type(position) is int else None)
    if kind is BudgetError:
        spent = BudgetError.__new__(BudgetError, detail)  # with the message of the service, which is for analysts
        spent.pool, spent.answers, spent.analyst = str(facts.get("pool")), facts.get("answers", 0), None
        spent.grade, spent.others = facts.get("grade"), {}
        return spent
    if kind is ConfigError:
        return ConfigError("dataset", detail)
    return kind(detail if kind in (RequestError, ConflictError) else f"{title}: {detail}")


def read_table(body: dict[str, Any], kind: FrameKind | None) -> Table:
    """Read a table from a response. An invalid body raises one of the errors that Connection catches."""
    columns, kinds, rows = body["columns"], body["kinds"], body["rows"]
    if len(columns) < 3 or any(type(name) is not str for name in columns) or len(set(columns)) != len(columns):
        raise ValueError
    values = list(zip(*rows, strict=True))
    data = [_read_column(column, of) for _, column, of in zip(columns, values, kinds, strict=True)]
    grid = read_grid(data[:-3], body.get("axes", range(len(columns) - 3)))
    total, margins = make_record(Total, body["total"]), body.get("sum_margins", {})
    if any(type(margin) is not int for margin in margins.values()):
        raise ValueError
    released, low, high = (np.array(counts, dtype=np.int64) for counts in data[-3:])
    return Table(
        columns,
        kinds,
        grid.labels,
        released,
        low,
        high,
        body["margin_95"],
        body["worst_error"],
        read_receipt(body),
        body["replayed"],
        kind,
        stated_margins={total.cells: total.margin_95} | {int(cells): margin for cells, margin in margins.items()},
        truth=_read_truth(body),
        axes=grid.axes,
    )


def _read_column(values: tuple[Any, ...], kind: str) -> list[Any]:
    """The values of one column, checked against its kind. Dates arrive as text."""
    if any(type(value) is not _KINDS[kind] for value in values):
        raise ValueError
    if kind != "date":
        return list(values)
    known = {value: date_from_text(value) for value in values}
    if None in known.values():
        raise ValueError
    return [known[value] for value in values]


def read_dry_run(body: dict[str, Any]) -> DryRun:
    """Read a dry run from a response."""
    return make_record(DryRun, _read_grades({**body, "notes": tuple(body["notes"]), "truth": _read_truth(body)}))


def _read_truth(body: dict[str, Any]) -> Truth | None:
    """What is counted; None if the service has an earlier version that does not send it."""
    truth = body.get("truth")
    return None if truth is None else make_record(Truth, truth)


def read_pools(body: dict[str, Any]) -> list[PoolBudget]:
    """Read the budgets of pools from a response."""
    return [_read_pool(each) for each in body["pools"]]


def read_datasets(body: dict[str, Any]) -> list[DatasetSummary]:
    """Read the summaries of datasets from a response."""
    return [_read_dataset(each) for each in body["datasets"]]


def _read_dataset(body: dict[str, Any]) -> DatasetSummary:
    columns = tuple(_read_column_summary(each) for each in body["columns"])
    mechanism = make_record(MechanismSummary, body["mechanism"])
    return make_record(DatasetSummary, _read_grades({**body, "columns": columns, "mechanism": mechanism}))


def _read_column_summary(body: dict[str, Any]) -> ColumnSummary:
    lists = {name: tuple(body[name]) for name in ("values", "labels") if body.get(name) is not None}
    return make_record(ColumnSummary, {**body, **lists})


def read_history(body: dict[str, Any]) -> list[HistoryEntry]:
    """Read the charged questions from a response."""
    return [make_record(HistoryEntry, each) for each in body["asked"]]


def read_receipt(body: dict[str, Any]) -> Receipt:
    """Read a receipt from a response."""
    return make_record(Receipt, _read_grades(body["receipt"]))


def _read_grades(body: dict[str, Any]) -> dict[str, Any]:
    """The body with its grades read. Earlier versions of the service send no grades."""
    return {**body, "grades": tuple(make_record(GradeBudget, each) for each in body.get("grades", ()))}


def _read_pool(body: dict[str, Any]) -> PoolBudget:
    shares = {who: _read_share(share) for who, share in (body["shares"] or {}).items()}
    notes = tuple(body.get("notes", ()))
    members = {"datasets": tuple(body["datasets"]), "shares": shares, "notes": notes}
    return make_record(PoolBudget, _read_grades({**body, **members}))


def _read_share(body: dict[str, Any]) -> Share:
    grades = {name: Standing(*_read_standing(each)) for name, each in body.get("grades", {}).items()}
    return Share(*_read_standing(body), grades)


def _read_standing(body: dict[str, Any]) -> tuple[int, int]:
    """Read how many answers a share has and how many of them are spent."""
    return body["answers"], body["answers"] - body["left"]


def make_record(kind: type[R], body: dict[str, Any]) -> R:
    """Make a dataclass from the members of a JSON object with the names of its fields.

    A later version of the service may send more members, which are ignored. An earlier version may send fewer; the
    missing ones get their defaults.
    """
    expected = [each.name for each in fields(kind) if each.default is MISSING or each.name in body]  # type: ignore[arg-type]
    return kind(**{name: body[name] for name in expected})
