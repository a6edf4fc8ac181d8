"""The arguments of a design: parsed, checked, assigned to one question, and passed to a designer.

Some of epsilon, delta, eta and D are given; the designer finds the others:

    least delta     epsilon, eta, D          (the paper's question)
    best accuracy   epsilon, delta           largest eta, then least D
    largest eta     epsilon, delta, D
    least D         epsilon, delta, eta
    least epsilon   delta, eta, D

With objective variance all four are given, and the designer finds the law of least variance within them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal, Protocol, TypeVar, get_args

from countveil.errors import ParameterError, RequestError
from countveil.mechanism.certificate import Policy
from countveil.numeric.exact_numbers import decimal_text, integer, number
from countveil.numeric.search import bisect

DesignMethod = Literal["auto", "paper", "optimal", "program", "remap"]
DesignObjective = Literal["delta", "singleton", "variance"]
POLICIES, METHODS, OBJECTIVES = get_args(Policy), get_args(DesignMethod), get_args(DesignObjective)

LARGEST_D = 100_000
SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**5), Fraction(100)
LARGEST_COUNT = 10**15


class DesignQuestion(Enum):
    """What the designer is asked to find. Which of epsilon, delta, eta and D are missing decides it."""

    LEAST_DELTA = "least delta"
    BEST_ACCURACY = "largest eta, then least D"
    LARGEST_ETA = "largest eta"
    LEAST_D = "least D"
    LEAST_EPSILON = "least epsilon"
    LEAST_VARIANCE = "least variance"


_QUESTIONS = {
    frozenset({"epsilon", "eta", "D"}): DesignQuestion.LEAST_DELTA,
    frozenset({"epsilon", "delta"}): DesignQuestion.BEST_ACCURACY,
    frozenset({"epsilon", "delta", "D"}): DesignQuestion.LARGEST_ETA,
    frozenset({"epsilon", "delta", "eta"}): DesignQuestion.LEAST_D,
    frozenset({"delta", "eta", "D"}): DesignQuestion.LEAST_EPSILON,
}


@dataclass(frozen=True)
class DesignRequest:
    """A checked request. The designer finds those of epsilon, delta, eta and D that are None."""

    question: DesignQuestion
    epsilon: Fraction | None
    delta: Fraction | None
    eta: Fraction | None
    D: int | None
    policy: str
    unbiased_from: int | None
    method: str
    objective: str
    max_variance: Fraction | None
    sensitivity: int
    counts: tuple[int, int | None]
    cap: bool
    bits: int | None

    @property
    def has_promise(self) -> bool:
        """Whether the curator promised that the counts are in a range."""
        return self.counts != (0, None)

    def ask(self, designer: Designer[Outcome]) -> Outcome:
        """Call the method of the designer that answers this request's question."""
        match self.question, self.epsilon, self.eta, self.D:
            case (
                DesignQuestion.LEAST_DELTA | DesignQuestion.LEAST_VARIANCE,
                Fraction() as epsilon,
                Fraction() as eta,
                int() as D,
            ):
                return designer.at(epsilon, eta, D)
            case DesignQuestion.BEST_ACCURACY, Fraction() as epsilon, _, _:
                return designer.best_accuracy(epsilon)
            case DesignQuestion.LARGEST_ETA, Fraction() as epsilon, _, int() as D:
                return designer.largest_eta(epsilon, D)
            case DesignQuestion.LEAST_D, Fraction() as epsilon, Fraction() as eta, _:
                return designer.least_D(epsilon, eta)
            case DesignQuestion.LEAST_EPSILON, _, Fraction() as eta, int() as D:
                return designer.least_epsilon(eta, D)
        raise AssertionError("a parameter of the question is missing")


Outcome = TypeVar("Outcome", covariant=True)


class Designer(Protocol[Outcome]):
    """A designer has one method for each question.

    Each method finds the parameters that it is not given; delta is in the designer's request.
    """

    def at(self, epsilon: Fraction, eta: Fraction, D: int) -> Outcome:
        """The design of least delta or, if delta is given, of least variance within that delta."""

    def best_accuracy(self, epsilon: Fraction) -> Outcome:
        """The design of largest eta and, among those, of least D."""

    def largest_eta(self, epsilon: Fraction, D: int) -> Outcome: ...

    def least_D(self, epsilon: Fraction, eta: Fraction) -> Outcome: ...

    def least_epsilon(self, eta: Fraction, D: int) -> Outcome: ...


def least_epsilon(
    meets: Callable[[Fraction], bool],
    low: Fraction,
    high: Fraction,
    *,
    tolerance: Callable[[Fraction], Fraction],
    digits: tuple[int, int],
) -> Fraction | None:
    """The least epsilon for which `meets` is true, or None if there is none up to 100.

    `high` grows until it meets the request. Then bisection narrows the bracket, at decimals of `digits[0]` digits,
    until it is at most `tolerance` long. The result is rounded up to `digits[1]` digits.
    """
    while not meets(high):
        low, high = high, high * Fraction(5, 4)
        if high > LARGEST_EPSILON:
            return None

    def middle(low: Fraction, high: Fraction) -> Fraction:
        return Fraction(decimal_text((low + high) / 2, digits[0]))

    _, high = bisect(meets, low, high, tolerance=tolerance, middle=middle)
    return max(SMALLEST_EPSILON, Fraction(decimal_text(high, digits[1], "up")))


def parse(**given: object) -> DesignRequest:
    """Check every argument of `design` by itself, and then that all arguments together ask one question."""

    def read(name: str, allowed: str, fits: Callable[[Fraction], bool]) -> Fraction | None:
        if given[name] is None:
            return None
        value = number(name, given[name], allowed)
        if not fits(value):
            hint = "bounded noise always needs a delta above 0" if name == "delta" and value == 0 else ""
            raise ParameterError(name, given[name], allowed, hint)
        return value

    def read_integer(name: str, low: int, high: int) -> int | None:
        return None if given[name] is None else integer(name, given[name], low, high)

    allowed = "0 or a decimal number from 1e-5 to 100"
    epsilon = read("epsilon", allowed, lambda x: x == 0 or SMALLEST_EPSILON <= x <= LARGEST_EPSILON)
    delta = read("delta", "a decimal number from 1e-24 to 0.999", lambda x: Fraction("1e-24") <= x <= Fraction("0.999"))
    eta = read("eta", "a decimal number from 1e-6 to 0.999999", lambda x: Fraction("1e-6") <= x <= 1 - Fraction("1e-6"))
    D = read_integer("D", 1, LARGEST_D)
    names = [name for name in ("epsilon", "delta", "eta", "D") if given[name] is not None]
    request = DesignRequest(
        question=_question(names, given["objective"] == "variance"),
        epsilon=epsilon,
        delta=delta,
        eta=eta,
        D=D,
        policy=_choice("policy", given["policy"], POLICIES),
        unbiased_from=read_integer("unbiased_from", 0, LARGEST_D),
        method=_choice("method", given["method"], METHODS),
        objective=_choice("objective", given["objective"], OBJECTIVES),
        max_variance=read("max_variance", "a positive decimal number up to 1e12", lambda x: 0 < x <= 10**12),
        sensitivity=integer("sensitivity", given["sensitivity"], 1, 100),
        counts=(0, None) if given["counts"] is None else _counts(given["counts"]),
        cap=_flag("cap", given["cap"]),
        bits=None if given["bits"] is None else _bits(given["bits"]),
    )
    _check_together(request)
    return request


def _check_together(request: DesignRequest) -> None:
    high = request.counts[1]
    if request.cap and high is None:
        raise RequestError("cap needs counts with an upper end: give counts=LO:HI (--counts 0:500 --cap)")
    if request.policy != "nonnegative" and (request.method == "remap" or request.cap):
        what = "method remap" if request.method == "remap" else "cap"
        raise RequestError(f"{what} is for policy nonnegative; leave it out with policy {request.policy}")
    if request.policy != "nonnegative" and request.unbiased_from is not None:
        raise RequestError(
            f"unbiased_from is for policy nonnegative; leave it out, because policy {request.policy} determines it"
        )
    if request.objective == "singleton" and request.question is not DesignQuestion.LEAST_DELTA:
        raise RequestError("objective singleton needs epsilon, eta and D, and no delta")
    if request.objective == "variance" and request.method in ("paper", "optimal", "remap"):
        raise RequestError("objective variance needs the linear program: use method program or auto")
    if request.method == "paper" and (request.sensitivity > 1 or request.max_variance is not None):
        raise RequestError("the paper's closed form is for sensitivity 1 and no variance limit; use method program")
    if request.policy == "floor" and request.D is not None:
        check_floor(request.counts, request.D)


def check_floor(counts: tuple[int, int | None], D: int) -> None:
    """Refuse policy floor if all promised counts would be treated as D; the policy releases max(n, D) + Z."""
    low, high = counts
    if high is not None and high <= D:
        raise RequestError(
            f"policy floor releases max(n, D) + Z, and no count in {low}:{high} is above D = {D}, so every count would "
            f"be released as {D} + Z; promise counts beyond {D} (--counts {low}:HI), or use another policy"
        )


def _question(names: list[str], least_variance: bool) -> DesignQuestion:
    if least_variance:
        if len(names) < 4:
            raise RequestError("objective variance needs all of epsilon, delta, eta and D")
        return DesignQuestion.LEAST_VARIANCE
    question = _QUESTIONS.get(frozenset(names))
    if question:
        return question
    ways = "(epsilon, delta), (epsilon, delta, D), (epsilon, delta, eta), (epsilon, eta, D) or (delta, eta, D)"
    if len(names) == 4:
        raise RequestError(f"epsilon, delta, eta and D are all given: use objective variance, or give only {ways}")
    what = ", ".join(names) if names else "nothing"
    raise RequestError(f"got {what}, which does not determine a mechanism; give {ways}")


def _choice(argument: str, given: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in allowed:
        raise ParameterError(argument, given, "one of " + ", ".join(allowed))
    return given


def _flag(argument: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise ParameterError(argument, given, "True or False")
    return given


def _bits(given: object) -> int:
    try:
        value = integer("bits", given, 64, 128)
    except ParameterError:
        value = 0
    if value not in (64, 96, 128):
        raise ParameterError("bits", given, "64, 96 or 128")
    return value


def _counts(given: object) -> tuple[int, int | None]:
    """The range (low, high) given as 'LO:HI', as 'LO:' (no upper end) or as a pair."""
    allowed = "LO:HI with 0 <= LO < HI, for instance 1:500, or LO: for no upper end"
    if isinstance(given, str):
        parts: list[object] = [part.strip() or None for part in given.split(":")]
    elif isinstance(given, tuple | list):
        parts = list(given)
    else:
        raise ParameterError("counts", given, allowed)
    if len(parts) != 2:
        raise ParameterError("counts", given, allowed)
    try:
        low = 0 if parts[0] is None else integer("counts", parts[0], 0, LARGEST_COUNT)
        high = None if parts[1] is None else integer("counts", parts[1], low + 1, LARGEST_COUNT)
    except ParameterError:
        raise ParameterError("counts", given, allowed) from None
    return low, high
