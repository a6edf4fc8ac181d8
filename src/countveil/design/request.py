"""What is asked of a design: parsed, checked, and sorted into one of five questions.

Of epsilon, delta, eta and D some are given and the others are to be found:

    least delta     epsilon, eta, D          (the paper's question)
    best accuracy   epsilon, delta           largest eta, then least D
    largest eta     epsilon, delta, D
    least D         epsilon, delta, eta
    least epsilon   delta, eta, D

With objective variance all four are given, and the law of least variance within them is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from countveil.errors import ParameterError, RequestError
from countveil.exact import integer, number

POLICIES = ("nonnegative", "signed", "floor")
METHODS = ("auto", "paper", "optimal", "program", "remap")
OBJECTIVES = ("delta", "singleton", "variance")

LARGEST_D = 100_000
SMALLEST_EPSILON = Fraction(1, 10**5)
LARGEST_COUNT = 10**15
_EPSILON = "0 or a decimal number from 1e-5 to 100"
_DELTA = "a decimal number from 1e-24 to 0.999"
_ETA = "a decimal number from 1e-6 to 0.999999"


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


def parse(
    *,
    epsilon: object = None,
    delta: object = None,
    eta: object = None,
    D: object = None,
    policy: object = "nonnegative",
    unbiased_from: object = None,
    method: object = "auto",
    objective: object = "delta",
    max_variance: object = None,
    sensitivity: object = 1,
    counts: object = None,
    cap: object = False,
    bits: object = None,
) -> Request:
    """Check every argument by itself, then that together they ask one question."""
    parsed_epsilon = None if epsilon is None else _epsilon(epsilon)
    parsed_delta = None if delta is None else _between("delta", delta, "1e-24", "0.999", _DELTA)
    parsed_eta = None if eta is None else _between("eta", eta, "1e-6", "0.999999", _ETA)
    parsed_D = None if D is None else integer("D", D, 1, LARGEST_D)
    given = {"epsilon": parsed_epsilon, "delta": parsed_delta, "eta": parsed_eta, "D": parsed_D}
    request = Request(
        question=_question([name for name, value in given.items() if value is not None], objective == "variance"),
        epsilon=parsed_epsilon,
        delta=parsed_delta,
        eta=parsed_eta,
        D=parsed_D,
        policy=_choice("policy", policy, POLICIES),
        unbiased_from=None if unbiased_from is None else integer("unbiased_from", unbiased_from, 0, LARGEST_D),
        method=_choice("method", method, METHODS),
        objective=_choice("objective", objective, OBJECTIVES),
        max_variance=None if max_variance is None else _variance(max_variance),
        sensitivity=integer("sensitivity", sensitivity, 1, 100),
        counts=(0, None) if counts is None else _counts(counts),
        cap=_flag("cap", cap),
        bits=None if bits is None else _bits(bits),
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


def _epsilon(given: object) -> Fraction:
    value = number("epsilon", given, _EPSILON)
    if value != 0 and not SMALLEST_EPSILON <= value <= 100:
        raise ParameterError("epsilon", given, _EPSILON)
    return value


def _between(argument: str, given: object, low: str, high: str, allowed: str) -> Fraction:
    value = number(argument, given, allowed)
    if not Fraction(low) <= value <= Fraction(high):
        hint = "bounded noise always needs a delta above 0" if argument == "delta" and value == 0 else ""
        raise ParameterError(argument, given, allowed, hint)
    return value


def _variance(given: object) -> Fraction:
    value = number("max_variance", given, "a positive decimal number up to 1e12")
    if not 0 < value <= 10**12:
        raise ParameterError("max_variance", given, "a positive decimal number up to 1e12")
    return value


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
