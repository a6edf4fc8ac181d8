"""Certain bounds: the true count of every cell lies in them whatever the noise was, because the noise is bounded.

A node is a cell of a table in the tree. A family of a node consists of the cells of one finer table that it is divided
into.

**Guarantee.** If each measurement is its true count plus noise within the ends of its law, then the true tables lie in
the bounds, and for every whole number X within the bounds of a node, each family of the node has whole numbers within
their bounds that add up to X. All of it is exact integers.

One pass goes up the tree: a node lies between the sums of the bounds of each of its families. One pass goes down: a
node is at least the least count of its parent minus the largest counts of its siblings, and at most the largest count
of its parent minus the least counts of its siblings. One pass of each kind is enough for both guarantees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.consistency.tree import Ints, Level, Tree
from countveil.errors import ParameterError, RequestError

LARGEST_SUM = 2**62
"""Sums of counts over a table stay below this, so that 64-bit integers never overflow."""


@dataclass(frozen=True, eq=False)
class CertainBounds:
    """The least and the largest possible count of every node, level by level."""

    low: list[Ints]
    high: list[Ints]


def bound_counts(
    tree: Tree, measurements: Sequence[Ints | None], ends: Sequence[tuple[int, int] | None]
) -> CertainBounds:
    """The certain bounds of every node; raises RequestError if no tables can have given the measurements.

    `ends` are the least and the greatest noise of each measured table; None stands for a table that is not measured.
    """
    low: list[Ints] = []
    high: list[Ints] = []
    for level, y, reach in zip(tree.levels, measurements, ends, strict=True):
        if y is None or reach is None:
            low.append(np.zeros(len(level), dtype=np.int64))
            high.append(np.full(len(level), LARGEST_SUM))
        else:
            check_sum(level.name, y, max(-reach[0], reach[1]))
            low.append(np.maximum(y - reach[1], 0))
            high.append(y - reach[0])
    for level, under, over in zip(tree.levels[:0:-1], low[:0:-1], high[:0:-1], strict=True):
        above_low, above_high = low[level.above], high[level.above]
        above_low[level.filled] = np.maximum(above_low[level.filled], level.sum_families(under))
        above_high[level.filled] = np.minimum(above_high[level.filled], level.sum_families(over))
    for i, level in enumerate(tree.levels):
        if i:
            _tighten(level, low[level.above], high[level.above], low[i], high[i])
        if bool((low[i] > high[i]).any()):
            raise RequestError(
                f"no tables of counts lie within the noise bounds of the measurements of {level.name}: check that the "
                "measurements were not rounded or cut at 0, and that the laws and the tree are the right ones"
            )
    return CertainBounds(low, high)


def _tighten(level: Level, above_low: Ints, above_high: Ints, low: Ints, high: Ints) -> None:
    """Tighten the bounds of each node by those of its parent and its siblings, in place."""
    least, most = level.sum_families(low), level.sum_families(high)
    room = level.spread(above_high[level.filled] - least)
    need = level.spread(above_low[level.filled] - most)
    up, down = room + low, need + high
    np.minimum(high, up, out=high)
    np.maximum(low, down, out=low)


def check_sum(name: str, y: Ints, D: int) -> None:
    """Refuse measurements whose sum could leave 64 bits."""
    if len(y) and float(np.abs(y.astype(np.float64)).sum()) + float(len(y)) * D >= LARGEST_SUM / 2:
        raise ParameterError(f"measurements of {name}", "counts whose sum is 2^61 or more", "a smaller sum")


def fill(level: Level, amount: Ints, capacity: Ints) -> Ints:
    """Distribute an amount to each family: its nodes are filled in turn, each up to its capacity."""
    before = level.accumulate(capacity)
    return np.clip(level.spread(amount) - before, 0, capacity)


def find_reference(tree: Tree, bounds: CertainBounds) -> list[Ints]:
    """Some tables of whole numbers that add up and lie within the bounds.

    Later steps need only store differences from these, which are small enough for floats.
    """
    reference = [bounds.low[0].copy()]
    for level, low, high in zip(tree.levels[1:], bounds.low[1:], bounds.high[1:], strict=True):
        amount = reference[level.above][level.filled] - level.sum_families(low)
        reference.append(low + fill(level, amount, high - low))
    return reference
