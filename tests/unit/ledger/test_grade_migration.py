"""A migrated ledger of format 2 has one grade, standard; its chain, answers, shares and budget do not change."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from countveil import Curator
from countveil.config.configuration import load
from countveil.errors import BudgetError, RequestError
from countveil.ledger import Ledger, Standing
from countveil.ledger.records import LATEST
from tests.support.ledgers import FORMAT2, database, format2

EXPECTED = json.loads((FORMAT2 / "expected.json").read_text())["ledger"]
ENTRIES = 23


class Old:
    """A ledger of format 2 with its data."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.server = database() if kind == "postgres" else None
        self.loaded = load(format2(folder, self.server), {})

    def open(self, **more: Any) -> Ledger:
        from countveil.ledger.postgres import PostgresLedger
        from countveil.ledger.sqlite import SqliteLedger

        if self.server:
            return PostgresLedger(self.server, self.loaded.anchor, create=False, **more)
        return SqliteLedger(self.loaded.ledger, self.loaded.anchor, create=False, **more)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        if self.server is None:
            import sqlite3

            with closing(sqlite3.connect(self.loaded.ledger)) as file:
                return file.execute(sql).fetchall()
        import psycopg

        with psycopg.connect(self.server) as db:
            db.execute("SET search_path = countveil")
            return db.execute(sql).fetchall()

    def format(self) -> int:
        query = "SELECT format FROM place" if self.server else "SELECT user_version FROM pragma_user_version"
        return int(self.rows(query)[0][0])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    return Old(request.param, tmp_path)


def test_after_the_migration_every_answer_is_of_grade_standard_and_no_entry_has_changed(old: Old) -> None:
    before = old.rows("SELECT seq, hash FROM entry ORDER BY seq")
    assert (old.format(), len(before)) == (2, ENTRIES)
    with closing(old.open()) as ledger:
        assert old.format() == LATEST
        assert [(entry.seq, entry.hash) for entry in ledger.entries()] == before
        assert ledger.standings("people") == {"standard": Standing(13, 8)}
        shares = {"ann": {"standard": Standing(4, 2)}, "curator": {"standard": Standing(4, 0)}}
        assert ledger.shares("people") == shares
        assert {charge.grade for charge in ledger.charges()} == {"standard"}
        record = ledger.plan("people")
        assert record is not None
        for plan in (*record.earlier, record):
            (grade,) = plan.grades
            assert (grade.name, grade.policy, dict(grade.terms)) == ("standard", "nonnegative", {})
            assert json.loads(grade.document)["hash"] == grade.mechanism
        assert ledger.verify() == ENTRIES
    with closing(old.open()) as ledger:
        assert ledger.verify() == ENTRIES, "a ledger is brought to the latest format once"


def test_after_the_migration_answers_are_replayed_and_grade_standard_pays_for_new_ones(old: Old) -> None:
    with Curator.open(old.loaded) as curator:
        for answer in EXPECTED["answers"]:
            table = curator.count(answer["sql"])
            assert (table.replayed, table.receipt.grade) == (True, "standard")
            assert table.describe()["rows"] == answer["rows"]
        (budget,) = curator.budget()
        assert (budget.answers_total, budget.answers_left) == (13, EXPECTED["budget"]["answers_left"])
        assert [(grade.name, grade.answers_left) for grade in budget.grades] == [("standard", budget.answers_left)]
        paid = curator.count(EXPECTED["unanswered"]["sql"], analyst="ann")
        assert (paid.replayed, paid.receipt.id) == (False, EXPECTED["unanswered"]["id"])
        for age in (1, 2):
            assert not curator.count(f"SELECT count(*) FROM people WHERE age > {age}", analyst="ann").replayed
        with pytest.raises(BudgetError):  # the share that is on record
            curator.count("SELECT count(*) FROM people WHERE age > 3", analyst="ann")
        last = [entry for entry in curator.ledger.entries() if entry.kind == "charge"][-1]
        assert last.body["grade"] == "standard"
        assert curator.ledger.verify() == ENTRIES + 5


def test_a_kill_at_any_statement_leaves_the_old_ledger_or_the_new(old: Old) -> None:
    before = old.rows("SELECT seq, hash FROM entry ORDER BY seq")
    kills = 0
    while True:
        pid = os.fork()
        if pid == 0:
            steps = iter(range(kills))

            def step(name: str, steps: Any = steps) -> None:
                if next(steps, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            old.open(step=step)
            os._exit(0)
        if os.waitpid(pid, 0)[1] == 0:
            break
        kills += 1
        assert old.format() in (2, LATEST)
        assert old.rows("SELECT seq, hash FROM entry ORDER BY seq") == before
    assert kills >= 4, "begin, the tables, the format, commit"
    with closing(old.open()) as ledger:
        assert ledger.verify() == ENTRIES
        assert ledger.standings("people") == {"standard": Standing(13, 8)}


def test_processes_that_open_an_old_ledger_at_once_migrate_it_once(old: Old) -> None:
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                old.open()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    with closing(old.open()) as ledger:
        assert ledger.verify() == ENTRIES


def test_an_older_copy_is_settled_before_it_is_migrated(tmp_path: Path) -> None:
    old = Old("sqlite", tmp_path)
    shutil.copy(old.loaded.ledger, tmp_path / "copy")
    with closing(old.open()) as ledger:
        for question in ("a", "b"):
            ledger.charge("people", "people", 1, question, "", "ann")
        ledger.move_anchor()
    with pytest.raises(RequestError, match="2 entries would be lost; add --accept-loss"):
        old.loaded.restore_ledger(tmp_path / "copy")
    assert old.loaded.restore_ledger(tmp_path / "copy", accept_loss=True) == 2
    with closing(old.open()) as ledger:
        assert ledger.standings("people") == {"standard": Standing(13, 8 + 2)}
        assert ledger.verify() == ENTRIES + 1


@pytest.mark.postgres
def test_a_host_without_an_anchor_may_be_the_first_to_migrate(tmp_path: Path) -> None:
    old = Old("postgres", tmp_path)
    old.loaded.anchor.unlink()
    with closing(old.open()) as ledger:
        assert (old.format(), ledger.verify()) == (LATEST, ENTRIES)
