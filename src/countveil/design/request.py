"""What is asked of a design: parsed, checked, sorted into one of five questions, and put to a designer.

Of epsilon, delta, eta and D some are given and the others are to be found:

    least delta     epsilon, eta, D          (the paper's question)
    best accuracy   epsilon, delta           largest eta, then least D
    largest eta     epsilon, delta, D
    least D         epsilon, delta, eta
    least epsilon   delta, eta, D

With objective variance all four are given, and the law of least variance within them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Protocol, TypeVar

from countveil.errors import ParameterError, RequestError
from countveil.exact import decimal_text, integer, number
from countveil.search import bisect

POLICIES = ("nonnegative", "signed", "floor")
METHODS = ("auto", "paper", "optimal", "program", "remap")
OBJECTIVES = ("delta", "singleton", "variance")

LARGEST_D = 100_000
SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**5), Fraction(100)
LARGEST_COUNT = 10**15


class Question(Enum):
    """Which of the parameters are to be found."""

    LEAST_DELTA = "least delta"
    BEST_ACCURACY = "largest eta, then least D"
    LARGEST_ETA = "largest eta"
    LEAST_D = "least D"
    LEAST_EPSILON = "least epsilon"
    LEAST_VARIANCE = "least variance"


_QUESTIONS = {
    frozenset({"epsilon", "eta", "D"}): Question.LEAST_DELTA,
    frozenset({"epsilon", "delta"}): Question.BEST_ACCURACY,
    frozenset({"epsilon", "delta", "D"}): Question.LARGEST_ETA,
    frozenset({"epsilon", "delta", "eta"}): Question.LEAST_D,
    frozenset({"delta", "eta", "D"}): Question.LEAST_EPSILON,
}


@dataclass(frozen=True)
class Request:
    """A checked request. Which of epsilon, delta, eta, D are None is what `question` asks for."""

    question: Question
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
    def promised(self) -> bool:
        """Whether something is promised about the counts."""
        return self.counts != (0, None)

    def ask(self, designer: Designer[Found]) -> Found:
        """Put the question to a designer."""
        match self.question, self.epsilon, self.eta, self.D:
            case Question.LEAST_DELTA | Question.LEAST_VARIANCE, Fraction() as epsilon, Fraction() as eta, int() as D:
                return designer.at(epsilon, eta, D)
            case Question.BEST_ACCURACY, Fraction() as epsilon, _, _:
                return designer.best_accuracy(epsilon)
            case Question.LARGEST_ETA, Fraction() as epsilon, _, int() as D:
                return designer.largest_eta(epsilon, D)
            case Question.LEAST_D, Fraction() as epsilon, Fraction() as eta, _:
                return designer.least_D(epsilon, eta)
            case Question.LEAST_EPSILON, _, Fraction() as eta, int() as D:
                return designer.least_epsilon(eta, D)
        raise AssertionError("a question without its parameters")


Found = TypeVar("Found", covariant=True)


class Designer(Protocol[Found]):
    """One way to make mechanisms. A method per question finds what is not given; delta is in the designer's request."""

    def at(self, epsilon: Fraction, eta: Fraction, D: int) -> Found:
        """Of least delta or, where delta is given, of least variance within it."""

    def best_accuracy(self, epsilon: Fraction) -> Found:
        """Of the largest eta, then of the least D."""

    def largest_eta(self, epsilon: Fraction, D: int) -> Found: ...

    def least_D(self, epsilon: Fraction, eta: Fraction) -> Found: ...

    def least_epsilon(self, eta: Fraction, D: int) -> Found: ...


def least_epsilon(
    meets: Callable[[Fraction], bool],
    low: Fraction,
    high: Fraction,
    *,
    tolerance: Callable[[Fraction], Fraction],
    digits: tuple[int, int],
) -> Fraction | None:
    """The least epsilon that meets a request, or None if none up to 100 does.

    `high` grows until it meets it; then the bracket is halved, at decimals of so many digits, and rounded up to fewer.
    """
    while not meets(high):
        low, high = high, high * Fraction(5, 4)
        if high > LARGEST_EPSILON:
            return None

    def middle(low: Fraction, high: Fraction) -> Fraction:
        return Fraction(decimal_text((low + high) / 2, digits[0]))

    _, high = bisect(meets, low, high, tolerance=tolerance, middle=middle)
    return max(SMALLEST_EPSILON, Fraction(decimal_text(high, digits[1], "up")))


def parse(**given: object) -> Request:
    """Check every argument of `design` by itself, then that together they ask one question."""

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
    request = Request(
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


def _check_together(request: Request) -> None:
    high = request.counts[1]
    if request.cap and high is None:
        raise RequestError("cap needs counts with an upper end: say counts=LO:HI (--counts 0:500 --cap)")
    if request.policy != "nonnegative" and (request.method == "remap" or request.cap):
        what = "method remap" if request.method == "remap" else "cap"
        raise RequestError(f"{what} is for policy nonnegative; policy {request.policy} needs neither")
    if request.policy != "nonnegative" and request.unbiased_from is not None:
        raise RequestError(
            f"unbiased_from is for policy nonnegative; policy {request.policy} is unbiased from a fixed count on"
        )
    if request.objective == "singleton" and request.question is not Question.LEAST_DELTA:
        raise RequestError("objective singleton answers one question: give epsilon, eta and D, and no delta")
    if request.objective == "variance" and request.method in ("paper", "optimal", "remap"):
        raise RequestError("objective variance needs the linear program: use method program or auto")
    if request.method == "paper" and (request.sensitivity > 1 or request.max_variance is not None):
        raise RequestError("the paper's closed form is for sensitivity 1 and no variance limit; use method program")
    if request.policy == "floor" and request.D is not None:
        check_floor(request.counts, request.D)


def check_floor(counts: tuple[int, int | None], D: int) -> None:
    """Policy floor releases max(n, D) + Z: refuse a promise of counts that are all treated as D."""
    low, high = counts
    if high is not None and high <= D:
        raise RequestError(
            f"policy floor releases max(n, D) + Z, and no count in {low}:{high} is above D = {D}, so every count would "
            f"be released as {D} + Z; promise counts beyond {D} (--counts {low}:HI), or use another policy"
        )


def _question(names: list[str], least_variance: bool) -> Question:
    if least_variance:
        if len(names) < 4:
            raise RequestError("objective variance needs epsilon, delta, eta and D: least variance within all four")
        return Question.LEAST_VARIANCE
    found = _QUESTIONS.get(frozenset(names))
    if found:
        return found
    ways = "(epsilon, delta), (epsilon, delta, D), (epsilon, delta, eta), (epsilon, eta, D) or (delta, eta, D)"
    if len(names) == 4:
        raise RequestError(
            f"epsilon, delta, eta and D together leave only the shape to find (objective variance); else give {ways}"
        )
    what = ", ".join(names) if names else "nothing"
    raise RequestError(f"{what} given, which does not determine a mechanism; give {ways}")


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
    """'LO:HI', 'LO:' or a pair."""
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
