"""`countveil plan`: a plan, the questions about a mechanism, and what it says to bad input."""

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
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "m.json"
    done = run("--epsilon", "3", "--delta", "1e-6", "--answers", "10", "--no-prices", "-o", str(path))
    assert done.returncode == 0
    assert "10 answers together: epsilon 3, delta" in done.stdout
    assert "never negative" in done.stdout
    return path


@pytest.mark.slow  # plans are searched for
def test_json_has_the_promised_keys() -> None:
    done = run("--epsilon", "3", "--delta", "1e-6", "--answers", "10", "--policy", "signed", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["answers"] == 10
    assert Fraction(found["delta_lower"]) <= Fraction(found["delta"]) <= Fraction("1e-6")
    assert Fraction(found["per_answer"]["variance"]) <= Fraction("20.1")
    listed = [row["answers"] for row in found["price_list"]]
    assert listed == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    variances = [float(row["variance"]) for row in found["price_list"]]
    assert variances == sorted(variances)
    assert [row["answers"] for row in found["price_list"] if row["chosen"]] == [10]


@pytest.mark.slow  # plans are searched for
def test_never_negative_by_program() -> None:
    budget = ("--epsilon", "3", "--delta", "1e-6", "--answers", "2", "--no-prices", "--json")
    found = json.loads(run(*budget, "--method", "program").stdout)
    assert found["method"] == found["per_answer"]["method"] == "program"
    assert found["per_answer"]["eta_from"] == 1
    assert found["per_answer"]["unbiased_from"] == 3
    assert Fraction(found["delta"]) <= Fraction("1e-6")
    assert json.loads(run(*budget).stdout)["method"] == "remap"


def test_the_saved_mechanism_affords_what_was_planned(planned: Path) -> None:
    done = run("-m", str(planned), "--epsilon", "3", "--delta", "1e-6", "--json")
    found = json.loads(done.stdout)
    assert found["answers"] == 10
    assert cv.Mechanism.load(planned).certificate.never_negative


@pytest.mark.slow  # plans are searched for
def test_two_of_three_give_the_third(planned: Path) -> None:
    epsilon = json.loads(run("-m", str(planned), "--answers", "10", "--delta", "1e-6", "--json").stdout)
    assert 2.9 < float(epsilon["epsilon_lower"]) <= float(epsilon["epsilon"]) <= 3.000001
    delta = json.loads(run("-m", str(planned), "--answers", "10", "--epsilon", "3", "--json").stdout)
    assert 9e-7 < float(delta["delta_lower"]) <= float(delta["delta"]) <= 1e-6
    replaced = run("-m", str(planned), "--answers", "10", "--epsilon", "3", "--neighbours", "replace", "--json")
    assert float(json.loads(replaced.stdout)["delta"]) > 1e-5
    basic = run("-m", str(planned), "--answers", "10", "--epsilon", "3", "--adaptive")
    assert "basic composition" in basic.stdout
    none = run("-m", str(planned), "--epsilon", "3", "--delta", "1e-30")
    assert none.returncode == 0
    assert "not even one answer" in none.stdout


@pytest.mark.slow  # plans are searched for
def test_printed_figures_are_on_the_safe_side(planned: Path) -> None:
    found = json.loads(run("-m", str(planned), "--answers", "1e5", "--epsilon", "1", "--json").stdout)
    assert found["answers"] == 100_000
    assert found["delta"] == "1"
    assert "no guarantee" in run("-m", str(planned), "--answers", "100000", "--epsilon", "1").stdout
    exact = json.loads(run("-m", str(planned), "--answers", "3", "--epsilon", "1.23456789012349", "--json").stdout)
    assert exact["epsilon"] == "1.23456789012349"
    group = run("-m", str(planned), "--answers", "10", "--delta", "1e-12", "--people", "3")
    assert group.returncode == 0


@pytest.mark.slow  # plans are searched for
def test_the_price_list_is_drawn(tmp_path: Path) -> None:
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
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--policy", "floor"), "policy: got floor"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--method", "auto"), "method: got auto"),
        (
            ("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--method", "program", "--policy", "signed"),
            "method: got program, allowed is remap with policy signed",
        ),
        (
            ("--epsilon", "3", "--delta", "1e-6", "--answers", "40", "--method", "program", "--no-prices"),
            "method program plans noise up to 48",
        ),
        (("-m", "missing.json", "--method", "program", "--epsilon", "3", "--answers", "2"), "--method: not with -m"),
        (("--epsilon", "3", "--delta", "1e-6", "--answers", "3", "--plot", "x.bmp"), "x.bmp"),
        (("--epsilon", "0.01", "--delta", "1e-15", "--answers", "5000", "--no-prices"), "with noise up to 20000"),
        (("-m", "missing.json", "--epsilon", "3", "--delta", "1e-6"), "missing.json"),
        (("-m", "missing.json", "--epsilon", "3"), "give two of --epsilon, --delta and --answers"),
        (
            ("-m", "missing.json", "--sensitivity", "5", "--epsilon", "3", "--answers", "2"),
            "--sensitivity: not with -m",
        ),
        (("-m", "missing.json", "-o", "x.json", "--epsilon", "3", "--answers", "2"), "-o: not with -m"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
