"""Bringing back a ledger from a copy, so that lost history can never be spent twice.

What a copy lacks is charged to every pool (see settling). Answers that were opened (`countveil budget --open`) in the
lost part have to be opened again, and were spent.

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

from countveil.durable_files import create_private, rename_file, sync_folder
from countveil.errors import LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.connection import FAULTS, copied
from countveil.ledger.records import Entry
from countveil.ledger.settling import EVERYTHING, lost_entries, settled_mark, settlement
from countveil.ledger.sqlite import SqliteLedger
from countveil.ledger.store import now

__all__ = ["EVERYTHING", "restore"]
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
                lost = lost_entries(entries, mark, accept_loss=accept_loss, latest=latest)
                last = _settle(part, entries[-1], mark, lost)
                _swap(part, ledger)
            finally:
                _clear(part)
            keeper.write(settled_mark(entries, last))
    except OSError as error:
        raise LedgerError(f"the ledger could not be restored ({error.strerror}); try again") from None
    SqliteLedger(ledger, anchor, create=False).close()
    return lost


def _clear(part: Path) -> None:
    for ending in _FILES:
        part.with_name(part.name + ending).unlink(missing_ok=True)


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
    """Put the restore on the record of the copy, and charge what may be missing."""
    entry, statements = settlement(last, mark, lost, now())
    db = sqlite3.connect(part, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        for sql, values in statements:
            db.execute(sql, values)
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
    rename_file(part, ledger)


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
                with old.open("rb") as source, open(create_private(new), "wb") as target:
                    shutil.copyfileobj(source, target)
            new.chmod(0o600)  # the ledger's own may have been made by an earlier version
    sync_folder(ledger.parent)
