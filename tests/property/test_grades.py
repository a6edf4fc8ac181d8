"""Grades in any order, against their definition: an adversary that chooses grade and pair after every outcome, exactly.

`best_attack` is the largest divergence that any strategy reaches, by recursion over the answers that are left, in
Fractions. The certified bound composes one dominating pair for each answer, in no order at all, and must never be less.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, strategies as st

from countveil.accounting.composition import Composition
from countveil.accounting.privacy_loss import answer_of
from countveil.laws.law import Law, LawsByCount, neighbour_pairs
from tests.support.compositions import order_bounds
from tests.support.effort import examples

Pair = tuple[tuple[Fraction, Fraction], ...]
"""The probabilities (P, Q) of every outcome."""


def pairs_of(laws: LawsByCount, sensitivity: int, *, added: bool) -> list[Pair]:
    """The pairs of laws of neighbouring counts, in one direction, from the definition: every shift of every count."""
    pairs = []
    last = laws.stationary_from + 1
    for n in range(last + 1):
        for s in range(1, sensitivity + 1):
            here, there = laws.law(n), laws.law(n + s).shift(s)
            outcomes = range(-max(here.left, there.left), max(here.right, there.right) + 1)
            pair = tuple((here.probability(y), there.probability(y)) for y in outcomes)
            pairs.append(pair if added else tuple((q, p) for p, q in pair))
    return list(dict.fromkeys(pairs))


def best_attack(grades: list[tuple[list[Pair], int]], order: Fraction) -> Fraction:
    """The largest P(S) - order Q(S) of an adversary that chooses a grade and a pair after every outcome."""

    @cache
    def attack(left: tuple[int, ...], order: Fraction) -> Fraction:
        best = max(Fraction(0), 1 - order)
        for j, (pairs, _) in enumerate(grades):
            if not left[j]:
                continue
            after = (*left[:j], left[j] - 1, *left[j + 1 :])
            for pair in pairs:
                best = max(best, sum((p * attack(after, order * q / p) for p, q in pair if p), Fraction(0)))
        return best

    return attack(tuple(k for _, k in grades), order)


@st.composite
def small_laws(draw: st.DrawFn) -> Law:
    """Three outcomes at most, symmetric or not, some of them impossible."""
    cuts = sorted(draw(st.lists(st.integers(0, 16), min_size=2, max_size=2)))
    return Law((cuts[0], cuts[1] - cuts[0], 16 - cuts[1]), draw(st.integers(0, 2)), 4)


@st.composite
def grades(draw: st.DrawFn, answers: int) -> list[tuple[LawsByCount, int, int]]:
    """(laws, sensitivity, answers) of two grades; the laws of one may depend on the count."""
    first = draw(st.integers(1, answers - 1))
    small = draw(st.lists(small_laws(), max_size=1))
    sensitivity = draw(st.sampled_from([1, 1, 2])) if answers == 2 else 1
    return [
        (LawsByCount(draw(small_laws()), tuple(small)), sensitivity, first),
        (LawsByCount(draw(small_laws())), 1, answers - first),
    ]


def check(given: list[tuple[LawsByCount, int, int]], epsilon: float) -> None:
    bound = Composition([(answer_of(laws, s), k) for laws, s, k in given]).upper(epsilon)
    for added in (True, False):
        parts = [(pairs_of(laws, s, added=added), k) for laws, s, k in given]
        assert best_attack(parts, order_bounds(epsilon)[1]) <= Fraction(bound)


EPSILONS = st.floats(-0.5, 3.0)


@pytest.mark.slow  # exact recursion over every strategy, in hundreds of cases
@examples(300)
@given(grades(2), EPSILONS)
def test_the_delta_of_two_answers_in_any_order_of_grades_is_within_the_bound(
    given: list[tuple[LawsByCount, int, int]], x: float
) -> None:
    check(given, x)


@pytest.mark.slow  # as above
@examples(300)
@given(grades(3), EPSILONS)
def test_the_delta_of_three_answers_in_any_order_of_grades_is_within_the_bound(
    given: list[tuple[LawsByCount, int, int]], x: float
) -> None:
    check(given, x)


@pytest.mark.slow  # as above
@examples(150)
@given(grades(4), EPSILONS)
def test_the_delta_of_four_answers_in_any_order_of_grades_is_within_the_bound(
    given: list[tuple[LawsByCount, int, int]], x: float
) -> None:
    check(given, x)


def test_the_adversary_exceeds_a_bound_for_too_few_answers_of_a_grade() -> None:
    """The recursion would notice a bound for too few answers of one grade."""
    fine, coarse = LawsByCount(Law((1, 14, 1), 1, 4)), LawsByCount(Law((5, 6, 5), 1, 4))
    parts = [(pairs_of(fine, 1, added=True), 2), (pairs_of(coarse, 1, added=True), 1)]
    attack = best_attack(parts, order_bounds(1.0)[1])
    fewer = Composition([(answer_of(fine, 1), 1), (answer_of(coarse, 1), 2)]).upper(1.0)
    assert attack > Fraction(fewer)


@examples(100)
@given(small_laws(), st.integers(2, 3), st.fractions(Fraction(1, 5), Fraction(5), max_denominator=20))
def test_the_largest_shift_of_a_unimodal_law_has_the_largest_divergence(law: Law, d: int, order: Fraction) -> None:
    if not law.is_unimodal():
        return
    assert list(neighbour_pairs(LawsByCount(law), d)) == [(0, d)]
    for added in (True, False):
        heights = [
            sum((max(Fraction(0), p - order * q) for p, q in pair), Fraction(0))
            for s in range(1, d + 1)
            for pair in pairs_of(LawsByCount(law), s, added=added)[-1:]
        ]
        assert max(heights) == heights[-1]
