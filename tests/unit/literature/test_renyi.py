from __future__ import annotations

import numpy as np
import pytest

from countveil.errors import ParameterError
from countveil.literature.geometric import geometric
from countveil.literature.renyi import divergence, optimise, renyi_optimal


@pytest.mark.parametrize("order", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("V", [0.1, 3.0, 70.0])
def test_no_small_change_that_keeps_the_constraints_lowers_the_divergence(V: float, order: float) -> None:
    half, tail = optimise(V, order)
    least = divergence(half, tail, order, 1)
    i = np.arange(3)
    for start in (0, 1, max(2, int(V**0.5))):
        change = np.zeros(len(half))
        mass, square = np.where(start + i == 0, 1.0, 2.0), 2.0 * (start + i) ** 2
        direction = np.cross(mass, square)  # keeps both sums
        change[start + i] = direction / np.abs(direction).max() * half[start + i].min() * 1e-2
        for sign in (1, -1):
            assert divergence(half + sign * change, tail, order, 1) >= least * (1 - 1e-8)


def test_renyi_optimal_laws_of_high_order_tend_to_the_geometric_law() -> None:
    etas = [float(renyi_optimal("5", order).laws.stationary.eta) for order in ("4", "16", "60")]
    limit = float(geometric("0.6216").laws.stationary.eta)  # of variance 5
    assert etas == sorted(etas)
    assert 0 < limit - etas[-1] < 0.01


def test_the_renyi_optimal_law_of_order_1_is_called_cactus() -> None:
    assert renyi_optimal("2", "1").name == "Cactus"


@pytest.mark.parametrize(("V", "order"), [("0", "2"), ("1e6", "2"), ("1", "0.5"), ("1", "100"), ("x", "2")])
def test_bad_parameters_are_refused(V: str, order: str) -> None:
    with pytest.raises(ParameterError, match="got"):
        renyi_optimal(V, order)
