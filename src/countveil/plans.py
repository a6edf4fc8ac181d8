"""A pool's plan: made once, for the most that any of its datasets lets one person do, and never changed silently."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from countveil.accounting import compose, plan
from countveil.accounting.pairs import float_below
from countveil.answers import PoolBudget
from countveil.config import Budget, Config, Dataset
from countveil.errors import BudgetError, ConfigError, ParameterError, RequestError, shortened
from countveil.exact import decimal_text, integer, number
from countveil.intervals import Intervals
from countveil.ledger import Charge, Ledger, PlanRecord, Standing
from countveil.mechanism import Mechanism
from countveil.schema import Schema

MOST_ANSWERS = 10**6
"""Answers that are composed."""
MOST_LOST = 10**4
"""Answers that a restore may have lost and that are composed when an epsilon is stated: more would take too long."""


class Plans:
    """The plans of a configuration's pools: what the ledger has on record, or what would go there first."""

    def __init__(self, config: Config, ledger: Ledger) -> None:
        self._config, self._ledger = config, ledger
        self._lock = threading.Lock()
        self._designed: dict[str, PlanRecord] = {}
        self._stated: dict[str, tuple[PlanRecord, str]] = {}  # by pool
        self._fitting: dict[str, PlanRecord] = {}  # by dataset: the record that was last found to be what the file says
        self._intervals: dict[str, Intervals] = {}

    def of(self, dataset: Dataset, *, opened: bool = False) -> tuple[PlanRecord, Intervals]:
        """The plan of a dataset's pool, refused if the file now says otherwise than the record.

        It goes on record when it must be `opened`: before the first charge, and not when someone looks at what it is.
        """
        budget = dataset.allowed()
        recorded = self._ledger.plan(budget.pool)
        if recorded is None and opened:
            self._ledger.open_plan(self._made(budget))
            recorded = self._ledger.plan(budget.pool)
        record = recorded or self._made(budget)
        if self._fitting.get(dataset.name) is not record:
            check(record, budget, dataset.schema)
            self._fitting[dataset.name] = record
        if recorded is not None and opened:
            shares = budget.shares or {}
            for analyst in {**self._ledger.shares(budget.pool), **shares}:
                self._ledger.set_share(budget.pool, analyst, shares.get(analyst, 0))
        return record, self.intervals(record)

    def of_charge(self, charge: Charge, current: PlanRecord | None = None) -> tuple[PlanRecord, Intervals]:
        """The plan that a charge was made under; `current` is that of new charges, where it is known."""
        if current is not None and not current.earlier:
            return current, self.intervals(current)
        record = self._ledger.plan_of(charge)
        if record is None:
            raise ConfigError(f"pool {charge.pool}", "has no plan on record; verify the ledger")
        return record, self.intervals(record)

    def intervals(self, record: PlanRecord) -> Intervals:
        """The mechanism of a plan, and what its answers say."""
        if record.mechanism not in self._intervals:
            mechanism = Mechanism.from_text(record.document)
            if mechanism.hash != record.mechanism:
                raise ConfigError(
                    f"pool {record.pool}", "the recorded mechanism is not the planned one; verify the ledger"
                )
            self._intervals[record.mechanism] = Intervals(mechanism)
        return self._intervals[record.mechanism]

    def _made(self, budget: Budget) -> PlanRecord:
        """The plan that a budget asks for, designed once; what was lost may have been answers of it."""
        with self._lock:
            made = self._designed.get(budget.pool)
            if made is None:
                made = make(budget, [each.schema for each in self._config.pool(budget.pool)])
            debt, plan_lost = max(0, self._ledger.lost() - made.answers), self._ledger.plan_lost()
            if (made.debt, made.plan_lost) != (debt, plan_lost):
                made = replace(made, debt=debt, plan_lost=plan_lost)
            self._designed[budget.pool] = made
            return made

    # -- what is stated ----------------------------------------------------------------------------------------------

    def epsilon(self, record: PlanRecord) -> str:
        """The epsilon of everything that was opened or may have been answered, at the plan's delta.

        **Guarantee.** Never less than what was spent: answers that lost history may have given are composed too, and
        where a plan may have been lost, whose mechanism nobody knows, there is no number. Worked out once for every
        change of the record.
        """
        known = self._stated.get(record.pool)
        if known is None or known[0] is not record:
            known = self._stated[record.pool] = record, self._composed(record)
        return known[1]

    def _composed(self, record: PlanRecord) -> str:
        if record.plan_lost:
            return "unknown"
        if not record.debt:
            return record.opened_epsilon
        lost = sum(each.debt for each in (*record.earlier, record))
        total = record.total_answers + lost
        if lost > MOST_LOST or total > MOST_ANSWERS:
            return f"unknown, at most {total} answers"
        found = self._with(record, record.opened_answers + record.debt)
        return f"unknown, at most {total} answers" if found is None else found

    def _with(self, record: PlanRecord, answers: int) -> str | None:
        """The epsilon of so many answers of a plan and of all that was opened or lost of the plans before it, at the
        plan's delta, rounded up; None if there is none."""
        if record.plan_lost:
            raise nothing_more(record.pool, "a plan may have been lost with its mechanism")
        known = [*((each, each.opened_answers + each.debt) for each in record.earlier), (record, answers)]
        if sum(k for _, k in known) > MOST_ANSWERS:
            raise nothing_more(record.pool, f"with what was lost these are more than {MOST_ANSWERS:,} answers")
        replaced = any(each.neighbours == "replace" for each, _ in known)
        composed = compose(
            [(self.intervals(each).mechanism, k * each.cells) for each, k in known],
            neighbours="replace" if replaced else "add-remove",
        )
        found = composed.epsilon(float_below(number("delta", record.delta)))
        return None if found is None else decimal_text(Fraction(found.upper), 6, "up")

    # -- budgets -----------------------------------------------------------------------------------------------------

    def pools(self, name: str | None = None) -> list[str]:
        """Every pool that pays for a dataset, or the one with this name, or of the dataset with this name."""
        known = list(dict.fromkeys(d.budget.pool for d in self._config.datasets.values() if d.budget is not None))
        if not known:
            raise ConfigError("dataset", "no dataset has a budget, so there is nothing to ask; declare one")
        if name is None:
            return known
        named = self._config.datasets.get(name)
        wanted = named.budget.pool if named is not None and named.budget is not None else name
        if wanted not in known:
            raise ConfigError(
                "pool", f"{shortened(name)} is neither a dataset with a budget nor a pool; there are {', '.join(known)}"
            )
        return [wanted]

    def _datasets(self, pool: str) -> Sequence[Dataset]:
        """The datasets that a pool pays for; refused, as their questions are, if another one did before."""
        datasets = self._config.pool(pool)
        for each in datasets:
            self._ledger.check_pool(each.name, pool, each.schema.unit)
        return datasets

    def budget(self, pool: str) -> PoolBudget:
        """What is left of a pool."""
        datasets = self._datasets(pool)
        record, intervals = self.of(datasets[0])
        whole, shares = self.standing(datasets[0])
        return PoolBudget(
            pool,
            tuple(dataset.name for dataset in datasets),
            whole.answers,
            whole.left,
            self.epsilon(record),
            record.delta,
            record.mechanism,
            intervals.mechanism.margin_95,
            shares,
            lost_answers(record),
            notes_on(record),
        )

    def extend(self, name: str, answers: int | str, reason: str) -> PoolBudget:
        """Open more answers of a pool's mechanism, on the record."""
        more, words = integer("answers", answers, 1, MOST_ANSWERS), given_reason(reason)
        (pool,) = self.pools(name)
        record, _ = self.of(self._datasets(pool)[0], opened=True)
        epsilon = self._with(record, record.opened_answers + max(more, record.debt))  # what is opened pays the debt
        if epsilon is None:
            raise RequestError(
                f"{more} more answers have no epsilon at delta {record.delta}: the noise was planned for fewer"
            )
        self._ledger.extend(pool, more, epsilon, words, since=record.total_answers)
        return self.budget(pool)

    def replan(self, name: str, reason: str) -> PoolBudget:
        """Make the plan that the configuration now asks for, in a pool that has one, on the record.

        **Guarantee.** What is stated covers everything that was ever opened in the pool, spent or not, and what may
        have been lost, each plan with its own mechanism, bounds and neighbours.
        """
        words, (pool,) = given_reason(reason), self.pools(name)
        budget = self._datasets(pool)[0].allowed()
        before = self._ledger.plan(pool)
        if before is None:
            raise RequestError(f"pool {pool} has no plan yet; its first question makes the one that is configured")
        plan = replace(self._made(budget), earlier=(*before.earlier, replace(before, earlier=())))
        epsilon = self._with(plan, plan.answers + plan.debt)
        if epsilon is None:
            raise RequestError(
                f"all plans of pool {pool} together have no epsilon at delta {plan.delta}; "
                "state a larger delta in countveil.toml"
            )
        self._ledger.replan(plan, epsilon, words, since=before)
        return self.budget(pool)

    # -- what is left ------------------------------------------------------------------------------------------------

    def standing(self, dataset: Dataset) -> tuple[Standing, Mapping[str, Standing]]:
        """What is left of a dataset's pool and of the shares in it, as the next question would find them."""
        budget = dataset.allowed()
        shares = {who: (share, self._ledger.standing(budget.pool, who)) for who, share in (budget.shares or {}).items()}
        if self._ledger.plan(budget.pool) is not None:
            whole = self._ledger.standing(budget.pool)
        else:
            whole = Standing(budget.answers, min(budget.answers, self._ledger.lost()))
        return whole, {who: Standing(share, before.spent) for who, (share, before) in shares.items()}

    def left(self, dataset: Dataset, analyst: str, most: int | None = None) -> int:
        """How many answers of a dataset's pool an analyst, who may pay for at most so many, can still ask for."""
        whole, shares = self.standing(dataset)
        share = shares.get(analyst, Standing(0, 0)).left if shares else whole.left
        if most is not None:
            share = min(share, most - self._ledger.spent_by(dataset.allowed().pool, analyst))
        return max(0, min(whole.left, share))  # a share may have been lowered below what was spent of it

    def check_left(self, dataset: Dataset, analyst: str, most: int | None = None) -> None:
        """Refuse what a charge would be refused for, in the same words."""
        pool, (whole, shares) = dataset.allowed().pool, self.standing(dataset)
        share = shares.get(analyst, Standing(0, 0))
        if whole.left < 1:
            raise BudgetError(pool, whole.answers)
        if shares and share.left < 1:
            raise BudgetError(pool, share.answers, analyst)
        if most is not None and self._ledger.spent_by(pool, analyst) >= most:
            raise BudgetError(pool, most, analyst)


def make(budget: Budget, schemas: Sequence[Schema]) -> PlanRecord:
    """The best mechanism for the answers of a budget, certified for all of them, ready for the ledger."""
    terms: dict[str, Any] = {
        "neighbours": "replace" if any(s.neighbours == "replace" for s in schemas) else "add-remove",
        "cells": max(s.cells_per_person for s in schemas),
        "sensitivity": max(s.rows_per_person for s in schemas),
        "policy": budget.policy,
        "objective": budget.objective,
    }
    mechanism = plan(epsilon=budget.epsilon, delta=budget.delta, answers=budget.answers, **terms).mechanism
    return PlanRecord(
        budget.pool,
        budget.epsilon,
        budget.delta,
        budget.answers,
        mechanism=mechanism.hash,
        document=mechanism.to_text(),
        **terms,
    )


def check(record: PlanRecord, budget: Budget, schema: Schema) -> None:
    """Refuse a configuration that says otherwise than the record."""
    planned = (number("epsilon", record.epsilon), number("delta", record.delta), record.answers)
    wanted = (number("epsilon", budget.epsilon), number("delta", budget.delta), budget.answers)
    if (*planned, record.policy, record.objective) != (*wanted, budget.policy, budget.objective):
        raise ConfigError(
            f"dataset.{schema.name}.budget",
            f"the plan of pool {record.pool} is on record with other values; restore these values in countveil.toml: "
            f'epsilon = "{record.epsilon}", delta = "{record.delta}", answers = {record.answers}, '
            f'policy = "{record.policy}", objective = "{record.objective}"; {or_replan(record)}',
        )
    wide = schema.cells_per_person > record.cells or schema.rows_per_person > record.sensitivity
    if wide or (schema.neighbours == "replace" and record.neighbours != "replace"):
        raise ConfigError(
            f"dataset.{schema.name}",
            f"the plan of pool {record.pool} does not cover these bounds; restore these values in countveil.toml: "
            f"rows_per_person = {record.sensitivity}, cells_per_person = {record.cells}, "
            f'neighbours = "{record.neighbours}"; {or_replan(record)}',
        )


def or_replan(record: PlanRecord) -> str:
    """The way to other values for data that was asked before."""
    return f"or make a new plan on the record: countveil budget {record.pool} --replan --reason WHY"


def lost_answers(record: PlanRecord) -> int | None:
    """Answers that lost history may have given beyond those that were opened; None where nobody knows how many."""
    return None if record.plan_lost else sum(each.debt for each in (*record.earlier, record))


def notes_on(record: PlanRecord) -> tuple[str, ...]:
    """What was decided after answers were seen: composition speaks of decisions made before."""
    seen = "decided after answers were seen, which is on the record and not in the number"
    notes = [f"opened later, {_answers(sum(k for k, _ in record.more))}: {seen}"] if record.more else []
    if record.earlier:
        before, number = sum(each.opened_answers for each in record.earlier), len(record.earlier) + 1
        notes.append(
            f"plan {number} of this pool, made when {_answers(record.charges)} had been paid for: {seen}; "
            f"epsilon covers all {before} answers of the plans before, spent or not"
        )
    if record.plan_lost:
        notes.append("a plan may have been lost, and with it the mechanism of its answers: no epsilon can be stated")
    return tuple(notes)


def nothing_more(pool: str, why: str) -> RequestError:
    """Why a pool can neither be opened nor planned anew, and what is left."""
    return RequestError(
        f"{why}, so no epsilon can be stated and nothing more can be opened in pool {pool}; what was answered stays "
        "free; for people who are in none of its datasets, begin a new pool in a new ledger"
    )


def _answers(number: int) -> str:
    return f"{number} answer{'' if number == 1 else 's'}"


def given_reason(reason: object) -> str:
    """The words of a reason, without anything that a terminal would act on."""
    letters = reason if isinstance(reason, str) else ""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in letters).split())
    if not words:
        raise ParameterError("reason", reason, "a few words that stay on the record")
    return words[:500]
