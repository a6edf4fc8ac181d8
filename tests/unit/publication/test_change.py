"""The law of the noise of a difference, against its definition, and the difference of two editions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from countveil.consistency.reconciler import read_law
from countveil.laws.law import Law
from countveil.publication.change import compare_editions, subtract
from tests.support.editions import make_edition, write_small
from tests.support.effort import examples


@st.composite
def make_law(draw: st.DrawFn) -> Law:
    """A law of 64, 96 or 128 bits with any weights, most of them not symmetric."""
    bits = draw(st.sampled_from([64, 96, 128]))
    total = 1 << bits
    ends = sorted(draw(st.lists(st.integers(0, total), min_size=1, max_size=12)))
    weights = tuple(high - low for low, high in zip([0, *ends], [*ends, total], strict=True))
    return Law(weights, draw(st.integers(0, len(weights) - 1)), bits)


def list_differences(law: Law) -> list[Fraction]:
    """The probabilities of |Z1 - Z2| = 0, 1, 2, ... by definition."""
    found = Counter[int]()
    for y, first in law.items():
        for z, second in law.items():
            found[abs(y - z)] += first * second
    return [Fraction(found[t], law.total**2) for t in range(len(law.weights))]


@given(make_law())
@examples(200)
def test_the_law_of_a_difference_has_mean_0_and_no_smaller_tail_than_the_exact_one(law: Law) -> None:
    """`read_law` refuses a law of another mean; every probability but those of the ends moves by less than 2^-127."""
    difference = subtract(law)
    half, exact = difference.weights[len(law.weights) - 1 :], list_differences(law)
    assert difference.weights == (*half[:0:-1], *half)
    assert difference.mean == 0
    if difference.variance:
        assert read_law("", difference) is difference
    assert difference.bits <= 128
    rounded = [Fraction(weight, difference.total) * (2 if t else 1) for t, weight in enumerate(half)]
    within, most = list(accumulate(rounded)), list(accumulate(exact))
    assert all(a <= b for a, b in zip(within, most, strict=True))
    assert all(b - a < Fraction(2, 2**128) for a, b in zip(rounded[:-1], exact[:-1], strict=True))


@pytest.mark.parametrize("bits", [64, 96, 128])
def test_two_editions_have_a_difference_at_every_precision(tmp_path: Path, bits: int) -> None:
    edition = make_edition(bits=bits, rows=3)
    first = write_small(tmp_path / "1", edition)
    second = write_small(tmp_path / "2", replace(edition, receipts=["aa12", "bb23", "cc34"]), number=2)
    changes = compare_editions(first, second)
    assert len(changes) == 3
    for change in changes.values():
        assert ((change.low <= 0) & (change.high >= 0)).all(), "the same measurements twice"
        assert ((change.low <= change.difference) & (change.difference <= change.high)).all()
        assert np.array_equal(change.certain_low, -change.certain_high)
