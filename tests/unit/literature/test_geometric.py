from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from countveil.errors import ParameterError
from countveil.laws import privacy
from countveil.laws.law import Law, LawsByCount
from countveil.literature.geometric import (
    clamped_geometric,
    folded_geometric,
    geometric,
    rounded_laplace,
    truncated_geometric,
)
from countveil.mechanism import certificate
from countveil.numeric.exact_numbers import exp_bounds

ALMOST_NOTHING = Fraction(1, 2**88)
EPSILONS = st.fractions(Fraction(1, 5), 4, max_denominator=20)


@given(EPSILONS)
def test_geometric_laws_are_private_at_epsilon_and_not_below_it(epsilon: Fraction) -> None:
    for member in (geometric(epsilon), clamped_geometric(epsilon), folded_geometric(epsilon, 5)):
        assert member.delta(exp_bounds(epsilon)[0]) <= ALMOST_NOTHING
        assert member.delta(exp_bounds(epsilon * 3 / 4)[0]) > Fraction(1, 100) or member.name == "folded geometric"
        assert member.cut <= Fraction(1, 2**99)


@given(EPSILONS, st.integers(1, 30))
def test_the_delta_of_truncation_is_the_mass_at_the_edge(epsilon: Fraction, D: int) -> None:
    member = truncated_geometric(epsilon, D)
    law = member.laws.stationary
    assert law.is_symmetric()
    assert law.right == D
    edge = law.probability(D)
    delta = member.delta(exp_bounds(epsilon)[0])
    assert edge <= delta <= edge + Fraction(1, 2**150)


@given(st.sampled_from(["clamped", "folded"]), st.sampled_from(["1", "2.5"]), st.sampled_from([None, 1, 4, 9, 300]))
def test_clamped_and_folded_laws_are_the_geometric_law_after_post_processing(
    kind: str, epsilon: str, N: int | None
) -> None:
    member = (clamped_geometric if kind == "clamped" else folded_geometric)(epsilon, N)
    noise = geometric(epsilon).laws.stationary
    last = member.laws.stationary_from if N is None else N
    for n in {0, 1, 3, last // 2, last}:
        if N is not None and n > N:
            continue
        expected: dict[int, int] = {}
        for z, w in noise.items():
            y = n + z
            while kind == "folded" and (y < 0 or (N is not None and y > N)):
                y = -y if y < 0 or N is None else 2 * N - y
            y = max(0, y) if N is None else min(max(0, y), N)
            expected[y] = expected.get(y, 0) + w
        assert {n + z: w for z, w in member.laws.law(n).items() if w} == {y: w for y, w in expected.items() if w}


@pytest.mark.parametrize("N", [None, 1, 3, 20, 400])
@pytest.mark.parametrize("order", ["1", "1.5", "2.5"])
def test_clamped_laws_have_the_delta_of_the_geometric_law(N: int | None, order: str) -> None:
    member = clamped_geometric("1", N)
    direct = privacy.delta(member.laws, Fraction(order)).value
    assert direct <= member.delta(Fraction(order)) <= direct + ALMOST_NOTHING


def test_folding_on_a_short_range_lowers_delta() -> None:
    member = folded_geometric("1", 2)
    assert member.source is None
    assert member.delta(Fraction(3, 2)) < geometric("1").delta(Fraction(3, 2)) - Fraction(1, 1000)
    whole = folded_geometric("1")
    direct = privacy.delta(whole.laws, Fraction(3, 2)).value
    assert direct <= whole.delta(Fraction(3, 2)) <= direct + ALMOST_NOTHING


@pytest.mark.parametrize("N", [None, 5, 80, 400])
def test_clamped_laws_can_be_certified(N: int | None) -> None:
    member = clamped_geometric("2", N)
    measured = certificate.measure(member.laws, Fraction(2), 1, member.counts)
    assert measured.never_negative
    assert measured.bias_at[0] > 0
    assert measured.exact_at[0] > measured.eta or N == 5


def test_counts_outside_the_range_are_moved_to_the_nearest_end() -> None:
    laws = clamped_geometric("1", 5).laws
    assert laws.law(9) == laws.law(5).shift(-4)
    assert laws.law(-2) == laws.law(0).shift(2)


def test_a_truncated_geometric_law_is_one_law_for_all_counts() -> None:
    member = truncated_geometric("1", 3)
    assert isinstance(member.laws, LawsByCount)
    assert isinstance(member.laws.stationary, Law)
    assert member.parameters == {"epsilon": "1", "D": "3"}


@pytest.mark.parametrize("epsilon", ["0", "-1", "101", "0.0001", "one", None])
def test_a_bad_epsilon_is_refused(epsilon: object) -> None:
    for make in (geometric, clamped_geometric, folded_geometric):
        with pytest.raises(ParameterError, match="epsilon: got"):
            make(epsilon)  # type: ignore[arg-type, operator]


@pytest.mark.parametrize("bad", [0, -3, 2.5, "x", 10**10])
def test_bad_bounds_of_counts_are_refused(bad: object) -> None:
    with pytest.raises(ParameterError, match="D: got"):
        truncated_geometric(1, bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="N: got"):
        clamped_geometric(1, bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="N: got"):
        folded_geometric(1, bad)  # type: ignore[arg-type]


# Laplace


@given(st.fractions(Fraction(1, 10), 5, max_denominator=20))
def test_rounded_laplace_has_the_probabilities_of_its_formula(epsilon: Fraction) -> None:
    member = rounded_laplace(epsilon)
    law = member.laws.stationary
    order, _ = exp_bounds(epsilon)
    assert abs(law.eta - (1 - 1 / exp_bounds(epsilon / 2)[0])) <= Fraction(1, 2**99)
    assert abs(law.probability(2) * order - law.probability(1)) <= Fraction(1, 2**99)
    assert member.delta(order) <= Fraction(1, 2**88)
    assert law.variance > geometric(epsilon).laws.stationary.variance
    assert "Mironov" in member.notes[-1]


def test_a_bad_epsilon_of_rounded_laplace_is_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon: got"):
        rounded_laplace("0")
