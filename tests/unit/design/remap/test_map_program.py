"""Maps by linear program: every figure again from the definition, in Fractions, and against what was asked for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import countveil as cv
from countveil.design import mapping
from countveil.design.remapping import remap_nearly
from countveil.design.unsigned import gaussian
from countveil.errors import InfeasibleError, ParameterError, RequestError, SolverError
from countveil.law import Columns, Law
from countveil.privacy import hockey_stick
from countveil.remap import Remap

GAUSSIAN = gaussian("72", epsilon="1").family.stationary
GEOMETRIC = cv.design(epsilon="0.2", eta="0.0996679", D=60, policy="signed").family.stationary


def column(family: Remap, n: int) -> dict[int, Fraction]:
    """P(Y = y | n) from the definition: draw Z, send n + Z."""
    found: dict[int, Fraction] = {}
    for z, weight in family.source.items():
        signed = n + z
        row = family.negative if signed < 0 else family.rows[signed] if signed <= family.T else ((signed, 2**64),)
        for y, share in row:
            found[y] = found.get(y, Fraction(0)) + Fraction(weight * share, family.source.total * 2**family.map_bits)
    return found


def check(family: Remap, n0: int, bias: Fraction) -> None:
    """The promises of a map, by brute force."""
    assert family.slack == 0
    assert family.reach == family.D
    largest = Fraction(0)
    for n in range(family.stationary_from + 2):
        law = column(family, n)
        assert sum(law.values()) == 1
        assert all(y >= 0 and abs(y - n) <= family.D for y, p in law.items() if p)
        mean = sum(p * (y - n) for y, p in law.items())
        if n < family.stationary_from:
            profile = family.profiles[n]
            assert (profile.bias, profile.exact) == (mean, law.get(n, 0))
            assert profile.mse == sum(p * (y - n) ** 2 for y, p in law.items())
        if n >= n0:
            largest = max(largest, abs(mean))
    assert mapping.bias_from(family, n0) == largest <= bias


@pytest.mark.slow  # linear programs
@pytest.mark.parametrize(
    ("law", "n0", "residue"),
    [(GEOMETRIC, 7, "5.6e-5"), (GAUSSIAN, 25, "4e-8")],
    ids=["geometric 0.2, one standard deviation", "discrete Gaussian 72"],
)
def test_residues(law: Law, n0: int, residue: str) -> None:
    """The residue is reached without naming a bias, and no count pays more than a quarter of the variance for it."""
    family = mapping.balanced(law, n0)
    check(family, n0, Fraction(residue))
    assert mapping.worst_error(family) <= Fraction(5, 4) * law.variance
    assert family.reach == family.D


def test_the_law_of_ten_answers() -> None:
    found = cv.plan(epsilon="3", delta="1e-6", answers=10, unbiased_from=6)
    family = found.mechanism.family
    assert isinstance(family, Remap)
    check(family, 6, Fraction("1.3e-7"))
    described = found.mechanism.describe()
    assert described["n0"] == 6
    assert 0 <= Fraction(str(described["bias_from_n0"])) - mapping.bias_from(family, 6) < Fraction(1, 10**20)
    assert max(row.mse for row in family.profiles) <= Fraction("1.02") * family.source.variance


def test_a_smaller_bias_on_request_and_its_price() -> None:
    tight = mapping.within(GAUSSIAN, 16, Fraction("1e-4"))
    check(tight, 16, Fraction("1e-4"))
    loose = mapping.within(GAUSSIAN, 16, Fraction("1e-3"))
    assert mapping.worst_error(loose) < mapping.worst_error(tight)


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
def test_random_laws(law: Law, n0: int, bias: str) -> None:
    try:
        family = mapping.within(law, n0, Fraction(bias))
    except InfeasibleError:
        assume(False)
    check(family, n0, Fraction(bias))
    if family.stationary_from < 40:  # post-processing: no pair of neighbours is worse than the signed law's
        order = Fraction(3, 2)
        signed = hockey_stick(law, law.shifted(1), order)
        for n in range(family.stationary_from):
            p, q = family.column(n), family.column(n + 1).shifted(1)
            assert max(hockey_stick(p, q, order), hockey_stick(q, p, order)) <= signed


@pytest.mark.slow  # linear programs
@given(laws(), st.integers(1, 8))
def test_pulls_alone_are_no_better(law: Law, n0: int) -> None:
    """What a map that only pulls reaches, the program reaches with no more error in total."""
    pulled = remap_nearly(law)
    bias = mapping.bias_from(pulled, n0)
    assume(Fraction(1, 10**7) < bias)
    assume(mapping._last(law, n0) >= pulled.T)
    family = mapping.within(law, n0, bias * Fraction(101, 100))

    def total(found: Remap) -> Fraction:
        return sum((row.mse - law.variance for row in found.profiles), Fraction(0))

    assert total(family) <= total(pulled) + Fraction(1, 10**6)


def test_a_changed_weight_is_noticed() -> None:
    """Half of a row's smaller weight moved: the bias is no longer what was asked for."""
    family = mapping.within(GEOMETRIC, 7, Fraction("5.6e-5"))
    rows = list(family.rows)
    j = next(j for j, row in enumerate(rows) if j > 2 and len(row) == 2)
    (low, a), (high, b) = rows[j]
    step = min(a, b) // 2
    rows[j] = ((low, a + step), (high, b - step))
    changed = replace(family, rows=tuple(rows))
    with pytest.raises(AssertionError):
        check(changed, 7, Fraction("5.6e-5"))


@pytest.mark.slow  # linear programs
def test_errors_name_the_least_bias() -> None:
    with pytest.raises(InfeasibleError, match=r"the least is about 0\.1"):
        mapping.balanced(GAUSSIAN, 5)
    with pytest.raises(RequestError, match="the least is about"):
        cv.plan(epsilon="3", delta="1e-6", answers=10, unbiased_from=2)


def test_identity_rows_at_the_end_are_dropped() -> None:
    one = 1 << 64
    rows = [((0, one),), ((0, one // 2), (1, one // 2)), ((2, one),), ((3, one),)]
    assert mapping.without_moves(GEOMETRIC, rows).T == 1
    up = [((0, one),), ((0, one // 2), (3, one // 2)), ((2, one),), ((3, one),)]
    assert mapping.without_moves(GEOMETRIC, up).T == 3


def test_made_never_negative(tmp_path: Path) -> None:
    signed = cv.design(epsilon="0.5", delta="1e-6", policy="signed")
    m = cv.nonnegative(signed, unbiased_from=6, max_bias="1e-4")
    assert m.certificate.never_negative
    assert (m.epsilon, m.delta) == (signed.epsilon, signed.delta)
    assert m.certificate.variance == signed.certificate.variance
    assert m.D == m.certificate.worst_error >= signed.D
    m.save(tmp_path / "m.json")
    again = cv.Mechanism.load(tmp_path / "m.json")
    assert again.family == m.family
    assert again.hash == m.hash
    assert all(again.release(n) >= 0 for n in (0, 1, 2, 3) for _ in range(50))


def test_without_options_the_place_is_found() -> None:
    signed = gaussian("20", epsilon="1", D=30)
    assert cv.nonnegative(signed).describe()["n0"] == cv.nonnegative(signed).certificate.nearly_unbiased_from
    assert Fraction(str(cv.nonnegative(signed, max_bias="1e-3").describe()["bias_from_n0"])) <= Fraction("1e-3")


@pytest.mark.parametrize("given_", [{"unbiased_from": 0}, {"max_bias": "0"}, {"max_bias": "2"}, {"unbiased_from": "x"}])
def test_bad_arguments(given_: dict[str, object]) -> None:
    signed = cv.design(epsilon="1", delta="1e-6", policy="signed")
    with pytest.raises(ParameterError):
        cv.nonnegative(signed, **given_)  # type: ignore[arg-type]


def test_wide_laws_are_pulled() -> None:
    wide = gaussian("2500", epsilon="1", D=300)
    assert not mapping.is_small(wide.family.stationary, 75)
    m = cv.nonnegative(wide, unbiased_from=75)
    assert m.certificate.never_negative
    with pytest.raises(InfeasibleError, match="a law this wide"):
        cv.nonnegative(wide, unbiased_from=75, max_bias="1e-3")


def test_only_signed_mechanisms() -> None:
    for request in ({"method": "remap"}, {"method": "program"}, {"policy": "floor"}):
        with pytest.raises(RequestError, match="does not depend on n"):
            cv.nonnegative(cv.design(epsilon="1", delta="1e-4", **request))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="D of at least 2"):
        cv.nonnegative(cv.design(epsilon="1", eta="0.5", D=1, policy="signed"))
    with pytest.raises(RequestError, match="leave out unbiased_from"):
        cv.plan(epsilon="3", delta="1e-6", answers=10, policy="signed", unbiased_from=6)


def test_the_gaussian_is_the_gaussian() -> None:
    m = gaussian("72", epsilon="1", D=60)
    assert isinstance(m.family, Columns)
    law = m.family.stationary
    assert law.is_symmetric()
    ratio = float(law.probability(12) / law.probability(0))
    assert ratio == pytest.approx(2.718281828459045 ** (-144 / 144), rel=1e-12)


def test_a_law_for_which_the_solver_finds_no_map_is_refused_in_words() -> None:
    with pytest.raises(SolverError, match="found no map for this law; ask for a larger delta"):
        cv.design(delta="1e-20", eta="0.9", D=8, method="remap")
