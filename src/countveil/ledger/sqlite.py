"""The ledger in one SQLite file: WAL, synchronous=FULL, one immediate transaction for every change."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from countveil.durable_files import make_private, part_beside, rename_file
from countveil.errors import LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.book import Ledger
from countveil.ledger.checking import check_anchor
from countveil.ledger.connection import (
    FAULTS,
    ReaderPool,
    check_file,
    connect,
    copied,
    fault,
    file_of,
    format_of,
    migration,
)
from countveil.ledger.records import LATEST, Entry, Link
from countveil.ledger.store import Rows, now


class SqliteLedger(Ledger):
    """A ledger file and its anchor. `clock` tells the time; `step` is called before every statement that changes it."""

    order = "rowid"
    faults = FAULTS

    def __init__(
        self,
        path: Path,
        anchor: Path,
        *,
        create: bool = True,
        clock: Callable[[], str] = now,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        super().__init__(Anchor(anchor), clock, step)
        self.path = path
        self._readers, self._changer = ReaderPool(lambda: connect(self.path)), 0
        self._new = not path.exists()  # asked before the anchor, which comes first where several begin at once
        mark = self.anchor.read()
        if self._new:
            mark = self._begun(mark, create)
        try:
            with self._using():
                self._follow_forks()
                self._migrate(mark)
                self._new = False
                self.verify()
                self._load_secret()
        except BaseException:
            self.close()
            raise

    # -- opening -----------------------------------------------------------------------------------------------------

    def _begun(self, mark: Mark | None, create: bool) -> Mark:
        """A new ledger begins with an anchor at 0, so that a ledger that disappears later is missed."""
        if mark is not None and mark.seq > 0:
            raise LedgerError(
                f"the ledger {self.path.name} is gone, but its anchor remembers {mark.seq} entries; "
                "bring back a backup with: countveil ledger restore FILE"
            )
        if not create:
            raise LedgerError(f"there is no ledger {self.path.name}")
        for folder in (self.path.parent, self.anchor.path.parent):
            if not folder.is_dir():
                raise LedgerError(f"the folder {folder} of the ledger does not exist; make it first")
        return self.anchor.begin(uuid.uuid4().hex)

    def _open(self) -> sqlite3.Connection:
        connection = connect(self.path, create=self._new)
        self._file = file_of(self.path)
        return connection

    def _migrate(self, mark: Mark | None) -> None:
        if format_of(self._db) == LATEST and self._db.execute("SELECT 1 FROM entry LIMIT 1").fetchone():
            return  # nothing is written, nor the anchor moved, before the ledger is verified
        self._hide_files()  # a secret is written below, and earlier versions made files that others can read
        with self._transaction("migrate"):
            version = format_of(self._db)
            if version and version < LATEST:  # nothing is added to a history that does not hold
                check_anchor(self._checked(), self.anchor.found())
            for number in range(version + 1, LATEST + 1):
                for statement in migration(number):
                    self._change("migrate", statement)
                self._change("migrate", f"PRAGMA user_version = {number}")
            if self._last() is None:
                if mark is None or mark.seq > 0:
                    raise LedgerError("the ledger is empty, but it is not new; restore a backup")
                self._append("open", {"ledger": mark.ledger, **self._draw_secret()})
                self.begun = self.path.name
            elif version == 1:
                self._key_versions()

    def _hide_files(self) -> None:
        """Give the ledger, SQLite's files beside it and the anchor to their owner alone."""
        ledger = self.path.resolve()
        beside = [ledger.with_name(ledger.name + ending) for ending in ("-wal", "-shm")]
        try:
            make_private([ledger, *beside, self.anchor.path])
        except OSError:
            raise LedgerError(
                "the ledger gets a secret, but its files belong to somebody else; let their owner open it once, "
                "or set their owner with chown"
            ) from None

    # -- what the rules of a ledger need -----------------------------------------------------------------------------

    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self._db.execute(sql, values)
        return cursor

    def _in_change(self) -> bool:
        return bool(self._connection.in_transaction)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """What this thread reads meanwhile, it reads in its transaction."""
        before, self._changer = self._changer, threading.get_ident()
        try:
            yield
        finally:
            self._changer = before

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> Rows:
        """Outside of a change, on a connection of its own: whoever reads does not wait for the disk of who writes."""
        if self._changer == threading.get_ident() or self._new:
            return super()._read(sql, values)
        try:
            with self._readers.borrow() as reader:
                return list(reader.execute(sql, values).fetchall())
        except FAULTS as error:
            raise fault(error) from None

    def close(self) -> None:
        super().close()
        self._readers.close()

    def close_before_fork(self) -> None:
        super().close_before_fork()
        self._readers.close_before_fork()

    def resume_after_fork(self) -> None:
        self._readers.resume_after_fork()
        super().resume_after_fork()

    def _turn(self) -> AbstractContextManager[None]:
        """Processes take turns on the anchor's lock, from the change to its anchor: SQLite's own makes them sleep for
        longer than a change takes."""
        return self.anchor.held()

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        db = self._db
        self._change(f"{name}:begin", "BEGIN IMMEDIATE")
        try:
            with self._inside():
                self._check_place()
                yield
            self._change(f"{name}:commit", "COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    @contextmanager
    def _moment(self) -> Iterator[None]:
        db = self._db
        db.execute("BEGIN")
        try:
            with self._inside():
                yield
        finally:
            db.execute("ROLLBACK")

    def _checked(self) -> list[Entry]:
        return check_file(self._db)

    def _fault(self, error: Exception) -> LedgerError:
        return fault(error)

    def _check_place(self) -> None:
        """The file is still the one that has the ledger's name."""
        if file_of(self.path) != self._file:
            raise LedgerError("the ledger was removed or replaced while it was open; nothing was answered; start again")

    def _last(self) -> Link | None:
        """Whatever is written follows it, so that here is where to see that nobody moved the file to another format."""
        last = super()._last()
        if last is not None and self._execute("PRAGMA user_version").fetchone()[0] != LATEST:
            raise LedgerError("another version of countveil changed the ledger's format; nothing was answered; update")
        return last

    def backup(self, target: Path) -> int:
        """A complete copy of this moment, in a new file of its own, checked; the number of entries in it."""
        if target.exists():
            raise RequestError(f"{target} exists; a backup is a new file")
        part = part_beside(target)
        try:
            with self._lock:
                entries = copied(self._db, part)
            rename_file(part, target)
        except (*FAULTS, OSError):
            raise RequestError(f"{target} cannot be written; give a path with room for a copy") from None
        finally:
            part.unlink(missing_ok=True)
        return len(entries)
