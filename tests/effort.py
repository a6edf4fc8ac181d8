"""How much work something is, as a multiple of a fixed loop that is timed beside it: the same on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOPS = 400_000


def _reference() -> float:
    """Processor seconds of a fixed amount of Python: about 0.05 on an ordinary machine."""
    started, total = time.process_time(), 0
    for i in range(LOOPS):
        total += i * i % 7
    assert total
    return time.process_time() - started


@contextmanager
def within(references: float) -> Iterator[None]:
    """Refuse what takes more processor time than so many reference loops, timed before and after."""
    before = _reference()
    started = time.process_time()
    yield
    spent = time.process_time() - started
    unit = max(before, _reference())
    assert spent < references * unit, f"{spent / unit:.1f} reference loops, allowed are {references}"
