"""The anchor: a small file, best kept on another disk, that remembers how far the ledger had come.

A ledger that ends before its anchor lost history: an older copy was restored, or its write-ahead log was deleted. A
ledger that is ahead of its anchor was interrupted between the two writes, and catches up. Writing is atomic (a new file
takes the old one's name) and only ever goes forward, under a lock, whichever process writes; and only from a ledger
that holds what the anchor remembers, so that a process left behind by a restore answers nothing more.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from countveil.errors import LedgerError

WAIT = 60.0
"""Seconds to wait for other processes that are writing."""
_MISSING = "the anchor is missing; if this is the latest ledger, say so with: countveil ledger restore --latest"


@dataclass(frozen=True)
class Mark:
    """How far a ledger had come: its identity, its last entry, that entry's hash. A ledger without entries is at 0."""

    ledger: str
    seq: int
    hash: str


class Anchor:
    """The anchor file of one ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Mark | None:
        """What the anchor says; None if there is no anchor."""
        try:
            found = json.loads(self.path.read_bytes())
            ledger, seq, hash = (found[name] for name in ("ledger", "seq", "hash"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise self._damaged() from None
        if type(ledger) is not str or type(hash) is not str or type(seq) is not int or seq < 0:
            raise self._damaged()
        if not ledger or len(hash) != (64 if seq else 0):
            raise self._damaged()
        return Mark(ledger, seq, hash)

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
                mark = Mark(ledger, 0, "")
                self.write(mark)
            return mark

    def advance(self, mark: Mark, holds: Callable[[Mark], None]) -> None:
        """Move forward to a mark; a mark that is not ahead changes nothing. Durable when it returns.

        `holds` refuses what the anchor says now unless the ledger holds it.
        """
        with self.held():
            before = self.found()
            holds(before)
            if mark.seq > before.seq:
                self.write(mark)
            else:
                self._settle_folder()  # whoever wrote it may have died before this

    def write(self, mark: Mark) -> None:
        """Replace what the anchor says, while it is held."""
        part = self.path.with_name(f".{self.path.name}.part")
        try:
            with part.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(asdict(mark)).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path)
            self._settle_folder()
        except OSError as error:
            raise self._unwritten(error) from None

    def _settle_folder(self) -> None:
        try:
            settle_folder(self.path.parent)
        except OSError as error:
            raise self._unwritten(error) from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all others from moving the anchor, and so from answering."""
        try:
            lock = self.path.with_name(f".{self.path.name}.lock").open("ab")
        except OSError as error:
            raise self._unwritten(error) from None
        with lock:
            self._wait(lock.fileno())
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough if another thread forked meanwhile

    def _wait(self, lock: int) -> None:
        until, pause = time.monotonic() + WAIT, 0.0005
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LedgerError("the ledger's anchor is busy with other processes; try again") from None
            except OSError as error:
                raise self._unwritten(error) from None
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def _damaged(self) -> LedgerError:
        return LedgerError(
            f"the anchor {self.path.name} cannot be read; bring back a copy of it, or remove it and settle the ledger "
            "with: countveil ledger restore"
        )

    def _unwritten(self, error: OSError) -> LedgerError:
        return LedgerError(f"the anchor could not be written ({error.strerror}); nothing was answered")


def settle_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
