"""Requests to one service: the key, retries, and refusals as errors.

Guarantees: see `connection`.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import countveil
from countveil.client.responses import read_refusal
from countveil.client.transport import BrokenError, Reply, Wire, parse_address
from countveil.errors import AccessError, CountveilError, ParameterError, RequestError, ServiceError, shorten
from countveil.query import Condition

ENVIRONMENT = "COUNTVEIL_KEY"
WAITS = (0.0, 0.25, 1.0, 4.0)
"""How many seconds to wait before each retry. The first retry is immediate, for a connection that was idle too long."""
PATIENCE = 60
"""The longest time, in seconds, that the client waits when a service asks it to wait."""
R = TypeVar("R")


class Exchange:
    """Requests to the service at an address; the base of `Connection`."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        insecure: bool = False,
        timeout: float = 120.0,
        cafile: str | Path | None = None,
    ) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise ParameterError("timeout", timeout, "a number of seconds above 0")
        address = parse_address(url, insecure=insecure)
        self._key = _check_key(os.environ.get(ENVIRONMENT) if key is None else key)
        self._wire = Wire(address, timeout, cafile)
        self._headers = {"Accept": "application/json", "User-Agent": f"countveil/{countveil.__version__}"}
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Connection {self._wire.address}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a connection has a key in it and is not pickled or copied; connect again")

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check(self) -> None:
        """Check, without sending the key, that a countveil service is at this address."""
        try:
            reply = self._wire.send("GET", "/openapi.json", self._headers)
        except BrokenError as broken:
            raise self._unreachable(broken) from None
        if reply.status != 200 and reply.problem is not None:
            raise self._refusal(reply)
        document = reply.json if reply.status == 200 else None
        about = document.get("info") if isinstance(document, dict) else None
        if not isinstance(about, dict) or about.get("title") != "countveil":
            raise self._foreign(reply)

    def _ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        where: object = None,
        more: Mapping[str, str] | None = None,
        *,
        may_be_missing: bool = False,
    ) -> Any:
        """Send a request and return the parsed response; None if `may_be_missing` and the service has nothing there."""
        reply = self._send(path, body, more)
        if may_be_missing and reply.status == 404 and reply.problem is not None:
            return None
        if reply.status != 200:
            raise self._refusal(reply, positions=not isinstance(where, Condition))
        return reply.json

    def _fetch(self, path: str) -> bytes:
        """The content of a file."""
        reply = self._send(path)
        if reply.status != 200:
            raise self._refusal(reply)
        return reply.body

    def _send(self, path: str, body: Mapping[str, Any] | None = None, more: Mapping[str, str] | None = None) -> Reply:
        """Send a request, and send it again with the same headers and body if it may have been lost."""
        headers = {**self._headers, "Authorization": f"Bearer {self._key}", **(more or {})}
        sent = None if body is None else json.dumps(body).encode()
        if sent is not None:
            headers["Content-Type"] = "application/json"
        for wait in (*WAITS, None):
            try:
                reply = self._wire.send("GET" if sent is None else "POST", path, headers, sent)
            except BrokenError as broken:
                if wait is None or broken.final:
                    paid = "; if it was charged, the same question is now free" if path == "/v1/count" else ""
                    raise self._unreachable(broken, paid) from None
                time.sleep(wait)
                continue
            again = reply.again
            if wait is None or again is None or again > PATIENCE:
                break
            time.sleep(max(wait, again))
        return reply

    def _understand(self, read: Callable[..., R], body: Any, *more: Any) -> R:
        try:
            if body["schema_version"] != 1:
                raise ValueError
            return read(body, *more)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise ServiceError(
                f"{self._wire.address} sent a response that this version of countveil cannot read; update countveil"
            ) from None

    def _unreachable(self, broken: BrokenError, more: str = "") -> ServiceError:
        return ServiceError(f"{self._wire.address} cannot be reached: {self._line(str(broken))}{more}")

    def _foreign(self, reply: Reply) -> ServiceError:
        if 300 <= reply.status < 400:
            return ServiceError(
                f"{self._wire.address} redirects, and the key is not sent to other addresses; give the final address"
            )
        return ServiceError(f"{self._wire.address} did not respond like a countveil service (status {reply.status})")

    def _refusal(self, reply: Reply, *, positions: bool = True) -> CountveilError:
        """The error that a Curator would raise for the refusal in this reply."""
        problem = reply.problem
        if problem is None:
            return self._foreign(reply)
        if problem["error"].get("name") == "unauthorized":
            return AccessError(f"{self._wire.address} does not know this key; ask its curator for one")
        title, detail = self._line(problem["title"]), self._line(problem["detail"])
        return read_refusal(title, detail, problem["error"], positions=positions)

    def _line(self, words: str) -> str:
        """A text from the service on one line, shortened, with the key removed."""
        return shorten(words.replace(self._key, "..."), 1000)


def _check_key(given: object) -> str:
    key = given.strip() if isinstance(given, str) else ""
    if not key:
        raise RequestError(
            f"no key: set {ENVIRONMENT} or give key=...; a curator makes one with: countveil keys add NAME"
        )
    if not re.fullmatch("[!-~]{1,200}", key):
        raise RequestError("key: not a valid key; a key is one word that begins with cvk_")
    return key
