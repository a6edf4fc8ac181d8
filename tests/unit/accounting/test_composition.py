"""Composition at its corners: epsilons, group chains, bad input, and another accountant."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

import countveil as cv
from countveil import privacy
from countveil.accounting import answers_within, compose
from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.grid import above, below
from countveil.accounting.pairs import answer_of, pair_of
from countveil.errors import ParameterError
from countveil.exact import exp_bounds
from countveil.families.gaussian import discrete_gaussian
from countveil.law import ColumnFamily, Columns, Law
from tests.support.compositions import changes, composed, encloses, hockey_stick, mechanism, order_bounds, together

SYMMETRIC = Columns(Law((1, 4, 22, 4, 1), 2, 5))
ASYMMETRIC = Columns(Law((1, 6, 40, 15, 2), 2, 6))
BY_COLUMN = Columns(Law((2, 12, 2), 1, 4), small=(Law((10, 5, 1), 0, 4), Law((3, 12, 1), 1, 4)))


def test_epsilon_is_the_inverse_of_delta() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    found = compose(m, 20)
    for delta in (1e-3, 1e-6):
        epsilon = found.epsilon(delta)
        assert epsilon is not None
        assert epsilon.lower <= epsilon.estimate <= epsilon.upper <= epsilon.lower * 1.01
        assert found.upper(epsilon.upper) <= delta < found.upper(epsilon.upper * (1 - 1e-6))
        assert delta < found.lower(epsilon.lower) <= delta * (1 + 1e-6), "delta is still too large at the lower end"


@pytest.mark.parametrize("adaptive", [False, True])
def test_epsilon_and_delta_may_be_decimal_texts_or_fractions(adaptive: bool) -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    found = compose(m, 3, adaptive=adaptive)
    assert found.delta("1.5") == found.delta(Fraction(3, 2)) == found.delta(1.5)
    assert found.epsilon("0.125") == found.epsilon(Fraction(1, 8)) == found.epsilon(0.125)
    third = found.delta(Fraction(1, 3))  # no float: each bound is taken at the float on its safe side
    assert third.lower <= found.delta(1 / 3).upper <= third.upper
    for wrong in ("x", None, float("nan")):
        with pytest.raises(ParameterError, match="epsilon: got"):
            found.delta(wrong)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="delta: got"):
            found.epsilon(wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="delta: got 0"):
        found.epsilon("0")


def test_mechanisms_chosen_on_the_way_compose_to_the_same_type() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    fixed, adaptive = compose(m, 3), compose(m, 3, adaptive=True)
    assert type(fixed) is type(adaptive) is Composition
    assert "fixed in advance" in fixed.note
    assert "chosen adaptively" in adaptive.note
    assert adaptive.upper("1.5") >= 3 * m.delta
    assert adaptive.upper("1.4999999") == 1.0
    assert adaptive.lower(1.0) == fixed.lower(1.0)


def test_no_epsilon_beats_the_edges() -> None:
    """Infinite losses weigh 1 - (1 - p)^k at every epsilon; any delta below has no epsilon at all."""
    found = composed(SYMMETRIC, 3)
    edge = 1 - (1 - 1 / 32) ** 3
    assert found.epsilon(edge * 0.99) is None
    assert found.epsilon(edge * 1.01) is not None
    assert found.epsilon(1.0) == Bounds(0.0, 0.0, 0.0)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_neighbours_without_a_common_outcome(k: int) -> None:
    """A shift of 3 leaves nothing in common with noise of -1..1: everything is revealed, at every epsilon."""
    m = cv.design(epsilon="1", eta="0.4", D=1, sensitivity=3, policy="signed")
    found = compose(m, k)
    for epsilon in (-1.0, 0.0, 30.0):
        assert found.delta(epsilon).upper == 1.0
        assert found.delta(epsilon).lower > 1 - 1e-9
    assert found.epsilon(0.5) is None
    assert answers_within(m, "5", "0.5") == 0


@pytest.mark.parametrize(
    ("law", "k", "epsilon"),
    [
        (Law((1, 50, 1, 12), 1, 6), 2, 7.824046010856291),
        (Law((1, 12, 48, 3), 2, 6), 3, 8.317766166719343),
        (Law((1, 2, 1), 1, 2), 1, math.log(2)),
    ],
)
def test_rounding_at_the_largest_loss(law: Law, k: int, epsilon: float) -> None:
    """At the largest finite loss a unit in the last place decides between nothing and something."""
    ways = [together([pair] * k) for (pair,) in changes(Columns(law))]
    for direction in (-math.inf, math.inf):
        assert encloses(composed(Columns(law), k).delta(epsilon), ways, epsilon)
        epsilon = math.nextafter(epsilon, direction)


@pytest.mark.parametrize("step", [0.003, 0.05, 0.4])
@pytest.mark.parametrize("family", [SYMMETRIC, ASYMMETRIC, BY_COLUMN], ids=["symmetric", "asymmetric", "columns"])
def test_the_grid_laws_enclose_the_pairs(family: ColumnFamily, step: float) -> None:
    """One answer: the law above dominates every pair at every order, the law below is dominated by its pair."""
    counts = [(n, n + 1) for n in range(3)]
    pairs = [pair_of(family.column(n), family.column(m).shifted(m - n)) for n, m in counts]
    over, under = above(pairs, step), [below(pair, step) for pair in pairs]
    exact = [together([pair]) for pair in changes(family)[0]]
    assert abs(over.p.sum() + over.infinite - 1) < 1e-12 + step  # the largest curve may start above 1 - E
    for epsilon in (-3.0, -0.7, -0.01, 0.0, 0.2, 1.0, 2.2, 5.0):
        order = order_bounds(epsilon)[0]

        def delta(losses: object, order: float = math.exp(epsilon)) -> float:
            grid = losses.p @ [max(0.0, 1 - order * math.exp(-x)) for x in losses.loss.tolist()]  # type: ignore[attr-defined]
            return float(grid) + losses.infinite  # type: ignore[attr-defined]

        largest = max(hockey_stick(pair, order) for pair in exact)
        assert delta(over) >= float(largest) * (1 - 1e-12)
        for grid, pair in zip(under, exact, strict=False):
            assert delta(grid) <= float(hockey_stick(pair, order)) * (1 + 1e-12)


@pytest.mark.slow  # plans are searched for
def test_groups_cost_at_least_as_much() -> None:
    m = cv.design(epsilon="0.2", delta="1e-9", policy="signed")
    deltas = [compose(m, 5, people=g).upper(2.0) for g in (1, 2, 3, 5)]
    assert deltas == sorted(deltas)
    assert deltas[-1] > deltas[0]
    assert compose(m, 5, people=3).upper(-1.0) == 1.0


def test_replacing_costs_at_least_as_much_as_adding_and_cells_are_answers() -> None:
    m = cv.design(epsilon="0.2", delta="1e-9", policy="signed")
    assert compose(m, 6, neighbours="replace").upper(1.0) > compose(m, 6).upper(1.0)
    assert compose(m, 6, neighbours="replace").upper(1.0) == pytest.approx(compose(m, 12).upper(1.0), rel=1e-3)
    assert compose(m, 6, cells=2).delta(1.0) == compose(m, 12).delta(1.0)


def test_answers_within_is_the_largest_number() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    k = answers_within(m, "4", "1e-6")
    assert compose(m, k).upper(4.0) <= 1e-6 < compose(m, k + 1).upper(4.0)
    assert answers_within(m, "0.3", "1e-8") == 0
    assert answers_within(m, "4", "1e-6", neighbours="replace") <= k // 2 + 1
    assert answers_within(m, "4", "1e-6", cells=3) == k // 3


@pytest.mark.parametrize("k", [100, 10_000])
def test_many_answers_are_within_one_percent(k: int) -> None:
    s2 = k / 2  # about (3, 1e-6)
    found = composed(discrete_gaussian(s2).columns, k).delta(3.0 * math.sqrt(2) * 1.5)
    assert 0 < found.width <= 0.01


# Another accountant


def theirs(family: ColumnFamily, k: int, epsilon: float, interval: float) -> tuple[float, float]:
    """dp-accounting's optimistic and pessimistic delta, the larger of both changes, for a stationary law.

    Both changes are asked for by hand: its own symmetric=True would compute one and reuse it.
    """
    law = family.stationary
    here = {z: math.log(w / law.total) for z, w in law.items() if w}
    there = {z + 1: p for z, p in here.items()}
    found = []
    for pessimistic in (False, True):
        deltas = [
            pld.from_two_probability_mass_functions(
                q, p, pessimistic_estimate=pessimistic, value_discretization_interval=interval, symmetric=False
            )
            .self_compose(k)
            .get_delta_for_epsilon(epsilon)
            for p, q in ((here, there), (there, here))
        ]
        found.append(max(deltas))
    return found[0], found[1]


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("family", [SYMMETRIC, ASYMMETRIC], ids=["symmetric", "asymmetric"])
def test_dp_accounting_agrees(family: ColumnFamily, epsilon: float, k: int) -> None:
    optimistic, pessimistic = theirs(family, k, epsilon, 1e-4)
    found = composed(family, k).delta(epsilon)
    assert found.lower <= pessimistic * (1 + 1e-9)
    assert optimistic <= found.upper * (1 + 1e-9)
    assert pessimistic - optimistic < 0.01 * pessimistic, "fine enough to say something"


@pytest.mark.slow  # plans are searched for
def test_dp_accounting_agrees_about_the_discrete_gaussian() -> None:
    family = discrete_gaussian(24).columns
    for epsilon, k in ((1.0, 10), (3.0, 10), (3.0, 30), (6.0, 100)):
        optimistic, pessimistic = theirs(family, k, epsilon, 1e-4)
        found = composed(family, k).delta(epsilon)
        assert found.lower <= pessimistic
        assert optimistic <= found.upper
        assert found.upper <= pessimistic * 1.01


def test_the_check_against_dp_accounting_would_notice() -> None:
    """k off by one, or one change forgotten, is outside its interval."""
    optimistic, pessimistic = theirs(ASYMMETRIC, 3, 1.0, 1e-4)
    for wrong in (composed(ASYMMETRIC, 2).delta(1.0), composed(ASYMMETRIC, 4).delta(1.0)):
        assert wrong.upper < optimistic or wrong.lower > pessimistic


# Bad input


@pytest.mark.parametrize("given", [0, -1, 10**12, "0", "-3", "x", 1.5, True, float("nan")])
def test_bad_numbers_of_answers(given: object) -> None:
    m = mechanism(SYMMETRIC)
    for call in (lambda: compose(m, given), lambda: compose([(m, given)])):  # type: ignore[arg-type,list-item]
        with pytest.raises(cv.ParameterError) as caught:
            call()
        message = str(caught.value)
        assert caught.value.argument == "answers"
        assert message.startswith("answers: got ")
        assert "allowed is" in message
        assert "\n" not in message


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("neighbours", "both"),
        ("neighbours", ""),
        ("cells", 0),
        ("cells", 10**9),
        ("cells", "two"),
        ("people", 0),
        ("people", -2),
        ("people", 10**6),
    ],
)
def test_other_bad_arguments(argument: str, given: object) -> None:
    m = mechanism(SYMMETRIC)
    for call in (lambda **bad: compose(m, 2, **bad), lambda **bad: answers_within(m, "1", "1e-6", **bad)):
        with pytest.raises(cv.ParameterError) as caught:
            call(**{argument: given})
        assert caught.value.argument == argument
        assert "allowed is" in str(caught.value)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("0", "1e-6"), ("-1", "1e-6"), ("1", "0"), ("1", "1"), ("nan", "0.1"), ("1", "x"), ("1e9", "0.1")],
)
def test_bad_budgets(epsilon: str, delta: str) -> None:
    with pytest.raises(cv.ParameterError, match="allowed is"):
        answers_within(mechanism(SYMMETRIC), epsilon, delta)


@pytest.mark.parametrize(
    "given", [[], "mechanism", None, 5, [(1, 2)], [mechanism(SYMMETRIC)], [(mechanism(SYMMETRIC),)]]
)
def test_not_a_list_of_mechanisms(given: object) -> None:
    with pytest.raises(cv.RequestError, match="give a mechanism and a number of answers"):
        compose(given)  # type: ignore[arg-type]


def test_answers_beside_a_list() -> None:
    with pytest.raises(cv.RequestError, match="every mechanism comes with its own number"):
        compose([(mechanism(SYMMETRIC), 2)], 3)


def test_an_exact_fraction_is_a_budget_too() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    assert answers_within(m, Fraction(4), Fraction(1, 10**6)) == answers_within(m, "4", "1e-6")


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize("answers", [2, 1000])
@pytest.mark.parametrize(
    "weights", [(1, 2**60 - 2, 1), (1, 2**20, 2**60 - 2 - 2**21, 2**20, 1), (2**60 - 4, 3, 1)], ids=str
)
def test_laws_with_rare_extreme_losses_are_bounded_in_time_and_memory(weights: tuple[int, ...], answers: int) -> None:
    law = Law(weights, len(weights) // 2, 60)
    found = Composition([(answer_of(Columns(law), 2), answers)])
    for epsilon in (-2.0, 1.0, 30.0):
        bounds = found.delta(epsilon)
        assert bounds.lower <= bounds.upper <= 1
        shift = privacy.hockey_stick(law, law.shifted(2), exp_bounds(Fraction(epsilon))[1])
        assert bounds.upper >= float(shift) * (1 - 1e-12)  # one answer alone


def test_epsilons_that_are_no_numbers_or_far_away() -> None:
    m = cv.design(epsilon="0.5", delta="1e-6", policy="signed")
    with pytest.raises(cv.ParameterError, match="epsilon: got nan"):
        cv.compose(m, 5).delta(float("nan"))
    assert cv.compose(m, 5).delta(float("-inf")).lower > 0.999
    edges = 1 - (1 - m.column(100).probability(-m.D)) ** 5
    assert float(edges) * (1 - 1e-9) <= cv.compose(m, 5).upper(float("inf")) <= float(edges) * (1 + 1e-9)
    assert cv.compose(m, 2, people=3).upper(800.0) <= 1
    assert cv.compose(m, 5).lower(-1.0) >= 0.632


def test_mechanisms_chosen_on_the_way_are_charged_what_they_were_certified_at() -> None:
    m = cv.design(epsilon="0.1", delta="1e-9", policy="signed")
    found = cv.compose(m, 5, adaptive=True)
    assert "basic composition" in found.note
    assert found.upper(0.49) == 1
    assert 4.99e-9 < found.upper(0.51) < 5.01e-9
    assert cv.answers_within(m, "1", "1e-6", adaptive=True) == 10
    assert cv.answers_within(m, "1", "4.5e-9", adaptive=True) == 4
    assert cv.compose(m, 5, adaptive=True, neighbours="replace", cells=2).upper(1.9) == 1
    assert found.epsilon(1e-9) is None
    other = cv.compose([(m, 2), (cv.design(epsilon="1", delta="1e-6", policy="signed"), 1)], adaptive=True)
    assert other.upper(1.19) == 1
    assert other.upper(1.21) < 1.1e-6


def test_a_delta_just_below_what_no_epsilon_goes_under() -> None:
    """Beyond every loss delta is that of infinite losses; a float less than that has no epsilon, and is told so."""
    composed_one = cv.compose(cv.design(epsilon="0.1", delta="1e-9", policy="signed"), 1)
    for digits in range(1, 5):
        below = composed_one.upper(600.0)
        for _ in range(digits):
            below = math.nextafter(below, 0)
        assert composed_one.epsilon(below) is None
