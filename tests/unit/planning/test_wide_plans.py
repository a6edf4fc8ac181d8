"""Plans for people with many rows in many cells: their laws are wide, but are found within seconds."""

from __future__ import annotations

from fractions import Fraction

import pytest

import countveil as cv
from countveil.design.remap.designer import remap_nearly
from countveil.design.remap.wide_map import is_wide
from countveil.laws.law import Law, LawsByCount
from countveil.laws.privacy import hockey_stick
from countveil.mechanism.certificate import margin_95
from countveil.numeric.exact_numbers import convolve
from countveil.planning import plan
from countveil.planning.program_plan import law_of
from countveil.planning.shapes import power_law


def wide_law() -> Law:
    return law_of(power_law(180.0, 1.7, 900))


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize(("rows", "cells"), [(10, 5), (20, 40)])
def test_a_plan_for_many_rows_is_certified_at_the_largest_shift(rows: int, cells: int) -> None:
    best = plan(epsilon="3", delta="1e-6", answers=10, sensitivity=rows, cells=cells)
    m = best.mechanism
    assert best.certified.upper <= 1e-6
    assert m.certificate.never_negative
    assert m.certificate.sensitivity == rows
    law, order = m.laws.stationary, Fraction(11, 10)
    shifts = [hockey_stick(law, law.shift(s), order) for s in (1, rows // 2, rows)]
    assert shifts == sorted(shifts)
    read = cv.Mechanism.from_text(m.to_text())
    assert (read.hash, read.certificate) == (m.hash, m.certificate)


@pytest.mark.slow  # a law of 200,000 weights
def test_a_thousand_rows_in_ten_cells_can_be_planned() -> None:
    best = plan(epsilon="3", delta="1e-6", answers=10, sensitivity=1000, cells=10, policy="signed")
    assert best.certified.upper <= 1e-6
    assert best.mechanism.certificate.delta <= Fraction(1, 10**6)


@pytest.mark.slow  # the definition is summed for hundreds of counts
def test_the_map_of_a_wide_law_has_little_bias_and_the_stated_margin() -> None:
    law = wide_law()
    assert is_wide(law)
    laws = remap_nearly(law)
    deviation = float(law.variance) ** 0.5
    far = [abs(float(p.bias)) for p in laws.profiles if p.n >= 2 * deviation]
    assert max(far) < deviation / 500
    targets = laws.targets
    assert targets is not None
    assert all(y <= j for j, y in enumerate(targets))
    counts = range(0, laws.stationary_from + 1, 37)
    assert margin_95(laws) >= max(laws.law(n).margin("0.95") for n in counts)
    assert margin_95(laws) == max(laws.law(n).margin("0.95") for n in range(laws.stationary_from + 1))
    for n in (0, 1, 100, 400):
        profile = laws.profiles[n]
        assert (profile.bias, profile.exact, profile.mse) == (laws.law(n).mean, laws.law(n).eta, laws.law(n).mse)


def test_a_convolution_of_long_vectors_is_exact() -> None:
    left = [pow(7, i, 2**120) for i in range(3000)]
    right = [pow(11, i, 2**20) for i in range(2000)]
    product = convolve(left, right)
    for k in (0, 1, 1999, 2500, 4998):
        assert product[k] == sum(left[i] * right[k - i] for i in range(max(0, k - 1999), min(k, 2999) + 1))


@pytest.mark.parametrize(
    ("weights", "unimodal"), [((1, 2, 1), True), ((1, 1, 2), True), ((2, 1, 1), True), ((2, 1, 5), False), ((4,), True)]
)
def test_unimodal_laws_never_fall_before_their_mode(weights: tuple[int, ...], unimodal: bool) -> None:
    bits = sum(weights).bit_length() - 1
    assert sum(weights) == 1 << bits
    assert Law(weights, 0, bits).is_unimodal() == unimodal
    assert LawsByCount(Law(weights, 0, bits)).stationary.bits == bits
