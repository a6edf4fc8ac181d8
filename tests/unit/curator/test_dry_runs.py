"""A dry run refuses exactly what `count` would refuse, in the same words, and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countveil.config.configuration import load
from countveil.curator.curator import Curator
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
from countveil.ledger.restoration import restore
from tests.support.curated import QUICK, config_text, people, with_plan, written

TOTAL = "SELECT count(*) FROM people"


def ask(path: Path, *ages: int) -> None:
    with Curator.open(path) as curator:
        for age in ages:
            curator.count(f"{TOTAL} WHERE age > {age}")


def edit(path: Path, *changes: str) -> None:
    text = path.read_text()
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def lose_history(path: Path, *, loss_known: bool) -> None:
    """Restore an older copy of the ledger; without its anchor the loss is unknown."""
    ledger, anchor = load(path).ledger, load(path).anchor
    with Curator.open(path) as curator:
        curator.ledger.backup(path.parent / "old")  # type: ignore[attr-defined]
    ask(path, 50, 60)
    if not loss_known:
        anchor.unlink()
    restore(path.parent / "old", ledger, anchor, accept_loss=True)


def answer_into_files(path: Path) -> None:
    """Write the answer to files, which `count` does not read."""
    with Curator.open(path) as curator:
        curator.count_to_parquet(TOTAL, output=path.parent / "files")


def add_dataset(path: Path) -> None:
    """Add a second dataset with other people, in a pool without charges."""
    people(path.parent, "NNNN", "others.csv")
    other = config_text(source="others.csv").replace("dataset.people", "dataset.others")
    path.write_text(path.read_text() + "\n" + other)


OTHERS = "SELECT count(*) FROM others"
LARGE = ("max = 119, step = 10", "max = 29999999", 'unit = "person"', 'unit = "person"\nmax_cells = 100000000')
REFUSED: dict[str, tuple[Callable[[Path], object], type[CountveilError], dict[str, Any]]] = {
    "an unknown column": (lambda path: None, QueryError, {"question": f"{TOTAL} WHERE height > 1"}),
    "an analyst without a name": (lambda path: None, ParameterError, {"analyst": ""}),
    "too many cells": (
        lambda path: edit(path, *LARGE),
        RequestError,
        {"question": "SELECT age, count(*) FROM people GROUP BY age"},
    ),
    "a guessed domain": (lambda path: edit(path, "step = 10 }", "step = 10, guessed = true }"), ConfigError, {}),
    "no budget": (lambda path: path.write_text(path.read_text().split("[dataset.people.budget]")[0]), ConfigError, {}),
    "another pool": (lambda path: edit(path, ".budget]\n", '.budget]\npool = "fresh"\n'), ConfigError, {}),
    "another unit": (lambda path: edit(path, 'unit = "person"', 'unit = "age"'), ConfigError, {}),
    "another name": (
        lambda path: edit(path, "dataset.people", "dataset.folk"),
        ConfigError,
        {"question": "SELECT count(*) FROM folk"},
    ),
    "another epsilon": (lambda path: edit(path, 'epsilon = "10"', 'epsilon = "11"'), ConfigError, {}),
    "more answers": (lambda path: edit(path, "answers = 4", "answers = 5"), ConfigError, {}),
    "wider bounds": (
        lambda path: edit(path, 'unit = "person"', 'unit = "person"\ncells_per_person = 3'),
        ConfigError,
        {},
    ),
    "no file": (lambda path: (path.parent / "people.csv").unlink(), EngineError, {}),
    "a column that is not there": (
        lambda path: (path.parent / "people.csv").write_text("person,region\n1,North\n"),
        DataError,
        {},
    ),
    "the budget is spent": (lambda path: ask(path, 2, 3, 4), BudgetError, {}),
    "no share": (lambda path: edit(path, "answers = 4\n", "answers = 4\nshares = { ann = 1 }\n"), BudgetError, {}),
    "the share is spent": (
        lambda path: (
            edit(path, "answers = 4\n", "answers = 4\nshares = { curator = 1 }\n"),
            ask(path, 2),
        ),
        BudgetError,
        {},
    ),
    "an answer in files": (answer_into_files, RequestError, {}),
    "the limit of the key": (lambda path: None, BudgetError, {"most": 1}),
    "history was lost": (lambda path: lose_history(path, loss_known=True), BudgetError, {}),
    "nobody knows what was lost": (lambda path: lose_history(path, loss_known=False), BudgetError, {}),
    "a pool that lost history may have spent": (
        lambda path: (lose_history(path, loss_known=True), add_dataset(path)),
        BudgetError,
        {"question": OTHERS},
    ),
}


def make_refusal(change: str, folder: Path) -> tuple[Path, type[CountveilError], dict[str, Any]]:
    """A configuration that was changed after one charge; the error and the question that it refuses."""
    people(folder)
    path = written(folder)
    with_plan(path)
    ask(path, 1)
    do, kind, question = REFUSED[change]
    do(path)
    return path, kind, {"question": TOTAL, **question}


@pytest.mark.parametrize("change", REFUSED)
def test_a_dry_run_refuses_what_count_refuses_in_the_same_words(change: str, tmp_path: Path) -> None:
    path, kind, question = make_refusal(change, tmp_path)
    with Curator.open(path) as curator:
        before = list(curator.ledger.entries())
        with pytest.raises(kind) as dry_run_error:
            curator.dry_run(**question)
        assert list(curator.ledger.entries()) == before
        with pytest.raises(kind) as count_error:
            curator.count(**question)
    assert (type(dry_run_error.value), str(dry_run_error.value)) == (type(count_error.value), str(count_error.value))


def test_count_answers_what_a_dry_run_allows(tmp_path: Path) -> None:
    """The configured shares apply, not the recorded ones; questions asked before are free."""
    people(tmp_path)
    path = written(tmp_path, config_text(budget=QUICK + "shares = { ann = 1, bob = 3 }"))
    with_plan(path)
    with Curator.open(path) as curator:
        curator.count(TOTAL, analyst="ann")
        assert curator.dry_run(TOTAL, analyst="eve").cost == 0
    edit(path, "ann = 1, bob = 3", "ann = 2")
    with Curator.open(path) as curator:
        question = f"{TOTAL} WHERE age > 1"
        assert curator.dry_run(question, analyst="ann").answers_left == 1
        with pytest.raises(BudgetError, match="bob has no share"):
            curator.dry_run(question, analyst="bob")
        assert not curator.count(question, analyst="ann").replayed
        assert curator.count(TOTAL, analyst="eve").replayed


@pytest.mark.parametrize("change", ["another pool", "another epsilon", "more answers", "wider bounds"])
def test_restoring_the_values_named_in_a_refusal_allows_answers_again(change: str, tmp_path: Path) -> None:
    path, kind, _ = make_refusal(change, tmp_path)
    with Curator.open(path) as curator, pytest.raises(kind) as refused:
        curator.count(TOTAL)
    advice = str(refused.value).split("restore these values in countveil.toml: ")[1].split(";")[0]
    text = path.read_text()
    for name, value in re.findall(r'(\w+) = ("[^"]*"|[^,]+)', advice):
        text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
    path.write_text(text)
    ask(path, 1, 2)
