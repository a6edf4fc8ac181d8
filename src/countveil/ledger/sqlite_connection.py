"""Connections to a ledger file: durable commits, lock waits, error messages, and the expected schema."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

from countveil.errors import LedgerError
from countveil.files.durable_files import create_private, open_private
from countveil.ledger import anchor
from countveil.ledger.records import LATEST, Entry
from countveil.ledger.verification import check_rows

FAULTS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The errors that SQLite raises; UnicodeDecodeError is raised where SQLite's own message quotes damaged text."""


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open a ledger file so that every commit is on disk when it returns."""
    if create:
        os.close(open_private(path))  # the log gets the same mode
    where = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    db = sqlite3.connect(where, timeout=anchor.WAIT, isolation_level=None, check_same_thread=False, uri=True)
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA fullfsync = ON")
        _use_wal(db)
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch the file to WAL mode. Retry while it is locked, because SQLite does not wait when it changes the mode."""
    until = time.monotonic() + anchor.WAIT
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise LedgerError("the ledger's file system has no shared memory for SQLite; keep the ledger on a local disk")


def migration(number: int) -> Iterator[str]:
    """The SQL statements of migration number `number`, one by one, to be run in the caller's transaction."""
    script = files("countveil.ledger").joinpath(f"migrations/{number:04d}.sql").read_text(encoding="utf-8")
    waiting = ""
    for line in script.splitlines(keepends=True):
        waiting += line
        if sqlite3.complete_statement(waiting):
            yield waiting
            waiting = ""


@cache
def schema(format: int) -> frozenset[tuple[str, str, str, str | None]]:
    """The tables, indexes and triggers that a ledger file of this format must have."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for number in range(1, format + 1):
            for statement in migration(number):
                db.execute(statement)
        return read_schema(db)
    finally:
        db.close()


def read_schema(db: sqlite3.Connection) -> frozenset[tuple[str, str, str, str | None]]:
    """The tables, indexes and triggers that a ledger file has, except those that ANALYZE adds."""
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'")
    return frozenset(rows.fetchall())


def fault(error: Exception) -> LedgerError:
    """The LedgerError to raise for an error of SQLite. Its message never quotes content of the ledger."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return LedgerError("the ledger is busy with other processes; try again")
    if "full" in text:
        return LedgerError("the ledger could not be written: the disk is full; nothing was answered")
    if "readonly" in text or "unable to open" in text:
        return LedgerError("the ledger cannot be opened for writing; check the permissions of its file and folder")
    if isinstance(error, ValueError) or any(
        sign in text for sign in ("not a database", "malformed", "schema", "UTF-8")
    ):
        return LedgerError("the ledger file is damaged; restore a backup")
    return LedgerError("the ledger could not be read or written; nothing was answered")


def file_of(path: Path) -> tuple[int, int] | None:
    """The device and inode of the file at a path; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def format_of(db: sqlite3.Connection) -> int:
    """The format number of a ledger file; 0 if it is empty. A newer format than this version knows is refused."""
    format = int(db.execute("PRAGMA user_version").fetchone()[0])
    if format > LATEST:
        raise LedgerError(f"the ledger has format {format}, this countveil knows {LATEST}; update countveil")
    return format


def check_file(db: sqlite3.Connection) -> list[Entry]:
    """Check a ledger file of any known format and return its entries.

    The file, its schema, its hash chain and its tables are checked; a fault is raised as a LedgerError.
    """
    if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        raise LedgerError("the ledger file is damaged; restore a backup")
    format = format_of(db)
    if read_schema(db) != schema(format):
        raise LedgerError(
            "the ledger was changed: its tables, triggers or constraints are not the expected ones; restore a backup"
        )
    return check_rows(db.execute, "rowid", format)


def copy_ledger(source: sqlite3.Connection, target: Path) -> list[Entry]:
    """Copy a consistent snapshot of a ledger into one file without a WAL, and check the copy; return its entries."""
    os.close(create_private(target))
    copy = sqlite3.connect(target)
    try:
        copy.execute("PRAGMA synchronous = FULL")
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        return check_file(copy)
    finally:
        copy.close()


class ReaderPool:
    """Read-only connections, one for each thread that is reading, so that readers never wait for each other.

    Idle connections are reused. All connections are closed before a fork.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock, self._closed, self._forking, self._borrowed = threading.Condition(), False, False, 0
        self._idle: list[sqlite3.Connection] = []

    @contextmanager
    def borrow(self) -> Iterator[sqlite3.Connection]:
        """A connection that no other thread uses within the `with` block."""
        with self._lock:
            self._lock.wait_for(lambda: not self._forking)
            if self._closed:
                raise LedgerError("the ledger is closed")
            self._borrowed += 1
            mine = self._idle.pop() if self._idle else None
        try:
            mine = mine or self._connect()
            yield mine
        finally:
            with self._lock:
                self._borrowed -= 1
                if mine is not None and self._closed:
                    mine.close()
                elif mine is not None:
                    self._idle.append(mine)
                self._lock.notify_all()

    def close(self) -> None:
        """Close the idle connections. Borrowed ones are closed when they are returned."""
        with self._lock:
            self._closed = True
            self._close_idle()

    def close_before_fork(self) -> None:
        """Block new readers, wait for the current ones, and close all connections."""
        self._lock.acquire()
        self._forking = True
        self._lock.wait_for(lambda: self._borrowed == 0)
        self._close_idle()

    def resume_after_fork(self) -> None:
        """Allow readers again; called after a fork, in the parent and in the child."""
        self._forking = False
        self._lock.notify_all()
        self._lock.release()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
