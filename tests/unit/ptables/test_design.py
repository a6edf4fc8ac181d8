"""Designed tables have what was asked for, measured on the integers written, and beat what they are set against."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from countveil import ptables
from countveil.errors import CountveilError, InfeasibleError, RequestError
from countveil.ptables.measure import READINGS

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


def test_designs_have_what_was_asked_for(case: tuple[dict[str, Any], ptables.Designed]) -> None:
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


def test_the_optimal_last_row() -> None:
    """Where variance does not bind, the last row has the closed form's delta, up to rounding."""
    found = ptables.design(D=7, V=4, js=2)
    delta = ptables.audit(found.table, epsilons=["1"]).delta("last_row", 1)
    assert Fraction("0.0004216") < delta < Fraction("0.0004217")


def test_freezing_zero_costs_what_the_note_says() -> None:
    found = ptables.design(D=7, V=4)
    delta = ptables.audit(found.table, epsilons=["6"]).delta("zero_frozen", 6)
    assert delta >= Fraction(1, 5)
    assert any("1/(1 + V) = 0.2" in note for note in found.notes)


@pytest.mark.parametrize(("epsilon", "D", "V"), [("4", 6, 5), ("8", 5, 4), ("16", 7, 4)])
def test_large_epsilons_get_down_to_the_grid(epsilon: str, D: int, V: int) -> None:
    """The best law's tails are below eight decimals: one unit is what is left."""
    found = ptables.audit(ptables.design(epsilon=epsilon, D=D, V=V).table, epsilons=[epsilon])
    assert found.delta("from_n0", epsilon) <= Fraction(3, 10**8)


def test_a_rounded_stay_probability_is_mentioned() -> None:
    found = ptables.design(D=5, V=3, pstay=Fraction(127, 256), format="ons", keys=256)
    assert {row.stay for row in found.table.rows[1:]} == {Fraction(1, 2)}
    assert "pstay is rounded to 0.5" in found.notes


def test_unbiased_rows_are_reached_where_noise_is_cut() -> None:
    found = ptables.design(epsilon="8", D=12, V=4, unbiased_from=17)
    assert found.table.row(10**6).mean == 0
    assert all(found.table.row(n).mean == 0 for n in range(17, 40))


def test_a_smaller_cap_and_fixed_stay_cost_privacy() -> None:
    def delta(**asked: Any) -> Fraction:
        return ptables.audit(ptables.design(D=7, **asked).table, epsilons=["1"]).delta("from_n0", 1)

    free = delta(V=4)
    assert free <= delta(V="1.5") <= delta(V=1)
    assert free <= delta(V=4, pstay="0.5") <= delta(V=4, pstay="0.6")


@pytest.mark.parametrize("keys", [256, 4096])
def test_coarse_grids_are_designed_for(keys: int) -> None:
    """Better than rounding the best table of eight decimals to 1/K, and above the floor."""
    found = ptables.audit(ptables.design(D=7, V=4, js=2, format="ons", keys=keys).table, epsilons=["1"])
    assert Fraction(1, keys) <= found.delta("last_row", 1)
    assert found.delta("from_n0", 1) <= Fraction("0.00165") + Fraction(3, keys)


def test_against_an_incumbent() -> None:
    incumbent = ptables.design(D=5, V=3, js=2, objective="entropy").table
    found = ptables.design(against=incumbent)
    assert (found.spec.D, found.spec.js) == (5, 2)
    assert found.spec.max_variance == incumbent.rows[-1].variance
    ours, theirs = (ptables.audit(table, epsilons=["1"]) for table in (found.table, incumbent))
    assert all(ours.delta(reading, 1) <= theirs.delta(reading, 1) for reading in READINGS)
    other = ptables.design(against=incumbent, D=6, V=2, js=0)
    assert (other.spec.D, other.spec.max_variance, other.spec.js) == (6, 2, 0)


def test_an_incumbent_that_cannot_be_matched() -> None:
    """With variance 1, row 1 is published as something else than 0 half of the time."""
    found = ptables.design(against=ptables.design(D=7, V=4, js=2).table, V=1, js=0)
    assert "cannot be held" in found.notes[0]
    assert any(note.startswith("at epsilon 1 worse than the incumbent in these") for note in found.notes)


def test_other_epsilons_are_not_hidden() -> None:
    """The least delta at epsilon 1 may be more than the incumbent's at epsilon 0.5: then a note has both."""
    incumbent = ptables.design(D=7, V=4, js=2, objective="entropy").table
    found = ptables.design(against=incumbent)
    ours, theirs = (ptables.audit(table, epsilons=["0.5"]) for table in (found.table, incumbent))
    assert ours.delta("last_row", "0.5") > theirs.delta("last_row", "0.5")
    assert any("at epsilon 0.5 worse than the incumbent" in note and "last_row" in note for note in found.notes)


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
        ({"D": 7, "V": 4, "keys": 256}, "keys belong to format ons"),
        ({"D": 7, "V": 4, "objective": "entropy", "freeze_zero": False}, "freeze zero"),
    ],
)
def test_bad_requests(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(CountveilError) as found:
        ptables.design(**asked)
    assert says in str(found.value)
    assert "\n" not in str(found.value)
    assert found.value.exit_code == 2


def test_what_no_row_can_have() -> None:
    with pytest.raises(InfeasibleError, match="row 1 has variance 2 or more: its nearest outputs are 0 and 3"):
        ptables.design(D=7, V="1.9", js=2)
    with pytest.raises(InfeasibleError, match="row 1 has variance 0\\.5 or more"):
        ptables.design(D=7, V="0.4", pstay="0.5")
    with pytest.raises(RequestError, match="leave such options out"):
        ptables.design(D=7, V=4, objective="entropy", unimodal=True)
