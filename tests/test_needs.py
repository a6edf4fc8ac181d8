"""The one place where tests and benchmarks look for programs of the system, and the switch that hides them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.needs import PROGRAMS, find, need

ROOT = Path(__file__).parents[1]


def test_no_other_module_looks_for_programs() -> None:
    look = re.compile(r"\bwhich\(|/usr/(?:lib|bin)/|environ\W+(?:get\W+)?JAVA_HOME")
    files = (path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
    assert [path.name for path in files if look.search(path.read_text())] == ["needs.py"]


def test_programs_are_found_unless_the_machine_is_bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program in PROGRAMS:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.delenv("COUNTVEIL_BARE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert None not in map(find, PROGRAMS)
    monkeypatch.setenv("COUNTVEIL_BARE", "1")
    assert {*map(find, PROGRAMS)} == {None}


@pytest.mark.smoke
def test_on_ci_a_missing_program_fails_a_test_unless_the_machine_is_bare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("COUNTVEIL_BARE", raising=False)
    with pytest.raises(pytest.fail.Exception, match="curl is missing: make test-system, or apt-get install curl"):
        need("curl")
    monkeypatch.setenv("COUNTVEIL_BARE", "1")
    with pytest.raises(pytest.skip.Exception, match="curl is missing"):
        need("curl")


def test_a_test_needs_the_marker_of_its_program() -> None:
    with pytest.raises(AssertionError, match=r"uses curl but does not have its marker; add pytest\.mark\.smoke"):
        need("curl")


def test_the_long_part_runs_every_test_that_needs_a_program() -> None:
    markers = re.search(r"^LONG := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert markers is not None
    assert {program.marker for program in PROGRAMS.values()} <= {*markers[1].split(" or ")}
