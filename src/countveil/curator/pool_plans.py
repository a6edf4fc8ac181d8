"""The plan of each pool: designed once, for the widest contribution bounds of its datasets, and never changed silently.

A plan has grades: answers of different accuracy, each with its own mechanism. The plan's epsilon covers all grades.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from countveil.accounting import compose
from countveil.accounting.privacy_loss import float_below
from countveil.config.budget import Budget
from countveil.config.configuration import Config, Dataset
from countveil.curator import plan_records
from countveil.curator.plan_records import add_answers, add_losses, given_reason, lost_answers, notes_on, nothing_more
from countveil.curator.receipts import GradeBudget, PoolBudget, Receipt, describe_grade, sum_share
from countveil.errors import BudgetError, ConfigError, LedgerError, ParameterError, RequestError, shorten
from countveil.ledger import Charge, GradeRecord, Ledger, Most, PlanRecord, Standing
from countveil.ledger.ledger import spent_error
from countveil.ledger.records import NOTHING
from countveil.mechanism.intervals import Intervals
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text, integer, number
from countveil.publication.layout import Layout, lay_out

CURATOR = "curator"
"""The analyst of questions that name none, and of publications."""
MOST_ANSWERS = 10**6
"""The most answers for which an epsilon is computed."""
MOST_LOST = 10**4
"""The most answers of lost history for which an epsilon is computed; more would take too long."""


class Plans:
    """The plans of all pools of a configuration: recorded in the ledger, or as the first question would record them."""

    def __init__(self, config: Config, ledger: Ledger) -> None:
        self._config, self._ledger = config, ledger
        self._lock = threading.Lock()
        self._new_plans: dict[str, PlanRecord] = {}  # by pool
        self._epsilons: dict[str, tuple[PlanRecord, str]] = {}  # by pool
        self._valid_records: dict[str, PlanRecord] = {}  # by dataset: the last record that matched the configuration
        self._intervals: dict[str, Intervals] = {}  # by the hash of their mechanism
        self._layouts: dict[str, list[Layout]] = {}

    def publications(self, pool: str) -> list[Layout]:
        """The layouts of the publications that a pool pays for."""
        if pool not in self._layouts:
            schemas = ((each, self._config.dataset(each.dataset).schema) for each in self._config.publications_of(pool))
            self._layouts[pool] = [lay_out(*each) for each in schemas]
        return self._layouts[pool]

    def of(self, dataset: Dataset, *, opened: bool = False) -> PlanRecord:
        """The plan of a dataset's pool. An error if the configuration differs from the recorded plan.

        With `opened`, a new plan is recorded. This is done before the first charge, but not for dry runs.
        """
        budget = dataset.require_budget()
        recorded = self._ledger.plan(budget.pool)
        if recorded is None and opened:
            self._ledger.open_plan(self._make_plan(budget))
            recorded = self._ledger.plan(budget.pool)
        record = recorded or self._make_plan(budget)
        if self._valid_records.get(dataset.name) is not record:
            plan_records.check(record, budget, dataset.schema, self.publications(budget.pool))
            self._valid_records[dataset.name] = record
        if recorded is not None and opened:
            self._set_shares(budget, recorded)
        return record

    def _set_shares(self, budget: Budget, record: PlanRecord) -> None:
        """Record the configured shares. A recorded share that is no longer configured becomes 0. In a pool with shares,
        the curator has all answers of the grades of publications."""
        shares = (budget.shares or {}).items()
        wanted = {(who, grade): answers for who, mine in shares for grade, answers in mine.items()}
        if wanted:
            wanted |= {(CURATOR, each.name): each.opened_answers for each in record.grades if not each.is_single}
        recorded = {(who, grade): 0 for who, mine in self._ledger.shares(budget.pool).items() for grade in mine}
        for (who, grade), answers in {**recorded, **wanted}.items():
            self._ledger.set_share(budget.pool, who, answers, grade)

    # -- grades ------------------------------------------------------------------------------------------------------

    def check_grade(self, dataset: Dataset, grade: str | None) -> None:
        """Refuse a grade that pays for publications, or that the dataset's pool does not have and never had."""
        budget = dataset.require_budget()
        if grade is None:
            return
        if any(grade in each.grades for each in self._config.publications_of(budget.pool)):
            raise ParameterError("grade", grade, "a grade of single questions", "countveil publish pays with this one")
        if grade not in budget.grades and grade not in self._ledger.standings(budget.pool):
            raise ParameterError("grade", grade, f"a grade of pool {budget.pool}: {', '.join(budget.grades)}")

    def default_grade(self, dataset: Dataset) -> str:
        """The grade of questions that name none; the first one, if the budget pays for publications only."""
        return dataset.require_budget().default_grade or self.of(dataset).grades[0].name

    def choose_grade(self, dataset: Dataset, record: PlanRecord, version: int, question: str) -> str:
        """The grade for a question that names none: the finest grade in which the question has a recorded answer, else
        the finest in which it is paid for, else the default grade."""
        paid = self._ledger.find_all(record.pool, dataset.name, version, question)
        known = [each for each in paid if each.payload is not None] or paid
        if known:
            return min(known, key=lambda each: self._error_of(each, record)).grade
        if not dataset.require_budget().default_grade:
            raise RequestError(
                f"the budget of {dataset.name} pays for publications only; a curator can add answers to the budget in "
                f"countveil.toml, then: countveil budget {record.pool} --replan --reason WHY"
            )
        return dataset.require_budget().default_grade

    def _error_of(self, charge: Charge, record: PlanRecord) -> tuple[int, Fraction]:
        """A sort key for charges, the most accurate first: by 95 % margin, then by variance."""
        mechanism = self.of_charge(charge, record).mechanism
        return mechanism.margin_95, mechanism.certificate.variance

    def of_grade(self, record: PlanRecord, name: str) -> Intervals:
        """The intervals of the mechanism of a grade, which give the margins of its answers."""
        grade = record.find_grade(name)
        if grade is None:
            raise ConfigError(f"pool {record.pool}", f"has no grade {shorten(name)} on record; verify the ledger")
        return self._intervals_of(record, grade)

    def of_charge(self, charge: Charge, current: PlanRecord | None = None) -> Intervals:
        """The intervals of the mechanism that answers a charge: that of its grade, in the plan under which it was made.

        `current` is the plan for new charges, if the caller has it.
        """
        new = current is not None and (charge.fresh or not current.earlier)
        record = current if new else self._ledger.plan_of(charge)
        if record is None:
            raise ConfigError(f"pool {charge.pool}", "has no plan on record; verify the ledger")
        return self.of_grade(record, charge.grade)

    def _intervals_of(self, record: PlanRecord, grade: GradeRecord) -> Intervals:
        if grade.mechanism not in self._intervals:
            mechanism = Mechanism.from_text(grade.document)
            if mechanism.hash != grade.mechanism:
                raise ConfigError(
                    f"pool {record.pool}", "the recorded mechanism differs from the planned one; verify the ledger"
                )
            self._intervals[grade.mechanism] = Intervals(mechanism)
        return self._intervals[grade.mechanism]

    def _make_plan(self, budget: Budget) -> PlanRecord:
        """Design the plan of a budget, or take it from the cache.

        If the ledger lost more entries than a grade has answers, the difference is the debt of that grade.
        """
        with self._lock:
            record = self._new_plans.get(budget.pool)
            if record is None:
                schemas = [each.schema for each in self._config.pool(budget.pool)]
                record = plan_records.make(budget, schemas, self.publications(budget.pool))
            record = self._new_plans[budget.pool] = add_losses(record, self._ledger)
            return record

    def imagine(self, budget: Budget, publications: Sequence[Layout]) -> tuple[PlanRecord, str]:
        """The plan that a pool would get with another budget or other publications, and the epsilon that would then be
        stated: if a plan is on record, that of both plans together."""
        schemas = [each.schema for each in self._config.pool(budget.pool)]
        plan = add_losses(plan_records.make(budget, schemas, publications), self._ledger)
        before = self._ledger.plan(budget.pool)
        return (plan, self._compose_epsilon(plan)) if before is None else self._append(plan, before)

    def _append(self, plan: PlanRecord, before: PlanRecord) -> tuple[PlanRecord, str]:
        """A new plan of a pool after those on record, and the epsilon of all of them together."""
        plan = replace(plan, earlier=(*before.earlier, replace(before, earlier=())))
        epsilon = self._epsilon_of(plan)
        if epsilon is None:
            raise RequestError(
                f"all plans of pool {plan.pool} together have no epsilon at delta {plan.delta}; "
                "state a larger delta in countveil.toml"
            )
        return plan, epsilon

    # -- the stated epsilon ------------------------------------------------------------------------------------------

    def epsilon(self, record: PlanRecord) -> str:
        """The epsilon, at the plan's delta, of all answers that the pool has, and of those that lost history may have
        given.

        **Guarantee.** Never less than what was spent: answers that lost history may have given are composed too, as if
        each had been given in every grade. If a plan may have been lost, its mechanisms are unknown and no number is
        stated. The result is cached until the plan record changes.
        """
        known = self._epsilons.get(record.pool)
        if known is None or known[0] is not record:
            known = self._epsilons[record.pool] = record, self._compose_epsilon(record)
        return known[1]

    def _compose_epsilon(self, record: PlanRecord) -> str:
        if record.plan_lost:
            return "unknown"
        if not record.debt:
            return record.opened_epsilon
        lost = sum(each.debt for each in (*record.earlier, record))
        total = record.total_answers + lost
        if lost > MOST_LOST or total > MOST_ANSWERS:
            return f"unknown, at most {total} answers"
        spent = self._epsilon_of(record)
        return f"unknown, at most {total} answers" if spent is None else spent

    def _epsilon_of(self, record: PlanRecord) -> str | None:
        """Compute `epsilon` for a plan and all earlier plans, rounded up; None if no epsilon covers them at the plan's
        delta.

        The order of the answers does not matter: it is fixed in advance how often each mechanism may be used. Where
        cells merge, the gaps of all their laws together are added to epsilon and taken from delta (docs/proofs.md).
        """
        if record.plan_lost:
            raise nothing_more(record.pool, "a plan may have been lost with its mechanism")
        plans = (*record.earlier, record)
        known = [(plan, grade, grade.opened_answers + grade.debt) for plan in plans for grade in plan.grades]
        if sum(k for _, _, k in known) > MOST_ANSWERS:
            most = f"{MOST_ANSWERS:,} answers"
            raise nothing_more(record.pool, f"with answers in history that was lost there may be more than {most}")
        replaced = any(each.neighbours == "replace" for each in plans)
        used = [(self._intervals_of(plan, grade).mechanism, grade, plan, k) for plan, grade, k in known]
        composed = compose(
            [(mechanism, k * plan_records.cells_of(grade, plan)) for mechanism, grade, plan, k in used],
            neighbours="replace" if replaced else "add-remove",
        )
        gaps = sum(
            plan_records.cost_of_merging(mechanism, grade, plan, 2 * k if replaced else k)
            for mechanism, grade, plan, k in used
        )
        if gaps >= 1:
            return None
        merging = Fraction(gaps)
        bounds = composed.epsilon(float_below(number("delta", record.delta) * (1 - merging)))  # 1 - x <= e^-x
        return None if bounds is None else decimal_text(Fraction(bounds.upper) + merging, 6, "up")

    # -- budgets -----------------------------------------------------------------------------------------------------

    def make_receipt(self, charge: Charge, mechanism: str, truth: str) -> Receipt:
        """The receipt of a charge. Its epsilon and delta cover all answers of the pool. `truth` says what the charge
        counted."""
        record = self._ledger.plan(charge.pool)
        if record is None:
            raise LedgerError("the ledger has no plan for this charge; nothing was answered; verify the ledger")
        standings = charge.standings or self._ledger.standings(charge.pool)
        return Receipt(
            charge.id,
            charge.dataset,
            charge.version,
            charge.question,
            charge.text,
            mechanism,
            record.pool,
            self.epsilon(record),
            record.delta,
            record.total_answers,
            sum(each.left for each in standings.values()),
            charge.answered or charge.time,
            lost_answers(record),
            charge.grade,
            self._grades(record, {name: each.left for name, each in standings.items()}),
            truth,
        )

    def _grades(self, record: PlanRecord, left: Mapping[str, int]) -> tuple[GradeBudget, ...]:
        """The grades of a plan with their accuracy; `left` says how many answers are left of each."""
        mechanisms = {each.name: self._intervals_of(record, each).mechanism for each in record.grades}
        return tuple(describe_grade(each, mechanisms[each.name], left[each.name]) for each in record.grades)

    def pools(self, name: str | None = None) -> list[str]:
        """The names of all pools; with `name`, only the pool of this name, or the one that pays for this dataset."""
        known = list(dict.fromkeys(d.budget.pool for d in self._config.datasets.values() if d.budget is not None))
        if not known:
            raise ConfigError("dataset", "no dataset has a budget, so no question can be asked; declare a budget")
        if name is None:
            return known
        dataset = self._config.datasets.get(name)
        wanted = dataset.budget.pool if dataset is not None and dataset.budget is not None else name
        if wanted not in known:
            raise ConfigError(
                "pool", f"{shorten(name)} is neither a dataset with a budget nor a pool; there are {', '.join(known)}"
            )
        return [wanted]

    def _datasets(self, pool: str) -> Sequence[Dataset]:
        """The datasets that a pool pays for. An error if another pool has paid for one of them before."""
        datasets = self._config.pool(pool)
        for each in datasets:
            self._ledger.check_pool(each.name, pool, each.schema.unit)
        return datasets

    def budget(self, pool: str) -> PoolBudget:
        """What is left of a pool, with its grades and shares."""
        datasets = self._datasets(pool)
        record, default = self.of(datasets[0]), self.default_grade(datasets[0])
        standings, shares = self._standing(datasets[0])
        mechanism = self.of_grade(record, default).mechanism
        return PoolBudget(
            pool,
            tuple(dataset.name for dataset in datasets),
            sum(each.answers for each in standings.values()),
            sum(each.left for each in standings.values()),
            self.epsilon(record),
            record.delta,
            mechanism.hash,
            mechanism.margin_95,
            {who: sum_share(mine) for who, mine in shares.items()},
            lost_answers(record),
            (*self._ledger.notes_on_beginning(), *notes_on(record)),
            default,
            self._grades(record, {name: each.left for name, each in standings.items()}),
        )

    def extend(self, name: str, answers: int | str, reason: str, grade: str | None = None) -> PoolBudget:
        """Add answers to a grade of a pool's plan; the ledger records the epsilon of all answers together."""
        more, words = integer("answers", answers, 1, MOST_ANSWERS), given_reason(reason)
        (pool,) = self.pools(name)
        record = self.of(self._datasets(pool)[0], opened=True)
        names, single = ([each.name for each in record.grades if every or each.is_single] for every in (True, False))
        chosen = single[0] if grade is None and len(single) == 1 else grade
        if chosen not in names:
            given = "no grade" if chosen is None else chosen
            raise ParameterError("grade", given, f"a grade of pool {pool}: {', '.join(names)}")
        if chosen not in single:
            raise RequestError(
                f"grade {chosen} pays for one table of a publication; for more editions, raise editions in "
                f"countveil.toml and make a new plan: countveil budget {pool} --replan --reason WHY"
            )
        after = replace(
            record, grades=tuple(add_answers(each, more) if each.name == chosen else each for each in record.grades)
        )
        epsilon = self._epsilon_of(after)
        if epsilon is None:
            raise RequestError(
                f"no epsilon covers {more} more answers at delta {record.delta}, "
                "because the noise was planned for fewer answers; add fewer"
            )
        self._ledger.extend(pool, more, epsilon, words, chosen, since=record)
        return self.budget(pool)

    def replan(self, name: str, reason: str) -> PoolBudget:
        """Replace the plan of a pool by a new one made from the current configuration.

        **Guarantee.** The stated epsilon covers all answers that were ever opened in the pool, spent or not, and all
        answers that lost history may have given, each plan with its own mechanisms, bounds and neighbours.
        """
        words, (pool,) = given_reason(reason), self.pools(name)
        budget = self._datasets(pool)[0].require_budget()
        before = self._ledger.plan(pool)
        if before is None:
            raise RequestError(f"pool {pool} has no plan yet; its first question records the configured plan")
        plan, epsilon = self._append(self._make_plan(budget), before)
        self._ledger.replan(plan, epsilon, words, since=before)
        return self.budget(pool)

    # -- what is left ------------------------------------------------------------------------------------------------

    def _standing(self, dataset: Dataset) -> tuple[dict[str, Standing], dict[str, dict[str, Standing]]]:
        """What is left of each grade of a dataset's pool, and of the configured shares, by analyst and grade."""
        budget = dataset.require_budget()
        shares = {
            who: {
                grade: Standing(share, self._ledger.standing(budget.pool, who, grade).spent)
                for grade, share in mine.items()
            }
            for who, mine in (budget.shares or {}).items()
        }
        if self._ledger.plan(budget.pool) is not None:
            return self._ledger.standings(budget.pool), shares
        many, lost = {each.name: each.answers for each in self._make_plan(budget).grades}, self._ledger.lost()
        return {name: Standing(k, min(k, lost)) for name, k in many.items()}, shares

    def left(self, dataset: Dataset, analyst: str, most: Most | None = None) -> dict[str, int]:
        """By grade: how many answers an analyst can still ask for; `most` is the analyst's limit."""
        standings, shares = self._standing(dataset)
        pool, mine = dataset.require_budget().pool, shares.get(analyst, {})
        left = {name: each.left for name, each in standings.items()}
        published = {grade for each in self._config.publications_of(pool) for grade in each.grades}
        for name in left:
            if shares and not (analyst == CURATOR and name in published):
                left[name] = min(left[name], mine.get(name, NOTHING).left)
            if most is not None:
                left[name] = min(left[name], self._ledger.limit(pool, analyst, name, most).left)
        return {name: max(0, many) for name, many in left.items()}  # a share may be below what was spent of it

    def grades_left(self, dataset: Dataset, analyst: str, most: Most | None = None) -> tuple[GradeBudget, ...]:
        """The grades of a dataset's pool, each with the number of answers that an analyst can still ask for."""
        return self._grades(self.of(dataset), self.left(dataset, analyst, most))

    def check_left(self, dataset: Dataset, grade: str, analyst: str, most: Most | None = None) -> None:
        """Raise the error that a charge would raise if no answer is left, without charging."""
        pool, (standings, shares) = dataset.require_budget().pool, self._standing(dataset)
        if standings.get(grade, NOTHING).left < 1:
            raise spent_error(pool, grade, standings, self._ledger.plan(pool))
        named = grade if len(standings) > 1 else None
        share = shares.get(analyst, {}).get(grade, NOTHING)
        if shares and share.left < 1:
            raise BudgetError(pool, share.answers, analyst, grade=named)
        if most is not None and (limit := self._ledger.limit(pool, analyst, grade, most)).left < 1:
            raise BudgetError(pool, limit.answers, analyst, grade=named)
