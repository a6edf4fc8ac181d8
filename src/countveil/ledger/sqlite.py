"""The ledger in one SQLite file: WAL, synchronous=FULL, one immediate transaction for every change.

Order of durability: the transaction is on disk, then the anchor, then the caller goes on. A process that dies anywhere
leaves either no trace or a charge; a charge without an answer can be completed later, and only once.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from countveil.errors import BudgetError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark, settle_folder
from countveil.ledger.checking import check_anchor, check_file, check_held, copied
from countveil.ledger.connection import FAULTS, LATEST, connect, fault, file_of, migration
from countveil.ledger.forking import around_forks
from countveil.ledger.records import Charge, Entry, PlanRecord, Standing, body_of, canonical, charge_id, sealed, walked

_CHARGE = "id, pool, dataset, version, question, text, analyst, charge.time"
_BUDGETS = "SELECT kind, body FROM entry WHERE kind IN ('plan', 'extend', 'restore') ORDER BY seq"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class SqliteLedger:
    """A ledger file and its anchor. `clock` tells the time; `step` is called before every statement that changes it."""

    def __init__(
        self,
        path: Path,
        anchor: Path,
        *,
        create: bool = True,
        clock: Callable[[], str] = now,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.path, self.anchor, self._clock, self._step = path, Anchor(anchor), clock, step
        self._lock, self._closed = threading.RLock(), False
        self._connection: sqlite3.Connection | None = None
        new = not path.exists()  # asked before the anchor, which comes first where several processes begin at once
        mark = self.anchor.read()
        if new:
            mark = self._begun(mark, create)
        try:
            self._connect(create=new)
            around_forks(self)
            self._migrate(mark)
            self.verify()
        except BaseException as error:
            self.close()
            if isinstance(error, FAULTS):
                raise fault(error) from None
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

    def _connect(self, create: bool = False) -> sqlite3.Connection:
        self._connection, self._process = connect(self.path, create=create), os.getpid()
        self._file = file_of(self.path)
        return self._connection

    @property
    def _db(self) -> sqlite3.Connection:
        """The connection of this process. SQLite's do not survive a fork, so both sides open their own after one."""
        if self._closed:
            raise LedgerError("the ledger is closed")
        if self._connection is None:
            return self._connect()
        if self._process != os.getpid():
            raise LedgerError("the process was forked in the middle of a change of the ledger; open the ledger again")
        return self._connection

    def _migrate(self, mark: Mark | None) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == LATEST and self._db.execute("SELECT 1 FROM entry LIMIT 1").fetchone():
            return  # nothing is written, nor the anchor moved, before the ledger is verified
        with self._transaction("migrate") as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > LATEST:
                raise LedgerError(f"the ledger has format {version}, this countveil knows {LATEST}; update countveil")
            for number in range(version + 1, LATEST + 1):
                for statement in migration(number):
                    self._change("migrate", statement)
                self._change("migrate", f"PRAGMA user_version = {number}")
            if self._last() is None:
                if mark is None or mark.seq > 0:
                    raise LedgerError("the ledger is empty, but it is not new; restore a backup")
                self._append("open", {"ledger": mark.ledger})

    @cached_property
    def identity(self) -> str:
        return str(json.loads(self._read("SELECT body FROM entry WHERE seq = 1")[0][0])["ledger"])

    # -- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, name: str) -> Iterator[sqlite3.Connection]:
        """One immediate transaction, then the anchor; on any fault nothing has happened, as far as can be known."""
        with self._lock:
            try:
                db = self._db
                self._change(f"{name}:begin", "BEGIN IMMEDIATE")
                try:
                    self._check_place(db, name)
                    yield db
                    self._change(f"{name}:commit", "COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
                last = self._last()
                if name != "migrate" and last is not None:
                    self._step(f"{name}:anchor")
                    self.anchor.advance(Mark(self.identity, last.seq, last.hash), self._check_holds)
            except FAULTS as error:
                raise fault(error) from None

    def _check_place(self, db: sqlite3.Connection, name: str) -> None:
        """The file is still the one that has the ledger's name, and nobody moved it to another format."""
        if file_of(self.path) != self._file:
            raise LedgerError("the ledger was removed or replaced while it was open; nothing was answered; start again")
        if name != "migrate" and db.execute("PRAGMA user_version").fetchone()[0] != LATEST:
            raise LedgerError("another version of countveil changed the ledger's format; nothing was answered; update")

    def _check_holds(self, mark: Mark) -> None:
        """This ledger holds what its anchor remembers: nobody restored another one meanwhile."""
        held = self._entry("WHERE seq >= ? ORDER BY seq LIMIT 1", (mark.seq,))
        last = self._last()
        check_held(mark, self.identity, held, last.seq if last else 0)

    def _change(self, name: str, sql: str, values: tuple[object, ...] = ()) -> int:
        """Run one statement that changes something; the number of rows it changed."""
        self._step(name)
        return self._db.execute(sql, values).rowcount

    def _append(self, kind: str, body: Mapping[str, Any], seq: int | None = None) -> Entry:
        entry = sealed(self._last(), self._clock(), kind, body, seq)
        row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
        self._change(f"{kind}:entry", "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        return entry

    def _last(self) -> Entry | None:
        return self._entry("ORDER BY seq DESC LIMIT 1")

    def _entry(self, which: str, values: tuple[object, ...] = ()) -> Entry | None:
        row = self._db.execute(f"SELECT * FROM entry {which}", values).fetchone()
        return None if row is None else Entry(row[0], row[1], row[2], body_of(row[0], row[3]), row[4], row[5])

    def open_plan(self, plan: PlanRecord) -> None:
        body = {name: value for name, value in asdict(plan).items() if name not in ("document", "more")}
        body["document"] = hashlib.sha256(plan.document.encode()).hexdigest()
        with self._transaction("plan") as db:
            if db.execute("SELECT 1 FROM pool WHERE name = ?", (plan.pool,)).fetchone():
                return  # another process was first; what it planned is what counts
            said = db.execute(_BUDGETS).fetchall()
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
            self._append("extend", {"pool": pool, "answers": answers, "epsilon": epsilon, "reason": reason})
            more = "UPDATE pool SET answers = answers + ? WHERE name = ?"
            if self._change("extend:row", more, (answers, pool)) != 1:
                raise RequestError(f"there is no plan for pool {pool}; ask a first question")

    def set_share(self, pool: str, analyst: str, answers: int) -> None:
        known = "SELECT 1 FROM share WHERE pool = ? AND analyst = ? AND answers = ?"
        if self._read(known, (pool, analyst, answers)):
            return
        with self._transaction("share") as db:
            if db.execute(known, (pool, analyst, answers)).fetchone():
                return
            if not db.execute("SELECT 1 FROM pool WHERE name = ?", (pool,)).fetchone():
                raise RequestError(f"there is no plan for pool {pool}; ask a first question")
            self._append("share", {"pool": pool, "analyst": analyst, "answers": answers})
            self._change(
                "share:row",
                "INSERT INTO share VALUES (?, ?, ?, 0) "
                "ON CONFLICT (pool, analyst) DO UPDATE SET answers = excluded.answers",
                (pool, analyst, answers),
            )

    def version(self, dataset: str, fingerprint: str) -> int:
        known = "SELECT number FROM version WHERE dataset = ? AND fingerprint = ?"
        row = self._read(known, (dataset, fingerprint))
        if row:
            return int(row[0][0])
        with self._transaction("version") as db:
            row = db.execute(known, (dataset, fingerprint)).fetchall()
            if row:
                return int(row[0][0])
            last = db.execute("SELECT max(number) FROM version WHERE dataset = ?", (dataset,)).fetchone()[0]
            number = (last or 0) + 1
            self._append("version", {"dataset": dataset, "number": number, "fingerprint": fingerprint})
            self._change("version:row", "INSERT INTO version VALUES (?, ?, ?)", (dataset, number, fingerprint))
            return number

    def charge(self, pool: str, dataset: str, version: int, question: str, text: str, analyst: str) -> Charge:
        with self._transaction("charge") as db:
            found = self._find(pool, dataset, version, question)
            if found is not None:
                return found
            body = {"pool": pool, "dataset": dataset, "version": version, "question": question}
            body |= {"text": text, "analyst": analyst}
            entry = self._append("charge", body)
            spend = "UPDATE pool SET spent = spent + 1 WHERE name = ? AND spent < answers"
            if self._change("charge:spend", spend, (pool,)) != 1:
                raise BudgetError(pool, self.standing(pool).answers)
            self._spend_share(db, pool, analyst)
            row = (charge_id(entry), pool, dataset, version, question, text, analyst, entry.time, 0)
            self._change("charge:row", "INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return replace(_charge(row), fresh=True)

    def _spend_share(self, db: sqlite3.Connection, pool: str, analyst: str) -> None:
        """Where shares are set, an analyst without one has none."""
        if not db.execute("SELECT 1 FROM share WHERE pool = ?", (pool,)).fetchone():
            return
        spend = "UPDATE share SET spent = spent + 1 WHERE pool = ? AND analyst = ? AND spent < answers"
        if self._change("charge:share", spend, (pool, analyst)) != 1:
            row = db.execute("SELECT answers FROM share WHERE pool = ? AND analyst = ?", (pool, analyst)).fetchone()
            raise BudgetError(pool, row[0] if row else 0, analyst)

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

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except FAULTS as error:
                raise fault(error) from None

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
        said = self._read(_BUDGETS)
        plan, *more = [body for _, written in said if (body := json.loads(written)).get("pool") == pool]
        return PlanRecord(**{**plan, "document": rows[0][0]}, more=tuple((e["answers"], e["epsilon"]) for e in more))

    def standing(self, pool: str, analyst: str | None = None) -> Standing:
        if analyst is None:
            rows = self._read("SELECT answers, spent FROM pool WHERE name = ?", (pool,))
        else:
            rows = self._read("SELECT answers, spent FROM share WHERE pool = ? AND analyst = ?", (pool, analyst))
        return Standing(*rows[0]) if rows else Standing(0, 0)

    def shares(self, pool: str) -> dict[str, Standing]:
        rows = self._read("SELECT analyst, answers, spent FROM share WHERE pool = ? ORDER BY analyst", (pool,))
        return {analyst: Standing(answers, spent) for analyst, answers, spent in rows}

    def charges(self, pool: str | None = None, analyst: str | None = None) -> Iterator[Charge]:
        rows = self._read(
            f"SELECT {_CHARGE}, answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id "
            "WHERE (?1 IS NULL OR pool = ?1) AND (?2 IS NULL OR analyst = ?2) ORDER BY charge.rowid",
            (pool, analyst),
        )
        for row in rows:
            yield replace(_charge(row), answered=row[8])

    def entries(self) -> Iterator[Entry]:
        yield from walked(iter(self._read("SELECT * FROM entry ORDER BY seq")))

    # -- checking ----------------------------------------------------------------------------------------------------

    def verify(self) -> int:
        """Walk the chain, check every table against it, and the chain against its anchor; the number of entries."""
        with self._lock:
            try:
                db = self._db
                db.execute("BEGIN")  # one moment of the ledger, whatever others write meanwhile
                try:
                    mark = self.anchor.found()  # before the entries: they can only be ahead of what is read here
                    entries = check_file(db)
                finally:
                    db.execute("ROLLBACK")
                check_anchor(entries, mark)
                self._step("verify:anchor")
                last = Mark(str(entries[0].body["ledger"]), entries[-1].seq, entries[-1].hash)
                self.anchor.advance(last, self._check_holds)
            except FAULTS as error:
                raise fault(error) from None
        return len(entries)

    def backup(self, target: Path) -> int:
        """A complete copy of this moment, in a new file of its own, checked; the number of entries in it."""
        if target.exists():
            raise RequestError(f"{target} exists; a backup is a new file")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with self._lock:
                entries = copied(self._db, part)
            os.replace(part, target)
            settle_folder(target.parent)
        except (*FAULTS, OSError):
            raise RequestError(f"{target} cannot be written; give a path with room for a copy") from None
        finally:
            part.unlink(missing_ok=True)
        return len(entries)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def part(self) -> None:
        """Before a fork: wait until no thread uses the connection, then close it."""
        self._lock.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self._connection.close()
            self._connection = None

    def rejoin(self) -> None:
        """After a fork, on both sides."""
        self._lock.release()


def _charge(row: tuple[Any, ...]) -> Charge:
    id, pool, dataset, version, question, text, analyst, time = row[:8]
    return Charge(id, pool, dataset, version, question, text, analyst, time)
