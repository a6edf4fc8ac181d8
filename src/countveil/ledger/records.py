"""What a ledger holds: entries in a hash chain, plans, charges, and the secret that keys every fingerprint of data.

Entry i has hash_i = SHA-256(hash_{i-1}, seq, time, kind, body), body as canonical JSON. A changed, moved or removed
entry breaks the chain. What has been spent is a pure function of the entries: see `checking`.

A hash of the data would let someone who knows everybody else's rows test one person's row with certainty. So the ledger
stores and compares HMAC-SHA256(secret, hash). The secret is drawn once and lives in a table of the ledger's database,
so that copies have it; it is in no entry. The chain holds a keyed check value, which tells a missing or different
secret, and a nonce of 256 bits that is never printed: nobody who knows what the entries say can compute their hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, NewType

from countveil.errors import LedgerError

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


Keyed = NewType("Keyed", str)
"""A value that nobody can compute without the secret."""


def new_charge_id() -> str:
    """The public name of a charge: random, so that it says nothing about the data or how many charges there are."""
    return _token(12)


class Secret:
    """A secret of 256 bits, as text."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def draw(cls) -> Secret:
        return cls(_token(32))

    def export(self) -> str:
        """The secret itself, for the table that keeps it."""
        return self._value

    def keyed(self, text: str) -> Keyed:
        """HMAC-SHA256 of a text."""
        return Keyed(hmac.new(self._value.encode(), text.encode(), hashlib.sha256).hexdigest())

    def seal(self) -> dict[str, str]:
        """What the chain holds of the secret: a fresh nonce and a check value."""
        nonce = _token(32)
        return {"nonce": nonce, "check": self._check(nonce)}

    def test(self, nonce: str, check: str) -> None:
        """Refuse to go on unless this is the secret that the chain was sealed with."""
        if not hmac.compare_digest(self._check(nonce), check):
            raise LedgerError("the ledger's secret is not the one that its entries were made with; restore a backup")

    def _check(self, nonce: str) -> str:
        return self.keyed(f"the secret of a ledger\n{nonce}")

    def __repr__(self) -> str:
        return "<Secret>"


def only_secret(rows: list[tuple[str]]) -> Secret:
    """The secret of a ledger from its table."""
    if len(rows) != 1:
        raise LedgerError(
            "the ledger's secret is missing: without it no data can be recognised; restore a backup that has it"
        )
    return Secret(rows[0][0])


def _token(size: int) -> str:
    from countveil.sampling.entropy import token  # loads numpy, which a ledger that is only read does not need

    return token(size)
