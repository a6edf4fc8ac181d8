"""Every drawn row equals its definition on the weights, by brute force over Fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

import countveil as cv
from countveil.design.closed_form import least_delta
from countveil.laws.law import Law, LawsByCount, neighbour_pairs
from countveil.mechanism.certificate import Terms
from countveil.mechanism.mechanism import bind
from countveil.numeric.exact_numbers import exp_bounds
from countveil.plots import curve, knee, noise, small_counts, suspicion, usefulness

DESIGNS: dict[str, dict[str, Any]] = {
    "signed": {"epsilon": "1", "delta": "1e-5", "policy": "signed"},
    "paper": {"epsilon": "2.18", "eta": "0.8", "D": 6, "policy": "signed", "method": "paper"},
    "floor": {"epsilon": "1", "delta": "1e-4", "policy": "floor"},
    "program": {"epsilon": "1.1", "eta": "0.5", "D": 6},
    "remap": {"epsilon": "0.5", "delta": "1e-4", "method": "remap"},
    "promise": {"epsilon": "1", "eta": "0.5", "D": 2, "counts": "1:3", "objective": "singleton"},
    "from 30": {"epsilon": "1", "delta": "1e-4", "counts": "30:"},
    "cap": {"epsilon": "1.5", "eta": "0.5", "D": 4, "counts": "0:60", "cap": True},
    "nearly exact": {"epsilon": "5", "eta": "0.98", "D": 3},
    "sensitivity 2": {"epsilon": "1", "delta": "1e-3", "sensitivity": 2, "policy": "signed"},
    "epsilon 0": {"epsilon": "0", "eta": "0.1", "D": 20, "policy": "signed"},
}


@pytest.fixture(scope="module", params=DESIGNS)
def mechanism(request: pytest.FixtureRequest) -> cv.Mechanism:
    return cv.design(**DESIGNS[request.param])


def law_of_y(mechanism: cv.Mechanism, n: int) -> dict[int, Fraction]:
    law = mechanism.law(n)
    return {n + z: Fraction(w, law.total) for z, w in law.items() if w}


def test_the_picture_of_noise_shows_the_law_of_a_typical_count(mechanism: cv.Mechanism) -> None:
    rows = noise.noise_rows(mechanism)
    law = mechanism.law(mechanism.certificate.typical)
    assert {row["z"]: row["p"] for row in rows if row["p"]} == {z: w / law.total for z, w in law.items() if w}
    assert math.fsum(row["p"] for row in rows) == pytest.approx(1, abs=1e-12)
    assert rows[0]["z"] <= -mechanism.D
    assert rows[-1]["z"] >= mechanism.D
    assert math.fsum(row["p"] for row in rows if row["within"]) >= 0.95
    assert next(row["p"] for row in rows if row["z"] == 0) == float(mechanism.eta)


def test_the_picture_of_small_counts_shows_the_first_promised_counts(mechanism: cv.Mechanism) -> None:
    rows = small_counts.small_count_rows(mechanism)
    low, high = mechanism.counts
    shown = sorted({row["n"] for row in rows})
    assert shown[0] == low
    assert len(shown) == (small_counts.ROWS if high is None else min(small_counts.ROWS, high - low + 1))
    for n in shown:
        law = law_of_y(mechanism, n)
        mine = [row for row in rows if row["n"] == n]
        for row in mine:
            assert row["p"] == float(sum(law.get(y, Fraction(0)) for y in range(row["y"], row["last"] + 1)))
            assert row["exact"] == (row["y"] <= n <= row["last"])
        assert math.fsum(row["p"] for row in mine) >= 1 - 2 * small_counts.SHOWN_MASS
        edges = [row["y"] for row in mine] + [mine[-1]["last"] + 1]
        assert [row["last"] + 1 for row in mine] == edges[1:], "no published count is left out or shown twice"


def test_wide_noise_is_shown_in_steps_and_groups() -> None:
    rows = small_counts.small_count_rows(cv.design(epsilon="0.05", delta="1e-6", method="remap"))
    counts = sorted({row["n"] for row in rows})
    steps = {after - before for before, after in pairwise(counts)}
    assert len(steps) == 1
    assert steps.pop() > 1
    assert len({row["y"] for row in rows}) <= small_counts.MOST_COLUMNS + 1
    assert all(sum(row["exact"] for row in rows if row["n"] == n) == 1 for n in counts)


def test_the_curve_has_the_exact_delta_at_every_epsilon(mechanism: cv.Mechanism) -> None:
    rows = curve.curve_rows(mechanism)
    points = [row["epsilon"] for row in rows]
    assert points == sorted(points)
    assert 20 <= len(rows) <= 70
    assert points[0] == 0
    assert points[-1] == float(mechanism.epsilon * curve.STRETCH or 2)
    grid = [e for e in curve._grid(mechanism) if mechanism.delta_at(e)]
    assert [row["delta"] for row in rows] == [float(mechanism.delta_at(e)) for e in grid]
    design = [row["delta"] for row in rows if row["epsilon"] == float(mechanism.epsilon)]
    assert design == [float(mechanism.delta)]


@pytest.mark.slow  # draws pictures
def test_the_curve_never_rises() -> None:
    """Moves of a remapped law cost slack * (1 + E), which alone would rise with epsilon."""
    mechanism = cv.design(epsilon="0.5", delta="1e-6", sensitivity=3)
    deltas = [row["delta"] for row in curve.curve_rows(mechanism)]
    assert all(before >= after for before, after in pairwise(deltas))


def test_the_curve_of_a_large_mechanism_has_fewer_points() -> None:
    mechanism = cv.design(epsilon="0.0002", delta="1e-6", policy="signed")
    assert mechanism.D > 20_000
    grid = curve._grid(mechanism)
    assert 10 < len(grid) < 35
    assert mechanism.epsilon in grid


def test_the_knee_is_at_tanh_of_half_epsilon(mechanism: cv.Mechanism) -> None:
    rows = knee.knee_rows(mechanism)
    etas = [row["eta"] for row in rows]
    at = float(knee.knee(mechanism.epsilon))
    assert at == pytest.approx(math.tanh(float(mechanism.epsilon) / 2), abs=1e-12)
    assert not at or min(abs(eta - at) for eta in etas) < 1e-12
    assert etas == sorted(etas)
    assert 0 < etas[0] < etas[-1] < float(knee.largest_shown(mechanism)) <= 1
    for row in rows[::7]:
        delta = float(least_delta(mechanism.epsilon, Fraction(row["eta"]), mechanism.D))
        assert row["delta"] == pytest.approx(delta, rel=1e-6, abs=1e-13)


def test_the_best_signed_mechanisms_lie_on_the_curve_of_least_delta() -> None:
    mechanism = cv.design(epsilon="1", eta="0.5", D=9, policy="signed")
    on_line = [row["delta"] for row in knee.knee_rows(mechanism) if row["eta"] == float(mechanism.eta)]
    assert on_line == pytest.approx([float(mechanism.delta)], rel=1e-6)


# What an attacker learns


def neighbours(mechanism: cv.Mechanism) -> list[tuple[dict[int, Fraction], dict[int, Fraction]]]:
    pairs = []
    for n, m in neighbour_pairs(mechanism.laws, mechanism.certificate.sensitivity):
        pairs += [(law_of_y(mechanism, n), law_of_y(mechanism, m)), (law_of_y(mechanism, m), law_of_y(mechanism, n))]
    return pairs


def exceeding(mechanism: cv.Mechanism, prior: Fraction, bound: Fraction) -> Fraction:
    """The largest probability of a published y after which Bayes' rule gives more than `bound`, from the definition."""
    worst = Fraction(0)
    for here, there in neighbours(mechanism):
        share = Fraction(0)
        for y, p in here.items():
            if prior * p / (prior * p + (1 - prior) * there.get(y, Fraction(0))) > bound:
                share += p
        worst = max(worst, share)
    return worst


@pytest.mark.parametrize("prior", [Fraction(1, 2), Fraction(1, 50), Fraction(9, 10)], ids=str)
def test_the_share_of_releases_above_the_bound_follows_from_bayes_rule(
    mechanism: cv.Mechanism, prior: Fraction
) -> None:
    t = suspicion.order(mechanism)
    assert t >= exp_bounds(mechanism.epsilon)[1]
    bound = prior * t / (prior * t + 1 - prior)
    assert suspicion.exceeding_share(mechanism, t) == exceeding(mechanism, prior, bound)


def test_the_99_percent_line_is_the_least_bound_for_99_percent_of_releases(mechanism: cv.Mechanism) -> None:
    t = suspicion.order_leaving(mechanism)
    if math.isinf(t):
        assert suspicion.exceeding_share(mechanism, Fraction(10**30)) > suspicion.EXCEPTIONS
        return
    assert suspicion.exceeding_share(mechanism, Fraction(t) * (1 + Fraction(1, 10**12))) <= suspicion.EXCEPTIONS
    assert suspicion.exceeding_share(mechanism, Fraction(t) * (1 - Fraction(1, 10**12))) > suspicion.EXCEPTIONS


@pytest.fixture(scope="module")
def wide() -> cv.Mechanism:
    """A remap whose laws from n0 = T = 100 on differ from the signed law, because they have moves."""
    return cv.design(epsilon="0.01", delta="1e-6")


@pytest.mark.slow  # draws pictures
def test_the_suspicion_of_a_wide_remap_is_the_largest_over_the_compared_counts(wide: cv.Mechanism) -> None:
    def share(n: int, m: int, t: Fraction) -> Fraction:
        here, there = law_of_y(wide, n), law_of_y(wide, m)
        return sum((p for y, p in here.items() if p > t * there.get(y, Fraction(0))), Fraction(0))

    looked = suspicion.compared_counts(wide)
    starts = {n for n, _ in looked}
    assert {*range(8), 97, 98, 99, 100, 101, 102, 103, wide.laws.stationary_from} <= starts
    assert max(b - a for a, b in pairwise(sorted(starts))) < 50
    t = exp_bounds(wide.epsilon + Fraction(1, 1000))[1]
    assert float(share(100, 99, t)) == pytest.approx(4.62e-7, rel=0.01)
    assert suspicion.exceeding_share(wide, t) >= share(100, 99, t)
    t = suspicion.order(wide)
    assert suspicion.exceeding_share(wide, t) == max(share(a, b, t) for n, m in looked for a, b in ((n, m), (m, n)))


@pytest.mark.slow  # draws pictures
def test_the_picture_of_suspicion_says_how_many_pairs_were_compared(wide: cv.Mechanism) -> None:
    def words(mechanism: cv.Mechanism) -> str:
        return " ".join(suspicion.suspicion_chart(mechanism).to_dict()["title"]["subtitle"])

    looked = len(suspicion.compared_counts(wide))
    assert f"Lines: the largest of {looked} pairs of counts looked at." in words(wide)
    everything = cv.design(**DESIGNS["remap"])
    assert suspicion.compared_counts(everything) == list(neighbour_pairs(everything.laws, 1))
    assert "looked at" not in words(everything)
    assert "map" not in words(wide) + words(everything)


def test_a_selection_of_pairs_has_only_the_smallest_and_the_largest_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = cv.design(epsilon="1", delta="1e-3", sensitivity=4)
    every = suspicion.compared_counts(mechanism)
    assert {m - n for n, m in every} == {1, 2, 3, 4}
    monkeypatch.setattr(suspicion, "QUICK_WORK", 0)
    few = suspicion.compared_counts(mechanism)
    assert {m - n for n, m in few} == {1, 4}
    assert set(few) < set(every)


def test_the_bound_on_suspicion_uses_1_01_times_epsilon() -> None:
    """A fixed margin such as 0.001 would be a tenth of a small epsilon like 0.01."""
    for epsilon in ("0.01", "1"):
        mechanism = cv.design(epsilon=epsilon, delta="1e-6", policy="signed")
        assert math.log(suspicion.order(mechanism)) == pytest.approx(1.01 * float(epsilon), rel=1e-9)
        assert suspicion.order(mechanism) >= exp_bounds(mechanism.epsilon * Fraction("1.01"))[1]
        assert any("(1.01 times epsilon)" in name for name in suspicion.orders(mechanism))


@pytest.mark.parametrize("mirrored", [False, True])
def test_both_directions_of_a_pair_are_compared(mirrored: bool) -> None:
    """If the noise is never negative, some releases show that a person is absent; its mirror image shows presence."""
    law = Law((8, 4, 2, 1, 1), 0, 4)
    terms = Terms(epsilon=Fraction(1), policy="signed", method="optimal", D=4)
    mechanism = bind(LawsByCount(law.mirror() if mirrored else law), terms)
    assert suspicion.exceeding_share(mechanism, Fraction(100)) == Fraction(1, 2)
    assert math.isinf(suspicion.order_leaving(mechanism))


def test_the_best_guess_follows_from_total_variation(mechanism: cv.Mechanism) -> None:
    """P(right) = sum_y max(p, q)/2; a remapped law's delta(0) is a bound."""
    best = max(sum(max(p.get(y, 0), q.get(y, 0)) for y in {*p, *q}) / 2 for p, q in neighbours(mechanism))
    stated = (1 + mechanism.delta_at(0)) / 2
    assert stated >= best
    if mechanism.method != "remap":
        assert stated == best


def test_suspicion_rows_equal_the_posterior(mechanism: cv.Mechanism) -> None:
    lines = suspicion.orders(mechanism)
    rows = suspicion.suspicion_rows(lines)
    assert {row["series"] for row in rows} == set(lines)
    for row in rows:
        t = lines[row["series"]]
        if 0 < row["prior"] < 1 and math.isfinite(t):
            odds = row["prior"] / (1 - row["prior"]) * t
            assert row["posterior"] == pytest.approx(odds / (1 + odds))
        assert 0 <= row["posterior"] <= 1


def test_an_infinite_bound_turns_any_positive_prior_into_certainty() -> None:
    assert [suspicion.posterior(prior, math.inf) for prior in (0.0, 0.5, 1.0)] == [0.0, 1.0, 1.0]
    assert [suspicion.posterior(prior, 3.0) for prior in (0.0, 0.5, 1.0)] == [0.0, 0.75, 1.0]


# How large a cell must be


@pytest.mark.parametrize("tolerance", [Fraction(1, 10), Fraction(1, 3), Fraction(2), Fraction(1, 50)], ids=str)
def test_a_cell_is_useful_from_the_least_count_whose_margin_is_tolerated(
    mechanism: cv.Mechanism, tolerance: Fraction
) -> None:
    low, high = mechanism.counts
    last = 60 * mechanism.margin_95 + mechanism.laws.stationary_from + 50 if high is None else high
    bad = [n for n in range(low, last + 1) if mechanism.law(n).margin(Fraction(95, 100)) > tolerance * n]
    expected = max(bad, default=low - 1) + 1
    assert usefulness.useful_from(mechanism, tolerance) == (None if high is not None and expected > high else expected)


def test_relative_errors_equal_their_definitions(mechanism: cv.Mechanism) -> None:
    rows = usefulness.usefulness_rows(mechanism)
    low, high = mechanism.counts
    least = usefulness.useful_from(mechanism)
    sizes = {row["n"] for row in rows}
    assert min(sizes) == max(1, low)
    assert high is None or max(sizes) <= high
    assert least is None or max(1, least) in sizes
    for row in rows:
        law = law_of_y(mechanism, row["n"])
        if row["series"] == usefulness.ERROR:
            mse = sum(p * (y - row["n"]) ** 2 for y, p in law.items())
            assert row["relative"] == pytest.approx(math.sqrt(mse) / row["n"])
        else:
            margin = round(row["relative"] * row["n"])
            assert margin > 0
            assert sum(p for y, p in law.items() if abs(y - row["n"]) <= margin) >= Fraction(95, 100)
            assert sum(p for y, p in law.items() if abs(y - row["n"]) < margin) < Fraction(95, 100)
