"""How much work something is, counted in calls of Python and of its builtins: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def within(calls: int) -> Iterator[None]:
    """Refuse what makes more calls than that: about three million are a second of a quiet machine."""
    made = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert made < calls, f"{made:,} calls, allowed are {calls:,}"
