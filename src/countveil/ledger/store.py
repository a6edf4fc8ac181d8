"""How a ledger is kept: one connection, durable changes, the chain and its anchor; whatever database it is.

A database brings a connection (`_open`), a durable change that runs alone (`_changing`), one moment to read
(`_moment`), statements with ? for values (`_execute`), and words for its faults (`_fault`). The SQL here is what all of
them understand.

Order of durability: the change is on disk, then the anchor, then the caller goes on. A charge alone does not move the
anchor: it is on disk before the data is looked at, and its answer, which follows it in the chain, moves the anchor over
both before anything goes out. A process that dies anywhere leaves either no trace or a charge; a charge without an
answer can be completed later, and only once.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from countveil.errors import LedgerError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.checking import check_anchor, check_held
from countveil.ledger.group_commit import CommitQueue, QueuedChange
from countveil.ledger.records import Entry, Link, body_of, canonical, changes_plans, sealed, walked

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
ENTRY = "SELECT seq, time, kind, body, previous, hash"


def entry_of(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], row[1], row[2], body_of(row[0], row[3]), row[4], row[5])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Store(ABC):
    """Entries and their anchor. `clock` tells the time; `step` is called before every statement that changes it."""

    order: str
    """The column that tells the order in which charges were made."""
    faults: tuple[type[Exception], ...]
    """What the database raises."""

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        self.anchor, self._clock, self._step = anchor, clock, step
        self._lock, self._closed = threading.RLock(), False
        self._connection: Any = None
        self.begun: str | None = None
        """The name of the ledger, if it began with this opening."""
        self._process = self._forking = os.getpid()
        self._queue = CommitQueue()
        self._tail: Entry | None = None
        """The last entry, as far as the change under way has written one."""
        self._written = 0
        """Statements that changed something, or were to."""

    # -- what a database brings --------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> Any:
        """A connection whose commits are on disk when they return."""

    @abstractmethod
    def _changing(self, name: str) -> AbstractContextManager[None]:
        """One durable transaction that no other change overlaps; after any fault nothing has happened, as far as can
        be known."""

    @abstractmethod
    def _moment(self) -> AbstractContextManager[None]:
        """One moment of the ledger to read, whatever others write meanwhile."""

    @abstractmethod
    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        """The cursor of a statement."""

    @abstractmethod
    def _in_change(self) -> bool:
        """The connection is in the middle of something that cannot be taken up on another one."""

    @abstractmethod
    def _checked(self) -> list[Entry]:
        """The entries of a ledger whose chain holds and whose tables say what the entries say; otherwise a refusal."""

    @abstractmethod
    def _fault(self, error: Exception) -> LedgerError:
        """A fault of the database, in words that say nothing about its content."""

    @abstractmethod
    def backup(self, target: Path) -> int:
        """A complete copy of this moment, in a new file of its own, checked; the number of entries in it."""

    def _turn(self) -> AbstractContextManager[None]:
        """What keeps other processes from changing the ledger, if something has to before a change begins."""
        return nullcontext()

    # -- the connection ----------------------------------------------------------------------------------------------

    @property
    def _db(self) -> Any:
        """The connection of this process. They do not survive a fork, so both sides open their own after one."""
        if self._closed:
            raise LedgerError("the ledger is closed")
        if self._connection is None:
            self._connection, self._process = self._open(), os.getpid()
        elif self._process != os.getpid():
            raise LedgerError("the process was forked in the middle of a change of the ledger; open the ledger again")
        return self._connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _follow_forks(self) -> None:
        """From now on close the connection before every fork of this process."""
        _stores.add(self)

    def close_before_fork(self) -> None:
        """Wait until no thread uses the connection, then close it: it belongs to one process, and so do its locks."""
        self._lock.acquire()
        self._forking = os.getpid()
        if self._connection is not None and self._process == os.getpid() and not self._in_change():
            self._connection.close()
            self._connection = None

    def resume_after_fork(self) -> None:
        """On both sides. What threads of the parent were waiting for is not the child's to do."""
        if self._forking != os.getpid():
            self._queue.forget()
        self._lock.release()

    @contextmanager
    def _using(self) -> Iterator[None]:
        """One thread at a time, and faults in words."""
        with self._lock:
            try:
                yield
            except self.faults as error:
                raise self._fault(error) from None

    # -- writing -----------------------------------------------------------------------------------------------------

    @cached_property
    def identity(self) -> str:
        return str(json.loads(self._read("SELECT body FROM entry WHERE seq = 1")[0][0])["ledger"])

    @contextmanager
    def _transaction(self, name: str, *, anchored: bool = True) -> Iterator[None]:
        """One durable change, then the anchor, unless what the change allows moves it later."""
        with self._using(), self._turn():
            self._tail = None
            with self._changing(name):
                yield
            last: Entry | Link | None = self._tail
            self._tail = None
            if anchored and name != "migrate":
                last = last or self._last()
                if last is not None:
                    self._step(f"{name}:anchor")
                    self.anchor.advance(partial(self._mark, last))

    def _commit(self, name: str, make: Callable[[], T], *, anchored: bool = True) -> T:
        """Make a change in a transaction that it shares with all changes that wait meanwhile; durable on return.

        Each change is made whole or not at all: it is refused before it writes anything, and the others go on. If the
        transaction fails, none of them was made.
        """
        mine = QueuedChange(name, make, anchored)
        try:
            self._queue.join(mine)
            mine.wait()
            if not mine.done:
                with self._lock, self._turn():  # whatever joins the queue until both are ours is made with mine
                    self._make_all(self._queue.take(), mine)
        finally:
            self._queue.leave(mine)
        return mine.outcome()

    def _make_all(self, group: list[QueuedChange[Any]], leader: QueuedChange[Any]) -> None:
        """Make the changes of a group in one transaction, and tell the threads that wait for them."""
        try:
            name = group[0].name if len(group) == 1 else "group"
            with self._transaction(name, anchored=any(each.anchored for each in group)):
                if len(group) == 1:
                    group[0].make()
                else:
                    for each in group:
                        each.make_among(lambda: self._written)
        except BaseException as error:
            for each in group:
                each.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            for each in group:
                each.done = True
                if each is not leader:
                    each.wake()

    def _mark(self, last: Entry | Link, before: Mark) -> Mark:
        """The mark of an entry, given what the anchor says, which this ledger must hold."""
        self._check_holds(before)
        since = -1 if before.plan is None else before.seq
        budgets = "SELECT seq, kind, body FROM entry WHERE seq > ? AND seq <= ? AND kind IN ('plan', 'restore')"
        found = self._execute(budgets, (since, last.seq)).fetchall()
        plans = [seq for seq, kind, written in found if changes_plans(kind, json.loads(written))]
        return Mark(self.identity, last.seq, last.hash, max(plans, default=before.plan or 0))

    def _check_holds(self, mark: Mark) -> None:
        """This ledger holds what its anchor remembers: nobody restored another one meanwhile."""
        same = self._execute("SELECT hash FROM entry WHERE seq = ?", (mark.seq,)).fetchone()
        if mark.ledger == self.identity and same is not None and same[0] == mark.hash:
            return
        held = self._entry("WHERE seq >= ? ORDER BY seq LIMIT 1", (mark.seq,))
        last = self._last()
        check_held(mark, self.identity, held, last.seq if last else 0)

    def _change(self, name: str, sql: str, values: tuple[object, ...] = ()) -> int:
        """Run one statement that changes something; the number of rows it changed."""
        self._step(name)
        self._written += 1
        return int(self._execute(sql, values).rowcount)

    def _append(self, kind: str, body: Mapping[str, Any]) -> Entry:
        return self._put(self._next(kind, body))

    def _next(self, kind: str, body: Mapping[str, Any]) -> Entry:
        """The entry that would come next."""
        return sealed(self._tail or self._last(), self._clock(), kind, body)

    def _put(self, entry: Entry) -> Entry:
        """Write the entry that comes next."""
        row = (entry.seq, entry.time, entry.kind, canonical(entry.body), entry.previous, entry.hash)
        self._change(f"{entry.kind}:entry", "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        self._tail = entry
        return entry

    def _last(self) -> Link | None:
        row = self._execute("SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
        return None if row is None else Link(*row)

    def _entry(self, which: str, values: tuple[object, ...] = ()) -> Entry | None:
        row = self._execute(f"{ENTRY} FROM entry {which}", values).fetchone()
        return None if row is None else entry_of(row)

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> Rows:
        with self._using():
            return list(self._execute(sql, values).fetchall())

    def entries(self) -> Iterator[Entry]:
        yield from walked(iter(self._read(f"{ENTRY} FROM entry ORDER BY seq")))

    # -- checking ----------------------------------------------------------------------------------------------------

    def verify(self) -> int:
        """Walk the chain, check every table against it, and the chain against its anchor; the number of entries."""
        with self._using():
            with self._moment():
                mark = self.anchor.found()  # before the entries: they can only be ahead of what is read here
                entries = self._checked()
            check_anchor(entries, mark)
            self._step("verify:anchor")
            self.anchor.advance(partial(self._mark, entries[-1]))
        return len(entries)


_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_forking: list[Store] = []


def _before_fork() -> None:
    for store in sorted(_stores, key=id):
        store.close_before_fork()
        _forking.append(store)


def _after_fork() -> None:
    while _forking:
        _forking.pop().resume_after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
