"""The privacy of many answers: bounds on delta(epsilon) of everything released about the same people.

pairs         one answer: neighbouring laws as probabilities and losses
grid          losses on a grid: laws that dominate a pair, and laws that it dominates
powers        the sum of many losses by Fourier transform, every error bounded
composition   upper and lower bounds for k answers, both changes, both neighbour relations
planning      the best law for k answers
searching     the search for it: shapes, then D, then the weights themselves
shapes        symmetric laws by their half, in floats, for the search only
programmed    a law for each small count, with curves held under that of the best signed law
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from countveil.errors import ParameterError, RequestError
from countveil.exact import Number, exp_bounds, integer, number
from countveil.search import least_positive

if TYPE_CHECKING:
    from countveil.accounting.composition import Composition
    from countveil.accounting.planning import Plan
    from countveil.mechanism import Mechanism

__all__ = ["answers_within", "compose", "plan"]

LARGEST_ANSWERS = 10**9
LARGEST_PLAN = 10**6
LARGEST_GROUP = 100
"""Epsilon of a group beyond which nothing is left to protect."""
NEIGHBOURS = ("add-remove", "replace")


def compose(
    mechanisms: Mechanism | Sequence[tuple[Mechanism, int]],
    answers: int | str | None = None,
    *,
    neighbours: str = "add-remove",
    cells: int | str = 1,
    people: int | str = 1,
    adaptive: bool = False,
    fine: bool = False,
) -> Composition:
    """All answers together: k answers of one mechanism, or a list of (mechanism, answers) fixed in advance.

    Queries may be chosen adaptively. Mechanisms may not, unless `adaptive` says so: then all that is proved is basic
    composition, and its `note` says that. `cells` is in how many cells of one table a person can be, `people` how many
    persons are to be protected together. `fine` takes a finer grid, for the last digits.

    >>> import countveil as cv
    >>> m = cv.design(epsilon="0.1", delta="1e-9", policy="signed")
    >>> found = compose(m, 10).delta(1.0)
    >>> found.lower <= found.upper < 1e-8
    True
    """
    from countveil.accounting.composition import CHEAP, FINEST, Composition
    from countveil.accounting.pairs import answer_of

    if neighbours not in NEIGHBOURS:
        raise ParameterError("neighbours", neighbours, "one of " + ", ".join(NEIGHBOURS))
    listed = _listed(mechanisms, answers)
    terms = [(answer_of(m.family, m.certificate.sensitivity), k) for m, k in listed]
    in_cells, persons = integer("cells", cells, 1, 10**6), integer("people", people, 1, 10**4)
    often = in_cells * (2 if neighbours == "replace" else 1)
    charges = tuple((*_charge(m, persons), k * often) for m, k in listed) if adaptive else None
    points = FINEST if fine else CHEAP
    return Composition(terms, neighbours, in_cells, persons, points=points, charges=charges)


def _charge(mechanism: Mechanism, people: int) -> tuple[Fraction, Fraction]:
    """(epsilon, delta) of one answer for a group: g epsilon, and delta sum_{i<g} e^(i epsilon), rounded up."""
    epsilon, delta = mechanism.epsilon, mechanism.delta
    if people * epsilon > LARGEST_GROUP:
        return people * epsilon, Fraction(1)
    chain = sum((exp_bounds(i * epsilon)[1] for i in range(people)), Fraction(0))
    return people * epsilon, min(Fraction(1), delta * chain)


def answers_within(
    mechanism: Mechanism,
    epsilon: Number,
    delta: Number,
    *,
    neighbours: str = "add-remove",
    cells: int | str = 1,
    people: int | str = 1,
    adaptive: bool = False,
) -> int:
    """How many answers of a mechanism (epsilon, delta) pays for; 0 if not even one."""
    from dataclasses import replace

    from countveil.accounting.composition import FINEST

    total, target = epsilon_given(epsilon), delta_given(delta)

    def too_many(k: int) -> bool:
        if k == 1 and plain and mechanism.delta_at(epsilon) <= target:
            return False
        found = compose(mechanism, k, neighbours=neighbours, cells=cells, people=people, adaptive=adaptive)
        upper = found.upper(total)
        close = target < upper <= target * Fraction(101, 100)
        return (replace(found, points=FINEST).upper(total) if close else upper) > target

    plain = neighbours == "add-remove" and str(cells) == str(people) == "1"
    return least_positive(too_many, LARGEST_ANSWERS + 1) - 1


def plan(
    *,
    epsilon: Number,
    delta: Number,
    answers: int | str,
    policy: str = "nonnegative",
    objective: str = "variance",
    neighbours: str = "add-remove",
    cells: int | str = 1,
    sensitivity: int | str = 1,
    unbiased_from: int | str | None = None,
    max_bias: Number | None = None,
    method: str = "remap",
    prices: bool = False,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Plan:
    """The best mechanism for so many answers within (epsilon, delta), certified for all of them together.

    `objective` is what is best of a typical count: least "variance", largest "eta" or least 95 % "margin". From the
    count `unbiased_from` on (policy nonnegative; default: found) the bias is at most `max_bias` (default: as little as
    is nearly free). Counts are made never negative by `method` "remap" or by "program", which has P2 from n = 1 on and
    exactly no bias from `unbiased_from` on, for noise up to 48. With `prices`, the price list of other numbers of
    answers too; `progress` wraps those numbers, to show how far it is.

    >>> found = plan(epsilon="3", delta="1e-6", answers=10, policy="signed")
    >>> float(found.mechanism.certificate.variance) < 20.1, found.certified.upper <= 1e-6
    (True, True)
    """
    from dataclasses import replace

    from countveil.accounting.planning import Ask, make_plan, price_list
    from countveil.design.unsigned import bias_given, n0_given

    allowed = "a decimal number from 0.001 to 100"
    total = number("epsilon", epsilon, allowed)
    if not Fraction(1, 1000) <= total <= 100:
        raise ParameterError("epsilon", epsilon, allowed)
    allowed = "a decimal number from 1e-15 to 0.1"
    target = number("delta", delta, allowed)
    if not Fraction(1, 10**15) <= target <= Fraction(1, 10):
        hint = "bounded noise always needs a delta above 0" if target == 0 else ""
        raise ParameterError("delta", delta, allowed, hint)
    for name, given, choices in (
        ("policy", policy, ("nonnegative", "signed")),
        ("objective", objective, ("variance", "eta", "margin")),
        ("neighbours", neighbours, NEIGHBOURS),
        ("method", method, ("remap", "program")),
    ):
        if given not in choices:
            raise ParameterError(name, given, "one of " + ", ".join(choices))
    if policy == "signed" and (unbiased_from is not None or max_bias is not None):
        raise RequestError("policy signed is unbiased at every count: leave out unbiased_from and max_bias")
    if method == "program":
        _check_program(policy, sensitivity, max_bias)
    ask = Ask(
        total,
        target,
        integer("answers", answers, 1, LARGEST_PLAN),
        policy,
        objective,
        neighbours,
        integer("cells", cells, 1, 1000),
        integer("sensitivity", sensitivity, 1, 20),
        n0_given(unbiased_from),
        bias_given(max_bias),
        method,
    )
    found = make_plan(ask)
    return replace(found, price_list=price_list(found, progress)) if prices else found


def _check_program(policy: str, sensitivity: object, max_bias: object) -> None:
    """What method program does not do is refused, not ignored."""
    if policy != "nonnegative":
        raise ParameterError("method", "program", "remap with policy signed", "signed noise needs no method")
    if max_bias is not None:
        hint = "from unbiased_from on its bias is exactly zero"
        raise ParameterError("max_bias", max_bias, "none with method program", hint)
    if integer("sensitivity", sensitivity, 1, 20) > 1:
        raise ParameterError("sensitivity", sensitivity, "1 with method program", "use method remap")


def _listed(mechanisms: Mechanism | Sequence[tuple[Mechanism, int]], answers: object) -> list[tuple[Mechanism, int]]:
    from countveil.mechanism import Mechanism

    if isinstance(mechanisms, Mechanism):
        return [(mechanisms, integer("answers", 1 if answers is None else answers, 1, LARGEST_ANSWERS))]
    if answers is not None:
        raise RequestError("answers belongs to one mechanism; in a list every mechanism comes with its own number")
    pairs = list(mechanisms) if isinstance(mechanisms, Sequence) else []
    if not pairs or not all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], Mechanism) for p in pairs):
        raise RequestError("give a mechanism and a number of answers, or a list of (mechanism, answers)")
    return [(m, integer("answers", k, 1, LARGEST_ANSWERS)) for m, k in pairs]


def epsilon_given(given: Number) -> Fraction:
    """An epsilon that answers together may have."""
    allowed = "a decimal number above 0, up to 700"
    value = number("epsilon", given, allowed)
    if not 0 < value <= 700:
        raise ParameterError("epsilon", given, allowed)
    return value


def delta_given(given: Number) -> Fraction:
    """A delta that answers together may have."""
    allowed = "a decimal number from 1e-300 to below 1"
    value = number("delta", given, allowed)
    if not Fraction(1, 10**300) <= value < 1:
        raise ParameterError("delta", given, allowed)
    return value
