"""Verify a ledger: replay its entries, compare its tables with the result, and its chain with the anchor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from countveil.errors import LedgerError
from countveil.ledger.anchor import Mark
from countveil.ledger.records import KINDS, STANDARD, Entry, Secret, changes_plans, charge_id, only_secret, walk_chain

Rows = Callable[[str], Iterable[tuple[Any, ...]]]
_CHARGE = ("pool", "dataset", "version", "question", "text", "analyst", "time", "void", "grade")
_TABLES = {
    "pool": "SELECT name FROM pool",
    "grade": "SELECT pool, name, answers, spent FROM grade",
    "share": "SELECT pool, analyst, grade, answers, spent FROM share",
    "charge": f"SELECT id, {', '.join(_CHARGE)} FROM charge",
}
_TABLES_BEFORE_3 = {
    "pool": "SELECT name FROM pool",
    "grade": f"SELECT name, '{STANDARD}', answers, spent FROM pool",
    "share": f"SELECT pool, analyst, '{STANDARD}', answers, spent FROM share",
    "charge": f"SELECT id, {', '.join(_CHARGE[:-1])}, '{STANDARD}' FROM charge",
}
"""For each table, the query that reads it in formats before 3. Plans had no grades then; their answers count as one
grade."""


def check_rows(rows: Rows, order: str, format: int) -> list[Entry]:
    """Check the hash chain and every table of a ledger, and return its entries; a fault is raised as a LedgerError.

    `rows` runs a query. `order` is the column that sorts charges into the order in which they were made. Since format 2
    there is a secret.
    """
    try:
        entries = list(walk_chain(rows("SELECT seq, time, kind, body, previous, hash FROM entry ORDER BY seq")))
        if not entries:
            raise LedgerError("the ledger is empty; restore a backup")
        secret = only_secret(list(rows("SELECT value FROM secret"))) if format > 1 else None
        state = replay_entries(entries, secret)
        if state.keyed != (format > 1):
            raise LedgerError("the ledger was changed: its entries do not match its format; restore a backup")
        _check_tables(rows, order, state, entries, _TABLES if format > 2 else _TABLES_BEFORE_3)
    except (LookupError, TypeError, ValueError, OverflowError):
        raise LedgerError("the ledger was changed: an entry has missing or invalid fields; restore a backup") from None
    return entries


def _check_tables(rows: Rows, order: str, state: State, entries: list[Entry], tables: Mapping[str, str]) -> None:
    charges = {id: tuple(body[key] for key in _CHARGE) for id, body in state.charges.items()}
    times = {entry.body["charge"]: entry.time for entry in entries if entry.kind == "answer"}
    pairs: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {
        "pool": ({name: None for (name,) in rows(tables["pool"])}, dict.fromkeys(state.plans)),
        "grade": (
            {(pool, name): [answers, spent] for pool, name, answers, spent in rows(tables["grade"])},
            state.grades,
        ),
        "share": (
            {(pool, who, grade): [answers, spent] for pool, who, grade, answers, spent in rows(tables["share"])},
            state.shares,
        ),
        "version": (
            {
                (dataset, number): mark
                for dataset, number, mark in rows("SELECT dataset, number, fingerprint FROM version")
            },
            state.versions,
        ),
        "charge": ({row[0]: tuple(row[1:]) for row in rows(f"{tables['charge']} ORDER BY {order}")}, charges),
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
            {pool: body["document"] for pool, body in state.plans.items() if "document" in body},
        ),
    }
    for table, (stored, expected) in pairs.items():
        if stored != expected or (table == "charge" and list(stored) != list(expected)):
            raise LedgerError(f"the ledger was changed: table {table} does not match its entries; restore a backup")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_anchor(entries: list[Entry], mark: Mark) -> None:
    """Check that the ledger contains the entry in its anchor, or else the entry of a restore that settled its loss."""
    held = next((entry for entry in entries if entry.seq >= mark.seq), None)
    check_held(mark, str(entries[0].body["ledger"]), held, entries[-1].seq)


def check_held(mark: Mark, ledger: str, held: Entry | None, end: int) -> None:
    """Check that the ledger contains the entry in its anchor, as `check_anchor` does, without reading all entries.

    `held` is the ledger's first entry with the anchor's number or a later one (None if there is none); `end` is the
    number of its last entry.
    """
    if mark.ledger != ledger:
        raise LedgerError("the anchor belongs to another ledger; check the paths in the configuration")
    if mark.seq == 0:
        return
    if held is None:
        raise LedgerError(
            f"the ledger lost history: it ends at entry {end}, but its anchor remembers {mark.seq}; "
            "restore the latest copy with: countveil ledger restore FILE"
        )
    settled = held.kind == "restore" and (
        held.body["anchor"] == [mark.seq, mark.hash]
        or held.seq - held.body["lost"] <= mark.seq < held.seq  # settled by a host with a later anchor
    )
    if not settled and (held.seq, held.hash) != (mark.seq, mark.hash):
        raise LedgerError("the ledger's history is not the one its anchor remembers; restore a backup")


# -- the state after all entries ---------------------------------------------------------------------------------------


@dataclass
class State:
    """The state of a ledger that results from all of its entries."""

    secret: Secret | None = None
    """The ledger's secret, to compute keyed fingerprints; None if versions of the data are not compared."""
    keyed: bool = False
    """Whether the entries so far include the one that introduced the secret. Since then, fingerprints are keyed hashes
    and charges have random ids."""
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By pool: the body of its first plan's entry."""
    grades: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """By pool and name: how many answers a grade has, and how many of them are spent."""
    shares: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    """By pool, analyst and grade: how many answers a share has, and how many of them are spent."""
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    charges: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    requests: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """By analyst and idempotency key: the hash of the request, and the id of its charge."""
    asked: set[tuple[str, str, int, str, str]] = field(default_factory=set)
    """Questions that are paid for, as (pool, dataset, version, question, grade)."""
    lost: int = 0
    """How many entries were missing in copies that replaced the ledger."""
    plan_lost: bool = False
    """Whether a plan may have been among the lost entries."""
    debts: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    """By pool, for each of its plans: how many answers of each grade lost history may have given beyond the grade's
    budget. Extensions pay for these first."""
    datasets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By dataset: the pool and the unit with which it was first asked about."""


def replay_entries(entries: Iterable[Entry], secret: Secret | None = None) -> State:
    """Compute what follows from the entries: budgets, charges and answers.

    A history that breaks a rule of the ledger is refused, even if its hash chain is valid. If a `secret` is given, it
    is checked, and the fingerprints of format 1 are replaced by keyed hashes, as in the table of versions.
    """
    state = State(secret)
    for entry in entries:
        _APPLY[entry.kind](state, entry)
    return state


def _rule(holds: bool, entry: Entry) -> None:
    if not holds:
        raise LedgerError(f"the ledger was changed: entry {entry.seq} breaks a rule of the ledger; restore a backup")


def _units(entry: Entry, name: str, least: int, body: Mapping[str, Any] | None = None) -> int:
    """A number of answers in an entry, or in a part of its body. It must be an integer and at least `least`."""
    value = (entry.body if body is None else body)[name]
    _rule(type(value) is int and value >= least, entry)
    return int(value)


def _open(state: State, entry: Entry) -> None:
    if "nonce" in entry.body:
        _secret(state, entry)


def _secret(state: State, entry: Entry) -> None:
    """Apply the entry that introduces the secret: fingerprints that were recorded before become keyed hashes."""
    _rule(not state.keyed, entry)
    state.keyed = True
    if state.secret is not None:
        state.secret.test(entry.body["nonce"], entry.body["check"])
        state.versions = {version: state.secret.make_keyed_hash(plain) for version, plain in state.versions.items()}


def _plan(state: State, entry: Entry) -> None:
    """Apply the entry of a plan.

    If history was lost before, each lost entry may have been a charge of any of the grades. So each grade starts with
    as many answers spent as entries were lost.
    """
    body = entry.body
    pool = body["pool"]
    _rule((pool in state.plans) == ("reason" in body), entry)
    if "reason" in body:
        _follow(state, entry)
    else:
        state.plans[pool], state.debts[pool] = dict(body), []
    grades = body["grades"] if "grades" in body else [{"name": STANDARD, "answers": body["answers"]}]
    names = [grade["name"] for grade in grades]
    _rule(len(set(names)) == len(names) > 0 and all(type(name) is str for name in names), entry)
    debts = dict.fromkeys(names, 0)
    for grade in grades:
        answers = _units(entry, "answers", 0, grade)
        spent = min(answers, state.lost)
        before = state.grades.get((pool, grade["name"]), [0, 0])[0]
        state.grades[pool, grade["name"]] = [before + answers, before + spent]
        debts[grade["name"]] = state.lost - spent
    state.debts[pool].append(debts)


def _follow(state: State, entry: Entry) -> None:
    """Apply the entry of a pool's later plan: earlier plans have nothing left, and charges without an answer become
    void."""
    body = entry.body
    earlier = [charge for charge, fields in state.charges.items() if fields["pool"] == body["pool"]]
    _rule((body["charges"], body["after"]) == (len(earlier), earlier[-1] if earlier else None), entry)
    if "grades" not in body:
        _rule(hashlib.sha256(body["file"].encode()).hexdigest() == body["document"], entry)
    for (pool, _), grade in state.grades.items():
        if pool == body["pool"]:
            grade[1] = grade[0]
    for key, share in state.shares.items():
        if key[0] == body["pool"]:
            share[1] = 0
    _void(state, earlier)


def _void(state: State, charges: Iterable[str]) -> None:
    """Make charges without an answer void: they can no longer be answered."""
    for charge in charges:
        body = state.charges[charge]
        if charge not in state.answers and not body["void"]:
            body["void"] = 1
            state.asked.remove((body["pool"], body["dataset"], body["version"], body["question"], body["grade"]))
    state.requests = {key: request for key, request in state.requests.items() if not state.charges[request[1]]["void"]}


def _extend(state: State, entry: Entry) -> None:
    """Apply an extension: more answers for a grade of the last plan. They first pay for the grade's debt."""
    pool, name = entry.body["pool"], _grade_of(entry)
    debts, grade = state.debts[pool][-1], state.grades[pool, name]
    _rule(name in debts, entry)
    grade[0] += _units(entry, "answers", 1)
    owed = min(debts[name], grade[0] - grade[1])
    grade[1] += owed
    debts[name] -= owed


def _share(state: State, entry: Entry) -> None:
    pool, grade = entry.body["pool"], _grade_of(entry)
    _rule((pool, grade) in state.grades, entry)
    key = (pool, entry.body["analyst"], grade)
    spent = state.shares.get(key, [0, 0])[1]
    state.shares[key] = [_units(entry, "answers", 0), spent]


def _grade_of(entry: Entry) -> str:
    """The name of the grade in an entry. Before format 3 entries name none, because there was only one."""
    grade = entry.body.get("grade", STANDARD)
    _rule(type(grade) is str, entry)
    return str(grade)


def _version(state: State, entry: Entry) -> None:
    key = (entry.body["dataset"], _units(entry, "number", 1))
    _rule(key not in state.versions, entry)
    state.versions[key] = entry.body["keyed_fingerprint" if state.keyed else "fingerprint"]


def _dataset(state: State, entry: Entry) -> None:
    body = entry.body
    _rule(body["dataset"] not in state.datasets and body["pool"] in state.plans, entry)
    state.datasets[body["dataset"]] = (body["pool"], body["unit"])


def _charge(state: State, entry: Entry) -> None:
    body, name = entry.body, _grade_of(entry)
    pool = body["pool"]
    grade = state.grades[pool, name]
    asked = (pool, body["dataset"], _units(entry, "version", 1), body["question"], name)
    _rule(grade[1] < grade[0] and asked not in state.asked, entry)
    _rule(("id" in body) == state.keyed and charge_id(entry) not in state.charges, entry)
    grade[1] += 1
    state.asked.add(asked)
    if any(share[0] for (of, _, _), share in state.shares.items() if of == pool):
        share = state.shares[pool, body["analyst"], name]
        _rule(share[1] < share[0], entry)
        share[1] += 1
    state.charges[charge_id(entry)] = {**body, "grade": name, "time": entry.time, "void": 0}


def _request(state: State, entry: Entry) -> None:
    """Apply the entry of a request. A request keeps its charge once the charge is answered."""
    body = entry.body
    key, before = (body["analyst"], body["key"]), state.requests.get((body["analyst"], body["key"]))
    _rule(state.charges[body["charge"]]["void"] == 0, entry)
    _rule(before is None or (before[0] == body["body"] and before[1] not in state.answers), entry)
    state.requests[key] = (body["body"], body["charge"])


def _answer(state: State, entry: Entry) -> None:
    charge = entry.body["charge"]
    _rule(charge not in state.answers and state.charges[charge]["void"] == 0, entry)
    state.answers[charge] = entry.body["sha256"]


def _restore(state: State, entry: Entry) -> None:
    """Count lost history as spent: charge every grade for each lost entry, and void the charges that have no answer.

    Nobody knows what a lost entry was: a charge of any grade, or the answer to a charge that now has none."""
    lost = _units(entry, "lost", 0)
    _rule(type(entry.body.get("plan_lost", False)) is bool, entry)
    state.lost += lost
    state.plan_lost |= changes_plans(entry.kind, entry.body)
    for pool, plans in state.debts.items():
        for name in plans[-1]:
            grade = state.grades[pool, name]
            owed = grade[1] + lost
            grade[1] = min(grade[0], owed)
            plans[-1][name] += owed - grade[1]
    if lost == 0 and entry.body["anchor"] is not None:
        return  # the copy reached its anchor
    _void(state, state.charges)


_RULES = (_open, _secret, _plan, _extend, _share, _version, _dataset, _charge, _request, _answer, _restore)
_APPLY = dict(zip(KINDS, _RULES, strict=True))
