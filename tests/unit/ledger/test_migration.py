"""A ledger of format 1 gets a secret: its answers stay free, its budget stays, and a kill at any step changes none of
this.
"""

from __future__ import annotations

import hmac
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from countveil import Curator
from countveil.config.configuration import load
from countveil.errors import BudgetError, ConflictError, LedgerError, RequestError
from countveil.ledger import Request
from countveil.ledger.records import LATEST, Entry
from tests.support.curated import runner
from tests.support.ledgers import FORMAT1, database, format1

EXPECTED = json.loads((FORMAT1 / "expected.json").read_text())
ENTRIES = 18


class Old:
    """A ledger of format 1 with its data."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder, self.expected = folder, EXPECTED[kind]
        self.server = database() if kind == "postgres" else None
        self.config = format1(folder, self.server)
        self.loaded = load(self.config, {})

    def open(self, **more: Any) -> Any:
        from countveil.ledger.postgres import PostgresLedger
        from countveil.ledger.sqlite import SqliteLedger

        if self.server:
            return PostgresLedger(self.server, self.loaded.anchor, create=False, **more)
        return SqliteLedger(self.loaded.ledger, self.loaded.anchor, create=False, **more)

    def sql(self, sql: str, *, triggers: bool = True) -> list[tuple[Any, ...]]:
        if self.server is None:
            with closing(sqlite3.connect(self.loaded.ledger)) as db, db:
                for name in () if triggers else ("changed", "removed"):
                    db.execute(f"DROP TRIGGER secret_is_never_{name}")
                found = list(db.execute(sql).fetchall())
                for name, event in () if triggers else (("changed", "UPDATE"), ("removed", "DELETE")):
                    db.execute(
                        f"CREATE TRIGGER secret_is_never_{name} BEFORE {event} ON secret "
                        f"BEGIN SELECT RAISE(ABORT, 'the secret is never {name}'); END"
                    )
                return found
        import psycopg

        with psycopg.connect(self.server) as db:
            db.execute("SET search_path = countveil")
            if not triggers:
                db.execute("ALTER TABLE secret DISABLE TRIGGER secret_is_never_changed")
            cursor = db.execute(sql)
            found = cursor.fetchall() if cursor.description else []
            if not triggers:
                db.execute("ALTER TABLE secret ENABLE TRIGGER secret_is_never_changed")
            return found

    def format(self) -> int:
        table = "place" if self.server else "pragma_user_version"
        return int(self.sql(f"SELECT {'format' if self.server else 'user_version'} FROM {table}")[0][0])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    return Old(request.param, tmp_path)


def test_only_the_owner_can_read_the_file_that_gets_the_secret(tmp_path: Path) -> None:
    """An earlier version restored the file with mode 0644, and another process has it open."""
    old = Old("sqlite", tmp_path)
    with closing(sqlite3.connect(old.loaded.ledger)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("SELECT count(*) FROM entry").fetchall()
        beside = [tmp_path / f"countveil.ledger{ending}" for ending in ("-wal", "-shm")]
        files = [old.loaded.ledger, *beside, old.loaded.anchor]
        for file in files:
            file.chmod(0o644)
        modes: list[set[int]] = []

        def look(name: str) -> None:
            if name.startswith("secret:"):
                modes.append({file.stat().st_mode & 0o777 for file in files})

        with closing(old.open(step=look)):
            assert modes
            assert all(found == {0o600} for found in modes)
            assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_after_the_migration_answers_are_replayed_free_and_the_budget_is_unchanged(old: Old) -> None:
    with Curator.open(old.loaded) as curator:
        (budget,) = curator.budget()
        assert [budget.answers_total, budget.answers_left, budget.epsilon] == old.expected["budget"]
        for answer in old.expected["answers"]:
            table = curator.count(answer["sql"], analyst="curator")
            assert (table.replayed, table.released.tolist(), table.receipt.id) == (True, answer["counts"], answer["id"])
            assert table.receipt.version == 1
        request = Request("a" * 64, "b" * 64)
        assert curator.count(old.expected["answers"][1]["sql"], analyst="ann", request=request).replayed
        with pytest.raises(ConflictError):
            curator.count(old.expected["answers"][0]["sql"], analyst="ann", request=Request("a" * 64, "c" * 64))
        people = old.folder / "people.csv"
        content = people.read_text()
        people.write_text(content + "99,West,44\n")
        second = curator.count(old.expected["second"]["sql"])
        assert (second.replayed, second.receipt.version) == (True, 2)
        assert second.released.tolist() == old.expected["second"]["counts"]
        people.write_text(content)
        assert curator.budget() == [budget]
        completed = curator.count(old.expected["open"]["sql"], analyst="ann")
        assert (completed.replayed, completed.receipt.id) == (False, old.expected["open"]["id"])
        assert curator.budget() == [budget], "a charge without an answer is completed, not paid again"
        fresh = curator.count("SELECT count(*) FROM people WHERE age >= 60", analyst="ann")
        assert not fresh.replayed
        with pytest.raises(BudgetError):
            curator.count("SELECT count(*) FROM people WHERE age >= 70", analyst="ann")
        assert curator.ledger.verify() == ENTRIES + 1 + 3
    with Curator.open(old.loaded) as curator:
        assert curator.count("SELECT count(*) FROM people WHERE age >= 60").replayed


def test_the_migration_changes_no_earlier_entry_and_later_entries_are_keyed(old: Old) -> None:
    before = old.sql("SELECT seq, hash FROM entry ORDER BY seq")
    versions = old.sql("SELECT fingerprint FROM version ORDER BY number")
    with closing(old.open()) as ledger:
        entries: list[Entry] = list(ledger.entries())
        assert ledger.unkeyed_fingerprints() == {fingerprint for (fingerprint,) in versions}
        assert [(entry.seq, entry.hash) for entry in entries[:-1]] == before
        assert entries[-1].kind == "secret"
        assert set(entries[-1].body) == {"nonce", "check"}
        assert len(entries[-1].body["nonce"]) == 64
        (secret,) = old.sql("SELECT value FROM secret")[0]
        keyed = old.sql("SELECT fingerprint FROM version ORDER BY number")
        assert keyed == [(hmac.new(secret.encode(), plain.encode(), "sha256").hexdigest(),) for (plain,) in versions]
        assert all(secret not in json.dumps(dict(entry.body)) for entry in entries)
    with closing(old.open()) as ledger:
        assert len(list(ledger.entries())) == len(entries), "a ledger is brought to the latest format once"


def test_a_kill_at_any_statement_leaves_the_old_ledger_or_the_new(old: Old) -> None:
    before = old.sql("SELECT seq, hash FROM entry ORDER BY seq")
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
        found = old.sql("SELECT seq, hash FROM entry ORDER BY seq")
        if old.format() == 1:
            assert found == before
        else:
            assert old.format() == LATEST
            assert found[:-1] == before
    assert kills >= 8, "begin, tables, format, secret, entry, two versions, commit, anchor"
    with closing(old.open()) as ledger:
        assert ledger.verify() == ENTRIES + 1


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
        assert [entry.kind for entry in ledger.entries()].count("secret") == 1
        assert ledger.verify() == ENTRIES + 1


def test_a_ledger_whose_secret_is_missing_is_refused(old: Old) -> None:
    old.open().close()
    old.sql("DELETE FROM secret", triggers=False)
    with pytest.raises(LedgerError, match=r"the ledger's secret is missing, .*; restore a backup that has the secret"):
        old.open()


def test_a_ledger_with_a_different_secret_is_refused(old: Old) -> None:
    old.open().close()
    old.sql(f"UPDATE secret SET value = '{'0' * 64}'", triggers=False)
    with pytest.raises(LedgerError, match="the ledger's secret is not the one that its entries were made with"):
        old.open()


@pytest.mark.postgres
def test_a_secret_that_changes_while_the_ledger_is_open_stops_the_next_change(tmp_path: Path) -> None:
    old = Old("postgres", tmp_path)
    with closing(old.open()) as ledger:
        old.sql(f"UPDATE secret SET value = '{'0' * 64}'", triggers=False)
        with pytest.raises(LedgerError, match="secret changed while the ledger was open; nothing was answered"):
            ledger.set_share("people", "eve", 1)


def test_a_ledger_that_lost_history_is_not_migrated(old: Old) -> None:
    """The entries of the migration would hide how many entries are missing."""
    mark = json.loads((FORMAT1 / ("postgres.anchor" if old.server else "countveil.ledger.anchor")).read_text())
    from countveil.ledger.anchor import Anchor, Mark

    Anchor(old.loaded.anchor).write(Mark(mark["ledger"], ENTRIES + 4, "0" * 64))
    with pytest.raises(LedgerError, match=f"it ends at entry {ENTRIES}, but its anchor remembers {ENTRIES + 4}"):
        old.open()
    assert old.format() == 1
    lost = old.loaded.restore_ledger(None, accept_loss=True)
    assert lost == 4
    with closing(old.open()) as ledger:
        assert [entry.kind for entry in ledger.entries()][-2:] == ["restore", "secret"]
        assert ledger.standing("people").left == 0


def test_a_copy_from_before_the_migration_is_an_older_copy(tmp_path: Path) -> None:
    """It is settled like any older copy: the entry of the migration counts as lost, and there is a new secret."""
    old = Old("sqlite", tmp_path)
    shutil.copy(old.loaded.ledger, tmp_path / "copy")
    with Curator.open(old.loaded) as curator:
        curator.count("SELECT count(*) FROM people WHERE age >= 60")
    first = old.sql("SELECT value FROM secret")
    with pytest.raises(RequestError, match="3 entries would be lost; add --accept-loss"):
        old.loaded.restore_ledger(tmp_path / "copy")
    assert old.loaded.restore_ledger(tmp_path / "copy", accept_loss=True) == 3
    assert old.sql("SELECT value FROM secret") != first
    with Curator.open(old.loaded) as curator:
        assert [entry.kind for entry in curator.ledger.entries()][-2:] == ["restore", "secret"]
        (budget,) = curator.budget()
        assert budget.answers_left == 0
        for answer in old.expected["answers"]:
            assert curator.count(answer["sql"]).released.tolist() == answer["counts"]


@pytest.mark.postgres
def test_a_dump_from_before_the_migration_is_settled_and_then_migrated(tmp_path: Path) -> None:
    old = Old("postgres", tmp_path)
    old.sql("UPDATE place SET here = 'another server'")
    with pytest.raises(LedgerError, match="restored from a dump"):
        old.open()
    assert old.format() == 1
    assert old.loaded.restore_ledger(None) == 0
    assert old.format() == LATEST
    with closing(old.open()) as ledger:
        assert ledger.verify() == ENTRIES + 2


def test_backups_have_the_secret(tmp_path: Path) -> None:
    old = Old("sqlite", tmp_path)
    with closing(old.open()) as ledger:
        ledger.backup(tmp_path / "copy")
        secret = old.sql("SELECT value FROM secret")
    old.loaded.ledger.unlink()
    assert old.loaded.restore_ledger(tmp_path / "copy") == 0
    assert old.sql("SELECT value FROM secret") == secret
    with Curator.open(old.loaded) as curator:
        assert curator.count(old.expected["answers"][0]["sql"]).replayed


@pytest.mark.parametrize("change", ["a charge without an id", "an id twice", "a fingerprint that is not keyed"])
def test_entries_after_the_secret_must_be_of_the_new_form(change: str) -> None:
    from countveil.ledger.records import seal
    from countveil.ledger.verification import replay_entries

    body = {"pool": "p", "dataset": "d", "version": 1, "text": "", "analyst": "a"}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("open", {"ledger": "x", "nonce": "0", "check": "0"}),
        ("plan", {"pool": "p", "answers": 3}),
        ("charge", {"id": "1", "question": "q", **body}),
    ]
    last: dict[str, tuple[str, dict[str, Any]]] = {
        "a charge without an id": ("charge", {"question": "r", **body}),
        "an id twice": ("charge", {"id": "1", "question": "r", **body}),
        "a fingerprint that is not keyed": ("version", {"dataset": "d", "number": 1, "fingerprint": "0"}),
    }
    entries: list[Entry] = []
    for kind, content in (*kinds, last[change]):
        entries.append(seal(entries[-1] if entries else None, "t", kind, content))
    replay_entries(entries[:-1])
    with pytest.raises((LedgerError, KeyError)):
        replay_entries(entries)


def test_the_cache_of_the_old_version_is_removed(tmp_path: Path) -> None:
    old = Old("sqlite", tmp_path)
    cache = tmp_path / "countveil.ledger.fingerprints"
    cache.write_text(json.dumps({str(tmp_path / "people.csv"): [352, 1, 1, 1, "c5c8878a67c64862"]}))
    with Curator.open(old.loaded):
        assert not cache.exists()


def test_the_log_of_a_migrated_ledger_hides_secrets_and_hashes_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Old("sqlite", tmp_path)
    run: Callable[..., Any] = runner(monkeypatch, capsys, "ledger")
    plain = [value for (value,) in old.sql("SELECT fingerprint FROM version")]
    hashes = [value for (value,) in old.sql("SELECT hash FROM entry")]
    ids = {value for (value,) in old.sql("SELECT id FROM charge")}
    (identity,) = {json.loads(body)["ledger"] for (body,) in old.sql("SELECT body FROM entry WHERE kind = 'open'")}
    for words in (("log",), ("log", "--json")):
        done = run(*words, "-c", old.config)
        assert done.code == 0
        (secret,) = old.sql("SELECT body FROM entry WHERE kind = 'secret'")[0]
        for hidden in (*plain, *hashes, identity, *json.loads(secret).values()):
            assert hidden not in done.out
    shown = {entry["id"] for entry in json.loads(done.out)["entries"] if entry["kind"] == "charge"}
    assert shown == ids, "receipts of before keep their ids"
    with closing(old.loaded.open_ledger(create=False)) as ledger:
        assert ledger.verify() == ENTRIES + 1
