"""What a ledger holds: entries in a hash chain, and what they add up to.

Entry i has hash_i = SHA-256(hash_{i-1}, seq, time, kind, body), body as canonical JSON. A changed, moved or removed
entry breaks the chain. What has been spent is a pure function of the entries, `replayed`; tables that make it quick to
ask are checked against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from countveil.errors import LedgerError
from countveil.ledger.secret import Secret

KINDS = ("open", "secret", "plan", "extend", "share", "version", "dataset", "charge", "request", "answer", "restore")
LATEST = 2
"""The format of a ledger: how many migrations there are. From 2 on it has a secret."""
START = "0" * 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    seq: int
    time: str
    kind: str
    body: Mapping[str, Any]
    previous: str
    hash: str


class Link(NamedTuple):
    """What the next entry needs to know of an entry."""

    seq: int
    hash: str


@dataclass(frozen=True)
class PlanRecord:
    """What was planned for a pool: `answers` answers of one certified mechanism cost (epsilon, delta) together."""

    pool: str
    epsilon: str
    delta: str
    answers: int
    neighbours: str
    cells: int
    sensitivity: int
    policy: str
    objective: str
    mechanism: str
    document: str = field(repr=False, compare=False, default="")
    """The mechanism's file; `mechanism` is its hash."""
    more: tuple[tuple[int, str], ...] = field(compare=False, default=())
    """What a curator opened later: answers, and the epsilon of everything together since then."""
    debt: int = field(compare=False, default=0)
    """Answers that lost history may have given beyond all that were opened."""
    total: str | None = field(compare=False, default=None)
    """Of a plan that followed others: the epsilon of everything together since then."""
    after: str | None = field(compare=False, default=None)
    """Of a plan that followed others: the last charge of the pool before it."""
    charges: int = field(compare=False, default=0)
    """Of a plan that followed others: how many charges there were before it."""
    plan_lost: bool = field(compare=False, default=False)
    """Lost history may have held another plan, of which nobody knows the mechanism: no epsilon can be stated."""
    earlier: tuple[PlanRecord, ...] = field(compare=False, default=(), repr=False)
    """The plans that the pool had before, oldest first."""

    @property
    def body(self) -> dict[str, Any]:
        """What goes on record of a pool's first plan."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        return {**said, "document": hashlib.sha256(self.document.encode()).hexdigest()}

    @property
    def state(self) -> tuple[object, ...]:
        """What an epsilon was worked out from: if it is another, so is the epsilon."""
        return self.body, len(self.earlier), self.total_answers, self.debt

    @property
    def opened_epsilon(self) -> str:
        """The epsilon of all answers that were opened, at the plan's delta: without a debt, what is stated."""
        return self.more[-1][1] if self.more else self.total or self.epsilon

    @property
    def opened_answers(self) -> int:
        """All answers of this plan that were opened."""
        return self.answers + sum(answers for answers, _ in self.more)

    @property
    def total_answers(self) -> int:
        """All answers of the pool that were ever opened, whatever became of them."""
        return self.opened_answers + sum(each.opened_answers for each in self.earlier)


@dataclass(frozen=True)
class Standing:
    """What is left of a pool, or of an analyst's share of it."""

    answers: int
    spent: int

    @property
    def left(self) -> int:
        return self.answers - self.spent


@dataclass(frozen=True)
class Charge:
    """A paid question: the right to one answer. `payload` is that answer once it is recorded."""

    id: str
    pool: str
    dataset: str
    version: int
    question: str
    text: str
    analyst: str
    time: str
    payload: bytes | None = None
    answered: str | None = None
    fresh: bool = False
    left: int | None = field(default=None, compare=False)
    """Answers of the pool that were left when this was charged just now."""


@dataclass(frozen=True)
class Request:
    """A request that may come again: the hashes of the key that its sender gave it, and of what it asks."""

    key: str
    body: str


class Asked(NamedTuple):
    """A question to be charged: who pays, about which version of the data, its hash and text, who asks. Its fields are
    in the body of the entry, and so a part of the format."""

    pool: str
    dataset: str
    version: int
    question: str
    text: str
    analyst: str


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


def canonical(body: Mapping[str, Any]) -> str:
    """The one way to write a body."""
    return _CANONICAL(body)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def entry_hash(previous: str, seq: int, time: str, kind: str, written: str) -> str:
    """The hash of an entry whose body is written canonically."""
    return hashlib.sha256(f"{previous}\n{seq}\n{time}\n{kind}\n{written}".encode()).hexdigest()


def sealed(
    previous: Entry | Link | None, time: str, kind: str, body: Mapping[str, Any], seq: int | None = None
) -> Entry:
    """The entry that follows another; `seq` may leap, after a restore."""
    before = previous.hash if previous else START
    number = seq if seq is not None else previous.seq + 1 if previous else 1
    return Entry(number, time, kind, body, before, entry_hash(before, number, time, kind, canonical(body)))


def walked(entries: Iterable[tuple[int, str, str, str, str, str]]) -> Iterable[Entry]:
    """The entries of stored rows (seq, time, kind, body, previous, hash), each checked against the one before."""
    previous, last = START, 0
    for seq, time, kind, written, before, stated in entries:
        body = body_of(seq, written)
        lost = body.get("lost", 0) if kind == "restore" else 0
        if (
            not last < seq <= last + 1 + lost
            or before != previous
            or stated != entry_hash(previous, seq, time, kind, written)
            or kind not in KINDS
        ):
            raise LedgerError(
                f"the ledger was changed: entry {seq} does not follow from the one before; restore a backup"
            )
        if (last == 0) != (kind == "open"):
            raise LedgerError(f"the ledger was changed: entry {seq} is out of place; restore a backup")
        previous, last = stated, seq
        yield Entry(seq, time, kind, body, before, stated)


def body_of(seq: int, written: str) -> dict[str, Any]:
    """The body of an entry from its canonical text."""
    try:
        body = json.loads(written)
        if isinstance(body, dict) and canonical(body) == written:
            return body
    except (ValueError, RecursionError, TypeError):
        pass
    raise LedgerError(f"the ledger was changed: entry {seq} cannot be read; restore a backup")


def charge_id(entry: Entry) -> str:
    """The public name of a charge. Before ledgers had a secret it was the beginning of the entry's hash."""
    return str(entry.body["id"]) if "id" in entry.body else entry.hash[:24]


def changes_plans(kind: str, body: Mapping[str, Any]) -> bool:
    """Whether an entry makes a plan, or may have lost one; a restore that does not say may have, if it lost any."""
    return kind == "plan" or (kind == "restore" and bool(body.get("plan_lost", body["lost"] > 0)))


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
