"""Cumulants against their definition; those of a map that never falls are rounded outwards."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from countveil.design.remap.designer import remap_nearly
from countveil.laws.law import LawsByCount
from countveil.laws.remap import Remap
from countveil.mechanism.certificate import Terms
from countveil.mechanism.cumulants import Cumulants, MappedCumulants, cumulants
from countveil.mechanism.mechanism import Mechanism, bind
from countveil.planning.program_plan import law_of
from countveil.planning.shapes import power_law


def define_cumulant(mechanism: Mechanism, t: float) -> float:
    """ln E exp(t (Y - n)), summed for each count up to the stationary one."""
    laws = mechanism.laws
    return max(
        math.log(math.fsum(math.exp(t * z) * (w / law.total) for z, w in law.items()))
        for law in (laws.law(n) for n in range(laws.stationary_from + 1))
    )


@pytest.fixture(scope="module")
def mapped() -> Mechanism:
    """A map of a short law with the form of a wide one, and far pulls."""
    law = law_of(power_law(12.0, 1.7, 40))
    T = 21
    targets = [j // 3 for j in range(T)] + [T]
    rows = tuple(((y, 1 << 8),) for y in targets)
    laws = Remap(law, ((0, 1 << 8),), rows, 8, T + 1 + law.left, 60)
    assert laws.targets == tuple(targets)
    return bind(laws, Terms(Fraction(1), "nonnegative", "remap", 60))


@pytest.mark.parametrize("t", [0.003, 0.03, 0.2, 0.8, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_cumulants_of_a_map_are_those_of_its_laws_rounded_up(mapped: Mechanism, t: float, sign: int) -> None:
    fast = cumulants(mapped)
    assert isinstance(fast, MappedCumulants)
    assert t <= fast.largest_order
    exact, bound = define_cumulant(mapped, sign * t), fast.at(sign * t)
    assert exact <= bound + 1e-15
    assert bound == pytest.approx(exact, abs=1e-9)
    assert Cumulants(mapped).at(sign * t) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_cumulants_of_policy_floor_are_the_largest_over_all_counts(sign: int) -> None:
    law = law_of(power_law(4.0, 1.5, 20))
    mechanism = bind(LawsByCount(law, lo=20), Terms(Fraction(1), "floor", "program", 20))
    t = sign * 0.1
    exact = max(
        math.log(math.fsum(math.exp(t * z) * (w / law.total) for z, w in mechanism.law(n).items())) for n in range(21)
    )
    assert cumulants(mechanism).at(t) == pytest.approx(exact, abs=1e-12)


def test_cumulants_computed_for_many_t_at_once_are_never_below_those_computed_one_by_one(mapped: Mechanism) -> None:
    fast = cumulants(mapped)
    for orders in (np.array([-0.1, 0.02]), np.linspace(-0.2, 0.1, 60), np.linspace(0.01, 0.1, 40)):
        exact = np.array([define_cumulant(mapped, float(t)) for t in orders])
        assert (exact <= fast.at_each(orders) + 1e-15).all()
        assert fast.at_each(orders) == pytest.approx(exact, abs=0.04)
        assert Cumulants(mapped).at_each(orders) == pytest.approx(exact, abs=1e-12)


@pytest.mark.slow  # every count of a wide law
def test_cumulants_of_a_planned_wide_map_are_those_of_its_laws() -> None:
    laws = remap_nearly(law_of(power_law(110.0, 1.7, 500)))
    mechanism = bind(laws, Terms(Fraction(1), "nonnegative", "remap", laws.D))
    fast = cumulants(mechanism)
    assert isinstance(fast, MappedCumulants)
    for t in (1e-4, -1e-4, 0.01, -0.01, 0.05, -0.05):
        exact = define_cumulant(mechanism, t)
        assert exact - 1e-13 <= fast.at(t) <= exact + 1e-9
