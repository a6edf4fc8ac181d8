"""Exact draws for one count and for vectors of counts, near the speed of memory.

**The definition.** A draw for the count n is decided by K uniform bits that belong to its cell alone (`randomness`);
read as a number, they are a uniform integer below 2^K. With `LawsByCount` these 2^K integers are assigned to the noise
z = -left, ..., right in order, weight(z) of them each. With `Remap` the high bits choose Z in the same way, the low
bits choose where the map sends n + Z, and the moves give the first few integers of Z = 1 and Z = 2 another value.
`noise` is that definition.

**Vectors** of counts get exactly the same draws, but few bits are read. A guide table says for the first 16 bits of a
cell which noise they give, or that they are ambiguous; only in that case are more bits read. The result is the same,
bit for bit, for every guide width, batch size and order. A cell takes longer if its
entry is ambiguous or if a map is applied to it; its time depends on its noise in no other way.
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

from countveil.errors import ParameterError
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.laws.remap import Remap, Row
from countveil.sampling.randomness import BLOCK_BITS, DENSE_BITS, MAP, NOISE, Bits, NoiseKey, Words

WIDTH = 16
BATCH = 1 << 17
MOST_THREADS = 4
STACK_ENTRIES = 1 << 20
_AMBIGUOUS = np.iinfo(np.int32).min

Counts = NDArray[np.int64]
Cells = NDArray[np.int64]


# The definition


def noise(laws: Laws, n: int, uniform: int) -> int:
    """The noise that the uniform integer `uniform` gives for the true count n.

    0 <= uniform < 2**K, where K is the number of bits of the law of n.
    """
    if isinstance(laws, Remap) and n < laws.stationary_from:
        return _draw_remapped(laws, n, uniform)
    return law_noise(laws.law(n), uniform)[0]


def law_noise(law: Law, uniform: int) -> tuple[int, int]:
    """The pair (z, rank): the noise z that the integer `uniform` gives, and its rank among all integers that give z.

    >>> [law_noise(Law((1, 2, 1), 1, 2), u) for u in range(4)]
    [(-1, 0), (0, 0), (0, 1), (1, 0)]
    """
    ends = cumulate(law)
    if not 0 <= uniform < law.total:
        raise ValueError("the uniform integer must be at least 0 and below 2**bits of the law")
    slot = bisect_right(ends, uniform)
    return slot - law.left, uniform - (ends[slot - 1] if slot else 0)


@lru_cache(maxsize=512)
def cumulate(law: Law) -> tuple[int, ...]:
    """The partial sums of a law's weights: a uniform integer u gives the first outcome whose partial sum is above u."""
    return tuple(accumulate(law.weights))


def _draw_remapped(laws: Remap, n: int, uniform: int) -> int:
    low = uniform & ((1 << laws.map_bits) - 1)
    z, rank = law_noise(laws.source, uniform >> laws.map_bits)
    rank = rank << laws.map_bits | low
    for move in laws.moves.get(n, ()):
        if z == move.source:
            if rank < move.units:
                return move.target
            rank -= move.units
    for y, weight in laws.row(n + z):
        if low < weight:
            return y - n
        low -= weight
    raise AssertionError("the weights of a row of the map do not sum to 2**map_bits")


# One count


def release_one(laws: Laws, n: int, bits: Bits | None = None) -> int:
    """Release one count, the true count n plus noise, as a release of its own."""
    return n + _draw_by_definition(laws, n, bits if bits is not None else NoiseKey(), 0)


def _draw_by_definition(laws: Laws, n: int, bits: Bits, cell: int) -> int:
    """The noise of one cell, for the true count n, by the definition: from all bits of the cell."""
    if isinstance(laws, Remap) and n < laws.stationary_from:
        high = _uniform(laws.source.bits, bits, NOISE, cell)
        low = _uniform(laws.map_bits, bits, MAP, cell)
        return noise(laws, n, high << laws.map_bits | low)
    return noise(laws, n, _uniform(laws.law(n).bits, bits, NOISE, cell))


def _uniform(size: int, bits: Bits, source: int, cell: int) -> int:
    """The first `size` bits of the 144 that a cell has in a source (NOISE or MAP), as an integer."""
    word = np.empty(1, dtype=np.uint16)
    bits.dense(source, cell, word)
    high, low = bits.blocks(source, np.array([cell], dtype=np.int64))[0]
    return (int(word[0]) << BLOCK_BITS | int(high) << 64 | int(low)) >> (DENSE_BITS + BLOCK_BITS - size)


# Vectors of counts


@dataclass(frozen=True)
class Guide:
    """A table that gives the noise for the first bits of a uniform integer.

    `table[u]` is the noise of all integers that begin with the bits u, or the value `ambiguous` if these integers give
    different noise, so that more bits are needed. A law with k outcomes has at most k - 1 ambiguous entries: with 16
    bits almost every draw is decided.
    """

    width: int
    table: NDArray[np.int64]
    ambiguous: int


def guide(law: Law, width: int, *, moved: dict[int, int] | None = None) -> Guide:
    """The guide table of a law, indexed by the first `width` bits.

    The first `moved[z]` integers that give z are marked as ambiguous, because moves of a remap may change them.
    """
    width = min(width, law.bits)
    shift = law.bits - width
    ambiguous = -law.left - 1
    table = np.full(1 << width, ambiguous, dtype=np.int64)
    start = 0
    for slot, end in enumerate(cumulate(law)):
        z = slot - law.left
        first = start + (moved or {}).get(z, 0)
        inside = -(-first >> shift), end >> shift  # entries that lie in [first, end) as a whole
        if inside[0] < inside[1]:
            table[inside[0] : inside[1]] = z
        start = end
    return Guide(width, table, ambiguous)


def sampler(laws: Laws, width: int = WIDTH) -> Sampler:
    """The sampler of vectors of counts for these laws, with its guide tables of `width` bits."""
    if isinstance(laws, Remap):
        return _RemapSampler(laws, width)
    if isinstance(laws, LawsByCount):
        return _LawsByCountSampler(laws, width)
    raise TypeError(f"laws must be LawsByCount or Remap, not {type(laws).__name__}")


class Sampler(ABC):
    """Draws noise for vectors of counts.

    A batch of counts that all have the stationary law needs one guide table; other batches go to `_draw_mixed`.
    """

    def __init__(self, laws: Laws, width: int) -> None:
        self.laws = laws
        self.low, self.high = laws.lo, laws.hi
        self.M = laws.stationary_from
        self.guide = guide(laws.stationary, width)
        self.resolver = _Resolver(laws.stationary)

    def release(
        self, counts: Counts, bits: Bits, *, first: int = 0, out: Counts | None = None, threads: int | None = None
    ) -> Counts:
        """Release counts, each with noise added. counts[i] is cell first + i of the release that `bits` belongs to.

        Long vectors are split among threads (by default one per core, at most 4). The bits of a cell depend only on its
        number, so the result is the same for any number of threads. `out`, if given, receives the result.
        """
        if out is not None and np.may_share_memory(counts, out):
            raise ParameterError(
                "out", "the memory of the counts", "another array, because noise is written to it first"
            )
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
        """Write counts + noise to `out`, for cells first, first + 1, ...; `words` are the cells' first 16 bits."""
        base = counts
        if self.low > 0 or self.high is not None:
            base = np.clip(counts, self.low, self.high)
        if self._any_special(base):
            self._draw_mixed(base, words, bits, first, out)
        else:
            _look_up(self.guide, words, out)
            ambiguous = np.flatnonzero(out == self.guide.ambiguous)
            if len(ambiguous):
                out[ambiguous] = self.resolver.noise(words[ambiguous], bits, ambiguous + first)
        out += base

    def _any_special(self, base: Counts) -> bool:
        """Whether any count in `base` has a law other than the stationary one."""
        return self.low < self.M and len(base) > 0 and bool(base.min() < self.M)

    @abstractmethod
    def _draw_mixed(self, base: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        """Write the noise of a batch to `out` where some counts have a law other than the stationary one."""


class _LawsByCountSampler(Sampler):
    """The sampler of `LawsByCount`: a guide table for each law, the stationary one last; they fit into the cache."""

    def __init__(self, laws: LawsByCount, width: int) -> None:
        super().__init__(laws, width)
        self.first_top = laws.first_top
        rows = [*laws.small, *laws.top, laws.stationary]
        self.width = min(width, DENSE_BITS - max(0, (len(rows) * 2**DENSE_BITS // STACK_ENTRIES).bit_length()))
        self.stack = np.empty((len(rows), 1 << self.width), dtype=np.int32)
        for row, law in zip(self.stack, rows, strict=True):
            own = guide(law, self.width)
            row[:] = np.repeat(
                np.where(own.table == own.ambiguous, _AMBIGUOUS, own.table), 1 << (self.width - own.width)
            )
        self.flat = self.stack.ravel()
        self.resolvers = [_Resolver(law) for law in rows]

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
        ambiguous = np.flatnonzero(out == _AMBIGUOUS)
        heads, laws = _heads(words[ambiguous], bits, ambiguous + first), rows[ambiguous]
        for row in np.unique(laws):
            mine = laws == row
            here = ambiguous[mine]
            out[here] = self.resolvers[row].resolve(heads[mine], bits, here + first)


class _RemapSampler(Sampler):
    """The sampler of `Remap`: signed noise Z for every count n, then the map wherever n + Z <= T.

    Draws that a move may change are marked as ambiguous in the guide table.
    """

    def __init__(self, laws: Remap, width: int) -> None:
        super().__init__(laws, width)
        self.remap = laws
        moved: dict[int, int] = {}
        for moves in laws.moves.values():
            for z in (1, 2):
                units = sum(move.units for move in moves if move.source == z)
                moved[z] = max(moved.get(z, 0), -(-units >> laws.map_bits))
        self.guide = guide(laws.source, width, moved=moved)
        rows = [laws.negative, *laws.rows]
        self.lower = np.array([row[0][0] for row in rows])
        self.upper = np.array([row[-1][0] for row in rows])
        heads = [_map_heads(row, laws.map_bits) for row in rows]
        self.sure_lower = np.array([low for low, _ in heads])
        self.sure_upper = np.array([high for _, high in heads])

    def _draw_mixed(self, base: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        _look_up(self.guide, words, out)
        ambiguous = np.flatnonzero(out == self.guide.ambiguous)
        out[ambiguous] = self.resolver.noise(words[ambiguous], bits, ambiguous + first)
        moved = ambiguous[((out[ambiguous] == 1) | (out[ambiguous] == 2)) & (base[ambiguous] < self.M)]
        here = np.flatnonzero(base + out <= self.remap.T)
        unsure = self._apply_map(here, base, bits, first, out)
        for i in (*moved, *unsure):
            out[i] = _draw_by_definition(self.remap, int(base[i]), bits, first + int(i))

    def _apply_map(self, here: Cells, base: Counts, bits: Bits, first: int, out: Counts) -> Cells:
        """Apply the map to the cells `here`; returns those for which 16 bits do not decide where they are sent."""
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
    """Thresholds (a, b) for the first 16 bits: less than a means the row's first target, b or more its last one."""
    ends = [0]
    for _, weight in row:
        ends.append(ends[-1] + weight)
    return (ends[1] << DENSE_BITS) >> map_bits, -((-ends[-2] << DENSE_BITS) >> map_bits)


class _Resolver:
    """Decides ambiguous draws of one law by their first 64 bits, and those still undecided by all their bits.

    `tops` are the first 64 bits of the integers at which a new outcome begins. An outcome without weight at the end of
    the range has no integers and is left out.
    """

    def __init__(self, law: Law) -> None:
        self.law = law
        starts = [end for end in cumulate(law)[:-1] if end < law.total]
        self.tops = np.array([end << 64 >> law.bits for end in starts], dtype=np.uint64)

    def noise(self, words: Words, bits: Bits, cells: Cells) -> Counts:
        return self.resolve(_heads(words, bits, cells), bits, cells)

    def resolve(self, heads: NDArray[np.uint64], bits: Bits, cells: Cells) -> Counts:
        """The noise of some cells; `heads` are their first 64 bits."""
        slots = np.searchsorted(self.tops, heads, side="right")
        noise: Counts = slots - self.law.left
        if self.law.bits > 64:
            for i in np.flatnonzero(np.searchsorted(self.tops, heads, side="left") != slots):
                uniform = _uniform(self.law.bits, bits, NOISE, int(cells[i]))
                noise[i] = law_noise(self.law, uniform)[0]
        return noise


def _heads(words: Words, bits: Bits, cells: Cells) -> NDArray[np.uint64]:
    """The first 64 bits of some cells; `words` are the first 16 of them."""
    blocks = bits.blocks(NOISE, cells)
    return (words.astype(np.uint64) << np.uint64(64 - DENSE_BITS)) | (blocks[:, 0] >> np.uint64(DENSE_BITS))


def _look_up(table: Guide, words: Words, out: Counts) -> None:
    """For each cell, write to `out` what the guide table says for the first bits of its 16-bit word."""
    index = words if table.width == DENSE_BITS else words >> (DENSE_BITS - table.width)
    np.take(table.table, index, out=out, mode="clip")
