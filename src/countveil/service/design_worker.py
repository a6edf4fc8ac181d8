"""Runs designs for the service in a separate helper process, with a time limit, so that they never delay answers.

The helper reads each task as a line of JSON and writes its result as a line of JSON. It sees no data and no ledger. A
task can be cancelled.

    python -m countveil.service.design_worker
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
"""How many seconds a task may take."""
PATIENCE = 1.0
"""How many seconds a cancelled task may still run. Killing the helper earlier gains nothing: a new one takes that long
to start."""
WAITING = 16
"""The most tasks in the queue; more are refused. Each waiting task blocks a thread, and threads must be left for
answers."""
EACH = 5
"""The most tasks of one client in the queue, so that no client keeps the helper from others."""
REMEMBERED = 512
PRIVATE = ("COUNTVEIL", "PG", "PROMETHEUS")
"""Prefixes of environment variables that locate the data and the ledger or give access to them. The helper gets none of
these variables."""
Values = Mapping[str, Any]


class TooLongError(Exception):
    """A task has exceeded its time limit, or was cancelled."""


class BusyError(Exception):
    """The queue is full, or the task has waited in it for too long."""


class RefusedError(Exception):
    """The library has refused the task. The error has the library's message and exit code."""

    def __init__(self, words: str, code: int, argument: str | None = None) -> None:
        super().__init__(words)
        self.code, self.argument = code, argument


class Stop:
    """Cancellation flag, set when the client disconnects."""

    given = False


@dataclass(frozen=True, eq=False)
class QueuedTask:
    """A task in the queue: its client, and how many tasks of the same client were in the queue before it."""

    client: str
    rank: int


class Workshop:
    """One helper process, started when it is first needed, with a queue of tasks and a cache of results."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._changed = seconds, threading.Condition()
        self._queue: list[QueuedTask] = []
        """The tasks in their order. The first one is running. Then come the first tasks of all clients, then their
        second tasks, and so on."""
        self._helper: subprocess.Popen[bytes] | None = None
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def run(self, task: str, arguments: Values, stop: Stop | None = None, *, client: str = "") -> dict[str, Any]:
        """Run a task in the helper and return its result, from the cache if it is known. Setting `stop` cancels the
        task."""
        line = json.dumps({"task": task, "arguments": dict(arguments)}, sort_keys=True)
        reply = self._known.get(line)
        if reply is None:
            with self._take_turn(client, stop):
                reply = self._known.get(line) or self._ask_helper(line, stop)
            self._known[line] = reply
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        if "error" in reply:
            raise RefusedError(**reply["error"])
        result: dict[str, Any] = reply["result"]
        return result

    @contextmanager
    def _take_turn(self, client: str, stop: Stop | None) -> Iterator[None]:
        """Wait in the queue until the helper is free for this task. BusyError if the queue is full or the wait is too
        long."""
        with self._changed:
            place = QueuedTask(client, sum(each.client == client for each in self._queue))
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

    def _wait(self, place: QueuedTask, stop: Stop | None) -> None:
        until = time.monotonic() + 2 * self._seconds  # the running task ends within its time limit
        with self._changed:
            while self._queue[0] is not place:
                self._changed.wait(0.1)
                if stop is not None and stop.given:
                    raise TooLongError
                if time.monotonic() > until:
                    raise BusyError

    def close(self) -> None:
        """Kill the helper process."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.kill()
            helper.wait()
            for pipe in (helper.stdin, helper.stdout):
                if pipe is not None:
                    pipe.close()

    def _ask_helper(self, line: str, stop: Stop | None) -> dict[str, Any]:
        try:
            helper = self._start_helper()
            assert helper.stdin is not None
            helper.stdin.write(line.encode() + b"\n")
            helper.stdin.flush()
            reply: dict[str, Any] = json.loads(self._read_line(helper, stop))
            return reply
        except (OSError, ValueError):
            self.close()
            raise TooLongError from None

    def _start_helper(self) -> subprocess.Popen[bytes]:
        if self._helper is None or self._helper.poll() is not None:
            self.close()
            command = [sys.executable, "-m", "countveil.service.design_worker"]
            environment = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
            self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        return self._helper

    def _read_line(self, helper: subprocess.Popen[bytes], stop: Stop | None) -> bytes:
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


def _make_page_task(module: str, name: str) -> Callable[[Values], dict[str, Any]]:
    def run(arguments: Values) -> dict[str, Any]:
        page = import_module(f"countveil.service.web.{module}")
        result: dict[str, Any] = getattr(page, name)(arguments)
        return result

    return run


TASKS: dict[str, Callable[[Values], dict[str, Any]]] = {
    "design": _design,
    "compare": _compare,
    "explore": _make_page_task("explore_page", "make_view"),
    "explore-followed": _make_page_task("explore_page", "make_guarantee"),
    "explore-beside": _make_page_task("explore_page", "compare_others"),
    "explore-document": _make_page_task("explore_page", "render_document"),
    "explore-ptable": _make_page_task("explore_page", "render_ptable"),
    "agency": _make_page_task("agency", "make_view"),
    "agency-file": _make_page_task("agency", "write_file"),
}


def run_line(line: bytes) -> dict[str, Any]:
    """Run the task in one line of JSON; this runs in the helper."""
    from countveil.errors import CountveilError

    try:
        task = json.loads(line)
        return {"result": TASKS[task["task"]](task["arguments"])}
    except CountveilError as error:
        return {"error": {"words": str(error), "code": error.exit_code, "argument": getattr(error, "argument", None)}}
    except Exception as error:  # a bug: its message is not sent to clients
        print(json.dumps({"fault": type(error).__name__}), file=sys.stderr, flush=True)
        return {"error": {"words": "an internal error", "code": 1}}


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of solvers goes to stderr
    for line in sys.stdin.buffer:
        out.write(json.dumps(run_line(line)).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
