"""Rounding keeps sums, eta and zero bias exact, whatever the proposal looks like."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given, strategies as st

from countveil.laws.rounding import SCALE, column_law, even_weight, symmetric_law

POSITIVE = st.integers(0, 10**9)


@given(st.lists(POSITIVE, min_size=1, max_size=12), st.integers(1, 99), st.sampled_from([16, 64, 128]))
def test_rounding_a_symmetric_law_keeps_eta_and_zero_mean(side: list[int], percent: int, bits: int) -> None:
    assume(sum(side) > 0)
    rest = (100 - percent) * (1 << SCALE) // 200
    half = [percent * (1 << SCALE) // 100, *(w * rest // sum(side) for w in side)]
    law = symmetric_law(half, bits)
    assert law.mean == 0
    assert law.is_symmetric()
    assert law.weight(0) == even_weight(half[0], bits)
    assert abs(law.eta - Fraction(percent, 100)) <= Fraction(2, 2**bits)
    for i, value in enumerate(half):
        assert abs(law.probability(i) - Fraction(value, 1 << SCALE)) <= Fraction(len(half) + 2, 2**bits)
        assert (law.weight(i) > 0) == (value > 0) or i == 1 + side.index(max(side))


@given(
    st.lists(POSITIVE, min_size=1, max_size=5),
    st.lists(POSITIVE, min_size=1, max_size=7),
    st.integers(1, 98),
    st.sampled_from([32, 64]),
)
def test_rounding_a_law_of_zero_mean_keeps_its_centre_and_zero_mean(
    low: list[int], high: list[int], percent: int, bits: int
) -> None:
    """Any zero-mean law with a given centre, three-point laws included."""
    assume(sum(low) and sum(high))
    below = sum((i + 1) * w for i, w in enumerate(low[::-1]))
    above = sum((i + 1) * w for i, w in enumerate(high))
    weights = [w * above for w in low], [w * below for w in high]
    total = sum(map(sum, weights))
    eta = Fraction(percent, 100)
    unit = (1 - eta) * (1 << SCALE) / total
    values = [*(int(w * unit) for w in weights[0]), int(eta * (1 << SCALE)), *(int(w * unit) for w in weights[1])]
    centre = even_weight(values[len(low)], bits)
    law = column_law(values, len(low), bits, centre=centre, unbiased=True)
    assert law.mean == 0
    assert law.weight(0) == centre
    assert (law.left, law.right) == (len(low), len(high))
    for z, w in law.items():
        assert abs(w - Fraction(values[z + law.left], 2 ** (SCALE - bits))) <= 3 * len(values) ** 2
