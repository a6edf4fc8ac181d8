"""JSON bodies, read strictly: bounded in size and depth, no name twice, no NaN, no half of a surrogate pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from countveil.problem_kinds import Kind
from countveil.service.access import WHO
from countveil.service.problems import Problem

MOST_BYTES = 256 * 1024
MOST_DEPTH = 32


class StrictRequest(Request):
    """A request whose body is read up to a limit and parsed without leniency."""

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
                raise Problem(Kind.BAD_REQUEST, "the body did not arrive whole") from None
            self._body = bytes(read)
        return self._body

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parsed(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A route with strict bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        asking = [each.call for each in self.dependant.dependencies if each.call in WHO]

        async def strict(request: Request) -> Response:
            for who in asking:
                await who(request)  # before the body: of what a stranger sends nothing is read
            if request.method == "POST":
                media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                if media != "application/json":
                    raise Problem(Kind.UNSUPPORTED_MEDIA_TYPE, "send the body as application/json")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def parsed(body: bytes) -> Any:
    """The value of a JSON text, or a Problem."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(Kind.BAD_REQUEST, "the body is not UTF-8 text") from None
    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise Problem(Kind.BAD_REQUEST, "the body is not valid JSON") from None


def _check_depth(text: str) -> None:
    """Brackets outside of texts: a bound on what the parser will have to hold."""
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
                raise Problem(Kind.BAD_PARAMETER, f"the body is nested more than {MOST_DEPTH} deep")
        elif letter in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Problem(Kind.BAD_PARAMETER, "the body names the same member twice")
    for value in (*found, *found.values()):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not _whole(text):
                raise Problem(Kind.BAD_PARAMETER, "the body has half of a surrogate pair; send whole characters")
    return found


def _whole(text: str) -> bool:
    """Every character of a text stands for itself."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _constant(name: str) -> NoReturn:
    raise Problem(Kind.BAD_PARAMETER, f"{name} is not a number of JSON")


def _too_large() -> Problem:
    return Problem(Kind.TOO_LARGE, f"the body has more than {MOST_BYTES} bytes")
