"""`countveil ptable`: audit an office's table, design a better one, export it; bad input is refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import countveil as cv
from countveil import ptables


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "countveil", "ptable", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def result(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    description = json.loads(done.stdout)
    assert description["schema_version"] == 1
    return dict(description)


def deltas(description: dict[str, Any], epsilon: str = "1") -> dict[str, Fraction]:
    return {entry["reading"]: Fraction(entry["delta"][epsilon]) for entry in description["readings"]}


@pytest.fixture(scope="module")
def incumbent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that R's ptable makes for D 7, V 4, js 2."""
    path = tmp_path_factory.mktemp("office") / "yours.txt"
    ptables.save(ptables.design(D=7, V=4, js=2, objective="entropy").table, path)
    return path


@pytest.fixture(scope="module")
def mechanism(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "mechanism.json"
    cv.design(epsilon="1", eta="0.4", D=7).save(path)
    return path


def test_audit_measures_every_reading_of_a_table(incumbent: Path) -> None:
    audit = result("audit", incumbent, "--epsilon", "0.5", "--epsilon", "1")
    assert audit["format"] == "tau-argus"
    assert [entry["reading"] for entry in audit["readings"]] == ["designed", "zero_frozen", "from_n0", "last_row"]
    assert set(audit["readings"][0]["delta"]) == {"0.5", "1"}
    at = deltas(audit)
    assert at["zero_frozen"] == at["designed"] > Fraction("0.22") > Fraction("0.06") > at["from_n0"] > at["last_row"]
    assert audit["readings"][0]["worst_pair"]["1"] == [1, 0]
    assert [row["count"] for row in audit["rows"]] == list(range(11))
    assert audit["rows"][1]["support"] == [0, 8]
    assert audit["rows"][1]["outcomes"] == 7
    assert len(audit["curve"]) == 41
    assert any("gives that person away" in words for words in audit["meaning"])
    assert any("margins" in words for words in audit["limits"])


def test_audit_prints_the_readings_and_their_limits(incumbent: Path) -> None:
    done = run("audit", incumbent)
    assert done.returncode == 0
    for words in ("zero frozen, as applied", "counts >= 1", "last row", "worst pair", "What it rests on"):
        assert words in done.stdout
    later = run("audit", incumbent, "--from", "3", "--rows")
    assert "counts >= 3" in later.stdout


@pytest.mark.slow  # designs tables by linear programs
def test_audit_draws_the_curve(incumbent: Path, tmp_path: Path) -> None:
    picture = tmp_path / "table.svg"
    assert run("audit", incumbent, "--plot", picture).returncode == 0
    text = picture.read_text()
    assert "zero frozen, as applied" in text
    assert "yours.txt" in text


@pytest.mark.slow  # designs tables by linear programs
def test_a_table_designed_against_another_is_at_least_as_private(incumbent: Path, tmp_path: Path) -> None:
    better = tmp_path / "better.txt"
    before = result("audit", incumbent, "--epsilon", "1")
    design = result("design", "--against", incumbent, "-o", better)
    after = result("audit", better, "--epsilon", "1")
    assert deltas(design) == deltas(after)
    assert deltas(design["against"]) == deltas(before)
    assert all(deltas(after)[reading] <= delta for reading, delta in deltas(before).items())
    assert deltas(after)["from_n0"] * 20 < deltas(before)["from_n0"]
    assert deltas(after)["last_row"] <= Fraction("0.00043")
    assert Fraction(design["variance"]) <= Fraction(before["rows"][-1]["variance"]) + Fraction(1, 10**12)
    assert {row["bias"] for row in after["rows"]} == {"0"}


@pytest.mark.slow  # designs tables by linear programs
def test_design_accepts_the_parameter_names_of_offices_and_of_countveil(tmp_path: Path) -> None:
    theirs = result("design", "--D", "5", "--V", "3", "--pstay", "0.5", "--js", "1")
    ours = result("design", "-D", "5", "--max-variance", "3", "--eta", "0.5", "--js", "1")
    assert theirs["rows"] == ours["rows"]
    free = result("design", "--D", "5", "--V", "3", "--no-freeze-zero", "--unimodal")
    assert free["zero_frozen_in_file"] is False
    assert deltas(free)["designed"] < deltas(free)["zero_frozen"]
    screen = run("design", "--D", "5", "--V", "3", "--format", "cellkey", "-o", tmp_path / "t.yaml")
    assert "measured on the rounded table" in screen.stdout
    assert "saved to" in screen.stderr
    assert result("audit", tmp_path / "t.yaml")["format"] == "cellkey"


@pytest.mark.parametrize("kind", ["tau-argus", "sas", "cellkey", "ons"])
def test_an_exported_mechanism_has_the_reported_delta_when_audited(kind: str, mechanism: Path, tmp_path: Path) -> None:
    target = tmp_path / "table"
    keys = ["--keys", "256"] if kind == "ons" else []
    export = result("export", mechanism, "--format", kind, *keys, "-o", target)
    assert export["units"] == (256 if keys else 10**8)
    assert Fraction(export["delta_before_rounding"]) < deltas(export)["designed"] < deltas(export)["zero_frozen"]
    again = result("audit", target, "--epsilon", "1")
    assert again["format"] == kind
    assert deltas(again)["zero_frozen"] == deltas(export)["zero_frozen"]
    assert deltas(again)["from_n0"] == deltas(export)["from_n0"]


@pytest.mark.slow  # designs tables by linear programs
def test_export_prints_the_delta_before_and_after(mechanism: Path, tmp_path: Path) -> None:
    done = run("export", mechanism, "--format", "ons", "-o", tmp_path / "t.csv")
    assert done.returncode == 0
    for words in ("the mechanism has delta 0.00051", "zero frozen, as applied", "4096 equally likely cell keys"):
        assert words in done.stdout


@pytest.mark.slow  # designs tables by linear programs
def test_bad_input_is_refused_in_one_line_and_writes_no_file(mechanism: Path, incumbent: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.txt"
    broken.write_text("i;j;p;v;p_ub\n0;0;1;0;1\n2;2;1;0;1\n")
    signed = tmp_path / "signed.json"
    cv.design(epsilon="1", delta="1e-4", policy="signed").save(signed)
    for words, message in (
        (["audit", broken], "broken.txt, line 3: i = 2 follows 0"),
        (["audit", tmp_path / "none"], "cannot be read"),
        (["audit", incumbent, "--epsilon", "nan"], "epsilon: got nan"),
        (["audit", incumbent, "--epsilon", "-1"], "epsilon: got -1"),
        (["audit", incumbent, "--from", "x"], "from: got x"),
        (["audit", incumbent, "--format", "xls"], "format: got xls"),
        (["audit", incumbent, "--plot", "x.pdf"], ".svg, .png or .html"),
        (["design"], "give --D and --V"),
        (["design", "--D", "7", "--V", "1", "--js", "2"], "row 1 has variance at least 2"),
        (["design", "--against", broken], "line 3"),
        (["design", "--D", "7", "--V", "4", "-o", tmp_path / "no" / "t"], "output"),
        (["export", mechanism], "Missing option"),
        (["export", incumbent, "-o", tmp_path / "t"], "not a valid mechanism file"),
        (["export", signed, "-o", tmp_path / "t"], "no negative j"),
        (["export", mechanism, "--keys", "256", "-o", tmp_path / "t"], "keys is only for format ons"),
    ):
        done = run(*words)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert not done.stdout
    assert not (tmp_path / "t").exists()
