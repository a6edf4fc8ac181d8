"""Corner cases of designs, by definition: caps, promises, sensitivities, variance limits and every kind of request."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, strategies as st

import countveil as cv
from tests.support.designs import brute_force_delta, check
from tests.support.effort import examples

EPSILONS = st.sampled_from(["0.3", "0.7", "1", "1.5", "3"])


@given(EPSILONS, st.sampled_from(["0.05", "0.2", "0.4"]), st.integers(1, 5), st.integers(3, 60), st.integers(1, 3))
@examples(40)
def test_capped_designs_stay_within_the_counts_and_are_unbiased_away_from_the_ends(
    epsilon: str, eta: str, D: int, high: int, n0: int
) -> None:
    """Never above HI, never below 0, zero bias from n0 to HI - n0, the same eta for 1..HI - 1."""
    m = cv.design(epsilon=epsilon, eta=eta, D=D, counts=(0, high), cap=True, unbiased_from=n0, method="program")
    for n in range(high + 3):
        law = m.law(n)
        assert n + law.least >= 0
        assert n + law.greatest <= high
        if n0 <= n <= high - n0:
            assert law.mean == 0
        if 1 <= n < high:
            assert law.eta == m.law(1).eta
    assert brute_force_delta(m, m.epsilon) == m.delta
    assert m.certificate.never_negative


@given(EPSILONS, st.sampled_from(["0.05", "0.2", "0.3"]), st.integers(2, 5), st.integers(2, 3), st.integers(1, 4))
@examples(20)
def test_designs_by_program_of_larger_sensitivity_have_p1_p2_and_p3(
    epsilon: str, eta: str, D: int, sensitivity: int, n0: int
) -> None:
    m = cv.design(epsilon=epsilon, eta=eta, D=D, sensitivity=sensitivity, unbiased_from=n0, method="program")
    check(m, n0)


@pytest.mark.slow  # exact designs by the hundred
@given(EPSILONS, st.sampled_from(["1e-2", "1e-4", "1e-7"]))
@examples(12)
def test_designs_meet_the_target_of_every_kind_of_request(epsilon: str, delta: str) -> None:
    best = cv.design(epsilon=epsilon, delta=delta)
    eta = str(round(float(best.eta) * 0.9, 3))
    for request in (
        {"epsilon": epsilon, "delta": delta, "D": best.D + 2},
        {"epsilon": epsilon, "delta": delta, "eta": eta},
        {"delta": delta, "eta": eta, "D": best.D},
    ):
        m = cv.design(**request)  # type: ignore[arg-type]
        assert m.delta <= Fraction(delta)
        assert m.certificate.never_negative
        assert m.unbiased_from is not None
    assert best.delta <= Fraction(delta)


QUESTIONS = (
    ("epsilon", "delta"),
    ("epsilon", "delta", "D"),
    ("epsilon", "delta", "eta"),
    ("epsilon", "eta", "D"),
    ("delta", "eta", "D"),
    ("epsilon", "delta", "eta", "D"),
)
VALUES = st.fixed_dictionaries(
    {
        "epsilon": st.sampled_from(["0", "0.7", "1.5", "5"]),
        "delta": st.sampled_from(["1e-3", "1e-2", "0.3"]),
        "eta": st.sampled_from(["0.05", "0.3", "0.5", "0.9"]),
        "D": st.integers(1, 5),
    }
)
PROMISES = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 8), st.none()),
    st.builds(lambda low, width: (low, low + width), st.integers(0, 8), st.integers(1, 12)),
)


@given(
    VALUES,
    st.sampled_from(QUESTIONS),
    PROMISES,
    st.sampled_from(["floor", "signed", "nonnegative"]),
    st.sampled_from(["auto", "auto", "paper", "optimal", "program", "remap"]),
    st.sampled_from(["delta", "singleton", "variance"]),
    st.sampled_from([1, 1, 2]),
    st.booleans(),
)
@example({"epsilon": "1.5", "delta": "1e-9"}, QUESTIONS[0], (0, 10), "floor", "auto", "delta", 1, False)
@example({"epsilon": "1.5", "delta": "1e-2", "eta": "0.3"}, QUESTIONS[2], (0, 3), "floor", "auto", "delta", 1, False)
@example({"epsilon": "1", "eta": "0.5", "D": 2}, QUESTIONS[3], (0, 2), "floor", "auto", "delta", 1, False)
@example({"epsilon": "0", "eta": "0.05", "D": 5}, QUESTIONS[3], None, "nonnegative", "remap", "delta", 1, False)
@examples(150)
def test_every_request_is_designed_or_refused(
    values: dict[str, object],
    question: tuple[str, ...],
    counts: tuple[int, int | None] | None,
    policy: str,
    method: str,
    objective: str,
    sensitivity: int,
    cap: bool,
) -> None:
    """No internal error, and the file of a designed mechanism is accepted."""
    given = {name: values[name] for name in question}
    terms = {"counts": counts, "policy": policy, "method": method, "objective": objective, "sensitivity": sensitivity}
    try:
        m = cv.design(**given, **terms, cap=cap)  # type: ignore[arg-type]
    except cv.CountveilError:
        return
    assert cv.Mechanism.from_text(m.to_text()).hash == m.hash
    assert m.describe()["margin_95"] is not None
    assert m.margin_95 <= m.certificate.worst_error


@pytest.mark.parametrize("policy", ["signed", "nonnegative"])
def test_objective_variance_lowers_the_variance_within_delta(policy: str) -> None:
    least = cv.design(epsilon="1", eta="0.4", D=8, policy=policy, method="auto" if policy == "signed" else "program")
    within = cv.design(epsilon="1", delta="1e-3", eta="0.4", D=8, policy=policy, objective="variance")
    assert least.delta < within.delta <= Fraction("1e-3")
    assert within.certificate.variance < least.certificate.variance
    limited = cv.design(epsilon="1", eta="0.4", D=8, policy="signed", max_variance="1.9")
    assert limited.certificate.variance <= Fraction("1.9")
    with pytest.raises(cv.InfeasibleError, match="least delta is"):
        cv.design(epsilon="1", delta="1e-5", eta="0.4", D=8, policy="signed", objective="variance")


def test_the_worked_example_has_its_published_values() -> None:
    """epsilon 1, D 14, eta 0.44, n0 = 2, least variance under delta 1e-6."""
    m = cv.design(epsilon="1", delta="1e-6", eta="0.44", D=14, unbiased_from=2, objective="variance")
    assert [f"{float(m.law(n).mse):.2f}" for n in range(6)] == ["0.90", "1.22", "1.62", "1.80", "1.87", "1.90"]
    assert f"{float(m.law(0).eta):.3f}" == "0.743"
    assert [f"{float(m.law(n).mean):.2f}" for n in range(3)] == ["0.41", "0.11", "0.00"]
    assert [f"{float(m.law(2).probability(z)):.3f}" for z in (-2, -1, 0, 1, 2, 3)] == [
        "0.129",
        "0.167",
        "0.440",
        "0.162",
        "0.064",
        "0.024",
    ]


@pytest.mark.slow  # exact designs by the hundred
@pytest.mark.parametrize(
    ("epsilon", "eta", "D"), [("1", "0.1", 24), ("0.5", "0.05", 24), ("0.3", "0.02", 30), ("20", "0.5", 500)]
)
def test_method_auto_has_at_most_twice_the_delta_of_remap_and_of_a_smaller_D(epsilon: str, eta: str, D: int) -> None:
    auto = cv.design(epsilon=epsilon, eta=eta, D=D)
    other = cv.design(epsilon=epsilon, eta=eta, D=D, method="remap")
    smaller = cv.design(epsilon=epsilon, eta=eta, D=16)
    assert auto.delta <= 2 * other.delta
    assert auto.delta <= 2 * smaller.delta


@pytest.mark.slow  # exact designs by the hundred
@pytest.mark.parametrize("policy", ["signed", "floor", "nonnegative"])
def test_a_large_delta_needs_almost_no_epsilon(policy: str) -> None:
    m = cv.design(delta="0.9", eta="0.4", D=14, policy=policy)
    assert m.epsilon <= Fraction(1, 10**5)
    assert m.delta <= Fraction("0.9")


def test_a_certified_delta_can_be_requested_again() -> None:
    m = cv.design(epsilon="2.18", eta="0.8", D=6, policy="signed")
    again = cv.design(epsilon="2.18", delta=m.describe()["delta"], eta="0.8", policy="signed")  # type: ignore[arg-type]
    assert again.delta == m.delta
    assert cv.design(epsilon="1.1", eta="0.5", delta="7.5534912558e-5", policy="signed").D == 8
    assert cv.design(epsilon="0", delta="0.4", eta="0.4", policy="signed").delta <= Fraction("0.4")
