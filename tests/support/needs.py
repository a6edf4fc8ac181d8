"""What tests and benchmarks need from the machine: every look for a server, a browser or another program is here.

COUNTVEIL_BARE=1 hides them all, so that a machine that has everything runs what a fresh machine runs. Markers say what
a test needs, so that a run can leave it out.
"""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path
from typing import NamedTuple, NoReturn


class Program(NamedTuple):
    """What people call a program, Debian's packages of it, and the marker of the tests that need it."""

    name: str
    packages: str
    marker: str


PROGRAMS = {
    "cc": Program("a C compiler", "gcc libc6-dev", "faults"),
    "chromium": Program("Chromium", "chromium", "browser"),
    "curl": Program("curl", "curl", "smoke"),
    "initdb": Program("PostgreSQL", "postgresql", "postgres"),
    "java": Program("Java", "openjdk-17-jre-headless", "spark"),
}
given: set[str] | None = None
"""The markers of the running test, or None if no test is running."""


def is_bare() -> bool:
    """Whether this machine is treated as one without any of `PROGRAMS`."""
    return bool(os.environ.get("COUNTVEIL_BARE"))


def find(program: str) -> Path | None:
    """The path of one of `PROGRAMS`, or None if it is missing or hidden."""
    assert program in PROGRAMS
    if is_bare():
        return None
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    if "JAVA_HOME" in os.environ:
        folders.append(os.environ["JAVA_HOME"] + "/bin")
    found = shutil.which(program, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    return None if found is None else Path(found)


def explain(program: str) -> str:
    """What to do if a program is missing."""
    return f"{PROGRAMS[program].name} is missing: make test-system, or apt-get install {PROGRAMS[program].packages}"


def need(program: str) -> Path:
    """The path of a program; without it the test is skipped. A test that lacks the program's marker fails."""
    marker = PROGRAMS[program].marker
    assert given is None or marker in given, (
        f"this test uses {program} but does not have its marker; add pytest.mark.{marker}"
    )
    return find(program) or miss(explain(program))


def miss(reason: str) -> NoReturn:
    """Skip a test because this machine lacks something that CI has."""
    import pytest  # benchmarks do without

    if os.environ.get("CI") and not is_bare():
        pytest.fail(reason)
    pytest.skip(reason)
