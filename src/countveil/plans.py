"""A pool's plan: made once, for the most that any of its datasets lets one person do, and never changed silently."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from countveil.accounting import compose, float_below, plan
from countveil.config import Budget
from countveil.errors import ConfigError, RequestError
from countveil.exact import decimal_text, number
from countveil.files import to_text
from countveil.ledger import PlanRecord
from countveil.mechanism import Mechanism
from countveil.schema import Schema

MOST_ANSWERS = 10**6


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
