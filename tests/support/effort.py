"""How much work a test does: the number of random examples, and a limit on the calls of the tested code."""

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
"""The `fast` profile tries the number of examples divided by this."""


def examples(most: int, **more: Any) -> settings:
    """Settings of a property test: `most` examples, but fewer in the `fast` profile."""
    return settings(max_examples=max(2, most // FEWER) if FAST else most, **more)


@contextmanager
def within(calls: int) -> Iterator[None]:
    """Fail if the block makes more calls of Python functions and builtins than that.

    Unlike time, calls are the same on every machine; an idle machine makes about three million in a second.
    """
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
