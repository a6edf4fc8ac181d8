"""The anchor: a small file, best kept on another disk, that remembers how far the ledger had come.

A ledger that ends before its anchor lost history: an older copy was restored, or its write-ahead log was deleted. A
ledger that is ahead of its anchor was interrupted between the two writes, and catches up. The anchor only ever goes
forward, under a lock, whichever process writes; and only from a ledger that holds what the anchor remembers, so that a
process left behind by a restore answers nothing more.

It is one line of fixed length, less than a disk's sector, and moves in place with one sync: disks write a sector whole
or not at all. Were it torn all the same, it would be refused, as damage of any kind is. An anchor that is begun, or set
by a restore, is a new file that takes the name.
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

from countveil.durable_files import open_private, replace_private, sync_folder
from countveil.errors import LedgerError

LENGTH = 256
WAIT = 60.0
"""Seconds to wait for other processes that are writing."""
_MISSING = "the anchor is missing; if this is the latest ledger, say so with: countveil ledger restore --latest"


@dataclass(frozen=True)
class Mark:
    """How far a ledger had come: its identity, its last entry, that entry's hash. A ledger without entries is at 0."""

    ledger: str
    seq: int
    hash: str
    plan: int | None = None
    """The last entry that made a plan, or may have lost one; None in an anchor of before this was remembered."""


class Anchor:
    """The anchor file of one ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_name(f".{path.name}.lock")
        self._mine, self._holding = threading.RLock(), False
        self._settled: tuple[int, int] | None = None
        """The file whose name is known to be on disk."""

    def read(self) -> Mark | None:
        """What the anchor says; None if there is no anchor. Who reads half of a move looks again."""
        for pause in (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016):
            try:
                return _mark(_content(self.path))
            except FileNotFoundError:
                return None
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                time.sleep(pause)
        raise self._damaged()

    def found(self) -> Mark:
        """What the anchor says; a missing anchor is refused."""
        mark = self.read()
        if mark is None:
            raise LedgerError(_MISSING)
        return mark

    def begin(self, ledger: str) -> Mark:
        """The anchor of a new ledger, at 0; where another process began one, that one."""
        with self.held():
            mark = self.read()
            if mark is None:
                mark = Mark(ledger, 0, "", 0)
                self.write(mark)
            return mark

    def advance(self, follow: Callable[[Mark], Mark]) -> None:
        """Move forward to the mark that follows; one that is not ahead changes nothing. Durable when it returns.

        `follow` gets what the anchor says now, and refuses it unless the ledger holds it.
        """
        with self.held():
            before = self.found()
            mark = follow(before)
            ahead = mark.seq > before.seq or (mark.seq == before.seq and before.plan is None)
            self._move(mark if ahead else before)

    def _move(self, mark: Mark) -> None:
        """Write over the line that is there; also if it says the same: whoever wrote it may have died before a sync."""
        line = _line(mark)
        try:
            file = os.open(self.path, os.O_WRONLY)
            try:
                there = os.fstat(file)
                if there.st_size != len(line):
                    return self.write(mark)
                if self._settled != (there.st_dev, there.st_ino):  # whoever named it may have died before this
                    sync_folder(self.path.parent)
                if os.pwrite(file, line, 0) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fdatasync(file)
                self._settled = (there.st_dev, there.st_ino)
            finally:
                os.close(file)
        except OSError as error:
            raise self._unwritten(error) from None

    def write(self, mark: Mark) -> None:
        """Replace what the anchor says, while it is held."""
        try:
            replace_private(self.path, _line(mark))
        except OSError as error:
            raise self._unwritten(error) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all others from moving the anchor, and so from answering. Who holds it may hold it again."""
        with self._mine:
            if self._holding:
                yield
                return
            try:
                lock = open_private(self._lock)
            except OSError as error:
                raise self._unwritten(error) from None
            try:
                self._wait(lock)
                self._holding = True
                yield
            finally:
                self._holding = False
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough if another thread forked meanwhile
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
                raise self._unwritten(error) from None
            time.sleep(pause)
            pause = min(1.5 * pause, 0.0005)

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"the anchor {self.path.name} cannot be read; bring back a copy of it, or remove it and settle the ledger "
            "with: countveil ledger restore"
        )

    def _unwritten(self, error: OSError) -> LedgerError:
        return LedgerError(f"the anchor could not be written ({error.strerror}); nothing was answered")


def _content(path: Path) -> bytes:
    """What a file holds, if it is no longer than an anchor could be."""
    file = os.open(path, os.O_RDONLY)
    try:
        content = os.read(file, 2 * LENGTH)
    finally:
        os.close(file)
    if len(content) == 2 * LENGTH:
        raise ValueError
    return content


def _line(mark: Mark) -> bytes:
    said = {"ledger": mark.ledger, "seq": mark.seq, "hash": mark.hash, "check": _check(mark)}
    if mark.plan is not None:
        said["plan"] = mark.plan
    return json.dumps(said).encode().ljust(LENGTH - 1) + b"\n"


def _mark(line: bytes) -> Mark:
    """What a line says; a ValueError, KeyError or TypeError if it says nothing."""
    found = json.loads(line)
    ledger, seq, hash, check = (found[name] for name in ("ledger", "seq", "hash", "check"))
    if type(ledger) is not str or type(hash) is not str or type(seq) is not int or seq < 0:
        raise TypeError
    plan = found.get("plan")
    if plan is not None and type(plan) is not int:
        raise TypeError
    mark = Mark(ledger, seq, hash, plan)
    if plan is not None and not 0 <= plan <= seq:
        raise ValueError
    if not ledger or len(hash) != (64 if seq else 0) or check != _check(mark):
        raise ValueError
    return mark


def _check(mark: Mark) -> str:
    """What tells a line from half of it; no secret."""
    plan = "" if mark.plan is None else f" {mark.plan}"
    return hashlib.sha256(f"{mark.ledger} {mark.seq} {mark.hash}{plan}".encode()).hexdigest()[:16]
