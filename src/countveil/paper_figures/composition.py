"""Many answers together: their cost by different composition theorems, and the variance that a budget needs.

**Cost.** The least epsilon at delta 1e-6 of k answers of one fixed mechanism, computed in five ways:

    exact           the privacy losses of k answers composed numerically (`countveil.accounting`), with certified
                    bounds: `epsilon` is the upper one, `epsilon_lower` the lower one
    basic           k times the epsilon that one answer has at delta/k
    advanced        Kairouz, Oh, Viswanath, *The Composition Theorem for Differential Privacy* (2015): k answers of
                    (e, d) are (e', 1 - (1 - d)^k (1 - d')) with
                    e' = min(k e, k e tanh(e/2) + e sqrt(2 k ln(1/d')))
    gaussian        the discrete Gaussian of the same variance, composed in the same way as "exact"
    gaussian-zcdp   the same Gaussian by rho = 1/(2 s2), epsilon = k rho + 2 sqrt(k rho ln(1/delta)) (Bun, Steinke 2016)

**Need.** The least variance with which k answers are within epsilon 3, delta 1e-6. It is certified for a plan, the
geometric law and the discrete Gaussian. For comparison there are the geometric law by basic composition and the
discrete Gaussian by zero-concentrated differential privacy (zCDP).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from countveil.accounting import convolution
from countveil.accounting.composition import Composition
from countveil.accounting.loss_grid import above
from countveil.accounting.privacy_loss import Answer, Change, answer_of
from countveil.design import design
from countveil.literature.gaussian import discrete_gaussian
from countveil.literature.geometric import geometric
from countveil.literature.member import Member
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.search import find_root
from countveil.paper_figures.points import Figure, Point, point_of
from countveil.planning import plan
from countveil.planning.shapes import Target, least_scale

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
EPSILON, DELTA = Fraction(3), Fraction("1e-6")
FIXED_EPSILON, FIXED_DELTA = "0.1", "1e-12"
"""The guarantee of the fixed mechanism: in a thousand answers, the ends of its noise add less than DELTA / 1000."""
COLUMNS = ("series", "answers", "epsilon", "epsilon_lower", "variance", "ratio")
FINE = 100
"""The grid of privacy losses has this many steps in a standard deviation of one answer's loss."""
NUDGE = 1e-8
"""An estimate that is not certified is moved by this share, then by four times as much, and so on."""
TINY = 1e-300
TAIL = 1e-4
"""While a scale is tuned, tails that the float law leaves out may take this share of delta."""


def composition() -> Figure:
    """The points of the figure: what k answers cost, and the variance that a budget needs."""
    mechanism = design(epsilon=FIXED_EPSILON, delta=FIXED_DELTA, policy="signed")
    points = [*cost(mechanism), *need()]
    at = {(point["series"], point["answers"]): point for point in points}
    facts = {"fixed_variance": decimal_text(mechanism.certificate.variance), "fixed_D": str(mechanism.D)}
    for series in ("exact", "basic", "advanced", "gaussian", "gaussian-zcdp"):
        for k in (1, 10, 100, 1000):
            facts[f"epsilon_{series}_{k}"] = decimal_text(_fraction(at[series, k]["epsilon"]), rounding="up")
    for series in ("plan", "geometric-need", "gaussian-need", "basic-need", "zcdp-need"):
        for k in COUNTS:
            facts[f"variance_{series.removesuffix('-need')}_{k}"] = decimal_text(_fraction(at[series, k]["variance"]))
    title = "Many answers: what they cost together, and the variance that a budget needs"
    rounded = {"epsilon": "up", "epsilon_lower": "down"}
    return Figure("composition", title, COLUMNS, tuple(points), facts, rounded)


# What k answers cost


def cost(mechanism: Mechanism) -> list[Point]:
    """The epsilon of k answers of a signed mechanism at delta 1e-6, computed in five ways."""
    variance = mechanism.certificate.variance
    ours, gaussian = answer_of(mechanism.laws, 1), peer(discrete_gaussian(variance))
    points: list[Point] = []
    for k in COUNTS:
        exact, normal = bracket(ours, k), bracket(gaussian, k)
        points += [
            _point("exact", k, epsilon=exact[1], epsilon_lower=exact[0]),
            _point("basic", k, epsilon=basic_epsilon(mechanism, k)),
            _point("advanced", k, epsilon=Fraction(advanced_epsilon(mechanism, k))),
            _point("gaussian", k, epsilon=normal[1], epsilon_lower=normal[0]),
            _point("gaussian-zcdp", k, epsilon=Fraction(zcdp_epsilon(k / (2 * float(variance))))),
        ]
    return points


def bracket(answer: Answer, answers: int) -> tuple[Fraction, Fraction]:
    """A lower and an upper bound on the epsilon of k = `answers` answers at delta 1e-6.

    **Guarantee.** Both ends start at an estimate and move apart until both are certified.
    """
    (pair,), step = answer.pairs[Change.ADD], _step(answer)
    whole = Composition([(answer, answers)], chosen_step=step)
    parts = [(above([pair], step), answers)]

    def lack(log_epsilon: float) -> float:
        epsilon = math.exp(log_epsilon)
        delta = pair.delta(epsilon) if answers == 1 else convolution.estimate(parts, epsilon)
        return math.log(max(delta, TINY) / float(DELTA))

    low = high = near = math.exp(find_root(lack, math.log(zcdp_epsilon(answers * pair.deviation**2 / 2))))
    nudge = NUDGE
    while whole.upper(high) > DELTA or whole.lower(low) < DELTA:
        low, high, nudge = near * (1 - nudge), near * (1 + nudge), 4 * nudge
    return Fraction(low), Fraction(high)


def basic_epsilon(mechanism: Mechanism, answers: int) -> Fraction:
    """The epsilon of k = `answers` answers at delta 1e-6 by basic composition: k times that of one at delta/k."""
    one = mechanism.epsilon_at(DELTA / answers)
    if one is None:
        raise ArithmeticError("the probability of infinite losses is above delta")
    return answers * one


def advanced_epsilon(mechanism: Mechanism, answers: int) -> float:
    """The epsilon of k = `answers` answers at delta 1e-6 by the formula of Kairouz, Oh and Viswanath.

    Each answer is (e, d)-private; the formula's d' is what k answers of delta d leave of 1e-6.
    """
    e, left = float(mechanism.certificate.epsilon), float(DELTA - answers * mechanism.delta)
    by_variance = answers * e * math.tanh(e / 2) + e * math.sqrt(2 * answers * math.log(1 / left))
    return min(answers * e, by_variance)


def zcdp_epsilon(rho: float) -> float:
    """The epsilon at delta 1e-6 that rho-zCDP (zero-concentrated differential privacy) implies."""
    return rho + 2 * math.sqrt(rho * math.log(1 / float(DELTA)))


# What a budget needs


def need() -> list[Point]:
    """For several k, the variances with which k answers are within (3, 1e-6), and their ratios to the plan's."""
    points: list[Point] = []
    for k in COUNTS:
        planned = plan(epsilon=EPSILON, delta=DELTA, answers=k, policy="signed").mechanism.certificate.variance
        variances = {
            "plan": planned,
            "geometric-need": tune_member(1, k).laws.stationary.variance,
            "gaussian-need": tune_member(2, k).laws.stationary.variance,
            "basic-need": geometric(EPSILON / k).laws.stationary.variance,
            "zcdp-need": _zcdp_variance(k),
        }
        points += [
            _point(series, k, variance=variances[series], ratio=variances[series] / planned) for series in variances
        ]
    return points


def tune_member(power: int, answers: int) -> Member:
    """The geometric law (power 1) or discrete Gaussian (power 2) with the least noise for a number of answers.

    All answers together are within epsilon 3 and delta 1e-6. **Guarantee.** The upper bound on their delta is at most
    1e-6; the scale is the least one up to a relative 1e-4.
    """
    target = Target(float(EPSILON), float(DELTA), answers)
    guess = max(0.3, math.sqrt(2 * answers) * power) / 1.5
    c = least_scale(power, target, TAIL * float(DELTA) / answers, guess)
    nudge = NUDGE
    while True:
        member = geometric(Fraction(1 / c)) if power == 1 else discrete_gaussian(Fraction(c * c / 2))
        answer = peer(member)
        if Composition([(answer, answers)], chosen_step=_step(answer)).upper(float(EPSILON)) <= DELTA:
            return member
        c *= 1 + nudge
        nudge *= 4


def peer(member: Member) -> Answer:
    """One answer of a mechanism of the literature; what was cut off from its law counts as slack."""
    return replace(answer_of(member.laws, 1), slack=member.cut)


def _zcdp_variance(answers: int) -> Fraction:
    """The variance of the discrete Gaussian for k = `answers` answers within epsilon 3 and delta 1e-6 by zCDP.

    Its parameter is s2 = k / (2 rho), with the largest rho whose epsilon at delta 1e-6 is at most 3.
    """
    depth = math.log(1 / float(DELTA))
    rho = (math.sqrt(depth + float(EPSILON)) - math.sqrt(depth)) ** 2
    return discrete_gaussian(Fraction(answers / (2 * rho))).laws.stationary.variance


def _step(answer: Answer) -> float:
    """A grid step that divides the likeliest loss; for both kinds of laws all losses are multiples of that loss."""
    (pair,) = answer.pairs[Change.ADD]
    base, wanted = pair.heaviest_loss, pair.deviation / FINE
    return base / math.ceil(base / wanted)


def _point(series: str, answers: int, **values: Fraction) -> Point:
    return point_of(COLUMNS, series, answers=answers, **values)


def _fraction(value: object) -> Fraction:
    if not isinstance(value, Fraction):
        raise TypeError(value)
    return value
