"""The rules of a ledger, once: what a plan, a charge and an answer are, whatever database keeps them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from countveil.errors import BudgetError, ConfigError, ConflictError, LedgerError, RequestError
from countveil.ledger.anchor import Anchor
from countveil.ledger.records import Asked, Charge, PlanRecord, Request, Standing, replayed
from countveil.ledger.secret import Keyed, Secret, new_charge_id, only_secret
from countveil.ledger.steps import Change, Steps, alone
from countveil.ledger.store import Store

BUDGETS = "SELECT kind, body, hash FROM entry WHERE kind IN ('plan', 'extend', 'restore') ORDER BY seq"
LAST_BUDGET = f"{BUDGETS.replace('kind, body, hash', 'hash', 1)} DESC LIMIT 1"
_CHARGE = "id, pool, dataset, version, question, text, analyst, charge.time"
_FOUND = f"SELECT {_CHARGE}, payload, answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id"

SETTLE = Change("settle", lambda: None)
"""A change that moves the anchor and nothing else."""


class Book(Store):
    """A ledger and its anchor."""

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        super().__init__(anchor, clock, step)
        self._bound: set[tuple[str, str, str, Keyed]] = set()
        self._plans: dict[str, tuple[str, PlanRecord]] = {}
        """Plans that were read, each with the hash of the last entry that set a budget."""
        self._secret: Secret
        self._out: set[str] = set()
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

    # -- budgets -----------------------------------------------------------------------------------------------------

    def open_plan(self, plan: PlanRecord) -> None:
        body = {name: value for name, value in asdict(plan).items() if name not in ("document", "more", "debt")}
        body["document"] = hashlib.sha256(plan.document.encode()).hexdigest()
        with self._transaction("plan"):
            if self._read("SELECT 1 FROM pool WHERE name = ?", (plan.pool,)):
                return  # another process was first; what it planned is what counts
            self._append("plan", body)
            # what was lost may have been charges of this very pool
            row = (plan.pool, plan.answers, min(plan.answers, self.lost()))
            self._change("plan:pool", "INSERT INTO pool VALUES (?, ?, ?)", row)
            self._change("plan:row", "INSERT INTO plan VALUES (?, ?)", (plan.pool, plan.document))

    def extend(self, pool: str, answers: int, epsilon: str, reason: str, *, since: int | None = None) -> None:
        if answers < 1:
            raise RequestError(f"{answers} more answers is nothing to open; answers are never taken back")
        with self._transaction("extend"):
            planned = self.standing(pool).answers
            if since is not None and planned != since:
                raise RequestError(f"pool {pool} was opened to {planned} answers meanwhile; look, and ask again")
            owed = min(self.debt(pool), answers)  # a pool with a debt has nothing left
            self._append("extend", {"pool": pool, "answers": answers, "epsilon": epsilon, "reason": reason})
            more = "UPDATE pool SET answers = answers + ?, spent = spent + ? WHERE name = ?"
            if self._change("extend:row", more, (answers, owed, pool)) != 1:
                raise RequestError(f"there is no plan for pool {pool}; ask a first question")

    def debt(self, pool: str) -> int:
        """Answers that lost history may have given beyond all that the pool had; what is opened later pays them."""
        record = self.plan(pool)
        return 0 if record is None else record.debt

    def lost(self) -> int:
        """Entries that restored copies lacked: every pool that is planned from now on is charged with as many."""
        restored = self._read("SELECT body FROM entry WHERE kind = 'restore'")
        return sum(json.loads(body)["lost"] for (body,) in restored)

    def bind(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> None:
        """Put on record which pool pays for a dataset and who a person is in it; neither ever changes silently."""
        if (dataset, pool, unit, fingerprint) in self._bound:
            return
        with self._transaction("dataset"):
            if not self.check_binding(dataset, pool, unit, fingerprint):
                self._append("dataset", {"dataset": dataset, "pool": pool, "unit": unit})
        self._bound.add((dataset, pool, unit, fingerprint))

    def check_binding(self, dataset: str, pool: str, unit: str, fingerprint: Keyed) -> bool:
        """Refuse what `bind` would refuse, without a change; whether the dataset is on record already."""
        said = (json.loads(body) for (body,) in self._read("SELECT body FROM entry WHERE kind = 'dataset'"))
        known = {body["dataset"]: (body["pool"], body["unit"]) for body in said}
        if known.get(dataset, (pool, unit)) != (pool, unit):
            before = known[dataset]
            raise ConfigError(
                f"dataset.{dataset}",
                "was asked before with another pool or unit; restore these values in countveil.toml: "
                f"pool = {_quoted(before[0])} (under budget), unit = {_quoted(before[1])}",
            )
        for (other,) in self._read("SELECT dataset FROM version WHERE fingerprint = ?", (fingerprint,)):
            if known.get(other, (pool, ""))[0] != pool:
                raise ConfigError(
                    f"dataset.{dataset}",
                    f"its data is that of {other}, which pool {known[other][0]} pays for; set pool = "
                    f"{_quoted(known[other][0])} under its budget: datasets about the same people share one pool",
                )
        return dataset in known

    def set_share(self, pool: str, analyst: str, answers: int) -> None:
        known = "SELECT 1 FROM share WHERE pool = ? AND analyst = ? AND answers = ?"
        if self._read(known, (pool, analyst, answers)):
            return
        with self._transaction("share"):
            if self._read(known, (pool, analyst, answers)):
                return
            if not self._read("SELECT 1 FROM pool WHERE name = ?", (pool,)):
                raise RequestError(f"there is no plan for pool {pool}; ask a first question")
            self._append("share", {"pool": pool, "analyst": analyst, "answers": answers})
            self._change(
                "share:row",
                "INSERT INTO share VALUES (?, ?, ?, 0) "
                "ON CONFLICT (pool, analyst) DO UPDATE SET answers = excluded.answers",
                (pool, analyst, answers),
            )

    def version(self, dataset: str, fingerprint: Keyed) -> int:
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
        """The number of a dataset's content, if it was asked about."""
        rows = self._read("SELECT number FROM version WHERE dataset = ? AND fingerprint = ?", (dataset, fingerprint))
        return int(rows[0][0]) if rows else None

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
    ) -> Charge:
        asked = Asked(pool, dataset, version, question, text, analyst)
        return alone(self, self.charging(asked, most=most, request=request))

    def charging(self, asked: Asked, *, most: int | None = None, request: Request | None = None) -> Steps[Charge]:
        """`charge`, step by step."""
        pool, dataset, version, question, _, analyst = asked
        found = self._find(pool, dataset, version, question)
        if found is not None and found.id in self._out:
            self._check_request(found, analyst, request)
            return found

        def change() -> Charge:  # whatever is refused is refused before anything is written
            charge = self._find(pool, dataset, version, question)
            self._check_request(charge, analyst, request)
            if charge is None:
                charge = self._charged(asked, *self._check_left(pool, analyst, most))
                if request is not None:
                    self._keep(charge, analyst, request)
            return charge

        charge: Charge = yield Change("charge", change, anchored=False)
        if charge.payload is not None:  # it goes out now, and the record of this request with it
            yield SETTLE
            self._out.add(charge.id)
        return charge

    def settle_anchor(self) -> None:
        """Everything that is on record is within the anchor."""
        self.made([SETTLE])[0].outcome()

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

    def _charged(self, asked: Asked, left: int, shared: bool) -> Charge:
        """The guarded statements."""
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

    def record(self, charge: Charge, payload: bytes) -> Charge:
        return alone(self, self.recording(charge, payload))

    def recording(self, charge: Charge, payload: bytes) -> Steps[Charge]:
        """`record`, step by step."""

        def change() -> Charge:
            entry = self._next("answer", {"charge": charge.id, "sha256": hashlib.sha256(payload).hexdigest()})
            first = "INSERT INTO answer SELECT id, ?, ? FROM charge WHERE id = ? AND void = 0 ON CONFLICT DO NOTHING"
            if self._change("answer:row", first, (entry.time, payload, charge.id)) == 1:
                self._put(entry)
                return replace(charge, payload=payload, answered=entry.time)
            found = self._charge_of(charge.id)
            if found is None:
                raise LedgerError("the charge of this answer is gone from the ledger; nothing was answered")
            return found  # another worker was first, and its answer is the answer

        recorded: Charge = yield Change("answer", change)
        self._out.add(charge.id)
        return recorded

    # -- requests that may come again --------------------------------------------------------------------------------

    def requested(self, analyst: str, request: Request) -> Charge | None:
        """The charge that a request was given before; a request of the same key that asks otherwise is refused."""
        return self._settled(self._requested(analyst, request))

    def _requested(self, analyst: str, request: Request) -> Charge | None:
        rows = self._read("SELECT body, charge FROM request WHERE analyst = ? AND key = ?", (analyst, request.key))
        if not rows:
            return None
        if rows[0][0] != request.body:
            raise ConflictError("this idempotency key was used for another question; use a new key for a new question")
        return self._charge_of(rows[0][1])

    def _settled(self, charge: Charge | None) -> Charge | None:
        """An answer that another process recorded, and may have died before it moved the anchor, is within it now."""
        if charge is not None and charge.payload is not None and charge.id not in self._out:
            self.settle_anchor()
            self._out.add(charge.id)
        return charge

    def _check_request(self, charge: Charge | None, analyst: str, request: Request | None) -> None:
        """Refuse an idempotency key that has the answer of another charge than its request would get now."""
        before = None if request is None else self._requested(analyst, request)
        if before is not None and before.payload is not None and (charge is None or before.id != charge.id):
            raise ConflictError("this idempotency key has its answer; use a new key for a new question")

    def _keep(self, charge: Charge, analyst: str, request: Request) -> None:
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
        return self._find(pool, dataset, version, question)

    def _find(self, pool: str, dataset: str, version: int, question: str) -> Charge | None:
        which = "WHERE pool = ? AND dataset = ? AND version = ? AND question = ? AND void = 0"
        rows = self._read(f"{_FOUND} {which}", (pool, dataset, version, question))
        return replace(_charge(rows[0]), payload=rows[0][8], answered=rows[0][9]) if rows else None

    def charge_of(self, id: str) -> Charge | None:
        """A charge by its public name, with its answer if there is one."""
        return self._settled(self._charge_of(id))

    def _charge_of(self, id: str) -> Charge | None:
        rows = self._read(f"{_FOUND} WHERE id = ? AND void = 0", (id,))
        return replace(_charge(rows[0]), payload=rows[0][8], answered=rows[0][9]) if rows else None

    def spent_by(self, pool: str, analyst: str) -> int:
        """How many answers of a pool an analyst has paid for."""
        return int(self._read("SELECT count(*) FROM charge WHERE pool = ? AND analyst = ?", (pool, analyst))[0][0])

    def plan(self, pool: str) -> PlanRecord | None:
        last = self._read(LAST_BUDGET)
        known = self._plans.get(pool)
        if known is not None and last and known[0] == last[0][0]:
            return known[1]  # no budget was set since: the chain behind an entry never changes
        rows = self._read("SELECT document FROM plan WHERE pool = ?", (pool,))
        if not rows:
            return None
        said = self._read(BUDGETS)
        plan, *more = [body for _, written, _ in said if (body := json.loads(written)).get("pool") == pool]
        opened = tuple((body["answers"], body["epsilon"]) for body in more)
        restored = any(kind == "restore" for kind, _, _ in said)
        debt = replayed(self.entries()).debts[pool] if restored else 0
        record = PlanRecord(**{**plan, "document": rows[0][0]}, more=opened, debt=debt)
        self._plans[pool] = (said[-1][2], record)
        return record

    def standing(self, pool: str, analyst: str | None = None) -> Standing:
        if analyst is None:
            rows = self._read("SELECT answers, spent FROM pool WHERE name = ?", (pool,))
        else:
            rows = self._read("SELECT answers, spent FROM share WHERE pool = ? AND analyst = ?", (pool, analyst))
        return Standing(*rows[0]) if rows else Standing(0, 0)

    def shares(self, pool: str) -> dict[str, Standing]:
        """The shares that are set; one that was taken back is not among them."""
        rows = self._read(
            "SELECT analyst, answers, spent FROM share WHERE pool = ? AND answers > 0 ORDER BY analyst", (pool,)
        )
        return {analyst: Standing(answers, spent) for analyst, answers, spent in rows}

    def charges(self, pool: str | None = None, analyst: str | None = None) -> Iterator[Charge]:
        rows = self._read(
            f"SELECT {_CHARGE}, answer.time FROM charge LEFT JOIN answer ON answer.charge = charge.id "
            "WHERE (CAST(? AS TEXT) IS NULL OR pool = ?) AND (CAST(? AS TEXT) IS NULL OR analyst = ?) "
            f"ORDER BY charge.{self.order}",
            (pool, pool, analyst, analyst),
        )
        for row in rows:
            yield replace(_charge(row), answered=row[8])


def _quoted(text: str) -> str:
    """As a value of TOML."""
    return json.dumps(text, ensure_ascii=False)


def _charge(row: tuple[Any, ...]) -> Charge:
    id, pool, dataset, version, question, text, analyst, time = row[:8]
    return Charge(id, pool, dataset, version, question, text, analyst, time)
