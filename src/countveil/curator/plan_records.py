"""Plans as the ledger records them: made from a budget, compared with the configuration, and described in words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from countveil.accounting.merged_cells import cost_of_gap
from countveil.config.budget import Budget
from countveil.errors import ConfigError, ParameterError, RequestError
from countveil.ledger import STANDARD, GradeRecord, Ledger, PlanRecord
from countveil.ledger.records import PUBLICATION
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text, number
from countveil.planning import Grade, plan
from countveil.publication.accuracy import plan_publications
from countveil.publication.layout import Layout
from countveil.query.schema import Schema

DIGEST, TABLE = "digest", "table"
"""Terms of a grade that pays for a published table: the digest of the publication's layout, and the table's name."""
SENSITIVITY, CELLS = "sensitivity", "cells"
"""Terms of a grade that hold in place of the plan's: how much one person changes a cell, and how many cells."""


def make(budget: Budget, schemas: Sequence[Schema], publications: Sequence[Layout] = ()) -> PlanRecord:
    """Search for the best mechanisms for the grades of a budget and the tables of publications, certified for all
    answers together, as a plan to be recorded."""
    terms: dict[str, Any] = {
        "neighbours": "replace" if any(s.neighbours == "replace" for s in schemas) else "add-remove",
        "cells": max(s.cells_per_person for s in schemas),
        "sensitivity": max(s.rows_per_person for s in schemas),
        "objective": budget.objective,
    }
    names = list(budget.grades)
    alone = budget.grades[names[0]] if len(names) == 1 else None
    wanted: dict[str, Any] = {"grades": budget.grades}
    if alone is not None and not terms_of(alone):
        wanted = {"answers": alone.answers}
    policy: Any = budget.policy if alone is None else policy_of(budget, names[0])
    common = {"epsilon": budget.epsilon, "delta": budget.delta, "policy": policy, **terms}
    planned = plan_publications(publications, budget.grades, **common) if publications else plan(**wanted, **common)
    published = _published_terms(publications)
    grades = []
    for name, each in zip(names + [g.name for g in planned.grades[len(names) :]], planned.grades, strict=True):
        own = name in budget.grades
        asked = terms_of(budget.grades[name]) if own else published[name]
        mechanism = each.mechanism
        chosen = policy_of(budget, name) if own else mechanism.policy
        grades.append(GradeRecord(name, each.answers, chosen, mechanism.hash, asked, mechanism.to_text()))
    return PlanRecord(budget.pool, budget.epsilon, budget.delta, grades=tuple(grades), **terms)


def _published_terms(publications: Sequence[Layout]) -> dict[str, dict[str, str]]:
    """The terms of the grades of all tables of publications, by the names of the grades."""
    terms = {}
    for layout in publications:
        for place, table in enumerate(layout.tables):
            sensitivity, cells = map(str, layout.sensitivity_of(table))
            terms[layout.declared.grade_of(place)] = {
                PUBLICATION: layout.name,
                DIGEST: layout.digest,
                TABLE: table.name,
                SENSITIVITY: sensitivity,
                CELLS: cells,
            }
    return terms


def cells_of(grade: GradeRecord, record: PlanRecord) -> int:
    """In how many cells of one answer of a grade a person can be."""
    return int(grade.terms.get(CELLS, record.cells))


def digest_laws(record: PlanRecord, publication: str) -> str:
    """The hash of the laws of all measured tables of a publication."""
    laws = (f"{table}\n{grade.mechanism}" for table, grade in published_tables(record, publication).items())
    return hashlib.sha256("\n".join(laws).encode()).hexdigest()


def cost_of_merging(mechanism: Mechanism, grade: GradeRecord, record: PlanRecord, answers: int) -> float:
    """What so many answers of a grade cost in addition if its cells merge several of a person; see
    `accounting.merged_cells`."""
    if cells_of(grade, record) == record.cells:
        return 0.0
    return cost_of_gap(mechanism.laws.stationary, int(grade.terms[SENSITIVITY]), answers)


def published_tables(record: PlanRecord, publication: str) -> dict[str, GradeRecord]:
    """The measured tables of a publication by their names, with their grades, in the plan's order."""
    return {each.terms[TABLE]: each for each in record.grades if each.terms.get(PUBLICATION) == publication}


def policy_of(budget: Budget, grade: str) -> str:
    """The policy of a grade: its own if it has one, else that of the budget."""
    return budget.grades[grade].policy or budget.policy


def terms_of(grade: Grade) -> dict[str, str]:
    """What the configuration requires of a grade besides answers and policy, as decimal texts."""
    given = {name: getattr(grade, name) for name in ("margin", "variance", "eta", "D", "weight")}
    texts = {name: decimal_text(Fraction(value)) for name, value in given.items() if value is not None}
    return {name: text for name, text in texts.items() if (name, text) != ("weight", "1")}


def check(record: PlanRecord, budget: Budget, schema: Schema, publications: Sequence[Layout] = ()) -> None:
    """Raise an error unless the recorded plan has the configured budget and publications, and covers the dataset's
    bounds."""
    _check_publications(record, publications)
    planned = (number("epsilon", record.epsilon), number("delta", record.delta), record.objective)
    wanted = (number("epsilon", budget.epsilon), number("delta", budget.delta), budget.objective)
    recorded = {each.name: (each.answers, each.policy, dict(each.terms)) for each in _own_grades(record)}
    grades = {name: (each.answers, policy_of(budget, name), terms_of(each)) for name, each in budget.grades.items()}
    if planned != wanted or recorded != grades:
        raise ConfigError(
            f"dataset.{schema.name}.budget",
            f"the plan of pool {record.pool} is on record with other values; restore these values in countveil.toml: "
            f'epsilon = "{record.epsilon}", delta = "{record.delta}", {_describe_grades(record)}, '
            f'objective = "{record.objective}"; {or_replan(record)}',
        )
    wide = schema.cells_per_person > record.cells or schema.rows_per_person > record.sensitivity
    if wide or (schema.neighbours == "replace" and record.neighbours != "replace"):
        raise ConfigError(
            f"dataset.{schema.name}",
            f"the plan of pool {record.pool} does not cover these bounds; restore these values in countveil.toml: "
            f"rows_per_person = {record.sensitivity}, cells_per_person = {record.cells}, "
            f'neighbours = "{record.neighbours}"; {or_replan(record)}',
        )


def _own_grades(record: PlanRecord) -> list[GradeRecord]:
    """The grades of single questions."""
    return [each for each in record.grades if each.is_single]


def _check_publications(record: PlanRecord, publications: Sequence[Layout]) -> None:
    """Refuse publications that differ from those of the recorded plan."""
    recorded = {each.terms[PUBLICATION]: each.terms[DIGEST] for each in record.grades if PUBLICATION in each.terms}
    declared = {layout.name: layout.digest for layout in publications}
    for name in sorted({*recorded, *declared}):
        if recorded.get(name) == declared.get(name):
            continue
        facts = "tables, accuracies, editions, columns and bounds"
        what, advice = "has another version of", f"restore its {facts} in countveil.toml"
        if name not in recorded:
            what, advice = "lacks", "remove the publication from countveil.toml"
        elif name not in declared:
            what, advice = "has", f"declare it again in countveil.toml, with the same {facts}"
        raise ConfigError(
            f"publication.{name}",
            f"the recorded plan of pool {record.pool} {what} this publication, and a plan never changes; {advice}, "
            f"{or_replan(record)}",
        )


def _describe_grades(record: PlanRecord) -> str:
    """The grades of single questions of a plan, written as in countveil.toml."""
    own = _own_grades(record)
    if [each.name for each in own] == [STANDARD] and not own[0].terms:
        return f'answers = {own[0].answers}, policy = "{own[0].policy}"'
    described = []
    for each in own:
        terms = "".join(f', {name} = "{text}"' for name, text in each.terms.items())
        described.append(f'{each.name} = {{ answers = {each.answers}{terms}, policy = "{each.policy}" }}')
    return "grades: " + ", ".join(described)


def or_replan(record: PlanRecord) -> str:
    """For error messages: the command that makes a new plan, so that other values are allowed."""
    return f"or make a new plan on the record: countveil budget {record.pool} --replan --reason WHY"


def lost_answers(record: PlanRecord) -> int | None:
    """How many answers lost history may have given beyond those of the plans; None if this is unknown."""
    return None if record.plan_lost else sum(each.debt for each in (*record.earlier, record))


def notes_on(record: PlanRecord) -> tuple[str, ...]:
    """Notes on extensions and new plans, which were decided after answers were seen.

    The stated epsilon covers the answers, but not what these decisions reveal.
    """
    caveat = "decided after answers were seen, which is on the record but not in epsilon"
    notes = [f"added later, {_answers(sum(k for k, _ in record.more))}: {caveat}"] if record.more else []
    if record.earlier:
        before, number = sum(each.opened_answers for each in record.earlier), len(record.earlier) + 1
        notes.append(
            f"plan {number} of this pool, made when {_answers(record.charges)} had been paid for: {caveat}; "
            f"epsilon covers all {before} answers of the plans before, spent or not"
        )
    if record.plan_lost:
        notes.append("a plan may have been lost, and with it the mechanism of its answers: no epsilon can be stated")
    return tuple(notes)


def add_answers(grade: GradeRecord, answers: int) -> GradeRecord:
    """The grade after an extension. The added answers first pay for those that lost history may have given."""
    return replace(grade, more=grade.more + answers, debt=max(0, grade.debt - answers))


def add_losses(record: PlanRecord, ledger: Ledger) -> PlanRecord:
    """The plan with the debts that lost history leaves to each grade; the same object if it has them."""
    lost, plan_lost = ledger.lost(), ledger.plan_lost()
    debts = [max(0, lost - each.answers) for each in record.grades]
    if ([each.debt for each in record.grades], record.plan_lost) == (debts, plan_lost):
        return record
    grades = (replace(each, debt=debt) for each, debt in zip(record.grades, debts, strict=True))
    return replace(record, grades=tuple(grades), plan_lost=plan_lost)


def nothing_more(pool: str, why: str) -> RequestError:
    """The error for a pool that can get neither more answers nor a new plan, because no epsilon could be stated."""
    return RequestError(
        f"{why}, so no epsilon can be stated and pool {pool} cannot get more answers; questions asked before stay "
        "free; for people who are in none of its datasets, start a new pool in a new ledger"
    )


def _answers(number: int) -> str:
    return f"{number} answer{'' if number == 1 else 's'}"


def given_reason(reason: object) -> str:
    """The given reason as one line of printable text; an error if it is empty."""
    letters = reason if isinstance(reason, str) else ""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in letters).split())
    if not words:
        raise ParameterError("reason", reason, "a few words that stay on the record")
    return words[:500]
