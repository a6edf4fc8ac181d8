"""`countveil compare`: the table, the JSON output, and the messages for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "countveil", "compare", *arguments]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_json_has_the_documented_keys() -> None:
    done = run("--epsilon", "1", "--delta", "1e-6", "-m", "countveil-signed", "-m", "geometric", "--json")
    assert done.returncode == 0
    comparison = json.loads(done.stdout)
    assert comparison["schema_version"] == 1
    assert [row["mechanism"] for row in comparison["rows"]] == ["countveil-signed", "geometric"]
    for row in comparison["rows"]:
        assert {"epsilon", "delta", "eta", "variance", "worst_error", "within_3", "bias_at", "never_negative"} <= set(
            row
        )
        assert set(row["bias_at"]) == {"0", "1", "2", "5"}
        assert Fraction(row["delta"]) <= Fraction("1e-6")


def test_the_table_fits_80_columns_and_lists_the_mechanisms_left_out() -> None:
    done = run("--epsilon", "2", "--variance", "0.5", "-D", "5")
    assert done.returncode == 0
    assert "At the same variance: epsilon 2, variance 0.5, D 5" in done.stdout
    assert "maximum-entropy p-table" in done.stdout
    assert "sorted by delta" in done.stdout
    assert "…" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    left_out = run("--epsilon", "1", "--delta", "1e-6", "--sensitivity", "2", "-m", "paper", "-m", "geometric")
    assert "left out: paper" in left_out.stdout


def test_the_row_of_a_mechanism_on_the_counts_0_to_3_has_every_column() -> None:
    done = run("--epsilon", "1", "--delta", "1e-6", "--largest-count", "3", "-m", "explicit-fair", "-m", "geometric")
    line = next(line for line in done.stdout.splitlines() if "explicit fair" in line and "never" in line)
    assert line.split()[-2:] == ["-", "never"]


def test_the_options_take_several_mechanisms_and_a_number_of_answers() -> None:
    done = run(
        "--epsilon", "3", "--delta", "1e-6", "--answers", "4", "--only", "discrete-gaussian,geometric", "-m", "skellam"
    )
    assert done.returncode == 0
    assert "delta 1e-6, 4 answers" in done.stdout
    names = [name for name in ("discrete Gaussian", "geometric", "Skellam") if name in done.stdout]
    assert len(names) == 3
    assert "certified composition" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--json",), "got nothing, which"),
        (("--epsilon", "x", "--delta", "1e-6"), "epsilon: got x"),
        (("--epsilon", "1", "--delta", "1e-6", "-m", "magic"), "mechanism: got magic"),
        (("--epsilon", "1", "--delta", "1e-6", "--sort", "beauty"), "sort: got beauty"),
        (("--epsilon", "1", "--delta", "1e-6", "--plot", "x.bmp"), "x.bmp"),
        (("--epsilon", "1", "--delta", "1e-6", "-m", "p-table"), "leave zero alone"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
