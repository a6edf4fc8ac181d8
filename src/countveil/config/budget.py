"""The budget of a pool in `countveil.toml`: epsilon, delta and grades, and the shares of analysts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from countveil.config import keys
from countveil.config.values import (
    check_names,
    read_choice,
    read_count,
    read_decimal,
    read_table,
    read_text,
    require,
)
from countveil.errors import ConfigError, ParameterError, RequestError, shorten
from countveil.numeric.exact_numbers import decimal_text, number
from countveil.planning.grades import POLICIES, STANDARD, Grade, check_grades

LEAST_EPSILON, MOST_EPSILON = "0.001", "100"


@dataclass(frozen=True)
class Budget:
    """The budget of a pool: all answers of all grades together cost (epsilon, delta)."""

    pool: str
    epsilon: str
    delta: str
    grades: Mapping[str, Grade]
    default_grade: str = STANDARD
    """The grade that pays for a question that names none; empty if the budget pays for publications only."""
    policy: str = "nonnegative"
    objective: str = "variance"
    shares: Mapping[str, Mapping[str, int]] | None = None
    """By analyst and by grade: the most answers that the analyst may pay for. None if there are no shares."""

    @property
    def answers(self) -> int:
        """The number of answers of all grades together."""
        return sum(int(grade.answers) for grade in self.grades.values())


def read_budget(name: str, entry: Mapping[str, object], published: bool = False) -> Budget:
    """The budget of a dataset. If there are publications of the dataset, its budget may have no grades of its own."""
    key = f"dataset.{name}.budget"
    if "on_new_data" in entry:
        raise ConfigError(f"{key}.on_new_data", "remove this line: new data always continues the pool's plan")
    check_names(entry, keys.BUDGET, f"{key}.")
    epsilon = read_decimal(require(entry, "epsilon", key), f"{key}.epsilon", LEAST_EPSILON, MOST_EPSILON)
    delta = read_decimal(require(entry, "delta", key), f"{key}.delta", "1e-15", "0.1")
    pool = read_text(entry.get("pool", name), f"{key}.pool")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,99}", pool):
        raise ConfigError(f"{key}.pool", "names of pools have letters, digits, _ and -, and begin with a letter or _")
    policy = read_choice(entry.get("policy", "nonnegative"), f"{key}.policy", POLICIES)
    objective = read_choice(entry.get("objective", "variance"), f"{key}.objective", ("variance", "eta", "margin"))
    grades = _read_grades(entry, key, published)
    if objective == "margin" and "grades" in entry:
        raise ConfigError(f"{key}.objective", "margin is for answers of one accuracy; with grades use variance or eta")
    default = _choose_default_grade(entry, key, grades)
    shares = read_table(entry.get("shares", {}), f"{key}.shares")
    limits = {analyst: _read_share(share, f"{key}.shares.{analyst}", grades) for analyst, share in shares.items()}
    if not all(0 < len(analyst) <= 100 and analyst.isprintable() for analyst in limits):
        raise ConfigError(f"{key}.shares", "names of analysts have 1 to 100 printable characters")
    return Budget(pool, epsilon, delta, grades, default, policy, objective, limits or None)


def imagine_epsilon(value: object) -> str:
    """An epsilon that a budget could have, as decimal text; it is given as an argument, not in countveil.toml."""
    allowed = f"a number from {LEAST_EPSILON} to {MOST_EPSILON}"
    exact = number("epsilon", value, allowed)
    if not Fraction(LEAST_EPSILON) <= exact <= Fraction(MOST_EPSILON):
        raise ParameterError("epsilon", value, allowed)
    return decimal_text(exact)


def _read_grades(entry: Mapping[str, object], key: str, published: bool) -> Mapping[str, Grade]:
    """Read the grades of a budget. The key `answers` alone stands for one grade with the name standard."""
    if "answers" in entry and "grades" in entry:
        raise ConfigError(f"{key}.answers", "stands for one grade, standard; leave it out if grades are declared")
    if published and not {"answers", "grades"} & set(entry):
        return {}
    if "grades" not in entry:
        hint = "or grades, such as fine = { answers = 2, margin = 3 }"
        return {STANDARD: Grade(read_count(require(entry, "answers", key, hint), f"{key}.answers", 1_000_000))}
    declared = read_table(entry["grades"], f"{key}.grades")
    if not declared:
        raise ConfigError(f"{key}.grades", "has no grade; declare one, such as standard = { answers = 10 }")
    grades = {
        name: _read_grade(read_table(grade, f"{key}.grades.{name}"), f"{key}.grades.{name}")
        for name, grade in declared.items()
    }
    try:
        return dict(check_grades(grades))
    except ParameterError as error:
        raise ConfigError(f"{key}.grades", f"got {shorten(error.given)}, allowed is {error.allowed}") from None


def _read_grade(entry: Mapping[str, object], key: str) -> Grade:
    check_names(entry, keys.GRADE, f"{key}.")
    answers = read_count(require(entry, "answers", key), f"{key}.answers", 1_000_000)
    for name, value in entry.items():
        if name != "policy" and (isinstance(value, bool) or not isinstance(value, int | str)):
            raise ConfigError(
                f"{key}.{name}", f"got {shorten(value)}, allowed is a whole number or a decimal in quotes"
            )
    if "policy" in entry:
        read_choice(entry["policy"], f"{key}.policy", POLICIES)
    terms: dict[str, Any] = {name: value for name, value in entry.items() if name != "answers"}
    try:
        return Grade(answers, **terms)
    except ParameterError as error:
        raise ConfigError(
            f"{key}.{error.argument}", f"got {shorten(error.given)}, allowed is {error.allowed}"
        ) from None
    except RequestError as error:
        raise ConfigError(key, str(error)) from None


def _choose_default_grade(entry: Mapping[str, object], key: str, grades: Mapping[str, Grade]) -> str:
    """The grade that pays for questions that name none: the declared default, else standard, else the only grade."""
    if "default_grade" in entry:
        return read_choice(entry["default_grade"], f"{key}.default_grade", tuple(grades))
    if not grades:
        return ""
    if STANDARD in grades or len(grades) == 1:
        return STANDARD if STANDARD in grades else next(iter(grades))
    names = ", ".join(grades)
    raise ConfigError(f"{key}.default_grade", f"is required without a grade named {STANDARD}: one of {names}")


def _read_share(declared: object, key: str, grades: Mapping[str, Grade]) -> Mapping[str, int]:
    """Read how many answers of each grade one analyst may have at most. If there is only one grade, a number is
    enough."""
    if not isinstance(declared, Mapping):
        if len(grades) > 1:
            shown = ", ".join(f"{name} = 1" for name in grades)
            raise ConfigError(
                key, f"got {shorten(declared)}; give a number of answers for each grade, such as {{ {shown} }}"
            )
        return {name: read_count(declared, key, int(grade.answers)) for name, grade in grades.items()}
    check_names(declared, set(grades), f"{key}.")
    return {name: read_count(share, f"{key}.{name}", int(grades[name].answers)) for name, share in declared.items()}
