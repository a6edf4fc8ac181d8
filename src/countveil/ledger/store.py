"""The storage of a ledger: one connection, durable changes, the hash chain and its anchor; the same for every database.

A subclass provides a connection (`_open`), a durable change that no other change overlaps (`_changing`), a snapshot to
read from (`_moment`), statements with ? for values (`_execute`), and its error messages (`_fault`). The SQL here runs
on all databases.

Order of durability: first the change is on disk, then the anchor moves, then the caller goes on. A charge alone does
not move the anchor: it is on disk before the data is read, and the entry of its answer, which comes later, moves the
anchor past both before the answer is sent. A process that dies at any point leaves either no trace or a charge. A
charge without an answer can be completed later, and only once.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from countveil.errors import ConfigError, LedgerError, shorten
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.group_commit import CommitQueue, QueuedChange
from countveil.ledger.records import Entry, Link, body_of, canonical, changes_plans, seal, walk_chain
from countveil.ledger.verification import check_anchor, check_held

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
ENTRY = "SELECT seq, time, kind, body, previous, hash"


def entry_of(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], row[1], row[2], body_of(row[0], row[3]), row[4], row[5])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Earlier:
    """The ledgers that were used beside the same configuration. A new one in their place gives their budgets back, so
    it is begun only if a curator says so: `told`."""

    places: tuple[str, ...] = ()
    told: bool = False


NONE_EARLIER = Earlier()


class Store(ABC):
    """The entries of a ledger, and its anchor. `clock` returns the time; `step` is called before every writing
    statement."""

    order: str
    """The column of table `charge` by which charges are sorted into the order in which they were made."""
    faults: tuple[type[Exception], ...]
    """The classes of exceptions that the database raises."""
    _earlier = NONE_EARLIER

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        self.anchor, self._clock, self._step = anchor, clock, step
        self._lock, self._closed = threading.RLock(), False
        self._connection: Any = None
        self.begun: str | None = None
        """The name of the ledger if this process has just created it, else None."""
        self._process = self._forking = os.getpid()
        self._queue = CommitQueue()
        self._tail: Entry | None = None
        """The last entry that the current transaction has written; None if it has written none."""
        self._written = 0
        """How many writing statements were started so far, including failed ones."""

    # -- what a subclass provides ------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> Any:
        """Open a connection whose commits are on disk when they return."""

    @abstractmethod
    def _changing(self, name: str) -> AbstractContextManager[None]:
        """A durable transaction that no other change overlaps. An error rolls it back.

        If the outcome of the commit is unknown, it counts as failed.
        """

    @abstractmethod
    def _moment(self) -> AbstractContextManager[None]:
        """A read transaction, in which all reads see one consistent snapshot of the ledger."""

    @abstractmethod
    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        """Run a statement and return its cursor."""

    @abstractmethod
    def _in_change(self) -> bool:
        """Whether a transaction is open, which would be lost if the connection were closed."""

    @abstractmethod
    def _read_checked(self) -> list[Entry]:
        """Check the hash chain and every table, and return the entries; a fault is raised as a LedgerError."""

    @abstractmethod
    def _fault(self, error: Exception) -> LedgerError:
        """The LedgerError to raise for an error of the database. Its message never quotes content of the ledger."""

    @abstractmethod
    def backup(self, target: Path) -> int:
        """Copy a consistent snapshot of the ledger into a new file, check the copy and return its number of entries."""

    def _turn(self) -> AbstractContextManager[None]:
        """A lock that keeps other processes from changing the ledger, for databases that need it before a transaction
        begins."""
        return nullcontext()

    def _check_beginning(self, create: bool, where: str) -> None:
        """Refuse to begin a ledger if none is to be made, or if another was used before and nobody says otherwise."""
        if not create:
            raise LedgerError(f"there is no ledger {where}")
        if self._earlier.places and not self._earlier.told:
            before = shorten(", ".join(self._earlier.places), 200)
            raise ConfigError(
                "ledger.path",
                f"there is no ledger {where}, and this configuration used {before} before: a new ledger would give the "
                "budget back; restore path and anchor under [ledger] or a backup (countveil ledger restore), or, for "
                "other people, begin a new one on the record with --new-ledger (Python: new_ledger=True)",
            )

    # -- the connection ----------------------------------------------------------------------------------------------

    @property
    def _db(self) -> Any:
        """The connection of this process. After a fork, parent and child each open a new one."""
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
        """Register this ledger, so that its connection is closed before every fork of this process."""
        _stores.add(self)

    def close_before_fork(self) -> None:
        """Wait until no thread uses the connection, then close it: a connection and its locks belong to one process."""
        self._lock.acquire()
        self._forking = os.getpid()
        if self._connection is not None and self._process == os.getpid() and not self._in_change():
            self._connection.close()
            self._connection = None

    def resume_after_fork(self) -> None:
        """Allow use again; called after a fork, in the parent and in the child.

        The child also drops the changes that threads of the parent have queued.
        """
        if self._forking != os.getpid():
            self._queue.forget()
        self._lock.release()

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Hold the thread lock within this block, and turn exceptions of the database into a LedgerError."""
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
        """One durable change, after which the anchor moves. With `anchored=False` a later change moves the anchor."""
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
        """Make a change in one transaction together with the other queued changes. It is on disk on return.

        A change is made completely or not at all. If it is refused before it writes anything, the others are still
        made. If the transaction fails, no change is made.
        """
        mine = QueuedChange(name, make, anchored)
        try:
            self._queue.join(mine)
            mine.wait()
            if not mine.done:
                with (
                    self._lock,
                    self._turn(),
                ):  # changes that are queued before both locks are acquired join this transaction
                    self._make_all(self._queue.take(), mine)
        finally:
            self._queue.leave(mine)
        return mine.outcome()

    def _make_all(self, group: list[QueuedChange[Any]], leader: QueuedChange[Any]) -> None:
        """Make the changes of a group in one transaction, and wake the threads that wait for them."""
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
        """The mark with which the anchor would record the entry `last`.

        `before` is the anchor's current mark; the ledger must contain its entry too.
        """
        self._check_holds(before)
        since = -1 if before.plan is None else before.seq
        budgets = "SELECT seq, kind, body FROM entry WHERE seq > ? AND seq <= ? AND kind IN ('plan', 'restore')"
        rows = self._execute(budgets, (since, last.seq)).fetchall()
        plans = [seq for seq, kind, written in rows if changes_plans(kind, json.loads(written))]
        return Mark(self.identity, last.seq, last.hash, max(plans, default=before.plan or 0))

    def _check_holds(self, mark: Mark) -> None:
        """Check that the ledger contains the entry of its anchor's mark: if not, another ledger was restored since."""
        same = self._execute("SELECT hash FROM entry WHERE seq = ?", (mark.seq,)).fetchone()
        if mark.ledger == self.identity and same is not None and same[0] == mark.hash:
            return
        held = self._entry("WHERE seq >= ? ORDER BY seq LIMIT 1", (mark.seq,))
        last = self._last()
        check_held(mark, self.identity, held, last.seq if last else 0)

    def _change(self, name: str, sql: str, values: tuple[object, ...] = ()) -> int:
        """Run a statement that changes something; return the number of changed rows."""
        self._step(name)
        self._written += 1
        return int(self._execute(sql, values).rowcount)

    def _append(self, kind: str, body: Mapping[str, Any]) -> Entry:
        return self._put(self._next(kind, body))

    def _next(self, kind: str, body: Mapping[str, Any]) -> Entry:
        """Make the entry that comes next, without writing it."""
        return seal(self._tail or self._last(), self._clock(), kind, body)

    def _put(self, entry: Entry) -> Entry:
        """Write an entry that `_next` has made."""
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
        yield from walk_chain(iter(self._read(f"{ENTRY} FROM entry ORDER BY seq")))

    # -- checking ----------------------------------------------------------------------------------------------------

    def verify(self) -> int:
        """Check the hash chain, every table against it, and the anchor; return the number of entries."""
        with self._using():
            with self._moment():
                mark = self.anchor.require()  # read before the entries, so that these can only be ahead of it
                entries = self._read_checked()
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
