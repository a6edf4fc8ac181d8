"""One address over HTTP: where it may be, connections that are kept, replies as they come; no redirects, no retries.

Plain http goes to this machine alone: on the way to any other, whoever listens would have the key.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from countveil.errors import ParameterError, RequestError

PROBLEM = "urn:countveil:problem:"
_ALLOWED = "an address such as https://counts.example.org"


class BrokenError(Exception):
    """No reply came: in words, and whether it is no use to try again."""

    def __init__(self, words: str, final: bool = False) -> None:
        super().__init__(words)
        self.final = final


@dataclass(frozen=True)
class Address:
    """Where a service is. `path` is what comes before the routes, for services below a path of a proxy."""

    secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.secure else 80)
        return f"http{'s' if self.secure else ''}://{host}{'' if usual else f':{self.port}'}{self.path}"


def address_of(url: object, *, insecure: bool = False) -> Address:
    """The address that a text names, or a refusal that does not quote what may be a secret in it.

    >>> address_of("http://localhost:8000/").port, str(address_of("https://counts.example.org/office"))
    (8000, 'https://counts.example.org/office')
    """
    text = url.strip() if isinstance(url, str) else ""
    if "cvk_" in text.lower():
        raise RequestError("url: a key never goes into an address, where logs keep it; give it with key=...")
    if "@" in text:
        raise RequestError("url: leave out the name and password; who asks is said by the key")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        raise ParameterError("url", url, _ALLOWED) from None
    if parts.scheme not in ("http", "https") or not host or port == 0 or not text.isascii() or not text.isprintable():
        raise ParameterError("url", url, _ALLOWED)
    if parts.query or parts.fragment or " " in text or "%" in host:
        raise ParameterError("url", url, f"{_ALLOWED}, without ? and #")
    secure = parts.scheme == "https"
    if not secure and not insecure and not _loopback(host):
        raise RequestError(
            f"url: {host} is another machine, and over http the key would travel in the clear; use https://"
        )
    return Address(secure, host, port or (443 if secure else 80), parts.path.rstrip("/"))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    retry_after: str
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The value of the body; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def problem(self) -> dict[str, Any] | None:
        """The refusal of a countveil service, if this is one."""
        found = self.json
        if not isinstance(found, dict) or not str(found.get("type")).startswith(PROBLEM):
            return None
        texts = isinstance(found.get("detail"), str) and isinstance(found.get("title"), str)
        return found if texts and isinstance(found.get("error"), dict) else None

    @property
    def again(self) -> int | None:
        """In how many seconds the same request may be sent again; None: it would be of no use.

        A service that is too busy says when. Statuses that a proxy gives by itself say nothing, and pass.
        """
        said = self.retry_after
        if self.status in (429, 503) and said.isascii() and said.isdigit():
            return int(said[:9])
        return 0 if self.status in (502, 503, 504) and self.problem is None else None


class Wire:
    """Connections to one address, each used by one request at a time and kept for the next."""

    def __init__(self, address: Address, timeout: float, cafile: str | Path | None = None) -> None:
        self.address, self._timeout = address, timeout
        self._context = _context(cafile) if address.secure else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._process = os.getpid()

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """The reply to one request."""
        connection, fresh = self._taken()
        try:
            connection.request(method, self.address.path + path, body, dict(headers))
            response = connection.getresponse()
            reply = Reply(response.status, response.headers.get("Retry-After") or "", response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.close()  # what was kept beside it has likely been closed at the other end too
            raise self._broken(error, fresh) from None
        except BaseException:  # stopped in the middle: what is still to come is not the next reply
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return reply

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _taken(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it is a new one."""
        if self._process != os.getpid():  # after a fork, connections belong to the parent
            self._idle, self._process = deque(), os.getpid()
        try:
            return self._idle.pop(), False
        except IndexError:
            place = (self.address.host, self.address.port)
            if self._context is None:
                return http.client.HTTPConnection(*place, timeout=self._timeout), True
            return http.client.HTTPSConnection(*place, timeout=self._timeout, context=self._context), True

    def _broken(self, error: Exception, fresh: bool) -> BrokenError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return BrokenError(f"its certificate is not valid ({error.verify_message})", final=True)
        if isinstance(error, ssl.SSLError):
            return BrokenError(f"TLS failed ({str(error.reason or 'no reason given').lower().replace('_', ' ')})")
        if isinstance(error, TimeoutError):
            return BrokenError(f"no answer within {self._timeout:g} s", final=fresh)
        if isinstance(error, http.client.RemoteDisconnected):
            return BrokenError("it closed the connection without an answer")
        if isinstance(error, OSError):
            return BrokenError(error.strerror or "the connection broke")
        if isinstance(error, http.client.IncompleteRead):
            return BrokenError("the connection broke in the middle of the answer")
        return BrokenError("what came back is not HTTP")


def _context(cafile: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, TypeError):
        raise ParameterError("cafile", cafile, "a file of certificates in PEM form") from None
