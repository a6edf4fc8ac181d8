"""Draws are exact by exhaustion, through the code that runs in production; statistics only check the wiring."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import countveil as cv
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.laws.remap import Remap
from countveil.sampling.randomness import MAP, NOISE, NoiseKey
from countveil.sampling.sampler import release_one, sampler

SYMMETRIC = Law((1, 3, 9, 40, 3990, 40, 9, 3, 1), 4, 12)
ASYMMETRIC = Law((5, 2, 1, 0, 8, 4080), 1, 12)
ONE_SIDED = Law((4000, 95, 1), 0, 12)
WIDE = Law((2**20 - 7, 2, 5), 1, 20)
MAPPED = Remap(
    source=Law((1, 2, 7, 12, 7, 2, 1), 3, 5),
    negative=((0, 64),),
    rows=(((0, 64),), ((0, 8), (1, 56)), ((2, 64),)),
    map_bits=6,
    n0=2,
    D=5,
)
PUSHED = Remap(
    source=Law((1, 2, 7, 12, 7, 2, 1), 3, 5),
    negative=((0, 64),),
    rows=(((0, 64),), ((0, 8), (1, 56)), ((4, 64),), ((0, 5), (1, 40), (4, 19)), ((3, 1), (4, 63))),
    map_bits=6,
    n0=8,
    D=6,
)

LAWS: dict[str, Laws] = {
    "symmetric": LawsByCount(SYMMETRIC),
    "asymmetric": LawsByCount(ASYMMETRIC),
    "written out": LawsByCount(SYMMETRIC, small=(ONE_SIDED, ASYMMETRIC, WIDE)),
    "clamped": LawsByCount(SYMMETRIC, small=(ONE_SIDED,), lo=2, hi=7, top=(ASYMMETRIC, ONE_SIDED.mirror())),
    "floor": LawsByCount(SYMMETRIC, lo=4),
    "remap": MAPPED,
    "remap that pushes up": PUSHED,
}


class EveryInteger:
    """Bits that enumerate all integers: the bits of cell c are the integer c, left-aligned."""

    def __init__(self, bits: int, map_bits: int = 0) -> None:
        self.bits, self.map_bits = bits, map_bits

    def aligned(self, source: int, cell: int) -> int:
        """The 144 bits of a cell."""
        if source == NOISE:
            return (cell >> self.map_bits) << (144 - self.bits)
        return (cell & ((1 << self.map_bits) - 1)) << (144 - self.map_bits)

    def dense(self, source: int, first: int, words: NDArray[np.uint16]) -> None:
        words[:] = [self.aligned(source, first + i) >> 128 for i in range(len(words))]

    def blocks(self, source: int, cells: NDArray[np.int64]) -> NDArray[np.uint64]:
        blocks = [self.aligned(source, int(c)) & (2**128 - 1) for c in cells]
        return np.array([[b >> 64, b & (2**64 - 1)] for b in blocks], dtype=np.uint64).reshape(-1, 2)


def everything(laws: Laws, n: int) -> EveryInteger:
    if isinstance(laws, Remap) and n < laws.stationary_from:
        return EveryInteger(laws.source.bits, laws.map_bits)
    return EveryInteger(laws.law(n).bits)


@pytest.mark.parametrize("width", [1, 3, 7, 11, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LAWS)
def test_each_outcome_occurs_for_as_many_integers_as_its_weight(name: str, width: int) -> None:
    """Every uniform integer is drawn once, for several widths of the guide."""
    laws = LAWS[name]
    for n in range(10):
        law, total = laws.law(n), 1 << laws.law(n).bits
        counts = np.full(total, n, dtype=np.int64)
        released = sampler(laws, width).release(counts, everything(laws, n))
        assert Counter((released - n).tolist()) == Counter({z: w * total // law.total for z, w in law.items() if w})


@pytest.mark.parametrize("name", LAWS)
def test_vector_draws_agree_with_the_definition_in_every_cell(name: str) -> None:
    laws, key = LAWS[name], NoiseKey(bytes(range(32)))
    counts = np.arange(3000, dtype=np.int64) % 13
    fast = sampler(laws, 5).release(counts, key)
    assert np.array_equal(fast, sampler(laws, 16).release(counts, key))
    for cell in range(0, 3000, 7):
        one = _At(key, cell)
        assert fast[cell] == release_one(laws, int(counts[cell]), one)


class _At:
    """The bits of another cell, as if it were cell 0."""

    def __init__(self, key: NoiseKey, cell: int) -> None:
        self.key, self.cell = key, cell

    def dense(self, source: int, first: int, words: NDArray[np.uint16]) -> None:
        self.key.dense(source, self.cell + first, words)

    def blocks(self, source: int, cells: NDArray[np.int64]) -> NDArray[np.uint64]:
        return self.key.blocks(source, cells + self.cell)


def test_the_remap_that_is_drawn_exhaustively_has_moves() -> None:
    """Otherwise the exhaustive test would not cover moves."""
    assert any(MAPPED.moves.values())
    assert all(MAPPED.law(n).mean == 0 for n in range(2, 9))


@pytest.mark.parametrize("bits", [96, 128])
def test_draws_on_a_64_bit_boundary_use_all_bits(bits: int) -> None:
    """Two slots that share their first 64 bits: only the later bits tell them apart."""
    half = 1 << (bits - 1)
    law = Law((half + 5, half - 5), 0, bits)

    class Boundary:
        def __init__(self, uniform: int) -> None:
            self.aligned = uniform << (144 - bits)

        def dense(self, source: int, first: int, words: NDArray[np.uint16]) -> None:
            words[:] = self.aligned >> 128

        def blocks(self, source: int, cells: NDArray[np.int64]) -> NDArray[np.uint64]:
            low = self.aligned & (2**128 - 1)
            return np.array([[low >> 64, low & (2**64 - 1)]] * len(cells), dtype=np.uint64)

    for offset, z in ((4, 0), (5, 1), (0, 0), (9, 1)):
        drawn = sampler(LawsByCount(law)).release(np.zeros(1, dtype=np.int64), Boundary(half + offset))
        assert drawn[0] == z


# Addresses


def test_the_bits_of_a_cell_do_not_depend_on_batch_or_order_or_offset() -> None:
    key = NoiseKey()
    whole = np.empty(1000, dtype=np.uint16)
    key.dense(MAP, 0, whole)
    for start, stop in ((0, 1), (1, 9), (7, 8), (8, 500), (499, 1000)):
        part = np.empty(stop - start, dtype=np.uint16)
        key.dense(MAP, start, part)
        assert np.array_equal(part, whole[start:stop])
    cells = np.array([5, 3, 99, 2**50], dtype=np.int64)
    assert np.array_equal(key.blocks(NOISE, cells)[::-1], key.blocks(NOISE, cells[::-1]))
    assert not np.array_equal(key.blocks(NOISE, cells), key.blocks(MAP, cells))


def test_streams_are_counter_mode_of_aes() -> None:
    """The dense stream is the keystream of a plain CTR encryption, and blocks are its far blocks."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = NoiseKey(bytes(32))
    words = np.empty(64, dtype=np.uint16)
    key.dense(NOISE, 0, words)
    plain = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update(bytes(128))
    assert words.tobytes() == plain
    counter = ((3 << 96) + 77).to_bytes(16, "big")
    far = Cipher(algorithms.AES(bytes(32)), modes.CTR(counter)).encryptor().update(bytes(16))
    high, low = (int(x) for x in key.blocks(MAP, np.array([77]))[0])
    assert (high << 64 | low) == int.from_bytes(far, "big")


def test_retried_and_reordered_tasks_draw_the_same_noise() -> None:
    m = cv.design(epsilon="1", delta="1e-6", method="remap")
    key, counts = NoiseKey(), np.arange(200_000, dtype=np.int64) % 40
    draws = sampler(m.laws)
    whole = draws.release(counts, key)
    parts = [draws.release(counts[i : i + 30_000], key, first=i) for i in range(0, 200_000, 30_000)][::-1]
    assert np.array_equal(np.concatenate(parts[::-1]), whole)
    many = np.arange(1_300_000, dtype=np.int64) % 60
    alone = draws.release(many, key, threads=1)
    for threads in (2, 3):
        assert np.array_equal(draws.release(many, key, threads=threads), alone)
    again = sampler(m.laws).release(counts, NoiseKey(key.export()))
    assert np.array_equal(again, whole)
    assert not np.array_equal(draws.release(counts, NoiseKey()), whole)


def test_another_process_draws_the_same_noise_from_the_same_key_for_the_same_cells(tmp_path: Path) -> None:
    m = cv.design(epsilon="1", delta="1e-6", method="remap")
    m.save(tmp_path / "m.json")
    key, counts = NoiseKey(), np.arange(5000, dtype=np.int64) % 40
    code = (
        "import sys, numpy as np, countveil as cv\n"
        "from countveil.sampling.randomness import NoiseKey\n"
        "m = cv.Mechanism.load(sys.argv[1])\n"
        "key = NoiseKey(bytes.fromhex(sys.stdin.read()))\n"
        "counts = np.arange(5000, dtype=np.int64) % 40\n"
        "print(m.sampler.release(counts[1234:], key, first=1234).tolist())"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.json")],
        input=key.export().hex(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(there.stdout) == m.sampler.release(counts, key)[1234:].tolist()


def _child(queue: multiprocessing.SimpleQueue[tuple[int, ...]], m: cv.Mechanism) -> None:
    """Draw from the mechanism that the parent has drawn from before."""
    queue.put(tuple(m.release(10_000) for _ in range(12)))


@pytest.mark.slow  # a thousand processes
def test_a_thousand_forked_children_draw_differently() -> None:
    m = cv.design(epsilon="0.1", delta="1e-6", policy="signed")
    m.release(np.arange(10))
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.SimpleQueue[tuple[int, ...]] = context.SimpleQueue()
    seen = set()
    for _ in range(100):
        children = [context.Process(target=_child, args=(queue, m)) for _ in range(10)]
        for child in children:
            child.start()
        seen |= {queue.get() for _ in children}
        for child in children:
            child.join()
    assert len(seen) == 1000


def test_noise_keys_are_not_shown_pickled_or_copied() -> None:
    key = NoiseKey(bytes(range(32)))
    assert "secret" in repr(key)
    assert "0001" not in repr(key)
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            leak(key)
    with pytest.raises(ValueError, match="32 bytes"):
        NoiseKey(b"short")


# Statistical tests that also reject wrong laws


def chi_square(observed: Counter[int], law: Law, trials: int) -> float:
    """Pearson's statistic over cells with an expectation of at least 5, in standard deviations above its mean."""
    statistic, cells = 0.0, 0
    for z in range(-law.left, law.right + 1):
        expected = trials * law.weight(z) / law.total
        if expected >= 5:
            statistic += (observed[z] - expected) ** 2 / expected
            cells += 1
    outside = sum(k for z, k in observed.items() if law.weight(z) == 0)
    return (statistic - cells) / (2 * cells) ** 0.5 + 1e9 * outside


def stretched(law: Law, factor: Fraction) -> Law:
    """A law of about the same shape, stretched or shrunk: each z is moved to the nearest integer of factor * z."""
    weights: Counter[int] = Counter()
    for z, w in law.items():
        weights[round(z * factor)] += w
    reach = max(map(abs, weights))
    return Law(tuple(weights[z] for z in range(-reach, reach + 1)), reach, law.bits)


LIMIT = 8.0  # p < 1e-9 for a chi-square of 10 cells or more


def test_chi_square_accepts_the_law_and_rejects_others() -> None:
    m = cv.design(epsilon="0.3", delta="1e-6", policy="signed")
    law, trials = m.law(1000), 400_000
    released = m.release(np.full(trials, 1000, dtype=np.int64)) - 1000
    seen = Counter(released.tolist())
    assert abs(chi_square(seen, law, trials)) < LIMIT
    for wrong in (stretched(law, Fraction(7, 10)), stretched(law, Fraction(13, 10)), law.shift(1), law.shift(-1)):
        assert chi_square(seen, wrong, trials) > LIMIT


@pytest.mark.parametrize("method", ["program", "remap"])
def test_chi_square_rejects_the_law_of_another_count(method: str) -> None:
    m = cv.design(epsilon="1", delta="1e-5", method=method)
    counts = np.arange(1_200_000, dtype=np.int64) % 12
    noise = m.release(counts) - counts
    for n in range(12):
        seen = Counter(noise[counts == n].tolist())
        assert abs(chi_square(seen, m.law(n), 100_000)) < LIMIT
        if n < 2:
            assert chi_square(seen, m.law(n + 1), 100_000) > LIMIT


def test_counts_are_not_released_into_their_own_memory() -> None:
    """Noise is written first: the counts would be lost, and the noise doubled."""
    mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed")
    counts = np.arange(10, dtype=np.int64)
    with pytest.raises(cv.ParameterError, match="the memory of the counts"):
        mechanism.sampler.release(counts, NoiseKey(), out=counts)
    assert counts.tolist() == list(range(10))
