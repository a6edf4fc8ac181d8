"""Timeouts of connections, and which connection is closed when there are too many."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from countveil.service import connection_limits
from countveil.service.connection_limits import MOST, Waiting, count_allowed
from tests.support.certificates import certificate

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
LARGE = 64 << 20


class App:
    """`/` responds at once, `/read` after the body, `/large` with much data, `/slow` after `go` is set."""

    def __init__(self) -> None:
        self.go, self.slow = threading.Event(), 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/read":
            while (await receive()).get("more_body"):
                pass
        if scope["path"] == "/slow":
            self.slow += 1
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        body = b"x" * (LARGE if scope["path"] == "/large" else 3)
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Here:
    """A server in a thread of this process."""

    def __init__(self, listener: socket.socket, app: App) -> None:
        self.address, self.app, self.made = listener.getsockname(), app, list[socket.socket]()

    def connect(self, *sent: bytes) -> socket.socket:
        connection = socket.create_connection(self.address, 30)
        self.made.append(connection)
        for data in sent:
            connection.sendall(data)
        return connection


@contextmanager
def running(**options: Any) -> Iterator[Here]:
    app, listener = App(), socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http="countveil.service.connection_limits:ClientConnection",
            loop="countveil.service.connection_limits:Loop",
            lifespan="off",
            log_config=None,
            ws="none",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            **options,
        )
    )
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    here = Here(listener, app)
    try:
        yield here
    finally:
        app.go.set()
        for connection in here.made:
            connection.close()
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """Short timeouts in their usual order, and a separate table of connections."""
    for name, seconds in (("HEAD", 0.3), ("BODY", 0.6), ("IDLE", 0.9), ("LOOK", 0.02)):
        monkeypatch.setattr(connection_limits, name, seconds)
    connections = Waiting()
    monkeypatch.setattr(connection_limits, "WAITING", connections)
    return connections


@pytest.fixture
def here(waiting: Waiting) -> Iterator[Here]:
    with running() as server:
        yield server


def await_close(connection: socket.socket, drip: bytes = b"") -> None:
    """Wait until the server closes the connection; send `drip` now and then."""
    until = time.monotonic() + 20
    connection.settimeout(0.05)
    while time.monotonic() < until:
        try:
            if not connection.recv(1 << 16):
                break
        except TimeoutError:
            with suppress(OSError):
                connection.sendall(drip)
        except OSError:
            break
    else:
        raise AssertionError("the connection is still open")


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return bool(connection.recv(1))
    except TimeoutError:
        return True
    except OSError:
        return False


def read_response(connection: socket.socket) -> bytes:
    """Read a response, whose body is three letters."""
    connection.settimeout(20)
    read = b""
    while not read.endswith(b"\r\n\r\nxxx"):
        chunk = connection.recv(1 << 16)
        assert chunk, read
        read += chunk
    return read


# -- timeouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drip", [b"", b"x"])
@pytest.mark.parametrize("sent", [b"", GET[:-2]])
def test_a_connection_without_a_complete_head_is_closed(here: Here, sent: bytes, drip: bytes) -> None:
    with here.connect(sent) as connection:
        await_close(connection, drip)


@pytest.mark.parametrize("drip", [b"", b"x"])
@pytest.mark.parametrize("path", [b"read", b"refused"])
def test_a_connection_without_a_complete_body_is_closed(here: Here, path: bytes, drip: bytes) -> None:
    """Whether the application reads the body or responds without it."""
    with here.connect(POST % path) as connection:
        await_close(connection, drip)
    with here.connect(POST % path, b"x" * 100) as connection:
        assert read_response(connection).startswith(b"HTTP/1.1 200 ")


def test_an_idle_connection_may_wait_longer_than_one_with_half_a_request(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "IDLE", 60.0)
    kept, half = here.connect(GET), here.connect(GET)
    assert read_response(kept)
    assert read_response(half)
    half.sendall(GET[:-2])
    await_close(half, b"x")
    kept.sendall(GET)
    assert read_response(kept)


def test_a_connection_is_closed_only_if_its_client_reads_nothing_of_the_response(waiting: Waiting, here: Here) -> None:
    request = GET.replace(b"/ ", b"/large ", 1)
    with here.connect(request) as fetching, here.connect(request) as stuck:
        while len(waiting._waiting) < 2:  # both are answered
            time.sleep(0.01)
        read, until = 0, time.monotonic() + 20
        while len(waiting._all) == 2:
            assert time.monotonic() < until, "both are still open"
            read += len(fetching.recv(1 << 17))
            time.sleep(0.02)
        while read < LARGE:
            chunk = fetching.recv(1 << 20)
            assert chunk, "it was closed although the client was reading"
            read += len(chunk)
        got = 0
        with suppress(OSError):
            while chunk := stuck.recv(1 << 20):
                got += len(chunk)
        assert got < LARGE


def test_a_client_that_waits_for_its_response_is_not_closed(here: Here) -> None:
    with here.connect(GET.replace(b"/ ", b"/slow ", 1)) as connection:
        time.sleep(1.5)  # longer than every limit
        here.app.go.set()
        assert read_response(connection)


# -- the most connections ----------------------------------------------------------------------------------------------


def test_beyond_the_limit_the_connection_that_waits_longest_is_closed(
    waiting: Waiting, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("HEAD", 60.0), ("BODY", 61.0), ("IDLE", 62.0)):
        monkeypatch.setattr(connection_limits, name, seconds)
    waiting.most = 5
    busy = here.connect(GET.replace(b"/ ", b"/slow ", 1))
    while not here.app.slow:
        time.sleep(0.01)
    old = []
    for sent in (GET[:9], POST % b"read", GET, b""):  # half a head, half a body, one that is kept, and nothing
        old.append(here.connect(sent))
        if sent == GET:
            read_response(old[-1])
        while len(waiting._waiting) < len(old):
            time.sleep(0.01)
    for number, longest in enumerate(old):
        new = here.connect(GET)
        assert read_response(new), "a client that sends its request at once gets a response"
        await_close(longest)
        assert all(is_open(each) for each in (busy, new, *old[number + 1 :]))
    here.app.go.set()
    assert read_response(busy), "a connection whose request is being answered is never closed for another"


def test_a_new_connection_is_closed_if_all_others_are_being_answered(waiting: Waiting, here: Here) -> None:
    waiting.most = 3
    busy = [here.connect(GET.replace(b"/ ", b"/slow ", 1)) for _ in range(3)]
    while here.app.slow < 3:
        time.sleep(0.01)
    with here.connect(b"") as new:
        await_close(new)
    here.app.go.set()
    assert all(read_response(each) for each in busy)


@pytest.mark.parametrize(
    ("files", "allowed"),
    [(300, 200), (1024, 768), (1 << 20, MOST), (resource.RLIM_INFINITY, MOST), (64, 8)],
)
def test_the_limit_of_connections_is_below_the_limit_of_open_files(files: int, allowed: int) -> None:
    assert count_allowed(files) == allowed


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def secure(waiting: Waiting, tmp_path: Path) -> Iterator[tuple[Here, ssl.SSLContext]]:
    chain, private = certificate(tmp_path)
    with running(ssl_certfile=str(chain), ssl_keyfile=str(private)) as server:
        yield server, ssl.create_default_context(cafile=str(chain))


def test_a_connection_without_a_complete_handshake_is_closed(secure: tuple[Here, ssl.SSLContext]) -> None:
    here, trust = secure
    with here.connect(b"") as silent, here.connect(b"\x16\x03\x01") as half, here.connect(GET) as plain:
        for connection in (silent, half, plain):
            await_close(connection)
    for _ in range(5):
        with trust.wrap_socket(here.connect(), server_hostname="127.0.0.1") as connection:
            connection.sendall(GET)
            assert read_response(connection)
            connection.sendall(GET)
            assert read_response(connection)
    with trust.wrap_socket(here.connect(), server_hostname="127.0.0.1") as connection:
        connection.sendall(GET[:-2])
        await_close(connection, b"x")


def test_handshakes_count_as_connections(
    secure: tuple[Here, ssl.SSLContext], waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, trust = secure
    monkeypatch.setattr(connection_limits, "HEAD", 60.0)
    waiting.most = 5
    half = [here.connect(b"\x16\x03\x01") for _ in range(5)]
    with trust.wrap_socket(here.connect(), server_hostname="127.0.0.1") as connection:
        await_close(half[0])
        connection.sendall(GET)
        assert read_response(connection)
    assert is_open(half[-1])


def test_a_request_sent_with_the_end_of_the_handshake_is_answered(
    secure: tuple[Here, ssl.SSLContext],
) -> None:
    here, trust = secure
    for _ in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trust.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with here.connect() as connection:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    incoming.write(connection.recv(1 << 16))
            tls.write(GET)
            connection.sendall(outgoing.read())  # the end of the handshake and the request in one segment
            read = b""
            while not read.endswith(b"xxx"):
                try:
                    read += tls.read(1 << 16)
                except ssl.SSLWantReadError:
                    incoming.write(connection.recv(1 << 16))
