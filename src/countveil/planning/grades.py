"""Grades: kinds of answers of different accuracy under one guarantee.

A plan fixes its grades, and how many answers each has, before the first answer. After every answer the analyst may
choose which grade comes next: the guarantee does not depend on the order of the answers (docs/proofs.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, get_args

from countveil.errors import ParameterError, RequestError
from countveil.numeric.exact_numbers import Number, decimal_text, integer, number

if TYPE_CHECKING:
    from countveil.mechanism.mechanism import Mechanism

PlanPolicy = Literal["nonnegative", "signed", "floor"]
POLICIES = get_args(PlanPolicy)
STANDARD = "standard"
"""The name of the only grade of a plan that was asked for by a number of answers alone."""
LARGEST_PLAN = 10**6
LARGEST_SENSITIVITY, LARGEST_CELLS = 1000, 10_000
LARGEST_MARGIN = 10**5
MOST_GRADES = 100
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
_TEXT = re.compile(r"([^=]+)=(\d+)(?:x([^@/]+))?(?:@(?:([a-zA-Z]+):)?([^/]+))?(?:/([a-z]+))?", re.ASCII)
_WRITTEN = "NAME=ANSWERS, then xWEIGHT or @MARGIN (or @variance:V, @eta:P, @D:D), then /POLICY"


@dataclass(frozen=True)
class Grade:
    """Answers of one accuracy: with a target to keep, or with a weight for a share of the budget that targets leave.

    Args:
        answers: The number of answers.
        margin: The 95 % margin to keep: at least 95 % of answers are at most this far off, whatever the count is.
        variance: The variance to keep for a typical count.
        eta: The probability of an exact answer to keep for a typical count.
        D: The noise bound: no answer is ever further than this from the truth. Unlike margin, variance and
            eta, it can be combined with a weight.
        weight: The plan makes the sum of weight * answers * variance least. Default 1; not with a margin,
            a variance or an eta.
        policy: "nonnegative", "signed" or "floor". Default: that of the plan.
        sensitivity: How much one person can change a count. Default: that of the plan.
        cells: The number of cells of one table that a person can be in. Default: that of the plan.

    Raises:
        ParameterError: An argument is not allowed.
        RequestError: The arguments contradict each other.

    >>> Grade(2, margin=3).margin, Grade("40", weight="0.25").weight
    (3, Fraction(1, 4))
    """

    answers: int | str
    _: KW_ONLY
    margin: int | str | None = None
    variance: Number | None = None
    eta: Number | None = None
    D: int | str | None = None
    weight: Number | None = None
    policy: PlanPolicy | None = None
    sensitivity: int | str | None = None
    cells: int | str | None = None

    def __post_init__(self) -> None:
        self._set("answers", integer("answers", self.answers, 1, LARGEST_PLAN))
        self._read_integer("margin", 0, LARGEST_MARGIN)
        self._read_integer("D", 3, LARGEST_MARGIN)
        self._read_integer("sensitivity", 1, LARGEST_SENSITIVITY)
        self._read_integer("cells", 1, LARGEST_CELLS)
        self._read("variance", Fraction(1, 10**6), Fraction(10**10))
        self._read("eta", Fraction(1, 10**6), 1 - Fraction(1, 10**6))
        self._read("weight", Fraction(1, 10**6), Fraction(10**6))
        if self.policy is not None and self.policy not in POLICIES:
            raise ParameterError("policy", self.policy, "one of " + ", ".join(POLICIES))
        targets = [name for name in ("margin", "variance", "eta") if getattr(self, name) is not None]
        if len(targets) > 1:
            raise RequestError(f"a grade has one target, but {' and '.join(targets)} are given; leave one out")
        if targets and self.weight is not None:
            raise RequestError(
                f"{targets[0]} fixes the accuracy of a grade, and weight is for grades without a target; "
                "leave one of them out"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _read_integer(self, name: str, low: int, high: int) -> None:
        if getattr(self, name) is not None:
            self._set(name, integer(name, getattr(self, name), low, high))

    def _read(self, name: str, low: Fraction, high: Fraction) -> None:
        given = getattr(self, name)
        if given is None:
            return
        allowed = f"a decimal number from {decimal_text(low)} to {decimal_text(high)}"
        value = number(name, given, allowed)
        if not low <= value <= high:
            raise ParameterError(name, given, allowed)
        self._set(name, value)


@dataclass(frozen=True)
class PlannedGrade:
    """A grade of a plan: its number of answers, their mechanism, and how many cells of one table a person can be in."""

    name: str
    answers: int
    mechanism: Mechanism
    cells: int = 1

    def describe(self) -> dict[str, object]:
        """The grade as JSON values; `mechanism` is the hash of the mechanism's file."""
        certificate = self.mechanism.certificate
        return {
            "name": self.name,
            "answers": self.answers,
            "margin_95": self.mechanism.margin_95,
            "typical_margin_95": certificate.typical_margin_95,
            "variance": decimal_text(certificate.variance),
            "eta": decimal_text(certificate.eta),
            "D": self.mechanism.D,
            "policy": self.mechanism.policy,
            "sensitivity": certificate.sensitivity,
            "cells": self.cells,
            "mechanism": self.mechanism.hash,
        }


def read_grade(text: str) -> tuple[str, Grade]:
    """Read the name and the grade from a text.

    The text is NAME=ANSWERS, then xWEIGHT or @MARGIN, or another target such as @eta:0.5, then /POLICY: for instance
    fine=2@3, standard=10, coarse=40x0.25, low=5@eta:0.5/signed.

    >>> read_grade("fine=2@3")[0], read_grade("fine=2@3")[1].margin
    ('fine', 3)
    """
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise ParameterError("grade", text, _WRITTEN, "for instance fine=2@3, standard=10 or coarse=40x0.25")
    name, answers, weight, kind, value, policy = parts.groups()
    targets = {None: "margin", "margin": "margin", "variance": "variance", "eta": "eta", "D": "D"}
    if kind not in targets:
        raise ParameterError("grade", text, _WRITTEN)
    target = {} if value is None else {targets[kind]: value}
    return check_name(name), Grade(answers, weight=weight, policy=policy, **target)  # type: ignore[arg-type]  # checked


def check_name(name: object) -> str:
    """The given name of a grade; raises ParameterError if it is not allowed."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError("grade", name, "a name of up to 32 characters a-z, 0-9, _ and -, beginning with a letter")
    return name


def check_grades(grades: object) -> tuple[tuple[str, Grade], ...]:
    """The names and grades of a plan as pairs; raises ParameterError if they are not allowed."""
    allowed = 'a mapping from names to grades, such as {"fine": Grade(2, margin=3), "standard": Grade(10)}'
    if not isinstance(grades, Mapping) or not grades or not all(isinstance(g, Grade) for g in grades.values()):
        raise ParameterError("grades", grades, allowed)
    if len(grades) > MOST_GRADES:
        raise ParameterError("grades", f"{len(grades)} grades", f"at most {MOST_GRADES}")
    total = sum(int(grade.answers) for grade in grades.values())
    if total > LARGEST_PLAN:
        raise ParameterError("grades", f"{total} answers", f"at most {LARGEST_PLAN} answers of all grades together")
    return tuple((check_name(name), grade) for name, grade in grades.items())
