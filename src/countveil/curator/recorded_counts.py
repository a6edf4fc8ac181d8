"""The counts of an answer: drawn once, then packed into bytes for the ledger or written to files that it lists."""

from __future__ import annotations

import json
import zlib

import numpy as np

from countveil.errors import EngineError, RequestError
from countveil.mechanism.intervals import Ints
from countveil.mechanism.mechanism import Mechanism
from countveil.sampling.randomness import NoiseKey


def draw_counts(mechanism: Mechanism, counts: Ints, cells: int) -> Ints:
    """Add noise to an engine's counts, one draw for each cell, with a fresh noise key that is then discarded."""
    whole = isinstance(counts, np.ndarray) and counts.dtype == np.int64 and counts.shape == (cells,)
    if not whole or (len(counts) and not 0 <= counts.min() <= counts.max() <= mechanism.largest_count):
        raise EngineError("the engine returned values that cannot be counts; the charge is kept")
    return mechanism.sampler.release(np.ascontiguousarray(counts), NoiseKey())


def pack_counts(released: Ints) -> bytes:
    """Pack released counts into bytes, which the ledger stores."""
    return zlib.compress(released.astype("<i8").tobytes(), 1)


def unpack_counts(payload: bytes | None, cells: int) -> Ints:
    """Unpack released counts from the bytes that the ledger stores."""
    check_inline(payload)
    counts = np.frombuffer(zlib.decompress(payload or b""), dtype="<i8").astype(np.int64)
    if len(counts) != cells:
        raise EngineError("the recorded answer does not fit the question; verify the ledger")
    return counts


def is_manifest(payload: bytes) -> bool:
    """Whether a recorded answer is a manifest of files, as `parquet_results` writes it."""
    return payload.startswith(b"{")


def check_inline(payload: bytes | None) -> None:
    """Raise an error if a recorded answer is in files, so that its counts are not in the ledger."""
    if payload is not None and is_manifest(payload):
        folder = json.loads(payload)["folder"]
        raise RequestError(
            f"this question was answered before, in the Parquet files of {folder}; to read them, ask with "
            f"count_to_parquet(..., output=...), and give the folder that contains {folder}"
        )
