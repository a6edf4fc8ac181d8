"""Draws are exact by exhaustion: every uniform integer once, every outcome exactly weight-many times."""

from __future__ import annotations

from collections import Counter

import pytest

import countveil as cv
from countveil.columns import Columns
from countveil.law import Law
from countveil.sampling import draw

LAWS = {
    "symmetric": Law((1, 3, 8, 3, 1), 2, 4),
    "asymmetric": Law((5, 2, 1, 0, 8), 1, 4),
    "one-sided": Law((7, 1), 0, 3),
    "point": Law((1,), 0, 0),
    "away from zero": Law((3, 1), -2, 2),
}


@pytest.mark.parametrize("name", LAWS)
def test_every_uniform_integer_once(name: str) -> None:
    law = LAWS[name]
    seen = Counter(draw.noise(law, lambda bits, u=u: u) for u in range(2**law.bits))  # type: ignore[misc]
    assert seen == Counter({z: w for z, w in law.items() if w})


def test_columns_are_not_mixed_up() -> None:
    family = Columns(LAWS["symmetric"], small=(LAWS["one-sided"], LAWS["asymmetric"]))
    for n in range(5):
        law = family.column(n)
        seen = Counter(draw.release(family, n, lambda bits, u=u: u) for u in range(2**law.bits))  # type: ignore[misc]
        assert seen == Counter({n + z: w for z, w in law.items() if w})


def test_an_integer_outside_the_range_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        draw.noise(LAWS["symmetric"], lambda bits: 16)


@pytest.mark.parametrize(
    "request_",
    [
        {"epsilon": "1", "eta": "0.4", "D": 5, "policy": "signed"},
        {"epsilon": "1", "eta": "0.4", "D": 4, "method": "program"},
        {"epsilon": "1", "delta": "1e-4", "method": "remap"},
        {"epsilon": "1", "delta": "1e-4", "policy": "floor"},
    ],
    ids=str,
)
def test_releases_follow_the_column(request_: dict[str, object]) -> None:
    """Wiring only: frequencies within 7 standard deviations (p < 1e-11 a cell), for small and large counts."""
    m = cv.design(**request_)  # type: ignore[arg-type]
    trials = 4000
    for n in (0, 1, 3, 1000):
        law = m.column(n)
        seen = Counter(m.release(n) - n for _ in range(trials))
        assert set(seen) <= {z for z, w in law.items() if w}
        for z, w in law.items():
            p = w / law.total
            assert abs(seen[z] - trials * p) <= 7 * (trials * p * (1 - p)) ** 0.5 + 1e-9


def test_draws_differ() -> None:
    m = cv.design(epsilon="0.1", delta="1e-6", policy="signed")
    assert len({m.release(10_000) for _ in range(200)}) > 20
