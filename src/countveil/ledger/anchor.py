"""The anchor: a small file, best kept on another disk, that remembers how far the ledger had come.

A ledger that ends before its anchor lost history: an older copy was restored, or its write-ahead log was deleted. A
ledger that is ahead of its anchor was interrupted between the two writes, and catches up. Writing is atomic (a new file
takes the old one's name) and only ever goes forward, under a lock, whichever process writes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from countveil.errors import LedgerError


@dataclass(frozen=True)
class Mark:
    """How far a ledger had come: its identity, its last entry, that entry's hash."""

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
            return Mark(str(found["ledger"]), int(found["seq"]), str(found["hash"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise LedgerError(f"the anchor {self.path.name} cannot be read; restore it or the ledger") from None

    def advance(self, mark: Mark, force: bool = False) -> None:
        """Move forward to a mark; a mark that is not ahead changes nothing. Durable when it returns."""
        try:
            with self._locked():
                before = self.read()
                if force or before is None or mark.seq > before.seq:
                    self._write(mark)
        except OSError as error:
            raise LedgerError(f"the anchor could not be written ({error.strerror}); nothing was answered") from None

    def _write(self, mark: Mark) -> None:
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(json.dumps(mark.__dict__).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.path.with_name(f".{self.path.name}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
