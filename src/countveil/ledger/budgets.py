"""Budgets: the plans of a pool and their grades, extensions, and the shares of analysts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from countveil.errors import RequestError
from countveil.ledger.anchor import Anchor
from countveil.ledger.records import STANDARD, Charge, Most, PlanRecord, Standing, changes_plans
from countveil.ledger.store import Store
from countveil.ledger.verification import replay_entries

BUDGETS = "SELECT kind, body, hash FROM entry WHERE kind IN ('plan', 'extend', 'restore') ORDER BY seq"
LAST_BUDGET = f"{BUDGETS.replace('kind, body, hash', 'hash', 1)} DESC LIMIT 1"


class Budgets(Store):
    """The budgets in a ledger: plans, extensions, shares. A pool has one plan at a time; earlier ones stay recorded."""

    def __init__(self, anchor: Anchor, clock: Callable[[], str], step: Callable[[str], None]) -> None:
        super().__init__(anchor, clock, step)
        self._plans: dict[str, tuple[str, PlanRecord]] = {}
        """A cache of plans. By pool: the hash of the last entry on budgets when the plan was read, and the plan."""

    def notes_on_beginning(self) -> tuple[str, ...]:
        """A note if a curator began this ledger in place of another one."""
        told = "instead_of" in json.loads(self._read("SELECT body FROM entry WHERE seq = 1")[0][0])
        note = (
            "this ledger was begun in place of an earlier one, whose answers are not in epsilon: countveil ledger log"
        )
        return (note,) if told else ()

    # -- writing -----------------------------------------------------------------------------------------------------

    def open_plan(self, plan: PlanRecord) -> None:
        """Record a pool's first plan, unless another process has recorded it."""
        with self._transaction("plan"):
            if self._read("SELECT 1 FROM pool WHERE name = ?", (plan.pool,)):
                return  # another process has recorded the pool's plan
            self._append("plan", plan.body)
            self._change("plan:pool", "INSERT INTO pool VALUES (?)", (plan.pool,))
            self._open_grades(plan)

    def _open_grades(self, plan: PlanRecord) -> None:
        """Add the answers of a new plan to its grades.

        Entries that the ledger has lost may have been charges of any grade. So each grade starts with as many answers
        spent as entries were lost.
        """
        lost = self.lost()
        more = (
            "INSERT INTO grade VALUES (?, ?, ?, ?) ON CONFLICT (pool, name) DO UPDATE "
            "SET answers = grade.answers + excluded.answers, spent = grade.spent + excluded.spent"
        )
        for each in plan.grades:
            row = (plan.pool, each.name, each.answers, min(each.answers, lost))
            self._change("plan:grade", more, row)

    def replan(self, plan: PlanRecord, epsilon: str, reason: str, *, since: PlanRecord) -> None:
        """Record a new plan of a pool that has one. All plans of the pool together then cost `epsilon`.

        Unspent answers of earlier plans can no longer be spent, and charges without an answer become void. `since` is
        the plan that `epsilon` was computed from; if the pool has another plan by now, nothing is written.
        """
        pool = plan.pool
        with self._transaction("plan"):
            now = self.plan(pool)
            if now is None or now.state != since.state:
                raise RequestError(f"the plan of pool {pool} changed in the meantime; check the budget and try again")
            charges = self._read(f"SELECT id FROM charge WHERE pool = ? ORDER BY {self.order}", (pool,))
            after = charges[-1][0] if charges else None
            extra = {"reason": reason, "total": epsilon, "after": after, "charges": len(charges)}
            self._append("plan", {**plan.body, **extra})
            self._change("plan:close", "UPDATE grade SET spent = answers WHERE pool = ?", (pool,))
            self._open_grades(plan)
            self._change("plan:share", "UPDATE share SET spent = 0 WHERE pool = ?", (pool,))
            unanswered = "pool = ? AND id NOT IN (SELECT charge FROM answer)"
            self._change("plan:void", f"UPDATE charge SET void = 1 WHERE {unanswered}", (pool,))
            delete = "DELETE FROM request WHERE charge IN (SELECT id FROM charge WHERE void = 1)"
            self._change("plan:request", delete)

    def extend(
        self,
        pool: str,
        answers: int,
        epsilon: str,
        reason: str,
        grade: str = STANDARD,
        *,
        since: PlanRecord | None = None,
    ) -> None:
        """Add answers to a grade of a pool's plan. All answers of all grades together then cost `epsilon`.

        `since` is the plan that `epsilon` was computed from; if the pool's plan has changed, nothing is added.
        """
        if answers < 1:
            raise RequestError(f"cannot add {answers} answers; give at least 1: answers are never taken back")
        with self._transaction("extend"):
            now = self.plan(pool)
            known = None if now is None else now.find_grade(grade)
            if now is None or known is None:
                raise _missing_grade(pool, grade, now)
            if since is not None and now.state != since.state:
                raise RequestError(
                    f"the plan of pool {pool} changed in the meantime (it has {now.total_answers} answers now); "
                    "check the budget and try again"
                )
            owed = min(known.debt, answers)  # a grade with a debt has nothing left
            body = {"pool": pool, "grade": grade, "answers": answers, "epsilon": epsilon, "reason": reason}
            self._append("extend", body)
            more = "UPDATE grade SET answers = answers + ?, spent = spent + ? WHERE pool = ? AND name = ?"
            self._change("extend:row", more, (answers, owed, pool, grade))

    def debt(self, pool: str) -> int:
        """How many answers lost history may have given beyond the budget. Later extensions pay for them first."""
        record = self.plan(pool)
        return 0 if record is None else record.debt

    def lost(self) -> int:
        """How many entries were missing in copies that replaced the ledger. Each grade of a later plan starts with as
        many answers spent."""
        restored = self._read("SELECT body FROM entry WHERE kind = 'restore'")
        return sum(json.loads(body)["lost"] for (body,) in restored)

    def plan_lost(self) -> bool:
        """Whether a plan may have been among the entries that were missing in copies that replaced the ledger."""
        restored = self._read("SELECT body FROM entry WHERE kind = 'restore'")
        return any(changes_plans("restore", json.loads(body)) for (body,) in restored)

    def set_share(self, pool: str, analyst: str, answers: int, grade: str = STANDARD) -> None:
        """Set how many answers of a grade an analyst can pay for."""
        known = "SELECT 1 FROM share WHERE pool = ? AND analyst = ? AND grade = ? AND answers = ?"
        if self._read(known, (pool, analyst, grade, answers)):
            return
        with self._transaction("share"):
            if self._read(known, (pool, analyst, grade, answers)):
                return
            if not self._read("SELECT 1 FROM grade WHERE pool = ? AND name = ?", (pool, grade)):
                raise _missing_grade(pool, grade, self.plan(pool))
            self._append("share", {"pool": pool, "analyst": analyst, "grade": grade, "answers": answers})
            self._change(
                "share:row",
                "INSERT INTO share (pool, analyst, grade, answers, spent) VALUES (?, ?, ?, ?, 0) "
                "ON CONFLICT (pool, analyst, grade) DO UPDATE SET answers = excluded.answers",
                (pool, analyst, grade, answers),
            )

    # -- reading -----------------------------------------------------------------------------------------------------

    def plan(self, pool: str) -> PlanRecord | None:
        """The current plan of a pool, with the plans before it; None if the pool has no plan."""
        last = self._read(LAST_BUDGET)
        known = self._plans.get(pool)
        if known is not None and last and known[0] == last[0][0]:
            return known[1]  # no plan or extension was recorded since, and entries never change
        if not self._read("SELECT 1 FROM pool WHERE name = ?", (pool,)):
            return None
        files = self._read("SELECT document FROM plan WHERE pool = ?", (pool,))  # for a plan from before format 3
        rows_of_budgets = self._read(BUDGETS)
        bodies = ((kind, json.loads(written)) for kind, written, _ in rows_of_budgets)
        plans: list[PlanRecord] = []
        for kind, body in bodies:
            if body.get("pool") != pool:
                continue
            if kind == "extend":
                plans[-1] = _extend(plans[-1], body.get("grade", STANDARD), body["answers"], body["epsilon"])
            else:
                plans.append(PlanRecord.read(body, files[0][0] if files else ""))
        if any(kind == "restore" for kind, _, _ in rows_of_budgets):
            state = replay_entries(self.entries())
            plans = [
                replace(
                    each,
                    grades=tuple(replace(grade, debt=debts[grade.name]) for grade in each.grades),
                    plan_lost=state.plan_lost,
                )
                for each, debts in zip(plans, state.debts[pool], strict=True)
            ]
        record = replace(plans[-1], earlier=tuple(plans[:-1]))
        self._plans[pool] = (rows_of_budgets[-1][2], record)
        return record

    def plan_of(self, charge: Charge) -> PlanRecord | None:
        """The plan under which a charge was made: the pool's last plan before the charge."""
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

    def standings(self, pool: str) -> dict[str, Standing]:
        """What is left of each grade that the pool has ever had. Grades of earlier plans have nothing left."""
        rows = self._read("SELECT name, answers, spent FROM grade WHERE pool = ?", (pool,))
        return {name: Standing(answers, spent) for name, answers, spent in rows}

    def standing(self, pool: str, analyst: str | None = None, grade: str | None = None) -> Standing:
        """What is left of a grade or, if `analyst` is given, of the analyst's share of it. Without a grade: of all
        grades."""
        if analyst is None:
            rows = self._read("SELECT name, answers, spent FROM grade WHERE pool = ?", (pool,))
        else:
            query = "SELECT grade, answers, spent FROM share WHERE pool = ? AND analyst = ?"
            rows = self._read(query, (pool, analyst))
        mine = [Standing(answers, spent) for name, answers, spent in rows if grade in (None, name)]
        return Standing(sum(each.answers for each in mine), sum(each.spent for each in mine))

    def shares(self, pool: str) -> dict[str, dict[str, Standing]]:
        """What is left of each share, by analyst and grade. Shares that were set to 0 are left out."""
        query = (
            "SELECT analyst, grade, answers, spent FROM share WHERE pool = ? AND answers > 0 ORDER BY analyst, grade"
        )
        shares: dict[str, dict[str, Standing]] = {}
        for analyst, grade, answers, spent in self._read(query, (pool,)):
            shares.setdefault(analyst, {})[grade] = Standing(answers, spent)
        return shares

    def spent_by(self, pool: str, analyst: str, grade: str | None = None) -> int:
        """How many answers of a grade an analyst has paid for. Without a grade: of all grades."""
        which, values = ("", ()) if grade is None else (" AND grade = ?", (grade,))
        query = f"SELECT count(*) FROM charge WHERE pool = ? AND analyst = ?{which}"
        return int(self._read(query, (pool, analyst, *values))[0][0])

    def limit(self, pool: str, analyst: str, grade: str, most: Most) -> Standing:
        """An analyst's limit `most`, and what is spent of it: in all grades if `most` is a number, else in `grade`."""
        if isinstance(most, int):
            return Standing(most, self.spent_by(pool, analyst))
        return Standing(most.get(grade, 0), self.spent_by(pool, analyst, grade))


def _missing_grade(pool: str, grade: str, plan: PlanRecord | None) -> RequestError:
    """The error for a grade that a pool does not have: because the pool has no plan, or because its plan lacks it."""
    if plan is None:
        return RequestError(f"pool {pool} has no plan yet; its first question records the configured plan")
    names = ", ".join(each.name for each in plan.grades)
    return RequestError(f"the plan of pool {pool} has no grade {grade}; name one of {names}")


def _extend(plan: PlanRecord, grade: str, answers: int, epsilon: str) -> PlanRecord:
    """The plan with more answers in one of its grades, and the epsilon that all of its answers then cost together."""
    grades = tuple(replace(g, more=g.more + answers) if g.name == grade else g for g in plan.grades)
    return replace(plan, grades=grades, more=(*plan.more, (answers, epsilon)))
