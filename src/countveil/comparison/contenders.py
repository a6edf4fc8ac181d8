"""Who is compared: each mechanism with the least noise that meets the shared terms.

A contender that cannot meet them raises a CountveilError, whose sentence becomes the reason for leaving it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from countveil.certify import Terms, bind
from countveil.columns import Columns
from countveil.comparison.basis import Basis, Shared
from countveil.comparison.tuning import DIGITS, tuned
from countveil.decimals import proposals
from countveil.design import design, paper
from countveil.design.linear import NoSolution
from countveil.design.optimal import knee
from countveil.design.program import ColumnProgram, Model
from countveil.design.remapping import remap_law
from countveil.design.signed import least_holding
from countveil.errors import InfeasibleError, RequestError
from countveil.exact import decimal_text
from countveil.families.fair import explicit_fair
from countveil.families.gaussian import discrete_gaussian, parameter_for_variance
from countveil.families.geometric import clamped_geometric, folded_geometric, geometric, truncated_geometric
from countveil.families.laplace import rounded_laplace
from countveil.families.maximum_entropy import maximum_entropy
from countveil.families.member import BITS, Member
from countveil.families.staircase import staircase
from countveil.law import Law
from countveil.mechanism import Mechanism
from countveil.rounding import symmetric_law

Contender = Callable[[Basis], Member]

NONNEGATIVE = "countveil"
SIGNED = "countveil signed"
PAPER = "paper's law"
LARGEST_PAPER_D = 2000


# Ours


def ours(basis: Basis) -> Member:
    """Never negative, by `design`; within a variance, the signed optimum remapped to the non-negative integers."""
    if basis.shared is Shared.VARIANCE:
        return _as_member(NONNEGATIVE, _within_variance(basis, _remapped))
    return _as_member(NONNEGATIVE, _designed(basis, "nonnegative"))


def ours_signed(basis: Basis) -> Member:
    """Noise independent of n, of least delta (or largest eta) by the closed form or the signed program."""
    if basis.shared is Shared.VARIANCE:
        return _as_member(SIGNED, _within_variance(basis, _signed))
    return _as_member(SIGNED, _designed(basis, "signed"))


def _designed(basis: Basis, policy: str) -> Mechanism:
    return design(
        epsilon=basis.epsilon,
        delta=basis.delta,
        eta=basis.eta,
        D=basis.D,
        policy=policy,
        sensitivity=basis.sensitivity,
    )


def _as_member(name: str, mechanism: Mechanism) -> Member:
    parameters = {
        "eta": decimal_text(mechanism.eta, 10),
        "D": str(mechanism.D),
        "method": mechanism.method,
        "unbiased_from": str(mechanism.unbiased_from),
    }
    return Member(NONNEGATIVE, name, mechanism.family, Fraction(0), parameters, mechanism.notes[:1], mechanism.counts)


Finish = Callable[[Law, Basis, Fraction], Mechanism]


def _signed(law: Law, basis: Basis, epsilon: Fraction) -> Mechanism:
    return bind(Columns(law), Terms(epsilon, "signed", "program", law.worst_error, sensitivity=basis.sensitivity))


def _remapped(law: Law, basis: Basis, epsilon: Fraction) -> Mechanism:
    family = remap_law(law)
    return bind(family, Terms(epsilon, "nonnegative", "remap", family.D, sensitivity=basis.sensitivity))


def _within_variance(basis: Basis, finish: Finish) -> Mechanism:
    """Of least delta for the given epsilon or, by bisection over the epsilon it is made for, of least epsilon."""
    if basis.epsilon is not None:
        return _made(basis, basis.epsilon, finish)
    centre = 2 * math.asinh(1 / math.sqrt(2 * float(basis.variance or 1)))  # of geometric noise with that variance
    low, high = centre / 4, 4 * centre + 1
    best = None
    for _ in range(16):
        middle = math.sqrt(low * high)
        epsilon = Fraction(decimal_text(Fraction(middle), 6))
        found = _made(basis, epsilon, finish)
        if found.delta <= (basis.delta or 0):
            high, best = middle, found
        else:
            low = middle
    if best is None:
        raise InfeasibleError("no law of this variance has this delta at any epsilon tried", "allow more variance or D")
    return best


def _made(basis: Basis, epsilon: Fraction, finish: Finish) -> Mechanism:
    """The finished mechanism, within D where D is given: a map to the range needs some room."""
    bound = bound_for_variance(basis)
    while True:
        found = finish(_law_of_least_delta(basis, epsilon, bound), basis, epsilon)
        if basis.D is None or found.D <= basis.D or bound <= 2:
            return found
        bound = max(2, bound - (found.D - basis.D))


def _law_of_least_delta(basis: Basis, epsilon: Fraction, D: int) -> Law:
    """The symmetric law on [-D, D] of least delta whose variance is at most V, eta free."""
    variance = basis.variance or Fraction(0)
    model = Model(epsilon, D, None, None, 0, sensitivity=basis.sensitivity, max_variance=variance, signed=True)
    try:
        left, values = ColumnProgram(model).solve_in_order().columns[0]
    except NoSolution:
        raise InfeasibleError(
            f"the solver found no law on [-{D}, {D}] of variance {decimal_text(variance, 6)} for epsilon "
            f"{decimal_text(epsilon, 6)}",
            "change D or the variance",
        ) from None
    return symmetric_law(list(values[left:]), 128)


def bound_for_variance(basis: Basis) -> int:
    """D as given, or six standard deviations."""
    return basis.D or max(4, math.ceil(6 * math.sqrt(basis.variance or 1)))


# The paper's law


def papers_law(basis: Basis) -> Member:
    """The closed form; at a guarantee with eta at the knee and the least D; at a variance with the eta that has it."""
    _only_sensitivity_1(basis, "the paper's closed form")
    if basis.epsilon is None:
        raise RequestError("the paper's law is made for an epsilon; give epsilon to compare it")
    epsilon = basis.epsilon
    if basis.shared is Shared.ETA:
        return _paper_member(epsilon, basis.eta or Fraction(1, 2), basis.D or 1)
    if basis.shared is Shared.VARIANCE:
        D = bound_for_variance(basis)
        return tuned(basis, lambda x: _paper_member(epsilon, 1 / (1 + x), D), float(basis.variance or 1), PAPER)
    eta = Fraction(decimal_text(knee(epsilon), 12, "down"))

    def enough(D: int) -> bool:
        return paper.closed_form(epsilon, eta, D).holds and basis.noisy_enough(_paper_member(epsilon, eta, D))

    D = least_holding(enough, basis.D or LARGEST_PAPER_D)
    return _paper_member(epsilon, eta, D) if enough(D) else _out_of_reach(PAPER, D)


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
    return tuned(basis, discrete_gaussian, _spread(basis) ** 2, "discrete Gaussian")


def gaussian_by_parameter(basis: Basis) -> Member:
    """At a variance: the discrete Gaussian whose parameter is that number, as the paper compares."""
    if basis.shared is not Shared.VARIANCE:
        raise RequestError("a comparison by parameter is one at the same variance")
    member = discrete_gaussian(basis.variance or Fraction(1))
    return Member(member.family, "Gaussian by parameter", member.columns, member.cut, member.parameters)


def two_sided_geometric(basis: Basis) -> Member:
    return tuned(basis, lambda x: geometric(_inverse(x)), _spread(basis), "geometric")


def geometric_within_D(basis: Basis) -> Member:
    """Truncated to ±D; at a guarantee with epsilon as given and the least D."""
    if basis.shared is not Shared.GUARANTEE:
        D = bound_for_variance(basis) if basis.D is None else basis.D
        return tuned(basis, lambda x: truncated_geometric(_inverse(x), D), _spread(basis), "truncated geometric")
    epsilon = _geometric_epsilon(basis)

    def enough(D: int) -> bool:
        return basis.noisy_enough(truncated_geometric(epsilon, D))

    D = least_holding(enough, basis.D or 20_000)
    return truncated_geometric(epsilon, D) if enough(D) else _out_of_reach("truncated geometric", D)


def geometric_clamped(basis: Basis) -> Member:
    return tuned(basis, lambda x: clamped_geometric(_inverse(x)), _spread(basis), "clamped geometric")


def geometric_folded(basis: Basis) -> Member:
    return tuned(basis, lambda x: folded_geometric(_inverse(x)), _spread(basis), "folded geometric")


def fair(basis: Basis) -> Member:
    """The explicit fair mechanism on 0..N."""
    _only_sensitivity_1(basis, "the explicit fair mechanism")
    return tuned(basis, lambda x: explicit_fair(_inverse(x), basis.largest_count), _spread(basis), "explicit fair")


def staircase_noise(basis: Basis) -> Member:
    """The staircase, where one person counts more than once."""
    d = basis.sensitivity
    if d == 1:
        raise RequestError("the staircase is the geometric law at sensitivity 1")
    return tuned(basis, lambda x: staircase(_inverse(x), d), _spread(basis) / d, "staircase")


def laplace(basis: Basis) -> Member:
    return tuned(basis, lambda x: rounded_laplace(_inverse(x)), _spread(basis), "rounded Laplace")


def p_table(basis: Basis) -> Member:
    """The maximum-entropy p-table of variance V (at the same eta: stay probability eta, our law's variance)."""
    if basis.shared is Shared.GUARANTEE:
        raise InfeasibleError(
            "p-tables leave zero alone, so a count of 0 and one of 1 can be told apart whatever the epsilon",
            "compare them at the same variance or the same eta and D",
        )
    if basis.shared is Shared.VARIANCE:
        return maximum_entropy(bound_for_variance(basis), basis.variance or Fraction(1))
    law = ours_signed(basis).columns.stationary
    variance = Fraction(decimal_text(law.variance, 10))
    return maximum_entropy(basis.D or 1, variance, pstay=basis.eta)


CONTENDERS: dict[str, Contender] = {
    "countveil": ours,
    "countveil-signed": ours_signed,
    "paper": papers_law,
    "discrete-gaussian": gaussian,
    "discrete-gaussian-parameter": gaussian_by_parameter,
    "geometric": two_sided_geometric,
    "truncated-geometric": geometric_within_D,
    "clamped-geometric": geometric_clamped,
    "folded-geometric": geometric_folded,
    "explicit-fair": fair,
    "staircase": staircase_noise,
    "rounded-laplace": laplace,
    "p-table": p_table,
}
NOT_ASKED = {"discrete-gaussian-parameter", "staircase"}
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


def _geometric_epsilon(basis: Basis) -> Fraction:
    return (basis.epsilon or Fraction(1)) / basis.sensitivity


def _only_sensitivity_1(basis: Basis, what: str) -> None:
    if basis.sensitivity > 1:
        raise RequestError(f"{what} is for sensitivity 1")


def _out_of_reach(what: str, D: int) -> Member:
    raise InfeasibleError(f"{what} does not have this guarantee with D up to {D}", "raise D")
