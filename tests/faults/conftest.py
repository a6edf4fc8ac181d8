"""Worker processes for the tests of this folder, and the audit that follows every crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ledger_workers import Workers


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as started:
        yield started
