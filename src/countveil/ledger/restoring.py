"""Bringing back a ledger from a copy, so that lost history can never be spent twice.

A copy that reaches its anchor has lost nothing. A copy that ends before it has lost some entries: any of them may have
been a charge of any pool, and any open charge of the copy may have been answered since. So every pool is charged with
as many answers as entries were lost (never more than it has), open charges are void, and an entry that says so goes on
the record. The anchor accepts that entry in place of the one it remembers. All of this is done to a copy of the copy;
only a settled ledger takes the ledger's name.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from countveil.errors import LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.checking import check_anchor, check_file
from countveil.ledger.records import Entry, canonical, sealed
from countveil.ledger.sqlite import SqliteLedger, connect, now

EVERYTHING = 10**9
"""Entries lost where nobody knows how many: no pool has more answers."""


def restore(copy: Path | None, ledger: Path, anchor: Path, *, accept_loss: bool = False, latest: bool = False) -> int:
    """Put a copy in the ledger's place (None: the file that is there), settled with the anchor.

    Returns how many entries were lost. Any loss must be accepted; without an anchor, either everything counts as lost,
    or the curator's word that this is the `latest` copy goes on the record. What was in the ledger's place is kept
    beside it with the ending .replaced.
    """
    source = copy or ledger
    if not source.is_file():
        raise RequestError(f"{source} is not a file; give the path of a backup")
    part = ledger.with_name(f".{ledger.name}.restoring")
    try:
        entries = _copied(source, part)
        mark = Anchor(anchor).read()
        lost = _lost(entries, mark, latest)
        if lost and not accept_loss:
            what = f"{lost} entries would be lost" if mark else "without an anchor nobody knows what is missing"
            hint = "" if mark else ", or --latest if nothing is"
            raise RequestError(f"{what}; add --accept-loss to charge every pool for what may be missing{hint}")
        if lost or mark is None:
            _settle(part, entries[-1], mark, lost)
        _swap(part, ledger)
    finally:
        for ending in ("", "-wal", "-shm"):
            part.with_name(part.name + ending).unlink(missing_ok=True)
    if mark is None:
        Anchor(anchor).advance(Mark(str(entries[0].body["ledger"]), 0, ""))
    SqliteLedger(ledger, anchor, create=False).close()
    return lost


def _lost(entries: list[Entry], mark: Mark | None, latest: bool) -> int:
    """How many entries a copy lacks; a copy of another branch or another ledger is refused."""
    if mark is None:
        return 0 if latest else EVERYTHING
    if latest:
        raise RequestError("--latest is for a lost anchor; this anchor is there and knows")
    if mark.ledger == entries[0].body["ledger"] and mark.seq > entries[-1].seq:
        return mark.seq - entries[-1].seq
    check_anchor(entries, mark)
    return 0


def _copied(source: Path, part: Path) -> list[Entry]:
    """A copy, write-ahead log included, whose chain and tables hold; its entries."""
    try:
        old, new = connect(source), sqlite3.connect(part)
        try:
            old.backup(new)
            return check_file(new)
        finally:
            old.close()
            new.close()
    except sqlite3.DatabaseError:
        raise LedgerError(f"{source.name} is not a ledger, or it is damaged") from None


def _settle(part: Path, last: Entry, mark: Mark | None, lost: int) -> None:
    """Spend what may have been spent since, and never complete a charge that may have been answered."""
    seq = (mark.seq if mark else last.seq) + 1
    body = {"lost": lost, "anchor": [mark.seq, mark.hash] if mark else None}
    entry = sealed(last, now(), "restore", body, seq)
    db = connect(part)
    try:
        db.execute("BEGIN IMMEDIATE")
        row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
        db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        db.execute("UPDATE pool SET spent = min(answers, spent + ?)", (lost,))
        db.execute("UPDATE charge SET void = 1 WHERE id NOT IN (SELECT charge FROM answer)")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()


def _swap(part: Path, ledger: Path) -> None:
    """The settled copy takes the ledger's name; what was there is kept."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    for ending in ("-wal", "-shm", ""):
        old = ledger.with_name(ledger.name + ending)
        if old.exists():
            os.replace(old, ledger.with_name(f"{ledger.name}{ending}.replaced"))
    os.replace(part, ledger)
