"""The laws p(.|n) of a mechanism for every true count n = 0, 1, 2, ...

A mechanism has one column, the law of Z = Y - n, for each count. Only finitely many differ: from the
stationary count M on the noise no longer depends on n. Two kinds exist, with one interface:

- `Columns`: the columns below M are written out (policies signed, floor, and nonnegative by `program`);
- `countveil.remap.Remap`: one signed law and a fixed random map to the non-negative integers.

Counts outside a public promise lo <= n <= hi are moved to its nearest end before noise is added. That
clamp never increases the distance of two counts, so privacy holds for every dataset, promise kept or
not; only the accuracy properties P1-P3 rest on the promise. The policy `floor` is the clamp lo = D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from countveil.law import Law


class ColumnFamily(Protocol):
    """What privacy, sampling and certificates need to know of a mechanism."""

    @property
    def lo(self) -> int:
        """The least count that has a column of its own; smaller ones are treated as lo."""

    @property
    def hi(self) -> int | None:
        """The largest count with a column, or None: every count has one."""

    @property
    def stationary_from(self) -> int:
        """The count M from which the law of Z no longer depends on n (up to the top columns)."""

    @property
    def stationary(self) -> Law:
        """The law of Z for n >= M."""

    def column(self, n: int) -> Law:
        """The law of Z = Y - n."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns written out: `small` for n = lo, lo+1, ..., then `stationary`, then `top` up to hi."""

    stationary: Law
    small: tuple[Law, ...] = ()
    lo: int = 0
    hi: int | None = None
    top: tuple[Law, ...] = ()

    def __post_init__(self) -> None:
        if self.hi is None and self.top:
            raise ValueError("top columns need a largest count")
        if self.hi is not None and self.hi < self.lo + max(1, len(self.small) + len(self.top)) - 1:
            raise ValueError("more columns than counts")

    @property
    def stationary_from(self) -> int:
        return self.lo + len(self.small)

    def column(self, n: int) -> Law:
        clamped = max(n, self.lo) if self.hi is None else min(max(n, self.lo), self.hi)
        law = self.stationary
        if clamped < self.stationary_from:
            law = self.small[clamped - self.lo]
        elif self.hi is not None and clamped > self.hi - len(self.top):
            law = self.top[clamped - self.hi - 1]
        return law if clamped == n else law.shifted(clamped - n)

    @property
    def first_top(self) -> int | None:
        """The least count that has a top column, or None."""
        return None if self.hi is None or not self.top else self.hi - len(self.top) + 1


def distinct_counts(family: ColumnFamily) -> list[int]:
    """Counts lo..M and the top ones: every law of Z occurs at one of them."""
    last = family.stationary_from
    if family.hi is None:
        return list(range(family.lo, last + 1))
    counts = list(range(family.lo, min(last, family.hi) + 1))
    first_top = getattr(family, "first_top", None)
    if first_top is not None:
        counts += range(max(first_top, counts[-1] + 1), family.hi + 1)
    return counts


def neighbour_pairs(family: ColumnFamily, sensitivity: int) -> Iterator[tuple[int, int]]:
    """Pairs (n, n + s), s = 1..sensitivity, whose laws represent all neighbouring pairs.

    Beyond M both columns are the stationary law, so (M, M + s) stands for all (n, n + s), n >= M. With a
    largest count, pairs that reach the top columns are added. A clamped count equals an end of the range
    and makes a pair of smaller s.
    """
    starts = set(distinct_counts(family))
    first_top = getattr(family, "first_top", None)
    if first_top is not None:
        starts.update(range(max(family.lo, first_top - sensitivity), first_top))
    for n in sorted(starts):
        for s in range(1, sensitivity + 1):
            if family.hi is None or n + s <= family.hi:
                yield n, n + s
