"""Bringing back a ledger from a copy, so that lost history can never be spent twice.

A copy that reaches its anchor has lost nothing. A copy that ends before it has lost some entries: any of them may have
been a charge of any pool, and any open charge of the copy may have been answered since. So every pool, and every pool
planned later, is charged with as many answers as entries were lost (never more than it has), and open charges are void.
Answers that were opened (`countveil budget --open`) in the lost part have to be opened again, and were spent.

A restore always goes on the record, as an entry that follows the anchor's. Once the anchor is there, a process that
still has the old file open can answer nothing more. All of this is done to a copy of the copy while the anchor is held;
only a settled ledger takes the ledger's name, and the anchor moves last. A crash in between leaves what was there, or
a settled ledger, or one that is refused.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from countveil.errors import LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark, settle_folder
from countveil.ledger.checking import check_anchor, copied
from countveil.ledger.connection import FAULTS
from countveil.ledger.records import Entry, canonical, sealed
from countveil.ledger.sqlite import SqliteLedger, now

EVERYTHING = 10**9
"""Entries lost where nobody knows how many: no pool has more answers."""
_FILES = ("", "-wal", "-shm", "-journal")


def restore(copy: Path | None, ledger: Path, anchor: Path, *, accept_loss: bool = False, latest: bool = False) -> int:
    """Put a copy in the ledger's place (None: the file that is there), settled with the anchor.

    Returns how many entries were lost. Any loss must be accepted; without an anchor, either everything counts as lost,
    or the curator's word that this is the `latest` copy goes on the record. What was in the ledger's place is kept
    beside it with the ending .replaced, and a number if there is one already.
    """
    source = copy or ledger
    if not source.is_file():
        raise RequestError(f"{source} is not a file; give the path of a backup")
    keeper, part = Anchor(anchor), ledger.with_name(f".{ledger.name}.restoring")
    try:
        with keeper.held():  # nobody gets an answer out until this is done
            _clear(part)
            try:
                entries = _copied(source, part, live=source.absolute() == ledger.absolute())
                mark = keeper.read()
                lost = _lost(entries, mark, latest)
                if lost and not accept_loss:
                    what = f"{lost} entries would be lost" if mark else "without an anchor nobody knows what is missing"
                    hint = "" if mark else ", or --latest if nothing is"
                    raise RequestError(f"{what}; add --accept-loss to charge every pool for what may be missing{hint}")
                last = _settle(part, entries[-1], mark, lost)
                _swap(part, ledger)
            finally:
                _clear(part)
            keeper.write(Mark(str(entries[0].body["ledger"]), last.seq, last.hash))
    except OSError as error:
        raise LedgerError(f"the ledger could not be restored ({error.strerror}); try again") from None
    SqliteLedger(ledger, anchor, create=False).close()
    return lost


def _clear(part: Path) -> None:
    for ending in _FILES:
        part.with_name(part.name + ending).unlink(missing_ok=True)


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


def _copied(source: Path, part: Path, live: bool) -> list[Entry]:
    """A copy, write-ahead log included, whose chain and tables hold; its entries. The source stays as it is."""
    alone = not live and not source.with_name(source.name + "-wal").exists()  # may be on a disk that is read-only
    try:
        old = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}", uri=True)
        try:
            return copied(old, part)
        finally:
            old.close()
    except FAULTS:
        raise LedgerError(f"{source.name} is not a ledger, or it is damaged") from None


def _settle(part: Path, last: Entry, mark: Mark | None, lost: int) -> Entry:
    """Spend what may have been spent since, and never complete a charge that may have been answered."""
    body = {"lost": lost, "anchor": [mark.seq, mark.hash] if mark else None}
    seq = last.seq + lost + 1  # past all that may be missing, so that no older copy will ever count as less of a loss
    entry = sealed(last, now(), "restore", body, seq)
    row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
    db = sqlite3.connect(part, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        db.execute("UPDATE pool SET spent = min(answers, spent + ?)", (lost,))
        if lost or mark is None:
            db.execute("UPDATE charge SET void = 1 WHERE id NOT IN (SELECT charge FROM answer)")
        db.execute("COMMIT")
    except FAULTS:
        raise LedgerError("the ledger could not be restored; is the disk full?") from None
    finally:
        db.close()
    return entry


def _swap(part: Path, ledger: Path) -> None:
    """The settled copy takes the ledger's name; what was there is kept, whole, before anything of it is moved."""
    _keep(ledger)
    for ending in ("-wal", "-shm"):  # before the new file comes: a log is never applied to another file
        ledger.with_name(ledger.name + ending).unlink(missing_ok=True)
    os.replace(part, ledger)
    settle_folder(ledger.parent)


def _keep(ledger: Path) -> None:
    number, kept = 1, ledger.with_name(f"{ledger.name}.replaced")
    while any(kept.with_name(kept.name + ending).exists() for ending in _FILES):
        number += 1
        kept = ledger.with_name(f"{ledger.name}.replaced{number}")
    for ending in ("-wal", ""):
        old, new = ledger.with_name(ledger.name + ending), kept.with_name(kept.name + ending)
        if old.exists():
            try:
                os.link(old, new)
            except OSError:  # not every file system has links
                shutil.copyfile(old, new)
    settle_folder(ledger.parent)
