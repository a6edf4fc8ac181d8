"""The rules of a ledger: what a charge, an answer and a request are, whatever database keeps them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from countveil.errors import BudgetError, ConfigError, ConflictError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor
from countveil.ledger.budgets import Budgets
from countveil.ledger.records import Asked, Charge, Keyed, PlanRecord, Request, Secret, new_charge_id, only_secret

_CHARGE = "id, pool, dataset, version, question, text, analyst, charge.time"
_ANSWERED = "answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id"


class Ledger(Budgets):
    """What a plan, a charge and an answer are. A database brings the connection: see `sqlite` and `postgres`.

    Every change is durable when its method returns.
    """

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        super().__init__(anchor, clock, step)
        self._bound: set[tuple[str, str, str, Keyed]] = set()
        self._secret: Secret
        self._sendable: set[str] = set()
        """Charges whose answers this process knows to be on disk and within the anchor."""

    # -- the secret --------------------------------------------------------------------------------------------------

    def _load_secret(self) -> Secret:
        self._secret = only_secret(self._read("SELECT value FROM secret"))
        return self._secret

    def keyed(self, text: str) -> Keyed:
        """A hash of data, or anything else, as it may be stored: keyed with the ledger's secret."""
        return self._secret.keyed(text)

    def _draw_secret(self) -> dict[str, str]:
        """Give the ledger its secret; what the chain holds of it."""
        secret = Secret.draw()
        self._change("secret:row", "INSERT INTO secret (value) VALUES (?)", (secret.export(),))
        return secret.seal()

    def _key_versions(self) -> None:
        """Give a ledger of format 1 its secret, in the middle of its migration."""
        self._append("secret", self._draw_secret())
        secret = self._load_secret()
        for dataset, number, fingerprint in self._read("SELECT dataset, number, fingerprint FROM version"):
            row = (secret.keyed(fingerprint), dataset, number)
            self._change("secret:version", "UPDATE version SET fingerprint = ? WHERE dataset = ? AND number = ?", row)

    # -- datasets ----------------------------------------------------------------------------------------------------

    def bind(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> None:
        """Put on record which pool pays for a dataset and who a person is in it; neither ever changes silently."""
        if (dataset, pool, unit, fingerprint) in self._bound:
            return
        with self._transaction("dataset"):
            if not self.check_binding(dataset, pool, unit, fingerprint):
                self._append("dataset", {"dataset": dataset, "pool": pool, "unit": unit})

    def check_binding(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> bool:
        """Refuse what `bind` would refuse, without a change; whether the dataset is on record already.

        What is on record stays there, so a binding that was found is not looked up again: that reads all entries.
        """
        if (dataset, pool, unit, fingerprint) in self._bound:
            return True
        known = self.check_pool(dataset, pool, unit)
        same = "SELECT dataset FROM version WHERE substr(fingerprint, 1, ?) = ?"
        content = fingerprint.partition(".")[0]  # without the folders of files: they do not make other people
        for (other,) in self._read(same, (len(content), content)):
            if known.get(other, (pool, ""))[0] != pool:
                raise ConfigError(
                    f"dataset.{dataset}",
                    f"its data is that of {other}, which pool {known[other][0]} pays for; set pool = "
                    f"{_quoted(known[other][0])} under its budget: datasets about the same people share one pool",
                )
        if dataset in known:
            self._bound.add((dataset, pool, unit, fingerprint))
        return dataset in known

    def check_pool(self, dataset: str, pool: str, unit: str) -> dict[str, tuple[str, str]]:
        """Refuse another pool or unit than a dataset was asked with, whatever its data; those of all on record."""
        said = (json.loads(body) for (body,) in self._read("SELECT body FROM entry WHERE kind = 'dataset'"))
        known = {body["dataset"]: (body["pool"], body["unit"]) for body in said}
        if known.get(dataset, (pool, unit)) != (pool, unit):
            before = known[dataset]
            raise ConfigError(
                f"dataset.{dataset}",
                "was asked before with another pool or unit; restore these values in countveil.toml: "
                f"pool = {_quoted(before[0])} (under budget), unit = {_quoted(before[1])}",
            )
        return known

    def version(self, dataset: str, fingerprint: Keyed) -> int:
        """The number of a dataset's content, a new one for new content."""
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
        """The number of a dataset's content, if it was asked about; nothing is written."""
        rows = self._read("SELECT number FROM version WHERE dataset = ? AND fingerprint = ?", (dataset, fingerprint))
        return int(rows[0][0]) if rows else None

    def unkeyed_fingerprints(self) -> frozenset[str]:
        """The hashes of data that was asked before the ledger had a secret."""
        said = (json.loads(body) for (body,) in self._read("SELECT body FROM entry WHERE kind = 'version'"))
        return frozenset(body["fingerprint"] for body in said if "fingerprint" in body)

    def charge(
        self,
        pool: str,
        dataset: str,
        version: int,
        question: str,
        text: str,
        analyst: str,
        *,
        most: int | None = None,
        request: Request | None = None,
        plan: PlanRecord | None = None,
    ) -> Charge:
        """Pay for a question, once. A question already paid for is found, not paid again.

        `most` is how many answers of the pool this analyst may pay for; `request` gets this charge from now on. Nothing
        is charged if `plan`, whose mechanism is to answer, is no longer the plan of the pool.
        """
        asked = Asked(pool, dataset, version, question, text, analyst)
        charge = self.find(pool, dataset, version, question)
        if charge is not None and charge.id in self._sendable:
            self._check_request(charge, analyst, request)
            return charge
        charge = self._commit("charge", lambda: self._pay(asked, most, request, plan), anchored=False)
        self._anchor_answer(charge)
        return charge

    def _pay(self, asked: Asked, most: int | None, request: Request | None, plan: PlanRecord | None) -> Charge:
        """The charge of a question, made if there is none; what is refused is refused before anything is written."""
        charge = self.find(asked.pool, asked.dataset, asked.version, asked.question)
        self._check_request(charge, asked.analyst, request)
        if charge is None or charge.payload is None:
            self._check_plan(asked.pool, plan)
        if charge is None:
            left, shared = self._check_left(asked.pool, asked.analyst, most)
            charge = self._insert_charge(asked, left, shared)
            if request is not None:
                self._insert_request(charge, asked.analyst, request)
        return charge

    def record(self, charge: Charge, payload: bytes) -> Charge:
        """Keep the answer of a charge. The first answer recorded is the answer: the charge comes back with it."""
        recorded = self._commit("answer", lambda: self._insert_answer(charge, payload))
        self._sendable.add(charge.id)
        return recorded

    def move_anchor(self) -> None:
        """Move the anchor to the last entry."""
        self._commit("settle", lambda: None)

    def _anchor_answer(self, charge: Charge | None) -> None:
        """Before the answer of a charge goes out, the anchor covers it: another process may have recorded the answer
        and died before it moved the anchor."""
        if charge is not None and charge.payload is not None and charge.id not in self._sendable:
            self.move_anchor()
            self._sendable.add(charge.id)

    def _check_plan(self, pool: str, plan: PlanRecord | None) -> None:
        """Refuse a charge that would be answered by the mechanism of a plan that another one has followed."""
        now = None if plan is None else self.plan(pool)
        if plan is not None and (now is None or (now, len(now.earlier)) != (plan, len(plan.earlier))):
            raise RequestError(f"pool {pool} got a new plan meanwhile; nothing was charged; ask again")

    def _check_left(self, pool: str, analyst: str, most: int | None) -> tuple[int, bool]:
        """Refuse what the budget does not cover. What is left of the pool, and whether it has shares: then who has none
        has nothing."""
        any_share = "EXISTS (SELECT 1 FROM share WHERE share.pool = p.name AND share.answers > 0)"
        rows = self._read(f"SELECT answers, spent, {any_share} FROM pool AS p WHERE name = ?", (pool,))
        answers, spent, shared = rows[0] if rows else (0, 0, False)
        if spent >= answers:
            raise BudgetError(pool, answers)
        if shared and (share := self.standing(pool, analyst)).left < 1:
            raise BudgetError(pool, share.answers, analyst)
        if most is not None and self.spent_by(pool, analyst) >= most:
            raise BudgetError(pool, most, analyst)
        return answers - spent, bool(shared)

    def _insert_charge(self, asked: Asked, left: int, shared: bool) -> Charge:
        """The guarded statements of a charge."""
        pool, analyst = asked.pool, asked.analyst
        id = new_charge_id()
        entry = self._append("charge", {"id": id, **asked._asdict()})
        spend = "UPDATE pool SET spent = spent + 1 WHERE name = ? AND spent < answers"
        if self._change("charge:spend", spend, (pool,)) != 1:
            raise BudgetError(pool, self.standing(pool).answers)
        spend = "UPDATE share SET spent = spent + 1 WHERE pool = ? AND analyst = ? AND spent < answers"
        if shared and self._change("charge:share", spend, (pool, analyst)) != 1:
            raise BudgetError(pool, self.standing(pool, analyst).answers, analyst)
        row = (id, *asked, entry.time)
        self._change("charge:row", "INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", row)
        return Charge(*row, fresh=True, left=left - 1)

    def _insert_answer(self, charge: Charge, payload: bytes) -> Charge:
        """The charge with its answer: this one, or the one of another worker who was first."""
        entry = self._next("answer", {"charge": charge.id, "sha256": hashlib.sha256(payload).hexdigest()})
        first = "INSERT INTO answer SELECT id, ?, ? FROM charge WHERE id = ? AND void = 0 ON CONFLICT DO NOTHING"
        if self._change("answer:row", first, (entry.time, payload, charge.id)) == 1:
            self._put(entry)
            return replace(charge, payload=payload, answered=entry.time)
        recorded = self._read_charge("WHERE id = ? AND void = 0", charge.id)
        if recorded is None:
            raise LedgerError("the charge of this answer is gone from the ledger; nothing was answered")
        return recorded

    # -- requests that may come again --------------------------------------------------------------------------------

    def requested(self, analyst: str, request: Request) -> Charge | None:
        """The charge that the same request got before; another request under the same key is refused."""
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
        """Refuse an idempotency key that has the answer of another charge than its request would get now."""
        before = None if request is None else self._read_request(analyst, request)
        if before is not None and before.payload is not None and (charge is None or before.id != charge.id):
            raise ConflictError("this idempotency key has its answer; use a new key for a new question")

    def _insert_request(self, charge: Charge, analyst: str, request: Request) -> None:
        """Put on record which charge a request paid for, so that the same request gets it again whatever has changed.

        A request that is answered from the record pays nothing, and nothing is written for it.
        """
        body = {"analyst": analyst, "key": request.key, "body": request.body, "charge": charge.id}
        self._append("request", body)
        self._change(
            "request:row",
            "INSERT INTO request VALUES (?, ?, ?, ?) ON CONFLICT (analyst, key) DO UPDATE SET charge = excluded.charge",
            (analyst, request.key, request.body, charge.id),
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, pool: str, dataset: str, version: int, question: str) -> Charge | None:
        """The charge of a question, whoever asked it, with its answer if there is one."""
        which = "WHERE pool = ? AND dataset = ? AND version = ? AND question = ? AND void = 0"
        return self._read_charge(which, pool, dataset, version, question)

    def charge_of(self, id: str) -> Charge | None:
        """A charge by its public name, with its answer if there is one."""
        charge = self._read_charge("WHERE id = ? AND void = 0", id)
        self._anchor_answer(charge)
        return charge

    def _read_charge(self, which: str, *values: object) -> Charge | None:
        rows = self._read(f"SELECT {_CHARGE}, payload, {_ANSWERED} {which}", values)
        return Charge(*rows[0]) if rows else None

    def charges(self, pool: str | None = None, analyst: str | None = None) -> Iterator[Charge]:
        """The charges of a pool and an analyst, or of all, in the order in which they were made, without answers."""
        rows = self._read(
            f"SELECT {_CHARGE}, NULL, {_ANSWERED} "
            "WHERE (CAST(? AS TEXT) IS NULL OR pool = ?) AND (CAST(? AS TEXT) IS NULL OR analyst = ?) "
            f"ORDER BY charge.{self.order}",
            (pool, pool, analyst, analyst),
        )
        for row in rows:
            yield Charge(*row)


def _quoted(text: str) -> str:
    """As a value of TOML."""
    return json.dumps(text, ensure_ascii=False)
