"""Restore a ledger from a copy, so that lost history can never be spent twice.

Every grade is charged for the entries that the copy lacks (see `loss`). Answers that were added in lost entries
(`countveil budget --extend`) have to be added again, and then count as spent.

Every restore is recorded, as an entry with a number after the one in the anchor. Once the anchor is moved to this
entry, a process that still has the old file open cannot answer. The work is done on a second copy while the anchor is
locked: the copy is settled, then renamed to the ledger's name, and the anchor moves last. A crash in between leaves the
old ledger, or a settled one, or one that is refused.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from countveil.errors import LedgerError, RequestError
from countveil.files.durable_files import create_private, rename_file, sync_folder
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.loss import EVERYTHING, lost_entries, settled_mark, settlement
from countveil.ledger.records import Entry
from countveil.ledger.sqlite import SqliteLedger
from countveil.ledger.sqlite_connection import FAULTS, copy_ledger, format_of
from countveil.ledger.store import now

__all__ = ["EVERYTHING", "restore"]
_FILES = ("", "-wal", "-shm", "-journal")


def restore(copy: Path | None, ledger: Path, anchor: Path, *, accept_loss: bool = False, latest: bool = False) -> int:
    """Replace the ledger by a copy (None: keep the file that is there) and settle it; return the number of lost
    entries.

    A loss is an error unless `accept_loss` is set. Without an anchor everything counts as lost, unless the curator
    states that this copy is the `latest`; the ledger records this. The old ledger stays beside the new one, with the
    ending .replaced, and a number if that name is taken.
    """
    source = copy or ledger
    if not source.is_file():
        raise RequestError(f"{source} is not a file; give the path of a backup")
    keeper, part = Anchor(anchor), ledger.with_name(f".{ledger.name}.restoring")
    try:
        with keeper.lock():  # no process can answer until this is done
            _clear(part)
            try:
                entries = _copy(source, part, live=source.absolute() == ledger.absolute())
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


def _copy(source: Path, part: Path, live: bool) -> list[Entry]:
    """Copy a ledger file, including its write-ahead log, and check the copy; return its entries. The source stays
    unchanged."""
    alone = not live and not source.with_name(source.name + "-wal").exists()  # the source may be on a read-only disk
    try:
        old = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}", uri=True)
        try:
            return copy_ledger(old, part)
        finally:
            old.close()
    except FAULTS:
        raise LedgerError(f"{source.name} is not a ledger, or it is damaged") from None


def _settle(part: Path, last: Entry, mark: Mark | None, lost: int) -> Entry:
    """Write the entry of the restore to the copy, and charge every grade for the lost entries."""
    db = sqlite3.connect(part, isolation_level=None)
    try:
        entry, statements = settlement(last, mark, lost, now(), format_of(db))
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        for sql, values in statements:
            db.execute(sql, values)
        db.execute("COMMIT")
    except FAULTS:
        raise LedgerError("the ledger could not be restored; check that the disk is not full and try again") from None
    finally:
        db.close()
    return entry


def _swap(part: Path, ledger: Path) -> None:
    """Keep the old ledger under another name, then rename the settled copy to the ledger's name."""
    _keep(ledger)
    for ending in ("-wal", "-shm"):  # first, so that the old log is never applied to the new file
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
            new.chmod(0o600)  # earlier versions made files that others could read
    sync_folder(ledger.parent)
