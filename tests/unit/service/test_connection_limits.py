"""How long a connection waits for its client, and which is closed when there are too many."""

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

from countveil.service import connections
from countveil.service.connections import MOST, Waiting, count_allowed
from tests.support.certificates import certificate

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
LARGE = 64 << 20


class App:
    """`/` answers at once, `/read` after the body, `/large` with much, `/slow` when it may."""

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
            http="countveil.service.connections:Connection",
            loop="countveil.service.connections:Loop",
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
    """Limits of moments, in their order; a table of its own."""
    for name, seconds in (("HEAD", 0.3), ("BODY", 0.6), ("IDLE", 0.9), ("LOOK", 0.02)):
        monkeypatch.setattr(connections, name, seconds)
    found = Waiting()
    monkeypatch.setattr(connections, "WAITING", found)
    return found


@pytest.fixture
def here(waiting: Waiting) -> Iterator[Here]:
    with running() as found:
        yield found


def await_close(connection: socket.socket, drip: bytes = b"") -> None:
    """Wait until the other side closes; meanwhile something is sent now and then."""
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
        raise AssertionError("it is still open")


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return bool(connection.recv(1))
    except TimeoutError:
        return True
    except OSError:
        return False


def answer(connection: socket.socket) -> bytes:
    """The three letters of an answer."""
    connection.settimeout(20)
    read = b""
    while not read.endswith(b"\r\n\r\nxxx"):
        chunk = connection.recv(1 << 16)
        assert chunk, read
        read += chunk
    return read


# -- how long ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drip", [b"", b"x"])
@pytest.mark.parametrize("sent", [b"", GET[:-2]])
def test_a_head_that_does_not_come_is_not_waited_for(here: Here, sent: bytes, drip: bytes) -> None:
    with here.connect(sent) as connection:
        await_close(connection, drip)


@pytest.mark.parametrize("drip", [b"", b"x"])
@pytest.mark.parametrize("path", [b"read", b"refused"])
def test_a_body_that_does_not_come_is_not_waited_for(here: Here, path: bytes, drip: bytes) -> None:
    """Whether the application reads it or has answered without."""
    with here.connect(POST % path) as connection:
        await_close(connection, drip)
    with here.connect(POST % path, b"x" * 100) as connection:
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_kept_connection_may_wait_longer_but_not_for_half_a_request(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE", 60.0)
    kept, half = here.connect(GET), here.connect(GET)
    assert answer(kept)
    assert answer(half)
    half.sendall(GET[:-2])
    await_close(half, b"x")
    kept.sendall(GET)
    assert answer(kept)


def test_an_answer_that_nobody_fetches_is_given_up_and_one_that_is_fetched_is_not(waiting: Waiting, here: Here) -> None:
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
            assert chunk, "it was closed although it was fetched"
            read += len(chunk)
        got = 0
        with suppress(OSError):
            while chunk := stuck.recv(1 << 20):
                got += len(chunk)
        assert got < LARGE


def test_a_client_that_waits_for_its_answer_is_not_closed(here: Here) -> None:
    with here.connect(GET.replace(b"/ ", b"/slow ", 1)) as connection:
        time.sleep(1.5)  # longer than every limit
        here.app.go.set()
        assert answer(connection)


# -- how many ----------------------------------------------------------------------------------------------------------


def test_beyond_the_limit_the_connection_that_waits_longest_is_closed(
    waiting: Waiting, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("HEAD", 60.0), ("BODY", 61.0), ("IDLE", 62.0)):
        monkeypatch.setattr(connections, name, seconds)
    waiting.most = 5
    busy = here.connect(GET.replace(b"/ ", b"/slow ", 1))
    while not here.app.slow:
        time.sleep(0.01)
    old = []
    for sent in (GET[:9], POST % b"read", GET, b""):  # half a head, half a body, one that is kept, and nothing
        old.append(here.connect(sent))
        if sent == GET:
            answer(old[-1])
        while len(waiting._waiting) < len(old):
            time.sleep(0.01)
    for number, longest in enumerate(old):
        new = here.connect(GET)
        assert answer(new), "whoever sends a request at once is answered"
        await_close(longest)
        assert all(is_open(each) for each in (busy, new, *old[number + 1 :]))
    here.app.go.set()
    assert answer(busy), "a connection whose request is being answered is never closed for another"


def test_if_all_are_being_answered_a_new_connection_is_closed(waiting: Waiting, here: Here) -> None:
    waiting.most = 3
    busy = [here.connect(GET.replace(b"/ ", b"/slow ", 1)) for _ in range(3)]
    while here.app.slow < 3:
        time.sleep(0.01)
    with here.connect(b"") as new:
        await_close(new)
    here.app.go.set()
    assert all(answer(each) for each in busy)


@pytest.mark.parametrize(
    ("files", "allowed"),
    [(300, 200), (1024, 768), (1 << 20, MOST), (resource.RLIM_INFINITY, MOST), (64, 8)],
)
def test_there_are_fewer_connections_than_files(files: int, allowed: int) -> None:
    assert count_allowed(files) == allowed


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def secure(waiting: Waiting, tmp_path: Path) -> Iterator[tuple[Here, ssl.SSLContext]]:
    chain, private = certificate(tmp_path)
    with running(ssl_certfile=str(chain), ssl_keyfile=str(private)) as found:
        yield found, ssl.create_default_context(cafile=str(chain))


def test_a_handshake_that_does_not_go_on_is_not_waited_for(secure: tuple[Here, ssl.SSLContext]) -> None:
    here, trust = secure
    with here.connect(b"") as silent, here.connect(b"\x16\x03\x01") as half, here.connect(GET) as plain:
        for connection in (silent, half, plain):
            await_close(connection)
    for _ in range(5):
        with trust.wrap_socket(here.connect(), server_hostname="127.0.0.1") as connection:
            connection.sendall(GET)
            assert answer(connection)
            connection.sendall(GET)
            assert answer(connection)
    with trust.wrap_socket(here.connect(), server_hostname="127.0.0.1") as connection:
        connection.sendall(GET[:-2])
        await_close(connection, b"x")


def test_handshakes_are_among_the_connections_that_are_counted(
    secure: tuple[Here, ssl.SSLContext], waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, trust = secure
    monkeypatch.setattr(connections, "HEAD", 60.0)
    waiting.most = 5
    half = [here.connect(b"\x16\x03\x01") for _ in range(5)]
    with trust.wrap_socket(here.connect(), server_hostname="127.0.0.1") as connection:
        await_close(half[0])
        connection.sendall(GET)
        assert answer(connection)
    assert is_open(half[-1])


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
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
            connection.sendall(outgoing.read())  # the last of the handshake and the request in one piece
            read = b""
            while not read.endswith(b"xxx"):
                try:
                    read += tls.read(1 << 16)
                except ssl.SSLWantReadError:
                    incoming.write(connection.recv(1 << 16))
