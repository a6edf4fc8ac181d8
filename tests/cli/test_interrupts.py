"""Ctrl-C while a plan is made, in a terminal: a line shows that the command is at work, and nothing is left behind."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import countveil as cv
from tests.support.curated import config_text, people, written

pytestmark = pytest.mark.slow  # each plans for a thousand rows a person, until it is interrupted

WIDE = ["--epsilon", "3", "--delta", "1e-6", "--answers", "10", "--sensitivity", "1000", "--cells", "10"]
BUDGET = 'epsilon = "3"\ndelta = "1e-6"\nanswers = 10\n'
LONGEST = 60.0
"""Seconds after which a command must have shown or done what is waited for."""


class Terminal(NamedTuple):
    """A command whose stderr is a terminal."""

    process: subprocess.Popen[bytes]
    screen: int
    shown: bytearray

    def read_until(self, done: Callable[[], bool]) -> None:
        """Read what the terminal shows until something has happened."""
        end = time.monotonic() + LONGEST
        while not done():
            assert time.monotonic() < end, bytes(self.shown)
            if select.select([self.screen], [], [], 0.02)[0]:
                try:
                    self.shown.extend(os.read(self.screen, 4096))
                except OSError:  # the command has closed the terminal
                    time.sleep(0.02)

    def interrupt(self) -> bytes:
        """Send SIGINT as Ctrl-C does, and return what is shown from then on."""
        before = len(self.shown)
        self.process.send_signal(signal.SIGINT)
        self.read_until(lambda: self.process.poll() is not None)
        self.read_until(lambda: not select.select([self.screen], [], [], 0)[0] or b"stopped" in self.shown)
        return bytes(self.shown[before:])


@contextmanager
def run(folder: Path, *words: str) -> Iterator[Terminal]:
    """A command in a folder, with a terminal of its own."""
    screen, end = pty.openpty()
    try:
        command = [sys.executable, "-m", "countveil", *words]
        variables = {**os.environ, "PYTHONPATH": str(Path(cv.__file__).parents[1]), "TERM": "xterm"}
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=end, env=variables) as process:
            os.close(end)
            try:
                yield Terminal(process, screen, bytearray())
            finally:
                process.kill()
    finally:
        os.close(screen)


def test_a_plan_shows_that_it_is_at_work_after_two_seconds_and_leaves_no_file_if_interrupted(tmp_path: Path) -> None:
    started = time.monotonic()
    with run(tmp_path, "plan", *WIDE, "-o", "mechanism.json") as terminal:
        terminal.read_until(lambda: b"planning" in terminal.shown)
        assert time.monotonic() - started >= 2
        assert b"stopped" not in terminal.shown
        last = terminal.interrupt()
        assert terminal.process.returncode == 130
    assert b"countveil: stopped\r\n" in last
    assert b"Traceback" not in last
    assert os.listdir(tmp_path) == []


def test_an_interrupted_first_count_leaves_no_plan_and_no_charge(tmp_path: Path) -> None:
    people(tmp_path)
    config = written(tmp_path, config_text(more="rows_per_person = 1000\ncells_per_person = 10\n", budget=BUDGET))
    with run(tmp_path, "count", "SELECT region, count(*) FROM people GROUP BY region", "-o", "t.csv") as terminal:
        terminal.read_until(lambda: (tmp_path / "countveil.ledger").exists() and b"asking" in terminal.shown)
        planning = time.monotonic() + 2  # the plan takes longer than this, and nothing before it does
        terminal.read_until(lambda: time.monotonic() > planning)
        assert terminal.process.poll() is None
        last = terminal.interrupt()
        assert terminal.process.returncode == 130
        assert terminal.process.stdout is not None
        assert terminal.process.stdout.read() == b""
    assert b"countveil: stopped\r\n" in last
    assert b"Traceback" not in last
    left = {name for name in os.listdir(tmp_path) if "ledger" not in name}
    assert left == {"people.csv", "countveil.toml"}
    with closing(cv.Curator.open(config)) as curator:
        assert curator.ledger.plan("people") is None
        assert list(curator.ledger.charges()) == []
