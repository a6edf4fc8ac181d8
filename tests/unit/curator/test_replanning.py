"""A new plan in the same pool: it is recorded, and the stated epsilon covers everything ever opened."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from countveil.accounting import compose
from countveil.accounting.merged_cells import SLACK, cost_of_gap
from countveil.accounting.privacy_loss import float_below
from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.curator.plan_records import CELLS, SENSITIVITY
from countveil.curator.results import Table
from countveil.errors import BudgetError, ConfigError, RequestError
from countveil.laws.law import Law, LawsByCount
from countveil.ledger import GradeRecord, PlanRecord
from countveil.ledger.restoration import restore
from countveil.mechanism.certificate import Terms
from countveil.mechanism.mechanism import Mechanism, bind
from tests.support.curated import people, runner, with_plan, written

TOTAL = "SELECT count(*) FROM people"
WIDER = ('unit = "person"', 'unit = "person"\ncells_per_person = 3\nneighbours = "replace"')
LESS = ("answers = 4", "answers = 3")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    people(tmp_path)
    path = written(tmp_path)
    with_plan(path)
    return path


def change(path: Path, change: tuple[str, str]) -> None:
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))


def ask(curator: Curator, age: int) -> Table:
    return curator.count(f"{TOTAL} WHERE age > {age}")


def check_epsilon(stated: str, parts: Sequence[tuple[Mechanism, int]], neighbours: str = "add-remove") -> None:
    """The epsilon holds for the composition of all parts at delta 0.01, and 1 % less does not."""
    composed, epsilon = compose(list(parts), neighbours=neighbours), float_below(Fraction(stated))
    assert composed.delta(epsilon).upper <= Fraction("0.01") < composed.delta(epsilon * 0.99).upper


@pytest.mark.slow  # plans are searched for
def test_wider_bounds_for_data_asked_before_need_a_new_plan(config: Path) -> None:
    with Curator.open(config) as curator:
        ask(curator, 1)
        first = curator.mechanism("people")
    change(config, WIDER)
    with Curator.open(config) as curator:
        with pytest.raises(ConfigError, match="countveil budget people --replan --reason WHY"):
            ask(curator, 1)
        with pytest.raises(ConfigError, match="cells_per_person = 1"):
            curator.dry_run(TOTAL)
        budget = curator.replan_budget("people", "people have up to three visits")
        assert (budget.answers_total, budget.answers_left) == (
            8,
            4,
        )  # three answers of the first plan can no longer be spent
        second = curator.mechanism("people")
        check_epsilon(budget.epsilon, [(first, 4), (second, 4 * 3)], "replace")
        for age in (1, 2, 3, 4):
            table = ask(curator, age)
            assert (table.replayed, table.mechanism.hash) == (False, second.hash)
            assert table.receipt.epsilon == budget.epsilon
        with pytest.raises(BudgetError):
            ask(curator, 5)
        assert any("decided after answers were seen" in note for note in budget.notes)
        assert curator.ledger.verify() > 0


def test_old_answers_replay_with_their_own_mechanism(config: Path) -> None:
    with Curator.open(config) as curator:
        old = ask(curator, 1)
    change(config, ('epsilon = "10"', 'epsilon = "2"'))
    with Curator.open(config) as curator:
        budget = curator.replan_budget("people", "less noise was promised than needed")
        again, new = curator.count(f"{TOTAL} WHERE age > 1"), curator.count(f"{TOTAL} WHERE age > 2")
        assert again.replayed
        assert again.released.tolist() == old.released.tolist()
        for table, mechanism in ((again, old.mechanism), (new, curator.mechanism("people"))):
            charge, receipt = curator.ledger.charge_of(table.receipt.id), curator.receipt(table.receipt.id)
            assert charge is not None
            assert receipt is not None
            recorded = curator.read_recorded_table(charge)
            assert recorded is not None
            for each in (table, recorded):
                assert (each.margin_95, each.receipt.mechanism) == (mechanism.margin_95, mechanism.hash)
            assert receipt.epsilon == table.receipt.epsilon == budget.epsilon
            assert receipt.answers == table.receipt.answers == 8
        assert again.margin_95 < new.margin_95
        assert curator.dry_run(f"{TOTAL} WHERE age > 1").margin_95 == again.margin_95
        assert curator.dry_run(f"{TOTAL} WHERE age > 3").margin_95 == new.margin_95


@pytest.mark.slow  # plans are searched for
def test_the_stated_epsilon_includes_opened_answers_and_several_new_plans(config: Path) -> None:
    with Curator.open(config) as curator:
        ask(curator, 1)
        first = curator.mechanism("people")
        curator.extend_budget("people", 2, "second edition")
    change(config, LESS)
    with Curator.open(config) as curator:
        curator.replan_budget("people", "again")
        second = curator.mechanism("people")
        opened = curator.extend_budget("people", 1, "one more")
        check_epsilon(opened.epsilon, [(first, 6), (second, 4)])
        third = curator.replan_budget("people", "and again")
        check_epsilon(third.epsilon, [(first, 6), (second, 4), (second, 3)])
        assert (third.answers_total, third.answers_left) == (13, 3)
        assert curator.ledger.verify() > 0


def test_lost_answers_count_against_the_next_plan(config: Path) -> None:
    loaded = load(config)
    with Curator.open(config) as curator:
        ask(curator, 1)
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        ask(curator, 2)
    lost = restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True)
    assert lost == 2
    change(config, LESS)
    with Curator.open(config) as curator:
        first = curator.ledger.plan("people")
        budget = curator.replan_budget("people", "after the fire")
        assert (first and first.debt, budget.answers_total, budget.answers_left) == (0, 7, 1)
        old = curator.ledger.plan("people").earlier[0]  # type: ignore[union-attr]
        check_epsilon(
            budget.epsilon, [(Mechanism.from_text(old.grades[0].document), 4), (curator.mechanism("people"), 3)]
        )
        assert curator.ledger.verify() > 0


@pytest.mark.parametrize("loss_known", [True, False])
def test_a_debt_carries_over_to_the_new_plan(config: Path, loss_known: bool) -> None:
    loaded = load(config)
    with Curator.open(config) as curator:
        for age in range(4):
            ask(curator, age)
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        curator.extend_budget("people", 2, "more")
        first = curator.mechanism("people")
    if not loss_known:
        loaded.anchor.unlink()
    lost = restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True)
    change(config, LESS)
    with Curator.open(config) as curator:
        if not loss_known:
            with pytest.raises(RequestError, match="a plan may have been lost"):
                curator.replan_budget("people", "after the fire")
            return
        budget = curator.replan_budget("people", "after the fire")
        assert (lost, budget.answers_left, budget.answers_lost) == (1, 2, 1)
        check_epsilon(budget.epsilon, [(first, 4 + lost), (curator.mechanism("people"), 3)])


def test_a_pool_without_a_plan_cannot_be_replanned(tmp_path: Path) -> None:
    people(tmp_path)
    with Curator.open(written(tmp_path)) as curator, pytest.raises(RequestError, match="has no plan yet"):
        curator.replan_budget("people", "why")


@pytest.mark.slow  # plans are searched for
def test_the_budget_command_replans_and_logs_the_reason(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    budget, ledger = (runner(monkeypatch, capsys, command) for command in ("budget", "ledger"))
    with Curator.open(config) as curator:
        ask(curator, 1)
    change(config, WIDER)
    assert budget("people", "--replan").code == budget("--replan", "--reason", "x").code == 2
    assert budget("people", "--replan", "--extend", "3", "--reason", "x").code == 2
    done = budget("people", "--replan", "--reason", "three visits", "--json")
    assert (done.code, done.err) == (0, "restart every service that runs with this configuration\n")
    replanned = json.loads(done.out)
    assert (replanned["answers_total"], replanned["answers_left"]) == (8, 4)
    words = " ".join(budget("people").out.split())
    assert "4 of 8 answers left 4 spent; " in words
    assert f"epsilon {replanned['epsilon']}, delta 0.01 for all of them together" in words
    assert "plan 2 of this pool, made when 1 answer had been paid for: decided after answers were seen" in words
    log = ledger("log").out
    assert f"with the earlier ones epsilon {replanned['epsilon']}, delta 0.01 together: three visits" in log
    entries = json.loads(ledger("log", "--json").out)["entries"]
    assert [entry.get("reason") for entry in entries if entry["kind"] == "plan"] == [None, "three visits"]
    assert "weights" not in ledger("log", "--json").out  # the mechanism's file is kept in the entry, not printed
    assert ledger("verify").code == 0


def dented_law() -> Law:
    """A geometric law with two dents: as far from log-concave as a plan of epsilon 1 allows for two answers."""
    likely = [math.exp(-abs(z) / 40) for z in range(-600, 601)]
    weights = [round(2**60 * each / sum(likely)) for each in likely]
    weights[100] -= round(weights[100] * 1.2e-7)
    weights[-101] = weights[100]
    weights[600] += 2**60 - sum(weights)
    return Law(tuple(weights), 600, 60)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_plans_that_merge_cells_state_the_sum_of_what_their_gaps_cost(config: Path, neighbours: str) -> None:
    law = dented_law()
    cost = cost_of_gap(law, 3, 2)
    assert 0.9 * SLACK < cost < SLACK
    mechanism = bind(LawsByCount(law), Terms(Fraction(1), "signed", "program", law.worst_error, sensitivity=3))
    grade = GradeRecord(
        "t", 2, "signed", mechanism.hash, {SENSITIVITY: "3", CELLS: "1"}, mechanism.to_text()
    )  # two answers, in which one person moves one cell by three in place of three cells by one
    first = PlanRecord("people", "1", "0.01", "add-remove", 3, 1, "variance", (grade,))
    last = replace(first, neighbours=neighbours, earlier=(first,) * 9)
    pairs = 2 if neighbours == "replace" else 1
    with Curator.open(config) as curator:
        stated = curator._plans._epsilon_of(last)
    assert stated is not None
    composed = compose(mechanism, 20, neighbours=neighbours)  # type: ignore[arg-type]
    certain = composed.epsilon(Fraction("0.01") * (1 - Fraction(10 * pairs * cost)))
    assert certain is not None
    needed = certain.upper + 10 * pairs * cost
    assert needed <= float(stated) < needed + 2e-5 * needed
