"""The linear-program front end against exact rational solutions."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import pytest
from hypothesis import given, strategies as st

from countveil.numeric.linear_program import NoSolution, Program
from tests.support.effort import examples

TINY = Fraction(1, 2**150)


def pivot(table: list[list[Fraction]], basis: list[int], row: int, column: int) -> None:
    head = table[row][column]
    table[row] = [value / head for value in table[row]]
    for other, line in enumerate(table):
        if other != row and line[column]:
            factor = line[column]
            table[other] = [a - factor * b for a, b in zip(line, table[row], strict=True)]
    basis[row] = column


def bland(table: list[list[Fraction]], basis: list[int], allowed: int) -> bool:
    """Minimise; False if unbounded. The last line contains the reduced costs, the last column the right-hand side."""
    while True:
        column = next((j for j in range(allowed) if table[-1][j] < 0), None)
        if column is None:
            return True
        ratios = [(table[i][-1] / table[i][column], basis[i], i) for i in range(len(basis)) if table[i][column] > 0]
        if not ratios:
            return False
        pivot(table, basis, min(ratios)[2], column)


def reference(cost: list[Fraction], rows: list[list[Fraction]], upper: list[Fraction]) -> Fraction | str:
    """min cost.x over rows.x <= upper, x >= 0 by the two-phase simplex method in fractions."""
    width, height = len(cost), len(rows)
    table = []
    for i, (row, bound) in enumerate(zip(rows, upper, strict=True)):
        sign = -1 if bound < 0 else 1
        slack = [Fraction(sign * (i == j)) for j in range(height)]
        artificial = [Fraction(i == j) for j in range(height)]
        table.append([sign * value for value in row] + slack + artificial + [sign * bound])
    total = width + height
    basis = [total + i for i in range(height)]
    table.append([-sum(column, Fraction(0)) for column in zip(*table, strict=True)])
    for i in range(height):
        table[-1][total + i] = Fraction(0)
    bland(table, basis, total)
    if table[-1][-1]:
        return "infeasible"
    for i in range(height):
        if basis[i] >= total:
            column = next((j for j in range(total) if table[i][j]), None)
            if column is not None:
                pivot(table, basis, i, column)
    full = cost + [Fraction(0)] * (2 * height + 1)
    table[-1] = full[:]
    for i, member in enumerate(basis):
        table[-1] = [a - full[member] * b for a, b in zip(table[-1], table[i], strict=True)]
    return -table[-1][-1] if bland(table, basis, total) else "unbounded"


def program(rows: list[list[Fraction]], upper: list[Fraction], width: int) -> Program:
    made = Program()
    made.variables(width)
    for row, bound in zip(rows, upper, strict=True):
        made.constrain(enumerate(row), None, bound)
    return made


small = st.builds(Fraction, st.integers(-6, 6), st.integers(1, 7))


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Fraction], list[list[Fraction]], list[Fraction]]:
    width, height = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    vector = st.lists(small, min_size=width, max_size=width)
    rows = draw(st.lists(vector, min_size=height, max_size=height))
    return draw(vector), rows, draw(st.lists(small, min_size=height, max_size=height))


@examples(150, deadline=None)
@given(programs())
def test_the_optimum_agrees_with_a_rational_simplex(
    case: tuple[list[Fraction], list[list[Fraction]], list[Fraction]],
) -> None:
    cost, rows, upper = case
    made = program(rows, upper, len(cost))
    expected = reference(cost, rows, upper)
    if isinstance(expected, str):
        with pytest.raises(NoSolution) as stop:
            made.minimize(enumerate(cost))
        assert stop.value.reason == expected
        return
    solution = made.minimize(enumerate(cost))
    assert abs(solution.objective - expected) < TINY
    assert solution.residual < TINY
    assert solution.gap < TINY


@examples(60, deadline=None)
@given(programs(), st.data())
def test_a_warm_start_does_not_change_the_optimum(
    case: tuple[list[Fraction], list[list[Fraction]], list[Fraction]], data: st.DataObject
) -> None:
    cost, rows, upper = case
    bounds = [[Fraction(i == j) for j in range(len(cost))] for i in range(len(cost))]
    rows, upper = rows + bounds, [abs(value) for value in upper] + [Fraction(9)] * len(cost)
    warm = program(rows, upper, len(cost))
    warm.minimize(enumerate(cost))
    vector = st.lists(small, min_size=len(cost), max_size=len(cost))
    other, row = data.draw(vector), data.draw(vector)
    warm.constrain(enumerate(row), None, Fraction(1, 3))
    warm.set_row_bounds(0, None, Fraction(7))
    rows, upper = [*rows, row], [Fraction(7), *upper[1:], Fraction(1, 3)]
    expected = reference(other, rows, upper)
    if isinstance(expected, str):
        assert expected == "infeasible"
        with pytest.raises(NoSolution, match=expected):
            warm.minimize(enumerate(other))
    else:
        assert abs(warm.minimize(enumerate(other)).objective - expected) < TINY


def chain(length: int, growth: Fraction) -> tuple[Program, range]:
    """x_0 = 1 and x_i <= growth * x_{i+1}: the least x_length is growth^-length."""
    made = Program()
    x = made.variables(length + 1)
    made.set_variable_bounds(x[0], 1, 1)
    for i in range(length):
        made.constrain([(x[i], 1), (x[i + 1], -growth)], None, 0)
    return made, x


def test_a_tiny_optimum_has_full_relative_accuracy() -> None:
    growth = Fraction(100) + Fraction(1, 2**200)
    made, x = chain(6, growth)
    solution = made.minimize([(x[6], 1)])
    exact = growth**-6
    assert float(exact) == pytest.approx(1e-12)
    assert abs(solution.objective / exact - 1) < Fraction(1, 10**40)
    assert solution.residual < TINY
    assert solution.rounds >= 1


def test_a_tiny_difference_of_large_terms_is_accurate() -> None:
    made = Program()
    x, y, t = made.variables(3)
    made.constrain([(x, 1), (y, 1)], 1, 1)
    made.constrain([(x, 3), (y, -1)], 0, 0)
    small_part = Fraction(1, 10**12)
    made.constrain([(t, 1), (x, -4), (y, Fraction(1, 3))], Fraction(-3, 4) + small_part)
    solution = made.minimize([(t, 1)])
    assert abs(solution[t] / small_part - 1) < Fraction(1, 10**30)


def test_infeasibility_below_float_tolerance_is_detected() -> None:
    made = Program()
    x, y = made.variables(2)
    made.constrain([(x, 1), (y, 1)], 1, 1)
    made.constrain([(x, 1), (y, 1)], 1 + Fraction(1, 10**15))
    with pytest.raises(NoSolution) as stop:
        made.minimize([(x, 1)])
    assert stop.value.reason == "infeasible"


def test_crossed_bounds_are_infeasible() -> None:
    made = Program()
    x = made.variable(2, 1)
    with pytest.raises(NoSolution) as stop:
        made.minimize([(x, 1)])
    assert stop.value.reason == "infeasible"


def test_an_unbounded_program_is_detected() -> None:
    made = Program()
    x, y = made.variables(2, lower=None)
    made.constrain([(x, 1), (y, -1)], 0, 0)
    with pytest.raises(NoSolution) as stop:
        made.minimize([(x, 1)])
    assert stop.value.reason == "unbounded"


def test_a_tiny_first_optimum_can_constrain_a_second_objective() -> None:
    """Keep the first objective within 1e-7 of its optimum; the second objective uses exactly that tolerance."""
    growth = Fraction(50)
    made, x = chain(7, growth)
    first = made.minimize([(x[7], 1)])
    room = first[x[7]] * (1 + Fraction(1, 10**7))
    made.set_variable_bounds(x[7], 0, room)
    second = made.minimize([(x[6], -1)])
    assert abs(-second.objective / (growth * room) - 1) < Fraction(1, 10**25)
    made.constrain([(x[6], 1)], -second.objective)
    third = made.minimize([(index, 1) for index in x])
    assert third.residual < TINY
    assert abs(third[x[6]] + second.objective) < TINY
    assert abs(third[x[1]] / growth**-1 - 1) < Fraction(1, 10**25)


def test_rows_and_variables_can_be_added_between_calls() -> None:
    made = Program()
    x = made.variable(0, 10)
    assert made.minimize([(x, -1)]).objective == -10
    y = made.variable(None, Fraction(5, 3))
    row = made.constrain([(x, 1), (y, -2), (x, 2)], 0, 0)
    assert abs(made.minimize([(x, -1)])[x] - Fraction(10, 9)) < TINY
    made.set_row_bounds(row, None, 1)
    assert abs(made.minimize([(x, -1)])[x] - Fraction(13, 9)) < TINY


def test_expected_sizes_of_variables_do_not_change_the_optimum() -> None:
    growth = Fraction(100)
    made, x = chain(6, growth)
    made.expect((x[i], growth**-i) for i in range(7))
    assert abs(made.minimize([(x[6], 1)]).objective * growth**6 - 1) < Fraction(1, 10**40)


def test_a_program_without_rows_or_objective_is_solved() -> None:
    made = Program()
    assert made.minimize([]).objective == 0
    x, y = made.variable(-3, 4), made.variable(None)
    solution = made.minimize([(x, -2)])
    assert solution.objective == -8
    assert solution[y] == 0


def test_an_unknown_variable_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        Program().constrain([(0, 1)])


def whole_domain(E: Fraction, eta: Fraction, D: int, n0: int) -> tuple[Program, int]:
    """The program for the least delta of laws on n - D .. n + D, y >= 0, that are exact with probability eta."""
    made = Program()
    delta = made.variable()
    p = {(n, y): made.variable() for n in range(D + 1) for y in range(n + D + 1)}
    for n in range(D + 1):
        made.set_variable_bounds(p[n, n], eta, None if n == 0 else eta)
        made.constrain([(p[n, y], 1) for y in range(n + D + 1)], 1, 1)
        if n >= n0:
            made.constrain([(p[n, y], y - n) for y in range(n + D + 1)], 0, 0)
    for y in range(2 * D + 1):
        p[D + 1, y + 1] = p[D, y]
    for n in range(D + 1):
        for a, b in ((n, n + 1), (n + 1, n)):
            hinges = []
            for y in range(2 * D + 2):
                if (a, y) in p:
                    hinges.append((made.variable(), 1))
                    below = [(p[b, y], E)] if (b, y) in p else []
                    made.constrain([(hinges[-1][0], 1), (p[a, y], -1), *below], 0)
            made.constrain([*hinges, (delta, -1)], None, 0)
    return made, delta


@pytest.mark.parametrize(
    ("epsilon", "eta", "D", "n0", "expected"),
    [
        (1.1, Fraction(1, 2), 8, 1, 0.0580150419562),
        (1.1, Fraction(1, 2), 8, 4, 0.000143507035009),
        (1.1, Fraction(1, 2), 8, 6, 7.55807857966e-05),
        (4.0, Fraction(9, 10), 6, 1, 1.02113818314e-10),
        (4.0, Fraction(9, 10), 6, 3, 1.01170427499e-10),
    ],
)
def test_the_whole_domain_program_reaches_the_known_optimum(
    epsilon: float, eta: Fraction, D: int, n0: int, expected: float
) -> None:
    made, delta = whole_domain(Fraction(exp(epsilon)), eta, D, n0)
    first = made.minimize([(delta, 1)])
    assert float(first.objective) == pytest.approx(expected, rel=1e-10)
    assert max(first.residual, first.gap) < TINY
    made.set_variable_bounds(delta, 0, first.objective * (1 + Fraction(1, 10**7)))
    second = made.minimize([(1, -1)])
    assert max(second.residual, second.gap) < TINY
