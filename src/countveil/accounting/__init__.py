"""The privacy of many answers together: certified bounds on delta(epsilon).

privacy_loss  one answer: neighbouring laws as probabilities and privacy losses
loss_grid     losses rounded to a grid: laws that dominate a pair of neighbouring laws, and laws that the pair dominates
spectrum      the Fourier transform of a sum of many losses, every error bounded
convolution   the sum of many losses, from its transform, every error bounded
composition   upper and lower bounds for k answers, persons added and removed, both neighbour relations
merged_cells  when one cell that moves by L stands for every change of total L
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, get_args

from countveil.errors import ParameterError, RequestError
from countveil.numeric.exact_numbers import Number, exp_bounds, integer, number
from countveil.numeric.search import least_positive

if TYPE_CHECKING:
    from countveil.accounting.composition import Composition
    from countveil.mechanism.mechanism import Mechanism

__all__ = ["affordable_answers", "compose"]

LARGEST_ANSWERS = 10**9
LARGEST_GROUP = 100
"""If the epsilon of a group of persons is above this, its delta is taken to be 1."""
Neighbours = Literal["add-remove", "replace"]
"""Which datasets are neighbours: one person more or less, or one person replaced by another."""
NEIGHBOURS = get_args(Neighbours)


def compose(
    mechanisms: Mechanism | Sequence[tuple[Mechanism, int]],
    answers: int | str | None = None,
    *,
    neighbours: Neighbours = "add-remove",
    cells: int | str = 1,
    people: int | str = 1,
    adaptive: bool = False,
    fine: bool = False,
) -> Composition:
    """The privacy of k answers of one mechanism, or of a list of (mechanism, answers) fixed in advance.

    Args:
        mechanisms: A mechanism, or a list of pairs (mechanism, answers).
        answers: The number of answers, if one mechanism is given.
        neighbours: "add-remove": one person more or less. "replace": one person replaced by another.
        cells: The number of cells of one table that a person can be in. If it differs between mechanisms, leave it at 1
            and multiply the answers of each: an answer in c cells costs as much as c answers in one.
        people: The number of persons protected together.
        adaptive: Whether mechanisms, not only queries, are chosen after earlier answers were seen. Then only basic
            composition is proved, and `note` says so.
        fine: Whether to use a finer grid, for the last digits.

    Returns:
        A Composition: `delta(epsilon)` and `epsilon(delta)`, each with proved bounds.

    Raises:
        ParameterError: An argument is not allowed.
        RequestError: `answers` together with a list, or neither a mechanism nor a list.

    >>> import countveil as cv
    >>> m = cv.design(epsilon="0.1", delta="1e-9", policy="signed")
    >>> bounds = compose(m, 10).delta(1.0)
    >>> bounds.lower <= bounds.upper < 1e-8
    True
    """
    from countveil.accounting.composition import CHEAP, FINEST, Composition
    from countveil.accounting.privacy_loss import answer_of

    if neighbours not in NEIGHBOURS:
        raise ParameterError("neighbours", neighbours, "one of " + ", ".join(NEIGHBOURS))
    listed = _list_answers(mechanisms, answers)
    terms = [(answer_of(m.laws, m.certificate.sensitivity), k) for m, k in listed]
    in_cells, persons = integer("cells", cells, 1, 10**6), integer("people", people, 1, 10**4)
    repeats = in_cells * (2 if neighbours == "replace" else 1)
    charges = tuple((*_charge(m, persons), k * repeats) for m, k in listed) if adaptive else None
    points = FINEST if fine else CHEAP
    return Composition(terms, neighbours, in_cells, persons, points=points, charges=charges)


def _charge(mechanism: Mechanism, people: int) -> tuple[Fraction, Fraction]:
    """The (epsilon, delta) of one answer for a group of g = `people` persons, from that for one person.

    It is g epsilon, and delta times the sum of e^(i epsilon) over i = 0..g-1, rounded up.
    """
    epsilon, delta = mechanism.epsilon, mechanism.delta
    if people * epsilon > LARGEST_GROUP:
        return people * epsilon, Fraction(1)
    chain = sum((exp_bounds(i * epsilon)[1] for i in range(people)), Fraction(0))
    return people * epsilon, min(Fraction(1), delta * chain)


def affordable_answers(
    mechanism: Mechanism,
    epsilon: Number,
    delta: Number,
    *,
    neighbours: Neighbours = "add-remove",
    cells: int | str = 1,
    people: int | str = 1,
    adaptive: bool = False,
) -> int:
    """The largest number of answers of a mechanism within (epsilon, delta); 0 if even one answer exceeds the budget.

    Args:
        mechanism: The mechanism of every answer.
        epsilon, delta: The budget of all answers together.
        neighbours, cells, people, adaptive: As for `compose`.

    Returns:
        A number of answers whose composition is certified to stay within the budget.

    Raises:
        ParameterError: An argument is not allowed.

    >>> import countveil as cv
    >>> m = cv.design(epsilon="0.5", delta="1e-9", policy="signed")
    >>> affordable_answers(m, "1", "1e-6")
    2
    """
    from dataclasses import replace

    from countveil.accounting.composition import FINEST

    total, target = epsilon_given(epsilon), delta_given(delta)

    def too_many(k: int) -> bool:
        if k == 1 and plain and mechanism.delta_at(epsilon) <= target:
            return False
        composition = compose(mechanism, k, neighbours=neighbours, cells=cells, people=people, adaptive=adaptive)
        upper = composition.upper(total)
        close = target < upper <= target * Fraction(101, 100)
        return (replace(composition, points=FINEST).upper(total) if close else upper) > target

    plain = neighbours == "add-remove" and str(cells) == str(people) == "1"
    return least_positive(too_many, LARGEST_ANSWERS + 1) - 1


def _list_answers(
    mechanisms: Mechanism | Sequence[tuple[Mechanism, int]], answers: object
) -> list[tuple[Mechanism, int]]:
    from countveil.mechanism.mechanism import Mechanism

    if isinstance(mechanisms, Mechanism):
        return [(mechanisms, integer("answers", 1 if answers is None else answers, 1, LARGEST_ANSWERS))]
    if answers is not None:
        raise RequestError("answers is for one mechanism; leave it out: in a list, every mechanism has its own number")
    pairs = list(mechanisms) if isinstance(mechanisms, Sequence) else []
    if not pairs or not all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], Mechanism) for p in pairs):
        raise RequestError("give a mechanism and a number of answers, or a list of pairs (mechanism, answers)")
    return [(m, integer("answers", k, 1, LARGEST_ANSWERS)) for m, k in pairs]


def epsilon_given(given: Number) -> Fraction:
    """The epsilon of a composition as a Fraction, checked to be above 0 and at most 700."""
    allowed = "a decimal number above 0, up to 700"
    value = number("epsilon", given, allowed)
    if not 0 < value <= 700:
        raise ParameterError("epsilon", given, allowed)
    return value


def delta_given(given: Number) -> Fraction:
    """The delta of a composition as a Fraction, checked to be from 1e-300 to below 1."""
    allowed = "a decimal number from 1e-300 to below 1"
    value = number("delta", given, allowed)
    if not Fraction(1, 10**300) <= value < 1:
        raise ParameterError("delta", given, allowed)
    return value
