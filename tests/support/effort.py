"""How much work a test does: how many random examples it tries, and how many calls what it tests may make."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import settings

FAST = os.environ.get("COUNTVEIL_TESTS", "all") == "fast"
"""The profile: `fast` in `make test`, otherwise `all`."""
FEWER = 5
"""How many times fewer examples the `fast` profile tries."""


def examples(most: int, **more: Any) -> settings:
    """Settings of a property test: `most` examples where everything is tried, fewer in the `fast` profile."""
    return settings(max_examples=max(2, most // FEWER) if FAST else most, **more)


@contextmanager
def within(calls: int) -> Iterator[None]:
    """Fail what makes more calls of Python and its builtins than that: the same on every machine. About three million
    are a second of a quiet machine."""
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
