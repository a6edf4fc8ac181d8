"""Designed tables have what was asked for, measured on the integers written, and beat what they are set against."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from countveil import ptables
from countveil.errors import CountveilError, InfeasibleError, RequestError
from countveil.ptables.readings import READINGS

ASKED: dict[str, dict[str, Any]] = {
    "free": {"D": 7, "V": 4},
    "blocked": {"D": 7, "V": 4, "js": 2},
    "pstay": {"D": 5, "V": 3, "js": 2, "pstay": "0.5"},
    "not frozen": {"D": 7, "V": 4, "freeze_zero": False},
    "biased below 3": {"D": 6, "V": 4, "freeze_zero": False, "unbiased_from": 3},
    "unimodal": {"D": 7, "V": 4, "js": 2, "unimodal": True},
    "tight": {"D": 7, "V": "1.2", "epsilon": "0.8"},
    "keys": {"D": 5, "V": 3, "format": "ons", "keys": 4096},
    "few keys": {"D": 5, "V": 3, "js": 1, "format": "ons", "keys": 256},
    "keys and pstay": {"D": 5, "V": 3, "pstay": "0.4", "format": "ons"},
    "smallest": {"D": 1, "V": 1},
}


@pytest.fixture(scope="module", params=ASKED)
def case(request: pytest.FixtureRequest) -> tuple[dict[str, Any], ptables.Designed]:
    asked = ASKED[request.param]
    return asked, ptables.design(**asked)


def test_designed_tables_meet_every_requirement_of_the_request(case: tuple[dict[str, Any], ptables.Designed]) -> None:
    asked, found = case
    table, js = found.table, asked.get("js", 0)
    for i, row in enumerate(table.rows):
        published = [i + v for v, _ in row.items()]
        assert min(published) >= 0
        assert not set(published) & set(range(1, js + 1))
        assert row.reach <= asked["D"]
        assert row.variance <= Fraction(asked["V"])
        if i >= asked.get("unbiased_from", 1):
            assert row.mean == 0
        if "pstay" in asked and i > js:
            assert abs(row.stay - Fraction(asked["pstay"])) <= Fraction(1, table.total)
        if asked.get("unimodal") and i > js:
            up = [row.weight(j - i) for j in range(i + 1) if not 1 <= j <= js]
            down = [row.weight(v) for v in range(asked["D"] + 1)]
            assert all(a <= b + 2 for a, b in pairwise(up))
            assert all(a >= b - 2 for a, b in pairwise(down))
    assert table.is_zero_frozen is asked.get("freeze_zero", True)
    assert found.largest_variance == max(row.variance for row in table.rows)


def test_the_last_row_of_a_designed_table_has_the_least_delta() -> None:
    """If the limit on the variance does not matter, this is the closed form's delta, up to rounding."""
    found = ptables.design(D=7, V=4, js=2)
    delta = ptables.audit(found.table, epsilons=["1"]).delta("last_row", 1)
    assert Fraction("0.0004216") < delta < Fraction("0.0004217")


def test_if_zero_is_frozen_delta_is_at_least_the_bound_in_the_note() -> None:
    found = ptables.design(D=7, V=4)
    delta = ptables.audit(found.table, epsilons=["6"]).delta("zero_frozen", 6)
    assert delta >= Fraction(1, 5)
    assert any("1/(1 + V) = 0.2" in note for note in found.notes)


@pytest.mark.parametrize(("epsilon", "D", "V"), [("4", 6, 5), ("8", 5, 4), ("16", 7, 4)])
def test_at_a_large_epsilon_delta_is_a_few_units_of_the_grid(epsilon: str, D: int, V: int) -> None:
    """The tails of the best law are below eight decimals, so the smallest unit, 1e-8, decides delta."""
    found = ptables.audit(ptables.design(epsilon=epsilon, D=D, V=V).table, epsilons=[epsilon])
    assert found.delta("from_n0", epsilon) <= Fraction(3, 10**8)


def test_a_note_gives_the_rounded_stay_probability() -> None:
    found = ptables.design(D=5, V=3, pstay=Fraction(127, 256), format="ons", keys=256)
    assert {row.stay for row in found.table.rows[1:]} == {Fraction(1, 2)}
    assert "pstay is rounded to 0.5" in found.notes


def test_rows_are_unbiased_from_the_requested_count_on() -> None:
    found = ptables.design(epsilon="8", D=12, V=4, unbiased_from=17)
    assert found.table.row(10**6).mean == 0
    assert all(found.table.row(n).mean == 0 for n in range(17, 40))


def test_a_smaller_variance_or_a_fixed_stay_probability_raises_delta() -> None:
    def delta(**asked: Any) -> Fraction:
        return ptables.audit(ptables.design(D=7, **asked).table, epsilons=["1"]).delta("from_n0", 1)

    free = delta(V=4)
    assert free <= delta(V="1.5") <= delta(V=1)
    assert free <= delta(V=4, pstay="0.5") <= delta(V=4, pstay="0.6")


@pytest.mark.parametrize("keys", [256, 4096])
def test_a_design_for_a_coarse_grid_is_better_than_a_rounded_fine_one(keys: int) -> None:
    """Its delta is below that of the best table of eight decimals rounded to 1/K; no delta is below 1/K."""
    found = ptables.audit(ptables.design(D=7, V=4, js=2, format="ons", keys=keys).table, epsilons=["1"])
    assert Fraction(1, keys) <= found.delta("last_row", 1)
    assert found.delta("from_n0", 1) <= Fraction("0.00165") + Fraction(3, keys)


def test_a_table_designed_against_an_incumbent_is_at_least_as_good_in_every_reading() -> None:
    incumbent = ptables.design(D=5, V=3, js=2, objective="entropy").table
    found = ptables.design(against=incumbent)
    assert (found.spec.D, found.spec.js) == (5, 2)
    assert found.spec.max_variance == incumbent.rows[-1].variance
    ours, theirs = (ptables.audit(table, epsilons=["1"]) for table in (found.table, incumbent))
    assert all(ours.delta(reading, 1) <= theirs.delta(reading, 1) for reading in READINGS)
    other = ptables.design(against=incumbent, D=6, V=2, js=0)
    assert (other.spec.D, other.spec.max_variance, other.spec.js) == (6, 2, 0)


def test_a_note_says_where_the_incumbent_is_better() -> None:
    """With variance 1, the count 1 is published as 0 at most half of the time, so delta is large."""
    found = ptables.design(against=ptables.design(D=7, V=4, js=2).table, V=1, js=0)
    assert "cannot be kept" in found.notes[0]
    assert any(note.startswith("at epsilon 1 delta is larger than the incumbent's in ") for note in found.notes)


def test_a_note_gives_deltas_that_are_larger_at_half_of_epsilon() -> None:
    """A table of least delta at epsilon 1 may have a larger delta than the incumbent at epsilon 0.5."""
    incumbent = ptables.design(D=7, V=4, js=2, objective="entropy").table
    found = ptables.design(against=incumbent)
    ours, theirs = (ptables.audit(table, epsilons=["0.5"]) for table in (found.table, incumbent))
    assert ours.delta("last_row", "0.5") > theirs.delta("last_row", "0.5")
    assert any(
        "at epsilon 0.5 delta is larger than the incumbent's" in note and "last_row" in note for note in found.notes
    )


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "give --D and --V"),
        ({"D": 7}, "give --D and --V"),
        ({"D": 0, "V": 1}, "D: got 0"),
        ({"D": 2.5, "V": 1}, "D: got 2.5"),
        ({"D": 10**9, "V": 1}, "D: got"),
        ({"D": 7, "V": 0}, "V: got 0"),
        ({"D": 7, "V": -1}, "V: got -1"),
        ({"D": 7, "V": 50}, "up to D^2"),
        ({"D": 7, "V": "nan"}, "V: got nan"),
        ({"D": 7, "V": 4, "js": 7}, "js: got 7"),
        ({"D": 7, "V": 4, "pstay": "1"}, "pstay: got 1"),
        ({"D": 7, "V": 4, "pstay": "0"}, "pstay: got 0"),
        ({"D": 7, "V": 4, "epsilon": "0"}, "epsilon: got 0"),
        ({"D": 7, "V": 4, "epsilon": "1e400"}, "epsilon: got"),
        ({"D": 7, "V": 4, "objective": "beauty"}, "delta or entropy"),
        ({"D": 7, "V": 4, "unbiased_from": 0}, "unbiased_from: got 0"),
        ({"D": 7, "V": 4, "format": "xls"}, "format: got xls"),
        ({"D": 7, "V": 4, "keys": 256}, "keys is only for format ons"),
        ({"D": 7, "V": 4, "objective": "entropy", "freeze_zero": False}, "freeze zero"),
    ],
)
def test_bad_requests_are_refused_in_one_line(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(CountveilError) as found:
        ptables.design(**asked)
    assert says in str(found.value)
    assert "\n" not in str(found.value)
    assert found.value.exit_code == 2


def test_requirements_that_no_row_can_meet_are_refused_with_a_reason() -> None:
    with pytest.raises(InfeasibleError, match="row 1 has variance at least 2: its nearest outputs are 0 and 3"):
        ptables.design(D=7, V="1.9", js=2)
    with pytest.raises(InfeasibleError, match="row 1 has variance at least 0\\.5"):
        ptables.design(D=7, V="0.4", pstay="0.5")
    with pytest.raises(RequestError, match="leave out freeze_zero"):
        ptables.design(D=7, V=4, objective="entropy", unimodal=True)
