"""The rules of a ledger for charges, answers and requests, the same for every database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from countveil.errors import BudgetError, ConfigError, ConflictError, LedgerError, RequestError, different_units
from countveil.ledger.anchor import Anchor
from countveil.ledger.budgets import Budgets
from countveil.ledger.records import (
    NOTHING,
    STANDARD,
    Asked,
    Charge,
    Keyed,
    Most,
    PlanRecord,
    Request,
    Secret,
    Standing,
    new_charge_id,
    only_secret,
)

_CHARGE = "id, pool, dataset, version, question, text, analyst, charge.time, grade"
_ANSWERED = "answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id"


class Ledger(Budgets):
    """A ledger of plans, charges and answers. The subclasses in `sqlite` and `postgres` provide the database.

    Every change is on disk when the method that makes it returns.
    """

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        super().__init__(anchor, clock, step)
        self._bound: set[tuple[str, str, str, Keyed]] = set()
        self._secret: Secret
        self._sendable: set[str] = set()
        """Ids of charges whose answers may be sent: the answer is on disk, and the anchor has moved past it."""

    # -- the secret --------------------------------------------------------------------------------------------------

    def _load_secret(self) -> Secret:
        self._secret = only_secret(self._read("SELECT value FROM secret"))
        return self._secret

    def make_keyed_hash(self, text: str) -> Keyed:
        """HMAC of a text, keyed with the ledger's secret. Hashes of data are only ever stored in this form."""
        return self._secret.make_keyed_hash(text)

    def _draw_secret(self) -> dict[str, str]:
        """Draw and store the ledger's secret. Return the nonce and the check value that the hash chain stores."""
        secret = Secret.draw()
        self._change("secret:row", "INSERT INTO secret (value) VALUES (?)", (secret.export(),))
        return secret.seal()

    def _begin(self, ledger: str, name: str) -> None:
        """Write the first entry. If a curator begins this ledger in place of others, the entry names them."""
        told = {"instead_of": list(self._earlier.places)} if self._earlier.places else {}
        self._append("open", {"ledger": ledger, **self._draw_secret(), **told})
        self.begun = name

    def _key_versions(self) -> None:
        """Give a secret to a ledger of format 1, which has none, inside the transaction that migrates it."""
        self._append("secret", self._draw_secret())
        secret = self._load_secret()
        for dataset, number, fingerprint in self._read("SELECT dataset, number, fingerprint FROM version"):
            row = (secret.make_keyed_hash(fingerprint), dataset, number)
            self._change("secret:version", "UPDATE version SET fingerprint = ? WHERE dataset = ? AND number = ?", row)

    # -- datasets ----------------------------------------------------------------------------------------------------

    def bind(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> None:
        """Record which pool pays for a dataset and which column is its unit; refuse if others are on record."""
        if (dataset, pool, unit, fingerprint) in self._bound:
            return
        with self._transaction("dataset"):
            if not self.check_binding(dataset, pool, unit, fingerprint):
                self._append("dataset", {"dataset": dataset, "pool": pool, "unit": unit})

    def check_binding(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> bool:
        """Refuse a pool or unit other than the recorded one, and data that another pool pays for. Nothing is written.
        Return whether the dataset is recorded.

        The record of a dataset never changes, so it is cached: looking it up would read all entries.
        """
        if (dataset, pool, unit, fingerprint) in self._bound:
            return True
        known = self.check_pool(dataset, pool, unit)
        same = "SELECT dataset FROM version WHERE substr(fingerprint, 1, ?) = ?"
        content, *_ = fingerprint.partition(".")  # without the paths of files: the same rows are the same people
        for (other,) in self._read(same, (len(content), content)):
            if known.get(other, (pool, ""))[0] != pool:
                raise ConfigError(
                    f"dataset.{dataset}",
                    f"has the same data as {other}, which pool {known[other][0]} pays for; set pool = "
                    f"{_quote(known[other][0])} under its budget: datasets about the same people share one pool",
                )
        if dataset in known:
            self._bound.add((dataset, pool, unit, fingerprint))
        return dataset in known

    def check_pool(self, dataset: str, pool: str, unit: str) -> dict[str, tuple[str, str]]:
        """Refuse a pool or unit that differs from the recorded one, and another unit than the pool's other datasets
        have; return pool and unit of every recorded dataset."""
        bodies = (json.loads(body) for (body,) in self._read("SELECT body FROM entry WHERE kind = 'dataset'"))
        known = {body["dataset"]: (body["pool"], body["unit"]) for body in bodies}
        if known.get(dataset, (pool, unit)) != (pool, unit):
            before = known[dataset]
            raise ConfigError(
                f"dataset.{dataset}",
                "was asked before with another pool or unit; restore these values in countveil.toml: "
                f"pool = {_quote(before[0])} (under budget), unit = {_quote(before[1])}",
            )
        for other, (paying, whose) in known.items():
            if paying == pool and whose != unit:
                raise different_units(dataset, unit, other, whose, pool)
        return known

    def version(self, dataset: str, fingerprint: Keyed) -> int:
        """The version number of a dataset's content. Content that is not known gets a new number, which is recorded."""
        known = self.known_version(dataset, fingerprint)
        if known is not None:
            return known
        with self._transaction("version"):
            known = self.known_version(dataset, fingerprint)
            if known is not None:
                return known
            last = self._read("SELECT max(number) FROM version WHERE dataset = ?", (dataset,))
            number = (last[0][0] or 0) + 1
            body = {"dataset": dataset, "number": number, "keyed_fingerprint": fingerprint}
            self._append("version", body)
            self._change("version:row", "INSERT INTO version VALUES (?, ?, ?)", (dataset, number, fingerprint))
            return number

    def known_version(self, dataset: str, fingerprint: Keyed) -> int | None:
        """The version number of a dataset's content, or None if no question was asked about this content. Writes
        nothing."""
        rows = self._read("SELECT number FROM version WHERE dataset = ? AND fingerprint = ?", (dataset, fingerprint))
        return int(rows[0][0]) if rows else None

    def unkeyed_fingerprints(self) -> frozenset[str]:
        """Hashes of the data that were recorded before the ledger had a secret, and so without a key."""
        bodies = (json.loads(body) for (body,) in self._read("SELECT body FROM entry WHERE kind = 'version'"))
        return frozenset(body["fingerprint"] for body in bodies if "fingerprint" in body)

    def charge(
        self,
        pool: str,
        dataset: str,
        version: int,
        question: str,
        text: str,
        analyst: str,
        grade: str = STANDARD,
        *,
        most: Most | None = None,
        request: Request | None = None,
        plan: PlanRecord | None = None,
    ) -> Charge:
        """Pay for a question in a grade. If the question is already paid for in this grade, return the earlier charge.

        `most` limits how many answers this analyst may pay for. A repeated `request` gets the same charge. If `plan` is
        no longer the pool's plan, nothing is charged.
        """
        asked = Asked(pool, dataset, version, question, text, analyst, grade)
        charge = self.find(pool, dataset, version, question, grade)
        if charge is not None and charge.id in self._sendable:
            self._check_request(charge, analyst, request)
            return charge
        charge = self._commit("charge", lambda: self._pay(asked, most, request, plan), anchored=False)
        self._anchor_answer(charge)
        return charge

    def charge_all(self, asked: Sequence[Asked], plan: PlanRecord) -> list[Charge]:
        """Pay for several questions in one transaction, each in a grade of its own: for all of them, or for none.

        For a question that is already paid for, the earlier charge is returned.
        """
        charges = self._commit("charge", lambda: self._pay_all(asked, plan), anchored=False)
        for charge in charges:
            self._anchor_answer(charge)
        return charges

    def _pay_all(self, asked: Sequence[Asked], plan: PlanRecord) -> list[Charge]:
        """Find or insert the charges of several questions. Every refusal comes before the first write."""
        charges = [self.find(each.pool, each.dataset, each.version, each.question, each.grade) for each in asked]
        new = [each for each, charge in zip(asked, charges, strict=True) if charge is None]
        if new or any(charge is None or charge.payload is None for charge in charges):
            self._check_plan(asked[0].pool, plan)
        standings = [self._check_left(each, None) for each in new]
        made = {each.grade: self._insert_charge(each, *left) for each, left in zip(new, standings, strict=True)}
        return [
            replace(made[each.grade], standings=None) if charge is None else charge
            for each, charge in zip(asked, charges, strict=True)
        ]

    def record_all(self, answers: Sequence[tuple[Charge, bytes]]) -> list[Charge]:
        """Record the answers of several charges in one transaction; return the charges with their recorded answers.

        If another process recorded its answers first, the charges are returned with those.
        """
        recorded = self._commit("answer", lambda: [self._insert_answer(*answer) for answer in answers])
        self._sendable.update(charge.id for charge in recorded)
        return recorded

    def _pay(self, asked: Asked, most: Most | None, request: Request | None, plan: PlanRecord | None) -> Charge:
        """Find the charge of a question, or insert one. A refusal always comes before the first write."""
        charge = self.find(asked.pool, asked.dataset, asked.version, asked.question, asked.grade)
        self._check_request(charge, asked.analyst, request)
        if charge is None or charge.payload is None:
            self._check_plan(asked.pool, plan)
        if charge is None:
            standings, shared = self._check_left(asked, most)
            charge = self._insert_charge(asked, standings, shared)
            if request is not None:
                self._insert_request(charge, asked.analyst, request)
        return charge

    def record(self, charge: Charge, payload: bytes) -> Charge:
        """Record the answer of a charge and return the charge with its answer. If an answer is already recorded, that
        one counts."""
        recorded = self._commit("answer", lambda: self._insert_answer(charge, payload))
        self._sendable.add(charge.id)
        return recorded

    def move_anchor(self) -> None:
        """Move the anchor to the last entry of the ledger."""
        self._commit("settle", lambda: None)

    def _anchor_answer(self, charge: Charge | None) -> None:
        """Before an answer is sent, make sure that the anchor has moved past it.

        Another process may have recorded the answer and died before it moved the anchor.
        """
        if charge is not None and charge.payload is not None and charge.id not in self._sendable:
            self.move_anchor()
            self._sendable.add(charge.id)

    def _check_plan(self, pool: str, plan: PlanRecord | None) -> None:
        """Refuse to charge if `plan` is no longer the pool's current plan."""
        now = None if plan is None else self.plan(pool)
        if plan is not None and (now is None or (now, len(now.earlier)) != (plan, len(plan.earlier))):
            raise RequestError(f"pool {pool} got a new plan in the meantime; nothing was charged; ask again")

    def _check_left(self, asked: Asked, most: Most | None) -> tuple[dict[str, Standing], bool]:
        """Refuse to charge if no answer is left; return what is left of each grade, and whether the pool has shares.

        In a pool with shares, an analyst without a share of the grade cannot pay.
        """
        pool, analyst, grade = asked.pool, asked.analyst, asked.grade
        any_share = "EXISTS (SELECT 1 FROM share WHERE share.pool = grade.pool AND share.answers > 0)"
        rows = self._read(f"SELECT name, answers, spent, {any_share} FROM grade WHERE pool = ?", (pool,))
        standings = {name: Standing(answers, spent) for name, answers, spent, _ in rows}
        shared = any(row[3] for row in rows)
        if standings.get(grade, NOTHING).left < 1:
            raise spent_error(pool, grade, standings, self.plan(pool))
        named = grade if len(standings) > 1 else None
        if shared and (share := self.standing(pool, analyst, grade)).left < 1:
            raise BudgetError(pool, share.answers, analyst, grade=named)
        if most is not None and (limit := self.limit(pool, analyst, grade, most)).left < 1:
            raise BudgetError(pool, limit.answers, analyst, grade=named)
        return standings, shared

    def _insert_charge(self, asked: Asked, standings: dict[str, Standing], shared: bool) -> Charge:
        """Insert a charge. Each UPDATE has a condition that makes it impossible to overspend the grade or the share."""
        pool, analyst, grade = asked.pool, asked.analyst, asked.grade
        id = new_charge_id()
        entry = self._append("charge", {"id": id, **asked._asdict()})
        spend = "UPDATE grade SET spent = spent + 1 WHERE pool = ? AND name = ? AND spent < answers"
        if self._change("charge:spend", spend, (pool, grade)) != 1:
            raise BudgetError(pool, self.standing(pool, grade=grade).answers)
        spend = "UPDATE share SET spent = spent + 1 WHERE pool = ? AND analyst = ? AND grade = ? AND spent < answers"
        if shared and self._change("charge:share", spend, (pool, analyst, grade)) != 1:
            raise BudgetError(pool, self.standing(pool, analyst, grade).answers, analyst)
        row = (id, *asked, entry.time)
        columns = f"id, {', '.join(Asked._fields)}, time"
        self._change("charge:row", f"INSERT INTO charge ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        after = {**standings, grade: Standing(standings[grade].answers, standings[grade].spent + 1)}
        return Charge(id, **asked._asdict(), time=entry.time, fresh=True, standings=after)

    def _insert_answer(self, charge: Charge, payload: bytes) -> Charge:
        """Insert an answer; return the charge with its answer, which is that of another process if it was faster."""
        entry = self._next("answer", {"charge": charge.id, "sha256": hashlib.sha256(payload).hexdigest()})
        first = "INSERT INTO answer SELECT id, ?, ? FROM charge WHERE id = ? AND void = 0 ON CONFLICT DO NOTHING"
        if self._change("answer:row", first, (entry.time, payload, charge.id)) == 1:
            self._put(entry)
            return replace(charge, payload=payload, answered=entry.time)
        recorded = self._read_charge("WHERE id = ? AND void = 0", charge.id)
        if recorded is None:
            raise LedgerError("the charge of this answer is missing or void; nothing was answered; ask again")
        return recorded

    # -- requests that may be repeated --------------------------------------------------------------------------------

    def find_request(self, analyst: str, request: Request) -> Charge | None:
        """The charge of the same request made earlier, or None. Another request with the same idempotency key is
        refused."""
        charge = self._read_request(analyst, request)
        self._anchor_answer(charge)
        return charge

    def _read_request(self, analyst: str, request: Request) -> Charge | None:
        rows = self._read("SELECT body, charge FROM request WHERE analyst = ? AND key = ?", (analyst, request.key))
        if not rows:
            return None
        if rows[0][0] != request.body:
            raise ConflictError("this idempotency key was used for another question; use a new key for a new question")
        return self._read_charge("WHERE id = ? AND void = 0", rows[0][1])

    def _check_request(self, charge: Charge | None, analyst: str, request: Request | None) -> None:
        """Refuse an idempotency key that was already used for another charge, if that charge is answered."""
        before = None if request is None else self._read_request(analyst, request)
        if before is not None and before.payload is not None and (charge is None or before.id != charge.id):
            raise ConflictError("a request with this idempotency key was answered; use a new key for a new question")

    def _insert_request(self, charge: Charge, analyst: str, request: Request) -> None:
        """Record which charge a request made, so that a repetition of the request gets the same charge.

        Nothing is recorded for a question that was paid for before, because the request charged nothing.
        """
        body = {"analyst": analyst, "key": request.key, "body": request.body, "charge": charge.id}
        self._append("request", body)
        self._change(
            "request:row",
            "INSERT INTO request VALUES (?, ?, ?, ?) ON CONFLICT (analyst, key) DO UPDATE SET charge = excluded.charge",
            (analyst, request.key, request.body, charge.id),
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, pool: str, dataset: str, version: int, question: str, grade: str = STANDARD) -> Charge | None:
        """The charge of a question in a grade, whoever paid for it, with its answer if there is one; None if there is
        no charge."""
        which = "WHERE pool = ? AND dataset = ? AND version = ? AND question = ? AND grade = ? AND void = 0"
        return self._read_charge(which, pool, dataset, version, question, grade)

    def find_all(self, pool: str, dataset: str, version: int, question: str) -> list[Charge]:
        """The charges of a question in all grades, with their answers."""
        which = "WHERE pool = ? AND dataset = ? AND version = ? AND question = ? AND void = 0"
        return self._read_charges(which, pool, dataset, version, question)

    def charge_of(self, id: str) -> Charge | None:
        """The charge with this public id, with its answer if there is one; None if there is no such charge."""
        charge = self._read_charge("WHERE id = ? AND void = 0", id)
        self._anchor_answer(charge)
        return charge

    def _read_charge(self, which: str, *values: object) -> Charge | None:
        charges = self._read_charges(which, *values)
        return charges[0] if charges else None

    def _read_charges(self, which: str, *values: object) -> list[Charge]:
        return [Charge(*row) for row in self._read(f"SELECT {_CHARGE}, payload, {_ANSWERED} {which}", values)]

    def charges(self, pool: str | None = None, analyst: str | None = None) -> Iterator[Charge]:
        """The charges, in the order in which they were made and without answers; only of `pool` and `analyst` if these
        are given."""
        rows = self._read(
            f"SELECT {_CHARGE}, NULL, {_ANSWERED} "
            "WHERE (CAST(? AS TEXT) IS NULL OR pool = ?) AND (CAST(? AS TEXT) IS NULL OR analyst = ?) "
            f"ORDER BY charge.{self.order}",
            (pool, pool, analyst, analyst),
        )
        for row in rows:
            yield Charge(*row)


def spent_error(pool: str, grade: str, standings: Mapping[str, Standing], plan: PlanRecord | None) -> BudgetError:
    """The error for a grade that has no answers left.

    It names the other grades that have answers left for questions (not those that pay for publications)."""
    single = standings.keys() if plan is None else {each.name for each in plan.grades if each.is_single}
    others = {name: standings[name].left for name in standings if name in single and standings[name].left > 0}
    if grade not in single:
        others = {}
    publishes = plan is not None and any(each.name == grade and not each.is_single for each in plan.grades)
    named = grade if len(standings) > 1 else None
    return BudgetError(pool, standings.get(grade, NOTHING).answers, grade=named, others=others, publishes=publishes)


def _quote(text: str) -> str:
    """The text as a quoted TOML string."""
    return json.dumps(text, ensure_ascii=False)
