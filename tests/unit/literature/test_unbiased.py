from __future__ import annotations

from fractions import Fraction

import pytest

from countveil.laws import privacy
from countveil.literature.unbiased import unbiased_geometric


@pytest.mark.parametrize("epsilon", ["0.3", "1", "2", "5"])
def test_every_count_is_unbiased_and_only_a_noisy_zero_is_negative(epsilon: str) -> None:
    member = unbiased_geometric(epsilon)
    for n in range(12):
        assert abs(member.laws.law(n).mean) < Fraction(1, 2**80)
    law = member.laws.law(0)
    negative = [z for z, w in law.items() if w and z < 0]
    assert 1 <= len(negative) <= 2
    assert sum(law.probability(z) for z in negative) <= member.laws.stationary.eta


@pytest.mark.parametrize("order", ["1.5", "2.5"])
def test_the_stated_delta_is_at_least_that_of_the_laws(order: str) -> None:
    member = unbiased_geometric("1")
    assert privacy.delta(member.laws, Fraction(order)).value <= member.delta(Fraction(order))


def test_a_negative_count_has_the_outcomes_of_zero() -> None:
    laws = unbiased_geometric("2").laws
    assert laws.law(-3) == laws.law(0).shift(3)
    assert laws.law(laws.stationary_from) == laws.stationary
