from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countveil import certificate, privacy
from countveil.errors import ParameterError
from countveil.exact import exp_bounds
from countveil.families.geometric import (
    clamped_geometric,
    folded_geometric,
    geometric,
    rounded_laplace,
    truncated_geometric,
)
from countveil.law import Columns, Law

ALMOST_NOTHING = Fraction(1, 2**88)
EPSILONS = st.fractions(Fraction(1, 5), 4, max_denominator=20)


@given(EPSILONS)
def test_epsilon_is_exact(epsilon: Fraction) -> None:
    for member in (geometric(epsilon), clamped_geometric(epsilon), folded_geometric(epsilon, 5)):
        assert member.delta(exp_bounds(epsilon)[0]) <= ALMOST_NOTHING
        assert member.delta(exp_bounds(epsilon * 3 / 4)[0]) > Fraction(1, 100) or member.name == "folded geometric"
        assert member.cut <= Fraction(1, 2**99)


@given(EPSILONS, st.integers(1, 30))
def test_truncation_costs_the_edge(epsilon: Fraction, D: int) -> None:
    member = truncated_geometric(epsilon, D)
    law = member.columns.stationary
    assert law.is_symmetric()
    assert law.right == D
    edge = law.probability(D)
    found = member.delta(exp_bounds(epsilon)[0])
    assert edge <= found <= edge + Fraction(1, 2**150)


@given(st.sampled_from(["clamped", "folded"]), st.sampled_from(["1", "2.5"]), st.sampled_from([None, 1, 4, 9, 300]))
def test_columns_are_the_source_after_the_map(kind: str, epsilon: str, N: int | None) -> None:
    member = (clamped_geometric if kind == "clamped" else folded_geometric)(epsilon, N)
    noise = geometric(epsilon).columns.stationary
    last = member.columns.stationary_from if N is None else N
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
        assert {n + z: w for z, w in member.columns.column(n).items() if w} == {y: w for y, w in expected.items() if w}


@pytest.mark.parametrize("N", [None, 1, 3, 20, 400])
@pytest.mark.parametrize("order", ["1", "1.5", "2.5"])
def test_measuring_the_source_is_measuring_the_columns(N: int | None, order: str) -> None:
    member = clamped_geometric("1", N)
    direct = privacy.delta(member.columns, Fraction(order)).value
    assert direct <= member.delta(Fraction(order)) <= direct + ALMOST_NOTHING


def test_folding_on_a_short_range_hides_something() -> None:
    member = folded_geometric("1", 2)
    assert member.source is None
    assert member.delta(Fraction(3, 2)) < geometric("1").delta(Fraction(3, 2)) - Fraction(1, 1000)
    whole = folded_geometric("1")
    direct = privacy.delta(whole.columns, Fraction(3, 2)).value
    assert direct <= whole.delta(Fraction(3, 2)) <= direct + ALMOST_NOTHING


@pytest.mark.parametrize("N", [None, 5, 80, 400])
def test_a_certificate_can_be_made(N: int | None) -> None:
    member = clamped_geometric("2", N)
    found = certificate.measure(member.columns, Fraction(2), 1, member.counts)
    assert found.never_negative
    assert found.bias_at[0] > 0
    assert found.exact_at[0] > found.eta or N == 5


def test_counts_outside_the_range_are_moved_in() -> None:
    columns = clamped_geometric("1", 5).columns
    assert columns.column(9) == columns.column(5).shifted(-4)
    assert columns.column(-2) == columns.column(0).shifted(2)


def test_a_member_without_a_source_is_measured_itself() -> None:
    member = truncated_geometric("1", 3)
    assert isinstance(member.columns, Columns)
    assert isinstance(member.columns.stationary, Law)
    assert member.parameters == {"epsilon": "1", "D": "3"}


@pytest.mark.parametrize("epsilon", ["0", "-1", "101", "0.0001", "one", None])
def test_bad_epsilon(epsilon: object) -> None:
    for make in (geometric, clamped_geometric, folded_geometric):
        with pytest.raises(ParameterError, match="epsilon: got"):
            make(epsilon)  # type: ignore[arg-type, operator]


@pytest.mark.parametrize("bad", [0, -3, 2.5, "x", 10**10])
def test_bad_bounds(bad: object) -> None:
    with pytest.raises(ParameterError, match="D: got"):
        truncated_geometric(1, bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="N: got"):
        clamped_geometric(1, bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="N: got"):
        folded_geometric(1, bad)  # type: ignore[arg-type]


# Laplace


@given(st.fractions(Fraction(1, 10), 5, max_denominator=20))
def test_the_rounded_law(epsilon: Fraction) -> None:
    member = rounded_laplace(epsilon)
    law = member.columns.stationary
    order, _ = exp_bounds(epsilon)
    assert abs(law.eta - (1 - 1 / exp_bounds(epsilon / 2)[0])) <= Fraction(1, 2**99)
    assert abs(law.probability(2) * order - law.probability(1)) <= Fraction(1, 2**99)
    assert member.delta(order) <= Fraction(1, 2**88)
    assert law.variance > geometric(epsilon).columns.stationary.variance
    assert "Mironov" in member.notes[-1]


def test_bad_epsilon_of_laplace() -> None:
    with pytest.raises(ParameterError, match="epsilon: got"):
        rounded_laplace("0")
