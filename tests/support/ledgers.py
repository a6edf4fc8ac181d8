"""A small ledger with every kind of entry, for tests that damage, copy and restore it."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from countveil.ledger import STANDARD, Charge, GradeRecord, Ledger, PlanRecord
from countveil.ledger.sqlite import SqliteLedger
from tests.support.servers import postgres


def plan(answers: int = 10, pool: str = "people", **others: int) -> PlanRecord:
    """A plan of one grade, `standard`, or with `others` (their answers by name) of several."""
    many = {"standard": answers, **others}
    grades = (
        GradeRecord(name, k, "nonnegative", f"{i:x}" * 64, document='{"a": 1}')
        for i, (name, k) in enumerate(many.items())
    )
    return PlanRecord(pool, "1", "1e-6", "add-remove", 1, 1, "variance", tuple(grades))


_numbers = itertools.count(1)
FORMAT1 = Path(__file__).parents[1] / "data" / "format1"
"""Ledgers of the format in which fingerprints had no key, with their data and configuration: see make.py there."""


def format1(folder: Path, server: str | None = None) -> Path:
    """The configuration of a ledger of format 1, copied to a file or to an empty database on a server."""
    for name in ("people.csv", "countveil.toml"):
        shutil.copy(FORMAT1 / name, folder / name)
    kind = "postgres" if server else "countveil.ledger"
    shutil.copy(FORMAT1 / f"{kind}.anchor", folder / "countveil.ledger.anchor")
    if server is None:
        (folder / "countveil.ledger").write_bytes(gzip.decompress((FORMAT1 / "countveil.ledger.gz").read_bytes()))
        return folder / "countveil.toml"
    import psycopg

    from countveil.ledger.postgres import HERE, migration

    with psycopg.connect(server) as db:
        db.execute(migration(1))
        db.execute("INSERT INTO countveil.place (format, here) VALUES (1, '')")
        db.execute(f"UPDATE countveil.place SET here = {HERE}")
        for table, rows in json.loads((FORMAT1 / "postgres.json").read_text()).items():
            for row in rows:
                values = [bytes.fromhex(v) if (table, i) == ("answer", 2) else v for i, v in enumerate(row)]
                db.execute(f"INSERT INTO countveil.{table} VALUES ({', '.join(['%s'] * len(row))})", values)
    text = (folder / "countveil.toml").read_text()
    (folder / "countveil.toml").write_text(f'[ledger]\npath = "{server}"\nanchor = "countveil.ledger.anchor"\n\n{text}')
    return folder / "countveil.toml"


FORMAT2 = Path(__file__).parents[1] / "data" / "before"
"""A ledger of the format before plans had grades, with its data and configuration: see make.py there."""


def format2(folder: Path, server: str | None = None) -> Path:
    """The configuration of such a ledger: in a file, or with the same rows on a server, in an empty database."""
    for name in ("people.csv", "countveil.toml", "countveil.ledger.anchor"):
        shutil.copy(FORMAT2 / name, folder / name)
    (folder / "countveil.ledger").write_bytes(gzip.decompress((FORMAT2 / "countveil.ledger.gz").read_bytes()))
    if server is None:
        return folder / "countveil.toml"
    import psycopg

    from countveil.ledger.postgres import HERE, migration

    with psycopg.connect(server) as db, closing(sqlite3.connect(folder / "countveil.ledger")) as file:
        db.execute(migration(1))
        db.execute(migration(2))
        for table in ("entry", "pool", "plan", "share", "version", "charge", "request", "answer"):
            rows = file.execute(f"SELECT * FROM {table} ORDER BY rowid")
            marks = ", ".join(["%s"] * len(rows.description))
            db.cursor().executemany(f"INSERT INTO countveil.{table} VALUES ({marks})", rows.fetchall())
        db.execute(
            "INSERT INTO countveil.secret (value) VALUES (%s)", file.execute("SELECT value FROM secret").fetchone()
        )
        db.execute("INSERT INTO countveil.place (format, here) VALUES (2, '')")
        db.execute(f"UPDATE countveil.place SET here = {HERE}")
    (folder / "countveil.ledger").unlink()
    text = (folder / "countveil.toml").read_text()
    (folder / "countveil.toml").write_text(f'[ledger]\npath = "{server}"\nanchor = "countveil.ledger.anchor"\n\n{text}')
    return folder / "countveil.toml"


def database() -> str:
    """The URL of a new, empty database for a ledger."""
    server, name = postgres(), f"ledger{next(_numbers)}"
    server.sql(f"CREATE DATABASE {name} OWNER writer")
    return f"postgresql://writer@127.0.0.1:{server.port}/{name}"


def opened(folder: Path, **more: Any) -> SqliteLedger:
    return SqliteLedger(folder / "x.ledger", folder / "x.anchor", **more)


def answered(
    ledger: Ledger, question: str, pool: str = "people", analyst: str = "ann", grade: str = STANDARD
) -> Charge:
    charge = ledger.charge(pool, "people", 1, question, f"text of {question}", analyst, grade)
    return ledger.record(charge, f"answer to {question}".encode())


def filled(folder: Path) -> None:
    """Make a ledger of 15 entries: two pools, shares, two versions, charges with and without answers, an extension."""
    ledger = opened(folder, clock=lambda: "2026-11-16T12:00:00+00:00")
    ledger.open_plan(plan())
    ledger.open_plan(plan(3, "other"))
    ledger.set_share("people", "ann", 6)
    ledger.set_share("people", "bob", 2)
    for fingerprint in ("first", "second"):
        ledger.version("people", fingerprint)
    for question in ("a", "b"):
        answered(ledger, question)
    ledger.charge("people", "people", 2, "c", "text of c", "bob")
    ledger.extend("people", 5, "1.5", "a second edition")
    answered(ledger, "d", "other")
    ledger.close()


def seen(folder: Path) -> object:
    """Everything that the interface of the ledger returns."""
    ledger = opened(folder, create=False)
    try:
        pools = ("people", "other")
        charges = list(ledger.charges())
        return (
            ledger.verify(),
            ledger.identity,
            list(ledger.entries()),
            charges,
            [ledger.find(c.pool, c.dataset, c.version, c.question, c.grade) for c in charges],
            [(plan, [each.document for each in plan.grades] if plan else None) for plan in map(ledger.plan, pools)],
            [(ledger.standings(pool), ledger.shares(pool)) for pool in pools],
        )
    finally:
        ledger.close()
