"""Refusals over HTTP: problem+json (RFC 9457), the same for every dataset, with the codes of the command line.

`error.code` is the exit code that the command line would return: 1 internal, 2 bad parameter or request, 3 query not
allowed, 4 budget exhausted, 5 data does not fit its schema, 6 engine or extra missing. What a source or a ledger says
about itself is for the curator: over HTTP it is a fixed sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from countveil.errors import (
    BudgetError,
    ConfigError,
    ConflictError,
    CountveilError,
    DataError,
    EngineError,
    LedgerError,
    MissingExtraError,
    QueryError,
    all_answers,
)

MEDIA = "application/problem+json"
_REFERENCE = {"$ref": "#/components/schemas/ProblemDocument"}


@dataclass(frozen=True)
class Kind:
    """One sort of refusal."""

    name: str
    status: int
    title: str
    code: int


UNAUTHORIZED = Kind("unauthorized", 401, "a valid key is needed", 2)
FORBIDDEN = Kind("forbidden", 403, "this key may not do that", 2)
NOT_FOUND = Kind("not-found", 404, "there is nothing here", 2)
BAD_METHOD = Kind("method-not-allowed", 405, "this address does not take that method", 2)
BAD_REQUEST = Kind("bad-request", 400, "the request could not be read", 2)
CONFLICT = Kind("conflict", 409, "the idempotency key has another question", 2)
TOO_LARGE = Kind("too-large", 413, "the request is too large", 2)
MEDIA_TYPE = Kind("unsupported-media-type", 415, "the body has to be JSON", 2)
MISDIRECTED = Kind("misdirected", 421, "this host is not served here", 2)
BAD_PARAMETER = Kind("bad-parameter", 422, "a parameter is not allowed", 2)
BAD_QUERY = Kind("query-not-allowed", 422, "the query is not allowed", 3)
SPENT = Kind("budget-exhausted", 402, "the budget is spent", 4)
TOO_MANY = Kind("too-many-requests", 429, "too many requests", 2)
INTERNAL = Kind("internal", 500, "an internal error", 1)
NOT_READY = Kind("not-ready", 503, "the dataset cannot be asked now", 2)
LEDGER = Kind("ledger", 503, "the ledger cannot be used now", 1)
SCHEMA = Kind("data-does-not-fit", 503, "the data does not fit its declared schema", 5)
ENGINE = Kind("engine", 503, "the data cannot be reached now", 6)

KINDS = (
    BAD_REQUEST,
    UNAUTHORIZED,
    SPENT,
    FORBIDDEN,
    NOT_FOUND,
    BAD_METHOD,
    CONFLICT,
    TOO_LARGE,
    MEDIA_TYPE,
    MISDIRECTED,
    BAD_PARAMETER,
    BAD_QUERY,
    TOO_MANY,
    INTERNAL,
    NOT_READY,
    LEDGER,
    SCHEMA,
    ENGINE,
)
_FIXED = {
    NOT_READY: "the curator has to mend the configuration; the service's log names the entry",
    LEDGER: "nothing was answered; what was charged stays charged; ask again, or tell the curator",
    SCHEMA: "the curator can look with: countveil inspect",
    ENGINE: "what was charged stays charged, and the same question is then free; ask again, or tell the curator",
    INTERNAL: "nothing was answered; what was charged stays charged; tell the curator",
}


class Problem(HTTPException):
    """A refusal on its way out. `more` are further members of `error`."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, str | int | None] | None = None,
    ) -> None:
        super().__init__(kind.status, detail, dict(headers or {}))
        self.kind, self.more = kind, dict(more or {})
        self.entry: str | None = None
        """The entry of the configuration at fault, for the log."""

    def note(self, request: Request) -> None:
        """Tell the log what the curator has to see to."""
        if self.kind.status >= 500:
            request.state.problem = self.kind.name if self.entry is None else f"{self.kind.name}: {self.entry}"

    def response(self) -> Response:
        body = {
            "type": f"urn:countveil:problem:{self.kind.name}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "error": {"code": self.kind.code, "name": self.kind.name, **self.more},
        }
        return Response(json.dumps(body), self.kind.status, headers=self.headers, media_type=MEDIA)


def problem(error: CountveilError) -> Problem:
    """What an error of the library is over HTTP."""
    if isinstance(error, QueryError):
        return Problem(BAD_QUERY, str(error), more={"position": error.position})
    if isinstance(error, BudgetError):
        return Problem(SPENT, _spent(error), more={"pool": error.pool, "answers": error.answers})
    if isinstance(error, ConflictError):
        return Problem(CONFLICT, str(error))
    for kinds, kind in (
        (ConfigError, NOT_READY),
        (LedgerError, LEDGER),
        (DataError, SCHEMA),
        ((EngineError, MissingExtraError), ENGINE),
    ):
        if isinstance(error, kinds):
            found = Problem(kind, _FIXED[kind])
            found.entry = getattr(error, "key", None)
            return found
    return Problem(BAD_PARAMETER, str(error)) if error.exit_code == 2 else internal()


def internal() -> Problem:
    return Problem(INTERNAL, _FIXED[INTERNAL])


def documented(kinds: Iterable[Kind], model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says about refusals: every status with its titles."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        before = found.get(kind.status)
        title = f"{before['description']}; or {kind.title}" if before else kind.title
        found[kind.status] = {"description": title, "content": {MEDIA: {"schema": _REFERENCE}}, "model": model}
    return found


def _spent(error: BudgetError) -> str:
    """Without the curator's command: who reads this cannot run it."""
    if error.analyst is None:
        return f"the budget of {error.pool} is spent, {all_answers(error.answers)}; questions asked before stay free"
    if error.answers == 0:
        return f"this key has no share in the budget of {error.pool}"
    spent = all_answers(error.answers)
    return f"the share of this key in {error.pool} is spent, {spent}; questions asked before stay free"
