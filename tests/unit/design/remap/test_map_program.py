"""Maps by linear program: every value is computed again from the definition, in Fractions, and meets the request."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

import countveil as cv
from countveil.design.remap import map_program
from countveil.design.remap.designer import remap_nearly
from countveil.design.remap.postprocessing import gaussian
from countveil.errors import InfeasibleError, ParameterError, RequestError, SolverError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.privacy import hockey_stick
from countveil.laws.remap import Remap

GAUSSIAN = gaussian("72", epsilon="1").laws.stationary
GEOMETRIC = cv.design(epsilon="0.2", eta="0.0996679", D=60, policy="signed").laws.stationary


def law_by_definition(laws: Remap, n: int) -> dict[int, Fraction]:
    """P(Y = y | n) from the definition: draw Z, map n + Z."""
    probabilities: dict[int, Fraction] = {}
    for z, weight in laws.source.items():
        signed = n + z
        row = laws.negative if signed < 0 else laws.rows[signed] if signed <= laws.T else ((signed, 2**64),)
        for y, share in row:
            probabilities[y] = probabilities.get(y, Fraction(0)) + Fraction(
                weight * share, laws.source.total * 2**laws.map_bits
            )
    return probabilities


def check(laws: Remap, n0: int, bias: Fraction) -> None:
    """Check the guarantees of a map by brute force."""
    assert laws.slack == 0
    assert laws.reach == laws.D
    largest = Fraction(0)
    for n in range(laws.stationary_from + 2):
        law = law_by_definition(laws, n)
        assert sum(law.values()) == 1
        assert all(y >= 0 and abs(y - n) <= laws.D for y, p in law.items() if p)
        mean = sum(p * (y - n) for y, p in law.items())
        if n < laws.stationary_from:
            profile = laws.profiles[n]
            assert (profile.bias, profile.exact) == (mean, law.get(n, 0))
            assert profile.mse == sum(p * (y - n) ** 2 for y, p in law.items())
        if n >= n0:
            largest = max(largest, abs(mean))
    assert map_program.bias_from(laws, n0) == largest <= bias


@pytest.mark.slow  # linear programs
@pytest.mark.parametrize(
    ("law", "n0", "residue"),
    [(GEOMETRIC, 7, "5.6e-5"), (GAUSSIAN, 25, "4e-8")],
    ids=["geometric 0.2, one standard deviation", "discrete Gaussian 72"],
)
def test_the_default_bias_is_small_and_costs_little_error(law: Law, n0: int, residue: str) -> None:
    """No bias is given: the map reaches the residue, and no error exceeds the variance by more than a quarter."""
    laws = map_program.best_map(law, n0)
    check(laws, n0, Fraction(residue))
    assert map_program.worst_error(laws) <= Fraction(5, 4) * law.variance
    assert laws.reach == laws.D


def test_a_plan_of_ten_answers_has_a_map_of_small_bias() -> None:
    plan = cv.plan(epsilon="3", delta="1e-6", answers=10, unbiased_from=6)
    laws = plan.mechanism.laws
    assert isinstance(laws, Remap)
    check(laws, 6, Fraction("1.3e-7"))
    described = plan.mechanism.describe()
    assert described["n0"] == 6
    assert 0 <= Fraction(str(described["bias_from_n0"])) - map_program.bias_from(laws, 6) < Fraction(1, 10**20)
    assert max(row.mse for row in laws.profiles) <= Fraction("1.02") * laws.source.variance


def test_a_smaller_bias_costs_a_larger_error() -> None:
    tight = map_program.map_within(GAUSSIAN, 16, Fraction("1e-4"))
    check(tight, 16, Fraction("1e-4"))
    loose = map_program.map_within(GAUSSIAN, 16, Fraction("1e-3"))
    assert map_program.worst_error(loose) < map_program.worst_error(tight)


@st.composite
def laws(draw: st.DrawFn) -> Law:
    """Symmetric laws that fall from the middle on, over 2**32."""
    steps = draw(st.lists(st.integers(1, 2**20), min_size=2, max_size=8))
    side = [sum(steps[i:]) for i in range(len(steps))]
    unit = 2**32 // (2 * sum(side) + side[0] + 1)
    side = [unit * w for w in side]
    return Law((*side[::-1], 2**32 - 2 * sum(side), *side), len(side), 32)


@pytest.mark.slow  # linear programs
@given(laws(), st.integers(1, 12), st.sampled_from(["1e-1", "1e-2", "1e-4", "1e-6"]))
def test_maps_of_random_laws_have_the_allowed_bias_and_lose_no_privacy(law: Law, n0: int, bias: str) -> None:
    try:
        laws = map_program.map_within(law, n0, Fraction(bias))
    except InfeasibleError:
        assume(False)
    check(laws, n0, Fraction(bias))
    if laws.stationary_from < 40:  # post-processing: no pair of neighbours is worse than the signed law's
        order = Fraction(3, 2)
        signed = hockey_stick(law, law.shift(1), order)
        for n in range(laws.stationary_from):
            p, q = laws.law(n), laws.law(n + 1).shift(1)
            assert max(hockey_stick(p, q, order), hockey_stick(q, p, order)) <= signed


@pytest.mark.slow  # linear programs
@given(laws(), st.integers(1, 8))
def test_a_map_by_linear_program_has_no_larger_error_than_pulls_alone(law: Law, n0: int) -> None:
    """At the bias of a map that only pulls, the program has no larger total error."""
    pulled = remap_nearly(law)
    bias = map_program.bias_from(pulled, n0)
    assume(Fraction(1, 10**7) < bias)
    assume(map_program._last(law, n0) >= pulled.T)
    laws = map_program.map_within(law, n0, bias * Fraction(101, 100))

    def total(remap: Remap) -> Fraction:
        return sum((row.mse - law.variance for row in remap.profiles), Fraction(0))

    assert total(laws) <= total(pulled) + Fraction(1, 10**6)


def test_a_changed_weight_fails_the_check() -> None:
    """With half of a row's smaller weight moved, the bias exceeds the allowed one."""
    laws = map_program.map_within(GEOMETRIC, 7, Fraction("5.6e-5"))
    rows = list(laws.rows)
    j = next(j for j, row in enumerate(rows) if j > 2 and len(row) == 2)
    (low, a), (high, b) = rows[j]
    step = min(a, b) // 2
    rows[j] = ((low, a + step), (high, b - step))
    changed = replace(laws, rows=tuple(rows))
    with pytest.raises(AssertionError):
        check(changed, 7, Fraction("5.6e-5"))


@pytest.mark.slow  # linear programs
def test_the_refusal_of_an_impossible_bias_names_the_least_one() -> None:
    with pytest.raises(InfeasibleError, match=r"the least is about 0\.1"):
        map_program.best_map(GAUSSIAN, 5)
    with pytest.raises(RequestError, match="the least is about"):
        cv.plan(epsilon="3", delta="1e-6", answers=10, unbiased_from=2)


def test_rows_at_the_end_of_a_map_that_move_nothing_are_dropped() -> None:
    one = 1 << 64
    rows = [((0, one),), ((0, one // 2), (1, one // 2)), ((2, one),), ((3, one),)]
    assert map_program.without_moves(GEOMETRIC, rows).T == 1
    up = [((0, one),), ((0, one // 2), (3, one // 2)), ((2, one),), ((3, one),)]
    assert map_program.without_moves(GEOMETRIC, up).T == 3


def test_a_signed_mechanism_is_made_never_negative_with_the_same_privacy(tmp_path: Path) -> None:
    signed = cv.design(epsilon="0.5", delta="1e-6", policy="signed")
    m = cv.make_nonnegative(signed, unbiased_from=6, max_bias="1e-4")
    assert m.certificate.never_negative
    assert (m.epsilon, m.delta) == (signed.epsilon, signed.delta)
    assert m.certificate.variance == signed.certificate.variance
    assert m.D == m.certificate.worst_error >= signed.D
    m.save(tmp_path / "m.json")
    again = cv.Mechanism.load(tmp_path / "m.json")
    assert again.laws == m.laws
    assert again.hash == m.hash
    assert all(again.release(n) >= 0 for n in (0, 1, 2, 3) for _ in range(50))


def test_the_arguments_unbiased_from_and_max_bias_have_defaults() -> None:
    signed = gaussian("20", epsilon="1", D=30)
    assert cv.make_nonnegative(signed).describe()["n0"] == cv.make_nonnegative(signed).certificate.nearly_unbiased_from
    assert Fraction(str(cv.make_nonnegative(signed, max_bias="1e-3").describe()["bias_from_n0"])) <= Fraction("1e-3")


@pytest.mark.parametrize("given_", [{"unbiased_from": 0}, {"max_bias": "0"}, {"max_bias": "2"}, {"unbiased_from": "x"}])
def test_bad_arguments_are_refused(given_: dict[str, object]) -> None:
    signed = cv.design(epsilon="1", delta="1e-6", policy="signed")
    with pytest.raises(ParameterError):
        cv.make_nonnegative(signed, **given_)  # type: ignore[arg-type]


def test_wide_laws_are_mapped_by_pulls() -> None:
    wide = gaussian("2500", epsilon="1", D=300)
    assert not map_program.is_small(wide.laws.stationary, 75)
    m = cv.make_nonnegative(wide, unbiased_from=75)
    assert m.certificate.never_negative
    with pytest.raises(InfeasibleError, match="so large a variance"):
        cv.make_nonnegative(wide, unbiased_from=75, max_bias="1e-3")


def test_only_signed_mechanisms_can_be_made_never_negative() -> None:
    for request in ({"method": "remap"}, {"method": "program"}, {"policy": "floor"}):
        with pytest.raises(RequestError, match="does not depend on n"):
            cv.make_nonnegative(cv.design(epsilon="1", delta="1e-4", **request))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="D of at least 2"):
        cv.make_nonnegative(cv.design(epsilon="1", eta="0.5", D=1, policy="signed"))
    with pytest.raises(RequestError, match="leave them out with policy signed"):
        cv.plan(epsilon="3", delta="1e-6", answers=10, policy="signed", unbiased_from=6)


def test_the_gaussian_mechanism_has_the_weights_of_the_discrete_gaussian() -> None:
    m = gaussian("72", epsilon="1", D=60)
    assert isinstance(m.laws, LawsByCount)
    law = m.laws.stationary
    assert law.is_symmetric()
    ratio = float(law.probability(12) / law.probability(0))
    assert ratio == pytest.approx(2.718281828459045 ** (-144 / 144), rel=1e-12)


def test_a_law_without_a_map_is_refused_with_advice() -> None:
    with pytest.raises(SolverError, match="found no map for this law; raise delta or D"):
        cv.design(delta="1e-20", eta="0.9", D=8, method="remap")
