"""The definition of a draw: which of the 2^K equally likely integers gives which noise.

`Columns`: the integers are dealt to z = -left, ..., right in order, weight(z) of them each. `Remap`: the high bits
choose Z in the same way, the low bits choose where the map sends n + Z, and the first few integers of Z = 1 and Z = 2
are given another value by the moves. Everything that is faster than this must agree with it, integer by integer.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

from countveil.columns import ColumnFamily
from countveil.law import Law
from countveil.remap import Remap


def total_bits(family: ColumnFamily, n: int) -> int:
    """K for the count n: how many uniform bits decide its draw."""
    return family.bits if isinstance(family, Remap) and n < family.stationary_from else family.column(n).bits


def noise(family: ColumnFamily, n: int, uniform: int) -> int:
    """The noise that the integer `uniform`, 0 <= uniform < 2**total_bits, stands for."""
    if isinstance(family, Remap) and n < family.stationary_from:
        return _remapped(family, n, uniform)
    return law_noise(family.column(n), uniform)[0]


def law_noise(law: Law, uniform: int) -> tuple[int, int]:
    """(z, rank): the noise, and the rank of `uniform` among the integers of that z.

    >>> [law_noise(Law((1, 2, 1), 1, 2), u) for u in range(4)]
    [(-1, 0), (0, 0), (0, 1), (1, 0)]
    """
    ends = cumulated(law)
    if not 0 <= uniform < law.total:
        raise ValueError("the uniform integer is outside the law's range")
    slot = bisect_right(ends, uniform)
    return slot - law.left, uniform - (ends[slot - 1] if slot else 0)


@lru_cache(maxsize=512)
def cumulated(law: Law) -> tuple[int, ...]:
    """Cumulated weights: integer u belongs to the first slot whose end is above u."""
    return tuple(accumulate(law.weights))


def _remapped(family: Remap, n: int, uniform: int) -> int:
    low = uniform & ((1 << family.map_bits) - 1)
    z, rank = law_noise(family.source, uniform >> family.map_bits)
    rank = rank << family.map_bits | low
    for move in family.moves.get(n, ()):
        if z == move.source:
            if rank < move.units:
                return move.target
            rank -= move.units
    for y, weight in family.row(n + z):
        if low < weight:
            return y - n
        low -= weight
    raise AssertionError("a row of the map does not cover its integers")
