"""The contenders of a comparison: each mechanism with the least noise that meets the shared terms.

A contender that cannot meet the terms raises a CountveilError; its message becomes the reason for leaving it out.
`tuning` has the search within a family, `recent_contenders` the mechanisms of the newest papers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial

from countveil.comparison.basis import Basis, Shared, typical_law
from countveil.comparison.own_mechanisms import LARGEST_FREE_D, bound_for_variance, least_variance, ours, ours_signed
from countveil.comparison.recent_contenders import RECENT
from countveil.comparison.tuning import (
    PARAMETERS,
    SHARES,
    Contender,
    best_of,
    by_epsilon,
    edge_depth,
    inverse,
    require_sensitivity_1,
    spread,
    tune,
)
from countveil.design import paper
from countveil.design.closed_form import knee
from countveil.errors import CountveilError, InfeasibleError, ParameterError, RequestError
from countveil.laws.law import LawsByCount
from countveil.laws.rounding import proposals, symmetric_law
from countveil.literature.fair import explicit_fair
from countveil.literature.gaussian import discrete_gaussian, parameter_for_variance
from countveil.literature.geometric import (
    clamped_geometric,
    folded_geometric,
    geometric,
    rounded_laplace,
    truncated_geometric,
)
from countveil.literature.maximum_entropy import maximum_entropy
from countveil.literature.member import BITS, Member
from countveil.literature.staircase import staircase
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.search import bisect, least_positive

PAPER = "paper's law"


# The paper's law


def papers_law(basis: Basis) -> Member:
    """The paper's law from its closed form.

    For a shared guarantee it is the one of least variance over D and eta; for a shared variance, the one whose eta
    gives that variance.
    """
    require_sensitivity_1(basis, "the paper's closed form")
    if basis.epsilon is None:
        raise RequestError("the paper's law needs an epsilon; give epsilon to compare it")
    epsilon = basis.epsilon
    if basis.shared is Shared.ETA:
        return _paper_member(epsilon, basis.eta or Fraction(1, 2), basis.D or 1)
    if basis.shared is Shared.VARIANCE:
        return _tune_paper(basis, epsilon, bound_for_variance(basis))
    if basis.answers > 1:
        return _papers_law_of_many(basis)
    eta = Fraction(decimal_text(knee(epsilon), 12, "down"))

    def enough(D: int) -> bool:
        return paper.closed_form(epsilon, eta, D).holds and basis.noisy_enough(_paper_member(epsilon, eta, D))

    return _best_bound(basis, enough, lambda D: _tune_paper(basis, epsilon, D), PAPER)


def _papers_law_of_many(basis: Basis) -> Member:
    """The paper's law for several answers.

    Its epsilon (smaller than that of the whole budget) is tuned, eta is `knee(epsilon)`, and D is so large that the two
    ends of the noise take about 1/30 of delta.
    """
    depth = edge_depth(basis, SHARES[1])

    def member(x: Fraction) -> Member:
        epsilon = inverse(x)
        eta = Fraction(decimal_text(knee(epsilon), 12, "down"))
        return _paper_member(epsilon, eta, max(2, math.ceil(depth * x)))

    return tune(basis, member, PARAMETERS, spread(basis), PAPER)


def _tune_paper(basis: Basis, epsilon: Fraction, D: int) -> Member:
    def holds(eta: float) -> bool:  # the theorem holds from some eta on
        return paper.closed_form(epsilon, Fraction(eta), D).holds

    _, least = bisect(holds, 1e-6, 1 - 1e-6, steps=40, middle=lambda low, high: math.sqrt(low * high))
    limits = (1e-6, (1 - least) / least)
    guess = 1 / float(knee(epsilon)) - 1
    return tune(basis, lambda x: _paper_member(epsilon, 1 / (1 + x), D), limits, guess, PAPER)


def _best_bound(basis: Basis, enough: Callable[[int], bool], at: Callable[[int], Member], what: str) -> Member:
    """The member of least variance whose noise bound is the smallest one with `enough(D)`, or near it.

    `enough(D)` says whether any member with noise bound D meets the terms, `at(D)` makes the one with least noise, and
    `what` names the family in errors.
    """
    limit = basis.D or LARGEST_FREE_D
    first = least_positive(enough, limit)
    bounds = {first, first + 2, first + 6, *(range(max(1, first - 12), first) if first <= 16 else ())}
    members = []
    for D in sorted(bound for bound in bounds if bound <= limit):
        with suppress(CountveilError):
            members.append(at(D))
    if not members:
        raise InfeasibleError(
            f"{what} does not have this guarantee with D up to {limit}", "relax epsilon or delta, or allow a larger D"
        )
    return min(members, key=lambda member: typical_law(member).variance)


def _paper_member(epsilon: Fraction, eta: Fraction, D: int) -> Member:
    form = paper.closed_form(epsilon, eta, D)
    if not form.holds:
        raise InfeasibleError(
            f"the paper's theorem does not hold at epsilon {decimal_text(epsilon, 6)}, eta {decimal_text(eta, 6)}, "
            f"D {D}",
            "raise eta",
        )
    bound = min(Fraction(1), (2 * D + 1) * Fraction(form.delta_star))
    return Member(
        "paper",
        PAPER,
        LawsByCount(symmetric_law(proposals(form.half), BITS)),
        Fraction(0),
        {"eta": decimal_text(eta, 10), "D": str(D)},
        (f"least singleton delta for n >= D; the paper would state delta {decimal_text(bound, 6, 'up')}",),
    )


# The literature


def gaussian(basis: Basis) -> Member:
    """The discrete Gaussian with the least noise that meets the terms; a shared variance is its exact variance."""
    if basis.shared is Shared.VARIANCE:
        return discrete_gaussian(parameter_for_variance(basis.variance or Fraction(1)))
    return tune(basis, discrete_gaussian, (0.001, 1e8), spread(basis) ** 2, "discrete Gaussian")


def gaussian_by_parameter(basis: Basis) -> Member:
    """For a shared variance, the discrete Gaussian whose parameter s2 is that number, as in the paper's comparison."""
    if basis.shared is not Shared.VARIANCE:
        raise RequestError(
            "a discrete Gaussian with a given parameter is only compared at the same variance; give variance"
        )
    member = discrete_gaussian(basis.variance or Fraction(1))
    return Member(member.family, "Gaussian by parameter", member.laws, member.cut, member.parameters)


def geometric_within_D(basis: Basis) -> Member:
    """The geometric law truncated to noise up to D; for a shared guarantee, with the D of least variance."""

    def at(D: int) -> Member:
        return by_epsilon(lambda epsilon: truncated_geometric(epsilon, D), "truncated geometric")(basis)

    if basis.shared is not Shared.GUARANTEE:
        return at(basis.D or bound_for_variance(basis))
    if basis.answers > 1:
        return best_of(basis, [partial(_truncated_of_many, basis, share) for share in SHARES], "geometric")
    epsilon = (basis.epsilon or Fraction(1)) / basis.sensitivity
    return _best_bound(
        basis, lambda D: basis.noisy_enough(truncated_geometric(epsilon, D)), at, "truncated geometric noise"
    )


def _truncated_of_many(basis: Basis, share: Fraction) -> Member:
    depth = edge_depth(basis, share)

    def member(x: Fraction) -> Member:
        return truncated_geometric(inverse(x), max(1, math.ceil(depth * x)))

    return tune(basis, member, PARAMETERS, spread(basis), "truncated geometric")


def fair(basis: Basis) -> Member:
    """The explicit fair mechanism for counts 0..N with the least noise that meets the shared terms."""
    require_sensitivity_1(basis, "the explicit fair mechanism")
    return by_epsilon(lambda epsilon: explicit_fair(epsilon, basis.largest_count), "explicit fair")(basis)


def staircase_noise(basis: Basis) -> Member:
    """The staircase of least variance, if one person can change a count by more than one."""
    d = basis.sensitivity
    if d == 1:
        raise RequestError(
            "the staircase is the geometric law at sensitivity 1; compare geometric, or give a larger sensitivity"
        )
    members = []
    for r in range(1, d + 1):
        with suppress(InfeasibleError):
            members.append(tune(basis, _staircase(d, r), PARAMETERS, spread(basis) / d, "staircase"))
    if not members:
        raise InfeasibleError("no staircase noise meets the guarantee", "relax epsilon or delta, or allow a larger D")
    return min(members, key=lambda member: typical_law(member).variance)


def _staircase(d: int, r: int) -> Callable[[Fraction], Member]:
    return lambda x: staircase(inverse(x), d, r)


def p_table(basis: Basis) -> Member:
    """The maximum-entropy p-table for a shared variance, or for a shared eta and D.

    For eta and D it is the p-table with that eta and the variance of our signed law.
    """
    if basis.shared is Shared.GUARANTEE:
        raise InfeasibleError(
            "p-tables leave zero alone, so counts of 0 and 1 can be distinguished at every epsilon",
            "compare them at the same variance or the same eta and D",
        )
    if basis.shared is Shared.VARIANCE:
        spread = math.sqrt(float(basis.variance or 1))
        return _p_table(basis.D or max(3, math.ceil(4 * spread)), basis.variance or Fraction(1))
    variance = Fraction(decimal_text(ours_signed(basis).laws.stationary.variance, 10))
    member = _p_table(basis.D or 1, variance, basis.eta)
    if abs(typical_law(member).eta - (basis.eta or 0)) > Fraction(1, 10**6):
        raise InfeasibleError(
            f"no p-table with the variance of our law, {decimal_text(variance, 4)}, has this eta",
            "compare it at the same variance",
        )
    return member


def _p_table(D: int, variance: Fraction, pstay: Fraction | None = None) -> Member:
    try:
        return maximum_entropy(D, variance, pstay=pstay)
    except ParameterError:
        raise InfeasibleError(
            f"no p-table has noise up to {D} and variance {decimal_text(variance, 4)}",
            "give D up to 300 and a variance from 0.001 to below D^2",
        ) from None


CONTENDERS: dict[str, Contender] = {
    "countveil": ours,
    "countveil-signed": ours_signed,
    "countveil-variance": least_variance,
    "paper": papers_law,
    "discrete-gaussian": gaussian,
    "discrete-gaussian-parameter": gaussian_by_parameter,
    "geometric": by_epsilon(geometric, "geometric"),
    "truncated-geometric": geometric_within_D,
    "clamped-geometric": by_epsilon(clamped_geometric, "clamped geometric"),
    "folded-geometric": by_epsilon(folded_geometric, "folded geometric"),
    "explicit-fair": fair,
    "staircase": staircase_noise,
    "rounded-laplace": by_epsilon(rounded_laplace, "rounded Laplace"),
    **RECENT,
    "p-table": p_table,
}
NOT_ASKED = {"countveil-variance", "discrete-gaussian-parameter", "staircase", "finite-set", "canonical"}
"""Mechanisms that are left out silently if they cannot meet the terms, unless the caller named them."""
