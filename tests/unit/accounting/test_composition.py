"""Corner cases of composition: extreme epsilons, groups, bad input, and a comparison with dp-accounting."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

import countveil as cv
from countveil.accounting import affordable_answers, compose
from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.loss_grid import above, below
from countveil.accounting.privacy_loss import answer_of, pair_of
from countveil.errors import ParameterError
from countveil.laws import privacy
from countveil.laws.law import Law, Laws, LawsByCount
from countveil.literature.gaussian import discrete_gaussian
from countveil.numeric.exact_numbers import exp_bounds
from tests.support.compositions import changes, composed, encloses, hockey_stick, mechanism, order_bounds, together

SYMMETRIC = LawsByCount(Law((1, 4, 22, 4, 1), 2, 5))
ASYMMETRIC = LawsByCount(Law((1, 6, 40, 15, 2), 2, 6))
BY_COUNT = LawsByCount(Law((2, 12, 2), 1, 4), small=(Law((10, 5, 1), 0, 4), Law((3, 12, 1), 1, 4)))


def test_epsilon_is_the_inverse_of_delta() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    composition = compose(m, 20)
    for delta in (1e-3, 1e-6):
        epsilon = composition.epsilon(delta)
        assert epsilon is not None
        assert epsilon.lower <= epsilon.estimate <= epsilon.upper <= epsilon.lower * 1.01
        assert composition.upper(epsilon.upper) <= delta < composition.upper(epsilon.upper * (1 - 1e-6))
        assert delta < composition.lower(epsilon.lower) <= delta * (1 + 1e-6), "delta is too large at the lower end"


@pytest.mark.parametrize("adaptive", [False, True])
def test_epsilon_and_delta_may_be_decimal_texts_or_fractions(adaptive: bool) -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    composition = compose(m, 3, adaptive=adaptive)
    assert composition.delta("1.5") == composition.delta(Fraction(3, 2)) == composition.delta(1.5)
    assert composition.epsilon("0.125") == composition.epsilon(Fraction(1, 8)) == composition.epsilon(0.125)
    third = composition.delta(Fraction(1, 3))  # not a float: each bound uses the float on its safe side
    assert third.lower <= composition.delta(1 / 3).upper <= third.upper
    for wrong in ("x", None, float("nan")):
        with pytest.raises(ParameterError, match="epsilon: got"):
            composition.delta(wrong)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="delta: got"):
            composition.epsilon(wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="delta: got 0"):
        composition.epsilon("0")


def test_adaptive_and_fixed_mechanisms_compose_to_one_type_with_different_notes() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    fixed, adaptive = compose(m, 3), compose(m, 3, adaptive=True)
    assert type(fixed) is type(adaptive) is Composition
    assert "fixed in advance" in fixed.note
    assert "chosen adaptively" in adaptive.note
    assert adaptive.upper("1.5") >= 3 * m.delta
    assert adaptive.upper("1.4999999") == 1.0
    assert adaptive.lower(1.0) == fixed.lower(1.0)


def test_a_delta_below_the_probability_of_infinite_losses_has_no_epsilon() -> None:
    """Infinite losses have probability 1 - (1 - p)^k at every epsilon; no epsilon gives a smaller delta."""
    composition = composed(SYMMETRIC, 3)
    edge = 1 - (1 - 1 / 32) ** 3
    assert composition.epsilon(edge * 0.99) is None
    assert composition.epsilon(edge * 1.01) is not None
    assert composition.epsilon(1.0) == Bounds(0.0, 0.0, 0.0)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_neighbours_without_a_common_outcome_have_delta_1(k: int) -> None:
    """With noise of -1..1, a shift of 3 leaves no common outcome: delta is 1 at every epsilon."""
    m = cv.design(epsilon="1", eta="0.4", D=1, sensitivity=3, policy="signed")
    composition = compose(m, k)
    for epsilon in (-1.0, 0.0, 30.0):
        assert composition.delta(epsilon).upper == 1.0
        assert composition.delta(epsilon).lower > 1 - 1e-9
    assert composition.epsilon(0.5) is None
    assert affordable_answers(m, "5", "0.5") == 0


@pytest.mark.parametrize(
    ("law", "k", "epsilon"),
    [
        (Law((1, 50, 1, 12), 1, 6), 2, 7.824046010856291),
        (Law((1, 12, 48, 3), 2, 6), 3, 8.317766166719343),
        (Law((1, 2, 1), 1, 2), 1, math.log(2)),
    ],
)
def test_bounds_enclose_delta_at_and_beside_the_largest_loss(law: Law, k: int, epsilon: float) -> None:
    """Around the largest finite loss, one unit in the last place of epsilon decides whether that loss counts."""
    ways = [together([pair] * k) for (pair,) in changes(LawsByCount(law))]
    for direction in (-math.inf, math.inf):
        assert encloses(composed(LawsByCount(law), k).delta(epsilon), ways, epsilon)
        epsilon = math.nextafter(epsilon, direction)


@pytest.mark.parametrize("step", [0.003, 0.05, 0.4])
@pytest.mark.parametrize("laws", [SYMMETRIC, ASYMMETRIC, BY_COUNT], ids=["symmetric", "asymmetric", "by count"])
def test_laws_on_the_loss_grid_enclose_the_exact_pairs(laws: Laws, step: float) -> None:
    """One answer: the law above dominates every pair at every order, the law below is dominated by its pair."""
    counts = [(n, n + 1) for n in range(3)]
    pairs = [pair_of(laws.law(n), laws.law(m).shift(m - n)) for n, m in counts]
    over, under = above(pairs, step), [below(pair, step) for pair in pairs]
    exact = [together([pair]) for pair in changes(laws)[0]]
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
def test_larger_groups_have_larger_deltas() -> None:
    m = cv.design(epsilon="0.2", delta="1e-9", policy="signed")
    deltas = [compose(m, 5, people=g).upper(2.0) for g in (1, 2, 3, 5)]
    assert deltas == sorted(deltas)
    assert deltas[-1] > deltas[0]
    assert compose(m, 5, people=3).upper(-1.0) == 1.0


def test_replacing_a_person_costs_more_than_adding_one_and_cells_count_like_answers() -> None:
    m = cv.design(epsilon="0.2", delta="1e-9", policy="signed")
    assert compose(m, 6, neighbours="replace").upper(1.0) > compose(m, 6).upper(1.0)
    assert compose(m, 6, neighbours="replace").upper(1.0) == pytest.approx(compose(m, 12).upper(1.0), rel=1e-3)
    assert compose(m, 6, cells=2).delta(1.0) == compose(m, 12).delta(1.0)


def test_affordable_answers_returns_the_largest_number_within_the_budget() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    k = affordable_answers(m, "4", "1e-6")
    assert compose(m, k).upper(4.0) <= 1e-6 < compose(m, k + 1).upper(4.0)
    assert affordable_answers(m, "0.3", "1e-8") == 0
    assert affordable_answers(m, "4", "1e-6", neighbours="replace") <= k // 2 + 1
    assert affordable_answers(m, "4", "1e-6", cells=3) == k // 3


@pytest.mark.parametrize("k", [100, 10_000])
def test_the_bounds_on_delta_of_many_answers_are_within_one_percent(k: int) -> None:
    s2 = k / 2  # about (3, 1e-6)
    bounds = composed(discrete_gaussian(s2).laws, k).delta(3.0 * math.sqrt(2) * 1.5)
    assert 0 < bounds.width <= 0.01


# Many different laws


@pytest.mark.parametrize("k", [1, 3])
def test_bounds_enclose_the_delta_of_nine_different_laws(k: int) -> None:
    """More laws than have all their transforms at all frequencies."""
    laws = [LawsByCount(Law((400 - 9 * i, 2**10 - 800 + 18 * i, 400 - 9 * i), 1, 10)) for i in range(9)]
    composition = Composition([(answer_of(law, 1), 1 if i else k) for i, law in enumerate(laws)])
    ways = [
        together([*(pair for law in laws for pair in changes(law)[i]), *changes(laws[0])[i] * (k - 1)]) for i in (0, 1)
    ]
    for epsilon in (0.0, 1.0, 2.5, 6.0):
        bounds = composition.delta(epsilon)
        assert encloses(bounds, ways, epsilon)
        assert bounds.width < 0.02


@pytest.mark.slow  # a thousand laws
def test_a_thousand_different_laws_have_narrow_bounds_in_seconds() -> None:
    terms = [(answer_of(discrete_gaussian(30_000 + 40 * i).laws, 1), 100) for i in range(1000)]
    started = time.process_time()
    bounds = Composition(terms).delta(8.0)
    assert time.process_time() - started < 40  # about 5 on an idle machine
    assert bounds.lower > 1e-7
    assert bounds.width < 0.01


# Another accountant


def theirs(laws: Laws, k: int, epsilon: float, interval: float) -> tuple[float, float]:
    """dp-accounting's optimistic and pessimistic delta, the larger of both changes, for a stationary law.

    Each change is computed here: symmetric=True would compute one change and use it for both.
    """
    law = laws.stationary
    here = {z: math.log(w / law.total) for z, w in law.items() if w}
    there = {z + 1: p for z, p in here.items()}
    estimates = []
    for pessimistic in (False, True):
        deltas = [
            pld.from_two_probability_mass_functions(
                q, p, pessimistic_estimate=pessimistic, value_discretization_interval=interval, symmetric=False
            )
            .self_compose(k)
            .get_delta_for_epsilon(epsilon)
            for p, q in ((here, there), (there, here))
        ]
        estimates.append(max(deltas))
    return estimates[0], estimates[1]


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("laws", [SYMMETRIC, ASYMMETRIC], ids=["symmetric", "asymmetric"])
def test_dp_accounting_agrees_on_small_laws(laws: Laws, epsilon: float, k: int) -> None:
    optimistic, pessimistic = theirs(laws, k, epsilon, 1e-4)
    bounds = composed(laws, k).delta(epsilon)
    assert bounds.lower <= pessimistic * (1 + 1e-9)
    assert optimistic <= bounds.upper * (1 + 1e-9)
    assert pessimistic - optimistic < 0.01 * pessimistic, "the interval of dp-accounting must be narrow"


@pytest.mark.slow  # plans are searched for
def test_dp_accounting_agrees_on_the_discrete_gaussian() -> None:
    laws = discrete_gaussian(24).laws
    for epsilon, k in ((1.0, 10), (3.0, 10), (3.0, 30), (6.0, 100)):
        optimistic, pessimistic = theirs(laws, k, epsilon, 1e-4)
        bounds = composed(laws, k).delta(epsilon)
        assert bounds.lower <= pessimistic
        assert optimistic <= bounds.upper
        assert bounds.upper <= pessimistic * 1.01


@pytest.mark.slow  # dp-accounting composes every law on its own
@pytest.mark.parametrize(("number", "epsilon"), [(2, 4.0863), (10, 3.8486), (100, 3.798)])
def test_dp_accounting_agrees_on_different_laws(number: int, epsilon: float) -> None:
    """Delta is near 1e-6. Symmetric laws: one change is enough."""
    laws = [discrete_gaussian(12 * number + 8 * i).laws for i in range(number)]
    estimates = []
    for pessimistic in (False, True):
        whole = None
        for law in (one.stationary for one in laws):
            here = {z: math.log(w / law.total) for z, w in law.items() if w}
            one_answer = pld.from_two_probability_mass_functions(
                {z + 1: p for z, p in here.items()},
                here,
                pessimistic_estimate=pessimistic,
                value_discretization_interval=1e-4,
                symmetric=False,
            )
            ten = one_answer.self_compose(10)
            whole = ten if whole is None else whole.compose(ten)
        assert whole is not None
        estimates.append(whole.get_delta_for_epsilon(epsilon))
    bounds = Composition([(answer_of(law, 1), 10) for law in laws]).delta(epsilon)
    assert bounds.lower <= estimates[1]
    assert estimates[0] <= bounds.upper
    assert 5e-7 < bounds.lower <= bounds.upper < 2e-6
    assert bounds.width < 0.01


def test_a_wrong_number_of_answers_is_outside_the_interval_of_dp_accounting() -> None:
    optimistic, pessimistic = theirs(ASYMMETRIC, 3, 1.0, 1e-4)
    for wrong in (composed(ASYMMETRIC, 2).delta(1.0), composed(ASYMMETRIC, 4).delta(1.0)):
        assert wrong.upper < optimistic or wrong.lower > pessimistic


# Bad input


@pytest.mark.parametrize("given", [0, -1, 10**12, "0", "-3", "x", 1.5, True, float("nan")])
def test_bad_numbers_of_answers_are_refused(given: object) -> None:
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
def test_bad_neighbours_cells_and_people_are_refused(argument: str, given: object) -> None:
    m = mechanism(SYMMETRIC)
    for call in (lambda **bad: compose(m, 2, **bad), lambda **bad: affordable_answers(m, "1", "1e-6", **bad)):
        with pytest.raises(cv.ParameterError) as caught:
            call(**{argument: given})
        assert caught.value.argument == argument
        assert "allowed is" in str(caught.value)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("0", "1e-6"), ("-1", "1e-6"), ("1", "0"), ("1", "1"), ("nan", "0.1"), ("1", "x"), ("1e9", "0.1")],
)
def test_bad_budgets_are_refused(epsilon: str, delta: str) -> None:
    with pytest.raises(cv.ParameterError, match="allowed is"):
        affordable_answers(mechanism(SYMMETRIC), epsilon, delta)


@pytest.mark.parametrize(
    "given", [[], "mechanism", None, 5, [(1, 2)], [mechanism(SYMMETRIC)], [(mechanism(SYMMETRIC),)]]
)
def test_anything_but_mechanisms_is_refused(given: object) -> None:
    with pytest.raises(cv.RequestError, match="give a mechanism and a number of answers"):
        compose(given)  # type: ignore[arg-type]


def test_the_argument_answers_is_refused_with_a_list_of_mechanisms() -> None:
    with pytest.raises(cv.RequestError, match="every mechanism has its own number"):
        compose([(mechanism(SYMMETRIC), 2)], 3)


def test_a_budget_may_be_given_as_fractions() -> None:
    m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    assert affordable_answers(m, Fraction(4), Fraction(1, 10**6)) == affordable_answers(m, "4", "1e-6")


@pytest.mark.slow  # plans are searched for
@pytest.mark.parametrize("answers", [2, 1000])
@pytest.mark.parametrize(
    "weights", [(1, 2**60 - 2, 1), (1, 2**20, 2**60 - 2 - 2**21, 2**20, 1), (2**60 - 4, 3, 1)], ids=str
)
def test_laws_with_rare_extreme_losses_take_bounded_time_and_memory(weights: tuple[int, ...], answers: int) -> None:
    law = Law(weights, len(weights) // 2, 60)
    composition = Composition([(answer_of(LawsByCount(law), 2), answers)])
    for epsilon in (-2.0, 1.0, 30.0):
        bounds = composition.delta(epsilon)
        assert bounds.lower <= bounds.upper <= 1
        shift = privacy.hockey_stick(law, law.shift(2), exp_bounds(Fraction(epsilon))[1])
        assert bounds.upper >= float(shift) * (1 - 1e-12)  # one answer alone


def test_nan_is_refused_and_infinite_epsilons_have_bounds() -> None:
    m = cv.design(epsilon="0.5", delta="1e-6", policy="signed")
    with pytest.raises(cv.ParameterError, match="epsilon: got nan"):
        cv.compose(m, 5).delta(float("nan"))
    assert cv.compose(m, 5).delta(float("-inf")).lower > 0.999
    edges = 1 - (1 - m.law(100).probability(-m.D)) ** 5
    assert float(edges) * (1 - 1e-9) <= cv.compose(m, 5).upper(float("inf")) <= float(edges) * (1 + 1e-9)
    assert cv.compose(m, 2, people=3).upper(800.0) <= 1
    assert cv.compose(m, 5).lower(-1.0) >= 0.632


def test_adaptive_mechanisms_are_charged_their_certified_epsilon_and_delta() -> None:
    m = cv.design(epsilon="0.1", delta="1e-9", policy="signed")
    composition = cv.compose(m, 5, adaptive=True)
    assert "basic composition" in composition.note
    assert composition.upper(0.49) == 1
    assert 4.99e-9 < composition.upper(0.51) < 5.01e-9
    assert cv.affordable_answers(m, "1", "1e-6", adaptive=True) == 10
    assert cv.affordable_answers(m, "1", "4.5e-9", adaptive=True) == 4
    assert cv.compose(m, 5, adaptive=True, neighbours="replace", cells=2).upper(1.9) == 1
    assert composition.epsilon(1e-9) is None
    other = cv.compose([(m, 2), (cv.design(epsilon="1", delta="1e-6", policy="signed"), 1)], adaptive=True)
    assert other.upper(1.19) == 1
    assert other.upper(1.21) < 1.1e-6


def test_a_delta_one_float_below_the_least_possible_has_no_epsilon() -> None:
    """Beyond the largest finite loss, delta is the probability of infinite losses; no epsilon gives less."""
    one_answer = cv.compose(cv.design(epsilon="0.1", delta="1e-9", policy="signed"), 1)
    for digits in range(1, 5):
        below = one_answer.upper(600.0)
        for _ in range(digits):
            below = math.nextafter(below, 0)
        assert one_answer.epsilon(below) is None
