"""Forks: SQLite's locks and shared memory belong to one process, so no connection is open while a process forks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Parting(Protocol):
    """Something that lets go before a fork and may be used again after it, on both sides."""

    def part(self) -> None: ...

    def rejoin(self) -> None: ...


_open: weakref.WeakSet[Parting] = weakref.WeakSet()
_parted: list[Parting] = []


def around_forks(each: Parting) -> None:
    """Part and rejoin around every fork of this process, as long as it lives."""
    _open.add(each)


def _before() -> None:
    for each in sorted(_open, key=id):
        each.part()
        _parted.append(each)


def _after() -> None:
    while _parted:
        _parted.pop().rejoin()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
