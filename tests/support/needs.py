"""The markers of a test say what it needs from the machine, so that a run can leave it out."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

JAVA = pytest.mark.skipif(
    not os.environ.get("CI") and not os.environ.get("JAVA_HOME") and shutil.which("java") is None,
    reason="Java is missing: make test-system, or apt-get install openjdk-17-jre-headless",
)
given: set[str] | None = None
"""The markers of the running test, or None if no test is running."""


def miss(reason: str) -> NoReturn:
    """Skip a test because this machine lacks something that CI has."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def require(marker: str) -> None:
    """Fail a test that uses a server but lacks the marker for it."""
    assert given is None or marker in given, (
        f"this test uses {marker} but does not have its marker; add pytest.mark.{marker}"
    )
