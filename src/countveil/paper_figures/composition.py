"""Many answers together: what they cost by different ways of counting, and the variance that a budget needs.

**Cost.** The least epsilon at delta 1e-6 of k answers of one fixed mechanism:

    exact           composed law by law (`countveil.accounting`): the upper end of a bracket, its lower end beside it
    basic           k times the epsilon that one answer has at delta/k
    advanced        Kairouz, Oh, Viswanath, *The Composition Theorem for Differential Privacy* (2015): k answers of
                    (e, d) are (e', 1 - (1 - d)^k (1 - d')) with
                    e' = min(k e, k e tanh(e/2) + e sqrt(2 k ln(1/d')))
    gaussian        the discrete Gaussian of the same variance, composed law by law
    gaussian-zcdp   the same by rho = 1/(2 s2) and epsilon = k rho + 2 sqrt(k rho ln(1/delta)) (Bun, Steinke 2016)

**Need.** The least variance with which k answers are within epsilon 3, delta 1e-6: of a plan, of the geometric law and
of the discrete Gaussian, each certified; and what the last two need where basic composition or zCDP does the counting.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from countveil.accounting import plan, powers
from countveil.accounting.composition import Composition
from countveil.accounting.grid import above
from countveil.accounting.pairs import Answer, Change, answer_of
from countveil.accounting.shapes import Target, least_scale
from countveil.design import design
from countveil.exact import decimal_text
from countveil.families.gaussian import discrete_gaussian
from countveil.families.geometric import geometric
from countveil.families.member import Member
from countveil.figures.points import Figure, Point, point_of
from countveil.mechanism import Mechanism
from countveil.search import find_root

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
EPSILON, DELTA = Fraction(3), Fraction("1e-6")
FIXED_EPSILON, FIXED_DELTA = "0.1", "1e-12"
"""Of the design whose answers are counted: at a thousand answers its edges are below a thousandth of DELTA."""
COLUMNS = ("series", "answers", "epsilon", "epsilon_lower", "variance", "ratio")
FINE = 100
"""Grid steps in a standard deviation of one loss."""
NUDGE = 1e-8
"""What is found by estimates is moved by so much, then by four times as much, until it is certified."""
TINY = 1e-300
TAIL = 1e-4
"""Share of delta that tails beyond the float law may take while a scale is tuned."""


def composition() -> Figure:
    """The points of both questions."""
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
    """The epsilon of k answers of a signed mechanism at delta 1e-6, counted in five ways."""
    variance = mechanism.certificate.variance
    ours, gaussian = answer_of(mechanism.family, 1), peer(discrete_gaussian(variance))
    points: list[Point] = []
    for k in COUNTS:
        exact, normal = bracket(ours, k), bracket(gaussian, k)
        points += [
            _point("exact", k, epsilon=exact[1], epsilon_lower=exact[0]),
            _point("basic", k, epsilon=basic(mechanism, k)),
            _point("advanced", k, epsilon=Fraction(advanced(mechanism, k))),
            _point("gaussian", k, epsilon=normal[1], epsilon_lower=normal[0]),
            _point("gaussian-zcdp", k, epsilon=Fraction(zcdp(k / (2 * float(variance))))),
        ]
    return points


def bracket(answer: Answer, answers: int) -> tuple[Fraction, Fraction]:
    """What the epsilon of so many answers at delta 1e-6 is at least, and at most.

    **Guarantee.** Found by estimates, then moved apart until both ends are certified.
    """
    (pair,), step = answer.pairs[Change.ADD], _step(answer)
    whole = Composition([(answer, answers)], chosen_step=step)
    parts = [(above([pair], step), answers)]

    def lack(log_epsilon: float) -> float:
        epsilon = math.exp(log_epsilon)
        delta = pair.delta(epsilon) if answers == 1 else powers.estimate(parts, epsilon)
        return math.log(max(delta, TINY) / float(DELTA))

    low = high = near = math.exp(find_root(lack, math.log(zcdp(answers * pair.deviation**2 / 2))))
    nudge = NUDGE
    while whole.upper(high) > DELTA or whole.lower(low) < DELTA:
        low, high, nudge = near * (1 - nudge), near * (1 + nudge), 4 * nudge
    return Fraction(low), Fraction(high)


def basic(mechanism: Mechanism, answers: int) -> Fraction:
    """k times the epsilon that one answer has at delta/k."""
    one = mechanism.epsilon_at(DELTA / answers)
    if one is None:
        raise ArithmeticError("infinite losses weigh more than delta")
    return answers * one


def advanced(mechanism: Mechanism, answers: int) -> float:
    """The formula of Kairouz, Oh and Viswanath for answers of (e, d), d' being what k d leaves of delta."""
    e, left = float(mechanism.certificate.epsilon), float(DELTA - answers * mechanism.delta)
    by_variance = answers * e * math.tanh(e / 2) + e * math.sqrt(2 * answers * math.log(1 / left))
    return min(answers * e, by_variance)


def zcdp(rho: float) -> float:
    """rho-zCDP as an epsilon at delta 1e-6."""
    return rho + 2 * math.sqrt(rho * math.log(1 / float(DELTA)))


# What a budget needs


def need() -> list[Point]:
    """The variance with which k answers are within (3, 1e-6), and its ratio to the plan's."""
    points: list[Point] = []
    for k in COUNTS:
        planned = plan(epsilon=EPSILON, delta=DELTA, answers=k, policy="signed").mechanism.certificate.variance
        found = {
            "plan": planned,
            "geometric-need": tuned(1, k).columns.stationary.variance,
            "gaussian-need": tuned(2, k).columns.stationary.variance,
            "basic-need": geometric(EPSILON / k).columns.stationary.variance,
            "zcdp-need": _zcdp_variance(k),
        }
        points += [_point(series, k, variance=found[series], ratio=found[series] / planned) for series in found]
    return points


def tuned(power: int, answers: int) -> Member:
    """The geometric law (power 1) or discrete Gaussian (2) of least scale with k answers within (3, 1e-6), certified.

    **Guarantee.** The law's upper bound is within delta; it is the least scale to a relative 1e-4.
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
    """One answer of a mechanism of the literature: what was cut off of its law is slack."""
    return replace(answer_of(member.columns, 1), slack=member.cut)


def _zcdp_variance(answers: int) -> Fraction:
    """s2 = k / (2 rho), rho the largest with zcdp(rho) <= 3; the variance of that discrete Gaussian."""
    depth = math.log(1 / float(DELTA))
    rho = (math.sqrt(depth + float(EPSILON)) - math.sqrt(depth)) ** 2
    return discrete_gaussian(Fraction(answers / (2 * rho))).columns.stationary.variance


def _step(answer: Answer) -> float:
    """A grid on which the heaviest loss lies: for both laws all losses are multiples of it."""
    (pair,) = answer.pairs[Change.ADD]
    base, wanted = pair.heaviest_loss, pair.deviation / FINE
    return base / math.ceil(base / wanted)


def _point(series: str, answers: int, **values: Fraction) -> Point:
    return point_of(COLUMNS, series, answers=answers, **values)


def _fraction(value: object) -> Fraction:
    if not isinstance(value, Fraction):
        raise TypeError(value)
    return value
