"""A dry run refuses exactly what `count` would refuse, in the same words, and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countveil.config import load
from countveil.curator import Curator
from countveil.errors import (
    BudgetError,
    ConfigError,
    CountveilError,
    DataError,
    EngineError,
    ParameterError,
    QueryError,
    RequestError,
)
from countveil.ledger.restoring import restore
from tests.support.curated import QUICK, config_text, people, with_plan, written

TOTAL = "SELECT count(*) FROM people"


def asked(path: Path, *ages: int) -> None:
    with Curator.open(path) as curator:
        for age in ages:
            curator.count(f"{TOTAL} WHERE age > {age}")


def replaced(path: Path, *changes: str) -> None:
    text = path.read_text()
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def lose(path: Path, *, knows: bool) -> None:
    """Set the ledger back to a copy of before; without its anchor nobody knows what is missing."""
    ledger, anchor = load(path).ledger, load(path).anchor
    with Curator.open(path) as curator:
        curator.ledger.backup(path.parent / "old")  # type: ignore[attr-defined]
    asked(path, 50, 60)
    if not knows:
        anchor.unlink()
    restore(path.parent / "old", ledger, anchor, accept_loss=True)


def released(path: Path) -> None:
    """Answer the question into files, which `count` does not read."""
    with Curator.open(path) as curator:
        curator.release(TOTAL, output=path.parent / "files")


def more_data(path: Path) -> None:
    """A second dataset with other people, in a pool that nobody has asked."""
    people(path.parent, "NNNN", "others.csv")
    other = config_text(source="others.csv").replace("dataset.people", "dataset.others")
    path.write_text(path.read_text() + "\n" + other)


OTHERS = "SELECT count(*) FROM others"
LARGE = ("max = 119, step = 10", "max = 29999999", 'unit = "person"', 'unit = "person"\nmax_cells = 100000000')
REFUSED: dict[str, tuple[Callable[[Path], object], type[CountveilError], dict[str, Any]]] = {
    "an unknown column": (lambda path: None, QueryError, {"question": f"{TOTAL} WHERE height > 1"}),
    "an analyst without a name": (lambda path: None, ParameterError, {"analyst": ""}),
    "too many cells": (
        lambda path: replaced(path, *LARGE),
        RequestError,
        {"question": "SELECT age, count(*) FROM people GROUP BY age"},
    ),
    "a guessed domain": (lambda path: replaced(path, "step = 10 }", "step = 10, guessed = true }"), ConfigError, {}),
    "no budget": (lambda path: path.write_text(path.read_text().split("[dataset.people.budget]")[0]), ConfigError, {}),
    "another pool": (lambda path: replaced(path, ".budget]\n", '.budget]\npool = "fresh"\n'), ConfigError, {}),
    "another unit": (lambda path: replaced(path, 'unit = "person"', 'unit = "age"'), ConfigError, {}),
    "another name": (
        lambda path: replaced(path, "dataset.people", "dataset.folk"),
        ConfigError,
        {"question": "SELECT count(*) FROM folk"},
    ),
    "another epsilon": (lambda path: replaced(path, 'epsilon = "10"', 'epsilon = "11"'), ConfigError, {}),
    "more answers": (lambda path: replaced(path, "answers = 4", "answers = 5"), ConfigError, {}),
    "wider bounds": (
        lambda path: replaced(path, 'unit = "person"', 'unit = "person"\ncells_per_person = 3'),
        ConfigError,
        {},
    ),
    "no file": (lambda path: (path.parent / "people.csv").unlink(), EngineError, {}),
    "a column that is not there": (
        lambda path: (path.parent / "people.csv").write_text("person,region\n1,North\n"),
        DataError,
        {},
    ),
    "the budget is spent": (lambda path: asked(path, 2, 3, 4), BudgetError, {}),
    "no share": (lambda path: replaced(path, "answers = 4\n", "answers = 4\nshares = { ann = 1 }\n"), BudgetError, {}),
    "the share is spent": (
        lambda path: (
            replaced(path, "answers = 4\n", "answers = 4\nshares = { curator = 1 }\n"),
            asked(path, 2),
        ),
        BudgetError,
        {},
    ),
    "an answer in files": (released, RequestError, {}),
    "the limit of the key": (lambda path: None, BudgetError, {"most": 1}),
    "history was lost": (lambda path: lose(path, knows=True), BudgetError, {}),
    "nobody knows what was lost": (lambda path: lose(path, knows=False), BudgetError, {}),
    "a pool that lost history may have spent": (
        lambda path: (lose(path, knows=True), more_data(path)),
        BudgetError,
        {"question": OTHERS},
    ),
}


def changed(change: str, folder: Path) -> tuple[Path, type[CountveilError], dict[str, Any]]:
    """A configuration that was asked once and then changed; what refuses the question that follows."""
    people(folder)
    path = written(folder)
    with_plan(path)
    asked(path, 1)
    do, kind, question = REFUSED[change]
    do(path)
    return path, kind, {"question": TOTAL, **question}


@pytest.mark.parametrize("change", REFUSED)
def test_a_dry_run_refuses_what_count_refuses_in_the_same_words(change: str, tmp_path: Path) -> None:
    path, kind, question = changed(change, tmp_path)
    with Curator.open(path) as curator:
        before = list(curator.ledger.entries())
        with pytest.raises(kind) as told:
            curator.dry_run(**question)
        assert list(curator.ledger.entries()) == before
        with pytest.raises(kind) as refused:
            curator.count(**question)
    assert (type(told.value), str(told.value)) == (type(refused.value), str(refused.value))


def test_what_a_dry_run_promises_is_answered(tmp_path: Path) -> None:
    """Shares count as they are configured now, whatever is on record; what was asked before is free."""
    people(tmp_path)
    path = written(tmp_path, config_text(budget=QUICK + "shares = { ann = 1, bob = 3 }"))
    with_plan(path)
    with Curator.open(path) as curator:
        curator.count(TOTAL, analyst="ann")
        assert curator.dry_run(TOTAL, analyst="eve").cost == 0
    replaced(path, "ann = 1, bob = 3", "ann = 2")
    with Curator.open(path) as curator:
        question = f"{TOTAL} WHERE age > 1"
        assert curator.dry_run(question, analyst="ann").answers_left == 1
        with pytest.raises(BudgetError, match="bob has no share"):
            curator.dry_run(question, analyst="bob")
        assert not curator.count(question, analyst="ann").replayed
        assert curator.count(TOTAL, analyst="eve").replayed


@pytest.mark.parametrize("change", ["another pool", "another epsilon", "more answers", "wider bounds"])
def test_the_values_that_a_refusal_names_lead_back_to_answers(change: str, tmp_path: Path) -> None:
    path, kind, _ = changed(change, tmp_path)
    with Curator.open(path) as curator, pytest.raises(kind) as refused:
        curator.count(TOTAL)
    advice = str(refused.value).split("restore these values in countveil.toml: ")[1].split(";")[0]
    text = path.read_text()
    for name, value in re.findall(r'(\w+) = ("[^"]*"|[^,]+)', advice):
        text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
    path.write_text(text)
    asked(path, 1, 2)
