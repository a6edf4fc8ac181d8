"""Folders with real data, configuration and ledger for tests of the curator; plans are made once for all tests."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from countveil import cli
from countveil.config.budget import Budget
from countveil.config.configuration import Config, load
from countveil.curator import plan_records
from countveil.ledger import PlanRecord
from countveil.ledger.sqlite import SqliteLedger
from countveil.query.schema import Schema

QUICK = 'epsilon = "10"\ndelta = "0.01"\nanswers = 4\n'
"""A budget whose plan is made in milliseconds."""
MANY = 'epsilon = "100"\ndelta = "0.1"\nanswers = 1000\n'
COLUMNS = 'region = ["North", "South", "East", "West"]\nage = { min = 0, max = 119, step = 10 }\n'


def config_text(
    *, source: str = "people.csv", unit: str = "person", columns: str = COLUMNS, budget: str = QUICK, more: str = ""
) -> str:
    return (
        f'[dataset.people]\nsource = "{source}"\nunit = "{unit}"\n{more}\n'
        f"[dataset.people.columns]\n{columns}\n[dataset.people.budget]\n{budget}"
    )


def written(folder: Path, text: str | None = None, name: str = "countveil.toml") -> Path:
    path = folder / name
    path.write_text(config_text() if text is None else text, encoding="utf-8")
    return path


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def people(folder: Path, regions: str = "NNNSSEW", name: str = "people.csv") -> Path:
    """People with ids 1, 2, ...; a letter says where each lives, and ages go up by ten."""
    words = {"N": "North", "S": "South", "E": "East", "W": "West"}
    rows = [(i, words[letter], 10 * i % 120) for i, letter in enumerate(regions, start=1)]
    return write_rows(folder / name, ["person", "region", "age"], rows)


@cache
def _made(budget: tuple[tuple[str, object], ...], terms: tuple[tuple[int, int, str], ...]) -> PlanRecord:
    schemas = [Schema("people", (), "id", rows, cells, near) for rows, cells, near in terms]  # type: ignore[arg-type]
    members = {name: dict(value) if name == "grades" else value for name, value in budget}  # type: ignore[call-overload]
    return plan_records.make(Budget("pool", **members), schemas)


def with_plan(path: Path) -> Config:
    """The ledger of a configuration, opened with the plans of its pools, each designed once for all tests."""
    config = load(path, {})
    ledger = SqliteLedger(config.ledger, config.anchor)
    for dataset in config.datasets.values():
        budget = dataset.budget
        assert budget is not None
        members = {name: getattr(budget, name) for name in ("epsilon", "delta", "policy", "objective")}
        members["grades"] = tuple(budget.grades.items())
        schemas = [each.schema for each in config.pool(budget.pool)]
        record = _made(
            tuple(members.items()),
            tuple((s.rows_per_person, s.cells_per_person, s.neighbours) for s in schemas),
        )
        ledger.open_plan(replace(record, pool=budget.pool))
    ledger.close()
    return config


def charged(config: Path) -> int:
    """The number of charges in the ledger; 0 if there is no ledger."""
    loaded = load(config, {})
    if not loaded.ledger.exists():
        return 0
    ledger = SqliteLedger(loaded.ledger, loaded.anchor, create=False)
    try:
        return len(list(ledger.charges()))
    finally:
        ledger.close()


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str) -> Run:
    """A function that runs a command, with its error handling, in this process."""

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["countveil", command, *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        text = capsys.readouterr()
        return Done(int(stopped.value.code or 0), text.out, text.err)

    return run
