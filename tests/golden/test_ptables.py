"""p-tables against brute force over Fractions, and two published tables against their printed figures."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from countveil import ptables
from countveil.ptables.readings import READINGS
from tests.support import vectors

CASES = vectors.cases("ptables")
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "ptables"


def of(kind: str) -> list[dict[str, Any]]:
    found = [case for case in CASES if case["kind"] == kind]
    assert found
    return found


def published(case: dict[str, Any]) -> Path:
    path = FOLDER / case["file"]
    if not path.exists():
        pytest.skip(f"{path} is not part of this repository")
    return path


def check(table: ptables.PTable, deltas: list[list[str]]) -> None:
    found = ptables.audit(table, epsilons=[epsilon for epsilon, *_ in deltas])
    for epsilon, *expected in deltas:
        for reading, value in zip(READINGS, expected, strict=True):
            measured = found.delta(reading, epsilon)
            assert vectors.close(measured, value, "1e-25"), (reading, epsilon)
            assert measured >= Fraction(value) * (1 - Fraction(1, 10**25))


@pytest.mark.parametrize("case", of("invented"), ids=lambda c: str(c["seed"]))
def test_invented_tables_have_the_deltas_and_moments_of_brute_force(case: dict[str, Any], tmp_path: Path) -> None:
    """The tables have shuffled intervals with repeated (i, j), and zero is not frozen."""
    path = tmp_path / "table.txt"
    lines = [f"{i};{j};{p};{j - i};{ub}" for i, j, p, ub in case["lines"]]
    path.write_text("i;j;p;v;p_ub\n" + "\n".join(lines) + "\n")
    table = ptables.read(path)
    assert table.last == case["last"]
    check(table, case["deltas"])
    for row, (mean, variance) in zip(table.rows, case["moments"], strict=True):
        assert abs(row.mean - Fraction(mean)) < Fraction(1, 10**18)
        assert abs(row.variance - Fraction(variance)) < Fraction(1, 10**18)


@pytest.mark.parametrize("case", of("published"), ids=lambda c: c["file"])
def test_published_tables_have_the_deltas_of_brute_force(case: dict[str, Any]) -> None:
    table = ptables.read(published(case))
    assert case["D"] == table.D
    assert table.is_zero_frozen
    check(table, case["deltas"])


@pytest.mark.parametrize("case", of("published"), ids=lambda c: c["file"])
def test_the_deltas_of_brute_force_agree_with_the_printed_figures(case: dict[str, Any]) -> None:
    """Three digits were printed, so the difference is at most half a unit of the third digit."""
    for (_, *computed), (epsilon, everything, nonzero, last) in zip(case["deltas"][1:], case["printed"], strict=True):
        for measured, printed in zip((computed[0], computed[2], computed[3]), (everything, nonzero, last), strict=True):
            unit = Fraction(10) ** (math.floor(math.log10(float(printed))) - 2)
            assert abs(Fraction(measured) - Fraction(printed)) <= unit * Fraction(51, 100), epsilon


@pytest.mark.parametrize("case", of("published"), ids=lambda c: c["file"])
def test_the_entropy_objective_reproduces_the_published_tables(case: dict[str, Any]) -> None:
    theirs = ptables.read(published(case))
    stay = "0.5" if case["D"] == 5 else None
    V = {5: 3, 7: 4}[case["D"]]
    ours = ptables.design(D=case["D"], V=V, js=2, pstay=stay, objective="entropy").table
    assert ours.last == theirs.last
    for mine, yours in zip(ours.rows, theirs.rows, strict=True):
        for v in range(-case["D"], case["D"] + 1):
            difference = Fraction(mine.weight(v), mine.total) - Fraction(yours.weight(v), yours.total)
            assert abs(difference) <= Fraction(1, 10**6)


def test_a_designed_table_has_far_less_delta_than_the_published_one() -> None:
    """It has the same D, at most the variance of the published last row, and never publishes 1 or 2."""
    theirs = ptables.read(published(of("published")[0]))
    cap = theirs.rows[-1].variance
    found = ptables.design(D=theirs.D, V=cap, js=2, epsilon="1")
    assert found.table.D <= theirs.D
    assert found.largest_variance <= cap
    assert all(row.mean == 0 for row in found.table.rows)
    ours, before = (ptables.audit(table, epsilons=["1"]) for table in (found.table, theirs))
    assert ours.delta("last_row", 1) <= Fraction("0.00043") < Fraction("0.007") < before.delta("last_row", 1)
    assert ours.delta("from_n0", 1) <= Fraction("0.00165") < Fraction("0.057") < before.delta("from_n0", 1)


@pytest.mark.parametrize("case", of("published"), ids=lambda c: c["file"])
def test_a_table_designed_against_an_incumbent_is_worse_in_no_reading(case: dict[str, Any]) -> None:
    theirs = ptables.read(published(case))
    found = ptables.design(against=theirs)
    ours, before = (ptables.audit(table, epsilons=["1"]) for table in (found.table, theirs))
    assert all(ours.delta(reading, 1) <= before.delta(reading, 1) for reading in READINGS)
    assert ours.delta("from_n0", 1) * 20 < before.delta("from_n0", 1)
    assert found.largest_variance <= theirs.rows[-1].variance
