"""Who is compared: each mechanism with the least noise that meets the shared terms.

A contender that cannot meet them raises a CountveilError, whose sentence becomes the reason for leaving it out.
Floats only steer the search within a family: the parameter found is a short decimal, and that it has enough noise is
checked exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction

from countveil.comparison.basis import Basis, Shared, typical_law
from countveil.comparison.ours import LARGEST_FREE_D, bound_for_variance, least_variance, ours, ours_signed
from countveil.design import paper
from countveil.design.optimal import knee
from countveil.errors import CountveilError, InfeasibleError, ParameterError, RequestError
from countveil.exact import decimal_text
from countveil.families.fair import explicit_fair
from countveil.families.gaussian import discrete_gaussian, parameter_for_variance
from countveil.families.geometric import (
    clamped_geometric,
    folded_geometric,
    geometric,
    rounded_laplace,
    truncated_geometric,
)
from countveil.families.maximum_entropy import maximum_entropy
from countveil.families.member import BITS, Member
from countveil.families.staircase import staircase
from countveil.law import Columns
from countveil.rounding import proposals, symmetric_law
from countveil.search import NoRootError, bisect, find_root, least_positive

Contender = Callable[[Basis], Member]

PAPER = "paper's law"
DIGITS = 12
_CLOSE = 1e-11
_WIDEST = 60.0
"""Logarithms of ratios beyond this are as good as infinite."""
PARAMETERS = (0.01, 1000.0)
"""1/epsilon of what families are written out for."""


# The paper's law


def papers_law(basis: Basis) -> Member:
    """The closed form: at a guarantee with the D and eta of least variance, at a variance with the eta that has it."""
    _only_sensitivity_1(basis, "the paper's closed form")
    if basis.epsilon is None:
        raise RequestError("the paper's law is made for an epsilon; give epsilon to compare it")
    epsilon = basis.epsilon
    if basis.shared is Shared.ETA:
        return _paper_member(epsilon, basis.eta or Fraction(1, 2), basis.D or 1)
    if basis.shared is Shared.VARIANCE:
        return _paper_tuned(basis, epsilon, bound_for_variance(basis))
    eta = Fraction(decimal_text(knee(epsilon), 12, "down"))

    def enough(D: int) -> bool:
        return paper.closed_form(epsilon, eta, D).holds and basis.noisy_enough(_paper_member(epsilon, eta, D))

    return _best_bound(basis, enough, lambda D: _paper_tuned(basis, epsilon, D), PAPER)


def _paper_tuned(basis: Basis, epsilon: Fraction, D: int) -> Member:
    def holds(eta: float) -> bool:  # the theorem holds from some eta on
        return paper.closed_form(epsilon, Fraction(eta), D).holds

    _, least = bisect(holds, 1e-6, 1 - 1e-6, steps=40, middle=lambda low, high: math.sqrt(low * high))
    limits = (1e-6, (1 - least) / least)
    guess = 1 / float(knee(epsilon)) - 1
    return tuned(basis, lambda x: _paper_member(epsilon, 1 / (1 + x), D), limits, guess, PAPER)


def _best_bound(basis: Basis, enough: Callable[[int], bool], at: Callable[[int], Member], what: str) -> Member:
    """The member of least variance over noise bounds around the least that is enough at the usual parameter."""
    limit = basis.D or LARGEST_FREE_D
    first = least_positive(enough, limit)
    bounds = {first, first + 2, first + 6, *(range(max(1, first - 12), first) if first <= 16 else ())}
    found = []
    for D in sorted(bound for bound in bounds if bound <= limit):
        with suppress(CountveilError):
            found.append(at(D))
    if not found:
        raise InfeasibleError(f"{what} does not have this guarantee with D up to {limit}", "change the terms")
    return min(found, key=lambda member: typical_law(member).variance)


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
        Columns(symmetric_law(proposals(form.half), BITS)),
        Fraction(0),
        {"eta": decimal_text(eta, 10), "D": str(D)},
        (f"least singleton delta for n >= D; the paper would state delta {decimal_text(bound, 6, 'up')}",),
    )


# The literature


def gaussian(basis: Basis) -> Member:
    """The discrete Gaussian; at a variance, the one whose true variance it is."""
    if basis.shared is Shared.VARIANCE:
        return discrete_gaussian(parameter_for_variance(basis.variance or Fraction(1)))
    return tuned(basis, discrete_gaussian, (0.001, 1e8), _spread(basis) ** 2, "discrete Gaussian")


def gaussian_by_parameter(basis: Basis) -> Member:
    """At a variance: the discrete Gaussian whose parameter is that number, as the paper compares."""
    if basis.shared is not Shared.VARIANCE:
        raise RequestError("a comparison by parameter is one at the same variance")
    member = discrete_gaussian(basis.variance or Fraction(1))
    return Member(member.family, "Gaussian by parameter", member.columns, member.cut, member.parameters)


def geometric_within_D(basis: Basis) -> Member:
    """Truncated to ±D; at a guarantee with the D and the parameter of least variance."""

    def at(D: int) -> Member:
        return by_epsilon(lambda epsilon: truncated_geometric(epsilon, D), "truncated geometric")(basis)

    if basis.shared is not Shared.GUARANTEE:
        return at(basis.D or bound_for_variance(basis))
    epsilon = (basis.epsilon or Fraction(1)) / basis.sensitivity
    return _best_bound(
        basis, lambda D: basis.noisy_enough(truncated_geometric(epsilon, D)), at, "truncated geometric noise"
    )


def fair(basis: Basis) -> Member:
    """The explicit fair mechanism on 0..N."""
    _only_sensitivity_1(basis, "the explicit fair mechanism")
    return by_epsilon(lambda epsilon: explicit_fair(epsilon, basis.largest_count), "explicit fair")(basis)


def staircase_noise(basis: Basis) -> Member:
    """The staircase, where one person counts more than once; the r of least variance."""
    d = basis.sensitivity
    if d == 1:
        raise RequestError("the staircase is the geometric law at sensitivity 1")
    found = []
    for r in range(1, d + 1):
        with suppress(InfeasibleError):
            found.append(tuned(basis, _staircase(d, r), PARAMETERS, _spread(basis) / d, "staircase"))
    if not found:
        raise InfeasibleError("no staircase noise has these terms", "change the terms")
    return min(found, key=lambda member: typical_law(member).variance)


def _staircase(d: int, r: int) -> Callable[[Fraction], Member]:
    return lambda x: staircase(_inverse(x), d, r)


def by_epsilon(at: Callable[[Fraction], Member], what: str) -> Contender:
    """A family whose noise grows as its epsilon falls."""
    return lambda basis: tuned(basis, lambda x: at(_inverse(x)), PARAMETERS, _spread(basis), what)


def p_table(basis: Basis) -> Member:
    """The maximum-entropy p-table of variance V (at the same eta: stay probability eta, our law's variance)."""
    if basis.shared is Shared.GUARANTEE:
        raise InfeasibleError(
            "p-tables leave zero alone, so a count of 0 and one of 1 can be told apart whatever the epsilon",
            "compare them at the same variance or the same eta and D",
        )
    if basis.shared is Shared.VARIANCE:
        spread = math.sqrt(float(basis.variance or 1))
        return _p_table(basis.D or max(3, math.ceil(4 * spread)), basis.variance or Fraction(1))
    variance = Fraction(decimal_text(ours_signed(basis).columns.stationary.variance, 10))
    found = _p_table(basis.D or 1, variance, basis.eta)
    if abs(typical_law(found).eta - (basis.eta or 0)) > Fraction(1, 10**6):
        raise InfeasibleError(
            f"no p-table of variance {decimal_text(variance, 4)}, that of ours, stays with this probability",
            "compare it at the same variance",
        )
    return found


def _p_table(D: int, variance: Fraction, pstay: Fraction | None = None) -> Member:
    try:
        return maximum_entropy(D, variance, pstay=pstay)
    except ParameterError:
        raise InfeasibleError(
            f"there is no p-table here with noise up to {D} and variance {decimal_text(variance, 4)}",
            "p-tables go to D = 300 and variances from 0.001 to below D^2",
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
    "p-table": p_table,
}
NOT_ASKED = {"countveil-variance", "discrete-gaussian-parameter", "staircase"}
"""Left out without a word where they have nothing to add."""


def _spread(basis: Basis) -> float:
    """A first guess of 1/epsilon of geometric noise with the shared terms."""
    if basis.shared is Shared.VARIANCE:
        return max(0.05, math.sqrt(float(basis.variance or 1) / 2))
    if basis.shared is Shared.ETA:
        return max(0.05, 1 / (2 * math.atanh(float(basis.eta or Fraction(1, 2)))))
    return basis.sensitivity / float(basis.epsilon or 1)


def _inverse(x: Fraction) -> Fraction:
    """1/x as a short decimal, rounded down: not less noise than asked for."""
    return Fraction(decimal_text(1 / x, DIGITS, "down"))


def _only_sensitivity_1(basis: Basis, what: str) -> None:
    if basis.sensitivity > 1:
        raise RequestError(f"{what} is for sensitivity 1")


# The member of a one-parameter family with the least noise


def tuned(
    basis: Basis, member: Callable[[Fraction], Member], limits: tuple[float, float], guess: float, what: str
) -> Member:
    """The member of least noise with enough of it; `member` is noisier the larger its argument, within `limits`.

    Where even the least noise within the limits is enough, that is what is returned.
    """
    first, last = math.log(limits[0]), math.log(limits[1])
    try:
        x = find_root(
            lambda x: _lack(basis, member(_short(x))),
            min(max(math.log(guess), first), last),
            limits=(first, last),
            step=0.25,
            widest=math.inf,
            tolerance=_CLOSE,
            close=1e-13,
        )
    except NoRootError:
        raise InfeasibleError(
            f"even the widest {what} noise there is here has too little of it", "change the terms"
        ) from None
    for _ in range(60):
        found = member(_short(x))
        if basis.noisy_enough(found):
            return found
        x += _CLOSE
    raise InfeasibleError(f"no {what} noise has these terms", "change the terms")


def _lack(basis: Basis, member: Member) -> float:
    """The logarithm of the ratio by which noise is lacking; positive if more is needed."""
    first, second = basis.judge(member)
    if not first or not second:
        return _WIDEST if first else -_WIDEST
    ratio = first / second
    log = math.log(ratio.numerator) - math.log(ratio.denominator)
    return max(-_WIDEST, min(_WIDEST, log)) or (1e-16 if ratio > 1 else 0.0)


def _short(log: float) -> Fraction:
    return Fraction(decimal_text(Fraction(math.exp(log)), DIGITS, "up"))
