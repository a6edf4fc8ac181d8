"""Rounding to a grid keeps the sum, the zero mean, the centre and the zeros, and moves cells little."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, strategies as st

from countveil.errors import InfeasibleError
from countveil.ptables.grid import nearest_even, round_row

TOTAL = 1 << 64


@st.composite
def unbiased_laws(draw: st.DrawFn, least: int = 0) -> dict[int, int]:
    """Mixtures of three-point laws of mean zero, over 2**64."""
    weights: dict[int, int] = {}
    left = TOTAL
    for _ in range(draw(st.integers(1, 6))):
        down, up = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        unit = draw(st.integers(least, max(least, left // (2 * (down + up)))))
        weights[-down] = weights.get(-down, 0) + up * unit
        weights[up] = weights.get(up, 0) + down * unit
        left -= (down + up) * unit
    weights[0] = left
    return {v: w for v, w in weights.items() if w}


@given(unbiased_laws(), st.sampled_from([10**8, 4096, 256, 255]), st.booleans())
def test_rounded_rows_have_the_exact_sum_and_mean(law: dict[int, int], units: int, keep: bool) -> None:
    assert sum(v * w for v, w in law.items()) == 0
    try:
        row = round_row(law, TOTAL, units, unbiased=True, keep=keep)
    except InfeasibleError:
        assume(False)
    assert sum(row.weights) == units
    assert row.mean == 0
    assert {v for v, _ in row.items()} <= set(law)


@given(unbiased_laws(least=TOTAL >> 14), st.booleans())
def test_eight_decimals_change_probabilities_by_little(law: dict[int, int], keep: bool) -> None:
    row = round_row(law, TOTAL, 10**8, unbiased=True, keep=keep)
    for v, w in law.items():
        assert abs(Fraction(row.weight(v), row.total) - Fraction(w, TOTAL)) <= Fraction(40, 10**8)


@given(unbiased_laws(), st.sampled_from([10**8, 4096]))
def test_rounding_to_a_grid_keeps_the_given_centre(law: dict[int, int], units: int) -> None:
    centre = nearest_even(law.get(0, 0), TOTAL, units)
    try:
        row = round_row(law, TOTAL, units, unbiased=True, centre=centre)
    except InfeasibleError:
        assume(False)
    assert row.weight(0) == centre
    assert row.mean == 0


@given(st.lists(st.integers(0, TOTAL >> 5), min_size=1, max_size=12), st.sampled_from([10**8, 4096, 256, 255]))
def test_rounding_to_a_grid_keeps_symmetric_laws_symmetric(side: list[int], units: int) -> None:
    law = {0: TOTAL - 2 * sum(side)} | {s * v: w for v, w in enumerate(side, 1) for s in (1, -1) if w}
    row = round_row(law, TOTAL, units, unbiased=True)
    assert all(row.weight(v) == row.weight(-v) for v in range(len(side) + 1))
    assert abs(row.weight(0) - Fraction(law[0] * units, TOTAL)) <= 1


def test_tails_below_the_grid_are_dropped_unless_keep_is_set() -> None:
    law = {0: 10**6 - 6, -1: 1, 1: 1, -2: 1, 2: 1, -3: 1, 3: 1}
    assert round_row(law, 10**6, 100, unbiased=True).items() == [(0, 100)]
    assert round_row(law, 10**6, 100, unbiased=True, keep=True).reach == 3


def test_rows_that_a_grid_cannot_represent_are_refused() -> None:
    law = {-1: 3, 2: 1, 5: 1, 0: 0}
    with pytest.raises(InfeasibleError, match="use more cell keys"):
        round_row({-3: 1, 1: 3}, 4, 2, unbiased=True)
    with pytest.raises(InfeasibleError, match="use more cell keys"):
        round_row(law, 5, 2, unbiased=True, keep=True)
