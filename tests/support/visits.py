"""A heavy-tailed file: 200,000 visits of 31,490 people, the most frequent of whom has 1,491 of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PEOPLE, VISITS, MOST = 31_490, 200_000, 1_491
REGIONS = [f"region {i:02}" for i in range(12)]
MONTHS = 24
WARDS = 40


def visits_of_people() -> np.ndarray:
    """How many visits each person has, the most first: inversely proportional to the rank (Zipf), at least 1."""
    ranks = np.arange(PEOPLE)
    low, high = 1.0, 1000.0
    for _ in range(60):
        scale = (low + high) / 2
        low, high = (low, scale) if _visits(ranks, scale).sum() > VISITS else (scale, high)
    counts = _visits(ranks, low)
    counts[1 : 1 + VISITS - counts.sum()] += 1
    return counts


def _visits(ranks: np.ndarray, scale: float) -> np.ndarray:
    return np.maximum(1, np.floor(MOST / (1 + ranks / scale))).astype(np.int64)


def write_visits(folder: Path, name: str = "visits.parquet") -> Path:
    """The file: people mostly go to one region and one ward, in any month."""
    generator = np.random.default_rng(20261118)
    person = np.repeat(np.arange(PEOPLE), visits_of_people())
    size = len(person)
    home = generator.integers(0, len(REGIONS), PEOPLE)[person]
    region = np.where(generator.random(size) < 0.9, home, generator.integers(0, len(REGIONS), size))
    usual = np.minimum(generator.geometric(0.08, PEOPLE) - 1, WARDS - 1)[person]
    ward = np.where(generator.random(size) < 0.6, usual, generator.integers(0, WARDS, size))
    month = generator.integers(1, MONTHS + 1, size)
    table = pa.table(
        {"person": person + 1000, "region": pa.array(np.array(REGIONS)[region]), "ward": ward, "month": month}
    )
    pq.write_table(table.take(generator.permutation(size)), folder / name)
    return folder / name
