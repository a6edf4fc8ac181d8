"""A real service in a folder of its own: `countveil serve --port 0`, people made up here, keys made here."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from countveil.config import load
from countveil.keys import Keyring
from countveil.ledger.sqlite import SqliteLedger

ADDRESS = re.compile(r"serves at (http://[0-9.]+:[0-9]+);")
CONFIG = """\
[service]
rate = {rate}
[dataset.people]
source = "people.csv"
unit = "person"
[dataset.people.columns]
region = ["North", "South", "East", "West"]
age = {{ min = 0, max = 119, step = 10 }}
sex = ["f", "m"]
works = {{ type = "boolean" }}
born = {{ type = "date", min = "1900-01-01", max = "2025-12-31", step = 3650 }}
[dataset.people.budget]
epsilon = "20"
delta = "0.01"
answers = {answers}
[dataset.visits]
source = "visits.csv"
unit = "person"
rows_per_person = 3
[dataset.visits.columns]
place = ["clinic", "hospital"]
[dataset.visits.budget]
epsilon = "20"
delta = "0.01"
answers = 3
shares = {{ vera = 2 }}
"""
"""Plans that are made in a moment."""


class Served:
    """A service that runs until `stop`; `log` is what it says on stderr."""

    def __init__(self, folder: Path, answers: int = 40, rate: int = 100_000) -> None:
        self.folder, self.log = folder, folder / "log"
        self.config = folder / "countveil.toml"
        self.config.write_text(CONFIG.format(answers=answers, rate=rate))
        _people(folder)
        self.keyring = Keyring(load(self.config, {}).service.keys)
        self.address = ""
        self.start()

    def start(self) -> None:
        hidden = {name: value for name, value in os.environ.items() if not name.startswith("COUNTVEIL_")}
        command = [sys.executable, "-m", "countveil", "serve", "--port", "0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stderr=log, env=hidden)
        deadline = time.monotonic() + 60
        while not (found := ADDRESS.search(self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "the service did not start"
            time.sleep(0.02)
        self.address = found[1]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def key(self, name: str, role: str = "analyst", answers: int | None = None) -> str:
        """A new key, as its holder types it."""
        return self.keyring.add(name, role, answers)[1]

    def charges(self) -> list[Any]:
        """What is on record, read from the ledger itself."""
        config = load(self.config, {})
        if not config.ledger.exists():
            return []
        ledger = SqliteLedger(config.ledger, config.anchor, create=False)
        try:
            return list(ledger.charges())
        finally:
            ledger.close()

    def lines(self) -> list[dict[str, Any]]:
        """The log, one record a request."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def helpers(self) -> list[int]:
        """The processes in which it designs."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


def _people(folder: Path) -> None:
    regions, sexes = ("North", "South", "East", "West"), "fm"
    with (folder / "people.csv").open("w", newline="") as file:
        rows = [
            (i, regions[min(3, i * i % 11)], i * 7 % 120, sexes[i % 2], i % 3 == 0, f"{1905 + i % 120}-03-0{1 + i % 9}")
            for i in range(1200)
        ]
        csv.writer(file).writerows([("person", "region", "age", "sex", "works", "born"), *rows])
    with (folder / "visits.csv").open("w", newline="") as file:
        seen = [(i // 2, ("clinic", "hospital")[i % 5 == 0]) for i in range(400)]
        csv.writer(file).writerows([("person", "place"), *seen])
