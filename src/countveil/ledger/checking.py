"""Is the ledger what it was? The chain against itself, the tables against the chain, the chain against the anchor."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

from countveil.errors import LedgerError
from countveil.ledger.anchor import Mark
from countveil.ledger.connection import found_schema, schema
from countveil.ledger.records import Entry, State, replayed, walked

_CHARGE = ("pool", "dataset", "version", "question", "text", "analyst", "time", "void")


def check_file(db: sqlite3.Connection) -> list[Entry]:
    """The entries of a ledger whose chain holds and whose tables say what the entries say; otherwise a refusal."""
    if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        raise LedgerError("the ledger file is damaged; restore a backup")
    if found_schema(db) != schema():
        raise LedgerError("the ledger was changed: its tables, triggers or limits are not its own; restore a backup")
    try:
        entries = list(walked(db.execute("SELECT seq, time, kind, body, previous, hash FROM entry ORDER BY seq")))
        if not entries:
            raise LedgerError("the ledger is empty; restore a backup")
        _check_tables(db, replayed(entries), entries)
    except (LookupError, TypeError, ValueError, OverflowError):
        raise LedgerError("the ledger was changed: an entry does not say what it should; restore a backup") from None
    return entries


def _check_tables(db: sqlite3.Connection, state: State, entries: list[Entry]) -> None:
    def rows(table: str) -> sqlite3.Cursor:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid")

    charges = {id: tuple(body[key] for key in _CHARGE) for id, body in state.charges.items()}
    times = {entry.body["charge"]: entry.time for entry in entries if entry.kind == "answer"}
    pairs: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {
        "pool": ({name: [answers, spent] for name, answers, spent in rows("pool")}, state.pools),
        "share": ({(pool, who): [answers, spent] for pool, who, answers, spent in rows("share")}, state.shares),
        "version": ({(dataset, number): mark for dataset, number, mark in rows("version")}, state.versions),
        "charge": ({row[0]: tuple(row[1:]) for row in rows("charge")}, charges),
        "answer": (
            {charge: (time, _digest(payload)) for charge, time, payload in rows("answer")},
            {charge: (times[charge], digest) for charge, digest in state.answers.items()},
        ),
        "plan": (
            {pool: _digest(document.encode()) for pool, document in rows("plan")},
            {pool: body["document"] for pool, body in state.plans.items()},
        ),
    }
    for table, (held, meant) in pairs.items():
        if held != meant or (table == "charge" and list(held) != list(meant)):
            raise LedgerError(f"the ledger was changed: table {table} is not what its entries say; restore a backup")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def copied(source: sqlite3.Connection, target: Path) -> list[Entry]:
    """One moment of a ledger as a file of its own, without a log beside it; its entries, checked."""
    copy = sqlite3.connect(target)
    try:
        copy.execute("PRAGMA synchronous = FULL")
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        return check_file(copy)
    finally:
        copy.close()


def check_anchor(entries: list[Entry], mark: Mark) -> None:
    """The ledger holds the entry that its anchor remembers, or an entry that settles its loss."""
    held = next((entry for entry in entries if entry.seq >= mark.seq), None)
    check_held(mark, str(entries[0].body["ledger"]), held, entries[-1].seq)


def check_held(mark: Mark, ledger: str, held: Entry | None, end: int) -> None:
    """The same, given the first entry from the anchor's on (None if there is none) and the number of the last."""
    if mark.ledger != ledger:
        raise LedgerError("the anchor belongs to another ledger; check the paths in the configuration")
    if mark.seq == 0:
        return
    if held is None:
        raise LedgerError(
            f"the ledger lost history: it ends at entry {end}, its anchor remembers {mark.seq}; "
            "bring back the latest copy with: countveil ledger restore FILE"
        )
    settled = held.kind == "restore" and held.body["anchor"] == [mark.seq, mark.hash]
    if not settled and (held.seq, held.hash) != (mark.seq, mark.hash):
        raise LedgerError("the ledger's history is not the one its anchor remembers; restore a backup")
