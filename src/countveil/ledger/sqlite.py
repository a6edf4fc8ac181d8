"""The ledger in one SQLite file. Every change is one transaction and is on disk when it returns (WAL, full sync)."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from countveil.errors import LedgerError, RequestError
from countveil.files.durable_files import make_private, part_beside, rename_file
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.ledger import Ledger
from countveil.ledger.records import LATEST, Entry, Link
from countveil.ledger.sqlite_connection import (
    FAULTS,
    ReaderPool,
    check_file,
    connect,
    copy_ledger,
    fault,
    file_of,
    format_of,
    migration,
)
from countveil.ledger.store import NONE_EARLIER, Earlier, Rows, now
from countveil.ledger.verification import check_anchor


class SqliteLedger(Ledger):
    """A ledger in a SQLite file, and its anchor. `clock` returns the time; `step` is called before every writing
    statement."""

    order = "rowid"
    faults = FAULTS

    def __init__(
        self,
        path: Path,
        anchor: Path,
        *,
        create: bool = True,
        earlier: Earlier = NONE_EARLIER,
        clock: Callable[[], str] = now,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        super().__init__(Anchor(anchor), clock, step)
        self.path, self._earlier = path, earlier
        self._readers, self._changer = ReaderPool(lambda: connect(self.path)), 0
        self._new = (
            not path.exists()
        )  # checked before the anchor: a process that creates a ledger creates the anchor first
        mark = self.anchor.read()
        if self._new:
            mark = self._begin_ledger(mark, create)
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

    def _begin_ledger(self, mark: Mark | None, create: bool) -> Mark:
        """Create the anchor of a new ledger before the ledger itself, so that a later deletion of the ledger is
        noticed."""
        if mark is not None and mark.seq > 0:
            raise LedgerError(
                f"the ledger {self.path.name} is gone, but its anchor remembers {mark.seq} entries; "
                "restore a backup with: countveil ledger restore FILE"
            )
        self._check_beginning(create, self.path.name)
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
            return  # do not write, or move the anchor, before the ledger is verified
        self._hide_files()  # a secret is written below, and earlier versions created world-readable files
        with self._transaction("migrate"):
            version = format_of(self._db)
            if version and version < LATEST:  # never append to an invalid history
                check_anchor(self._read_checked(), self.anchor.require())
            for number in range(version + 1, LATEST + 1):
                for statement in migration(number):
                    self._change("migrate", statement)
                self._change("migrate", f"PRAGMA user_version = {number}")
            if self._last() is None:
                if mark is None or mark.seq > 0:
                    raise LedgerError("the ledger is empty, but it is not new; restore a backup")
                self._check_beginning(True, self.path.name)  # another process may have made the file and ended
                self._begin(mark.ledger, self.path.name)
            elif version == 1:
                self._key_versions()

    def _hide_files(self) -> None:
        """Make the ledger, its WAL files and the anchor readable by their owner only."""
        ledger = self.path.resolve()
        beside = [ledger.with_name(ledger.name + ending) for ending in ("-wal", "-shm")]
        try:
            make_private([ledger, *beside, self.anchor.path])
        except OSError:
            raise LedgerError(
                "the ledger needs a new secret, but its files belong to another user; let their owner open it once, "
                "or set their owner with chown"
            ) from None

    # -- database operations ----------------------------------------------------------------------------------------

    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self._db.execute(sql, values)
        return cursor

    def _in_change(self) -> bool:
        return bool(self._connection.in_transaction)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Within this block, the thread reads in its own transaction, not on a separate connection."""
        before, self._changer = self._changer, threading.get_ident()
        try:
            yield
        finally:
            self._changer = before

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> Rows:
        """Read rows. Outside a change a separate connection is used, so that readers do not wait for the writer's
        fsync."""
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
        """The anchor's lock: a process holds it from the beginning of a change until the anchor has moved.

        If processes waited for SQLite's own lock instead, they would sleep for longer than a change takes.
        """
        return self.anchor.lock()

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

    def _read_checked(self) -> list[Entry]:
        return check_file(self._db)

    def _fault(self, error: Exception) -> LedgerError:
        return fault(error)

    def _check_place(self) -> None:
        """Raise an error if the ledger's path now leads to another file."""
        if file_of(self.path) != self._file:
            raise LedgerError("the ledger was removed or replaced while it was open; nothing was answered; start again")

    def _last(self) -> Link | None:
        """The number and hash of the last entry. The file's format is checked too, because every write calls this
        first."""
        last = super()._last()
        if last is not None and self._execute("PRAGMA user_version").fetchone()[0] != LATEST:
            raise LedgerError("another version of countveil changed the ledger's format; nothing was answered; update")
        return last

    def backup(self, target: Path) -> int:
        """Copy a consistent snapshot of the ledger into a new file, check the copy and return its number of entries."""
        if target.exists():
            raise RequestError(f"{target} exists; give the path of a new file")
        part = part_beside(target)
        try:
            with self._lock:
                entries = copy_ledger(self._db, part)
            rename_file(part, target)
        except (*FAULTS, OSError):
            raise RequestError(f"{target} cannot be written; give a writable path with enough disk space") from None
        finally:
            part.unlink(missing_ok=True)
        return len(entries)
