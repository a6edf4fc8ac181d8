"""Counters for Prometheus: requests by route and status, answers by how they were given, what is left of the budget.

Nothing here is a count of people, or a time that a count took: both would say something about the data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Where several workers keep their counters, so that any of them can give the sum."""
_OWN = CollectorRegistry()
REQUESTS = Counter("countveil_requests", "Requests by route and status.", ["route", "method", "status"], registry=_OWN)
ANSWERS = Counter("countveil_answers", "Answers: charged, or replayed for free.", ["how"], registry=_OWN)


class _Left:
    """Answers left of every pool that has a plan, read from the ledger when asked."""

    def __init__(self, curator: Any) -> None:
        self._curator = curator

    def collect(self) -> Iterable[GaugeMetricFamily]:
        left = GaugeMetricFamily("countveil_answers_left", "Answers left of a pool.", labels=["pool"])
        ledger, config = self._curator.ledger, self._curator.config
        for pool in sorted({d.budget.pool for d in config.datasets.values() if d.budget is not None}):
            if ledger.plan(pool) is not None:
                left.add_metric([pool], ledger.standing(pool).left)
        yield left


def exposition(curator: Any) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Left(curator))
    if os.environ.get(SHARED):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    return generate_latest(_OWN) + generate_latest(registry)
