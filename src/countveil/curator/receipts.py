"""What was paid and what is left: receipts, budgets of pools, their grades and shares. Nothing about the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from countveil.display.cards import Card, Markup, Shown, draw_interval
from countveil.errors import ParameterError
from countveil.ledger import STANDARD, GradeRecord, Standing
from countveil.mechanism.mechanism import Mechanism

RECEIPT = "[0-9a-f]{24}"
"""The form of a receipt's id."""
EPSILON = {"description": "A number; after history was lost, possibly a text that begins with unknown."}
LOST = {"description": "Further answers that lost history may have given; epsilon covers them. null: unknown."}
GRADES = {"description": "Every grade of the pool's plan, with its accuracy and what is left of it."}
"""Descriptions of fields, which the service shows in its OpenAPI document."""


@dataclass(frozen=True)
class GradeBudget:
    """One grade of a pool's plan: its accuracy, and what is left of it."""

    name: str
    answers_total: int
    answers_left: int
    margin_95: int
    worst_error: int
    policy: str
    mechanism: str


def describe_grade(grade: GradeRecord, mechanism: Mechanism, left: int) -> GradeBudget:
    """A recorded grade with the accuracy of its mechanism, and the number of answers that are left."""
    worst = mechanism.certificate.worst_error
    facts = (mechanism.margin_95, worst, grade.policy, grade.mechanism)
    return GradeBudget(grade.name, grade.opened_answers, left, *facts)


@dataclass(frozen=True)
class Share(Standing):
    """An analyst's share of a pool, and how much of it is spent: in all grades together, and in each grade."""

    grades: Mapping[str, Standing] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """The share as plain JSON values."""
        grades = {name: _describe_standing(each) for name, each in self.grades.items()}
        return {**_describe_standing(self), "grades": grades}


def sum_share(grades: Mapping[str, Standing]) -> Share:
    """The share of an analyst in all grades together, with the share in each grade."""
    return Share(sum(each.answers for each in grades.values()), sum(each.spent for each in grades.values()), grades)


def _describe_standing(standing: Standing) -> dict[str, int]:
    return {"answers": standing.answers, "left": max(0, standing.left)}


@dataclass(frozen=True, repr=False)
class Receipt(Shown):
    """What was paid for: enough to check the guarantee, and nothing about the data."""

    id: str
    dataset: str
    version: int
    question: str
    text: str
    mechanism: str
    pool: str
    epsilon: str = field(metadata=EPSILON)
    delta: str
    answers: int
    answers_left: int
    """How many answers are left of all grades together."""
    time: str
    answers_lost: int | None = field(default=0, metadata=LOST)
    grade: str = STANDARD
    grades: tuple[GradeBudget, ...] = field(default=(), metadata=GRADES)
    truth: str = ""
    """What was counted, the bounds on what one person adds, what the intervals are for, and who is one person."""

    def _line(self) -> str:
        return f"{self.id} of {self.pool}, {self.answers_left} of {self.answers} answers left: {self.text}"

    def _card(self) -> Card:
        facts = {
            "question": self.text,
            "counted": self.truth or None,
            "paid from": f"{self.pool}, grade {self.grade}: {self.answers_left} of {self.answers} answers left",
            "guarantee": f"epsilon {self.epsilon}, delta {self.delta} for all answers together",
            "mechanism": self.mechanism[:12],
            "time": self.time,
        }
        return Card(f"Receipt {self.id}", facts)


@dataclass(frozen=True, repr=False)
class PoolBudget(Shown):
    """What is left of a pool, with its grades and shares."""

    pool: str
    datasets: tuple[str, ...]
    answers_total: int
    answers_left: int
    epsilon: str = field(metadata=EPSILON)
    delta: str
    mechanism: str
    """The hash of the mechanism of `default_grade`."""
    margin_95: int
    shares: Mapping[str, Share]
    answers_lost: int | None = field(default=0, metadata=LOST)
    notes: tuple[str, ...] = field(default=(), metadata={"description": "Decisions made after answers were seen."})
    default_grade: str = STANDARD
    """The grade that pays for a question that names none."""
    grades: tuple[GradeBudget, ...] = field(default=(), metadata=GRADES)

    def _line(self) -> str:
        return f"{self.pool}: {self.answers_left} of {self.answers_total} answers left, epsilon={self.epsilon}"

    def _card(self) -> Card:
        left, total = self.answers_left, self.answers_total
        facts = {
            "datasets": ", ".join(self.datasets),
            "answers left": Markup(f"{left:,} of {total:,} {draw_interval(0, left, left, total)}"),
            "guarantee": f"epsilon {self.epsilon}, delta {self.delta} for all answers together",
            "lost": None if self.answers_lost == 0 else "unknown" if self.answers_lost is None else self.answers_lost,
        }
        head = ("grade", "answers left", "of", "95 % margin", "largest error")
        rows = [(g.name, g.answers_left, g.answers_total, f"±{g.margin_95}", g.worst_error) for g in self.grades]
        return Card(f"Budget {self.pool}", facts, "", head if rows else (), rows, len(rows), self.notes)


def check_receipt_id(id: object) -> None:
    """Raise an error for an id that no receipt can have."""
    if not isinstance(id, str) or not re.fullmatch(RECEIPT, id):
        raise ParameterError("id", id, "the 24 hexadecimal digits of a receipt")
