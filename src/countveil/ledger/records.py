"""The records of a ledger: entries in a hash chain, plans, charges, and the secret that keys every fingerprint of data.

Entry i has hash_i = SHA-256(hash_{i-1}, seq, time, kind, body), body as canonical JSON. A changed, moved or removed
entry breaks the chain. What has been spent is a pure function of the entries: see `verification`.

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
LATEST = 3
"""The format of a ledger: how many migrations there are. From 2 on it has a secret, from 3 on plans have grades."""
STANDARD = "standard"
"""The only grade of a plan that was made without grades."""
PUBLICATION = "publication"
"""The term of a grade that pays for a table of a publication: its name. Other grades pay for single questions."""
Most = int | Mapping[str, int]
"""The limit of one analyst: a number of answers of a pool, or a number for each named grade and none of other grades.
"""
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
    """The number and hash of an entry, which the next entry needs."""

    seq: int
    hash: str


@dataclass(frozen=True)
class GradeRecord:
    """One grade of a plan: a number of answers of one certified mechanism."""

    name: str
    answers: int
    policy: str
    mechanism: str
    terms: Mapping[str, str] = field(default_factory=dict)
    """What the configuration asked of this grade besides answers and policy, as decimal texts."""
    document: str = field(repr=False, compare=False, default="")
    """The mechanism's file; `mechanism` is its hash."""
    more: int = field(compare=False, default=0)
    """Answers that were added later."""
    debt: int = field(compare=False, default=0)
    """Answers of this grade that lost history may have given beyond its budget."""

    @property
    def is_single(self) -> bool:
        """Whether this grade pays for single questions."""
        return PUBLICATION not in self.terms

    @property
    def opened_answers(self) -> int:
        """All answers of this grade, with those added later."""
        return self.answers + self.more

    @property
    def body(self) -> dict[str, Any]:
        """The grade in the entry of its plan."""
        return {
            "name": self.name,
            "answers": self.answers,
            "policy": self.policy,
            "mechanism": self.mechanism,
            "terms": dict(self.terms),
            "file": self.document,
        }


@dataclass(frozen=True)
class PlanRecord:
    """What was planned for a pool: all answers of all grades cost (epsilon, delta) together."""

    pool: str
    epsilon: str
    delta: str
    neighbours: str
    cells: int
    sensitivity: int
    objective: str
    grades: tuple[GradeRecord, ...]
    more: tuple[tuple[int, str], ...] = field(compare=False, default=())
    """Extensions: the answers added, and the epsilon of all answers together since then."""
    total: str | None = field(compare=False, default=None)
    """Of a later plan: the epsilon of all plans together, from this plan on."""
    after: str | None = field(compare=False, default=None)
    """Of a later plan: the last charge of the pool before it."""
    charges: int = field(compare=False, default=0)
    """Of a later plan: the number of charges before it."""
    plan_lost: bool = field(compare=False, default=False)
    """Lost history may have contained a plan whose mechanisms are unknown: no epsilon can be stated."""
    earlier: tuple[PlanRecord, ...] = field(compare=False, default=(), repr=False)
    """The plans that the pool had before, oldest first."""

    @classmethod
    def read(cls, body: Mapping[str, Any], document: str) -> PlanRecord:
        """The plan in the body of an entry. `document` is the mechanism's file if the entry has none: until format 3 a
        plan had one grade, and the file of a pool's first plan was in a table."""
        members = {each.name: body[each.name] for each in fields(cls) if each.name in body}
        if "grades" in body:
            grades = [{**each, "document": each["file"]} for each in body["grades"]]
        else:
            known = {name: body[name] for name in ("answers", "policy", "mechanism")}
            grades = [{"name": STANDARD, **known, "document": body.get("file", document)}]
        names = [each.name for each in fields(GradeRecord)]
        read = (GradeRecord(**{name: each[name] for name in names if name in each}) for each in grades)
        return cls(**{**members, "grades": tuple(read)})

    @property
    def body(self) -> dict[str, Any]:
        """The body of the entry of a pool's first plan."""
        members = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        return {**members, "grades": [each.body for each in self.grades]}

    @property
    def state(self) -> tuple[object, ...]:
        """Everything that the epsilon depends on: if this changes, so does the epsilon."""
        opened = [(each.name, each.opened_answers, each.debt) for each in self.grades]
        return self.body, opened, [each.state for each in self.earlier]

    def find_grade(self, name: str) -> GradeRecord | None:
        """The grade of this name, if the plan has it."""
        return next((each for each in self.grades if each.name == name), None)

    @property
    def opened_epsilon(self) -> str:
        """The epsilon of all answers, extensions included, at the plan's delta, if there is no debt."""
        return self.more[-1][1] if self.more else self.total or self.epsilon

    @property
    def answers(self) -> int:
        """The planned answers of all grades."""
        return sum(each.answers for each in self.grades)

    @property
    def opened_answers(self) -> int:
        """All answers of this plan, with its extensions."""
        return sum(each.opened_answers for each in self.grades)

    @property
    def debt(self) -> int:
        """Answers that lost history may have given beyond the budgets of the grades."""
        return sum(each.debt for each in self.grades)

    @property
    def total_answers(self) -> int:
        """All answers of all plans of the pool, spent or not."""
        return self.opened_answers + sum(each.opened_answers for each in self.earlier)


@dataclass(frozen=True)
class Standing:
    """What is left of a grade or of a whole pool, or of an analyst's share of it."""

    answers: int
    spent: int

    @property
    def left(self) -> int:
        return self.answers - self.spent


@dataclass(frozen=True)
class Charge:
    """A paid question: the right to one answer of one grade. `payload` is that answer once it is recorded."""

    id: str
    pool: str
    dataset: str
    version: int
    question: str
    text: str
    analyst: str
    time: str
    grade: str = STANDARD
    payload: bytes | None = None
    answered: str | None = None
    fresh: bool = False
    standings: Mapping[str, Standing] | None = field(default=None, compare=False)
    """The grades of the pool after this charge, if it is fresh."""


@dataclass(frozen=True)
class Request:
    """A request that may be repeated: the hashes of its idempotency key and of its question."""

    key: str
    body: str


class Asked(NamedTuple):
    """A question to be charged. Its fields are in the body of the entry, so they are part of the ledger's format."""

    pool: str
    dataset: str
    version: int
    question: str
    text: str
    analyst: str
    grade: str = STANDARD


def canonical(body: Mapping[str, Any]) -> str:
    """A body as canonical JSON."""
    return _CANONICAL(body)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def entry_hash(previous: str, seq: int, time: str, kind: str, written: str) -> str:
    """The hash of an entry whose body is written canonically."""
    return hashlib.sha256(f"{previous}\n{seq}\n{time}\n{kind}\n{written}".encode()).hexdigest()


def seal(previous: Entry | Link | None, time: str, kind: str, body: Mapping[str, Any], seq: int | None = None) -> Entry:
    """The entry after `previous`; `seq` may skip numbers, after a restore."""
    before = previous.hash if previous else START
    number = seq if seq is not None else previous.seq + 1 if previous else 1
    return Entry(number, time, kind, body, before, entry_hash(before, number, time, kind, canonical(body)))


def walk_chain(entries: Iterable[tuple[int, str, str, str, str, str]]) -> Iterable[Entry]:
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
                f"the ledger was changed: entry {seq} does not follow from the entry before it; restore a backup"
            )
        if (last == 0) != (kind == "open"):
            raise LedgerError(f"the ledger was changed: entry {seq} is in the wrong place; restore a backup")
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
    """Whether an entry makes a plan, or records a restore that may have lost one, as every restore without `plan_lost`
    may.
    """
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

    def make_keyed_hash(self, text: str) -> Keyed:
        """HMAC-SHA256 of a text."""
        return Keyed(hmac.new(self._value.encode(), text.encode(), hashlib.sha256).hexdigest())

    def seal(self) -> dict[str, str]:
        """The part of the secret that the chain stores: a fresh nonce and a check value."""
        nonce = _token(32)
        return {"nonce": nonce, "check": self._check(nonce)}

    def test(self, nonce: str, check: str) -> None:
        """Raise unless this is the secret that the chain was sealed with."""
        if not hmac.compare_digest(self._check(nonce), check):
            raise LedgerError("the ledger's secret is not the one that its entries were made with; restore a backup")

    def _check(self, nonce: str) -> str:
        return self.make_keyed_hash(f"the secret of a ledger\n{nonce}")

    def __repr__(self) -> str:
        return "<Secret>"


def only_secret(rows: list[tuple[str]]) -> Secret:
    """The secret of a ledger from its table."""
    if len(rows) != 1:
        raise LedgerError(
            "the ledger's secret is missing, so that no version of the data is recognised; "
            "restore a backup that has the secret"
        )
    return Secret(rows[0][0])


def _token(size: int) -> str:
    from countveil.sampling.randomness import token  # loads numpy, which a ledger that is only read does not need

    return token(size)
