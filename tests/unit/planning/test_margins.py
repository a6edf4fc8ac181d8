"""The estimate of a margin in closed form is near the margin of the law that the search finds."""

from __future__ import annotations

from fractions import Fraction

import pytest

from countveil.mechanism.certificate import LEVEL_95
from countveil.planning.margins import estimate_margin
from countveil.planning.plans import PlanRequest, estimate


@pytest.mark.parametrize(
    ("epsilon", "answers", "more"),
    [
        ("1", 1, {}),
        ("1", 4, {}),
        ("1", 10, {}),
        ("3", 2, {}),
        ("3", 50, {}),
        ("3", 20, {"cells": 3}),
        ("3", 20, {"sensitivity": 3}),
        ("3", 20, {"neighbours": "replace"}),
        ("10", 100, {}),
    ],
)
def test_the_estimated_margin_is_within_a_tenth_or_two_of_the_searched_one(
    epsilon: str, answers: int, more: dict[str, int]
) -> None:
    ask = PlanRequest(Fraction(epsilon), Fraction(1, 10**6), answers, policy="signed", **more)  # type: ignore[arg-type]
    margin = estimate(ask).stationary.margin(LEVEL_95)
    assert estimate_margin(float(epsilon), 1e-6, answers, **more) == pytest.approx(margin, rel=0.1, abs=2)  # type: ignore[arg-type]


def test_the_margin_grows_with_every_bound() -> None:
    margins = [estimate_margin(3, 1e-6, 50, cells=c, sensitivity=r) for r, c in ((1, 1), (1, 2), (2, 1), (2, 2))]
    assert margins == sorted(set(margins))
    assert estimate_margin(3, 1e-6, 50, sensitivity=1000) > 900 * margins[0]
