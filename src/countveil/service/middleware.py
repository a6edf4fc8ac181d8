"""Middleware for every request: check the host, refuse keys in addresses, add headers, write one log line.

A log line has the route, never the full address; the name of the key's holder, never the key.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from countveil.errors import ProblemKind
from countveil.service.metrics import REQUESTS
from countveil.service.problem_json import Problem, internal_problem

log = logging.getLogger("countveil.service")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # with "no-referrer" browsers send the origin of our own forms as "null"
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LONGEST_ADDRESS = 8_000
_PORT = re.compile(r":[0-9]{1,5}$")


class Guard:
    """The outermost layer of the application. `hosts` has the accepted host names; if it is empty, any name is
    accepted."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), tls: bool = False) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)
        headers = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if tls else {})
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                defaults = [header for header in self._headers if header[0] not in names]
                message["headers"] = [*message["headers"], *defaults]
            await send(message)

        scope.setdefault("state", {})["who"] = None
        method = _method(scope)
        if method == "HEAD":  # handled as GET; the server, which has the original scope, sends no body
            scope = {**scope, "method": "GET"}
        refused = self._find_problem(scope)
        try:
            if refused is not None:
                await refused.response()(scope, receive, send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)
        except Exception as error:  # the message is not logged or sent: it could quote the data
            log.error(_line(scope, method, 500, type(error).__name__))
            if status == 500:
                await internal_problem().response()(scope, receive, send_with_headers)
        _log_request(scope, method, status)

    def _find_problem(self, scope: Scope) -> Problem | None:
        host = _PORT.sub("", Headers(scope=scope).get("host", "").lower())
        if self._hosts and host not in self._hosts:
            return Problem(ProblemKind.MISDIRECTED, "use the host name that this service was started with")
        address = scope.get("raw_path", b"") + b"?" + scope.get("query_string", b"")
        if len(address) > LONGEST_ADDRESS:
            return Problem(ProblemKind.BAD_REQUEST, f"the address has more than {LONGEST_ADDRESS} characters")
        if b"cvk_" in unquote_to_bytes(address).lower():
            return Problem(
                ProblemKind.BAD_REQUEST,
                "the address contains a key, and logs keep addresses: revoke the key, and send a new one in the header",
            )
        return None


class ServerLines(logging.Formatter):
    """Formats the HTTP server's own messages for the same log. Exceptions are left out, because they could quote the
    data."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"time": _now(), "level": record.levelname.lower(), "server": record.getMessage().strip()})


def _log_request(scope: Scope, method: str, status: int) -> None:
    REQUESTS.labels(_route(scope), method, str(status)).inc()
    log.info(_line(scope, method, status))


def _line(scope: Scope, method: str, status: int, error: str | None = None) -> str:
    line = {
        "time": _now(),
        "method": method,
        "route": _route(scope),
        "status": status,
        "who": scope["state"].get("who"),
    }
    more = {"problem": scope["state"].get("problem"), "error": error}
    return json.dumps(line | {name: text for name, text in more.items() if text is not None})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _route(scope: Scope) -> str:
    """The pattern of the route, which contains nothing that the client typed."""
    return str(getattr(scope.get("route"), "path", "other"))


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS") else "other"
