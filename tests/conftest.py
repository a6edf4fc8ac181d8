"""What every test has: markers by folder, hypothesis profiles, workers that share what is slow to start, a time limit.

Markers say what a test needs or why it takes long (pyproject.toml lists them). `make test` leaves out those that need
another server or much time; `make test-all` runs them afterwards.
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
"""Files with many tests that share little: they are dealt out in parts."""
PARTS = 4
LONG = {"spark", "postgres", "browser", "server", "faults", "fuzz", "docs", "slow"}
LONG |= set() if FAST else {"examples"}
LIMIT = 2.0
"""Seconds of processor time that a test without one of these markers may take."""
BUSY = 2.5
"""How much longer the same work takes where others use the machine: CI fails what is above the limit by more."""
REFERENCE = 0.025
"""Seconds of processor time that `reference` takes on a machine that is fast enough for the limit as it stands."""
WARM = ("duckdb", "pandas", "polars", "pyarrow.parquet", "scipy.stats", "highspy", "countveil.service.running")
"""What is imported when it is first used, at the cost of whichever test comes first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS):
            for name in {item.path.relative_to(TESTS).parts[0], item.path.stem} & PLACES.keys():
                item.add_marker(PLACES[name])
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("examples")


class Sharing(LoadScopeScheduling):
    """The tests of one file run on one worker: what they share is made once. All tests of Spark do, in one session."""

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
    """Processor time of a fixed piece of work: how fast the machine is at this moment."""
    before = time.process_time()
    sum(i * i for i in range(400_000))
    return time.process_time() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """On CI, a test that takes long says why by a marker, or fails."""
    before = sum(os.times()[:4])
    result = yield
    spent = sum(os.times()[:4]) - before
    item.user_properties.append(("processor_seconds", f"{spent:.2f}"))
    marked = any(item.get_closest_marker(name) for name in LONG)
    if os.environ.get("CI") and not marked and spent > LIMIT * BUSY * max(1, reference() / REFERENCE):
        pytest.fail(f"takes {spent:.1f} s of processor time; make it cheaper, or mark it as slow and say why")
    return result
