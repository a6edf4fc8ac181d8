"""Limits how long a client may take to send a request or to read a response, and how many connections there may be.

A connection costs a file descriptor, and anyone may open one. So the process allows fewer connections than it may have
open files. If a new connection exceeds the limit, the connection that has waited longest for its client is closed. A
connection waits for its client if the client has sent nothing or half a request, keeps the connection open for the next
request, or does not read the response. While a request is being processed, its connection does not wait, so it is never
closed in favour of another. A client that sends its request at once therefore gets a response, however many others open
connections and send nothing.
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
"""Timeouts in seconds: for the head of a request (and for the TLS handshake before it), for its body, and for a client
that reads nothing of its response. The server itself closes idle connections earlier."""
LOOK = 1.0
"""Seconds between two checks of the connections that wait for their clients."""
MOST = 2000
"""The most connections of one process, if it may open that many files."""
OTHERS = 100
"""How many file descriptors are reserved for the ledger, the data and the helper process."""
BACKLOG = 2048
"""How many connections may wait in the kernel to be accepted."""


def count_allowed(files: int) -> int:
    """How many connections to allow in a process that can open this many files."""
    if files == resource.RLIM_INFINITY:
        return MOST
    return max(8, min(MOST, files - OTHERS, files * 3 // 4))


class Waiting:
    """All connections of this process. Those that wait for their clients are also kept in order, longest wait first."""

    def __init__(self) -> None:
        self.most = count_allowed(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._all: set[ClientConnection] = set()
        self._waiting: dict[ClientConnection, None] = {}
        self._looking = False

    def add(self, connection: ClientConnection) -> None:
        """Add a connection. If there are now too many, close the one that has waited longest for its client."""
        self._all.add(connection)
        if len(self._all) > self.most:
            self._drop(next(iter(self._waiting), connection))
        if not self._looking:
            self._looking = True
            connection.loop.call_later(LOOK, self._look, connection.loop)

    def note(self, connection: ClientConnection, seconds: float | None) -> None:
        """Start the timeout of a connection that waits for its client; `seconds` is None if it does not wait."""
        self._waiting.pop(connection, None)
        if connection in self._all and seconds is not None:
            connection.until = connection.loop.time() + seconds
            self._waiting[connection] = None

    def remove(self, connection: ClientConnection) -> None:
        self._all.discard(connection)
        self._waiting.pop(connection, None)

    def _drop(self, connection: ClientConnection) -> None:
        self.remove(connection)
        connection.abort()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections whose timeout has ended, and schedule the next check."""
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


class ClientConnection(H11Protocol):
    """One connection with a timeout. It starts TLS itself, so that connections in a handshake are counted too."""

    tls: ssl.SSLContext | None = None
    until = 0.0
    """The time of the event loop's clock at which the timeout ends."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._raw: asyncio.Transport | None = None
        self._securing: asyncio.Task[None] | None = None
        self._early = bytearray()
        """Data that arrived together with the end of the TLS handshake."""
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
        except OSError:  # not TLS, no common protocol, or a timeout
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
        """Close the connection at once and drop unsent data."""
        if self._raw is not None:
            self._raw.abort()

    def fetches(self) -> bool:
        """Whether the client has read a part of its response since this was last asked."""
        before, self._unsent = self._unsent, self._raw.get_write_buffer_size() if self._raw else 0
        return self._seconds == IDLE and 0 < self._unsent != before

    def _wait(self) -> float | None:
        """The timeout that applies now, in seconds; None if the connection does not wait for its client."""
        theirs, ours = self.conn.their_state, self.conn.our_state
        if theirs is h11.SEND_BODY:
            return BODY
        if ours in (h11.SEND_RESPONSE, h11.SEND_BODY):
            return None
        return HEAD if theirs is h11.IDLE and self.conn.trailing_data[0] else IDLE

    def _note(self, seconds: float | None) -> None:
        """Start the timeout that applies now, unless it runs already: a client that sends single bytes does not extend
        it."""
        if seconds != self._seconds or seconds is None:
            self._seconds = seconds
            WAITING.note(self, seconds)


class Loop(asyncio.SelectorEventLoop):
    """An event loop that accepts one connection in each iteration.

    Each time, the loop can close another connection to make room, and other workers can accept connections too.
    """

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], ClientConnection],
        *,
        sock: Any,
        ssl: ssl.SSLContext | None = None,
        **more: Any,
    ) -> asyncio.Server:
        def make() -> ClientConnection:
            connection = protocol_factory()
            connection.tls = ssl
            return connection

        server = await super().create_server(make, sock=sock, **{**more, "backlog": 1})
        sock.listen(BACKLOG)  # the kernel's queue is longer than one
        return server
