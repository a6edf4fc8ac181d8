"""One cell that moves by L dominates every change of total L, for laws that are nearly log-concave; exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest

from countveil.accounting.merged_cells import cost_of_gap, measure_gap
from countveil.design import design
from countveil.laws.law import Law, LawsByCount

ORDERS = [Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(5)]


def splits(total: int, largest: int | None = None) -> Iterator[list[int]]:
    """All ways to write a total as a sum, the largest part first."""
    if total == 0:
        yield []
    for part in range(min(total, largest or total), 0, -1):
        for rest in splits(total - part, part):
            yield [part, *rest]


def divergence(law: Law, moves: list[int], order: Fraction) -> Fraction:
    """The hockey-stick divergence of the noise of several cells that move, by its definition."""
    pairs = {Fraction(1): Fraction(1)}  # the likelihood ratio p / q, and the probability under p
    unmatched = Fraction(0)
    for move in moves:
        step: dict[Fraction, Fraction] = {}
        for ratio, p in pairs.items():
            for z, weight in law.items():
                other = law.weight(z - move)
                mass = p * Fraction(weight, law.total)
                if not other:
                    unmatched += mass
                elif weight:
                    new = ratio * Fraction(weight, other)
                    step[new] = step.get(new, Fraction(0)) + mass
        pairs = step
    return unmatched + sum(p * max(Fraction(0), 1 - order / ratio) for ratio, p in pairs.items())


def laws() -> list[Law]:
    exact = [Law((1, 4, 6, 4, 1), 2, 4), Law((1, 2, 2, 2, 1), 2, 3), Law((1, 1, 3, 6, 10, 6, 3, 1, 1), 4, 5)]
    stationary = design(epsilon="1", delta="1e-2", policy="signed").laws
    assert isinstance(stationary, LawsByCount)
    return [*exact, stationary.stationary]


@pytest.mark.parametrize("law", laws(), ids=["binomial", "flat", "steep", "designed"])
def test_no_split_of_a_change_over_cells_exceeds_the_bound_for_one_cell(law: Law) -> None:
    gap = measure_gap(law)
    for total in (2, 3):
        for order in ORDERS:
            shrunk = order * Fraction(math.exp(-(total + 1) * gap)).limit_denominator(10**12)
            bound = Fraction(math.exp(total * gap)) * divergence(law, [total], shrunk)
            for split in splits(total):
                assert divergence(law, split, order) <= bound * (1 + Fraction(1, 10**9)), (split, order)


def test_a_law_with_two_peaks_has_a_large_gap_and_a_split_that_is_worse_than_one_cell() -> None:
    """Without log-concavity the claim is false, so the check is needed."""
    law = Law((7, 1, 16, 1, 7), 2, 5)
    order = Fraction(5)
    assert measure_gap(law) > 1
    assert any(divergence(law, split, order) > divergence(law, [2], order) for split in splits(2))


def test_the_gap_of_a_rounded_geometric_law_is_tiny() -> None:
    weights = [int(2**60 * 0.3 * math.exp(-abs(z))) for z in range(-20, 21)]
    weights[20] += 2**60 - sum(weights)
    flattened = Law(tuple(weights), 20, 60)
    assert measure_gap(flattened) > 0.1  # the rest went to the middle
    scaled = [round(2**60 * math.exp(-abs(z)) / sum(math.exp(-abs(x)) for x in range(-20, 21))) for z in range(-20, 21)]
    scaled[20] += 2**60 - sum(scaled)
    assert measure_gap(Law(tuple(scaled), 20, 60)) < 1e-8
    assert cost_of_gap(Law(tuple(scaled), 20, 60), total=6, answers=100) < 1e-5
