"""Where eta is free, `design` returns canonical noise, certified, and never anything worse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

import countveil as cv
from countveil.design import closed_form
from countveil.design.request import parse
from countveil.design.signed import SPARE, Signed
from countveil.literature.canonical import ideal_half

EPSILONS = st.integers(2, 160).map(lambda k: Fraction(k, 20))
DELTAS = st.tuples(st.integers(1, 99), st.integers(2, 13)).map(lambda x: Fraction(x[0], 10 ** x[1]))
GIVEN = {
    "epsilon": None, "delta": None, "eta": None, "D": None, "policy": "signed", "unbiased_from": None,
    "method": "auto", "objective": "delta", "max_variance": None, "sensitivity": 1, "counts": None,
    "cap": False, "bits": None,
}  # fmt: skip


@given(EPSILONS, DELTAS)
def test_no_design_is_worse_than_canonical_noise(epsilon: Fraction, delta: Fraction) -> None:
    m = cv.design(epsilon=epsilon, delta=delta, policy="signed")
    half = [Fraction(p) for p in ideal_half(epsilon, delta)]
    variance = 2 * sum(i * i * p for i, p in enumerate(half))
    unit = Fraction(1, 2**m.certificate.bits)
    assert m.delta <= delta
    assert len(half) - 1 == m.D
    assert half[0] - 4 * unit <= m.eta <= half[0]
    assert m.certificate.variance <= variance + unit * 8 * m.D**3 / min(epsilon, Fraction(1))


@given(EPSILONS, DELTAS)
def test_canonical_noise_is_better_than_the_closed_form_that_aims_at_a_smaller_delta(
    epsilon: Fraction, delta: Fraction
) -> None:
    """The closed form was certified at delta * SPARE, to leave room for rounding: its eta is smaller by that."""
    m = cv.design(epsilon=epsilon, delta=delta, policy="signed")
    request = parse(**{**GIVEN, "epsilon": epsilon, "delta": delta})
    aimed = Signed(request, SPARE)
    before = aimed.mechanism(*aimed.parameters)
    assert m.eta > before.eta
    assert m.certificate.variance < before.certificate.variance
    assert before.D >= m.D
    assert closed_form.largest_eta(epsilon, delta) >= m.eta


@pytest.mark.parametrize("policy", ["signed", "floor"])
def test_a_larger_D_than_needed_changes_neither_eta_nor_the_worst_error(policy: str) -> None:
    free = cv.design(epsilon="1", delta="1e-6", policy=policy)  # type: ignore[arg-type]
    wide = cv.design(epsilon="1", delta="1e-6", D=20, policy=policy)  # type: ignore[arg-type]
    assert (free.D, wide.D) == (14, 20)
    assert wide.eta == free.eta
    assert wide.law(100).worst_error == free.law(100).worst_error == 14
    assert any("Awan" in note for note in wide.notes)


def test_a_design_with_a_given_eta_is_by_the_closed_form() -> None:
    m = cv.design(epsilon="1", delta="1e-6", eta="0.45", policy="signed")
    assert not any("Awan" in note for note in m.notes)


def test_a_delta_too_fine_for_the_weights_still_has_a_design() -> None:
    request = replace(parse(**{**GIVEN, "epsilon": "0", "delta": "0.2", "D": 5}), bits=64)
    m = Signed(request).design()
    assert m.delta <= Fraction(1, 5)
