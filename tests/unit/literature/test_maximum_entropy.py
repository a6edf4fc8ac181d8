from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from countveil.errors import InfeasibleError, ParameterError
from countveil.literature.entropy import pool, solve, variance_range
from countveil.literature.maximum_entropy import maximum_entropy

CLOSE = Fraction(1, 2**150)


@pytest.mark.slow  # exact arithmetic on large laws
@given(st.integers(2, 9), st.integers(1, 30), st.integers(0, 3), st.sampled_from([None, "0.3", "0.6"]))
def test_rows_meet_the_mean_and_the_variance_and_blocked_counts_and_monotony(
    D: int, tenths: int, js: int, pstay: str | None
) -> None:
    V, js = Fraction(tenths * D, 20), min(js, D - 1)
    try:
        member = maximum_entropy(D, V, pstay, js)
    except InfeasibleError:
        assert js > 0  # without blocked counts every variance bound can be met
        return
    assert member.laws.stationary_from == (D if js == 0 else D + js + 1)
    assert member.laws.law(0).weights == (1 << 192,)
    for n in range(1, member.laws.stationary_from + 1):
        law = member.laws.law(n)
        assert law.mean == 0
        assert law.variance <= V + CLOSE
        assert not any(law.probability(j - n) for j in range(1, js + 1))
        if n > js:
            rising = [law.probability(z) for z in range(-law.left, 1) if not 1 <= n + z <= js]
            assert all(b >= a - CLOSE for a, b in pairwise(rising))
    assert member.cut < Fraction(1, 2**170)


@pytest.mark.parametrize("monotone", [True, False])
def test_with_exact_variance_every_row_has_the_given_variance(monotone: bool) -> None:
    member = maximum_entropy(5, 2, exact_variance=True, monotone=monotone)
    for n in range(1, 6):
        assert abs(member.laws.law(n).variance - 2) < CLOSE


def test_a_row_has_the_largest_entropy_for_its_mean_and_variance() -> None:
    """At the maximum, log p has no component along any direction that keeps sum, mean and variance."""
    law = maximum_entropy(4, 2, monotone=False, exact_variance=True).laws.law(2)
    ratio = [law.probability(z) * law.probability(z + 2) / law.probability(z + 1) ** 2 for z in range(-2, 3)]
    assert all(abs(a / ratio[0] - 1) < CLOSE for a in ratio)  # log p is a quadratic: equal second differences


def test_a_given_stay_probability_is_a_lower_limit_of_eta() -> None:
    assert abs(maximum_entropy(5, 3, "0.5").laws.stationary.eta - Fraction(1, 2)) < CLOSE
    loose = maximum_entropy(5, 3).laws.stationary
    assert maximum_entropy(5, 3, loose.eta / 2).laws.stationary == loose


def test_a_stay_probability_too_large_for_the_variance_is_lowered() -> None:
    member = maximum_entropy(3, 3, "0.9")
    assert abs(member.laws.stationary.variance - 3) < CLOSE
    assert member.laws.stationary.eta < Fraction(9, 10)
    assert any("lowered" in note for note in member.notes)


def test_infeasible_rows_say_what_is_possible() -> None:
    with pytest.raises(InfeasibleError, match=r"row 1: .* variance 3; .*between 0 and 2.72727; monotone=False"):
        maximum_entropy(5, 3, exact_variance=True)
    maximum_entropy(5, 3, exact_variance=True, monotone=False)
    with pytest.raises(InfeasibleError, match=r"row 1: noise on -1, 2\.\.5 .* above 2"):
        maximum_entropy(5, 1, js=2)


def test_the_function_variance_range_gives_the_least_and_the_greatest_possible_variance() -> None:
    assert variance_range([-1, 0, 1, 2, 3], 0) == (0, 3)
    assert variance_range([-1, 2, 3], 0) == (2, 3)
    assert variance_range([-1, 0, 1, 2], 2) == (0, Fraction(6, 5))
    assert solve([-1, 2, 3], 0, Fraction(2), exact=False) is None
    assert solve([-1, 2, 3], 0, Fraction(3), exact=True) is None


def test_pooling_merges_falling_runs_of_the_chain() -> None:
    assert pool([3.0, 2.0, 1.0], 3) == [(0, 3)]
    assert pool([3.0, 2.0, 1.0], 0) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("V", ["0.01", "0.001", "30"])
def test_extreme_variances_are_reached(V: str) -> None:
    law = maximum_entropy(12, V).laws.stationary
    assert abs(law.variance - Fraction(V)) < CLOSE


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"D": 0, "V": 1}, "D"),
        ({"D": 301, "V": 1}, "D"),
        ({"D": 3, "V": 0}, "V"),
        ({"D": 3, "V": 9}, "V"),
        ({"D": 3, "V": "x"}, "V"),
        ({"D": 3, "V": 1, "js": 3}, "js"),
        ({"D": 3, "V": 1, "js": -1}, "js"),
        ({"D": 3, "V": 1, "pstay": 1}, "pstay"),
        ({"D": 3, "V": 1, "pstay": "0"}, "pstay"),
    ],
)
def test_bad_parameters_are_refused(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: got"):
        maximum_entropy(**arguments)  # type: ignore[arg-type]
