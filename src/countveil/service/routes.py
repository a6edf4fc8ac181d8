"""The routes of version 1: read the request, one library call, write the answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Request
from starlette.responses import Response

from countveil.answers import Table
from countveil.config import Dataset
from countveil.curator import Curator
from countveil.keys import Key
from countveil.ledger import Charge
from countveil.ledger import Request as Repeatable
from countveil.problem_kinds import Kind
from countveil.schema import Column
from countveil.service import models
from countveil.service.access import curator, designer, holder
from countveil.service.bodies import StrictRoute
from countveil.service.metrics import ANSWERS, exposition
from countveil.service.problems import Problem, documented, internal
from countveil.service.work import BusyError, RefusedError, TooLongError

Holder = Annotated[Key, Depends(holder)]
CuratorKey = Annotated[Key, Depends(curator)]
Designer = Annotated[Key, Depends(designer)]
_ALWAYS = (
    Kind.BAD_REQUEST,
    Kind.UNAUTHORIZED,
    Kind.METHOD_NOT_ALLOWED,
    Kind.MISDIRECTED,
    Kind.TOO_MANY_REQUESTS,
    Kind.INTERNAL,
    Kind.LEDGER,
    Kind.NOT_READY,
)
_BODY = (*_ALWAYS, Kind.TOO_LARGE, Kind.UNSUPPORTED_MEDIA_TYPE, Kind.BAD_PARAMETER)
_ASKING = (*_BODY, Kind.QUERY_NOT_ALLOWED, Kind.DATA_DOES_NOT_FIT, Kind.ENGINE)

v1 = APIRouter(prefix="/v1", route_class=StrictRoute)
plain = APIRouter(route_class=StrictRoute)


def of(request: Request) -> Curator:
    """The curator of this worker."""
    found: Curator = request.app.state.curator
    return found


def answer(body: dict[str, Any]) -> Response:
    return Response(json.dumps({"schema_version": 1, **body}, allow_nan=False), media_type="application/json")


def shown(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    return documented(kinds, models.ProblemDocument)


@v1.get("/datasets", response_model=models.Datasets, responses=shown(*_ALWAYS), tags=["asking"])
def datasets(request: Request, key: Holder) -> Response:
    """Every dataset that can be asked: its public schema and its mechanism. Nothing of the data."""
    here = of(request)
    listed = [_dataset(here, each) for each in here.config.datasets.values() if each.ready]
    return answer({"datasets": listed})


@v1.post("/plan", response_model=models.DryRun, responses=shown(*_ASKING, Kind.BUDGET_EXHAUSTED), tags=["asking"])
def plan(request: Request, ask: models.Ask, key: Holder) -> Response:
    """A dry run: what a question costs, how many cells it has, how accurate it will be. Spends nothing.

    What would be refused is refused here, in the same words.
    """
    asked = ask.model_dump()
    found = of(request).dry_run(asked.pop("sql", None), **asked, analyst=key.name, most=key.answers)
    return answer(asdict(found))


@v1.post(
    "/count",
    response_model=models.Table,
    responses=shown(*_ASKING, Kind.BUDGET_EXHAUSTED, Kind.CONFLICT),
    tags=["asking"],
)
def count(
    request: Request,
    ask: models.Ask,
    key: Holder,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern=models.VISIBLE,
            description="A name of your own for this request: sent again, it gets the recorded answer.",
        ),
    ] = None,
) -> Response:
    """The released counts of every cell: charged before the data is looked at, on record before they are sent.

    The same question on the same data is answered from the record and costs nothing.
    """
    asked = ask.model_dump()
    repeatable = None if idempotency_key is None else Repeatable(_hash(idempotency_key), _hash(json.dumps(asked)))
    question = asked.pop("sql", None)
    table = of(request).count(question, **asked, analyst=key.name, most=key.answers, request=repeatable)
    ANSWERS.labels("replayed" if table.replayed else "charged").inc()
    return answer(described(table))


@v1.get("/budget", response_model=models.Budget, responses=shown(*_ALWAYS), tags=["budget"])
def budget(request: Request, key: Holder) -> Response:
    """What is left, for the holder of this key; curators also see the shares."""
    return answer({"pools": pools(of(request), key)})


@v1.get("/asked", response_model=models.History, responses=shown(*_ALWAYS), tags=["budget"])
def asked(request: Request, key: Holder) -> Response:
    """What was asked and charged: by everyone for curators, by themselves for analysts."""
    who = None if key.role == "curator" else key.name
    return answer({"asked": [_asked(charge) for charge in of(request).ledger.charges(analyst=who)]})


@v1.get(
    "/receipts/{id}",
    response_model=models.ReceiptDocument,
    responses=shown(*_ALWAYS, Kind.NOT_FOUND, Kind.BAD_PARAMETER),
    tags=["budget"],
)
def receipt(request: Request, id: Annotated[str, Path(pattern=models.RECEIPT)], key: Holder) -> Response:
    """The receipt of a charge of one's own; curators see every receipt."""
    found = of(request).receipt(id)
    if found is None or (key.role != "curator" and found[0].analyst != key.name):
        raise Problem(Kind.NOT_FOUND, "there is no such receipt of yours")
    return answer({"receipt": asdict(found[1]), "analyst": found[0].analyst, "answered": found[0].payload is not None})


@v1.get("/verify", response_model=models.Verified, responses=shown(*_ALWAYS, Kind.FORBIDDEN), tags=["budget"])
def verify(request: Request, key: CuratorKey) -> Response:
    """Walk the whole chain of the ledger again. For curators."""
    return answer({"holds": True, "entries": of(request).ledger.verify()})


@v1.post("/design", responses=shown(*_BODY), tags=["designing"])
def design(request: Request, wanted: models.Design, key: Designer) -> Response:
    """The best certified mechanism for what is given of epsilon, delta, eta and D. No data is involved."""
    return worked(request, "design", wanted.model_dump(exclude_none=True))


@v1.post("/compare", responses=shown(*_BODY), tags=["designing"])
def compare(request: Request, wanted: models.Compare, key: Designer) -> Response:
    """Mechanisms of the literature and ours on equal terms. No data is involved."""
    return worked(request, "compare", wanted.model_dump(exclude_none=True))


@plain.get(
    "/healthz",
    response_model=models.Health,
    responses=shown(Kind.BAD_REQUEST, Kind.MISDIRECTED, Kind.METHOD_NOT_ALLOWED, Kind.LEDGER),
)
def healthz(request: Request) -> Response:
    """Is the service up, and can its ledger be read?"""
    _ = of(request).ledger.plan("")
    return Response('{"status": "ok"}', media_type="application/json")


@plain.get(
    "/metrics",
    responses={**shown(*_ALWAYS, Kind.FORBIDDEN), 200: {"content": {"text/plain": {}}}},
    response_class=Response,
)
def metrics(request: Request, key: CuratorKey) -> Response:
    """Counters for Prometheus. For curators."""
    return Response(exposition(of(request)), media_type="text/plain; version=0.0.4")


def worked(request: Request, task: str, arguments: dict[str, Any]) -> Response:
    """What the helper process makes of a task."""
    try:
        return answer(request.app.state.workshop.run(task, arguments, client=request.state.client))
    except RefusedError as error:
        raise (Problem(Kind.BAD_PARAMETER, str(error)) if error.code == 2 else internal()) from None
    except TooLongError:
        raise Problem(
            Kind.BAD_PARAMETER, f"this takes too long here; run it yourself: countveil {task} --help"
        ) from None
    except BusyError:
        raise Problem(Kind.TOO_MANY_REQUESTS, "others are designing; try again", {"Retry-After": "5"}) from None


def described(table: Table) -> dict[str, Any]:
    """A table as JSON values, with what a client needs to read dates and to make subtotals."""
    return {**table.describe(), "kinds": table.kinds, "sum_margins": table.sum_margins}


def pools(here: Curator, key: Key) -> list[dict[str, Any]]:
    """The budgets that a key sees."""
    found = []
    for each in here.budget():
        left = here.left(here.config.dataset(each.datasets[0]), key.name, key.answers)
        shares = {who: {"answers": s.answers, "left": max(0, s.left)} for who, s in each.shares.items()}
        seen = {"answers_left": left, "shares": shares if key.role == "curator" else None}
        found.append({**asdict(each), "datasets": list(each.datasets), **seen})
    return found


def _dataset(here: Curator, dataset: Dataset) -> dict[str, Any]:
    (pool,) = here.budget(dataset.name)
    mechanism, schema = here.mechanism(dataset.name), dataset.schema
    facts = {
        "hash": mechanism.hash,
        "policy": mechanism.policy,
        "eta": str(mechanism.describe()["eta"]),
        "D": mechanism.D,
        "margin_95": mechanism.margin_95,
        "worst_error": mechanism.certificate.worst_error,
    }
    return {
        "name": schema.name,
        "unit": schema.unit,
        "rows_per_person": schema.rows_per_person,
        "cells_per_person": schema.cells_per_person,
        "neighbours": schema.neighbours,
        "max_cells": schema.max_cells,
        "columns": [_column(column) for column in schema.columns],
        "pool": pool.pool,
        "answers_total": pool.answers_total,
        "epsilon": pool.epsilon,
        "delta": pool.delta,
        "mechanism": facts,
    }


def _column(column: Column) -> dict[str, Any]:
    shape = column.described()
    return {"name": column.name, "kind": shape.pop("type"), **shape, "keys": column.keys}


def _asked(charge: Charge) -> dict[str, Any]:
    names = ("id", "pool", "dataset", "version", "text", "analyst", "time", "answered")
    return {name: getattr(charge, name) for name in names}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
