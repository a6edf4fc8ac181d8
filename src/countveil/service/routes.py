"""The routes of version 1. Each reads the request, makes one library call, and writes the response."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Request
from starlette.responses import Response

from countveil.curator.curator import Curator
from countveil.curator.results import Table
from countveil.curator.summaries import DatasetSummary
from countveil.errors import ProblemKind
from countveil.ledger import Request as Repeatable
from countveil.publication.folder import MANIFEST
from countveil.service import schemas
from countveil.service.api_keys import Key
from countveil.service.auth import require_curator, require_designer, require_holder
from countveil.service.design_worker import BusyError, RefusedError, TooLongError
from countveil.service.metrics import ANSWERS, exposition
from countveil.service.problem_json import Problem, describe_problems, internal_problem
from countveil.service.publications import FILE_PATTERN, MOST_EDITION, NAME_PATTERN, TYPES, send_file
from countveil.service.strict_json import StrictRoute

Holder = Annotated[Key, Depends(require_holder)]
CuratorKey = Annotated[Key, Depends(require_curator)]
Designer = Annotated[Key, Depends(require_designer)]
PublicationName = Annotated[str, Path(pattern=NAME_PATTERN, description="The name of a publication.")]
EditionNumber = Annotated[int, Path(ge=1, le=MOST_EDITION, description="The number of an edition, from 1.")]
FileName = Annotated[str, Path(pattern=FILE_PATTERN, description="The manifest, or a file that it names.")]
_ALWAYS = (
    ProblemKind.BAD_REQUEST,
    ProblemKind.UNAUTHORIZED,
    ProblemKind.METHOD_NOT_ALLOWED,
    ProblemKind.MISDIRECTED,
    ProblemKind.TOO_MANY_REQUESTS,
    ProblemKind.INTERNAL,
    ProblemKind.LEDGER,
    ProblemKind.NOT_READY,
)
_BODY = (*_ALWAYS, ProblemKind.TOO_LARGE, ProblemKind.UNSUPPORTED_MEDIA_TYPE, ProblemKind.BAD_PARAMETER)
_ASKING = (*_BODY, ProblemKind.QUERY_NOT_ALLOWED, ProblemKind.DATA_DOES_NOT_FIT, ProblemKind.ENGINE)

_PUBLISHED = (*_ALWAYS, ProblemKind.NOT_FOUND, ProblemKind.BAD_PARAMETER)

_DEPRECATED = {"Deprecation": "@1794960000", "Link": '</v1/dry-run>; rel="successor-version"'}
"""Headers of RFC 9745 for a deprecated address: since when it is deprecated, and which address to use."""

v1 = APIRouter(prefix="/v1", route_class=StrictRoute)
plain = APIRouter(route_class=StrictRoute)


def get_curator(request: Request) -> Curator:
    """The curator that this worker process has opened."""
    curator: Curator = request.app.state.curator
    return curator


def json_response(body: dict[str, Any]) -> Response:
    return Response(json.dumps({"schema_version": 1, **body}, allow_nan=False), media_type="application/json")


def document_problems(*kinds: ProblemKind) -> dict[int | str, dict[str, Any]]:
    return describe_problems(kinds, schemas.ProblemDocument)


@v1.get("/datasets", response_model=schemas.Datasets, responses=document_problems(*_ALWAYS), tags=["asking"])
def datasets(request: Request, key: Holder) -> Response:
    """Every dataset that answers questions: its public schema and its mechanism. Nothing about the data."""
    here = get_curator(request)
    most = here.config.service.max_cells
    return json_response({"datasets": [_describe_dataset(each, most) for each in here.datasets()]})


@v1.post(
    "/dry-run",
    response_model=schemas.DryRunResponse,
    responses=document_problems(*_ASKING, ProblemKind.BUDGET_EXHAUSTED),
    tags=["asking"],
)
def dry_run(request: Request, ask: schemas.Ask, key: Holder) -> Response:
    """A dry run: the cost of a question, its number of cells, the accuracy of its answer. Spends nothing.

    A question that `/v1/count` would refuse is refused here with the same message.
    """
    asked = ask.model_dump()
    dry = get_curator(request).dry_run(asked.pop("sql", None), **asked, analyst=key.name, most=key.answers)
    return json_response(asdict(dry))


@v1.post(
    "/plan",
    response_model=schemas.DryRunResponse,
    responses=document_problems(*_ASKING, ProblemKind.BUDGET_EXHAUSTED),
    tags=["asking"],
    deprecated=True,
)
def plan(request: Request, ask: schemas.Ask, key: Holder) -> Response:
    """The old name of `/v1/dry-run`, which works for one more release."""
    response = dry_run(request, ask, key)
    response.headers.update(_DEPRECATED)
    return response


@v1.post(
    "/count",
    response_model=schemas.TableResponse,
    responses=document_problems(*_ASKING, ProblemKind.BUDGET_EXHAUSTED, ProblemKind.CONFLICT),
    tags=["asking"],
)
def count(
    request: Request,
    ask: schemas.Ask,
    key: Holder,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern=schemas.VISIBLE,
            description="Any text that identifies this request: a repeat with the same text gets the recorded answer.",
        ),
    ] = None,
) -> Response:
    """The released counts of all cells. The charge precedes the read of the data, the record precedes the response.

    The same question on the same data is answered from the record and costs nothing.
    """
    asked = _without_default_grade(ask.model_dump())
    repeatable = None if idempotency_key is None else Repeatable(_hash(idempotency_key), _hash(json.dumps(asked)))
    question = asked.pop("sql", None)
    table = get_curator(request).count(question, **asked, analyst=key.name, most=key.answers, request=repeatable)
    ANSWERS.labels("replayed" if table.replayed else "charged").inc()
    return json_response(describe_table(table))


@v1.get("/budget", response_model=schemas.BudgetResponse, responses=document_problems(*_ALWAYS), tags=["budget"])
def budget(request: Request, key: Holder) -> Response:
    """The answers left for the holder of this key; curators also see the shares."""
    return json_response({"pools": list_pools(get_curator(request), key)})


@v1.get("/asked", name="asked", response_model=schemas.History, responses=document_problems(*_ALWAYS), tags=["budget"])
def list_asked(request: Request, key: Holder) -> Response:
    """The questions that were charged: for curators those of everyone, for analysts their own."""
    who = None if key.role == "curator" else key.name
    return json_response({"asked": [asdict(entry) for entry in get_curator(request).history(who)]})


@v1.get(
    "/receipts/{id}",
    response_model=schemas.ReceiptDocument,
    responses=document_problems(*_ALWAYS, ProblemKind.NOT_FOUND, ProblemKind.BAD_PARAMETER),
    tags=["budget"],
)
def get_receipt(request: Request, id: Annotated[str, Path(pattern=schemas.RECEIPT)], key: Holder) -> Response:
    """The receipt of one of your charges; curators see every receipt."""
    here = get_curator(request)
    charge, receipt = here.ledger.charge_of(id), here.receipt(id)
    if charge is None or receipt is None or (key.role != "curator" and charge.analyst != key.name):
        raise Problem(ProblemKind.NOT_FOUND, "you have no receipt with this id; see /v1/asked for yours")
    return json_response(
        {"receipt": asdict(receipt), "analyst": charge.analyst, "answered": charge.payload is not None}
    )


@v1.get(
    "/publications",
    response_model=schemas.Publications,
    responses=document_problems(*_ALWAYS),
    tags=["publications"],
)
def publications(request: Request, key: Holder) -> Response:
    """The publications and their editions: tables, margins, guarantee. The service publishes nothing itself."""
    return json_response({"publications": [asdict(each) for each in get_curator(request).publications()]})


@v1.get(
    "/publications/{name}/{edition}",
    responses={
        **document_problems(*_PUBLISHED),
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
    },
    response_class=Response,
    tags=["publications"],
)
def get_manifest(request: Request, name: PublicationName, edition: EditionNumber, key: Holder) -> Response:
    """The manifest of an edition: guarantee, tree, receipts, accuracy, and the names and hashes of its files."""
    return send_file(get_curator(request), name, edition, MANIFEST)


@v1.get(
    "/publications/{name}/{edition}/{file:path}",
    responses={
        **document_problems(*_PUBLISHED),
        200: {"content": {kind.partition(";")[0]: {} for kind in TYPES.values()}},
    },
    response_class=Response,
    tags=["publications"],
)
def get_published_file(
    request: Request, name: PublicationName, edition: EditionNumber, file: FileName, key: Holder
) -> Response:
    """A file of an edition: a table, a margin, a law, the report, or the entry for registries."""
    return send_file(get_curator(request), name, edition, file)


@v1.get(
    "/verify",
    response_model=schemas.Verified,
    responses=document_problems(*_ALWAYS, ProblemKind.FORBIDDEN),
    tags=["budget"],
)
def verify(request: Request, key: CuratorKey) -> Response:
    """Verify the whole chain of the ledger. For curators."""
    return json_response({"holds": True, "entries": get_curator(request).ledger.verify()})


@v1.post("/design", responses=document_problems(*_BODY), tags=["designing"])
def design(request: Request, wanted: schemas.Design, key: Designer) -> Response:
    """A certified mechanism for given values of epsilon, delta, eta and D. No data is involved."""
    return run_task(request, "design", wanted.model_dump(exclude_none=True))


@v1.post("/compare", responses=document_problems(*_BODY), tags=["designing"])
def compare(request: Request, wanted: schemas.Compare, key: Designer) -> Response:
    """Mechanisms of the literature and ours on equal terms. No data is involved."""
    return run_task(request, "compare", wanted.model_dump(exclude_none=True))


@plain.get(
    "/healthz",
    response_model=schemas.Health,
    responses=document_problems(
        ProblemKind.BAD_REQUEST, ProblemKind.MISDIRECTED, ProblemKind.METHOD_NOT_ALLOWED, ProblemKind.LEDGER
    ),
)
def healthz(request: Request) -> Response:
    """Is the service up, and can its ledger be read?"""
    _ = get_curator(request).ledger.plan("")
    return Response('{"status": "ok"}', media_type="application/json")


@plain.get(
    "/metrics",
    responses={**document_problems(*_ALWAYS, ProblemKind.FORBIDDEN), 200: {"content": {"text/plain": {}}}},
    response_class=Response,
)
def metrics(request: Request, key: CuratorKey) -> Response:
    """Counters for Prometheus. For curators."""
    return Response(exposition(get_curator(request)), media_type="text/plain; version=0.0.4")


def run_task(request: Request, task: str, arguments: dict[str, Any]) -> Response:
    """Run a task in the helper process and return its result as a response."""
    try:
        return json_response(request.app.state.workshop.run(task, arguments, client=request.state.client))
    except RefusedError as error:
        raise (Problem(ProblemKind.BAD_PARAMETER, str(error)) if error.code == 2 else internal_problem()) from None
    except TooLongError:
        raise Problem(
            ProblemKind.BAD_PARAMETER,
            f"this takes too long for the service; run countveil {task} on your own machine "
            f"(options: countveil {task} --help)",
        ) from None
    except BusyError:
        raise Problem(
            ProblemKind.TOO_MANY_REQUESTS, "too many designs are waiting; try again in 5 s", {"Retry-After": "5"}
        ) from None


def describe_table(table: Table) -> dict[str, Any]:
    """A table as JSON values, together with what a client needs to read dates and to compute subtotals."""
    return {**table.describe(), "kinds": table.kinds, "axes": list(table.grid.axes), "sum_margins": table.sum_margins}


def list_pools(here: Curator, key: Key) -> list[dict[str, Any]]:
    """The budgets that the holder of this key may see."""
    budgets = []
    for each in here.budget():
        dataset = here.config.dataset(each.datasets[0])
        visible = {
            "answers_left": here.left(dataset, key.name, key.answers),
            "grades": [asdict(grade) for grade in here.grades_left(dataset, key.name, key.answers)],
            "shares": {who: s.describe() for who, s in each.shares.items()} if key.role == "curator" else None,
        }
        budgets.append({**asdict(each), "datasets": list(each.datasets), **visible})
    return budgets


def _describe_dataset(dataset: DatasetSummary, most: int) -> dict[str, Any]:
    """A dataset as JSON values; members of a column that do not apply are left out. A new table over HTTP has at most
    `most` cells."""
    facts = {**asdict(dataset), "max_cells": min(most, dataset.max_cells)}
    columns = [{name: value for name, value in each.items() if value is not None} for each in facts["columns"]]
    return {**facts, "columns": columns}


def _without_default_grade(asked: dict[str, Any]) -> dict[str, Any]:
    """The members of a question; `grade` is left out if it is not given.

    Then the hash of the request is the same as in earlier versions, which had no grades.
    """
    return {name: value for name, value in asked.items() if name != "grade" or value is not None}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
