"""Refusals over HTTP: problem+json (RFC 9457), with the exit codes of the command line; no text depends on the data.

`error.code` is the exit code that the command line would return: 1 internal, 2 bad parameter or request, 3 query not
allowed, 4 budget exhausted, 5 data does not fit its schema, 6 engine or extra missing. Errors of a source or a ledger
concern only the curator, so over HTTP a fixed sentence replaces them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from countveil.errors import (
    BudgetError,
    ConfigError,
    CountveilError,
    MissingExtraError,
    ProblemKind,
    QueryError,
    all_answers,
    describe_others,
)

MEDIA = "application/problem+json"
CURATORS = (ProblemKind.NOT_READY, ProblemKind.LEDGER, ProblemKind.DATA_DOES_NOT_FIT, ProblemKind.ENGINE)
"""Refusals that only a curator can resolve."""
_REFERENCE = {"$ref": "#/components/schemas/ProblemDocument"}


class Problem(HTTPException):
    """A refusal that is raised as an exception. `more` has further members for `error` in the response."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, str | int | None] | None = None,
    ) -> None:
        super().__init__(kind.status, detail, dict(headers or {}))
        self.kind, self.more = kind, dict(more or {})
        self.entry: str | None = None
        """The key of the configuration that is invalid, for the log."""

    def note(self, request: Request) -> None:
        """Add this refusal to the log line of its request if only the curator can resolve it."""
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


def to_problem(error: CountveilError) -> Problem:
    """Turn an error of the library into a refusal over HTTP."""
    if isinstance(error, QueryError):
        return Problem(ProblemKind.QUERY_NOT_ALLOWED, str(error), more={"position": error.position})
    if isinstance(error, BudgetError):
        more: dict[str, Any] = {"pool": error.pool, "answers": error.answers}
        if error.grade is not None:
            more["grade"] = error.grade
        return Problem(ProblemKind.BUDGET_EXHAUSTED, _budget_message(error), more=more)
    if isinstance(error, MissingExtraError):
        return Problem(ProblemKind.ENGINE, ProblemKind.ENGINE.fixed)
    kind = next(
        (kind for kind in (ProblemKind.CONFLICT, *CURATORS) if isinstance(error, kind.error)), ProblemKind.BAD_PARAMETER
    )
    problem = Problem(kind, kind.fixed or str(error))
    problem.entry = error.key if isinstance(error, ConfigError) else None
    return problem if kind.fixed or error.exit_code == 2 else internal_problem()


def internal_problem() -> Problem:
    return Problem(ProblemKind.INTERNAL, ProblemKind.INTERNAL.fixed)


def describe_problems(kinds: Iterable[ProblemKind], model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe these refusals for the OpenAPI document: for each status, the titles that a refusal can have."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        before = responses.get(kind.status)
        title = f"{before['description']}; or {kind.title}" if before else kind.title
        responses[kind.status] = {"description": title, "content": {MEDIA: {"schema": _REFERENCE}}, "model": model}
    return responses


def _budget_message(error: BudgetError) -> str:
    """The message for a spent budget, without the command that only a curator can run."""
    pool = error.pool if error.grade is None else f"grade {error.grade} of {error.pool}"
    if error.analyst is None:
        more = f"; {describe_others(error.others)}" if error.others else ""
        return f"the budget of {pool} is spent, {all_answers(error.answers)}; questions asked before stay free{more}"
    if error.answers == 0:
        return f"this key has no share in the budget of {pool}"
    spent = all_answers(error.answers)
    return f"the share of this key in {pool} is spent, {spent}; questions asked before stay free"
