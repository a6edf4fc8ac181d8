"""A real `countveil serve` for tests, in its own process and folder, on a free port."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from countveil.config.configuration import load
from countveil.service.api_keys import Keyring
from tests.support.curated import config_text, people, with_plan, written

SOME = 'epsilon = "50"\ndelta = "0.1"\nanswers = 20\n'
"""A budget of twenty answers whose plan is made in milliseconds."""
UNLIMITED = "[service]\nrate = 1000000\n"
"""A rate limit that no test reaches."""
ALL = "SELECT count(*) FROM people"
BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
WAIT = 120.0
"""Seconds to wait for output of a server before the test fails; no test measures this time."""


class Answer(NamedTuple):
    """A response; header names are in lower case and in the order of the response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.headers]

    @property
    def problem(self) -> str:
        """The name of the problem in a problem+json response."""
        assert self.header("content-type") == "application/problem+json", self
        found = self.json()
        assert found["status"] == self.status, self
        return str(found["error"]["name"])


class Client:
    """A client that keeps one connection open and sends `key` in the header of every request."""

    def __init__(self, server: Server, key: str | None = None) -> None:
        self.key = key
        self._connection = server.connection()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; a body of any type but bytes is sent as JSON."""
        sent = {"Authorization": f"Bearer {self.key}"} if self.key is not None else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent["Content-Type"] = "application/json"
        self._connection.request(method, path, body=body, headers={**sent, **(headers or {})})
        found = self._connection.getresponse()
        return Answer(found.status, [(name.lower(), value) for name, value in found.getheaders()], found.read())

    def close(self) -> None:
        self._connection.close()


class Server:
    """A running server; `log` is its output on stderr."""

    def __init__(
        self,
        config: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        files: int | None = None,
    ) -> None:
        self.config = config
        self.folder = config.parent
        self.keyring = Keyring(load(config, {}).service.keys)
        self._log = self.folder / f"server-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "countveil", "serve", "--config", str(config), "--port", "0", *options]
        if files is not None:
            command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**clean(), **(environment or {})},
                start_new_session=True,
            )
        self.trust: Path | None = None
        try:
            self.scheme, self.host, self.port = self._announced()
        except BaseException:
            self.stop()
            raise

    def _announced(self) -> tuple[str, str, int]:
        until = time.monotonic() + WAIT
        while (found := re.search(r"serves at (https?)://(\S+):([0-9]+);", self.log)) is None:
            assert self.process.poll() is None, f"the server ended: {self.log}"
            assert time.monotonic() < until, f"the server says nothing: {self.log}"
            time.sleep(0.02)
        return found[1], found[2], int(found[3])

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log after the announcements at the start; every line is one JSON object."""
        return [
            json.loads(line)
            for line in self.log.splitlines()
            if not line.startswith(("countveil ", "there is no key", "created a new ledger"))
        ]

    def key(self, name: str, role: str = "analyst", answers: int | None = None) -> str:
        return self.keyring.add(name, role, answers)[1]

    def connection(self) -> http.client.HTTPConnection:
        if self.scheme == "https":
            trusting = ssl.create_default_context(cafile=str(self.trust))
            return http.client.HTTPSConnection(self.host, self.port, timeout=WAIT, context=trusting)
        return http.client.HTTPConnection(self.host, self.port, timeout=WAIT)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        client = Client(self, key)
        try:
            return client.ask(method, path, body, headers)
        finally:
            client.close()

    def get(self, path: str, key: str | None = None) -> Answer:
        return self.ask("GET", path, key=key)

    def count(self, sql: str, key: str, repeatable: str | None = None) -> Answer:
        headers = {} if repeatable is None else {"Idempotency-Key": repeatable}
        return self.ask("POST", "/v1/count", {"sql": sql}, key=key, headers=headers)

    def family(self) -> list[int]:
        """The process identifiers of the server, its workers and their helpers."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
        found = [self.process.pid]
        for pid in found:  # the loop extends the list
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    @staticmethod
    def left(family: list[int]) -> list[int]:
        """The processes that still run; zombies do not count."""
        found = []
        for pid in family:
            try:
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    found.append(pid)
            except OSError:
                continue
        return found

    def stop(self) -> int:
        """Stop the server as a curator would, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise


@contextmanager
def serving(
    config: Path, *options: str, environment: Mapping[str, str] | None = None, files: int | None = None
) -> Iterator[Server]:
    """A server that runs until the end of the block; `files` is the limit on open files of each of its processes."""
    server = Server(config, *options, environment=environment, files=files)
    try:
        yield server
    finally:
        server.stop()


def place(folder: Path, *, regions: str = "NNNSSEW", service: str = UNLIMITED, budget: str = SOME, **more: str) -> Path:
    """A folder with people, a configuration, and a ledger with its plan."""
    folder.mkdir(exist_ok=True)
    config = written(folder, config_text(budget=budget, **more) + service)
    if not more.get("source"):
        people(folder, regions)
    with_plan(config)
    return config


def clean() -> dict[str, str]:
    """The environment without variables that configure this package."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COUNTVEIL", "PROMETHEUS"))}


def raw(server: Server, *parts: bytes) -> bytes:
    """Send bytes unchanged on a socket, and return everything that the server sends until it closes.

    Unless a request has `Connection: close`, this side says that it sends no more, so that the server closes.
    """
    import socket

    with socket.create_connection((server.host, server.port), WAIT) as connection:
        for part in parts:
            with suppress(OSError):  # the server may refuse and close before it has read everything
                connection.sendall(part)
        found = bytearray()
        with suppress(ConnectionError):
            if not any(b"Connection: close" in part for part in parts):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                found += chunk
    return bytes(found)
