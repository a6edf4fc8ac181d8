"""Is the ledger what it was? What its entries add up to, the tables against that, and the chain against the anchor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from countveil.errors import LedgerError
from countveil.ledger.anchor import Mark
from countveil.ledger.records import KINDS, Entry, Secret, changes_plans, charge_id, only_secret, walked

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


# -- what the entries add up to ----------------------------------------------------------------------------------------


@dataclass
class State:
    """What the entries add up to."""

    secret: Secret | None = None
    """The ledger's secret, for those who compare versions."""
    keyed: bool = False
    """From here on fingerprints are keyed, and charges have random ids."""
    pools: dict[str, list[int]] = field(default_factory=dict)
    shares: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    charges: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    requests: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """By analyst and key: what was asked, and the charge that it got."""
    asked: set[tuple[str, str, int, str]] = field(default_factory=set)
    """Questions that are paid for: pool, dataset, version, question."""
    lost: int = 0
    """Entries that restored copies lacked."""
    plan_lost: bool = False
    """A plan may have been among them."""
    debts: dict[str, list[int]] = field(default_factory=dict)
    """For every plan of a pool, what may have been spent beyond all it had: taken from whatever is opened later."""
    datasets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The pool and the unit that a dataset was first asked with."""


def replayed(entries: Iterable[Entry], secret: Secret | None = None) -> State:
    """Everything the entries say: who may spend what, what was spent, what was answered.

    A history that breaks a rule of the ledger is refused, however well it is chained. With the `secret`, it is checked,
    and all versions are keyed as the table of versions has them.
    """
    state = State(secret)
    for entry in entries:
        _APPLY[entry.kind](state, entry)
    return state


def _rule(holds: bool, entry: Entry) -> None:
    if not holds:
        raise LedgerError(f"the ledger was changed: entry {entry.seq} breaks a rule of the ledger; restore a backup")


def _units(entry: Entry, name: str, least: int) -> int:
    """A number of units: an integer, never anything that only looks like one."""
    value = entry.body[name]
    _rule(type(value) is int and value >= least, entry)
    return int(value)


def _open(state: State, entry: Entry) -> None:
    if "nonce" in entry.body:
        _secret(state, entry)


def _secret(state: State, entry: Entry) -> None:
    """The ledger has a secret from here on; versions that were known before become keyed."""
    _rule(not state.keyed, entry)
    state.keyed = True
    if state.secret is not None:
        state.secret.test(entry.body["nonce"], entry.body["check"])
        state.versions = {version: state.secret.keyed(found) for version, found in state.versions.items()}


def _plan(state: State, entry: Entry) -> None:
    """A pool's plan. If history was lost before, the pool may have been planned and spent there already."""
    body = entry.body
    pool, answers = body["pool"], _units(entry, "answers", 0)
    _rule((pool in state.pools) == ("reason" in body), entry)
    if "reason" in body:
        _follow(state, entry)
    else:
        state.plans[pool], state.debts[pool] = dict(body), []
    before = state.pools.get(pool, [0, 0])[0]
    state.pools[pool] = [before + answers, before + min(answers, state.lost)]
    state.debts[pool].append(state.lost - min(answers, state.lost))


def _follow(state: State, entry: Entry) -> None:
    """A plan that follows others: what was left of them is spent, what was paid and not answered is void."""
    body = entry.body
    earlier = [charge for charge, said in state.charges.items() if said["pool"] == body["pool"]]
    _rule((body["charges"], body["after"]) == (len(earlier), earlier[-1] if earlier else None), entry)
    _rule(hashlib.sha256(body["file"].encode()).hexdigest() == body["document"], entry)
    for key, share in state.shares.items():
        if key[0] == body["pool"]:
            share[1] = 0
    _void(state, earlier)


def _void(state: State, charges: Iterable[str]) -> None:
    """Charges that have no answer yet will have none."""
    for charge in charges:
        body = state.charges[charge]
        if charge not in state.answers and not body["void"]:
            body["void"] = 1
            state.asked.remove((body["pool"], body["dataset"], body["version"], body["question"]))
    state.requests = {key: found for key, found in state.requests.items() if not state.charges[found[1]]["void"]}


def _extend(state: State, entry: Entry) -> None:
    debts, pool = state.debts[entry.body["pool"]], state.pools[entry.body["pool"]]
    pool[0] += _units(entry, "answers", 1)
    owed = min(debts[-1], pool[0] - pool[1])
    pool[1] += owed
    debts[-1] -= owed


def _share(state: State, entry: Entry) -> None:
    key = (entry.body["pool"], entry.body["analyst"])
    _rule(key[0] in state.pools, entry)
    spent = state.shares.get(key, [0, 0])[1]
    state.shares[key] = [_units(entry, "answers", 0), spent]


def _version(state: State, entry: Entry) -> None:
    key = (entry.body["dataset"], _units(entry, "number", 1))
    _rule(key not in state.versions, entry)
    state.versions[key] = entry.body["keyed_fingerprint" if state.keyed else "fingerprint"]


def _dataset(state: State, entry: Entry) -> None:
    body = entry.body
    _rule(body["dataset"] not in state.datasets and body["pool"] in state.pools, entry)
    state.datasets[body["dataset"]] = (body["pool"], body["unit"])


def _charge(state: State, entry: Entry) -> None:
    body = entry.body
    pool = state.pools[body["pool"]]
    asked = (body["pool"], body["dataset"], _units(entry, "version", 1), body["question"])
    _rule(pool[1] < pool[0] and asked not in state.asked, entry)
    _rule(("id" in body) == state.keyed and charge_id(entry) not in state.charges, entry)
    pool[1] += 1
    state.asked.add(asked)
    if any(share[0] for (of, _), share in state.shares.items() if of == body["pool"]):
        share = state.shares[body["pool"], body["analyst"]]
        _rule(share[1] < share[0], entry)
        share[1] += 1
    state.charges[charge_id(entry)] = {**body, "time": entry.time, "void": 0}


def _request(state: State, entry: Entry) -> None:
    """A request keeps its charge once that is answered."""
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
    """History was lost: every lost entry may have been a charge, and every open charge may have been answered."""
    lost = _units(entry, "lost", 0)
    _rule(type(entry.body.get("plan_lost", False)) is bool, entry)
    state.lost += lost
    state.plan_lost |= changes_plans(entry.kind, entry.body)
    for name, pool in state.pools.items():
        owed = pool[1] + lost
        pool[1] = min(pool[0], owed)
        state.debts[name][-1] += owed - pool[1]
    if lost == 0 and entry.body["anchor"] is not None:
        return  # the copy reached its anchor
    _void(state, state.charges)


_RULES = (_open, _secret, _plan, _extend, _share, _version, _dataset, _charge, _request, _answer, _restore)
_APPLY = dict(zip(KINDS, _RULES, strict=True))
