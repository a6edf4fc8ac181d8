"""Mechanism files and a ledger of an earlier version are accepted unchanged; tests/data/before/make.py made them."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import countveil as cv
from countveil.errors import BudgetError, ConflictError
from countveil.ledger import Request
from tests.support.curated import runner

BEFORE = Path(__file__).parents[1] / "data" / "before"
EXPECTED = json.loads((BEFORE / "expected.json").read_text())
LEDGER = EXPECTED["ledger"]
STATED = ("epsilon", "answers", "answers_left")
"""The fields of a receipt that describe the pool as it is now, not as it was when the question was charged."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a copy of the earlier ledger, in a new folder."""
    for name in ("people.csv", "countveil.toml", "countveil.ledger.anchor"):
        shutil.copy(BEFORE / name, tmp_path)
    (tmp_path / "countveil.ledger").write_bytes(gzip.decompress((BEFORE / "countveil.ledger.gz").read_bytes()))
    return tmp_path / "countveil.toml"


def request(key: str | None) -> Request | None:
    return None if key is None else Request(key * 32, "0" * 64)


def check_replay(table: Any, answer: dict[str, Any]) -> None:
    """Check that a replay equals the recorded answer and receipt byte for byte, except for the pool's numbers."""
    shown = table.describe()
    assert shown["replayed"]
    for member in ("columns", "rows", "margin_95", "worst_error", "total"):
        assert json.dumps(shown[member]) == json.dumps(answer[member])
    receipt, before = shown["receipt"], answer["receipt"]
    assert {k: receipt[k] for k in before if k not in STATED} == {k: before[k] for k in before if k not in STATED}
    assert receipt["grade"] == "standard"
    assert (receipt["epsilon"], receipt["answers"]) == (LEDGER["budget"]["epsilon"], LEDGER["budget"]["answers_total"])


@pytest.mark.parametrize("name", sorted(EXPECTED["mechanisms"]))
def test_earlier_mechanism_files_keep_their_hash_and_claims(name: str, tmp_path: Path) -> None:
    file, expected = BEFORE / "mechanisms" / f"{name}.json", EXPECTED["mechanisms"][name]
    mechanism = cv.Mechanism.load(file)
    assert mechanism.hash == expected["hash"] == json.loads(file.read_text())["hash"]
    shown = json.loads(json.dumps(mechanism.describe()))
    assert {key: shown[key] for key in expected} == expected
    mechanism.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


def test_the_earlier_mechanism_files_include_every_method_and_policy() -> None:
    files = {file.stem for file in (BEFORE / "mechanisms").iterdir()}
    assert files == set(EXPECTED["mechanisms"])
    shown = EXPECTED["mechanisms"].values()
    assert {each["method"] for each in shown} == {"paper", "optimal", "program", "remap", "gaussian"}
    assert {each["policy"] for each in shown} == {"nonnegative", "signed", "floor"}


def test_questions_to_the_earlier_ledger_keep_their_text_and_hash(config: Path) -> None:
    with cv.Curator.open(config) as curator:
        for sql, text, sha256, cells in LEDGER["questions"]:
            question = curator.question(sql)
            assert (question.text, question.sha256, question.cells) == (text, sha256, cells)
            assert curator.question(text).sha256 == sha256


def test_the_earlier_ledger_is_verified_without_an_error(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = runner(monkeypatch, capsys, "ledger")("verify", "-c", config)
    assert done.code == 0, done.err


def test_the_budget_of_the_earlier_ledger_is_stated_as_before(config: Path) -> None:
    with cv.Curator.open(config) as curator:
        (budget,) = curator.budget()
        shown = {**vars(budget), "shares": {who: [s.answers, s.spent] for who, s in budget.shares.items()}}
        (grade,) = shown.pop("grades")  # an earlier plan has one grade
        assert (grade.name, shown.pop("default_grade")) == ("standard", "standard")
        assert (grade.answers_left, grade.mechanism) == (budget.answers_left, budget.mechanism)
        notes = [note.replace("but not in epsilon", "and not in the number") for note in budget.notes]
        shown["notes"] = [note.replace("added later", "opened later") for note in notes]
        assert json.loads(json.dumps(shown)) == LEDGER["budget"]


def test_answers_of_the_earlier_ledger_are_replayed_without_a_charge(config: Path) -> None:
    people = config.with_name("people.csv")
    content = people.read_text()
    with cv.Curator.open(config) as curator:
        for answer in LEDGER["answers"]:
            check_replay(curator.count(answer["sql"]), answer)
            if answer["key"] is not None:
                check_replay(curator.count(answer["sql"], analyst="ann", request=request(answer["key"])), answer)
        with pytest.raises(ConflictError):
            curator.count("SELECT count(*) FROM people", analyst="ann", request=Request("ab" * 32, "1" * 64))
        people.write_text(content + "99,West,44,true,2022-02-02\n")
        check_replay(curator.count(LEDGER["second"]["sql"]), LEDGER["second"])
        assert curator.budget()[0].answers_left == LEDGER["budget"]["answers_left"]
        receipt = curator.receipt(LEDGER["second"]["receipt"]["id"])
        assert receipt is not None
        assert receipt.mechanism == LEDGER["second"]["receipt"]["mechanism"]


def test_the_earlier_ledger_accepts_new_charges_within_its_shares(config: Path) -> None:
    left = LEDGER["budget"]["answers_left"]
    with cv.Curator.open(config) as curator:
        paid = curator.count(LEDGER["unanswered"]["sql"], analyst="ann")
        assert (paid.receipt.id, paid.receipt.answers_left) == (LEDGER["unanswered"]["id"], left)
        for age in (1, 2):
            table = curator.count(f"SELECT count(*) FROM people WHERE age > {age}", analyst="ann")
            assert (table.replayed, table.receipt.answers_left) == (False, left - age)
            assert table.mechanism.hash == LEDGER["budget"]["mechanism"]
        with pytest.raises(BudgetError):  # the share that is on record
            curator.count("SELECT count(*) FROM people WHERE age > 3", analyst="ann")
    with cv.Curator.open(config) as curator:
        assert curator.count("SELECT count(*) FROM people WHERE age > 2", analyst="ann").replayed
        assert curator.budget()[0].answers_left == left - 2


@pytest.mark.slow  # two plans with three extensions are composed
def test_the_budget_of_the_earlier_ledger_can_be_extended_again(config: Path) -> None:
    with cv.Curator.open(config) as curator:
        budget = curator.extend_budget("people", 1, "a fourth edition")
        assert budget.answers_left == LEDGER["budget"]["answers_left"] + 1
        assert float(budget.epsilon) > float(LEDGER["budget"]["epsilon"])
