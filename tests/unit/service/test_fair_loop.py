"""Workers that share a listening socket share its connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from countveil.service import running
from countveil.service.running import FairLoop


class Greeting(asyncio.Protocol):
    """Says who took the connection, and ends it."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._name)
        transport.close()


@contextmanager
def worker(name: bytes, listener: socket.socket) -> Iterator[None]:
    """A loop of its own on the shared socket."""
    loop, ready = FairLoop(), threading.Event()

    async def serve() -> None:
        server = await loop.create_server(lambda: Greeting(name), sock=listener.dup(), backlog=100)
        ready.set()
        await stop.wait()
        server.close()
        await asyncio.sleep(0.01)  # what was closed is gone

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
        assert not thread.is_alive()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


def greeted(clients: list[socket.socket]) -> list[bytes]:
    for client in clients:
        client.settimeout(10)
    return [client.recv(1) for client in clients]


def test_who_took_one_leaves_the_next_to_others(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        monkeypatch.setattr(running, "PAUSE", 60.0)
        stack.enter_context(worker(b"a", listener))
        clients = [socket.create_connection(listener.getsockname()) for _ in range(10)]
        stack.callback(lambda: [client.close() for client in clients])
        assert greeted(clients[:1]) == [b"a"]
        time.sleep(0.1)
        monkeypatch.setattr(running, "PAUSE", 0.001)
        stack.enter_context(worker(b"b", listener))
        assert greeted(clients[1:]).count(b"b") >= 8, "some versions of asyncio take two at a time"


def test_one_worker_takes_them_all(listener: socket.socket) -> None:
    with worker(b"a", listener):
        for _ in range(3):
            clients = [socket.create_connection(listener.getsockname()) for _ in range(50)]
            assert greeted(clients) == [b"a"] * 50
            for client in clients:
                client.close()
