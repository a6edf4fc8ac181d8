"""The rules of a ledger, once: what a plan, a charge and an answer are, whatever database keeps them.

A database brings five things: a connection (`_open`), a durable change that runs alone (`_changing`), one moment to
read (`_moment`), statements with ? for values (`_execute`), and words for its faults (`_fault`). The SQL here is what
all of them understand.

Order of durability: the change is on disk, then the anchor, then the caller goes on. A process that dies anywhere
leaves either no trace or a charge; a charge without an answer can be completed later, and only once.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from countveil.errors import BudgetError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.checking import check_anchor, check_held
from countveil.ledger.records import (
    Charge,
    Entry,
    PlanRecord,
    Standing,
    body_of,
    canonical,
    charge_id,
    replayed,
    sealed,
    walked,
)

Rows = list[tuple[Any, ...]]
BUDGETS = "SELECT kind, body FROM entry WHERE kind IN ('plan', 'extend', 'restore') ORDER BY seq"
_ENTRY = "SELECT seq, time, kind, body, previous, hash FROM entry"
_CHARGE = "id, pool, dataset, version, question, text, analyst, charge.time"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Book(ABC):
    """A ledger and its anchor. `clock` tells the time; `step` is called before every statement that changes it."""

    order: str
    """The column that tells the order in which charges were made."""
    faults: tuple[type[Exception], ...]
    """What the database raises."""

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        self.anchor, self._clock, self._step = anchor, clock, step
        self._lock, self._closed = threading.RLock(), False
        self._connection: Any = None
        self._process = os.getpid()
        self._bound: set[tuple[str, str, str, str]] = set()

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

    def part(self) -> None:
        """Before a fork: wait until no thread uses the connection, then close it."""
        self._lock.acquire()
        if self._connection is not None and self._process == os.getpid() and not self._in_change():
            self._connection.close()
            self._connection = None

    def rejoin(self) -> None:
        """After a fork, on both sides."""
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
    def _transaction(self, name: str) -> Iterator[None]:
        """One durable change, then the anchor."""
        with self._using():
            with self._changing(name):
                yield
            last = self._last()
            if name != "migrate" and last is not None:
                self._step(f"{name}:anchor")
                self.anchor.advance(Mark(self.identity, last.seq, last.hash), self._check_holds)

    def _check_holds(self, mark: Mark) -> None:
        """This ledger holds what its anchor remembers: nobody restored another one meanwhile."""
        held = self._entry("WHERE seq >= ? ORDER BY seq LIMIT 1", (mark.seq,))
        last = self._last()
        check_held(mark, self.identity, held, last.seq if last else 0)

    def _change(self, name: str, sql: str, values: tuple[object, ...] = ()) -> int:
        """Run one statement that changes something; the number of rows it changed."""
        self._step(name)
        return int(self._execute(sql, values).rowcount)

    def _append(self, kind: str, body: Mapping[str, Any]) -> Entry:
        entry = sealed(self._last(), self._clock(), kind, body)
        row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
        self._change(f"{kind}:entry", "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        return entry

    def _last(self) -> Entry | None:
        return self._entry("ORDER BY seq DESC LIMIT 1")

    def _entry(self, which: str, values: tuple[object, ...] = ()) -> Entry | None:
        row = self._execute(f"{_ENTRY} {which}", values).fetchone()
        return None if row is None else Entry(row[0], row[1], row[2], body_of(row[0], row[3]), row[4], row[5])

    def open_plan(self, plan: PlanRecord) -> None:
        body = {name: value for name, value in asdict(plan).items() if name not in ("document", "more")}
        body["document"] = hashlib.sha256(plan.document.encode()).hexdigest()
        with self._transaction("plan"):
            if self._read("SELECT 1 FROM pool WHERE name = ?", (plan.pool,)):
                return  # another process was first; what it planned is what counts
            said = self._read(BUDGETS)
            lost = sum(json.loads(written)["lost"] for kind, written in said if kind == "restore")
            self._append("plan", body)
            # what was lost may have been charges of this very pool
            row = (plan.pool, plan.answers, min(plan.answers, lost))
            self._change("plan:pool", "INSERT INTO pool VALUES (?, ?, ?)", row)
            self._change("plan:row", "INSERT INTO plan VALUES (?, ?)", (plan.pool, plan.document))

    def extend(self, pool: str, answers: int, epsilon: str, reason: str, *, since: int | None = None) -> None:
        if answers < 1:
            raise RequestError(f"{answers} more answers is nothing to open; answers are never taken back")
        with self._transaction("extend"):
            planned = self.standing(pool).answers
            if since is not None and planned != since:
                raise RequestError(f"pool {pool} was opened to {planned} answers meanwhile; look, and ask again")
            owed = min(self.debt(pool), answers)  # a pool with a debt has nothing left
            self._append("extend", {"pool": pool, "answers": answers, "epsilon": epsilon, "reason": reason})
            more = "UPDATE pool SET answers = answers + ?, spent = spent + ? WHERE name = ?"
            if self._change("extend:row", more, (answers, owed, pool)) != 1:
                raise RequestError(f"there is no plan for pool {pool}; ask a first question")

    def debt(self, pool: str) -> int:
        """Answers that lost history may have given beyond all that the pool had; what is opened later pays them."""
        if not any(kind == "restore" for kind, _ in self._read(BUDGETS)):
            return 0
        return replayed(self.entries()).debts.get(pool, 0)

    def bind(self, dataset: str, pool: str, unit: str, fingerprint: str) -> None:
        """Put on record which pool pays for a dataset and who a person is in it; neither ever changes silently."""
        if (dataset, pool, unit, fingerprint) in self._bound:
            return
        with self._transaction("dataset"):
            said = (json.loads(body) for (body,) in self._read("SELECT body FROM entry WHERE kind = 'dataset'"))
            known = {body["dataset"]: (body["pool"], body["unit"]) for body in said}
            if known.get(dataset, (pool, unit)) != (pool, unit):
                before = known[dataset]
                raise RequestError(
                    f"dataset {dataset} was asked before with pool {before[0]} and unit {before[1]}; put these back"
                )
            for (other,) in self._read("SELECT dataset FROM version WHERE fingerprint = ?", (fingerprint,)):
                if known.get(other, (pool, ""))[0] != pool:
                    raise RequestError(
                        f"the data of {dataset} is that of {other}, which pool {known[other][0]} pays for; "
                        "datasets about the same people share one pool"
                    )
            if dataset not in known:
                self._append("dataset", {"dataset": dataset, "pool": pool, "unit": unit})
        self._bound.add((dataset, pool, unit, fingerprint))

    def set_share(self, pool: str, analyst: str, answers: int) -> None:
        known = "SELECT 1 FROM share WHERE pool = ? AND analyst = ? AND answers = ?"
        if self._read(known, (pool, analyst, answers)):
            return
        with self._transaction("share"):
            if self._read(known, (pool, analyst, answers)):
                return
            if not self._read("SELECT 1 FROM pool WHERE name = ?", (pool,)):
                raise RequestError(f"there is no plan for pool {pool}; ask a first question")
            self._append("share", {"pool": pool, "analyst": analyst, "answers": answers})
            self._change(
                "share:row",
                "INSERT INTO share VALUES (?, ?, ?, 0) "
                "ON CONFLICT (pool, analyst) DO UPDATE SET answers = excluded.answers",
                (pool, analyst, answers),
            )

    def version(self, dataset: str, fingerprint: str) -> int:
        known = self.known_version(dataset, fingerprint)
        if known is not None:
            return known
        with self._transaction("version"):
            known = self.known_version(dataset, fingerprint)
            if known is not None:
                return known
            last = self._read("SELECT max(number) FROM version WHERE dataset = ?", (dataset,))
            number = (last[0][0] or 0) + 1
            self._append("version", {"dataset": dataset, "number": number, "fingerprint": fingerprint})
            self._change("version:row", "INSERT INTO version VALUES (?, ?, ?)", (dataset, number, fingerprint))
            return number

    def known_version(self, dataset: str, fingerprint: str) -> int | None:
        """The number of a dataset's content, if it was asked about."""
        rows = self._read("SELECT number FROM version WHERE dataset = ? AND fingerprint = ?", (dataset, fingerprint))
        return int(rows[0][0]) if rows else None

    def charge(self, pool: str, dataset: str, version: int, question: str, text: str, analyst: str) -> Charge:
        with self._transaction("charge"):
            found = self._find(pool, dataset, version, question)
            if found is not None:
                return found
            body = {"pool": pool, "dataset": dataset, "version": version, "question": question}
            body |= {"text": text, "analyst": analyst}
            entry = self._append("charge", body)
            spend = "UPDATE pool SET spent = spent + 1 WHERE name = ? AND spent < answers"
            if self._change("charge:spend", spend, (pool,)) != 1:
                raise BudgetError(pool, self.standing(pool).answers)
            self._spend_share(pool, analyst)
            row = (charge_id(entry), pool, dataset, version, question, text, analyst, entry.time, 0)
            self._change("charge:row", "INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return replace(_charge(row), fresh=True)

    def _spend_share(self, pool: str, analyst: str) -> None:
        """Where shares are set, an analyst without one has none."""
        if not self._read("SELECT 1 FROM share WHERE pool = ? AND answers > 0 LIMIT 1", (pool,)):
            return
        spend = "UPDATE share SET spent = spent + 1 WHERE pool = ? AND analyst = ? AND spent < answers"
        if self._change("charge:share", spend, (pool, analyst)) != 1:
            raise BudgetError(pool, self.standing(pool, analyst).answers, analyst)

    def record(self, charge: Charge, payload: bytes) -> Charge:
        with self._transaction("answer"):
            found = self._find(charge.pool, charge.dataset, charge.version, charge.question)
            if found is None or found.id != charge.id:
                raise LedgerError("the charge of this answer is gone from the ledger; nothing was answered")
            if found.payload is not None:
                return found  # another worker was first, and its answer is the answer
            entry = self._append("answer", {"charge": charge.id, "sha256": hashlib.sha256(payload).hexdigest()})
            self._change("answer:row", "INSERT INTO answer VALUES (?, ?, ?)", (charge.id, entry.time, payload))
        return replace(charge, payload=payload, answered=entry.time)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> Rows:
        with self._using():
            return list(self._execute(sql, values).fetchall())

    def find(self, pool: str, dataset: str, version: int, question: str) -> Charge | None:
        return self._find(pool, dataset, version, question)

    def _find(self, pool: str, dataset: str, version: int, question: str) -> Charge | None:
        rows = self._read(
            f"SELECT {_CHARGE}, payload, answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id "
            "WHERE pool = ? AND dataset = ? AND version = ? AND question = ? AND void = 0",
            (pool, dataset, version, question),
        )
        return replace(_charge(rows[0]), payload=rows[0][8], answered=rows[0][9]) if rows else None

    def plan(self, pool: str) -> PlanRecord | None:
        rows = self._read("SELECT document FROM plan WHERE pool = ?", (pool,))
        if not rows:
            return None
        said = self._read(BUDGETS)
        plan, *more = [body for _, written in said if (body := json.loads(written)).get("pool") == pool]
        return PlanRecord(**{**plan, "document": rows[0][0]}, more=tuple((e["answers"], e["epsilon"]) for e in more))

    def standing(self, pool: str, analyst: str | None = None) -> Standing:
        if analyst is None:
            rows = self._read("SELECT answers, spent FROM pool WHERE name = ?", (pool,))
        else:
            rows = self._read("SELECT answers, spent FROM share WHERE pool = ? AND analyst = ?", (pool, analyst))
        return Standing(*rows[0]) if rows else Standing(0, 0)

    def shares(self, pool: str) -> dict[str, Standing]:
        """The shares that are set; one that was taken back is not among them."""
        rows = self._read(
            "SELECT analyst, answers, spent FROM share WHERE pool = ? AND answers > 0 ORDER BY analyst", (pool,)
        )
        return {analyst: Standing(answers, spent) for analyst, answers, spent in rows}

    def charges(self, pool: str | None = None, analyst: str | None = None) -> Iterator[Charge]:
        rows = self._read(
            f"SELECT {_CHARGE}, answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id "
            "WHERE (CAST(? AS TEXT) IS NULL OR pool = ?) AND (CAST(? AS TEXT) IS NULL OR analyst = ?) "
            f"ORDER BY charge.{self.order}",
            (pool, pool, analyst, analyst),
        )
        for row in rows:
            yield replace(_charge(row), answered=row[8])

    def entries(self) -> Iterator[Entry]:
        yield from walked(iter(self._read(f"{_ENTRY} ORDER BY seq")))

    # -- checking ----------------------------------------------------------------------------------------------------

    def verify(self) -> int:
        """Walk the chain, check every table against it, and the chain against its anchor; the number of entries."""
        with self._using():
            with self._moment():
                mark = self.anchor.found()  # before the entries: they can only be ahead of what is read here
                entries = self._checked()
            check_anchor(entries, mark)
            self._step("verify:anchor")
            last = Mark(str(entries[0].body["ledger"]), entries[-1].seq, entries[-1].hash)
            self.anchor.advance(last, self._check_holds)
        return len(entries)


def _charge(row: tuple[Any, ...]) -> Charge:
    id, pool, dataset, version, question, text, analyst, time = row[:8]
    return Charge(id, pool, dataset, version, question, text, analyst, time)
