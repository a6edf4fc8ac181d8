"""Exact draws for one count and for vectors of counts, near the speed of memory.

**The definition.** A draw of the count n is decided by K uniform bits that belong to its cell alone (`entropy`). With
`Columns` the 2^K integers are dealt to z = -left, ..., right in order, weight(z) of them each. With `Remap` the high
bits choose Z in the same way, the low bits choose where the map sends n + Z, and the first few integers of Z = 1 and
Z = 2 are given another value by the moves. `noise` is that definition.

**Vectors** agree with it, integer by integer, and are lazy: the first 16 bits of a cell settle its draw unless the
entry of the guide table is ambiguous; then more bits are taken from the cell's own blocks. The result is the same, bit
for bit, for every guide width, batch size and order. Work per cell depends on the noise only through that ambiguity.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from countveil.law import ColumnFamily, Columns, Law
from countveil.remap import Remap, Row
from countveil.sampling.entropy import BLOCK_BITS, DENSE_BITS, MAP, NOISE, Bits, Key, Words

WIDTH = 16
BATCH = 1 << 17
MOST_THREADS = 4
STACK_ENTRIES = 1 << 20
_OPEN = np.iinfo(np.int32).min

Counts = NDArray[np.int64]
Cells = NDArray[np.int64]


# The definition


def noise(family: ColumnFamily, n: int, uniform: int) -> int:
    """The noise that the integer `uniform`, 0 <= uniform < 2**K, stands for; K are the bits of the column of n."""
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


# One count


def release_one(family: ColumnFamily, n: int, bits: Bits | None = None) -> int:
    """Y = n + Z for one count, as cell 0 of a release of its own."""
    return n + _defined(family, n, bits if bits is not None else Key(), 0)


def _defined(family: ColumnFamily, n: int, bits: Bits, cell: int) -> int:
    """The noise of one cell by definition, with all of its bits."""
    if isinstance(family, Remap) and n < family.stationary_from:
        high = _uniform(family.source.bits, bits, NOISE, cell)
        low = _uniform(family.map_bits, bits, MAP, cell)
        return noise(family, n, high << family.map_bits | low)
    return noise(family, n, _uniform(family.column(n).bits, bits, NOISE, cell))


def _uniform(size: int, bits: Bits, source: int, cell: int) -> int:
    """The first `size` of the 144 bits that a cell has in a source."""
    word = np.empty(1, dtype=np.uint16)
    bits.dense(source, cell, word)
    high, low = bits.blocks(source, np.array([cell], dtype=np.int64))[0]
    return (int(word[0]) << BLOCK_BITS | int(high) << 64 | int(low)) >> (DENSE_BITS + BLOCK_BITS - size)


# Vectors of counts


@dataclass(frozen=True)
class Guide:
    """`table[u]` is the noise of all integers that begin with the bits u, or `ambiguous`: more bits are needed.

    A law with k slots has at most k - 1 ambiguous entries, so at 16 bits almost every draw is settled by two bytes.
    """

    width: int
    table: NDArray[np.int64]
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


def sampler(family: ColumnFamily, width: int = WIDTH) -> Sampler:
    """What draws vectors of counts from a family; guide tables are built once."""
    if isinstance(family, Remap):
        return _RemapSampler(family, width)
    if isinstance(family, Columns):
        return _ColumnSampler(family, width)
    raise TypeError("an unknown kind of columns")


class Sampler(ABC):
    """Draws vectors of counts: the stationary law for all, then the counts that have another law."""

    def __init__(self, family: ColumnFamily, width: int) -> None:
        self.family = family
        self.low, self.high = family.lo, family.hi
        self.M = family.stationary_from
        self.guide = guide(family.stationary, width)
        self.resolver = _Resolver(family.stationary)

    def release(
        self, counts: Counts, bits: Bits, *, first: int = 0, out: Counts | None = None, threads: int | None = None
    ) -> Counts:
        """Y = n + Z; counts[i] is cell first + i of the release that `bits` belongs to.

        Long vectors are split among threads (one per core, at most 4, by default): cells have addresses, so the result
        is the same for any number.
        """
        result = np.empty(len(counts), dtype=np.int64) if out is None else out
        parts = len(counts) // (4 * BATCH)
        if parts > 1:
            parts = min(parts, min(MOST_THREADS, os.cpu_count() or 1) if threads is None else threads)
        size = -(-len(counts) // max(1, parts)) or 1
        starts = range(0, len(counts), size)
        tasks = [(counts[i : i + size], bits, first + i, result[i : i + size]) for i in starts]
        if len(tasks) > 1:
            with ThreadPoolExecutor(len(tasks)) as pool:
                list(pool.map(lambda task: self._release(*task), tasks))
        else:
            for task in tasks:
                self._release(*task)
        return result

    def _release(self, counts: Counts, bits: Bits, first: int, result: Counts) -> None:
        words = np.empty(min(BATCH, max(1, len(counts))), dtype=np.uint16)
        for start in range(0, len(counts), BATCH):
            part = counts[start : start + BATCH]
            dense = words[: len(part)]
            bits.dense(NOISE, first + start, dense)
            self._draw(part, dense, bits, first + start, result[start : start + BATCH])

    def _draw(self, counts: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        """out = counts + noise, for cells first, first + 1, ..."""
        base = counts
        if self.low > 0 or self.high is not None:
            base = np.clip(counts, self.low, self.high)
        if self._any_special(base):
            self._draw_mixed(base, words, bits, first, out)
        else:
            _look_up(self.guide, words, out)
            open_ = np.flatnonzero(out == self.guide.ambiguous)
            if len(open_):
                out[open_] = self.resolver.noise(words[open_], bits, open_ + first)
        out += base

    def _any_special(self, base: Counts) -> bool:
        """Whether some count's law is not the stationary one."""
        return self.low < self.M and len(base) > 0 and bool(base.min() < self.M)

    @abstractmethod
    def _draw_mixed(self, base: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        """The noise of a batch in which some counts are special."""


class _ColumnSampler(Sampler):
    """Columns written out: a guide per column, stacked, the stationary one last; as wide as fits the cache."""

    def __init__(self, family: Columns, width: int) -> None:
        super().__init__(family, width)
        self.first_top = family.first_top
        laws = [*family.small, *family.top, family.stationary]
        self.width = min(width, DENSE_BITS - max(0, (len(laws) * 2**DENSE_BITS // STACK_ENTRIES).bit_length()))
        self.stack = np.empty((len(laws), 1 << self.width), dtype=np.int32)
        for row, law in zip(self.stack, laws, strict=True):
            own = guide(law, self.width)
            row[:] = np.repeat(np.where(own.table == own.ambiguous, _OPEN, own.table), 1 << (self.width - own.width))
        self.flat = self.stack.ravel()
        self.resolvers = [_Resolver(law) for law in laws]

    def _any_special(self, base: Counts) -> bool:
        return super()._any_special(base) or (self.first_top is not None and bool(base.max() >= self.first_top))

    def _draw_mixed(self, base: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        rows = base - self.low
        last = len(self.resolvers) - 1
        if self.first_top is None:
            np.minimum(rows, last, out=rows)
        else:
            rows[base >= self.M] = last
            top = base >= self.first_top
            rows[top] = base[top] - self.first_top + (self.M - self.low)
        index = (rows << self.width) | (words >> (DENSE_BITS - self.width))
        np.copyto(out, self.flat.take(index, mode="clip"))
        open_ = np.flatnonzero(out == _OPEN)
        heads, laws = _heads(words[open_], bits, open_ + first), rows[open_]
        for row in np.unique(laws):
            mine = laws == row
            here = open_[mine]
            out[here] = self.resolvers[row].settle(heads[mine], bits, here + first)


class _RemapSampler(Sampler):
    """A signed draw for all; the map where n + Z <= T; the moves as part of the ambiguous entries."""

    def __init__(self, family: Remap, width: int) -> None:
        super().__init__(family, width)
        self.remap = family
        moved: dict[int, int] = {}
        for moves in family.moves.values():
            for z in (1, 2):
                units = sum(move.units for move in moves if move.source == z)
                moved[z] = max(moved.get(z, 0), -(-units >> family.map_bits))
        self.guide = guide(family.source, width, moved=moved)
        rows = [family.negative, *family.rows]
        self.lower = np.array([row[0][0] for row in rows])
        self.upper = np.array([row[-1][0] for row in rows])
        heads = [_map_heads(row, family.map_bits) for row in rows]
        self.sure_lower = np.array([low for low, _ in heads])
        self.sure_upper = np.array([high for _, high in heads])

    def _draw_mixed(self, base: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        _look_up(self.guide, words, out)
        open_ = np.flatnonzero(out == self.guide.ambiguous)
        out[open_] = self.resolver.noise(words[open_], bits, open_ + first)
        moved = open_[((out[open_] == 1) | (out[open_] == 2)) & (base[open_] < self.M)]
        here = np.flatnonzero(base + out <= self.remap.T)
        unsure = self._apply_map(here, base, bits, first, out)
        for i in (*moved, *unsure):
            out[i] = _defined(self.remap, int(base[i]), bits, first + int(i))

    def _apply_map(self, here: Cells, base: Counts, bits: Bits, first: int, out: Counts) -> Cells:
        """Send n + Z where the map sends it; returns the cells that 16 bits do not settle."""
        if not len(here):
            return here
        dense = np.empty(len(base), dtype=np.uint16)
        bits.dense(MAP, first, dense)
        signed = np.maximum(base[here] + out[here], -1) + 1
        head = dense[here]
        low, high = head < self.sure_lower[signed], head >= self.sure_upper[signed]
        out[here] = np.where(low, self.lower[signed], self.upper[signed]) - base[here]
        unsure: Cells = here[~(low | high)]
        return unsure


def _map_heads(row: Row, map_bits: int) -> tuple[int, int]:
    """(a, b): a first 16 bits below a surely mean the row's first target, from b on surely its last."""
    ends = [0]
    for _, weight in row:
        ends.append(ends[-1] + weight)
    return (ends[1] << DENSE_BITS) >> map_bits, -((-ends[-2] << DENSE_BITS) >> map_bits)


class _Resolver:
    """Settles ambiguous draws of one law by its first 64 bits; those on a boundary, by all of them.

    `tops` are the first 64 bits of the integers at which a new slot begins. Slots that begin at the very end of the
    range have no integers and are left out.
    """

    def __init__(self, law: Law) -> None:
        self.law = law
        starts = [end for end in cumulated(law)[:-1] if end < law.total]
        self.tops = np.array([end << 64 >> law.bits for end in starts], dtype=np.uint64)

    def noise(self, words: Words, bits: Bits, cells: Cells) -> Counts:
        return self.settle(_heads(words, bits, cells), bits, cells)

    def settle(self, heads: NDArray[np.uint64], bits: Bits, cells: Cells) -> Counts:
        """The noise of cells whose first 64 bits are `heads`."""
        slots = np.searchsorted(self.tops, heads, side="right")
        found: Counts = slots - self.law.left
        if self.law.bits > 64:
            for i in np.flatnonzero(np.searchsorted(self.tops, heads, side="left") != slots):
                uniform = _uniform(self.law.bits, bits, NOISE, int(cells[i]))
                found[i] = law_noise(self.law, uniform)[0]
        return found


def _heads(words: Words, bits: Bits, cells: Cells) -> NDArray[np.uint64]:
    """The first 64 bits of some cells, of which the first 16 are at hand."""
    blocks = bits.blocks(NOISE, cells)
    return (words.astype(np.uint64) << np.uint64(64 - DENSE_BITS)) | (blocks[:, 0] >> np.uint64(DENSE_BITS))


def _look_up(table: Guide, words: Words, out: Counts) -> None:
    """out = table[first bits of words]."""
    index = words if table.width == DENSE_BITS else words >> (DENSE_BITS - table.width)
    np.take(table.table, index, out=out, mode="clip")
