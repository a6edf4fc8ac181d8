"""The properties of a mechanism, measured only on its integer weights.

`measure` is the only place where a claim about a mechanism is made. Its input is the laws, the epsilon and
sensitivity to measure at, and the promise about counts under which accuracy is stated; every figure is an
exact Fraction or integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Literal

from countveil.display.cards import Card, Shown, describe_facts
from countveil.laws import privacy
from countveil.laws.law import Law, Laws, distinct_counts
from countveil.laws.remap import CountProfile, Remap
from countveil.numeric.exact_numbers import decimal_text, exp_bounds

Policy = Literal["nonnegative", "signed", "floor"]
"""What happens to counts near zero. With `nonnegative` their noise depends on the count, so that no release is
negative; with `signed` a release may be negative; with `floor` every count below D is treated as D.
"""
SHOWN_COUNTS = (0, 1, 2, 5, 10)
NEARLY = 1000
LEVEL_95 = Fraction(95, 100)
LARGEST_FLOOR = 200_000


@dataclass(frozen=True)
class Terms:
    """The epsilon, sensitivity and promised counts for which laws are measured, and what their mechanism reports.

    `counts` is the promised range (lo, hi), where hi may be None. `bits`, if given, fixes the width of the weights. The
    other fields are not measured, but copied into the mechanism.
    """

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


@dataclass(frozen=True, slots=True, repr=False)
class Certificate(Shown):
    """Exact properties of a mechanism. `delta` holds for every dataset and all its neighbours, in both directions.

    `delta` is exact at a rational lower bound of e^epsilon, so it is an upper bound at e^epsilon itself.
    `delta_singleton` is the paper's quantity, not a privacy parameter (None where it was not measured).

    With true count n and released count Y, the three properties of accuracy are:

    - P1, bounded error: |Y - n| <= worst_error (`noise_bound` for typical counts), and Y >= 0 if `never_negative`.
    - P2, fixed accuracy: P(Y = n | n) = eta for eta_from <= n <= eta_to.
    - P3, no bias: the bias is exactly zero for unbiased_from <= n <= unbiased_to and at most `bias_below` in size
      elsewhere; from `nearly_unbiased_from` on it is at most a thousandth of the standard deviation.

    An upper end of None means that the range extends to the end of the promised counts. eta, variance, within_3 and
    typical_margin_95 are those of a typical count: the stationary count or, if the promise does not include that count,
    the count in the middle. The margin that holds for every count is `Mechanism.margin_95`.
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

    def _line(self) -> str:
        shown = {"epsilon": self.epsilon, "delta": self.delta, "eta": self.eta, "variance": self.variance}
        numbers = {
            name: decimal_text(value, 6, "up" if name == "delta" else "nearest") for name, value in shown.items()
        }
        return describe_facts({**numbers, "worst_error": self.worst_error, "bits": self.bits})

    def _card(self) -> Card:
        return Card("Certificate", self.facts)

    @property
    def facts(self) -> dict[str, object]:
        """What is certified, in words."""
        unbiased = "no count" if self.unbiased_from is None else f"n = {self.unbiased_from}"
        return {
            "guarantee": f"epsilon {decimal_text(self.epsilon, 6)}, delta {decimal_text(self.delta, 6, 'up')}",
            "one person changes a count by": self.sensitivity,
            "exactly right": f"{decimal_text(self.eta * 100, 4)} % of releases, from n = {self.eta_from} on",
            "within 3": f"{decimal_text(self.within_3 * 100, 4)} % of releases",
            "variance": decimal_text(self.variance, 6),
            "unbiased from": f"{unbiased}; elsewhere at most {decimal_text(self.bias_below, 3, 'up')} off",
            "largest error": self.worst_error,
            "never negative": "yes" if self.never_negative else "no",
            "worst pair of counts": f"{self.worst_pair[0]}, {self.worst_pair[1]}",
            "weights over": f"2^{self.bits}",
        }


def measure(laws: Laws, epsilon: Fraction, sensitivity: int, counts: tuple[int, int | None]) -> Certificate:
    """Measure all properties of laws: privacy for every count, accuracy for the promised `counts` (lo, hi)."""
    order, _ = exp_bounds(epsilon)  # e^epsilon rounded DOWN: delta can only grow
    divergence = privacy.delta(laws, order, sensitivity)
    single = None
    if not isinstance(laws, Remap):
        single = privacy.singleton(laws, order, sensitivity).value
    low, high = counts
    _check_promise(laws, low, high)
    typical = typical_count(laws, low, high)
    law = laws.law(typical)
    profiles = profile(laws, counts)
    eta_from, eta_to = _range([row.n for row in profiles if row.exact != law.eta], typical, low)
    unbiased_from, unbiased_to = _range([row.n for row in profiles if row.bias != 0], typical, low)
    spread = law.variance / NEARLY**2
    biased = [row.n for row in profiles if _exceeds(row.bias, spread)]
    nearly_from, _ = _range(biased, typical, low)
    shown = [n for n in SHOWN_COUNTS if n >= low and (high is None or n <= high)]
    rows = {row.n: row for row in profiles}
    at = {n: rows.get(n, CountProfile(n, law.mean, law.eta, law.mse)) for n in shown}
    worst, negative = _reach(laws, profiles)
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
        stationary_from=laws.stationary_from,
        typical=typical,
        mse_at={n: row.mse for n, row in at.items()},
        bias_at={n: row.bias for n, row in at.items()},
        exact_at={n: row.exact for n, row in at.items()},
    )


def _exceeds(bias: Fraction, square: Fraction) -> bool:
    """Whether bias^2 > square, in integers: Fractions would be slow, because they look for common divisors."""
    return bias.numerator**2 * square.denominator > square.numerator * bias.denominator**2


def _check_promise(laws: Laws, low: int, high: int | None) -> None:
    """Refuse laws that do not cover the promised counts low..high.

    With policy floor, the smallest promised counts may be below the least count that has a law: they are treated as
    that count, and their error is measured.
    """
    if low < 0 or laws.hi != high or laws.lo < low or laws.lo - low > LARGEST_FLOOR:
        given, promised = (
            f"{first}:{'' if last is None else last}" for first, last in ((laws.lo, laws.hi), (low, high))
        )
        raise ValueError(f"the laws are for counts {given}, but the promised counts are {promised}")


def typical_count(laws: Laws, low: int, high: int | None) -> int:
    """The stationary count or, if it is not within the promise, the count in the middle of the promise."""
    stationary = max(laws.stationary_from, low)
    return stationary if high is None or stationary < high else (low + high) // 2


def _range(exceptions: list[int], typical: int, low: int) -> tuple[int | None, int | None]:
    """The first and the last count of the range around the typical count that contains none of the exceptions.

    (None, None) if the typical count is an exception itself. A last count of None means that no exception is above it.
    """
    if typical in exceptions:
        return None, None
    below = [n for n in exceptions if n < typical]
    above = [n for n in exceptions if n > typical]
    return (below[-1] + 1 if below else low), (above[0] - 1 if above else None)


def profile(laws: Laws, counts: tuple[int, int | None]) -> list[CountProfile]:
    """The bias, P(Y = n | n) and mean squared error of promised counts n, one profile for each different law.

    The counts n are all promised counts up to the stationary count, and the last ones, which have a law in `top`.
    """
    low, high = counts
    if isinstance(laws, Remap):
        law = laws.source
        rows = [*laws.profiles, CountProfile(laws.stationary_from, law.mean, law.eta, law.mse)]
        return [row for row in rows if row.n >= low and (high is None or row.n <= high)]
    rows = _profiles_below(laws.law(laws.lo), laws.lo, low)
    for n in distinct_counts(laws):
        if n >= low and (high is None or n <= high):
            law = laws.law(n)
            rows.append(CountProfile(n, law.mean, law.eta, law.mse))
    return rows


def margin_95(laws: Laws, counts: tuple[int, int | None] = (0, None)) -> int:
    """The least margin m with P(|Y - n| <= m | n) >= 95 % for every promised true count n; Y is the released count."""
    low, high = counts
    if isinstance(laws, Remap) and laws.targets is not None:
        return _remapped_margin(laws, laws.targets, low)
    ends = {low} if high is None else {low, high}
    unlike = ends | {n for n in distinct_counts(laws) if n >= low and (high is None or n <= high)}
    return max(laws.law(n).margin(LEVEL_95) for n in unlike)


def _remapped_margin(laws: Remap, targets: tuple[int, ...], low: int) -> int:
    """`margin_95` for a remap whose map is not random and never falls; `targets` are the values of the map at 0..T.

    For such a map, P(Y <= y | n) = P(Z <= h - n), where h is the last value that the map sends to y or below. The
    counts are taken in turn, and the margin grows until it has 95 % at each.
    """
    law, last = laws.source, len(targets) - 1
    sums = [0, *accumulate(law.weights)]
    holds, slots = LEVEL_95 * law.total, len(law.weights)
    ends: list[int] = []  # h for y = 0..T
    for j, y in enumerate([*targets, last + 1]):
        ends += [j - 1] * (y - len(ends))

    def below(y: int, n: int) -> int:
        """The weight of the event Y <= y for the true count n."""
        h = ends[y] if 0 <= y <= last else y
        return sums[min(max(h - n + law.left + 1, 0), slots)] if y >= 0 else 0

    margin = law.margin(LEVEL_95)
    for n in range(low, laws.stationary_from):
        while below(n + margin, n) - below(n - margin - 1, n) < holds:
            margin += 1
    return margin


def _profiles_below(law: Law, lo: int, low: int) -> list[CountProfile]:
    """The profiles of the counts n from `low` to below `lo`: n is treated as `lo`, so its error is Z + lo - n."""
    mean, mse = law.mean, law.mse
    return [
        CountProfile(lo - up, mean + up, law.probability(-up), mse + 2 * up * mean + up * up)
        for up in range(lo - low, 0, -1)
    ]


def _reach(laws: Laws, profiles: list[CountProfile]) -> tuple[int, bool]:
    """The largest |Y - n| over the profiled counts n, and whether the released count Y can be negative."""
    if isinstance(laws, Remap):
        targets = (abs(move.target) for moves in laws.moves.values() for move in moves)
        return max(laws.reach, max(targets, default=0)), False
    first = laws.law(laws.lo)
    up = max(0, laws.lo - profiles[0].n)
    worst = max(abs(first.least + up), abs(first.greatest + up))
    negative = laws.lo + first.least < 0
    for n in (row.n for row in profiles if row.n >= laws.lo):
        law = laws.law(n)
        worst, negative = max(worst, law.worst_error), negative or n + law.least < 0
    return worst, negative
