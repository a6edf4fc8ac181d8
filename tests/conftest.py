"""Settings of all tests: markers by folder, the hypothesis profile, distribution over workers, and a time limit.

Markers say what a test needs or why it takes long (pyproject.toml lists them). `make test` leaves out those that need
another server or much time, but for smoke tests; `make test-long` runs them, and the smoke tests.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.support import needs
from tests.support.effort import FAST

settings.register_profile("countveil", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("countveil")

TESTS = Path(__file__).parent
PLACES = {
    "browser": "browser",
    "faults": "faults",
    "service": "server",
    "test_docs": "docs",
    "test_notebooks": "docs",
    "test_site": "docs",
    "test_fuzz": "fuzz",
    "test_postgres": "postgres",
    "test_spark": "spark",
    "test_spark_faults": "spark",
    "test_spark_guest": "spark",
    "test_spark_settings": "spark",
    "test_spark_storage": "spark",
}
"""Markers of all tests in a folder or a file."""
SPREAD = {"test_contract", "test_bounding", "test_hostile"}
"""Files with many tests and few shared fixtures: their tests are split over several workers."""
PARTS = 4
LONG = {"spark", "postgres", "browser", "server", "faults", "fuzz", "docs", "slow"}
LONG |= set() if FAST else {"examples"}
LIMIT = 2.0
"""Seconds of processor time that a test without one of these markers may take."""
BUSY = 2.5
"""Factor by which the same work may take longer on a busy machine; CI fails a test above limit times factor."""
REFERENCE = 0.025
"""Seconds of processor time that `reference` takes on a machine for which `LIMIT` was chosen."""
WARM = ("duckdb", "pandas", "polars", "pyarrow.parquet", "scipy.stats", "highspy", "countveil.service.server")
"""Modules imported on first use; CI imports them before the tests, so that no test is charged for the import."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS):
            for name in {item.path.relative_to(TESTS).parts[0], item.path.stem} & PLACES.keys():
                item.add_marker(PLACES[name])
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("examples")


@pytest.fixture
def java() -> Path:
    return needs.need("java")


class Sharing(LoadScopeScheduling):
    """Run the tests of one file on one worker, so that fixtures are made once; all Spark tests share one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if "spark" in nodeid.lower():
            return "spark"
        return f"{file} {crc32(nodeid.encode()) % PARTS}" if Path(file).stem in SPREAD else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.given = {mark.name for mark in item.iter_markers()}


def pytest_sessionstart() -> None:
    if os.environ.get("CI"):
        for name in WARM:
            importlib.import_module(name)


def reference() -> float:
    """Processor time of a fixed piece of work, as a measure of the machine's current speed."""
    before = time.process_time()
    sum(i * i for i in range(400_000))
    return time.process_time() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """On CI, fail a test above the time limit that has no marker of a long test."""
    before = sum(os.times()[:4])
    result = yield
    spent = sum(os.times()[:4]) - before
    item.user_properties.append(("processor_seconds", f"{spent:.2f}"))
    marked = any(item.get_closest_marker(name) for name in LONG)
    if os.environ.get("CI") and not marked and spent > LIMIT * BUSY * max(1, reference() / REFERENCE):
        pytest.fail(f"takes {spent:.1f} s of processor time; make it cheaper, or mark it as slow and say why")
    return result
