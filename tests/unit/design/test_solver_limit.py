"""The limit on the solver's work: it counts iterations, so no clock decides which mechanism is designed."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import count

import pytest

import countveil as cv
from countveil.design.column_program import ONE, CellProgram
from countveil.numeric.linear_program import highs

REQUEST = {"epsilon": "2", "eta": "0.3", "D": 12, "unbiased_from": 1, "method": "program"}
"""Its last stage, the mean squared errors, takes more work than any stage before: 6.9 million to at most 5.4."""


def test_a_slow_clock_changes_no_design(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = cv.design(**REQUEST)
    assert not any("gave up" in note for note in expected.notes)
    hours = count(step=3600)
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: float(next(hours)))
        assert cv.design(**REQUEST).hash == expected.hash


def test_a_stage_on_which_the_solver_gives_up_is_named_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = cv.design(**REQUEST)
    monkeypatch.setattr(highs, "WORK", 6 * 10**6)
    found = cv.design(**REQUEST)
    note = "not minimised, because the solver gave up on this stage: mean squared errors"
    assert found.notes == (*expected.notes, note)
    assert found.hash != expected.hash
    assert float(found.delta) == pytest.approx(float(expected.delta), rel=1e-6)


def test_a_design_whose_first_stage_is_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "WORK", 1)
    with pytest.raises(cv.SolverError, match="the solver gave up on this program; lower D, or use method remap"):
        cv.design(**REQUEST)


def test_a_later_objective_without_a_solution_leaves_a_note_and_the_program_as_it_was() -> None:
    program = CellProgram()
    x = program.variable(1, None)
    assert program.solve_later([(x, -ONE)], Fraction(0), "the size of x") is None
    assert program.notes == ["not minimised, because the solver gave up on this stage: the size of x"]
    assert program.solve([(x, ONE)], Fraction(0)).objective == 1
