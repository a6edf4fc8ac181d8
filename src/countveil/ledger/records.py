"""The records of a ledger: entries in a hash chain, plans, charges, and the secret key for fingerprints of the data.

Entry i has hash_i = SHA-256(hash_{i-1}, seq, time, kind, body), with the body as canonical JSON. If an entry is
changed, moved or removed, the hashes no longer match. What has been spent follows from the entries alone: see
`verification`.

With a plain hash of the data, someone who knows the rows of everybody else could test with certainty whether one person
has a certain row. So the ledger stores and compares HMAC-SHA256(secret, hash). The secret is drawn once and stored in a
table of the ledger's database, so that copies of the ledger have it; no entry contains it. The chain contains a check
value, which reveals a missing or wrong secret, and a nonce of 256 bits that is never printed. Without the nonce nobody
can compute the hashes of entries, not even someone who knows what all entries say.
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
"""The latest format of a ledger, which is the number of migrations. Format 2 introduced a secret, format 3 grades."""
STANDARD = "standard"
"""The name of the only grade of a plan that was made without grades."""
PUBLICATION = "publication"
"""The term that says for which publication a grade pays. Grades without this term pay for single questions."""
Most = int | Mapping[str, int]
"""The limit of one analyst in a pool: a number of answers, or one for each named grade (0 for all other grades)."""
START = "0" * 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger."""

    seq: int
    time: str
    kind: str
    body: Mapping[str, Any]
    previous: str
    hash: str


class Link(NamedTuple):
    """The number and hash of an entry: what is needed to write the next one."""

    seq: int
    hash: str


@dataclass(frozen=True)
class GradeRecord:
    """One grade of a plan: a number of answers, each drawn from the same certified mechanism."""

    name: str
    answers: int
    policy: str
    mechanism: str
    terms: Mapping[str, str] = field(default_factory=dict)
    """What the configuration requires of this grade besides its answers and policy, as decimal texts."""
    document: str = field(repr=False, compare=False, default="")
    """The content of the mechanism's file; `mechanism` is its hash."""
    more: int = field(compare=False, default=0)
    """Answers that were added to the plan later."""
    debt: int = field(compare=False, default=0)
    """Answers of this grade that lost history may have given beyond the grade's budget."""

    @property
    def is_single(self) -> bool:
        """Whether this grade pays for single questions."""
        return PUBLICATION not in self.terms

    @property
    def opened_answers(self) -> int:
        """All answers of this grade, including those added later."""
        return self.answers + self.more

    @property
    def body(self) -> dict[str, Any]:
        """The grade as it is written in the entry of its plan."""
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
    """The plan of a pool. All answers of all its grades together cost (epsilon, delta)."""

    pool: str
    epsilon: str
    delta: str
    neighbours: str
    cells: int
    sensitivity: int
    objective: str
    grades: tuple[GradeRecord, ...]
    more: tuple[tuple[int, str], ...] = field(compare=False, default=())
    """Extensions, in order: how many answers were added, and the epsilon that all answers together have cost since
    then."""
    total: str | None = field(compare=False, default=None)
    """For a plan after the first: the epsilon that all plans up to this one cost together."""
    after: str | None = field(compare=False, default=None)
    """For a plan after the first: the id of the pool's last charge before this plan."""
    charges: int = field(compare=False, default=0)
    """For a plan after the first: how many charges the pool had before this plan."""
    plan_lost: bool = field(compare=False, default=False)
    """Whether lost history may have contained a plan. Its mechanisms would be unknown, so no epsilon can be stated."""
    earlier: tuple[PlanRecord, ...] = field(compare=False, default=(), repr=False)
    """The plans that the pool had before, oldest first."""

    @classmethod
    def read(cls, body: Mapping[str, Any], document: str) -> PlanRecord:
        """Read a plan from the body of its entry.

        Before format 3 a plan had only one grade, and a table stored the mechanism's file of a pool's first plan.
        `document` is that file, used if the entry has none.
        """
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
        """The plan as it is written in its entry, if it is the first plan of its pool."""
        members = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        return {**members, "grades": [each.body for each in self.grades]}

    @property
    def state(self) -> tuple[object, ...]:
        """Everything that the pool's epsilon depends on; compare it to see whether a computed epsilon still applies."""
        opened = [(each.name, each.opened_answers, each.debt) for each in self.grades]
        return self.body, opened, [each.state for each in self.earlier]

    def find_grade(self, name: str) -> GradeRecord | None:
        """The grade with this name; None if the plan has no such grade."""
        return next((each for each in self.grades if each.name == name), None)

    @property
    def opened_epsilon(self) -> str:
        """The recorded epsilon of all answers, with extensions, at the plan's delta. It does not cover lost history."""
        return self.more[-1][1] if self.more else self.total or self.epsilon

    @property
    def answers(self) -> int:
        """The answers of all grades as planned, without extensions."""
        return sum(each.answers for each in self.grades)

    @property
    def opened_answers(self) -> int:
        """The answers of all grades, including extensions."""
        return sum(each.opened_answers for each in self.grades)

    @property
    def debt(self) -> int:
        """Answers of all grades that lost history may have given beyond the grades' budgets."""
        return sum(each.debt for each in self.grades)

    @property
    def total_answers(self) -> int:
        """The answers of all plans of the pool, spent or not, including extensions."""
        return self.opened_answers + sum(each.opened_answers for each in self.earlier)


@dataclass(frozen=True)
class Standing:
    """How many answers a grade, a pool or an analyst's share has, and how many of them are spent."""

    answers: int
    spent: int

    @property
    def left(self) -> int:
        return self.answers - self.spent


NOTHING = Standing(0, 0)
"""What is left of a grade or share that is not on record."""


@dataclass(frozen=True)
class Charge:
    """A paid question: the right to one answer of one grade. `payload` is that answer, or None until it is recorded."""

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
    """What is left of each grade of the pool after this charge; None if the charge was made earlier."""


@dataclass(frozen=True)
class Request:
    """A request that may be repeated. `key` and `body` are the hashes of its idempotency key and of its question."""

    key: str
    body: str


class Asked(NamedTuple):
    """A question to be charged. The entry of a charge has these fields, so they are part of the ledger's format."""

    pool: str
    dataset: str
    version: int
    question: str
    text: str
    analyst: str
    grade: str = STANDARD


def canonical(body: Mapping[str, Any]) -> str:
    """The body of an entry as canonical JSON."""
    return _CANONICAL(body)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def entry_hash(previous: str, seq: int, time: str, kind: str, written: str) -> str:
    """The hash of an entry; `written` is its body as canonical JSON."""
    return hashlib.sha256(f"{previous}\n{seq}\n{time}\n{kind}\n{written}".encode()).hexdigest()


def seal(previous: Entry | Link | None, time: str, kind: str, body: Mapping[str, Any], seq: int | None = None) -> Entry:
    """Make the entry that follows `previous`. After a restore, `seq` gives its number, which skips the lost entries."""
    before = previous.hash if previous else START
    number = seq if seq is not None else previous.seq + 1 if previous else 1
    return Entry(number, time, kind, body, before, entry_hash(before, number, time, kind, canonical(body)))


def walk_chain(entries: Iterable[tuple[int, str, str, str, str, str]]) -> Iterable[Entry]:
    """Read entries from rows (seq, time, kind, body, previous, hash); check that each follows from the one before."""
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
    """Parse the body of an entry; text that is not canonical JSON is refused."""
    try:
        body = json.loads(written)
        if isinstance(body, dict) and canonical(body) == written:
            return body
    except (ValueError, RecursionError, TypeError):
        pass
    raise LedgerError(f"the ledger was changed: entry {seq} cannot be read; restore a backup")


def charge_id(entry: Entry) -> str:
    """The public id of a charge. In ledgers without a secret it is the beginning of the entry's hash."""
    return str(entry.body["id"]) if "id" in entry.body else entry.hash[:24]


def changes_plans(kind: str, body: Mapping[str, Any]) -> bool:
    """Whether an entry records a plan, or a restore in which a plan may have been lost.

    A restore that does not say whether a plan was lost counts as one in which it may have been.
    """
    return kind == "plan" or (kind == "restore" and bool(body.get("plan_lost", body["lost"] > 0)))


Keyed = NewType("Keyed", str)
"""An HMAC that nobody can compute without the ledger's secret."""


def new_charge_id() -> str:
    """Draw the public id of a charge. It is random, so it reveals nothing about the data or the number of charges."""
    return _token(12)


class Secret:
    """The ledger's secret key of 256 bits, as text. Its repr does not show it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def draw(cls) -> Secret:
        return cls(_token(32))

    def export(self) -> str:
        """The secret itself, to be stored in the ledger's table."""
        return self._value

    def make_keyed_hash(self, text: str) -> Keyed:
        """HMAC-SHA256 of a text, keyed with the secret."""
        return Keyed(hmac.new(self._value.encode(), text.encode(), hashlib.sha256).hexdigest())

    def seal(self) -> dict[str, str]:
        """What the hash chain stores about the secret: a fresh nonce, and a check value that depends on nonce and
        secret."""
        nonce = _token(32)
        return {"nonce": nonce, "check": self._check(nonce)}

    def test(self, nonce: str, check: str) -> None:
        """Raise an error unless this secret gives the check value that the hash chain stores."""
        if not hmac.compare_digest(self._check(nonce), check):
            raise LedgerError("the ledger's secret is not the one that its entries were made with; restore a backup")

    def _check(self, nonce: str) -> str:
        return self.make_keyed_hash(f"the secret of a ledger\n{nonce}")

    def __repr__(self) -> str:
        return "<Secret>"


def only_secret(rows: list[tuple[str]]) -> Secret:
    """The ledger's secret, from the rows of its table; anything but exactly one row is an error."""
    if len(rows) != 1:
        raise LedgerError(
            "the ledger's secret is missing, so that no version of the data is recognised; "
            "restore a backup that has the secret"
        )
    return Secret(rows[0][0])


def _token(size: int) -> str:
    from countveil.sampling.randomness import token  # loads numpy, which a ledger that is only read does not need

    return token(size)
