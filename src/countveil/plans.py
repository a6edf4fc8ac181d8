"""A pool's plan: made once, for the most that any of its datasets lets one person do, and never changed silently."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from countveil.accounting import compose, float_below, plan
from countveil.config import Budget, Config, Dataset
from countveil.errors import ConfigError, RequestError
from countveil.exact import decimal_text, number
from countveil.files import from_text, to_text
from countveil.intervals import Intervals
from countveil.ledger import Ledger, PlanRecord
from countveil.mechanism import Mechanism
from countveil.schema import Schema

MOST_ANSWERS = 10**6


class Plans:
    """The plans of a configuration's pools: what the ledger has on record, or what would go there first."""

    def __init__(self, config: Config, ledger: Ledger) -> None:
        self._config, self._ledger = config, ledger
        self._lock = threading.Lock()
        self._designed: dict[str, PlanRecord] = {}
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
        if record.mechanism not in self._intervals:
            mechanism = from_text(record.document)
            if mechanism.hash != record.mechanism:
                raise ConfigError(
                    f"pool {budget.pool}", "the recorded mechanism is not the planned one; verify the ledger"
                )
            self._intervals[record.mechanism] = Intervals(mechanism)
        return record, self._intervals[record.mechanism]

    def _made(self, budget: Budget) -> PlanRecord:
        """The plan that a budget asks for, designed once."""
        with self._lock:
            if budget.pool not in self._designed:
                schemas = [each.schema for each in self._config.pool(budget.pool)]
                self._designed[budget.pool] = make(budget, schemas)
            return self._designed[budget.pool]


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
        document=to_text(mechanism),
        **terms,
    )


def check(record: PlanRecord, budget: Budget, schema: Schema) -> None:
    """Refuse a configuration that says otherwise than the record."""
    planned = (number("epsilon", record.epsilon), number("delta", record.delta), record.answers)
    wanted = (number("epsilon", budget.epsilon), number("delta", budget.delta), budget.answers)
    if (*planned, record.policy, record.objective) != (*wanted, budget.policy, budget.objective):
        raise ConfigError(
            f"dataset.{schema.name}.budget",
            f"pool {record.pool} was opened with epsilon {record.epsilon}, delta {record.delta}, "
            f"answers {record.answers}, policy {record.policy}, objective {record.objective}; "
            "put these back (countveil budget --open adds answers)",
        )
    wide = schema.cells_per_person > record.cells or schema.rows_per_person > record.sensitivity
    if wide or (schema.neighbours == "replace" and record.neighbours != "replace"):
        raise ConfigError(
            f"dataset.{schema.name}",
            f"the plan of pool {record.pool} covers {record.sensitivity} rows of a person in {record.cells} cells "
            f"({record.neighbours}), not more; put these back, or use another pool",
        )


def epsilon_with(record: PlanRecord, mechanism: Mechanism, more: int, debt: int) -> str:
    """The epsilon of all answers of a plan together, at its delta, if so many more are opened and a debt is paid."""
    total = record.total_answers + more + debt
    if total > MOST_ANSWERS:
        raise RequestError(f"so much history of pool {record.pool} was lost that no more can be opened")
    composed = compose(mechanism, total, neighbours=record.neighbours, cells=record.cells)
    found = composed.epsilon(float_below(number("delta", record.delta)))
    if found is None:
        raise RequestError(
            f"{more} more answers have no epsilon at delta {record.delta}: the noise was planned for fewer"
        )
    return decimal_text(Fraction(found.upper), 6, "up")
