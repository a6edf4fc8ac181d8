"""What a mechanism has, measured on its integer weights and nothing else.

`measure` is the only place where a claim about a mechanism is made. It takes the columns, the epsilon and
sensitivity they are judged at, and the promise about counts under which accuracy is stated; every figure is
an exact Fraction or integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil import privacy
from countveil.exact import exp_bounds
from countveil.law import ColumnFamily, Law, distinct_counts
from countveil.remap import CountProfile, Remap

SHOWN_COUNTS = (0, 1, 2, 5, 10)
NEARLY = 1000
LEVEL_95 = Fraction(95, 100)
LARGEST_FLOOR = 200_000


@dataclass(frozen=True)
class Terms:
    """Under which terms a family is judged, and what is to be said about it."""

    epsilon: Fraction
    policy: str
    method: str
    D: int
    sensitivity: int = 1
    counts: tuple[int, int | None] = (0, None)
    bits: int | None = None
    delta_paper_bound: Fraction | None = None
    notes: tuple[str, ...] = ()
    prices: tuple[dict[str, object], ...] = ()
    details: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """Exact properties of a mechanism. `delta` holds for every dataset, both directions, all neighbours.

    `delta` is exact at a rational lower bound of e^epsilon, so it is an upper bound at e^epsilon itself.
    `delta_singleton` is the paper's quantity, not a privacy parameter (None where it was not measured).
    P1: |Y - n| <= worst_error (`noise_bound` for typical counts), and Y >= 0 if `never_negative`.
    P2: P(Y = n | n) = eta for eta_from <= n <= eta_to. P3: the bias is exactly zero for unbiased_from <= n <=
    unbiased_to and at most `bias_below` in size elsewhere; from `nearly_unbiased_from` on it is at most a thousandth of
    the standard deviation. An upper end of None is the end of the promise.
    eta, variance, within_3 and typical_margin_95 are those of a typical count: stationary or, where the promise has
    no stationary count, in its middle. The margin that holds for every count is `Mechanism.margin_95`.
    """

    epsilon: Fraction
    sensitivity: int
    delta: Fraction
    worst_pair: tuple[int, int]
    delta_singleton: Fraction | None
    eta: Fraction
    eta_from: int
    eta_to: int | None
    unbiased_from: int | None
    unbiased_to: int | None
    nearly_unbiased_from: int | None
    bias_below: Fraction
    variance: Fraction
    within_3: Fraction
    typical_margin_95: int
    worst_error: int
    noise_bound: int
    never_negative: bool
    bits: int
    stationary_from: int
    typical: int
    mse_at: dict[int, Fraction]
    bias_at: dict[int, Fraction]
    exact_at: dict[int, Fraction]


def measure(family: ColumnFamily, epsilon: Fraction, sensitivity: int, counts: tuple[int, int | None]) -> Certificate:
    """All properties of a family, accuracy stated for the promised counts."""
    order, _ = exp_bounds(epsilon)  # e^epsilon rounded DOWN: delta can only grow
    divergence = privacy.delta(family, order, sensitivity)
    single = None
    if not isinstance(family, Remap):
        single = privacy.singleton(family, order, sensitivity).value
    low, high = counts
    _check_promise(family, low, high)
    typical = typical_count(family, low, high)
    law = family.column(typical)
    profiles = profile(family, counts)
    eta_from, eta_to = _range([row.n for row in profiles if row.exact != law.eta], typical, low)
    unbiased_from, unbiased_to = _range([row.n for row in profiles if row.bias != 0], typical, low)
    spread = law.variance / NEARLY**2
    nearly_from, _ = _range([row.n for row in profiles if row.bias**2 > spread], typical, low)
    shown = [n for n in SHOWN_COUNTS if n >= low and (high is None or n <= high)]
    rows = {row.n: row for row in profiles}
    at = {n: rows.get(n, CountProfile(n, law.mean, law.eta, law.mse)) for n in shown}
    worst, negative = _reach(family, profiles)
    return Certificate(
        epsilon=epsilon,
        sensitivity=sensitivity,
        delta=divergence.value,
        worst_pair=(divergence.n, divergence.m),
        delta_singleton=single,
        eta=law.eta,
        eta_from=eta_from if eta_from is not None else typical,
        eta_to=eta_to,
        unbiased_from=unbiased_from,
        unbiased_to=unbiased_to,
        nearly_unbiased_from=nearly_from,
        bias_below=max((abs(row.bias) for row in profiles), default=Fraction(0)),
        variance=law.variance,
        within_3=law.within(3),
        typical_margin_95=law.margin(LEVEL_95),
        worst_error=worst,
        noise_bound=law.worst_error,
        never_negative=not negative,
        bits=law.bits,
        stationary_from=family.stationary_from,
        typical=typical,
        mse_at={n: row.mse for n, row in at.items()},
        bias_at={n: row.bias for n, row in at.items()},
        exact_at={n: row.exact for n, row in at.items()},
    )


def _check_promise(family: ColumnFamily, low: int, high: int | None) -> None:
    """Refuse a family that treats promised counts as others, but for the policy floor, whose error is measured."""
    if low < 0 or family.hi != high or family.lo < low or family.lo - low > LARGEST_FLOOR:
        raise ValueError("the columns and the promise about counts do not belong together")


def typical_count(family: ColumnFamily, low: int, high: int | None) -> int:
    """A count whose law is the stationary one or, where every count has its own law, one in the middle."""
    stationary = max(family.stationary_from, low)
    return stationary if high is None or stationary < high else (low + high) // 2


def _range(exceptions: list[int], typical: int, low: int) -> tuple[int | None, int | None]:
    """The range of counts around a typical one that is free of exceptions; None, None if it is one itself."""
    if typical in exceptions:
        return None, None
    below = [n for n in exceptions if n < typical]
    above = [n for n in exceptions if n > typical]
    return (below[-1] + 1 if below else low), (above[0] - 1 if above else None)


def profile(family: ColumnFamily, counts: tuple[int, int | None]) -> list[CountProfile]:
    """Bias, P(Y = n | n) and mean squared error for every promised count up to the stationary one, and the top."""
    low, high = counts
    if isinstance(family, Remap):
        law = family.source
        rows = [*family.profiles, CountProfile(family.stationary_from, law.mean, law.eta, law.mse)]
        return [row for row in rows if row.n >= low and (high is None or row.n <= high)]
    rows = _raised(family.column(family.lo), family.lo, low)
    for n in distinct_counts(family):
        if n >= low and (high is None or n <= high):
            law = family.column(n)
            rows.append(CountProfile(n, law.mean, law.eta, law.mse))
    return rows


def margin_95(family: ColumnFamily, counts: tuple[int, int | None] = (0, None)) -> int:
    """The least m with P(|Y - n| <= m | n) >= 95 % for every promised count n."""
    low, high = counts
    ends = {low} if high is None else {low, high}
    unlike = ends | {n for n in distinct_counts(family) if n >= low and (high is None or n <= high)}
    return max(family.column(n).margin(LEVEL_95) for n in unlike)


def _raised(law: Law, lo: int, low: int) -> list[CountProfile]:
    """The profiles of low <= n < lo, which are treated as lo: their error is Z + lo - n."""
    mean, mse = law.mean, law.mse
    return [
        CountProfile(lo - up, mean + up, law.probability(-up), mse + 2 * up * mean + up * up)
        for up in range(lo - low, 0, -1)
    ]


def _reach(family: ColumnFamily, profiles: list[CountProfile]) -> tuple[int, bool]:
    """The largest |Y - n|, and whether some Y is negative, over the profiled counts."""
    if isinstance(family, Remap):
        targets = (abs(move.target) for moves in family.moves.values() for move in moves)
        return max(family.reach, max(targets, default=0)), False
    first = family.column(family.lo)
    up = max(0, family.lo - profiles[0].n)
    worst = max(abs(first.least + up), abs(first.greatest + up))
    negative = family.lo + first.least < 0
    for n in (row.n for row in profiles if row.n >= family.lo):
        law = family.column(n)
        worst, negative = max(worst, law.worst_error), negative or n + law.least < 0
    return worst, negative
