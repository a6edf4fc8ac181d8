"""An empirical check of the running sampler: do its draws follow the certified laws?

It asks two questions. Either can refute the claim; neither can prove it (the certificate does that):

- **privacy.** At the certificate's worst pair of neighbouring counts (n, m) the sampler is run many times. Sets S of
  outcomes are fixed in advance, from the public weights. Clopper-Pearson bounds give P(Y in S | n) >= p and
  P(Y in S | m) <= q with confidence 1 - ALPHA for all sets together. Then log((p - delta)/q) is a lower bound on the
  true epsilon at the claimed delta. If it is above the claimed epsilon, the claim is refuted.
- **weights.** A chi-square test compares the observed noise with the weights of several laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from countveil.laws.law import Law
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.search import bisect
from countveil.sampling.randomness import NoiseKey
from countveil.sampling.sampler import release_one

ALPHA = 1e-6
"""The privacy check refutes a sampler that is right with at most this probability."""
LEAST_P = 1e-9
"""A chi-square test with a p-value below this refutes the weights."""
ORDERS = (-2.0, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0)
"""The sets S of outcomes to test: for each number o here, the y with p(y|n) > e^(epsilon + o) p(y|m)."""

LARGE = 2**40
ONE_BY_ONE = 4000

Release = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True)
class Fit:
    """A comparison of the noise observed at the count n with the weights of its law.

    `observed` gives for each noise how often it was seen, `expected` how often it should be seen in this number of
    draws.
    """

    n: int
    draws: int
    observed: dict[int, int]
    expected: dict[int, float]
    p_value: float


@dataclass(frozen=True)
class SamplerAudit:
    """The result of an audit.

    `epsilon_lower` is a proved lower bound on the true epsilon at the claimed delta, with high confidence; minus
    infinity if no set of outcomes gives a bound.
    """

    draws: int
    pair: tuple[int, int]
    epsilon_claimed: float
    delta_claimed: float
    epsilon_lower: float
    fits: tuple[Fit, ...]

    @property
    def is_refuted(self) -> bool:
        """Whether the draws contradict the certificate."""
        return self.epsilon_lower > self.epsilon_claimed or any(fit.p_value < LEAST_P for fit in self.fits)


def audit(mechanism: Mechanism, draws: int = 1_000_000, release: Release | None = None) -> SamplerAudit:
    """Run the sampler `draws` times at each of a few counts, and compare what it draws with the certificate.

    `release`, if given, is used in place of the mechanism's own sampler.
    """
    draw = release or (lambda counts: mechanism.sampler.release(counts, NoiseKey()))
    n, m = mechanism.certificate.worst_pair
    counts = _audited_counts(mechanism)
    mixed = draw(np.tile(np.array(counts, dtype=np.int64), draws))  # all laws side by side in every batch
    seen = {c: mixed[i :: len(counts)] - c for i, c in enumerate(counts)}
    fits = [_fit(c, mechanism.laws.law(c), seen[c]) for c in counts]
    if release is None:
        one = np.array([release_one(mechanism.laws, n) - n for _ in range(ONE_BY_ONE)])
        fits.append(_fit(n, mechanism.laws.law(n), one))
    fits.append(_independence(mechanism, draw, draws))
    epsilon, delta = float(mechanism.epsilon), float(mechanism.delta)
    bounds = [_epsilon_lower(mechanism, (a, b), seen, epsilon, delta, draws) for a, b in ((n, m), (m, n))]
    return SamplerAudit(draws, (n, m), epsilon, delta, max(bounds), tuple(fits))


def _audited_counts(mechanism: Mechanism) -> list[int]:
    """The promised counts to audit: worst pair, first three, last three, two around the stationary one, a large one."""
    first, last = mechanism.counts
    M = mechanism.certificate.stationary_from
    wanted = {*mechanism.certificate.worst_pair, first, first + 1, first + 2, M - 1, M, LARGE}
    if last is not None:
        wanted |= {last, last - 1, last - 2}
    return sorted(c for c in wanted if c >= first and (last is None or c <= last))


def _independence(mechanism: Mechanism, draw: Release, draws: int) -> Fit:
    """Test whether draws are independent, by how often two draws at the same count have equal noise.

    The expected share is sum_z p(z)^2. One test compares neighbouring cells of one release, the other the same cell of
    two releases. In the Fit, 0 stands for the first test and 1 for the second, instead of a noise.
    """
    n = mechanism.certificate.typical
    law = mechanism.laws.law(n)
    same = float(sum(w * w for w in law.weights)) / float(law.total) ** 2
    once, again = (draw(np.full(draws, n, dtype=np.int64)) for _ in range(2))
    half = draws // 2
    equal = int((once[: 2 * half : 2] == once[1 : 2 * half : 2]).sum()), int((once == again).sum())
    trials = half, draws
    p_value = min(1.0, 2 * min(_two_sided(k, t, same) for k, t in zip(equal, trials, strict=True)))
    return Fit(n, draws, {0: equal[0], 1: equal[1]}, {0: half * same, 1: draws * same}, p_value)


def _two_sided(successes: int, trials: int, p: float) -> float:
    """The two-sided p-value of a number of successes in trials of probability p: twice the smaller tail."""
    if p >= 1:
        return 1.0
    above = 1.0 if successes == 0 else beta_regularised(p, successes, trials - successes + 1)
    below = 1.0 if successes == trials else 1 - beta_regularised(p, successes + 1, trials - successes)
    return min(1.0, 2 * max(0.0, min(above, below)))


def _epsilon_lower(
    mechanism: Mechanism,
    pair: tuple[int, int],
    seen: dict[int, NDArray[np.int64]],
    epsilon: float,
    delta: float,
    draws: int,
) -> float:
    """The largest lower bound on the true epsilon that any of the tested sets of outcomes gives.

    The allowed probability of error, ALPHA, is divided equally among all the sets.
    """
    n, m = pair
    p, q = mechanism.laws.law(n), mechanism.laws.law(m).shift(m - n)
    here, there = seen[n], seen[m] + (m - n)
    level = ALPHA / (4 * len(ORDERS))
    best = -math.inf
    for offset in ORDERS:
        order = math.exp(epsilon + offset)
        chosen = [z for z, w in p.items() if w / p.total > order * (q.weight(z) / q.total)]
        inside = np.isin(here, chosen).sum(), np.isin(there, chosen).sum()
        low = clopper_pearson_lower(int(inside[0]), draws, level)
        high = 1 - clopper_pearson_lower(draws - int(inside[1]), draws, level)
        if low > delta and high > 0:
            best = max(best, math.log((low - delta) / high))
    return best


def _fit(n: int, law: Law, noise: NDArray[np.int64]) -> Fit:
    draws = len(noise)
    values, times = np.unique(noise, return_counts=True)
    observed = dict(zip(values.tolist(), times.tolist(), strict=True))
    expected = {z: draws * w / law.total for z, w in law.items() if w}
    if set(observed) - set(expected):
        return Fit(n, draws, observed, expected, 0.0)
    return Fit(n, draws, observed, expected, _chi_square_p(observed, expected))


def _chi_square_p(observed: dict[int, int], expected: dict[int, float]) -> float:
    """The p-value of Pearson's chi-square test; values expected fewer than 10 times are pooled with another one."""
    pooled = {z for z, e in expected.items() if e < 10}
    cells = [(observed.get(z, 0), e) for z, e in expected.items() if z not in pooled]
    if pooled and cells:  # rare values join the least expected of the other values
        k, e = cells.pop(min(range(len(cells)), key=lambda i: cells[i][1]))
        cells.append((k + sum(observed.get(z, 0) for z in pooled), e + sum(expected[z] for z in pooled)))
    statistic = sum((o - e) ** 2 / e for o, e in cells)
    return gamma_upper((len(cells) - 1) / 2, statistic / 2) if len(cells) > 1 else 1.0


# The two distribution functions that are needed


def clopper_pearson_lower(successes: int, trials: int, level: float) -> float:
    """A lower bound on a probability: the p at which P(at least `successes` in `trials` trials) is `level`.

    The bound is above the true probability with probability at most `level`.
    """
    if successes == 0:
        return 0.0
    likely = partial(beta_regularised, a=successes, b=trials - successes + 1)
    return bisect(lambda p: likely(p) >= level, 0.0, successes / trials, steps=100)[0]


def beta_regularised(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), computed by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_regularised(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for i in range(1, 10_000):
        for term in (
            i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i)),
            -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)),
        ):
            d, c = 1 / _away(1 + term * d), _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * value


def gamma_upper(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x)."""
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for i in range(1, 100_000):
            term *= x / (a + i)
            total += term
            if term < total * 1e-16:
                break
        return 1 - front * total
    b = x + 1 - a
    c, d = 1e300, 1 / b
    value = d
    for i in range(1, 100_000):
        term = -i * (i - a)
        b += 2
        d, c = 1 / _away(term * d + b), _away(b + term / c)
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value


def _away(x: float) -> float:
    """x, or a tiny positive number if x is too close to zero to divide by."""
    return x if abs(x) > 1e-300 else 1e-300
