"""The anchor: a small file, best kept on another disk, that records the last entry of the ledger.

It detects lost history. A ledger that ends before the entry in its anchor lost some entries: an older copy was
restored, or its write-ahead log was deleted. A ledger that goes beyond its anchor lost nothing: a process stopped after
it had written the ledger and before it moved the anchor, and the anchor then catches up. The anchor only ever moves
forward, under a lock that all processes share, and only if the ledger contains the entry that the anchor records. So a
process that still uses the old ledger after a restore cannot answer.

The file has one line of fixed length, shorter than a disk's sector. The line is overwritten in place with one sync,
because disks write a sector whole or not at all. A torn or damaged line is refused. A new anchor, and one that a
restore sets, is written to a new file that is then renamed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from countveil.errors import LedgerError
from countveil.files.durable_files import open_private, replace_private, sync_folder

LENGTH = 256
WAIT = 60.0
"""Seconds to wait for other processes that are writing, before giving up."""
_MISSING = "the anchor is missing; if this is the latest ledger, confirm it with: countveil ledger restore --latest"


@dataclass(frozen=True)
class Mark:
    """How far a ledger has come: its identity, the number of its last entry, and that entry's hash.

    A ledger without entries has number 0.
    """

    ledger: str
    seq: int
    hash: str
    plan: int | None = None
    """The number of the last entry that made a plan, or that recorded a restore in which a plan may have been lost.

    None in an anchor that an earlier version wrote.
    """


class Anchor:
    """The anchor file of one ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_name(f".{path.name}.lock")
        self._thread_lock, self._locked = threading.RLock(), False
        self._synced: tuple[int, int] | None = None
        """The device and inode of the anchor file whose folder was synced, so that the file is found after a crash."""

    def read(self) -> Mark | None:
        """Read the mark in the anchor file; None if there is no file.

        A read that fails while another process is writing is retried.
        """
        for pause in (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016):
            try:
                return _mark(_content(self.path))
            except FileNotFoundError:
                return None
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                time.sleep(pause)
        raise self._damage_error()

    def require(self) -> Mark:
        """Read the mark in the anchor file; raise an error if there is no file."""
        mark = self.read()
        if mark is None:
            raise LedgerError(_MISSING)
        return mark

    def begin(self, ledger: str) -> Mark:
        """Create the anchor of a new ledger at entry 0, unless another process has created it; return its mark."""
        with self.lock():
            mark = self.read()
            if mark is None:
                mark = Mark(ledger, 0, "", 0)
                self.write(mark)
            return mark

    def advance(self, follow: Callable[[Mark], Mark]) -> None:
        """Move the anchor forward to a new mark; on return it is on disk. A mark that is not ahead changes nothing.

        `follow` computes the new mark from the current one. It raises an error if the ledger does not contain the entry
        of the current mark.
        """
        with self.lock():
            before = self.require()
            mark = follow(before)
            ahead = mark.seq > before.seq or (mark.seq == before.seq and before.plan is None)
            self._move(mark if ahead else before)

    def _move(self, mark: Mark) -> None:
        """Overwrite the line in the file, and sync it.

        This is done even if the line does not change, because the process that wrote it may have died before its sync.
        """
        line = _line(mark)
        try:
            file = os.open(self.path, os.O_WRONLY)
            try:
                there = os.fstat(file)
                if there.st_size != len(line):
                    return self.write(mark)
                # the process that created the file may have died before this sync
                if self._synced != (there.st_dev, there.st_ino):
                    sync_folder(self.path.parent)
                if os.pwrite(file, line, 0) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fdatasync(file)
                self._synced = (there.st_dev, there.st_ino)
            finally:
                os.close(file)
        except OSError as error:
            raise self._write_error(error) from None

    def write(self, mark: Mark) -> None:
        """Replace the anchor file by a new one. The caller holds the lock."""
        try:
            replace_private(self.path, _line(mark))
        except OSError as error:
            raise self._write_error(error) from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the anchor, so that no other thread or process can move it or answer. The lock is reentrant."""
        with self._thread_lock:
            if self._locked:
                yield
                return
            try:
                lock = open_private(self._lock)
            except OSError as error:
                raise self._write_error(error) from None
            try:
                self._wait(lock)
                self._locked = True
                yield
            finally:
                self._locked = False
                fcntl.flock(lock, fcntl.LOCK_UN)  # if another thread forked, closing does not unlock
                os.close(lock)

    def _wait(self, lock: int) -> None:
        until, pause = time.monotonic() + WAIT, 0.0002
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LedgerError("the ledger's anchor is busy with other processes; try again") from None
            except OSError as error:
                raise self._write_error(error) from None
            time.sleep(pause)
            pause = min(1.5 * pause, 0.0005)

    def _damage_error(self) -> LedgerError:
        return LedgerError(
            f"the anchor {self.path.name} cannot be read; restore a copy of it, or remove it and settle the ledger "
            "with: countveil ledger restore"
        )

    def _write_error(self, error: OSError) -> LedgerError:
        return LedgerError(f"the anchor could not be written ({error.strerror}); nothing was answered")


def _content(path: Path) -> bytes:
    """Read a file; raise a ValueError if it is longer than an anchor can be."""
    file = os.open(path, os.O_RDONLY)
    try:
        content = os.read(file, 2 * LENGTH)
    finally:
        os.close(file)
    if len(content) == 2 * LENGTH:
        raise ValueError
    return content


def _line(mark: Mark) -> bytes:
    fields = {"ledger": mark.ledger, "seq": mark.seq, "hash": mark.hash, "check": _check(mark)}
    if mark.plan is not None:
        fields["plan"] = mark.plan
    return json.dumps(fields).encode().ljust(LENGTH - 1) + b"\n"


def _mark(line: bytes) -> Mark:
    """Parse the line of an anchor file; raise a ValueError, KeyError or TypeError if the line is invalid."""
    members = json.loads(line)
    ledger, seq, hash, check = (members[name] for name in ("ledger", "seq", "hash", "check"))
    if type(ledger) is not str or type(hash) is not str or type(seq) is not int or seq < 0:
        raise TypeError
    plan = members.get("plan")
    if plan is not None and type(plan) is not int:
        raise TypeError
    mark = Mark(ledger, seq, hash, plan)
    if plan is not None and not 0 <= plan <= seq:
        raise ValueError
    if not ledger or len(hash) != (64 if seq else 0) or check != _check(mark):
        raise ValueError
    return mark


def _check(mark: Mark) -> str:
    """A checksum that detects a half-written line. It is no protection against deliberate changes."""
    plan = "" if mark.plan is None else f" {mark.plan}"
    return hashlib.sha256(f"{mark.ledger} {mark.seq} {mark.hash}{plan}".encode()).hexdigest()[:16]
