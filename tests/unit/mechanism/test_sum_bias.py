"""The bias of sums is computed from the laws, and sums are called honest only where they are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import countveil as cv
from countveil.mechanism.sum_bias import WAY_OUT, bias_of_sum

DESIGNS = {
    "program": {"epsilon": "1", "delta": "1e-4"},
    "remap": {"epsilon": "0.5", "delta": "1e-4", "method": "remap"},
    "floor": {"epsilon": "1", "delta": "1e-3", "policy": "floor"},
    "capped": {"epsilon": "1", "eta": "0.4", "D": 3, "counts": "0:40", "cap": True, "method": "program"},
    "signed": {"epsilon": "1", "delta": "1e-4", "policy": "signed"},
    "far from 0": {"epsilon": "1", "delta": "1e-4", "counts": "30:"},
}


@pytest.mark.parametrize("name", DESIGNS)
def test_the_bias_of_a_sum_is_the_number_of_cells_times_the_worst_bias(name: str) -> None:
    """The stated bias is compared with the means of all laws."""
    m = cv.design(**DESIGNS[name])  # type: ignore[arg-type]
    low, high = m.counts
    means = {n: m.law(n).mean for n in range(low, (high or m.certificate.stationary_from + 20) + 1)}
    bias = bias_of_sum(m, 48_000)
    assert bias.high == 48_000 * max(means.values()) == 48_000 * means[bias.high_at]
    assert bias.low == 48_000 * min(means.values()) == 48_000 * means[bias.low_at]
    honest = name in ("signed", "far from 0")
    assert ("stay honest" in bias.sentence) == (set(means.values()) == {Fraction(0)}) == honest
    assert (WAY_OUT in bias.sentence) == (not honest)
    assert (f"if every count is {bias.high_at}" in bias.sentence) == (bias.high > 0)
    assert ("too low on average" in bias.sentence) == (bias.low <= Fraction(-1, 2))
    assert ("promised" in bias.sentence) == (name == "far from 0")


def test_the_sum_of_many_empty_cells_has_the_stated_bias() -> None:
    """The sum of 48,000 empty cells is far from 0, and within seven standard deviations of the stated bias."""
    m = cv.design(epsilon="1", delta="1e-4")
    stated = bias_of_sum(m, 48_000)
    assert stated.high_at == 0
    spread = 7 * float(48_000 * m.law(0).variance) ** 0.5
    total = int(m.release(np.zeros(48_000, dtype=np.int64)).sum())
    assert abs(total - float(stated.high)) < spread
    assert total > 5 * spread
    assert f"up to {-(-stated.high // 1):,} too high on average" in stated.sentence


def test_stated_biases_are_rounded_up_and_small_ones_give_no_warning() -> None:
    m = cv.design(epsilon="1", delta="1e-4")
    one = bias_of_sum(m, 1)
    figure = one.sentence.split("to within ")[1].split(",")[0]
    assert one.largest <= Fraction(figure) <= one.largest * Fraction(101, 100)
    assert WAY_OUT not in one.sentence
    several = bias_of_sum(m, 7).sentence
    figure = several.split("up to ")[1].split(" ")[0]
    assert 7 * one.largest <= Fraction(figure) <= 7 * one.largest * Fraction(101, 100)
