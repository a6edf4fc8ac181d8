"""Exact draws for one count and for vectors of counts, near the speed of memory.

The draw of cell c is decided by K uniform bits that belong to that cell alone (`entropy`), in the way that `outcome`
defines. Here it is done lazily: 16 bits settle a draw when the guide table is unambiguous; otherwise more bits are taken
from the cell's own blocks. The result is the same, bit for bit, for every guide width, batch size and order. Work per
cell depends on the noise only through that ambiguity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from countveil.columns import ColumnFamily, Columns
from countveil.law import Law
from countveil.remap import Remap
from countveil.sampling import outcome
from countveil.sampling.entropy import BLOCK_BITS, DENSE_BITS, Bits, Key, Words
from countveil.sampling.guide import Guide, guide

WIDTH = 16
SMALL_WIDTH = 11
BATCH = 1 << 16

Counts = NDArray[np.int64]
Cells = NDArray[np.int64]


def release_one(family: ColumnFamily, n: int, bits: Bits | None = None) -> int:
    """Y = n + Z for one count, as cell 0 of a release of its own."""
    source = bits if bits is not None else Key()
    word = np.empty(1, dtype=np.uint16)
    source.dense(0, word)
    return n + _defined(family, n, int(word[0]), source, 0)


def sampler(family: ColumnFamily, width: int = WIDTH) -> Sampler:
    """What draws vectors of counts from a family; guide tables are built once."""
    return _RemapSampler(family, width) if isinstance(family, Remap) else _ColumnSampler(family, width)


class Sampler:
    """Draws vectors of counts: the stationary law for all, then the counts that have another law."""

    def __init__(self, family: ColumnFamily, width: int) -> None:
        self.family = family
        self.low, self.high = family.lo, family.hi
        self.M = family.stationary_from
        self.guide = guide(family.stationary, width)
        self.resolver = _Resolver(family.stationary)

    def release(self, counts: Counts, bits: Bits, *, first: int = 0, out: Counts | None = None) -> Counts:
        """Y = n + Z; counts[i] is cell first + i of the release that `bits` belongs to."""
        result = np.empty_like(counts) if out is None else out
        words = np.empty(min(BATCH, max(1, len(counts))), dtype=np.uint16)
        for start in range(0, len(counts), BATCH):
            part = counts[start : start + BATCH]
            dense = words[: len(part)]
            bits.dense(first + start, dense)
            self._draw(part, dense, bits, first + start, result[start : start + BATCH])
        return result

    def _draw(self, counts: Counts, words: Words, bits: Bits, first: int, out: Counts) -> None:
        """out = counts + noise, for cells first, first + 1, ..."""
        base = counts
        if self.low > 0 or self.high is not None:
            base = np.clip(counts, self.low, self.high)
        _look_up(self.guide, words, out)
        open_ = np.flatnonzero(out == self.guide.ambiguous)
        special = self._special(base)
        if len(special):
            open_ = open_[~_mask(special, len(out))[open_]]
            out[special] = self._draw_special(base[special], words[special], bits, special + first)
        if len(open_):
            out[open_] = self.resolver.noise(words[open_], bits, open_ + first)
        out += base

    def _special(self, base: Counts) -> Cells:
        """Positions of counts whose law is not the stationary one."""
        if self.M > self.low and len(base) and base.min() < self.M:
            return np.flatnonzero(base < self.M)
        return np.empty(0, dtype=np.int64)

    def _draw_special(self, base: Counts, words: Words, bits: Bits, cells: Cells) -> Counts:
        raise NotImplementedError


class _ColumnSampler(Sampler):
    """Columns written out: one narrow guide per special column, stacked."""

    def __init__(self, family: ColumnFamily, width: int) -> None:
        super().__init__(family, width)
        if not isinstance(family, Columns):
            raise TypeError("an unknown kind of columns")
        self.first_top = family.first_top
        self.laws = [*family.small, *family.top]
        narrow = min(width, SMALL_WIDTH)
        guides = [guide(law, narrow) for law in self.laws]
        self.width = narrow
        self.ambiguous = np.iinfo(np.int32).min
        self.stack = np.full((len(guides), 1 << narrow), self.ambiguous, dtype=np.int32)
        for row, own in zip(self.stack, guides, strict=True):
            spread = np.repeat(own.table, 1 << (narrow - own.width))
            row[:] = np.where(spread == own.ambiguous, self.ambiguous, spread)
        self.resolvers = [_Resolver(law) for law in self.laws]

    def _special(self, base: Counts) -> Cells:
        if self.first_top is not None:
            return np.flatnonzero((base < self.M) | (base >= self.first_top))
        return super()._special(base)

    def _draw_special(self, base: Counts, words: Words, bits: Bits, cells: Cells) -> Counts:
        rows = base - self.low
        if self.first_top is not None:
            rows = np.where(base >= self.first_top, base - self.first_top + (self.M - self.low), rows)
        found = self.stack.ravel()[(rows << self.width) + (words >> (DENSE_BITS - self.width))].astype(np.int64)
        open_ = np.flatnonzero(found == self.ambiguous)
        for row in np.unique(rows[open_]):
            here = open_[rows[open_] == row]
            found[here] = self.resolvers[row].noise(words[here], bits, cells[here])
        return found


class _RemapSampler(Sampler):
    """A signed draw for all; for counts below M the map, and the moves as part of the ambiguous entries."""

    def __init__(self, family: ColumnFamily, width: int) -> None:
        super().__init__(family, width)
        if not isinstance(family, Remap):
            raise TypeError("an unknown kind of columns")
        self.remap = family
        moved: dict[int, int] = {}
        for moves in family.moves.values():
            for z in (1, 2):
                units = sum(move.units for move in moves if move.source == z)
                moved[z] = max(moved.get(z, 0), -(-units >> family.map_bits))
        self.moved = guide(family.source, width, moved=moved)
        rows = [family.negative, *family.rows]
        self.vectorised = family.map_bits == 64 and all(len(row) <= 2 for row in rows)
        self.lower = np.array([row[0][0] for row in rows])
        self.upper = np.array([row[-1][0] for row in rows])
        self.shares = np.array([row[0][1] if len(row) == 2 else 0 for row in rows], dtype=np.uint64)

    def _draw_special(self, base: Counts, words: Words, bits: Bits, cells: Cells) -> Counts:
        found = np.empty(len(base), dtype=np.int64)
        _look_up(self.moved, words, found)
        slow = found == self.moved.ambiguous
        mapped = ~slow & (base + found <= self.remap.T)
        if self.vectorised:
            here = np.flatnonzero(mapped)
            signed = np.maximum(base[here] + found[here], -1) + 1
            low = bits.blocks(2, cells[here])[:, 0]
            found[here] = np.where(low < self.shares[signed], self.lower[signed], self.upper[signed]) - base[here]
        else:
            slow |= mapped
        for i in np.flatnonzero(slow):
            found[i] = _defined(self.remap, int(base[i]), int(words[i]), bits, int(cells[i]))
        return found


class _Resolver:
    """Settles ambiguous draws of one law by its first 64 bits; those on a boundary, by all of them.

    `tops` are the first 64 bits of the integers at which a new slot begins. Slots that begin at the very end of the
    range have no integers and are left out.
    """

    def __init__(self, law: Law) -> None:
        self.law = law
        starts = [end for end in outcome.cumulated(law)[:-1] if end < law.total]
        self.tops = np.array([end << 64 >> law.bits for end in starts], dtype=np.uint64)

    def noise(self, words: Words, bits: Bits, cells: Cells) -> Counts:
        blocks = bits.blocks(1, cells)
        heads = (words.astype(np.uint64) << np.uint64(64 - DENSE_BITS)) | (blocks[:, 0] >> np.uint64(DENSE_BITS))
        slots = np.searchsorted(self.tops, heads, side="right")
        found: Counts = slots - self.law.left
        if self.law.bits > 64:
            for i in np.flatnonzero(np.searchsorted(self.tops, heads, side="left") != slots):
                uniform = _uniform(self.law.bits, int(words[i]), blocks[i])
                found[i] = outcome.law_noise(self.law, uniform)[0]
        return found


def _look_up(table: Guide, words: Words, out: Counts) -> None:
    """out = table[first bits of words]."""
    index = words if table.width == DENSE_BITS else words >> (DENSE_BITS - table.width)
    np.take(table.table, index, out=out, mode="clip")


def _mask(positions: Cells, size: int) -> NDArray[np.bool_]:
    mask = np.zeros(size, dtype=np.bool_)
    mask[positions] = True
    return mask


def _defined(family: ColumnFamily, n: int, word: int, bits: Bits, cell: int) -> int:
    """The noise of one cell by definition, with all of its bits."""
    here = np.array([cell], dtype=np.int64)
    block = bits.blocks(1, here)[0]
    if isinstance(family, Remap) and n < family.stationary_from:
        high = _uniform(family.source.bits, word, block)
        low = _integer(bits.blocks(2, here)[0]) >> (BLOCK_BITS - family.map_bits)
        return outcome.noise(family, n, high << family.map_bits | low)
    return outcome.noise(family, n, _uniform(family.column(n).bits, word, block))


def _uniform(bits: int, word: int, block: NDArray[np.uint64]) -> int:
    """The first `bits` of the 16 dense bits and the block of a cell."""
    return (word << BLOCK_BITS | _integer(block)) >> (DENSE_BITS + BLOCK_BITS - bits)


def _integer(block: NDArray[np.uint64]) -> int:
    return int(block[0]) << 64 | int(block[1])
