"""Sets of points, stored as sorted intervals, with union, intersection and difference.

A point is an integer that stands for a value of a column (see `schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Points = tuple[tuple[int, int], ...]
"""A set of integers that stand for values, as closed intervals (low, high) in ascending order.

Neighbouring intervals have a gap between them, so equal sets are equal tuples. NULL is the point just before the
domain, `column.first - 1`. A value *outside* the domain has no point, so no set contains it.
"""

EMPTY: Points = ()


def interval(low: int, high: int) -> Points:
    """The set of all points from low to high.

    >>> interval(1, 3), interval(3, 1)
    (((1, 3),), ())
    """
    return ((low, high),) if low <= high else EMPTY


def set_of(members: Iterable[int]) -> Points:
    """The set with these members.

    >>> set_of([3, 1, 2, 7])
    ((1, 3), (7, 7))
    """
    return union_all((member, member) for member in members)


def union_all(intervals: Iterable[tuple[int, int]]) -> Points:
    """The union of intervals, which may overlap."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1] + 1:
            if high > joined[-1][1]:
                joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def union(a: Points, b: Points) -> Points:
    return union_all((*a, *b))


def intersection(a: Points, b: Points) -> Points:
    """The points that are in both a and b, found in one pass over both.

    >>> intersection(((0, 5), (8, 9)), ((4, 8),))
    ((4, 5), (8, 8))
    """
    common: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            common.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def difference(a: Points, b: Points) -> Points:
    """The points of a that are not in b.

    >>> difference(((0, 9),), ((2, 3), (9, 12)))
    ((0, 1), (4, 8))
    """
    left: list[tuple[int, int]] = []
    j = 0
    for first, high in a:
        low = first
        while j < len(b) and b[j][1] < low:
            j += 1
        k = j
        while k < len(b) and b[k][0] <= high:
            if low < b[k][0]:
                left.append((low, b[k][0] - 1))
            low = b[k][1] + 1
            k += 1
        if low <= high:
            left.append((low, high))
    return tuple(left)


def contains(a: Points, b: Points) -> bool:
    """Whether every point of b is in a."""
    return not difference(b, a)


def size(a: Points) -> int:
    return sum(high - low + 1 for low, high in a)


def overlay(
    a: Sequence[tuple[int, int, int]], b: Sequence[tuple[int, int, int]], no_a: int, no_b: int
) -> Iterator[tuple[int, int, int, int]]:
    """Merge two lists of labelled intervals (low, high, label) into one list of (low, high, label in a, label in b).

    Each list is sorted and has no overlaps. Where `a` has a gap, its label is `no_a`; where `b` has a gap, `no_b`.

    >>> list(overlay([(0, 5, 1)], [(4, 8, 2)], 0, 0))
    [(0, 3, 1, 0), (4, 5, 1, 2), (6, 8, 0, 2)]
    """
    i = j = 0
    at: int | None = None  # all points below `at` have been yielded
    while i < len(a) or j < len(b):
        next_a = _from(a[i][0], at) if i < len(a) else None
        next_b = _from(b[j][0], at) if j < len(b) else None
        if next_b is None or (next_a is not None and next_a < next_b):
            low, high = next_a, a[i][1] if next_b is None else min(a[i][1], next_b - 1)
            labels = a[i][2], no_b
        elif next_a is None or next_b < next_a:
            low, high = next_b, b[j][1] if next_a is None else min(b[j][1], next_a - 1)
            labels = no_a, b[j][2]
        else:
            low, high = next_a, min(a[i][1], b[j][1])
            labels = a[i][2], b[j][2]
        assert low is not None
        yield low, high, *labels
        at = high + 1
        i += i < len(a) and a[i][1] <= high
        j += j < len(b) and b[j][1] <= high


def _from(low: int, at: int | None) -> int:
    return low if at is None or low > at else at
