"""Connections: how long a client may take to send a request or fetch an answer, and how many there may be.

A file descriptor is what a connection costs, and anyone may open one. So there are fewer connections than the process
may have files; for a new one beyond that, the connection that has waited for its client longest is closed: one that has
sent no request, or half of one, or is kept for the next, or does not fetch its answer. A connection whose request is
being answered waits for nobody and is never closed for another. Whoever sends a request at once is answered, however
many others open connections and send nothing.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD, BODY, IDLE = 10.0, 30.0, 120.0
"""Seconds that a client has for the head of a request (and for the handshake of TLS before it), for its body, and
without taking anything of an answer. The server itself ends connections earlier that have nothing to fetch."""
LOOK = 1.0
"""Seconds between two looks at what waits."""
MOST = 2000
"""Connections of one process, if it may have that many files."""
OTHERS = 100
"""Files that are left to the ledger, the data and the helper."""
BACKLOG = 2048
"""Connections that may wait in the kernel to be accepted."""


def count_allowed(files: int) -> int:
    """How many connections a process has that may open so many files."""
    if files == resource.RLIM_INFINITY:
        return MOST
    return max(8, min(MOST, files - OTHERS, files * 3 // 4))


class Waiting:
    """The connections of this process, and which of them wait for their clients, the longest first."""

    def __init__(self) -> None:
        self.most = count_allowed(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._all: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        self._looking = False

    def add(self, connection: Connection) -> None:
        """A new connection; if there are too many, the one that waits longest is closed."""
        self._all.add(connection)
        if len(self._all) > self.most:
            self._drop(next(iter(self._waiting), connection))
        if not self._looking:
            self._looking = True
            connection.loop.call_later(LOOK, self._look, connection.loop)

    def note(self, connection: Connection, seconds: float | None) -> None:
        """From now on a connection waits for its client, for so many seconds at most; None: it does not wait."""
        self._waiting.pop(connection, None)
        if connection in self._all and seconds is not None:
            connection.until = connection.loop.time() + seconds
            self._waiting[connection] = None

    def remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._waiting.pop(connection, None)

    def _drop(self, connection: Connection) -> None:
        self.remove(connection)
        connection.abort()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Again and again: close what has waited too long."""
        now = loop.time()
        for connection in list(self._waiting):
            if connection.fetches():
                self.note(connection, IDLE)
            elif connection.until < now:
                self._drop(connection)
        self._looking = bool(self._all)
        if self._looking:
            loop.call_later(LOOK, self._look, loop)


WAITING = Waiting()


class Connection(H11Protocol):
    """One connection, which knows what it waits for. It begins TLS itself, so that handshakes are counted too."""

    tls: ssl.SSLContext | None = None
    until = 0.0
    """When it has waited for too long."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._raw: asyncio.Transport | None = None
        self._securing: asyncio.Task[None] | None = None
        self._early = bytearray()
        """What arrived with the end of the handshake."""
        self._seconds: float | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        WAITING.add(self)
        self._note(HEAD)
        if self.tls is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()
            self._securing = self.loop.create_task(self._secure(transport, self.tls))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(transport, self, tls, server_side=True, ssl_handshake_timeout=HEAD)
        except OSError:  # no TLS, or not ours, or too late
            secured = None
        if secured is None or secured.is_closing():
            WAITING.remove(self)
            transport.abort()
            return
        super().connection_made(secured)
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data
            return
        super().data_received(data)
        self._note(self._wait())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note(self._wait())

    def connection_lost(self, exc: Exception | None) -> None:
        WAITING.remove(self)
        if self.transport is not None:
            super().connection_lost(exc)

    def abort(self) -> None:
        """Close it now, whatever has not been sent."""
        if self._raw is not None:
            self._raw.abort()

    def fetches(self) -> bool:
        """It waits for its client to fetch an answer, who has taken something of it since this was last asked."""
        before, self._unsent = self._unsent, self._raw.get_write_buffer_size() if self._raw else 0
        return self._seconds == IDLE and 0 < self._unsent != before

    def _wait(self) -> float | None:
        """How long to wait for the client now; None if it has done its part."""
        theirs, ours = self.conn.their_state, self.conn.our_state
        if theirs is h11.SEND_BODY:
            return BODY
        if ours in (h11.SEND_RESPONSE, h11.SEND_BODY):
            return None
        return HEAD if theirs is h11.IDLE and self.conn.trailing_data[0] else IDLE

    def _note(self, seconds: float | None) -> None:
        """Time runs from when the wait began, however many bytes come one by one."""
        if seconds != self._seconds or seconds is None:
            self._seconds = seconds
            WAITING.note(self, seconds)


class Loop(asyncio.SelectorEventLoop):
    """Accepts one connection a turn: the next turn may close another for it, and other workers get some too."""

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Connection], *, sock: Any, ssl: ssl.SSLContext | None = None, **more: Any
    ) -> asyncio.Server:
        def make() -> Connection:
            connection = protocol_factory()
            connection.tls = ssl
            return connection

        server = await super().create_server(make, sock=sock, **{**more, "backlog": 1})
        sock.listen(BACKLOG)  # how many may wait in the kernel is another matter
        return server
