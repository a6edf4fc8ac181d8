"""`countveil nonnegative` and `countveil plan --unbiased-from`: the bias that remains from n0 on."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import countveil as cv


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "countveil", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("signed") / "signed.json")
    cv.design(epsilon="0.2", eta="0.0996679", D=60, policy="signed").save(path)
    return path


@pytest.mark.slow  # linear programs
def test_the_bias_from_n0_on_is_below_its_published_value(signed: str) -> None:
    for words, n0, residue in (
        (["nonnegative", signed, "--unbiased-from", "7"], 7, "5.6e-5"),
        (["nonnegative", "--gaussian", "72", "--epsilon", "1", "--unbiased-from", "25"], 25, "4e-8"),
        (
            ["plan", "--epsilon", "3", "--delta", "1e-6", "--answers", "10", "--unbiased-from", "6", "--no-prices"],
            6,
            "1.3e-7",
        ),
    ):
        done = run(*words, "--json")
        assert done.returncode == 0, done.stderr
        certificate = json.loads(done.stdout)
        certificate = certificate.get("per_answer", certificate)
        assert certificate["n0"] == n0
        assert 0 < Fraction(certificate["bias_from_n0"]) <= Fraction(residue)
        assert certificate["never_negative"]


def test_a_saved_mechanism_is_certified_with_its_bias(signed: str, tmp_path: Path) -> None:
    target = str(tmp_path / "m.json")
    done = run("nonnegative", signed, "--unbiased-from", "8", "--max-bias", "1e-3", "-o", target)
    assert done.returncode == 0
    assert "from n = 8 on" in done.stdout
    again = run("certify", target, "--profile", "--json")
    rows = json.loads(again.stdout)["profile"]
    assert max(abs(Fraction(row["bias"])) for row in rows if row["n"] >= 8) <= Fraction("1e-3")


@pytest.mark.slow  # linear programs
def test_bad_input_is_refused_in_one_line(signed: str) -> None:
    for words, message in (
        ([], "give the FILE"),
        ([signed, "--gaussian", "72"], "give the FILE"),
        ([signed, "--epsilon", "1"], "are for --gaussian"),
        (["--gaussian", "72"], "needs --epsilon"),
        ([signed, "--max-bias", "0"], "max_bias"),
        ([signed, "--unbiased-from", "7", "--max-bias", "1e-7"], "the least is about"),
    ):
        done = run("nonnegative", *words)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    refused = run("plan", "-m", signed, "--answers", "3", "--delta", "1e-6", "--unbiased-from", "6")
    assert "not allowed with -m" in refused.stderr
