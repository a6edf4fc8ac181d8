"""Designs for the service, in a process of their own: bounded in time, stopped at will, never in the way of answers.

The helper reads one JSON line for a task and writes one for its result. It sees no data and no ledger.

    python -m countveil.service.work
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

SECONDS = 20.0
"""How long a task may take."""
PATIENCE = 1.0
"""Seconds after which a task that nobody waits for is stopped: to start a new helper takes about as long."""
WAITING = 16
"""Tasks that may wait for the helper. Whoever comes then is sent away: threads have to be left for answers."""
EACH = 5
"""Tasks of one client among them, so that nobody keeps others from the helper."""
REMEMBERED = 512
PRIVATE = ("COUNTVEIL", "PG", "PROMETHEUS")
"""How variables begin that tell where data and ledger are, and how to get at them: the helper needs none of it."""
Values = Mapping[str, Any]


class TooLongError(Exception):
    """A task took longer than it may, or was stopped."""


class BusyError(Exception):
    """Others are being served."""


class RefusedError(Exception):
    """The library refused: its words, and its code."""

    def __init__(self, words: str, code: int, argument: str | None = None) -> None:
        super().__init__(words)
        self.code, self.argument = code, argument


class Stop:
    """The word that nobody waits any more."""

    given = False


@dataclass(frozen=True, eq=False)
class Place:
    """A task in line: whose it is, and how many of theirs were in line before it."""

    client: str
    rank: int


class Workshop:
    """One helper process, started when it is first needed; what it found is remembered."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._changed = seconds, threading.Condition()
        self._queue: list[Place] = []
        """The first is at the helper; behind it the first tasks of all clients, then their second ones, and so on."""
        self._helper: subprocess.Popen[bytes] | None = None
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def run(self, task: str, arguments: Values, stop: Stop | None = None, *, client: str = "") -> dict[str, Any]:
        """The result of a task; the same task again costs nothing. Whoever asked can change their mind by `stop`."""
        line = json.dumps({"task": task, "arguments": dict(arguments)}, sort_keys=True)
        found = self._known.get(line)
        if found is None:
            with self._turn(client, stop):
                found = self._known.get(line) or self._asked(line, stop)
            self._known[line] = found
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        if "error" in found:
            raise RefusedError(**found["error"])
        result: dict[str, Any] = found["result"]
        return result

    @contextmanager
    def _turn(self, client: str, stop: Stop | None) -> Iterator[None]:
        """The helper alone. Whoever finds too many waiting, or waits too long, is sent away."""
        with self._changed:
            place = Place(client, sum(each.client == client for each in self._queue))
            if len(self._queue) >= WAITING or place.rank >= EACH:
                raise BusyError
            insort(self._queue, place, lo=min(1, len(self._queue)), key=lambda each: each.rank)
        try:
            self._wait(place, stop)
            yield
        finally:
            with self._changed:
                self._queue.remove(place)
                self._changed.notify_all()

    def _wait(self, place: Place, stop: Stop | None) -> None:
        until = time.monotonic() + 2 * self._seconds  # whoever is at the helper has its time, and then it is ours
        with self._changed:
            while self._queue[0] is not place:
                self._changed.wait(0.1)
                if stop is not None and stop.given:
                    raise TooLongError
                if time.monotonic() > until:
                    raise BusyError

    def close(self) -> None:
        """Stop the helper, whatever it is doing."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.kill()
            helper.wait()
            for pipe in (helper.stdin, helper.stdout):
                if pipe is not None:
                    pipe.close()

    def _asked(self, line: str, stop: Stop | None) -> dict[str, Any]:
        try:
            helper = self._running()
            assert helper.stdin is not None
            helper.stdin.write(line.encode() + b"\n")
            helper.stdin.flush()
            answer: dict[str, Any] = json.loads(self._line(helper, stop))
            return answer
        except (OSError, ValueError):
            self.close()
            raise TooLongError from None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._helper is None or self._helper.poll() is not None:
            self.close()
            command = [sys.executable, "-m", "countveil.service.work"]
            environment = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
            self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        return self._helper

    def _line(self, helper: subprocess.Popen[bytes], stop: Stop | None) -> bytes:
        assert helper.stdout is not None
        begun, read = time.monotonic(), bytearray()
        handle = helper.stdout.fileno()
        while not read.endswith(b"\n"):
            if select.select([handle], [], [], 0.1)[0]:
                chunk = os.read(handle, 1 << 16)
                if not chunk:
                    raise OSError
                read += chunk
                continue
            spent = time.monotonic() - begun
            if spent > self._seconds or (stop is not None and stop.given and spent > PATIENCE):
                raise OSError
        return bytes(read)


def _design(arguments: Values) -> dict[str, Any]:
    import countveil as cv

    return dict(cv.design(**arguments).describe())


def _compare(arguments: Values) -> dict[str, Any]:
    import countveil as cv

    return dict(cv.compare(**arguments).describe())


def _page(module: str, name: str) -> Callable[[Values], dict[str, Any]]:
    def run(arguments: Values) -> dict[str, Any]:
        found = import_module(f"countveil.service.page.{module}")
        result: dict[str, Any] = getattr(found, name)(arguments)
        return result

    return run


TASKS: dict[str, Callable[[Values], dict[str, Any]]] = {
    "design": _design,
    "compare": _compare,
    "explore": _page("explore", "shown"),
    "explore-followed": _page("explore", "followed"),
    "explore-beside": _page("explore", "beside"),
    "explore-document": _page("explore", "document"),
    "explore-ptable": _page("explore", "ptable"),
    "agency": _page("agency", "shown"),
    "agency-file": _page("agency", "file"),
}


def done(line: bytes) -> dict[str, Any]:
    """The answer to one line."""
    from countveil.errors import CountveilError

    try:
        asked = json.loads(line)
        return {"result": TASKS[asked["task"]](asked["arguments"])}
    except CountveilError as error:
        return {"error": {"words": str(error), "code": error.exit_code, "argument": getattr(error, "argument", None)}}
    except Exception as error:  # a fault of ours: the words stay here
        print(json.dumps({"fault": type(error).__name__}), file=sys.stderr, flush=True)
        return {"error": {"words": "an internal error", "code": 1}}


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a solver prints goes elsewhere
    for line in sys.stdin.buffer:
        out.write(json.dumps(done(line)).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
