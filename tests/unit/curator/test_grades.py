"""Grades: several accuracies from one budget, each with its number of answers; a question may name the grade."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from countveil.accounting import compose
from countveil.accounting.privacy_loss import float_below
from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.curator.results import Table
from countveil.errors import BudgetError, ConfigError, ParameterError
from countveil.ledger import PlanRecord
from countveil.ledger.restoration import restore
from countveil.mechanism.mechanism import Mechanism
from countveil.service import schemas
from countveil.service.api_keys import Key
from countveil.service.routes import describe_table, list_pools
from tests.support.curated import QUICK, charged, config_text, people, runner, with_plan, written

TOTAL = "SELECT count(*) FROM people"
FINE = "fine = { answers = 2, weight = 4 }"
GRADED = f"""epsilon = "10"
delta = "0.01"
[dataset.people.budget.grades]
{FINE}
standard = {{ answers = 3 }}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    people(tmp_path)
    path = written(tmp_path, config_text(budget=GRADED))
    with_plan(path)
    return path


def ask(curator: Curator, age: int, grade: str | None = None, **more: object) -> Table:
    return curator.count(f"{TOTAL} WHERE age > {age}", grade=grade, **more)  # type: ignore[arg-type]


def parts(record: PlanRecord) -> list[tuple[Mechanism, int]]:
    """Every grade's mechanism, with all of its answers that were opened or may have been lost."""
    return [(Mechanism.from_text(each.document), each.opened_answers + each.debt) for each in record.grades]


def check_epsilon(stated: str, composed: Sequence[tuple[Mechanism, int]]) -> None:
    """The epsilon holds for the composition of all parts at delta 0.01, and 1 % less does not."""
    together, epsilon = compose(list(composed)), float_below(Fraction(stated))
    assert together.delta(epsilon).upper <= Fraction("0.01") < together.delta(epsilon * 0.99).upper


def test_the_plan_keeps_epsilon_and_delta_for_all_answers_of_all_grades(config: Path) -> None:
    with Curator.open(config) as curator:
        record = curator.ledger.plan("people")
        assert record is not None
        assert [(each.name, each.answers, dict(each.terms)) for each in record.grades] == [
            ("fine", 2, {"weight": "4"}),
            ("standard", 3, {}),
        ]
        assert compose(parts(record)).delta(float_below(Fraction(record.epsilon))).upper <= Fraction(record.delta)
        fine, standard = (curator.mechanism("people", name) for name in ("fine", "standard"))
        assert fine.certificate.variance < standard.certificate.variance
        assert curator.mechanism("people").hash == standard.hash


def test_the_default_grade_pays_unless_a_grade_is_named(config: Path) -> None:
    with Curator.open(config) as curator:
        for grade, expected in ((None, "standard"), ("fine", "fine"), ("standard", "standard")):
            table = ask(curator, len(expected) + (grade is None), grade)
            assert (table.receipt.grade, table.replayed) == (expected, False)
            assert table.mechanism.hash == curator.mechanism("people", expected).hash == table.receipt.mechanism
            assert table.margin_95 == table.mechanism.margin_95
        left = {each.name: each.answers_left for each in curator.budget()[0].grades}
        assert left == {each.name: each.answers_left for each in table.receipt.grades} == {"fine": 1, "standard": 1}
        assert table.receipt.answers_left == 2
        assert [entry.grade for entry in curator.history()] == ["standard", "fine", "standard"]


def test_without_a_grade_the_finest_answer_on_record_is_replayed(config: Path) -> None:
    with Curator.open(config) as curator:
        rough = ask(curator, 1)
        assert ask(curator, 1).receipt.id == rough.receipt.id
        fine = ask(curator, 1, "fine")
        assert not fine.replayed
        for grade, expected in ((None, fine), ("fine", fine), ("standard", rough)):
            again = ask(curator, 1, grade, analyst="ann")
            assert (again.replayed, again.receipt.id) == (True, expected.receipt.id)
            assert again.released.tolist() == expected.released.tolist()
            assert again.mechanism.hash == expected.mechanism.hash
        assert ask(curator, 2, "fine").receipt.grade == ask(curator, 2).receipt.grade == "fine"
    assert charged(config) == 3


def test_a_charge_without_an_answer_is_completed_in_its_grade(config: Path) -> None:
    """It is already paid for; an answer on record in another grade is preferred."""
    with Curator.open(config) as curator:
        question = curator.question(f"{TOTAL} WHERE age > 1")
        ask(curator, 5)  # the version of the data is on record
        asked = ("people", "people", 1, question.sha256, question.text, "ann")
        charge = curator.ledger.charge(*asked, "fine")
        dry = curator.dry_run(question)
        assert (dry.cost, dry.grade) == (0, "fine")
        table = curator.count(question)
        assert (table.receipt.id, table.receipt.grade, table.replayed) == (charge.id, "fine", False)
        assert table.mechanism.hash == curator.mechanism("people", "fine").hash
        rough = ask(curator, 2)
        other = curator.question(f"{TOTAL} WHERE age > 2")
        curator.ledger.charge("people", "people", 1, other.sha256, other.text, "ann", "fine")
        assert curator.count(other).receipt.id == rough.receipt.id


def test_a_grade_that_is_used_up_is_refused_and_others_are_named(config: Path) -> None:
    with Curator.open(config) as curator:
        for age in (1, 2, 3):
            ask(curator, age)
        for refused in (lambda: ask(curator, 4), lambda: curator.dry_run(f"{TOTAL} WHERE age > 4")):
            with pytest.raises(BudgetError) as error:
                refused()
            assert (error.value.grade, error.value.answers, error.value.others) == ("standard", 3, {"fine": 2})
            assert "the budget of grade standard of people is spent, all 3 answers" in str(error.value)
            assert "other grades have answers left (2 of fine): ask again and name one of" in str(error.value)
            assert "--extend N --grade standard --reason WHY" in str(error.value)
        assert ask(curator, 4, "fine").receipt.grade == "fine"
        assert ask(curator, 1).replayed
    assert charged(config) == 4


@pytest.mark.parametrize("grade", ["finest", "", "Standard", "fine "])
def test_an_unknown_grade_is_refused_before_anything_is_recorded(tmp_path: Path, grade: str) -> None:
    people(tmp_path)
    path = written(tmp_path, config_text(budget=GRADED))
    with Curator.open(path) as curator:
        for refused in (lambda: curator.count(TOTAL, grade=grade), lambda: curator.dry_run(TOTAL, grade=grade)):
            with pytest.raises(ParameterError, match=r"grade: .*allowed is a grade of pool people: fine, standard"):
                refused()
        assert [entry.kind for entry in curator.ledger.entries()] == ["open"]


def test_a_dry_run_shows_every_grade(config: Path) -> None:
    with Curator.open(config) as curator:
        dry = curator.dry_run(TOTAL)
        assert (dry.grade, dry.cost, dry.answers_left) == ("standard", 1, 3)
        fine, standard = (curator.mechanism("people", name) for name in ("fine", "standard"))
        assert [(each.name, each.answers_left, each.margin_95, each.worst_error) for each in dry.grades] == [
            ("fine", 2, fine.margin_95, fine.certificate.worst_error),
            ("standard", 3, standard.margin_95, standard.certificate.worst_error),
        ]
        chosen = curator.dry_run(TOTAL, grade="fine")
        assert (chosen.grade, chosen.answers_left, chosen.worst_error) == ("fine", 2, fine.certificate.worst_error)
        curator.count(TOTAL, grade="fine")
        again = curator.dry_run(TOTAL)
        assert (again.grade, again.cost, again.worst_error) == ("fine", 0, fine.certificate.worst_error)
        assert curator.dry_run(TOTAL, grade="standard").cost == 1


@pytest.mark.slow  # all answers are composed
def test_more_answers_of_one_grade_are_included_in_the_stated_epsilon_of_all_grades(config: Path) -> None:
    with Curator.open(config) as curator:
        with pytest.raises(ParameterError, match="allowed is a grade of pool people: fine, standard"):
            curator.extend_budget("people", 1, "which?")
        more = curator.extend_budget("people", 1, "one more headline figure", grade="fine")
        assert [(each.name, each.answers_total, each.answers_left) for each in more.grades] == [
            ("fine", 3, 3),
            ("standard", 3, 3),
        ]
        record = curator.ledger.plan("people")
        assert record is not None
        assert [k for _, k in parts(record)] == [3, 3]
        check_epsilon(more.epsilon, parts(record))
        assert ask(curator, 1).receipt.epsilon == more.epsilon
        (entry,) = (entry for entry in curator.ledger.entries() if entry.kind == "extend")
        assert (entry.body["grade"], entry.body["epsilon"]) == ("fine", more.epsilon)


@pytest.mark.slow  # all answers are composed
def test_lost_answers_count_in_the_epsilon_for_every_grade(config: Path) -> None:
    loaded = load(config)
    with Curator.open(config) as curator:
        ask(curator, 1, "fine")
        curator.ledger.backup(config.parent / "old")  # type: ignore[attr-defined]
        ask(curator, 2)
    lost = restore(config.parent / "old", loaded.ledger, loaded.anchor, accept_loss=True)
    assert lost == 2
    with Curator.open(config) as curator:
        (budget,) = curator.budget()
        assert [(each.name, each.answers_left) for each in budget.grades] == [("fine", 0), ("standard", 1)]
        record = curator.ledger.plan("people")
        assert record is not None
        assert [each.debt for each in record.grades] == [1, 0]
        assert budget.answers_lost == 1
        check_epsilon(budget.epsilon, parts(record))
        more = curator.extend_budget("people", 2, "one pays the debt", grade="fine")
        assert [(each.name, each.answers_left) for each in more.grades] == [("fine", 1), ("standard", 1)]
        assert more.answers_lost == 0


@pytest.mark.slow  # all answers are composed
def test_a_new_plan_may_add_grades_to_a_pool_without_grades(tmp_path: Path) -> None:
    people(tmp_path)
    path = written(tmp_path, config_text(budget=QUICK))
    with_plan(path)
    with Curator.open(path) as curator:
        old, before = ask(curator, 1), curator.ledger.plan("people")
        assert (before is not None, old.receipt.grade) == (True, "standard")
    written(tmp_path, config_text(budget=GRADED))
    with Curator.open(path) as curator:
        with pytest.raises(ConfigError, match='answers = 4, policy = "nonnegative", objective = "variance"; or make'):
            ask(curator, 1)
        budget = curator.replan_budget("people", "headline figures")
        record = curator.ledger.plan("people")
        assert record is not None
        assert before is not None
        check_epsilon(budget.epsilon, [*parts(before), *parts(record)])
        assert [(each.name, each.answers_total, each.answers_left) for each in budget.grades] == [
            ("fine", 2, 2),
            ("standard", 3, 3),
        ]
        assert (budget.answers_total, budget.answers_left) == (9, 5)
        again = ask(curator, 1)
        assert (again.replayed, again.receipt.id, again.mechanism.hash) == (True, old.receipt.id, old.mechanism.hash)
        finer = ask(curator, 1, "fine")
        assert (finer.replayed, finer.mechanism.hash) == (False, curator.mechanism("people", "fine").hash)
        errors = {(t.margin_95, t.mechanism.certificate.variance): t.receipt.id for t in (old, finer)}
        assert ask(curator, 1).receipt.id == errors[min(errors)]


def test_a_configuration_with_other_grades_is_refused(config: Path) -> None:
    with Curator.open(config) as curator:
        ask(curator, 1)
    text = config.read_text()
    for other in (
        "fine = { answers = 3, weight = 4 }",
        "fine = { answers = 2, weight = 5 }",
        "extra = { answers = 2 }",
    ):
        config.write_text(text.replace(FINE, other))
        with Curator.open(config) as curator, pytest.raises(ConfigError) as error:
            ask(curator, 1)
        recorded = 'grades: fine = { answers = 2, weight = "4", policy = "nonnegative" }, standard = { answers = 3'
        assert recorded in str(error.value)
    config.write_text(text.replace('delta = "0.01"', 'delta = "0.01"\ndefault_grade = "fine"'))
    with Curator.open(config) as curator:  # which grade pays by default is no part of the plan
        assert ask(curator, 2).receipt.grade == "fine"


def test_shares_and_limits_apply_to_each_grade(config: Path) -> None:
    shares = "[dataset.people.budget.shares]\nann = { standard = 2 }\nbob = { fine = 1, standard = 1 }\n"
    config.write_text(config.read_text() + shares)
    with Curator.open(config) as curator:
        ask(curator, 1, analyst="ann")
        for analyst, grade in (("ann", "fine"), ("eve", "standard")):
            for refused in (
                lambda who=analyst, of=grade: ask(curator, 2, of, analyst=who),
                lambda who=analyst, of=grade: curator.dry_run(f"{TOTAL} WHERE age > 2", grade=of, analyst=who),
            ):
                with pytest.raises(
                    BudgetError, match=f"{analyst} has no share in grade {grade} of the budget of people"
                ):
                    refused()
        ask(curator, 2, "fine", analyst="bob")
        (budget,) = curator.budget()
        assert {who: share.describe() for who, share in budget.shares.items()} == {
            "ann": {"answers": 2, "left": 1, "grades": {"standard": {"answers": 2, "left": 1}}},
            "bob": {
                "answers": 2,
                "left": 1,
                "grades": {g: {"answers": 1, "left": k} for g, k in (("fine", 0), ("standard", 1))},
            },
        }
        dataset = curator.config.dataset("people")
        left = [(each.name, each.answers_left) for each in curator.grades_left(dataset, "ann")]
        assert left == [("fine", 0), ("standard", 1)]
        assert curator.left(dataset, "bob") == 1
        assert curator.left(dataset, "bob", {"fine": 1}) == 0
        with pytest.raises(BudgetError):
            ask(curator, 3, analyst="bob", most={"fine": 1})
        with pytest.raises(BudgetError):
            ask(curator, 3, analyst="bob", most=1)
        ask(curator, 3, analyst="bob", most=2)


def test_http_and_the_pages_show_every_grade(config: Path) -> None:
    from starlette.datastructures import FormData

    from countveil.service.web import ask_page, budget_page, views

    ann, boss = (
        Key(name, role, most, "0", "0", "now")
        for name, role, most in (("ann", "analyst", {"fine": 1}), ("b", "curator", None))
    )
    with Curator.open(config) as curator:
        table = curator.count(TOTAL, grade="fine")
        receipt = schemas.TableResponse(**describe_table(table)).receipt
        assert (receipt.grade, [each.answers_left for each in receipt.grades]) == ("fine", [1, 3])
        for key, left in ((ann, [1, 0]), (boss, [1, 3])):
            (pool,) = schemas.BudgetResponse(schema_version=1, pools=list_pools(curator, key)).pools
            assert ([each.answers_left for each in pool.grades], pool.answers_left) == (left, sum(left))
            page = views._templates.get_template("budget.html").render(
                who=key, path="/", **budget_page.build_page(curator, key, False)
            )
            for name, many in zip(("fine", "standard"), left, strict=True):
                row = page.partition(f"<td>{name}")[2].partition("</tr>")[0]
                assert f"±{curator.mechanism('people', name).margin_95}" in row
                assert f'<td class="num">{many}</td>' in row
        values = ask_page.build_page(curator, boss, FormData([("sql", TOTAL), ("do", "plan"), ("grade", "standard")]))
        page = views._templates.get_template("_asking.html").render(**values)
        assert "Costs 1 of 3 answers left, grade standard" in page
        assert '<option value="standard" selected>' in page
        again = FormData([("sql", TOTAL), ("do", "count"), ("grade", ""), ("priced", values["priced"])])
        assert "dry" in ask_page.build_page(curator, boss, again), "the price was that of another grade"
        paid = FormData([("sql", TOTAL), ("do", "count"), ("grade", "standard"), ("priced", values["priced"])])
        page = views._templates.get_template("_asking.html").render(**ask_page.build_page(curator, boss, paid))
        assert "Answered, for 1 answer, grade standard" in page
        assert "<dt>grade fine</dt>" in page


def test_opening_the_page_to_ask_makes_no_plan(tmp_path: Path) -> None:
    """A plan takes seconds: until there is one, the page shows only the names of grades."""
    from starlette.datastructures import FormData

    from countveil.service.web import ask_page, views

    people(tmp_path)
    with Curator.open(written(tmp_path, config_text(budget=GRADED))) as curator:
        values = ask_page.build_page(curator, Key("b", "curator", None, "0", "0", "now"), FormData())
        page = views._templates.get_template("_asking.html").render(**values)
        assert '<option value="">an answer on record, else standard</option>' in page
        assert '<option value="fine">fine</option>' in page
        assert curator._plans._new_plans == {}


def test_the_commands_show_every_grade(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count, budget, ledger = (runner(monkeypatch, capsys, name) for name in ("count", "budget", "ledger"))
    dry = count(TOTAL, "--dry-run", "--grade", "fine").out
    assert "costs      1 answer of 2 left, grade fine" in dry
    assert dry.count("grade      ") == 2
    done = count(TOTAL, "--grade", "fine", "-o", "table.csv")
    assert (done.code, "paid: 1 answer in grade fine" in done.out) == (0, True)
    assert "answers left: 1 of fine (±" in done.out
    assert json.loads(count(TOTAL, "--json").out)["receipt"]["grade"] == "fine"
    words = " ".join(budget().out.split())
    assert "4 of 5 answers left" in words
    assert "fine: each count ±" in words
    assert "1 of 2 left" in words
    assert "3 of 3 left, unless another grade is named" in words
    assert "give the pool" in budget("--grade", "fine", "--extend", "1").err
    assert budget("--grade", "fine").code == 2
    shown = json.loads(budget("people", "--extend", "1", "--grade", "fine", "--reason", "more", "--json").out)
    assert [(each["name"], each["answers_left"]) for each in shown["grades"]] == [("fine", 2), ("standard", 3)]
    log = ledger("log").out
    assert "people: 5 answers (2 fine, 3 standard), epsilon 10, delta 0.01 together" in log
    assert "people: 1 more answers of grade fine, epsilon" in log
    assert "curator, grade fine: SELECT count(*)" in log
    assert "weights" not in ledger("log", "--json").out
    assert ledger("verify").code == 0
