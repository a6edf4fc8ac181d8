"""The mechanisms of the newest papers, each with the least noise that meets the shared terms of a comparison.

For families of two parameters, a few values of one are tried: the share of delta at the ends of bounded noise, the
shape of the offset Gaussian. The order of the Renyi divergence is searched for. For each value, the other parameter is
tuned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction

from countveil.comparison.basis import Basis, Shared, typical_law
from countveil.comparison.tuning import (
    PARAMETERS,
    SHARES,
    Contender,
    best_of,
    by_epsilon,
    edge_depth,
    inverse,
    judge,
    require_one_answer,
    require_sensitivity_1,
    spread,
    tune,
)
from countveil.errors import CountveilError, InfeasibleError, RequestError
from countveil.literature.bounded import bounded_laplace, doubly_exponential, truncated_laplace
from countveil.literature.canonical import canonical_noise
from countveil.literature.finite_set import LARGEST_D, finite_set_noise
from countveil.literature.gaussian import truncated_gaussian
from countveil.literature.member import Member
from countveil.literature.offset_gaussian import offset_gaussian
from countveil.literature.renyi import LARGEST_ORDER, renyi_optimal
from countveil.literature.skellam import skellam
from countveil.literature.unbiased import unbiased_geometric
from countveil.numeric.exact_numbers import decimal_text

SHAPES = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4), Fraction(8))
"""The offsets to try for the offset Gaussian, in units of its standard deviation."""
SPARE = 1 - Fraction(1, 10**12)
VARIANCES = (0.02, 9900.0)
STRIDE, NEAR, ORDERS = 0.55, 0.01, 5
"""Of a Renyi-optimal law, in ln(order - 1): the step between the first orders, and the least distance of others. How
many others are tried at most."""


def canonical(basis: Basis) -> Member:
    """The discrete canonical noise for the shared terms.

    If the guarantee of one answer is shared, this is the law of that guarantee. For many answers, several deltas of one
    answer are tried, and epsilon is tuned for each.
    """
    require_sensitivity_1(basis, "canonical noise")
    if basis.epsilon is None:
        raise RequestError("canonical noise needs an epsilon; give epsilon to compare it")
    epsilon, delta = basis.epsilon, basis.delta or Fraction(1, 10**24)
    if basis.shared is not Shared.GUARANTEE:  # less delta is more noise
        return tune(basis, lambda x: canonical_noise(epsilon, inverse(x)), (1.002, 1e24), 1e6, "canonical")
    if basis.answers == 1:
        return canonical_noise(epsilon, delta * SPARE)

    def at(share: Fraction) -> Callable[[], Member]:
        each = delta * share / basis.answers
        return lambda: tune(basis, lambda x: canonical_noise(inverse(x), each), PARAMETERS, spread(basis), "canonical")

    return best_of(basis, map(at, SHARES), "canonical")


def gaussian_within_D(basis: Basis) -> Member:
    """The truncated Gaussian with the D and the parameter that give the least variance."""

    def at(share: Fraction) -> Callable[[], Member]:
        depth = edge_depth(basis, share)

        def member(x: Fraction) -> Member:
            D = basis.D or max(1, math.ceil(math.sqrt(2 * depth) * float(x)))
            return truncated_gaussian(x * x, D)

        return lambda: tune(basis, member, (0.04, 1000.0), 2 * spread(basis), "truncated Gaussian")

    return best_of(basis, map(at, SHARES), "truncated Gaussian")


def gaussian_with_offset(basis: Basis) -> Member:
    """The offset Gaussian with the offset and the parameter that give the least variance."""

    def at(shape: Fraction) -> Callable[[], Member]:
        def member(x: Fraction) -> Member:
            return offset_gaussian(x * x, shape * x)

        return lambda: tune(basis, member, (0.04, 1e4), (1 + float(shape)) * spread(basis), "offset Gaussian")

    return best_of(basis, map(at, SHAPES), "offset Gaussian")


def laplace_within_A(basis: Basis) -> Member:
    """The truncated Laplace law with the least noise, over several deltas for which its bound A is computed."""

    def at(share: Fraction) -> Callable[[], Member]:
        each = min(Fraction(49, 100), (basis.delta or Fraction(1, 10**12)) * share / basis.answers)

        def member(x: Fraction) -> Member:
            return truncated_laplace(inverse(x), each)

        return lambda: tune(basis, member, PARAMETERS, spread(basis), "truncated Laplace")

    return best_of(basis, map(at, (*SHARES, Fraction(1))), "truncated Laplace")


def for_many_queries(basis: Basis) -> Member:
    """The bounded law of Dagan and Kur for many queries, with the least noise that meets the shared terms."""
    return tune(basis, doubly_exponential, (1.1, 2000.0), 9 * spread(basis), "doubly exponential")


def renyi(basis: Basis) -> Member:
    """The Renyi-optimal law with the least noise, over orders up to 64.

    The search begins at the order that suits Gaussian noise. As the order grows, the noise falls and then rises. A
    parabola through the best order so far and its neighbours, in x = ln(order - 1), gives the next order. At a larger
    sensitivity d the law is the best for a shift by exactly d and hides no smaller one, so it is not compared.
    """
    require_sensitivity_1(basis, "Renyi-optimal noise")
    last = math.log(LARGEST_ORDER - 1)
    middle = math.log(2 * math.log(1 / float(basis.delta or 1e-6)) / float(basis.epsilon or 1))
    tried: dict[float, float] = {}
    best: Member | None = None

    def try_order(x: float) -> None:
        nonlocal best
        tried[x] = math.inf
        with suppress(CountveilError):
            member = _tune_renyi_optimal(basis, Fraction(decimal_text(Fraction(1 + math.exp(x)), 4)), best)
            tried[x] = float(judge(basis, member))
            best = member if tried[x] == min(tried.values()) else best

    for x in (middle - STRIDE, middle, middle + STRIDE):
        try_order(min(x, last))
    for _ in range(ORDERS):
        x = _next_order(tried, last)
        if any(abs(x - other) < NEAR for other in tried):
            break
        try_order(x)
    if best is None:
        raise InfeasibleError("no Renyi-optimal noise meets the guarantee", "relax epsilon or delta")
    return best


def _next_order(tried: dict[float, float], last: float) -> float:
    """The x to try next: the vertex of the parabola around the best one, or a step beyond an end of those tried."""
    x = sorted(tried)
    i = x.index(min(x, key=tried.__getitem__))
    if i == 0:
        return x[0] - STRIDE
    if i == len(x) - 1:
        return min(x[i] + STRIDE, last)
    left, right = x[i] - x[i - 1], x[i + 1] - x[i]
    up, down = tried[x[i - 1]] - tried[x[i]], tried[x[i + 1]] - tried[x[i]]
    if math.isinf(up + down) or up + down <= 0:
        return x[i] + (right if math.isfinite(down) else -left) / 2
    return x[i] + (right**2 * up - left**2 * down) / (2 * (right * up + left * down))


def cactus(basis: Basis) -> Member:
    """The Cactus law, which is the Renyi-optimal law of order 1, with the least noise that meets the shared terms."""
    require_sensitivity_1(basis, "Cactus noise")
    return _tune_renyi_optimal(basis, Fraction(1))


def _tune_renyi_optimal(basis: Basis, order: Fraction, near: Member | None = None) -> Member:
    """The member of one order; the search for its variance begins at that of `near`, if given."""
    if basis.shared is Shared.VARIANCE:
        return renyi_optimal(basis.variance or Fraction(1), order)
    guess = float(typical_law(near).variance) if near else 2 * spread(basis) ** 2
    return tune(basis, lambda V: renyi_optimal(V, order), VARIANCES, guess, "Renyi-optimal")


def finite_set(basis: Basis) -> Member:
    """The noise modulo 2D + 1, for counts 0..2D, of least variance for the shared guarantee."""
    require_one_answer(basis, "noise on a finite set")
    require_sensitivity_1(basis, "noise on a finite set")
    if basis.epsilon is None or basis.delta is None:
        raise RequestError(
            "noise on a finite set is only compared with mechanisms of the same epsilon and delta; give both"
        )
    return finite_set_noise(basis.epsilon, basis.delta, min(basis.D or LARGEST_D, LARGEST_D))


def skellam_noise(basis: Basis) -> Member:
    """Skellam noise with the least variance that meets the shared terms."""
    if basis.shared is Shared.VARIANCE:
        return skellam(basis.variance or Fraction(1))
    return tune(basis, skellam, (0.01, 9.9e4), 2 * spread(basis) ** 2, "Skellam")


def laplace_on_range(basis: Basis) -> Member:
    """The bounded Laplace law on counts 0..N with the least noise that meets the shared terms."""
    return by_epsilon(lambda epsilon: bounded_laplace(epsilon, basis.largest_count), "bounded Laplace")(basis)


RECENT: dict[str, Contender] = {
    "canonical": canonical,
    "truncated-gaussian": gaussian_within_D,
    "offset-gaussian": gaussian_with_offset,
    "truncated-laplace": laplace_within_A,
    "bounded-laplace": laplace_on_range,
    "doubly-exponential": for_many_queries,
    "renyi": renyi,
    "cactus": cactus,
    "skellam": skellam_noise,
    "unbiased-geometric": by_epsilon(unbiased_geometric, "unbiased geometric"),
    "finite-set": finite_set,
}
