"""The plan of the publication of these tests, designed once before any of them is timed."""

from __future__ import annotations

import pytest

from tests.support.published import open_place


@pytest.fixture(scope="session", autouse=True)
def opened_place() -> None:
    open_place()
