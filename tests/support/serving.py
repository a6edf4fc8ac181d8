"""A real `countveil serve` for tests: a process of its own, on a free port, in a folder of its own."""

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

from countveil.config import load
from countveil.keys import Keyring
from tests.support.curated import config_text, people, with_plan, written

SOME = 'epsilon = "50"\ndelta = "0.1"\nanswers = 20\n'
"""A plan of twenty answers that is made in milliseconds."""
UNLIMITED = "[service]\nrate = 1000000\n"
"""So often that no test meets the limit."""
ALL = "SELECT count(*) FROM people"
BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
WAIT = 120.0
"""Seconds after which a server that says nothing is given up; no test depends on how long it takes."""


class Answer(NamedTuple):
    """What came back: header names in small letters, in the order in which they came."""

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
        """The name of a refusal, which is problem+json."""
        assert self.header("content-type") == "application/problem+json", self
        found = self.json()
        assert found["status"] == self.status, self
        return str(found["error"]["name"])


class Client:
    """One connection that is kept. `key` goes into the header of every request."""

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
        """Send a request; a body that is no bytes is sent as JSON."""
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
    """A server that runs. What it writes to stderr is in `log`."""

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
        """The log, without what is announced at the start; every line is one JSON object."""
        return [
            json.loads(line)
            for line in self.log.splitlines()
            if not line.startswith(("countveil ", "nobody has", "a new ledger begins"))
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
        for pid in found:  # it grows while we walk
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    @staticmethod
    def left(family: list[int]) -> list[int]:
        """Those that still run; whoever has ended and only waits to be noticed by its new parent does not."""
        found = []
        for pid in family:
            try:
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    found.append(pid)
            except OSError:
                continue
        return found

    def stop(self) -> int:
        """End it as a curator would; the code it ended with."""
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
    """A server until the end of the block; `files` is how many each of its processes may open."""
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
    """The environment without what would set this package otherwise."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COUNTVEIL", "PROMETHEUS"))}


def raw(server: Server, *parts: bytes) -> bytes:
    """Bytes as they are, on a socket; everything that comes back until the server closes.

    Where it closes by itself we stay to hear the answer: who ends first may not get one.
    """
    import socket

    with socket.create_connection((server.host, server.port), WAIT) as connection:
        for part in parts:
            with suppress(OSError):  # it may have said no before it had read all of this
                connection.sendall(part)
        found = bytearray()
        with suppress(ConnectionError):
            if not any(b"Connection: close" in part for part in parts):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                found += chunk
    return bytes(found)
