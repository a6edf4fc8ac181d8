"""What a suspicion can become after several answers, against all outcomes of all of them, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

import countveil as cv
from countveil.accounting import compose
from countveil.mechanism import Mechanism
from countveil.service.page import explore, pictures


def true_quantile(m: Mechanism, answers: int) -> float:
    """The least loss that is exceeded in 1 % of releases at most, over all outcomes, both directions."""
    law = m.family.stationary
    q = np.array([weight / law.total for weight in law.weights])
    found = -math.inf
    for here, there in ((np.append(q, 0.0), np.append(0.0, q)), (np.append(0.0, q), np.append(q, 0.0))):
        seen = here > 0
        with np.errstate(divide="ignore"):
            loss = np.log(here[seen]) - np.log(there[seen])
        p, losses, one = np.ones(1), np.zeros(1), here[seen]
        for _ in range(answers):
            p, losses = np.outer(p, one).ravel(), np.add.outer(losses, loss).ravel()
        order = np.argsort(losses)[::-1]
        above = np.cumsum(p[order])  # P(L >= each)
        found = max(found, float(losses[order][int(np.argmax(above > 0.01))]))
    return found


def points(top: float) -> list[float]:
    return [top * i / explore.CURVE_POINTS for i in range(explore.CURVE_POINTS + 1)]


@pytest.mark.slow  # designs in a process of its own
@pytest.mark.parametrize("answers", [2, 3, 4])
@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("1", "1e-3"), ("0.5", "1e-2"), ("2", "1e-4"), ("0.7", "3e-2"), ("0.3", "1e-5"), ("4", "1e-3")],
)
def test_never_too_low_and_not_much_too_high(epsilon: str, delta: str, answers: int) -> None:
    m = cv.design(epsilon=epsilon, delta=delta, policy="signed")
    shown = explore.loss_leaving(compose(m, answers).upper, points(2 * answers * float(epsilon)))
    true = true_quantile(m, answers)
    assert shown >= true * (1 - 1e-9)
    if answers * float(delta) < 0.005:  # else losses that are infinite are nearly the whole share
        assert shown <= 1.35 * true + 0.05


def test_a_delta_of_one_hundredth_is_no_share_of_releases() -> None:
    """What was shown once: the epsilon of delta 0.01, which losses exceed more often."""
    m = cv.design(epsilon="1", delta="1e-4", policy="signed")
    composed = compose(m, 4)
    hundredth = composed.epsilon(0.01)
    assert hundredth is not None
    assert hundredth.upper < true_quantile(m, 4) <= explore.loss_leaving(composed.upper, points(8.0))


def test_the_page_s_figure() -> None:
    fields = {"epsilon": "3", "delta": "1e-2", "answers": "3", "policy": "signed"}
    m = explore.made(fields).mechanism
    found = explore.followed(fields)["suspicion"]
    true = math.exp(true_quantile(m, 3))
    assert true <= found["order"] <= 1.5 * true
    assert found["half"] == pytest.approx(found["order"] / (1 + found["order"]))
    picture = pictures.suspicion(found["order"], found["half"])
    assert "at most, in 99 % of releases</text>" in picture


def test_losses_without_end() -> None:
    assert explore.loss_leaving(lambda _: 0.02, [0.0, 1.0]) == math.inf
    assert explore.loss_leaving(lambda e: 0.0 if e >= 3 else 1.0, [0.0, 1.0]) == pytest.approx(3, rel=0.01)
