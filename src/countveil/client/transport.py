"""HTTP requests to one address, over connections that are kept open; no redirects, no retries.

Plain http is allowed only to this machine: on the way to another machine, anyone could read the key.
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
MOST_BYTES = 2 << 30
"""The largest response that is read."""
_ALLOWED = "an address such as https://counts.example.org"


class BrokenError(Exception):
    """No reply arrived. The message says why. If `final`, sending the request again is useless."""

    def __init__(self, words: str, final: bool = False) -> None:
        super().__init__(words)
        self.final = final


@dataclass(frozen=True)
class Address:
    """The address of a service. `path` is the prefix of all routes, if a proxy offers the service under a path."""

    secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.secure else 80)
        return f"http{'s' if self.secure else ''}://{host}{'' if usual else f':{self.port}'}{self.path}"


def parse_address(url: object, *, insecure: bool = False) -> Address:
    """Parse the URL of a service. An error never quotes a key or password that the URL contains.

    >>> parse_address("http://localhost:8000/").port, str(parse_address("https://counts.example.org/office"))
    (8000, 'https://counts.example.org/office')
    """
    text = url.strip() if isinstance(url, str) else ""
    if "cvk_" in text.lower():
        raise RequestError("url: contains a key, and logs keep addresses; give the key with key=...")
    if "@" in text:
        raise RequestError("url: leave out the user name and password; the key identifies you")
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
            f"url: {host} is another machine, and over http the key would be sent unencrypted; use https://"
        )
    return Address(secure, host, port or (443 if secure else 80), parts.path.rstrip("/"))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Reply:
    """The response to one request."""

    status: int
    retry_after: str
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The parsed body; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def problem(self) -> dict[str, Any] | None:
        """The problem document that a countveil service sent; None if the body is not one."""
        body = self.json
        if not isinstance(body, dict) or not str(body.get("type")).startswith(PROBLEM):
            return None
        texts = isinstance(body.get("detail"), str) and isinstance(body.get("title"), str)
        return body if texts and isinstance(body.get("error"), dict) else None

    @property
    def again(self) -> int | None:
        """How many seconds to wait before the same request may be sent again; None if a retry is useless.

        A busy service says how long. A proxy's own 502, 503 or 504 does not, and the retry may follow at once.
        """
        seconds = self.retry_after
        if self.status in (429, 503) and seconds.isascii() and seconds.isdigit():
            return int(seconds[:9])
        return 0 if self.status in (502, 503, 504) and self.problem is None else None


class Wire:
    """A pool of connections to one address. Each is used by one request at a time and then kept for the next."""

    def __init__(self, address: Address, timeout: float, cafile: str | Path | None = None) -> None:
        self.address, self._timeout = address, timeout
        self._context = _context(cafile) if address.secure else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._process = os.getpid()

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Send one request and return the reply."""
        connection, fresh = self._take_connection()
        try:
            connection.request(method, self.address.path + path, body, dict(headers))
            response = connection.getresponse()
            reply = Reply(response.status, response.headers.get("Retry-After") or "", _read_body(response))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.close()  # the server has likely closed the other idle connections too
            raise self._describe_failure(error, fresh) from None
        except BaseException:  # too large, or interrupted: the rest of this reply must not be read as the next one
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

    def _take_connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Take a kept connection or make one; also return whether it is new."""
        if self._process != os.getpid():  # after a fork, connections belong to the parent
            self._idle, self._process = deque(), os.getpid()
        try:
            return self._idle.pop(), False
        except IndexError:
            place = (self.address.host, self.address.port)
            if self._context is None:
                return http.client.HTTPConnection(*place, timeout=self._timeout), True
            return http.client.HTTPSConnection(*place, timeout=self._timeout, context=self._context), True

    def _describe_failure(self, error: Exception, fresh: bool) -> BrokenError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return BrokenError(f"its certificate is not valid ({error.verify_message})", final=True)
        if isinstance(error, ssl.SSLError):
            return BrokenError(f"TLS failed ({str(error.reason or 'no reason given').lower().replace('_', ' ')})")
        if isinstance(error, TimeoutError):
            return BrokenError(f"no response within {self._timeout:g} s", final=fresh)
        if isinstance(error, http.client.RemoteDisconnected):
            return BrokenError("the service closed the connection without a response")
        if isinstance(error, OSError):
            return BrokenError(error.strerror or "the connection broke")
        if isinstance(error, http.client.IncompleteRead):
            return BrokenError("the connection broke in the middle of the response")
        return BrokenError("the response is not HTTP")


def _read_body(response: http.client.HTTPResponse) -> bytes:
    """The body of a response, up to a limit."""
    if response.length is not None and response.length <= MOST_BYTES:
        return response.read()  # complete, or an error
    body = bytearray()
    while response.length is None and len(body) <= MOST_BYTES and (piece := response.read(1 << 20)):
        body += piece
    if response.length is not None or len(body) > MOST_BYTES:
        raise BrokenError(f"its response has more than {MOST_BYTES:,} bytes", final=True)
    return bytes(body)


def _context(cafile: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, TypeError):
        raise ParameterError("cafile", cafile, "a file of certificates in PEM form") from None
