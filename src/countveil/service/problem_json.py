"""Refusals over HTTP: problem+json (RFC 9457), the same for every dataset, with the codes of the command line.

`error.code` is the exit code that the command line would return: 1 internal, 2 bad parameter or request, 3 query not
allowed, 4 budget exhausted, 5 data does not fit its schema, 6 engine or extra missing. What a source or a ledger says
about itself is for the curator: over HTTP it is a fixed sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from countveil.errors import BudgetError, ConfigError, CountveilError, MissingExtraError, QueryError, all_answers
from countveil.problem_kinds import Kind

MEDIA = "application/problem+json"
CURATORS = (Kind.NOT_READY, Kind.LEDGER, Kind.DATA_DOES_NOT_FIT, Kind.ENGINE)
"""Refusals that only a curator can do something about."""
_REFERENCE = {"$ref": "#/components/schemas/ProblemDocument"}


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
            request.state.problem = self.kind.slug if self.entry is None else f"{self.kind.slug}: {self.entry}"

    def response(self) -> Response:
        body = {
            "type": f"urn:countveil:problem:{self.kind.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "error": {"code": self.kind.code, "name": self.kind.slug, **self.more},
        }
        return Response(json.dumps(body), self.kind.status, headers=self.headers, media_type=MEDIA)


def problem(error: CountveilError) -> Problem:
    """What an error of the library is over HTTP."""
    if isinstance(error, QueryError):
        return Problem(Kind.QUERY_NOT_ALLOWED, str(error), more={"position": error.position})
    if isinstance(error, BudgetError):
        return Problem(Kind.BUDGET_EXHAUSTED, _spent(error), more={"pool": error.pool, "answers": error.answers})
    if isinstance(error, MissingExtraError):
        return Problem(Kind.ENGINE, Kind.ENGINE.fixed)
    kind = next((kind for kind in (Kind.CONFLICT, *CURATORS) if isinstance(error, kind.error)), Kind.BAD_PARAMETER)
    found = Problem(kind, kind.fixed or str(error))
    found.entry = error.key if isinstance(error, ConfigError) else None
    return found if kind.fixed or error.exit_code == 2 else internal()


def internal() -> Problem:
    return Problem(Kind.INTERNAL, Kind.INTERNAL.fixed)


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
