"""Who may spend what: the plans of a pool, what was opened in it, and the shares of analysts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from countveil.errors import RequestError
from countveil.ledger.anchor import Anchor
from countveil.ledger.checking import replayed
from countveil.ledger.records import Charge, PlanRecord, Standing, changes_plans
from countveil.ledger.store import Store

BUDGETS = "SELECT kind, body, hash FROM entry WHERE kind IN ('plan', 'extend', 'restore') ORDER BY seq"
LAST_BUDGET = f"{BUDGETS.replace('kind, body, hash', 'hash', 1)} DESC LIMIT 1"


class Budgets(Store):
    """The budgets of a ledger. A pool has one plan at a time; what is set stays on the record."""

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        super().__init__(anchor, clock, step)
        self._plans: dict[str, tuple[str, PlanRecord]] = {}
        """Plans that were read, each with the hash of the last entry that set a budget."""

    # -- setting them ------------------------------------------------------------------------------------------------

    def open_plan(self, plan: PlanRecord) -> None:
        """Put a pool's first plan on the record."""
        with self._transaction("plan"):
            if self._read("SELECT 1 FROM pool WHERE name = ?", (plan.pool,)):
                return  # another process was first; what it planned is what counts
            self._append("plan", plan.body)
            # what was lost may have been charges of this very pool
            row = (plan.pool, plan.answers, min(plan.answers, self.lost()))
            self._change("plan:pool", "INSERT INTO pool VALUES (?, ?, ?)", row)
            self._change("plan:row", "INSERT INTO plan VALUES (?, ?)", (plan.pool, plan.document))

    def replan(self, plan: PlanRecord, epsilon: str, reason: str, *, since: PlanRecord) -> None:
        """Put a further plan of a pool on the record; with all that was ever opened in the pool it costs `epsilon`.

        What is left of the plans before can no longer be spent, and what was paid and not answered is void. `since` is
        the plan that there was when `epsilon` was worked out; if it is no longer so, nothing is written.
        """
        pool = plan.pool
        with self._transaction("plan"):
            now = self.plan(pool)
            if now is None or now.state != since.state:
                raise RequestError(f"the plan of pool {pool} was changed meanwhile; look, and ask again")
            charges = self._read(f"SELECT id FROM charge WHERE pool = ? ORDER BY {self.order}", (pool,))
            after = charges[-1][0] if charges else None
            told = {"reason": reason, "total": epsilon, "after": after, "charges": len(charges)}
            self._append("plan", {**plan.body, **told, "file": plan.document})
            spend = "UPDATE pool SET spent = answers + ?, answers = answers + ? WHERE name = ?"
            self._change("plan:pool", spend, (min(plan.answers, self.lost()), plan.answers, pool))
            self._change("plan:share", "UPDATE share SET spent = 0 WHERE pool = ?", (pool,))
            open_ones = "pool = ? AND id NOT IN (SELECT charge FROM answer)"
            self._change("plan:void", f"UPDATE charge SET void = 1 WHERE {open_ones}", (pool,))
            gone = "DELETE FROM request WHERE charge IN (SELECT id FROM charge WHERE void = 1)"
            self._change("plan:request", gone)

    def extend(self, pool: str, answers: int, epsilon: str, reason: str, *, since: int | None = None) -> None:
        """Open more answers of a pool's mechanism; all of them then cost `epsilon` together.

        `since` is how many there were when `epsilon` was worked out; if it is no longer so, nothing is opened.
        """
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

    def plan_lost(self) -> bool:
        """Whether a plan may have been among the entries that restored copies lacked."""
        restored = self._read("SELECT body FROM entry WHERE kind = 'restore'")
        return any(changes_plans("restore", json.loads(body)) for (body,) in restored)

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

    # -- reading -----------------------------------------------------------------------------------------------------

    def plan(self, pool: str) -> PlanRecord | None:
        """The plan that new questions of a pool are answered under, with the plans before it."""
        last = self._read(LAST_BUDGET)
        known = self._plans.get(pool)
        if known is not None and last and known[0] == last[0][0]:
            return known[1]  # no budget was set since: the chain behind an entry never changes
        rows = self._read("SELECT document FROM plan WHERE pool = ?", (pool,))
        if not rows:
            return None
        said = self._read(BUDGETS)
        told = [(kind, body) for kind, written, _ in said if (body := json.loads(written)).get("pool") == pool]
        plans: list[PlanRecord] = []
        for kind, body in told:
            if kind == "extend":
                plans[-1] = replace(plans[-1], more=(*plans[-1].more, (body["answers"], body["epsilon"])))
            else:
                document = body.pop("file", rows[0][0])
                body.pop("reason", None)
                plans.append(PlanRecord(**{**body, "document": document}))
        if any(kind == "restore" for kind, _, _ in said):
            state = replayed(self.entries())
            owed = zip(plans, state.debts[pool], strict=True)
            plans = [replace(each, debt=debt, plan_lost=state.plan_lost) for each, debt in owed]
        record = replace(plans[-1], earlier=tuple(plans[:-1]))
        self._plans[pool] = (said[-1][2], record)
        return record

    def plan_of(self, charge: Charge) -> PlanRecord | None:
        """The plan that a charge was made under: charges come before the next plan, or after it."""
        record = self.plan(charge.pool)
        if record is None or not record.earlier:
            return record
        plans = (*record.earlier, record)
        ids = [charge.id, *(each.after for each in plans[1:] if each.after is not None)]
        marks = ", ".join("?" * len(ids))
        order: dict[str, int] = dict(
            self._read(f"SELECT id, {self.order} FROM charge WHERE id IN ({marks})", tuple(ids))
        )
        later = [each for each in plans[1:] if each.after is None or order[each.after] < order[charge.id]]
        return plans[len(later)]

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

    def spent_by(self, pool: str, analyst: str) -> int:
        """How many answers of a pool an analyst has paid for."""
        return int(self._read("SELECT count(*) FROM charge WHERE pool = ? AND analyst = ?", (pool, analyst))[0][0])
