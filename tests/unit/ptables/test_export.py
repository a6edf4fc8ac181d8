"""Our mechanisms as p-tables: the written file has the law that was measured, zero bias included."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import countveil as cv
from countveil import ptables
from countveil.errors import CountveilError, ParameterError, RequestError
from countveil.ptables.readings import READINGS

DESIGNS: dict[str, dict[str, Any]] = {
    "program": {"epsilon": "1", "eta": "0.4", "D": 7},
    "target": {"epsilon": "1", "delta": "1e-6"},
    "remap": {"epsilon": "0.5", "delta": "1e-6", "method": "remap"},
    "floor": {"epsilon": "1", "delta": "1e-4", "policy": "floor"},
}
FORMATS = [("tau-argus", None), ("sas", None), ("cellkey", None), ("ons", 4096), ("ons", 256)]


@pytest.fixture(scope="module", params=DESIGNS)
def mechanism(request: pytest.FixtureRequest) -> cv.Mechanism:
    return cv.design(**DESIGNS[request.param])


@pytest.mark.slow  # designs tables by linear programs
@pytest.mark.parametrize(("kind", "keys"), FORMATS)
def test_the_written_file_is_read_back_with_the_same_laws_and_deltas(
    mechanism: cv.Mechanism, kind: str, keys: int | None, tmp_path: Path
) -> None:
    exported = ptables.export(mechanism, kind, keys=keys)
    path = tmp_path / "table"
    ptables.save(exported.table, path, kind)
    back = ptables.read(path)
    assert back.rows[1:] == exported.table.rows[1:]
    assert back.repeat == exported.table.repeat
    if kind != "ons":
        assert back == exported.table
    order = [mechanism.epsilon]
    before, after = ptables.audit(exported.table, epsilons=order), ptables.audit(back, epsilons=order)
    applied = [before.delta(name, mechanism.epsilon) for name in ("zero_frozen", "from_n0", "last_row")]
    assert applied == [after.delta(name, mechanism.epsilon) for name in ("zero_frozen", "from_n0", "last_row")]


@pytest.mark.parametrize(("kind", "keys"), FORMATS)
def test_rounding_keeps_zero_bias_and_an_equal_eta(mechanism: cv.Mechanism, kind: str, keys: int | None) -> None:
    table = ptables.export(mechanism, kind, keys=keys).table
    units = keys or 10**8
    for n in range(table.last + 1):
        law, row = mechanism.law(n), table.row(n)
        assert row.total == units
        assert n + row.least >= 0
        assert row.reach <= max(-law.least, law.greatest)
        if law.mean == 0:
            assert row.mean == 0
        if n and law.eta == mechanism.eta:
            assert row.stay == table.row(table.last).stay
            assert abs(row.stay - law.eta) <= Fraction(1, units)


def test_eight_decimals_raise_delta_by_little(mechanism: cv.Mechanism) -> None:
    table = ptables.export(mechanism).table
    found = ptables.audit(table, epsilons=[mechanism.epsilon]).delta("designed", mechanism.epsilon)
    assert found <= mechanism.delta + Fraction(40, 10**8)


def test_with_k_cell_keys_delta_is_at_least_1_over_k(mechanism: cv.Mechanism) -> None:
    for keys in (256, 4096):
        exported = ptables.export(mechanism, "ons", keys=keys)
        found = ptables.audit(exported.table, epsilons=["8", mechanism.epsilon])
        assert min(found.delta(reading, 8) for reading in READINGS) >= Fraction(1, keys)
        assert found.delta("designed", mechanism.epsilon) <= mechanism.delta + Fraction(12, keys)
        assert any(f"1/{keys}" in note for note in exported.notes)


def test_if_zero_is_frozen_delta_is_at_least_the_probability_that_one_person_shows(mechanism: cv.Mechanism) -> None:
    table = ptables.export(mechanism).table
    found = ptables.audit(table, epsilons=["1", "9"])
    shows = 1 - Fraction(table.rows[1].weight(-1), table.total)
    assert found.delta("zero_frozen", 1) >= shows
    assert found.delta("zero_frozen", 9) >= shows


def test_mechanisms_that_no_p_table_can_represent_are_refused() -> None:
    signed = cv.design(epsilon="1", delta="1e-4", policy="signed")
    for kind, _ in FORMATS:
        with pytest.raises(RequestError, match="no negative j"):
            ptables.export(signed, kind)
    promise = cv.design(epsilon="1", eta="0.5", D=2, counts="0:9")
    with pytest.raises(RequestError, match="largest count"):
        ptables.export(promise)
    small = cv.design(epsilon="1", eta="0.4", D=7)
    with pytest.raises(RequestError, match="keys is only for format ons"):
        ptables.export(small, keys=256)
    with pytest.raises(ParameterError, match="cellkey"):
        ptables.export(small, "excel")
    for keys in (1, 10**6, 2.5, True, "many"):
        with pytest.raises(CountveilError, match="keys"):
            ptables.export(small, "ons", keys=keys)
    wide = cv.design(epsilon="0.01", delta="1e-6", method="remap")
    with pytest.raises(RequestError, match="rows of up to"):
        ptables.export(wide)


def test_a_note_says_that_integer_keys_have_no_row_for_zero(mechanism: cv.Mechanism) -> None:
    exported = ptables.export(mechanism, "ons")
    assert any("which this format does not have" in note for note in exported.notes)
    assert ptables.audit(exported.table).describe()["zero_frozen_in_file"] is True


@pytest.mark.slow  # designs tables by linear programs
def test_a_note_says_that_the_mechanism_is_for_sensitivity_2() -> None:
    exported = ptables.export(cv.design(epsilon="1", delta="1e-4", sensitivity=2))
    assert "changes a count by up to 2" in exported.notes[0]


def test_laws_that_change_beyond_count_750_are_refused_for_integer_keys() -> None:
    far = cv.design(epsilon="0.05", delta="1e-9", policy="floor", D=760)
    with pytest.raises(RequestError, match=r"rows of up to|750 rows"):
        ptables.export(far, "ons")


def test_paths_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    table = ptables.export(cv.design(epsilon="1", eta="0.4", D=7)).table
    for path in (tmp_path, "", "\0", tmp_path / "none" / "table.txt"):
        with pytest.raises(ParameterError, match="output"):
            ptables.save(table, path)
    assert list(tmp_path.iterdir()) == []
