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
from importlib.resources import files
from pathlib import Path
from typing import Any

from countveil.errors import BudgetError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor, Mark
from countveil.ledger.checking import check_anchor, check_file
from countveil.ledger.records import Charge, Entry, PlanRecord, Standing, canonical, charge_id, sealed, walked

WAIT = 60.0
"""Seconds to wait for other processes that are writing."""
LATEST = 1
_CHARGE = "id, pool, dataset, version, question, text, analyst, charge.time"


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
        self._lock = threading.RLock()
        mark = self.anchor.read()
        if not path.exists():
            mark = self._check_new(mark, create)
        try:
            self._connection, self._process = connect(path), os.getpid()
            self._migrate(mark)
        except sqlite3.DatabaseError as error:
            raise fault(error) from None
        self.verify()

    @property
    def _db(self) -> sqlite3.Connection:
        """The connection of this process: SQLite's do not survive a fork."""
        if self._process != os.getpid():
            self._connection, self._process, self._lock = connect(self.path), os.getpid(), threading.RLock()
        return self._connection

    # -- opening -----------------------------------------------------------------------------------------------------

    def _check_new(self, mark: Mark | None, create: bool) -> Mark:
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
        fresh = mark or Mark(uuid.uuid4().hex, 0, "")
        self.anchor.advance(fresh)
        return fresh

    def _migrate(self, mark: Mark | None) -> None:
        with self._transaction("migrate") as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > LATEST:
                raise LedgerError(f"the ledger has format {version}, this countveil knows {LATEST}; update countveil")
            for number in range(version + 1, LATEST + 1):
                script = files("countveil.ledger").joinpath(f"migrations/{number:04d}.sql").read_text()
                for statement in statements(script):
                    self._step("migrate")
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")
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
            db = self._db
            try:
                self._step(f"{name}:begin")
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    self._step(f"{name}:commit")
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
            except sqlite3.DatabaseError as error:
                raise fault(error) from None
            self._step(f"{name}:anchor")
            last = self._last()
            if last is not None:
                self.anchor.advance(Mark(self.identity, last.seq, last.hash))

    def _append(self, kind: str, body: Mapping[str, Any], seq: int | None = None) -> Entry:
        entry = sealed(self._last(), self._clock(), kind, body, seq)
        self._step(f"{kind}:entry")
        row = (entry.seq, entry.time, entry.kind, canonical(body), entry.previous, entry.hash)
        self._db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", row)
        return entry

    def _last(self) -> Entry | None:
        row = self._db.execute("SELECT * FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
        return None if row is None else Entry(row[0], row[1], row[2], json.loads(row[3]), row[4], row[5])

    def open_plan(self, plan: PlanRecord) -> None:
        body = {name: value for name, value in asdict(plan).items() if name not in ("document", "more")}
        body["document"] = hashlib.sha256(plan.document.encode()).hexdigest()
        with self._transaction("plan") as db:
            if db.execute("SELECT 1 FROM pool WHERE name = ?", (plan.pool,)).fetchone():
                return  # another process was first; what it planned is what counts
            self._append("plan", body)
            db.execute("INSERT INTO pool VALUES (?, ?, 0)", (plan.pool, plan.answers))
            db.execute("INSERT INTO plan VALUES (?, ?)", (plan.pool, plan.document))

    def extend(self, pool: str, answers: int, epsilon: str, reason: str) -> None:
        with self._transaction("extend") as db:
            self._append("extend", {"pool": pool, "answers": answers, "epsilon": epsilon, "reason": reason})
            if db.execute("UPDATE pool SET answers = answers + ? WHERE name = ?", (answers, pool)).rowcount != 1:
                raise RequestError(f"there is no plan for pool {pool}; ask a first question, or run: countveil budget")

    def set_share(self, pool: str, analyst: str, answers: int) -> None:
        with self._transaction("share") as db:
            row = db.execute("SELECT answers FROM share WHERE pool = ? AND analyst = ?", (pool, analyst)).fetchone()
            if row is not None and row[0] == answers:
                return
            self._append("share", {"pool": pool, "analyst": analyst, "answers": answers})
            db.execute(
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
            db.execute("INSERT INTO version VALUES (?, ?, ?)", (dataset, number, fingerprint))
            return number

    def charge(self, pool: str, dataset: str, version: int, question: str, text: str, analyst: str) -> Charge:
        with self._transaction("charge") as db:
            found = self._find(pool, dataset, version, question)
            if found is not None:
                return found
            body = {"pool": pool, "dataset": dataset, "version": version, "question": question}
            body |= {"text": text, "analyst": analyst}
            entry = self._append("charge", body)
            self._step("charge:spend")
            spend = "UPDATE pool SET spent = spent + 1 WHERE name = ? AND spent < answers"
            if db.execute(spend, (pool,)).rowcount != 1:
                raise BudgetError(pool, self.standing(pool).answers)
            self._spend_share(db, pool, analyst)
            self._step("charge:row")
            row = (charge_id(entry), pool, dataset, version, question, text, analyst, entry.time, 0)
            db.execute("INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return replace(_charge(row), fresh=True)

    def _spend_share(self, db: sqlite3.Connection, pool: str, analyst: str) -> None:
        """Where shares are set, an analyst without one has none."""
        if not db.execute("SELECT 1 FROM share WHERE pool = ?", (pool,)).fetchone():
            return
        spend = "UPDATE share SET spent = spent + 1 WHERE pool = ? AND analyst = ? AND spent < answers"
        if db.execute(spend, (pool, analyst)).rowcount != 1:
            row = db.execute("SELECT answers FROM share WHERE pool = ? AND analyst = ?", (pool, analyst)).fetchone()
            raise BudgetError(pool, row[0] if row else 0, analyst)

    def record(self, charge: Charge, payload: bytes) -> Charge:
        with self._transaction("answer") as db:
            found = self._find(charge.pool, charge.dataset, charge.version, charge.question)
            if found is None or found.id != charge.id:
                raise LedgerError("the charge of this answer is gone from the ledger; nothing was answered")
            if found.payload is not None:
                return found  # another worker was first, and its answer is the answer
            entry = self._append("answer", {"charge": charge.id, "sha256": hashlib.sha256(payload).hexdigest()})
            self._step("answer:row")
            db.execute("INSERT INTO answer VALUES (?, ?, ?)", (charge.id, entry.time, payload))
        return replace(charge, payload=payload, answered=entry.time)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
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
        said = self._read("SELECT body FROM entry WHERE kind IN ('plan', 'extend') ORDER BY seq")
        plan, *more = [body for (written,) in said if (body := json.loads(written))["pool"] == pool]
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
            db = self._db
            try:
                db.execute("BEGIN")  # one moment of the ledger, whatever others write meanwhile
                try:
                    mark = self.anchor.read()  # before the entries: the ledger can only be ahead of what is read here
                    entries = check_file(db)
                finally:
                    db.execute("ROLLBACK")
            except sqlite3.DatabaseError as error:
                raise fault(error) from None
            check_anchor(entries, mark)
            self.anchor.advance(Mark(str(entries[0].body["ledger"]), entries[-1].seq, entries[-1].hash))
        return len(entries)

    def backup(self, target: Path) -> int:
        """A complete copy of this moment, in a new file; the number of entries in it."""
        if target.exists():
            raise RequestError(f"{target} exists; a backup is a new file")
        try:
            with sqlite3.connect(target) as copy:
                self._db.backup(copy)
            copy.close()
        except (sqlite3.DatabaseError, OSError) as error:
            target.unlink(missing_ok=True)
            raise fault(error) from None
        return len(list(self.entries()))

    def close(self) -> None:
        self._db.close()


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on disk when they return."""
    db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def statements(script: str) -> Iterator[str]:
    """The statements of a migration, one by one, so that they share the caller's transaction."""
    waiting = ""
    for line in script.splitlines(keepends=True):
        waiting += line
        if sqlite3.complete_statement(waiting):
            yield waiting
            waiting = ""


def _charge(row: tuple[Any, ...]) -> Charge:
    id, pool, dataset, version, question, text, analyst, time = row[:8]
    return Charge(id, pool, dataset, version, question, text, analyst, time)


def fault(error: Exception) -> LedgerError:
    """A fault of the file, in words that say nothing about its content."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return LedgerError("the ledger is busy with other processes; try again")
    if "full" in text:
        return LedgerError("the ledger could not be written: the disk is full; nothing was answered")
    if "readonly" in text or "unable to open" in text:
        return LedgerError("the ledger cannot be opened for writing; check the permissions of its file and folder")
    if "not a database" in text or "malformed" in text or "schema" in text:
        return LedgerError("the ledger file is damaged; restore a backup")
    return LedgerError("the ledger could not be read or written; nothing was answered")
