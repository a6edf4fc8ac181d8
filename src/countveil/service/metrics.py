"""Numbers for Prometheus: requests by route and status, answers charged or replayed, and what is left of each grade.

No number says how many people were counted or how long a count took: both would reveal something about the data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which several workers store their counters.

From there each worker can report the sum over all workers.
"""
_OWN = CollectorRegistry()
REQUESTS = Counter("countveil_requests", "Requests by route and status.", ["route", "method", "status"], registry=_OWN)
ANSWERS = Counter("countveil_answers", "Answers: charged, or replayed for free.", ["how"], registry=_OWN)


class _Left:
    """Reads from the ledger, for every pool with a plan, how many answers of each of its grades are left."""

    def __init__(self, curator: Any) -> None:
        self._curator = curator

    def collect(self) -> Iterable[GaugeMetricFamily]:
        left = GaugeMetricFamily(
            "countveil_answers_left", "How many answers of a grade of a pool are left.", labels=["pool", "grade"]
        )
        ledger, config = self._curator.ledger, self._curator.config
        for pool in sorted({d.budget.pool for d in config.datasets.values() if d.budget is not None}):
            plan = ledger.plan(pool)
            for grade in plan.grades if plan is not None else ():
                left.add_metric([pool, grade.name], ledger.standing(pool, grade=grade.name).left)
        yield left


def exposition(curator: Any) -> bytes:
    """All numbers as text in the format that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Left(curator))
    if os.environ.get(SHARED):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    return generate_latest(_OWN) + generate_latest(registry)
