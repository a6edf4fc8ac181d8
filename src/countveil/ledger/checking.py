"""Is the ledger what it was? The chain against itself, the tables against the chain, the chain against the anchor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from countveil.errors import LedgerError
from countveil.ledger.anchor import Mark
from countveil.ledger.records import Entry, State, replayed, walked
from countveil.ledger.secret import only_secret

Rows = Callable[[str], Iterable[tuple[Any, ...]]]
_CHARGE = ("pool", "dataset", "version", "question", "text", "analyst", "time", "void")
_CHARGES = f"SELECT id, {', '.join(_CHARGE)} FROM charge"


def check_rows(rows: Rows, order: str, format: int) -> list[Entry]:
    """The entries of a ledger whose chain holds and whose tables say what the entries say; otherwise a refusal.

    `rows` reads; `order` is the column that tells the order of charges. From format 2 on there is a secret.
    """
    try:
        entries = list(walked(rows("SELECT seq, time, kind, body, previous, hash FROM entry ORDER BY seq")))
        if not entries:
            raise LedgerError("the ledger is empty; restore a backup")
        secret = only_secret(list(rows("SELECT value FROM secret"))) if format > 1 else None
        state = replayed(entries, secret)
        if state.keyed != (format > 1):
            raise LedgerError("the ledger was changed: its entries do not belong to its format; restore a backup")
        _check_tables(rows, order, state, entries)
    except (LookupError, TypeError, ValueError, OverflowError):
        raise LedgerError("the ledger was changed: an entry does not say what it should; restore a backup") from None
    return entries


def _check_tables(rows: Rows, order: str, state: State, entries: list[Entry]) -> None:
    charges = {id: tuple(body[key] for key in _CHARGE) for id, body in state.charges.items()}
    times = {entry.body["charge"]: entry.time for entry in entries if entry.kind == "answer"}
    pairs: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {
        "pool": (
            {name: [answers, spent] for name, answers, spent in rows("SELECT name, answers, spent FROM pool")},
            state.pools,
        ),
        "share": (
            {
                (pool, who): [answers, spent]
                for pool, who, answers, spent in rows("SELECT pool, analyst, answers, spent FROM share")
            },
            state.shares,
        ),
        "version": (
            {
                (dataset, number): mark
                for dataset, number, mark in rows("SELECT dataset, number, fingerprint FROM version")
            },
            state.versions,
        ),
        "charge": ({row[0]: tuple(row[1:]) for row in rows(f"{_CHARGES} ORDER BY {order}")}, charges),
        "answer": (
            {
                charge: (time, _digest(payload))
                for charge, time, payload in rows("SELECT charge, time, payload FROM answer")
            },
            {charge: (times[charge], digest) for charge, digest in state.answers.items()},
        ),
        "request": (
            {
                (who, key): (body, charge)
                for who, key, body, charge in rows("SELECT analyst, key, body, charge FROM request")
            },
            state.requests,
        ),
        "plan": (
            {pool: _digest(document.encode()) for pool, document in rows("SELECT pool, document FROM plan")},
            {pool: body["document"] for pool, body in state.plans.items()},
        ),
    }
    for table, (held, meant) in pairs.items():
        if held != meant or (table == "charge" and list(held) != list(meant)):
            raise LedgerError(f"the ledger was changed: table {table} is not what its entries say; restore a backup")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_anchor(entries: list[Entry], mark: Mark) -> None:
    """The ledger holds the entry that its anchor remembers, or an entry that settles its loss."""
    held = next((entry for entry in entries if entry.seq >= mark.seq), None)
    check_held(mark, str(entries[0].body["ledger"]), held, entries[-1].seq)


def check_held(mark: Mark, ledger: str, held: Entry | None, end: int) -> None:
    """The same, given the first entry from the anchor's on (None if there is none) and the number of the last."""
    if mark.ledger != ledger:
        raise LedgerError("the anchor belongs to another ledger; check the paths in the configuration")
    if mark.seq == 0:
        return
    if held is None:
        raise LedgerError(
            f"the ledger lost history: it ends at entry {end}, its anchor remembers {mark.seq}; "
            "bring back the latest copy with: countveil ledger restore FILE"
        )
    settled = held.kind == "restore" and (
        held.body["anchor"] == [mark.seq, mark.hash]
        or held.seq - held.body["lost"] <= mark.seq < held.seq  # another host, which had seen more, settled it
    )
    if not settled and (held.seq, held.hash) != (mark.seq, mark.hash):
        raise LedgerError("the ledger's history is not the one its anchor remembers; restore a backup")
