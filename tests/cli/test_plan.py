"""`countveil plan`: a plan, what a given mechanism affords, and the messages for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import countveil as cv


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "countveil", "plan", *arguments]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "m.json"
    done = run("--epsilon", "3", "--delta", "1e-6", "--answers", "10", "--no-prices", "-o", str(path))
    assert done.returncode == 0
    assert "10 answers together: epsilon 3, delta" in done.stdout
    assert "never negative" in done.stdout
    return path


@pytest.mark.slow  # plans are searched for
def test_json_has_the_documented_keys() -> None:
    done = run("--epsilon", "3", "--delta", "1e-6", "--answers", "10", "--policy", "signed", "--json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["answers"] == 10
    assert Fraction(plan["delta_lower"]) <= Fraction(plan["delta"]) <= Fraction("1e-6")
    assert Fraction(plan["per_answer"]["variance"]) <= Fraction("20.1")
    numbers = [row["answers"] for row in plan["price_list"]]
    assert numbers == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    variances = [float(row["variance"]) for row in plan["price_list"]]
    assert variances == sorted(variances)
    assert [row["answers"] for row in plan["price_list"] if row["chosen"]] == [10]


@pytest.mark.slow  # plans are searched for
def test_method_program_makes_a_never_negative_plan() -> None:
    budget = ("--epsilon", "3", "--delta", "1e-6", "--answers", "2", "--no-prices", "--json")
    plan = json.loads(run(*budget, "--method", "program").stdout)
    assert plan["method"] == plan["per_answer"]["method"] == "program"
    assert plan["per_answer"]["eta_from"] == 1
    assert plan["per_answer"]["unbiased_from"] == 3
    assert Fraction(plan["delta"]) <= Fraction("1e-6")
    assert json.loads(run(*budget).stdout)["method"] == "remap"


def test_a_saved_mechanism_affords_the_planned_number_of_answers(plan_file: Path) -> None:
    done = run("-m", str(plan_file), "--epsilon", "3", "--delta", "1e-6", "--json")
    result = json.loads(done.stdout)
    assert result["answers"] == 10
    assert cv.Mechanism.load(plan_file).certificate.never_negative


@pytest.mark.slow  # plans are searched for
def test_two_of_epsilon_delta_and_answers_determine_the_third(plan_file: Path) -> None:
    epsilon = json.loads(run("-m", str(plan_file), "--answers", "10", "--delta", "1e-6", "--json").stdout)
    assert 2.9 < float(epsilon["epsilon_lower"]) <= float(epsilon["epsilon"]) <= 3.000001
    delta = json.loads(run("-m", str(plan_file), "--answers", "10", "--epsilon", "3", "--json").stdout)
    assert 9e-7 < float(delta["delta_lower"]) <= float(delta["delta"]) <= 1e-6
    replaced = run("-m", str(plan_file), "--answers", "10", "--epsilon", "3", "--neighbours", "replace", "--json")
    assert float(json.loads(replaced.stdout)["delta"]) > 1e-5
    basic = run("-m", str(plan_file), "--answers", "10", "--epsilon", "3", "--adaptive")
    assert "basic composition" in basic.stdout
    none = run("-m", str(plan_file), "--epsilon", "3", "--delta", "1e-30")
    assert none.returncode == 0
    assert "not even one answer" in none.stdout


@pytest.mark.slow  # plans are searched for
def test_printed_numbers_are_rounded_to_the_safe_side(plan_file: Path) -> None:
    result = json.loads(run("-m", str(plan_file), "--answers", "1e5", "--epsilon", "1", "--json").stdout)
    assert result["answers"] == 100_000
    assert result["delta"] == "1"
    assert "no guarantee" in run("-m", str(plan_file), "--answers", "100000", "--epsilon", "1").stdout
    exact = json.loads(run("-m", str(plan_file), "--answers", "3", "--epsilon", "1.23456789012349", "--json").stdout)
    assert exact["epsilon"] == "1.23456789012349"
    group = run("-m", str(plan_file), "--answers", "10", "--delta", "1e-12", "--people", "3")
    assert group.returncode == 0


@pytest.mark.slow  # plans are searched for
def test_the_option_plot_draws_the_price_list(tmp_path: Path) -> None:
    picture = tmp_path / "prices.svg"
    done = run("--epsilon", "20", "--delta", "1e-6", "--answers", "2", "--plot", str(picture))
    assert done.returncode == 0
    assert picture.read_text().startswith("<svg")
    assert "<- planned" in done.stdout


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", "3", "--delta", "1e-6"), "a plan needs --epsilon, --delta and --answers"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "0"), "answers: got 0"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "-3"), "answers: got -3"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "1000000000000"), "answers: got 1000000000000"),
        (("--epsilon", "3", "--delta", "0", "--answers", "3"), "delta: got 0"),
        (("--epsilon", "nan", "--delta", "1e-6", "--answers", "3"), "epsilon: got nan"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--policy", "ceiling"), "policy: got ceiling"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--method", "auto"), "method: got auto"),
        (
            ("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--method", "program", "--policy", "signed"),
            "method: got program, allowed is remap with policy signed",
        ),
        (
            ("--epsilon", "3", "--delta", "1e-6", "--answers", "40", "--method", "program", "--no-prices"),
            "method program allows noise up to D = 48",
        ),
        (
            ("-m", "missing.json", "--method", "program", "--epsilon", "3", "--answers", "2"),
            "--method: not allowed with -m",
        ),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--plot", "x.bmp"), "x.bmp"),
        (("--epsilon", "0.01", "--delta", "1e-15", "--answers", "5000", "--no-prices"), "with noise up to 190000"),
        (("-m", "missing.json", "--epsilon", "3", "--delta", "1e-6"), "missing.json"),
        (("-m", "missing.json", "--epsilon", "3"), "give exactly two of --epsilon, --delta and --answers"),
        (
            ("-m", "missing.json", "--sensitivity", "5", "--epsilon", "3", "--answers", "2"),
            "--sensitivity: not allowed with -m",
        ),
        (("-m", "missing.json", "-o", "x.json", "--epsilon", "3", "--answers", "2"), "-o: not allowed with -m"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow  # a plan of grades is searched for
def test_grades_are_planned_and_each_mechanism_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    options = ("--grade", "fine=1x16", "--grade", "standard=4/signed", "--no-prices", "-o", str(file))
    plan = json.loads(run("--epsilon", "3", "--delta", "1e-6", *options, "--json").stdout)
    assert (plan["answers"], plan["per_answer"]) == (5, None)
    assert [(g["name"], g["answers"], g["policy"]) for g in plan["grades"]] == [
        ("fine", 1, "nonnegative"),
        ("standard", 4, "signed"),
    ]
    for grade in plan["grades"]:
        assert cv.Mechanism.load(tmp_path / f"plan-{grade['name']}.json").hash == grade["mechanism"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--grade", "fine=1", "--grade", "fine=2"), "more than once"),
        (("--grade", "fine"), "NAME=ANSWERS"),
        (("--grade", "fine=1", "--answers", "3"), "either answers"),
        (("--grade", "fine=1", "--plot", "p.svg"), "--plot"),
    ],
)
def test_grades_that_do_not_fit_are_refused(options: tuple[str, ...], message: str) -> None:
    done = run("--epsilon", "3", "--delta", "1e-6", *options)
    assert done.returncode == 2
    assert message in done.stderr
