"""The service for the tests of its pages: two invented datasets, with plans that are made quickly."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from countveil.config.configuration import load
from countveil.ledger.sqlite import SqliteLedger
from tests.support.serving import Server

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
"""A configuration whose plans are made quickly."""


class Served(Server):
    """A service with its own configuration and people, which runs until `stop`."""

    def __init__(self, folder: Path, answers: int = 40, rate: int = 100_000) -> None:
        config = folder / "countveil.toml"
        config.write_text(CONFIG.format(answers=answers, rate=rate))
        _people(folder)
        super().__init__(config)

    def charges(self) -> list[Any]:
        """The charges in the ledger."""
        config = load(self.config, {})
        if not config.ledger.exists():
            return []
        ledger = SqliteLedger(config.ledger, config.anchor, create=False)
        try:
            return list(ledger.charges())
        finally:
            ledger.close()

    def helpers(self) -> list[int]:
        """The identifiers of the processes that design mechanisms for the service."""
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
