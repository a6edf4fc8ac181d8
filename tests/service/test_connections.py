"""Connections that anyone can open: 2,000 half-sent requests to a real server."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import BY_REGION, WAIT, Server, place, serving

MANY = 2000
HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
BODY = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nkey="
"""Requests without their ends."""


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    """Raise the limit of open files to its maximum."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= before[1] < MANY + 200:
        pytest.skip(f"needs {MANY + 200} open files, the limit is {before[1]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Pulse:
    """Requests /healthz on new connections in a loop; `longest` is the longest duration."""

    def __init__(self, server: Server) -> None:
        self._server, self._end = server, threading.Event()
        self.longest, self.statuses, self.faults = 0.0, list[int](), list[str]()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        while not self._end.wait(0.02):
            begun = time.monotonic()
            try:
                self.statuses.append(self._server.get("/healthz").status)
            except (OSError, ValueError) as error:
                self.faults.append(repr(error))
            self.longest = max(self.longest, time.monotonic() - begun)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.host, server.port), WAIT)


def count_files(server: Server) -> int:
    return max(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in server.family())


@pytest.mark.parametrize("limit", [1024, 300])
def test_the_service_responds_during_2000_half_sent_requests(tmp_path: Path, limit: int) -> None:
    with serving(place(tmp_path), files=limit) as server, contextlib.ExitStack() as stack, Pulse(server) as pulse:
        key = server.key("ann")
        for i in range(MANY):
            half = stack.enter_context(connect(server))
            with contextlib.suppress(OSError):
                half.sendall(BODY if i % 3 == 0 else HEAD[: i % len(HEAD)])
        assert server.count(BY_REGION, key).status == 200
        assert count_files(server) < limit
        received = len(pulse.statuses)
        while len(pulse.statuses) < received + 20:
            assert pulse._thread.is_alive()
            time.sleep(0.01)
    assert not pulse.faults
    assert set(pulse.statuses) == {200}
    assert pulse.longest < 5
    assert "out of system resource" not in server.log
    assert {line["status"] for line in server.lines() if "status" in line} <= {200, 400}


@pytest.mark.slow  # waits for the time limits
def test_connections_with_half_a_head_or_half_a_body_are_closed(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        halves = [socket.create_connection((server.host, server.port), 45) for _ in range(2)]
        for half, sent in zip(halves, (HEAD, BODY), strict=True):
            half.sendall(sent)
        for half in halves:
            with half:
                while half.recv(4096):  # raises TimeoutError if it stays open
                    pass


def test_designs_without_a_key_are_limited_by_address(tmp_path: Path) -> None:
    """Without a proxy, the address is that of the connection."""

    def ask(source: str) -> int:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=WAIT, source_address=(source, 0))
        with contextlib.closing(connection):
            connection.request("POST", "/v1/design", b"{}", {"Content-Type": "application/json"})
            return connection.getresponse().status

    with serving(place(tmp_path, service="[service]\nrate = 30\nopen_design = true\n")) as server:
        assert 429 in [ask("127.0.0.66") for _ in range(8)]
        assert ask("127.0.0.77") == 422
