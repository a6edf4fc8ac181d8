"""Guide tables: the first few bits of a cell decide its noise, unless they are ambiguous.

A guide of width g has 2^g entries. Entry u covers the integers of a law that begin with u; if they all give the same z,
that z is the entry, otherwise the entry is AMBIGUOUS and more bits are needed. A law with k slots has at most k - 1
ambiguous entries, so at 16 bits almost every draw is settled by two bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.law import Law
from countveil.sampling.outcome import cumulated

Entries = NDArray[np.int64]


@dataclass(frozen=True)
class Guide:
    """`table[u]` is the noise of all integers that begin with the bits u, or `ambiguous`."""

    width: int
    table: Entries
    ambiguous: int


def guide(law: Law, width: int, *, moved: dict[int, int] | None = None) -> Guide:
    """The guide of a law; integers of rank below moved[z] among those of z may mean something else: ambiguous."""
    width = min(width, law.bits)
    shift = law.bits - width
    ambiguous = -law.left - 1
    table = np.full(1 << width, ambiguous, dtype=np.int64)
    start = 0
    for slot, end in enumerate(cumulated(law)):
        z = slot - law.left
        first = start + (moved or {}).get(z, 0)
        inside = -(-first >> shift), end >> shift  # entries that lie in [first, end) as a whole
        if inside[0] < inside[1]:
            table[inside[0] : inside[1]] = z
        start = end
    return Guide(width, table, ambiguous)
