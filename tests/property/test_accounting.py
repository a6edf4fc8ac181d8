"""Composition against its definition: a sum over all products of outcomes, in Fractions.

The delta of k answers is the hockey-stick divergence of two product laws. These tests sum it over all products of
likelihood ratios, exactly; only e^epsilon is a bound, to 60 digits. `accounting` computes the same by a grid, a Fourier
transform and error bounds: its bounds must enclose the sum, with no tolerance.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, strategies as st

import countveil as cv
from countveil.accounting import compose
from countveil.accounting.composition import Bounds, Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.laws.law import Law, Laws, LawsByCount
from tests.support.compositions import (
    Ratios,
    change_of,
    changes,
    composed,
    covers,
    encloses,
    hockey_stick,
    mechanism,
    order_bounds,
    together,
)
from tests.support.effort import examples

# Small laws


@st.composite
def laws(draw: st.DrawFn, bits: int = 5, largest: int = 5) -> Law:
    """Any law: asymmetric, with holes, possibly a single point."""
    size = draw(st.integers(1, largest))
    cuts = sorted(draw(st.lists(st.integers(0, 2**bits), min_size=size - 1, max_size=size - 1)))
    weights = [b - a for a, b in zip([0, *cuts], [*cuts, 2**bits], strict=True)]
    return Law(tuple(weights), draw(st.integers(-1, size)), bits)


@st.composite
def symmetric_laws(draw: st.DrawFn, bits: int = 7) -> Law:
    half = draw(st.lists(st.integers(0, 2 ** (bits - 1) // 4), min_size=1, max_size=3))
    return Law((*half[::-1], 2**bits - 2 * sum(half), *half), len(half), bits)


@st.composite
def falling_laws(draw: st.DrawFn, bits: int = 16) -> Law:
    """Laws like those of mechanisms: they fall from 0 on both sides to a small edge, without holes; not symmetric."""
    sides = []
    for _ in range(2):
        ratio = draw(st.fractions(Fraction(1, 12), Fraction(3, 4), max_denominator=12))
        sides.append([max(1, int(2 ** (bits - 3) * ratio**i)) for i in range(1, draw(st.integers(2, 4)))])
    left, right = sides
    return Law((*left[::-1], 2**bits - sum(left) - sum(right), *right), len(left), bits)


LAWS = st.one_of(laws(), symmetric_laws(), falling_laws())
EPSILONS = st.one_of(
    st.floats(-6, 12, allow_nan=False),
    st.sampled_from([0.0, 1e-9, -1e-9, 1.0, 0.25, 700.0, -40.0]),
)
TINY = st.integers(-3, 3)
"""Distances between epsilon and a loss, in units in the last place: so near, rounding decides which losses count."""


def beside_a_loss(pair: Ratios, which: int, ulps: int) -> float:
    """An epsilon at, or just beside, one of the losses that all answers together can have."""
    finite = sorted(r for r in pair if r is not None)
    if not finite:
        return 0.0
    ratio = finite[which % len(finite)]
    epsilon = math.log(ratio.numerator) - math.log(ratio.denominator)
    for _ in range(abs(ulps)):
        epsilon = math.nextafter(epsilon, math.copysign(math.inf, ulps))
    return epsilon


# One mechanism whose noise does not depend on the count


@given(LAWS, st.integers(1, 4), st.lists(EPSILONS, min_size=3, max_size=3), st.integers(0, 100), TINY)
@examples(100)
def test_bounds_enclose_the_delta_of_several_answers_of_one_law(
    law: Law, k: int, epsilons: list[float], which: int, ulps: int
) -> None:
    """For both changes and any epsilon, also next to a loss, where rounding decides which losses count."""
    laws = LawsByCount(law)
    ways = [together([pair] * k) for (pair,) in changes(laws)]
    composition = compose(mechanism(laws), k)
    for epsilon in [*epsilons, beside_a_loss(ways[0], which, ulps)]:
        assert encloses(composition.delta(epsilon), ways, epsilon), epsilon


@given(falling_laws(), st.integers(2, 4), st.floats(0, 3))
@examples(40)
def test_the_bounds_of_a_composed_delta_are_narrow(law: Law, k: int, epsilon: float) -> None:
    """That bounds enclose delta is not enough: 0 and 1 always do."""
    bounds = composed(LawsByCount(law), k).delta(epsilon)
    assert bounds.width < 0.02, bounds


@given(laws(), st.integers(1, 3), st.integers(2, 3), EPSILONS)
@examples(60)
def test_the_upper_bound_holds_for_every_mixture_of_shifts_up_to_the_sensitivity(
    law: Law, k: int, sensitivity: int, epsilon: float
) -> None:
    """For a person with up to d rows the upper bound covers every mixture of shifts 1..d; some mixture reaches the
    lower bound."""
    laws = LawsByCount(law)
    bounds = composed(laws, k, sensitivity).delta(epsilon)
    low, high = order_bounds(epsilon)
    worst = Fraction(0)
    for pairs in changes(laws, sensitivity):
        for choice in combinations_with_replacement(pairs, k):
            way = together(choice)
            assert Fraction(bounds.upper) >= hockey_stick(way, low)
            worst = max(worst, hockey_stick(way, high))
    assert Fraction(bounds.lower) <= worst


@given(laws(), st.integers(1, 40))
@examples(40)
def test_delta_at_a_large_epsilon_is_the_probability_of_infinite_losses(law: Law, k: int) -> None:
    """At a large epsilon only outcomes that a neighbour cannot have count: 1 - (1 - p)^k."""
    laws = LawsByCount(law)
    edge = max(sum((p for r, p in pair.items() if r is None), Fraction(0)) for (pair,) in changes(laws))
    exact = 1 - (1 - edge) ** k
    bounds = composed(laws, k).delta(200.0)
    assert Fraction(bounds.lower) <= exact <= Fraction(bounds.upper)
    assert bounds.upper <= float(exact) * (1 + 1e-9)
    assert bounds.lower >= float(exact) * (1 - 1e-9)


# LawsByCount: a law per count


@st.composite
def laws_by_count(draw: st.DrawFn) -> LawsByCount:
    law = laws(bits=4, largest=4)
    small = tuple(draw(st.lists(law, min_size=1, max_size=3)))
    top = tuple(draw(st.lists(law, max_size=1)))
    return LawsByCount(draw(law), small=small, hi=len(small) + 2 if top else None, top=top)


@given(laws_by_count(), st.integers(1, 3), EPSILONS, st.integers(0, 100), TINY)
@examples(100)
def test_bounds_hold_for_every_mixture_of_the_laws_of_counts(
    laws: LawsByCount, k: int, epsilon: float, which: int, ulps: int
) -> None:
    """An analyst chooses the cell of every answer: all products of the laws' pairs, in both directions."""
    composition = compose(mechanism(laws), k)
    ways = [together(choice) for pairs in changes(laws) for choice in combinations_with_replacement(pairs, k)]
    for e in (epsilon, beside_a_loss(ways[which % len(ways)], which, ulps)):
        assert encloses(composition.delta(e), ways, e), e


def law_of_count(n: int, *weights: int) -> Law:
    """Outcomes Y = 0, 1, 2 of the count n."""
    return Law(weights, n, 4)


COUNTEREXAMPLE = LawsByCount(
    law_of_count(2, 1, 10, 5),
    small=(law_of_count(0, 0, 10, 6), law_of_count(1, 3, 1, 12), law_of_count(2, 1, 10, 5)),
    hi=2,
)
"""Laws of the counts 0, 1 and 2, of which the two pairs of neighbours differ in opposite ways."""


def same_count(laws: Laws, k: int, epsilon: float) -> Fraction:
    """The largest delta of k answers that are all about the same count; as a bound this is unsound."""
    low, _ = order_bounds(epsilon)
    return max(hockey_stick(together([pair] * k), low) for pairs in changes(laws) for pair in pairs)


def test_composing_each_count_with_itself_is_unsound_and_compose_is_sound() -> None:
    epsilon = math.log(5)
    ways = [together(choice) for pairs in changes(COUNTEREXAMPLE) for choice in combinations_with_replacement(pairs, 2)]
    low, _ = order_bounds(epsilon)
    mixed = max(hockey_stick(way, low) for way in ways)
    unsound = same_count(COUNTEREXAMPLE, 2, epsilon)
    assert mixed > unsound + Fraction(3, 20)
    bounds = compose(mechanism(COUNTEREXAMPLE), 2).delta(epsilon)
    assert encloses(bounds, ways, epsilon)
    assert not all(covers(float(unsound), way, epsilon) for way in ways), "the check must reject the unsound delta"


def test_the_curve_of_a_pair_below_order_1_raises_the_delta_of_the_composition() -> None:
    """A pair whose curve is 0 from order 1.2 on still raises the delta of another pair: its curve below 1 matters."""
    loud, quiet = LawsByCount(Law((1, 6, 1), 1, 3)), LawsByCount(Law((1,) * 16, 8, 4))
    epsilon = 1.5
    for a, b in zip(changes(loud), changes(quiet), strict=True):
        both = together([a[0], b[0]])
        low, _ = order_bounds(epsilon)
        bounds = compose([(mechanism(loud), 1), (mechanism(quiet), 1)]).delta(epsilon)
        assert encloses(bounds, [both], epsilon)
        assert hockey_stick(both, low) > hockey_stick(a[0], low)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_bounds_enclose_the_delta_of_a_mechanism_with_a_law_per_count(k: int) -> None:
    m = cv.design(epsilon="1", eta="0.4", D=3, unbiased_from=2, method="program")
    for epsilon in (-0.5, 0.3, 1.0, 2.5):
        ways = [together(c) for pairs in changes(m.laws) for c in combinations_with_replacement(thin(pairs), k)]
        assert encloses(compose(m, k).delta(epsilon), ways, epsilon)


def thin(pairs: list[Ratios]) -> list[Ratios]:
    """The three pairs of largest delta: products of all pairs would take too long."""
    order = Fraction(2)
    return sorted(pairs, key=lambda pair: hockey_stick(pair, order))[-3:]


# Remaps: post-processing of a signed law, and moves, which cost slack


def two_answers(p: list[tuple[int, int]], q: list[tuple[int, int]], bits: int, order: Fraction) -> Fraction:
    """The hockey stick of two answers, by weights (P, Q) of the outcomes of each, over 2**bits."""
    top, bottom = order.numerator, order.denominator
    excess = (bottom * a * c - top * b * d for (a, b), (c, d) in product(p, q))
    return Fraction(sum(x for x in excess if x > 0), bottom << (2 * bits))


def weight_pairs(laws: Laws, n: int, m: int, bits: int) -> list[tuple[int, int]]:
    p, q = laws.law(n).with_bits(bits), laws.law(m).with_bits(bits)
    last = max(n + p.right, m + q.right)
    return [(p.weight(y - n), q.weight(y - m)) for y in range(last + 1) if p.weight(y - n)]


@pytest.mark.parametrize("request_", [{"epsilon": "1", "delta": "1e-3"}, {"epsilon": "0.7", "eta": "0.3", "D": 8}])
@pytest.mark.parametrize("epsilon", [-0.4, 0.7, 2.0, 6.0])
def test_bounds_hold_for_the_actual_laws_of_a_remap(request_: dict[str, object], epsilon: float) -> None:
    m = cv.design(**request_, method="remap")  # type: ignore[arg-type]
    bits = max(m.law(n).bits for n in range(6))
    upper = compose(m, 2).upper(epsilon)
    low, _ = order_bounds(epsilon)
    coarse = Fraction(math.floor(low * 2**40), 2**40)  # a slightly smaller order makes delta slightly larger
    steps = [(n, n + 1) for n in (0, 1, 2, 4, m.certificate.stationary_from)]
    worst = Fraction(0)
    for sign in (1, -1):
        moved = [weight_pairs(m.laws, *pair[::sign], bits) for pair in steps]
        for a, b in combinations_with_replacement(moved, 2):
            worst = max(worst, two_answers(a, b, bits, coarse))
    assert Fraction(upper) * (1 + Fraction(1, 10**9)) >= worst
    assert compose(m, 2).lower(epsilon) <= worst


# Lists of mechanisms, tables, replaced persons, groups


@given(LAWS, laws(), st.integers(1, 2), st.integers(1, 2), EPSILONS)
@examples(80)
def test_bounds_enclose_the_delta_of_a_list_of_mechanisms(a: Law, b: Law, i: int, j: int, epsilon: float) -> None:
    composition = compose([(mechanism(LawsByCount(a)), i), (mechanism(LawsByCount(b)), j)])
    ways = [
        together([p[0]] * i + [q[0]] * j) for p, q in zip(changes(LawsByCount(a)), changes(LawsByCount(b)), strict=True)
    ]
    assert encloses(composition.delta(epsilon), ways, epsilon)


@given(LAWS, st.integers(1, 2), st.integers(1, 2), EPSILONS)
@examples(80)
def test_replacing_a_person_is_composed_as_one_cell_up_and_one_cell_down(
    law: Law, k: int, cells: int, epsilon: float
) -> None:
    (up,), (down,) = changes(LawsByCount(law))
    both = together([up, down] * k * cells if k * cells < 4 else [up, down] * 2)
    bounds = composed(LawsByCount(law), k, neighbours="replace", cells=cells).delta(epsilon)
    if k * cells < 4:
        assert encloses(bounds, [both], epsilon)
    else:
        assert covers(bounds.upper, both, epsilon)


@given(laws_by_count(), EPSILONS)
@examples(40)
def test_for_replace_neighbours_the_pairs_of_both_changed_cells_are_composed(laws: LawsByCount, epsilon: float) -> None:
    up, down = changes(laws)
    bounds = composed(laws, 1, neighbours="replace").delta(epsilon)
    assert encloses(bounds, [together(pair) for pair in product(up, down)], epsilon)


def test_replacing_a_person_differs_from_the_worse_change_made_twice() -> None:
    """For an asymmetric law, one move up and one down can be worse than two moves in the same direction."""
    law, epsilon = Law((1, 12, 3), 1, 4), math.log(8)
    (up,), (down,) = changes(LawsByCount(law))
    low, _ = order_bounds(epsilon)
    apart = max(hockey_stick(together([pair] * 2), low) for pair in (up, down))
    mixed = together([up, down])
    composition = composed(LawsByCount(law), 1, neighbours="replace")
    assert encloses(composition.delta(epsilon), [mixed], epsilon)
    assert apart != hockey_stick(mixed, low)


@given(LAWS, st.integers(1, 2), st.integers(1, 3), EPSILONS)
@examples(60)
def test_cells_of_one_person_count_like_answers(law: Law, k: int, cells: int, epsilon: float) -> None:
    ways = [together([pair] * min(4, k * cells)) for (pair,) in changes(LawsByCount(law))]
    bounds = composed(LawsByCount(law), k, cells=cells).delta(epsilon)
    if k * cells <= 4:
        assert encloses(bounds, ways, epsilon)
    else:
        assert all(covers(bounds.upper, way, epsilon) for way in ways)


@cache
def partitions(g: int, largest: int | None = None) -> list[tuple[int, ...]]:
    """The ways to write g as a sum: the numbers of the g persons in each cell."""
    if g == 0:
        return [()]
    return [(first, *rest) for first in range(min(g, largest or g), 0, -1) for rest in partitions(g - first, first)]


@given(st.one_of(symmetric_laws(), falling_laws()), st.integers(1, 2), st.integers(2, 3), st.floats(-1, 9))
@examples(60)
def test_the_upper_bound_holds_for_every_distribution_of_a_group_over_cells(
    law: Law, k: int, people: int, epsilon: float
) -> None:
    """g persons in one cell (a shift of g), in g different cells, or any distribution between."""
    laws = LawsByCount(law)
    bounds = composed(laws, k, people=people).delta(epsilon)
    for shares in partitions(people):
        for sign in (1, -1):
            steps = [change_of(laws, *(10, 10 + share)[::sign]) for share in shares]
            assert covers(bounds.upper, together(steps * k), epsilon), shares


def test_the_upper_bound_of_a_group_holds_if_one_person_is_added_and_another_removed() -> None:
    """One person added and another removed, in different cells, are also a group of two."""
    law = Law((1, 12, 3), 1, 4)
    (up,), (down,) = changes(LawsByCount(law))
    for epsilon in (0.0, 1.0, 3.0, 8.0):
        assert covers(composed(LawsByCount(law), 1, people=2).upper(epsilon), together([up, down]), epsilon)


# Planted errors: the checks above must detect each of them

ASYMMETRIC = LawsByCount(Law((1, 9, 21, 1), 2, 5))


def bounds_with_error(error: str, k: int, epsilon: float) -> Bounds:
    """k answers of an asymmetric law, computed with a mistake."""
    answer = answer_of(ASYMMETRIC, 1)
    pairs, count = answer.pairs, k
    if error.startswith("only "):
        change = next(c for c in pairs if c.value == error.removeprefix("only "))
        pairs = dict.fromkeys(pairs, pairs[change])
    elif error == "edge mass dropped":
        cut = {c: tuple(type(p)(p.p, p.loss, 0.0) for p in each) for c, each in pairs.items()}
        pairs = cut
    elif error == "one answer less":
        count = k - 1
    elif error == "one answer more":
        count = k + 1
    elif error == "losses halved":
        pairs = {c: tuple(type(p)(p.p, p.loss / 2, p.infinite) for p in each) for c, each in pairs.items()}
    return Composition([(type(answer)(pairs, answer.slack, answer.symmetric), count)]).delta(epsilon)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    "error",
    ["none", "only add", "only remove", "edge mass dropped", "one answer less", "one answer more", "losses halved"],
)
def test_the_check_of_bounds_detects_planted_errors(error: str, k: int) -> None:
    ways = [together([pair] * k) for (pair,) in changes(ASYMMETRIC)]
    detected = [
        not encloses(bounds_with_error(error, k, epsilon), ways, epsilon) for epsilon in (-1.0, 0.0, 1.0, 3.0, 50.0)
    ]
    assert any(detected) == (error != "none")


def test_the_check_of_bounds_uses_the_worse_change() -> None:
    """The check rejects the delta of the better change, and accepts that of the worse one."""
    law = Law((1, 3, 12), 1, 4)
    ways = [together([pair] * 2) for (pair,) in changes(LawsByCount(law))]
    low, _ = order_bounds(2.0)
    deltas = [hockey_stick(way, low) for way in ways]
    assert deltas[0] != deltas[1]
    worst, other = max(deltas), min(deltas)
    assert not encloses(Bounds(0.0, float(other), float(other)), ways, 2.0)
    assert encloses(Bounds(0.0, float(worst), float(worst) * (1 + 1e-15)), ways, 2.0)
