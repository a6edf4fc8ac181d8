"""The exact delta of tables, from the definition: both directions, translation, repetition, frozen zero."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from countveil.numeric.exact_numbers import exp_bounds
from countveil.ptables.audit import audit, meaning
from countveil.ptables.readings import READINGS, readings
from countveil.ptables.table import PTable, Row

E = exp_bounds(Fraction(1))[0]


def law(table: PTable, n: int, *, frozen: bool = False) -> dict[int, Fraction]:
    """The law j -> probability of a count, by the rules of the formats' documentation."""
    if n == 0 and frozen:
        return {0: Fraction(1)}
    row = n
    while row > table.last:
        row -= table.repeat
    return {n + v: Fraction(w, table.total) for v, w in table.rows[row].items()}


def by_definition(table: PTable, order: Fraction, first: int, *, frozen: bool = False) -> Fraction:
    worst = Fraction(0)
    for n in range(first, max(first, table.last) + 2 * table.repeat + 3):
        a, b = law(table, n, frozen=frozen), law(table, n + 1, frozen=frozen)
        for p, q in ((a, b), (b, a)):
            worst = max(worst, sum((max(Fraction(0), w - order * q.get(j, 0)) for j, w in p.items()), Fraction(0)))
    return worst


@st.composite
def tables(draw: st.DrawFn) -> PTable:
    last = draw(st.integers(0, 4))
    total = draw(st.sampled_from([6, 100]))
    rows = []
    for i in range(last + 1):
        least = draw(st.integers(-min(i, 3), 1))
        cuts = sorted(draw(st.lists(st.integers(0, total), max_size=5)))
        pieces = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
        rows.append(Row.of(dict(enumerate(pieces, start=least)), total))
    return PTable(tuple(rows), repeat=draw(st.integers(1, last + 1)))


@given(tables(), st.sampled_from([Fraction(1), E, Fraction(3, 2), Fraction(20)]), st.integers(0, 6))
def test_the_deltas_of_all_readings_equal_their_definition(table: PTable, order: Fraction, n0: int) -> None:
    found = readings(table, order, n0)
    beyond = table.last - table.repeat + 1
    assert found["designed"].value == by_definition(table, order, 0)
    assert found["zero_frozen"].value == by_definition(table, order, 0, frozen=True)
    assert found["from_n0"].value == by_definition(table, order, n0)
    assert found["last_row"].value == by_definition(table, order, beyond)


@given(tables(), st.integers(0, 5))
def test_the_worst_pair_of_a_reading_attains_its_delta(table: PTable, n0: int) -> None:
    for name, worst in readings(table, E, n0).items():
        assert abs(worst.n - worst.m) == 1
        assert min(worst.n, worst.m) >= (n0 if name == "from_n0" else 0)
        p = law(table, worst.n, frozen=name == "zero_frozen")
        q = law(table, worst.m, frozen=name == "zero_frozen")
        assert worst.value == sum((max(Fraction(0), w - E * q.get(j, 0)) for j, w in p.items()), Fraction(0))


@given(tables())
def test_readings_at_infinite_order_equal_those_at_a_huge_order(table: PTable) -> None:
    floors, huge = readings(table, None), readings(table, Fraction(10**9))
    assert {name: floors[name].value for name in READINGS} == {name: huge[name].value for name in READINGS}


def coin(*weights: int, least: int) -> Row:
    return Row(least, weights, sum(weights))


def test_both_directions_of_a_pair_are_compared() -> None:
    """In `down`, 1 can be published as 0, but 2 cannot. In `up`, 3 can be published as 5, but 2 cannot."""
    same = coin(1, 2, 1, least=-1)
    down = PTable((coin(4, least=0), coin(3, 0, 1, least=-1), same))
    up = PTable((coin(4, least=0), same, same, coin(1, 0, 0, 3, least=-1), same))
    assert (readings(down, E)["from_n0"].n, readings(down, E)["from_n0"].m) == (1, 2)
    assert (readings(up, E)["from_n0"].n, readings(up, E)["from_n0"].m) == (3, 2)


def test_the_last_row_is_compared_with_its_own_translation() -> None:
    """With noise of even size only, the last row and its translation by 1 have no outcome in common."""
    even = coin(1, 0, 2, 0, 1, least=-2)
    table = PTable((coin(4, least=0), coin(4, least=0), even))
    assert readings(table, E)["last_row"].value == 1


def test_zero_is_frozen_in_the_reading_zero_frozen_and_not_in_designed() -> None:
    table = PTable((coin(3, 1, least=0), coin(1, 2, 1, least=-1)))
    found = readings(table, E)
    assert found["zero_frozen"].value == Fraction(3, 4)
    assert found["designed"].value < Fraction(1, 2)
    assert table.freeze_zero().freeze_zero() == table.freeze_zero()


def test_after_the_last_row_the_repeated_rows_start_again() -> None:
    """With integer keys, count 751 uses row 501 again; here the last two rows repeat, so count 4 uses row 2."""
    table = PTable((coin(4, least=0), coin(1, 2, 1, least=-1), coin(1, 2, 1, least=-1), coin(4, least=0)), repeat=2)
    assert table.row(4) == table.rows[2]
    assert table.row(5) == table.rows[3]
    assert readings(table, E)["last_row"].value == by_definition(table, E, 2)
    assert readings(table, E, 3)["from_n0"].value == by_definition(table, E, 2)


def test_the_explanation_says_which_counts_must_be_public() -> None:
    noisy = PTable((coin(3, 1, least=0), coin(1, 2, 1, least=-1), coin(1, 2, 1, least=-1)))
    for n0, says in ((1, "which cells are empty"), (2, "which cells are below 2")):
        assert any(says in words for words in meaning(audit(noisy, epsilons=["1"], n0=n0)))
    everything = meaning(audit(noisy, epsilons=["1"], n0=0))
    assert any("gives that person away" in words for words in everything)
    assert not any("it is public" in words for words in everything)


def test_stated_deltas_are_upper_bounds() -> None:
    table = PTable((coin(100, least=0), coin(5, 60, 25, 10, least=-1)))
    found = audit(table, epsilons=["0.3", "1"], curve=True)
    described = found.describe()
    for entry, name in zip(described["readings"], READINGS, strict=True):
        for epsilon, text in entry["delta"].items():
            exact = readings(table, exp_bounds(Fraction(epsilon), 300)[1])[name].value
            assert Fraction(text) >= exact
            assert found.delta(name, epsilon) >= readings(table, exp_bounds(Fraction(epsilon), 300)[0])[name].value
            assert Fraction(text) <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**14)
    deltas = [Fraction(point["designed"]) for point in described["curve"]]
    assert deltas == sorted(deltas, reverse=True)
    assert len(deltas) == 41


@pytest.mark.parametrize("weights", [{0: 3, 1: 2}, {0: 5, 1: -1}, {}])
def test_invalid_rows_are_refused(weights: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="row"):
        Row.of(weights, 4)


def test_invalid_tables_are_refused() -> None:
    row = coin(1, 2, 1, least=-1)
    for rows, repeat in (((), 1), ((row,), 1), ((coin(4, least=0), coin(2, least=0)), 1), ((coin(4, least=0),), 2)):
        with pytest.raises(ValueError, match=r"row|negative"):
            PTable(rows, repeat=repeat)
