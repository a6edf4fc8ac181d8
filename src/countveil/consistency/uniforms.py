"""Uniform integers for random rounding, from the package's only source of randomness.

Rounding and simulation are post-processing, so no guarantee of privacy rests on these integers. What rests on them is
that rounding favours no cell. They come from a fresh noise key, with which no counts are released.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from countveil.consistency.tree import Ints, Level
from countveil.sampling.randomness import NOISE, NoiseKey

BATCH = 1 << 20
_WORDS = 4


class KeySource:
    """Noise keys for random rounding and for simulation: new ones, or with a seed always the same sequence.

    A publication seeds them with the ids of its receipts, which are random and older than its noise. So it can be
    derived again from its recorded measurements, with the same numbers.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed, self._number = seed, 0

    def next(self) -> NoiseKey:
        """The next noise key."""
        self._number += 1
        if self._seed is None:
            return NoiseKey()
        return NoiseKey(hashlib.sha256(self._seed + self._number.to_bytes(8, "big")).digest())


class Uniforms:
    """A stream of uniform 64-bit integers, each used once."""

    def __init__(self, key: NoiseKey | None = None) -> None:
        self._key = NoiseKey() if key is None else key
        self._next = 0

    def draw(self, size: int, bits: int = 64) -> NDArray[np.uint64]:
        """Draw `size` uniform integers below 2**bits."""
        words = np.empty(_WORDS * size, dtype=np.uint16)
        for start in range(0, len(words), _WORDS * BATCH):
            part = words[start : start + _WORDS * BATCH]
            self._key.dense(NOISE, self._next + start, part)
        self._next += len(words)
        values = words.view(np.uint64)
        values >>= np.uint64(64 - bits)
        return values

    def shuffle_families(self, level: Level) -> Ints:
        """The nodes of a level, family after family, in random order within each family."""
        families = len(level.starts)
        bits = 64 - families.bit_length()
        keys = self.draw(len(level), bits)
        keys |= level.spread(np.arange(families, dtype=np.uint64)) << np.uint64(bits)
        return np.argsort(keys)
