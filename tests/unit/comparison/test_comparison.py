"""Comparisons: equal terms are equal, figures are those of the laws, and the paper's own comparison is reproduced."""

from __future__ import annotations

from fractions import Fraction

import pytest

import countveil as cv
from countveil.comparison.basis import Shared, parse
from countveil.comparison.contenders import CONTENDERS
from countveil.comparison.table import Row, never_negative, worst_error
from countveil.exact import exp_bounds
from countveil.families.fair import explicit_fair
from countveil.families.geometric import geometric
from countveil.families.member import Member
from countveil.law import Columns, Law
from countveil.privacy import hockey_stick


def by_name(table: cv.Comparison) -> dict[str, Row]:
    return {row.mechanism: row for row in table.rows}


@pytest.fixture(scope="module")
def guarantee() -> cv.Comparison:
    return cv.compare(epsilon="1", delta="1e-6")


@pytest.fixture(scope="module")
def paper_point() -> cv.Comparison:
    """The paper's example: its law at (2.18, 0.8, 6), and the Gaussian with its variance."""
    law = cv.design(epsilon="2.18", eta="0.8", D=6, policy="signed", method="paper")
    return cv.compare(epsilon="2.18", variance=law.certificate.variance, D=6)


def test_every_mechanism_has_the_guarantee_and_little_more_noise_than_needed(guarantee: cv.Comparison) -> None:
    for row in guarantee.rows:
        assert row.epsilon == 1
        assert row.delta <= Fraction("1e-6")
    found = by_name(guarantee)
    assert found["discrete-gaussian"].delta >= Fraction("0.99999e-6")
    assert abs(found["geometric"].variance - Fraction("1.8413")) < Fraction("1e-4")  # 2a / (1 - a)^2, a = 1/e
    assert abs(found["discrete-gaussian"].variance - Fraction("17.9")) < Fraction("0.05")
    assert min(guarantee.rows, key=lambda row: row.variance).mechanism == "countveil-variance"
    assert max(guarantee.rows, key=lambda row: row.eta).mechanism in ("countveil-signed", "countveil-variance")


def test_less_noise_would_not_have_the_guarantee(guarantee: cv.Comparison) -> None:
    chosen = Fraction(by_name(guarantee)["geometric"].parameters["epsilon"])
    order, _ = exp_bounds(Fraction(1))
    assert geometric(chosen).delta(order) <= Fraction("1e-6")
    assert geometric(chosen * Fraction("1.00000001")).delta(order) > Fraction("1e-6")


def test_rows_are_sorted_by_what_is_measured_or_asked_for(guarantee: cv.Comparison) -> None:
    variances = [row.variance for row in guarantee.rows]
    assert variances == sorted(variances)
    table = cv.compare(epsilon="1", delta="1e-6", sort="eta", mechanisms=["discrete-gaussian", "geometric", "paper"])
    etas = [row.eta for row in table.rows]
    assert etas == sorted(etas, reverse=True)


def test_figures_are_those_of_the_law(guarantee: cv.Comparison) -> None:
    for row in guarantee.rows:
        pairs = [(z, Fraction(w, row.law.total)) for z, w in row.law.items()]
        assert row.eta == dict(pairs)[0]
        assert row.mean_absolute_error == sum(abs(z) * p for z, p in pairs)
        assert row.within_3 == sum(p for z, p in pairs if abs(z) <= 3)
        mean = sum(z * p for z, p in pairs)
        assert row.variance == sum(z * z * p for z, p in pairs) - mean**2


def test_small_counts(guarantee: cv.Comparison) -> None:
    found = by_name(guarantee)
    assert found["countveil"].never_negative
    assert found["clamped-geometric"].never_negative
    assert not found["geometric"].never_negative
    assert found["countveil"].bias_at[5] == 0
    assert found["clamped-geometric"].bias_at[5] > 0
    assert found["geometric"].bias_at == {0: 0, 1: 0, 2: 0, 5: 0}
    assert found["geometric"].worst_error is None
    assert found["countveil-signed"].worst_error == 14


def test_the_bias_of_clamping_by_its_sum(guarantee: cv.Comparison) -> None:
    """E max(0, n + Z) - n is the sum of P(Z <= -n - i) over i >= 1."""
    row = by_name(guarantee)["clamped-geometric"]
    law = geometric(row.parameters["epsilon"]).columns.stationary
    for n, bias in row.bias_at.items():
        assert bias == Fraction(sum((-z - n) * w for z, w in law.items() if z < -n), law.total)


def test_the_paper_compares_by_parameter_not_by_variance(paper_point: cv.Comparison) -> None:
    found = by_name(paper_point)
    by_parameter, equal = found["discrete-gaussian-parameter"], found["discrete-gaussian"]
    ours, paper = found["countveil-signed"], found["paper"]
    assert abs(paper.variance - Fraction("0.2660")) < Fraction("5e-5")
    assert abs(by_parameter.variance - Fraction("0.2370")) < Fraction("5e-5")
    assert abs(equal.variance - paper.variance) < Fraction("1e-9")
    assert abs(by_parameter.law.probability(1) - Fraction("0.11685")) < Fraction("5e-6")
    assert abs(by_parameter.law.probability(2) - Fraction("0.000416")) < Fraction("5e-7")
    assert abs(paper.delta - Fraction("0.0153693741")) < Fraction("1e-9")
    assert ours.delta <= paper.delta < by_parameter.delta < equal.delta


def test_same_variance_is_the_same_and_ours_has_the_least_delta() -> None:
    table = cv.compare(epsilon="1", variance="1.5", D=12)
    assert table.basis.shared is Shared.VARIANCE
    best = by_name(table)["countveil-signed"]
    for row in table.rows:
        if not row.mechanism.startswith(("countveil", "p-table")):
            assert abs(row.variance - Fraction("1.5")) < Fraction("1e-8")
        assert row.delta >= best.delta
    assert best.variance <= Fraction("1.5") * (1 + Fraction("1e-9"))


def test_same_eta_and_bound() -> None:
    table = cv.compare(epsilon="1", eta="0.4", D=8)
    for row in table.rows:
        assert abs(row.eta - Fraction("0.4")) < Fraction("1e-9"), row.name
        if row.mechanism in ("countveil", "countveil-signed", "paper", "truncated-geometric", "p-table"):
            assert row.worst_error == 8


def test_epsilon_is_measured_where_delta_is_given() -> None:
    table = cv.compare(delta="1e-5", eta="0.4", D=8)
    for row in table.rows:
        assert row.delta == Fraction("1e-5")
        if row.epsilon is None or row.mechanism == "countveil" or row.worst_error == 100:
            continue
        order, _ = exp_bounds(row.epsilon)
        assert hockey_stick(row.law, row.law.shifted(1), order) <= Fraction("1e-5")
        order, _ = exp_bounds(row.epsilon * Fraction("0.999"))
        assert hockey_stick(row.law, row.law.shifted(1), order) > Fraction("1e-5")
    assert by_name(table)["p-table"].epsilon is None  # zero frozen: no epsilon has delta 1e-5


def test_epsilon_within_a_variance() -> None:
    found = by_name(cv.compare(delta="1e-5", variance="4", D=16, mechanisms=["countveil", "countveil-signed"]))
    for row in found.values():
        assert row.epsilon is not None
        assert row.variance <= 4
    assert found["countveil"].never_negative


@pytest.mark.slow  # tunes every contender
def test_sensitivity_above_1_brings_the_staircase() -> None:
    table = cv.compare(epsilon="1", delta="1e-6", sensitivity=3)
    found = by_name(table)
    assert found["staircase"].variance < found["geometric"].variance
    assert "explicit-fair" in dict(table.left_out)
    assert "staircase" not in by_name(cv.compare(epsilon="1", delta="1e-6", mechanisms=["geometric"]))


def test_who_cannot_meet_the_terms_is_left_out_with_a_reason(guarantee: cv.Comparison) -> None:
    reasons = dict(guarantee.left_out)
    assert "leave zero alone" in reasons["p-table"]
    assert "staircase" not in reasons
    with pytest.raises(cv.InfeasibleError, match="leave zero alone"):
        cv.compare(epsilon="1", delta="1e-6", mechanisms=["p-table"])


@pytest.mark.slow  # tunes every contender
@pytest.mark.parametrize("epsilon", ["0.02", "0.3", "4", "9"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-10"])
def test_every_guarantee_can_be_compared(epsilon: str, delta: str) -> None:
    table = cv.compare(epsilon=epsilon, delta=delta)
    assert {row.mechanism for row in table.rows} >= set(CONTENDERS) - {
        "countveil-variance",
        "discrete-gaussian-parameter",
        "staircase",
        "p-table",
    }
    assert all(row.delta <= Fraction(delta) for row in table.rows)


@pytest.mark.slow  # tunes every contender
@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": "1", "variance": "30"},
        {"epsilon": "3", "variance": "5"},
        {"epsilon": "1", "variance": "5", "D": 40},
        {"epsilon": "20", "variance": "0.01"},
        {"delta": "1e-6", "variance": "100"},
        {"delta": "1e-10", "variance": "20"},
        {"epsilon": "0.1", "variance": "100"},
    ],
    ids=str,
)
def test_ours_is_in_every_comparison_at_a_variance_and_loses_to_no_bounded_law(given: dict[str, object]) -> None:
    found = by_name(
        cv.compare(**given, mechanisms=["countveil", "countveil-signed", "geometric", "truncated-geometric"])
    )  # type: ignore[arg-type]
    assert {"countveil", "countveil-signed"} <= set(found)
    ours, theirs = found["countveil-signed"], found["truncated-geometric"]
    assert ours.variance <= Fraction(str(given["variance"])) * (1 + Fraction("1e-9"))
    if "epsilon" in given:
        assert ours.delta <= max(theirs.delta, Fraction("1e-23"))
    else:
        assert ours.epsilon is not None
        assert theirs.epsilon is not None
        assert ours.epsilon <= theirs.epsilon * (1 + Fraction("1e-4"))


@pytest.mark.parametrize(("delta", "limit"), [("0.9", "0.056"), ("0.1", "0.97")])
def test_large_deltas_are_used_up_by_all(delta: str, limit: str) -> None:
    found = by_name(cv.compare(epsilon="1", delta=delta))
    for key in ("truncated-geometric", "paper", "countveil-signed", "countveil-variance"):
        assert found[key].variance <= Fraction(limit), key


def test_the_staircase_takes_the_best_r() -> None:
    found = by_name(cv.compare(epsilon="0.5", delta="0.2", sensitivity=4, mechanisms=["staircase", "geometric"]))
    assert found["staircase"].variance <= Fraction("35.93")


def test_bounds_that_leave_no_room_and_laws_that_do_not_exist_are_said_so() -> None:
    table = cv.compare(epsilon="1", variance="2", D=1)
    reasons = dict(table.left_out)
    assert "too small for remap" in reasons["countveil"]
    assert "too little" in reasons["paper"]
    assert "no p-table" in reasons["p-table"]
    assert all("Fraction" not in reason for reason in reasons.values())
    assert all(
        row.worst_error is None or row.worst_error <= 2
        for row in cv.compare(
            epsilon="1", variance="0.5", D=2, mechanisms=["countveil-signed", "truncated-geometric", "p-table"]
        ).rows
    )


def test_what_is_cut_off_is_paid_for_at_both_laws() -> None:
    law = Law((1, 2, 1), 1, 2)
    member = Member("test", "test", Columns(law), Fraction(1, 1000), {})
    order = Fraction(3)
    assert member.delta(order) == hockey_stick(law, law.shifted(1), order) + Fraction(4, 1000)
    basis = parse(epsilon=None, delta="0.3", variance="1", eta=None, D=None, sensitivity=1, largest_count=9)
    epsilon, delta = basis.privacy_of(member)
    assert delta == Fraction("0.3")
    assert epsilon is not None
    assert member.delta(exp_bounds(epsilon)[0]) <= delta
    assert Member("test", "test", Columns(law), Fraction(1, 5), {}).delta(order) == 1  # never more than certain
    assert basis.privacy_of(Member("test", "test", Columns(law), Fraction(1, 5), {}))[0] is None


def test_epsilon_is_for_every_shift_up_to_the_sensitivity() -> None:
    law = geometric("0.5").columns.stationary
    member = Member("test", "test", Columns(law), Fraction(0), {})
    found = []
    for d in (1, 2):
        basis = parse(epsilon=None, delta="1e-4", variance="1", eta=None, D=None, sensitivity=d, largest_count=9)
        found.append(basis.privacy_of(member)[0])
    assert found[0] is not None
    assert found[1] is not None
    assert Fraction("1.9") < found[1] / found[0] < Fraction("2.1")


def test_bias_worst_error_and_sign_are_those_of_all_columns() -> None:
    small, large = Law((3, 1), 0, 2), Law((1, 2, 1), 1, 2)
    member = Member("test", "test", Columns(large, (small, Law((1, 2, 0, 0, 0, 1), 1, 2))), Fraction(0), {})
    assert worst_error(member) == 4
    assert never_negative(member)
    assert not never_negative(Member("test", "test", Columns(large, (large, small)), Fraction(0), {}))
    mapped = cv.design(epsilon="1", delta="1e-6", method="remap")
    row = by_name(cv.compare(epsilon="0.05", delta="1e-6", mechanisms=["countveil"]))["countveil"]
    again = cv.design(epsilon="0.05", delta="1e-6")
    assert again.method == mapped.method == "remap"
    assert row.bias_at == {n: again.column(n).mean for n in (0, 1, 2, 5)}


def test_a_bounded_range_is_judged_in_its_middle() -> None:
    found = by_name(cv.compare(epsilon="1", delta="1e-6", largest_count=20, mechanisms=["explicit-fair"]))
    row = found["explicit-fair"]
    member = explicit_fair(row.parameters["epsilon"], 20)
    assert row.variance == member.columns.column(10).variance != member.columns.column(0).variance
    assert row.worst_error == 20


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "nothing given"),
        ({"epsilon": "1"}, "epsilon given"),
        ({"epsilon": "1", "delta": "1e-6", "variance": "2"}, "no basis for a comparison"),
        ({"epsilon": "1", "eta": "0.4"}, "no basis"),
        ({"epsilon": "1", "delta": "1e-6", "sort": "beauty"}, "sort: got beauty"),
        ({"epsilon": "1", "delta": "1e-6", "mechanisms": ["magic"]}, "mechanism: got magic"),
        ({"epsilon": "1", "delta": "1e-6", "mechanisms": "paper"}, "a list of names"),
        ({"epsilon": "0", "delta": "1e-6"}, "epsilon: got 0"),
        ({"epsilon": "nan", "delta": "1e-6"}, "epsilon: got nan"),
        ({"epsilon": "1", "delta": "0"}, "delta: got 0"),
        ({"epsilon": "1", "variance": "-1"}, "variance: got -1"),
        ({"epsilon": "1", "eta": "1", "D": 3}, "eta: got 1"),
        ({"epsilon": "1", "eta": "0.5", "D": 0}, "D: got 0"),
        ({"epsilon": "1", "delta": "1e-6", "sensitivity": 0}, "sensitivity: got 0"),
        ({"epsilon": "1", "delta": "1e-6", "largest_count": 1}, "largest_count: got 1"),
    ],
)
def test_bad_input(given: dict[str, object], words: str) -> None:
    with pytest.raises(cv.CountveilError) as caught:
        cv.compare(**given)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
