"""The only source of randomness: keyed streams of uniform bits in which every cell has its own place.

A release draws a fresh 256-bit noise key from the operating system. AES-256 in counter mode expands the key into
independent streams of bits. The bits of a cell (one count of the release) are fixed by the key, the stream and the
number of the cell; they do not depend on batch size, order or process. So a task that is run again draws the same
noise.

**One noise key, one evaluation of one set of counts.** Using a noise key for different counts would cancel the noise.
Noise keys are therefore never stored, shown by repr, pickled or copied by accident; `NoiseKey.export` exists only to
pass the noise key of one release to the workers that evaluate it.

A draw has two independent sources of 144 bits for each cell: NOISE, and MAP for the map of remapped laws. The first 16
of the 144 bits come from a dense stream, in which the cells follow each other without gaps; the other 128, read only
where needed, are a block of the cell's own in a sparse stream. Block b of stream s is AES(key, s * 2^96 + b), so no two
streams share a block. Nothing here has state that a fork or a thread could share; every call has ciphers of its own.
"""

from __future__ import annotations

import secrets
from typing import NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

DENSE_BITS = 16
BLOCK_BITS = 128
NOISE, MAP = 0, 2
"""The two sources of bits, each named by the number of its dense stream; its sparse stream has the next number."""
_BLOCK = BLOCK_BITS // 8
_ZEROS = bytes(1 << 18)
_STREAM = 96

Words = NDArray[np.uint16]
Blocks = NDArray[np.uint64]


class Bits(Protocol):
    """Where draws take their bits from: a `NoiseKey`, or in tests an enumeration of all possible bits."""

    def dense(self, source: int, first: int, words: Words) -> None:
        """Fill `words` with the first 16 bits of the cells first, first + 1, ... in a source (NOISE or MAP)."""

    def blocks(self, source: int, cells: NDArray[np.int64]) -> Blocks:
        """The 128 bits after the first 16 of each cell in a source (NOISE or MAP), as pairs (high half, low half)."""


class NoiseKey:
    """The secret 256-bit key that fixes all random bits of one release; a new one is random."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is not None and len(secret) != 32:
            raise ValueError(f"a noise key has 32 bytes, not {len(secret)}")
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def dense(self, source: int, first: int, words: Words) -> None:
        """Fill `words` with the first 16 bits of cells first, first + 1, ... in a source, by AES in counter mode."""
        skip = 2 * first % _BLOCK
        counter = (source << _STREAM) + 2 * first // _BLOCK
        stream = Cipher(algorithms.AES(self._secret), modes.CTR(counter.to_bytes(_BLOCK, "big"))).encryptor()
        if skip:
            stream.update(bytes(skip))
        size = 2 * len(words)
        zeros = memoryview(_ZEROS)[:size] if size <= len(_ZEROS) else bytes(size)
        if stream.update_into(zeros, words.data.cast("B")) != size:
            raise RuntimeError("the cipher did not fill the buffer")

    def blocks(self, source: int, cells: NDArray[np.int64]) -> Blocks:
        """The 128 bits after the first 16 of some cells in a source: the number of each cell, encrypted with AES."""
        counters = np.empty((len(cells), 2), dtype=">u8")
        counters[:, 0] = (source + 1) << (_STREAM - 64)
        counters[:, 1] = cells
        cipher = Cipher(algorithms.AES(self._secret), modes.ECB())  # distinct counters: this is CTR
        enciphered = cipher.encryptor().update(counters.tobytes())
        return np.frombuffer(enciphered, dtype=">u8").reshape(-1, 2).astype(np.uint64)

    def export(self) -> bytes:
        """The secret as bytes, for the workers of this one release. Never store it, never use it for other counts."""
        return self._secret

    def __repr__(self) -> str:
        return "<NoiseKey: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise key is not pickled or copied; use export() to pass it to the workers of one release")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


def token(size: int) -> str:
    """`size` random bytes in hexadecimal, for secrets that are stored, such as API keys; no draw of noise uses them."""
    return secrets.token_hex(size)


def salt() -> bytes:
    """A new salt of 16 random bytes for one evaluation of a question.

    If one person is in more cells than may count, the salt decides which of these cells count. It need not be secret,
    because the guarantee holds for every salt.
    """
    return secrets.token_bytes(16)
