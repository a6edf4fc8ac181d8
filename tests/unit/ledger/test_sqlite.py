"""The SQLite ledger: its settings, its constraints, its formats, and its messages for invalid files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from countveil.errors import LedgerError
from countveil.ledger import sqlite_connection
from countveil.ledger.records import LATEST, START, canonical, entry_hash, seal, walk_chain
from tests.support.ledgers import answered, filled, opened, plan


def test_every_commit_of_the_ledger_is_synced(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    value = {name: ledger._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert value == {"journal_mode": "wal", "synchronous": 2}
    ledger.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET time = ''",
        "DELETE FROM entry",
        "UPDATE answer SET payload = x'00'",
        "DELETE FROM answer",
        "UPDATE grade SET spent = answers + 1",
        "UPDATE grade SET spent = -1",
        "UPDATE grade SET spent = 0.5",
        "UPDATE grade SET answers = 'many'",
        "INSERT INTO answer SELECT charge, time, x'00' FROM answer",
        "INSERT INTO answer VALUES ('no such charge', '', x'00')",
        "INSERT INTO charge SELECT 'again', pool, dataset, version, question, text, analyst, time, 0, grade "
        "FROM charge",
        "INSERT INTO entry SELECT seq + 100, time, kind, body, previous, 'other' FROM entry",
        "UPDATE charge SET void = 2",
        "UPDATE share SET spent = -1",
    ],
)
def test_constraints_of_the_database_refuse_forbidden_changes(tmp_path: Path, statement: str) -> None:
    """Entries are append-only, units are integers, a charge has one answer, and a question has one charge."""
    filled(tmp_path)
    with closing(sqlite_connection.connect(tmp_path / "x.ledger")) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "x.ledger")) as db:
        db.execute(f"PRAGMA user_version = {LATEST + 1}")
    with pytest.raises(
        LedgerError, match=f"the ledger has format {LATEST + 1}, this countveil knows {LATEST}; update countveil"
    ):
        opened(tmp_path)


def test_a_process_of_an_older_version_stops_when_the_format_changes(tmp_path: Path) -> None:
    filled(tmp_path)
    older = opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "x.ledger")) as db:
        db.execute(f"PRAGMA user_version = {LATEST + 1}")
    with pytest.raises(LedgerError, match="another version of countveil changed the ledger's format"):
        answered(older, "e")
    older.close()


def test_a_migration_is_all_or_nothing(tmp_path: Path) -> None:
    def step(name: str) -> None:
        if name == "migrate":
            done.append(name)
            if len(done) == 5:
                raise KeyboardInterrupt

    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path, step=step)
    with closing(sqlite3.connect(tmp_path / "x.ledger")) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    opened(tmp_path).close()


def test_a_missing_ledger_or_folder_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"there is no ledger x.ledger"):
        opened(tmp_path, create=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(LedgerError, match="does not exist; make it first"):
        opened(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"hello", b"SQLite format 3\x00" + b"\xff" * 4080, b"\x00" * 8192])
def test_a_file_that_is_not_a_ledger_is_refused_unchanged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.ledger").write_bytes(content)
    with pytest.raises(LedgerError) as error:
        opened(tmp_path)
    assert "\n" not in str(error.value)
    assert (tmp_path / "x.ledger").read_bytes() == content


def test_another_database_is_refused_unchanged(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.ledger")) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(LedgerError, match="not new"):
        opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "x.ledger")) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_paths_may_contain_special_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a folder?with #100% ünusual&names"
    folder.mkdir()
    filled(folder)
    opened(folder, create=False).close()


def test_plans_are_found_without_reading_the_whole_chain(tmp_path: Path) -> None:
    from countveil.ledger import budgets

    ledger = opened(tmp_path)
    steps = ledger._db.execute(f"EXPLAIN QUERY PLAN {budgets.BUDGETS}").fetchall()
    assert "USING INDEX entry_that_sets_a_budget" in steps[0][-1]
    ledger.close()


def test_importing_the_ledger_loads_no_large_package() -> None:
    code = "import sys, countveil.ledger.restoration; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "duckdb", "click", "cryptography", "highspy"} & set(done.stdout.split())


def test_the_hash_chain_follows_its_definition() -> None:
    """hash_i = SHA-256(hash_{i-1}, seq, time, kind, body), from its definition."""
    import hashlib

    first = seal(None, "t", "open", {"ledger": "x"})
    text = "0" * 64 + '\n1\nt\nopen\n{"ledger":"x"}'
    assert (
        first.hash == hashlib.sha256(text.encode()).hexdigest() == entry_hash(START, 1, "t", "open", '{"ledger":"x"}')
    )
    second = seal(first, "t", "share", {"b": 1, "a": "ü"})
    assert canonical(second.body) == '{"a":"\\u00fc","b":1}'
    rows = [(e.seq, e.time, e.kind, canonical(e.body), e.previous, e.hash) for e in (first, second)]
    assert list(walk_chain(iter(rows))) == [first, second]
    for wrong in ([rows[1], rows[0]], [rows[1]], [rows[0], rows[0]], [rows[0], (3, *rows[1][1:])]):
        with pytest.raises(LedgerError):
            list(walk_chain(iter(wrong)))


def test_every_connection_sees_a_new_plan(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    one.open_plan(plan(4))
    assert two.plan("people") == plan(4)
    one.close()
    two.close()
