"""Reads JSON bodies strictly: limited in size and depth, no duplicate names, no NaN, no lone surrogates."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from countveil.errors import ProblemKind
from countveil.service.auth import WHO
from countveil.service.problem_json import Problem

MOST_BYTES = 256 * 1024
MOST_DEPTH = 32


class StrictRequest(Request):
    """A request whose body is limited in size and parsed strictly."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            stated = self.headers.get("content-length", "")
            if stated.isdecimal() and int(stated[:20]) > MOST_BYTES:
                raise _too_large()
            read = bytearray()
            try:
                async for chunk in self.stream():
                    read += chunk
                    if len(read) > MOST_BYTES:
                        raise _too_large()
            except ClientDisconnect:
                raise Problem(ProblemKind.BAD_REQUEST, "the body arrived incomplete; send it again") from None
            self._body = bytes(read)
        return self._body

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A route that parses the bodies of its requests strictly, after it has checked their keys."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        requirements = [each.call for each in self.dependant.dependencies if each.call in WHO]

        async def handle_strictly(request: Request) -> Response:
            for require in requirements:
                await require(request)  # before the body: nothing is read from a client without a valid key
            if request.method == "POST":
                media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                if media != "application/json":
                    raise Problem(ProblemKind.UNSUPPORTED_MEDIA_TYPE, "send the body as application/json")
            return await handler(StrictRequest(request.scope, request.receive))

        return handle_strictly


def parse_json(body: bytes) -> Any:
    """Parse a JSON text; a text that is not strict JSON raises a Problem."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(ProblemKind.BAD_REQUEST, "the body is not UTF-8 text") from None
    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=_make_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Problem(ProblemKind.BAD_REQUEST, "the body is not valid JSON") from None


def _check_depth(text: str) -> None:
    """Limit the nesting of brackets outside strings, and so the recursion of the JSON parser."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    depth, quoted, escaped = 0, False, False
    for letter in text:
        if quoted:
            quoted, escaped = escaped or letter != '"', not escaped and letter == "\\"
        elif letter == '"':
            quoted = True
        elif letter in "[{":
            depth += 1
            if depth > MOST_DEPTH:
                raise Problem(ProblemKind.BAD_PARAMETER, f"the body is nested more than {MOST_DEPTH} deep")
        elif letter in "]}":
            depth -= 1


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Problem(ProblemKind.BAD_PARAMETER, "the body has the same member twice; send it once")
    for value in (*members, *members.values()):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not _is_encodable(text):
                raise Problem(ProblemKind.BAD_PARAMETER, "the body has a lone surrogate; send whole characters")
    return members


def _is_encodable(text: str) -> bool:
    """Whether a text can be encoded, that is, has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise Problem(ProblemKind.BAD_PARAMETER, f"{name} is not a JSON number; send a finite number")


def _too_large() -> Problem:
    return Problem(ProblemKind.TOO_LARGE, f"the body has more than the allowed {MOST_BYTES} bytes")
