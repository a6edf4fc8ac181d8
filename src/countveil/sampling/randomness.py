"""The only source of randomness: keyed streams of uniform bits with an address for every cell.

A release draws a fresh 256-bit noise key from the operating system. AES-256 in counter mode expands it into independent
streams; cell c of stream s has fixed bits, independent of batch size, order and process. So a retried task draws the
same noise again.

**One noise key, one evaluation of one set of counts.** Using a noise key for different counts would cancel the noise.
Noise keys are therefore never stored, shown by repr, pickled or copied by accident; `NoiseKey.export` exists only to
pass the noise key of one release to the workers that evaluate it.

The bits of a cell: 16 from a dense stream, then as many as needed from its own 128-bit block of a sparse stream. Block
b of stream s is AES(key, s * 2^96 + b): addresses of different streams never meet. A draw has two such sources of 144
bits, NOISE and MAP. Nothing here has state that a fork or a thread could share; every call has ciphers of its own.
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
"""The number of the dense stream of each source; the number of its sparse stream is one higher."""
_BLOCK = BLOCK_BITS // 8
_ZEROS = bytes(1 << 18)
_STREAM = 96

Words = NDArray[np.uint16]
Blocks = NDArray[np.uint64]


class Bits(Protocol):
    """The source of the bits of draws: a `NoiseKey`, or in tests an enumeration of all bits."""

    def dense(self, source: int, first: int, words: Words) -> None:
        """Fill `words` with the first 16 bits of cells first, first + 1, ..."""

    def blocks(self, source: int, cells: NDArray[np.int64]) -> Blocks:
        """The next 128 bits of some cells, as rows of two 64-bit halves, high half first."""


class NoiseKey:
    """A 256-bit noise key for one release."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is not None and len(secret) != 32:
            raise ValueError(f"a noise key has 32 bytes, not {len(secret)}")
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def dense(self, source: int, first: int, words: Words) -> None:
        """Fill `words` with the first 16 bits of cells first, first + 1, ..., by counter mode."""
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
        """The next 128 bits of some cells: each cell has a counter of its own, which is enciphered."""
        counters = np.empty((len(cells), 2), dtype=">u8")
        counters[:, 0] = (source + 1) << (_STREAM - 64)
        counters[:, 1] = cells
        cipher = Cipher(algorithms.AES(self._secret), modes.ECB())  # distinct counters: this is CTR
        enciphered = cipher.encryptor().update(counters.tobytes())
        return np.frombuffer(enciphered, dtype=">u8").reshape(-1, 2).astype(np.uint64)

    def export(self) -> bytes:
        """The secret, for the workers of this one release. Never store it, never use it for other counts."""
        return self._secret

    def __repr__(self) -> str:
        return "<Key: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise key is not pickled or copied; use export() to pass it to the workers of one release")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


def token(size: int) -> str:
    """Random bytes in hexadecimal, for stored secrets such as API keys; no draw uses them."""
    return secrets.token_hex(size)


def salt() -> bytes:
    """A new salt for one evaluation: it chooses which cells count for a person who is in too many. It need not be
    secret, because the guarantee holds for every salt."""
    return secrets.token_bytes(16)
