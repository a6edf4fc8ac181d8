"""Designs whose noise does not depend on the count: policies `signed` and `floor`, and counts promised to be >= D.

For each question, what is optimised first, what next among equals:

    least delta     delta, then variance
    best accuracy   eta, then D, then variance
    largest eta     eta, then variance
    least D         D, then delta
    least epsilon   epsilon, then variance

Where eta is not given, at sensitivity 1, one law is best in eta, D and variance at once: the discrete canonical noise
of Awan and Ramasethu (`countveil.literature.canonical`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from countveil.design import closed_form, paper
from countveil.design.column_program import ColumnProgram, Model
from countveil.design.request import (
    LARGEST_D,
    LARGEST_EPSILON,
    DesignQuestion,
    DesignRequest,
    check_floor,
    least_epsilon,
)
from countveil.errors import InfeasibleError, RequestError, SolverError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import decimal, proposals, symmetric_law
from countveil.literature.canonical import round_down, widen
from countveil.mechanism.certificate import Terms
from countveil.mechanism.mechanism import Mechanism, certify
from countveil.numeric.exact_numbers import decimal_text, exp_bounds
from countveil.numeric.linear_program import NoSolution
from countveil.numeric.search import least_positive

SPARE = 1 - Fraction(1, 10**6)
"""Designs aim at this share of the requested delta, to leave room for rounding."""
LARGEST_PROGRAM_D = 1500
FREE_ETA = (DesignQuestion.BEST_ACCURACY, DesignQuestion.LARGEST_ETA)
LEAST_EPSILON = Fraction(1, 10**15)
"""The search for a least epsilon stops at a bracket of this length; its results are at least 1e-5."""


class Parameters(NamedTuple):
    """The parameters of a law of noise that does not depend on the count."""

    epsilon: Fraction
    eta: Fraction
    D: int


class Signed:
    """The designer of noise that does not depend on the count.

    It finds the parameters and the weights of a law, by closed forms where they hold, else by linear program. It aims
    at `share` of the requested delta.
    """

    def __init__(self, request: DesignRequest, share: Fraction = Fraction(1)) -> None:
        self.request = request
        self.share = share
        self.target = (request.delta or Fraction(0)) * share
        self.plain = request.sensitivity == 1 and request.max_variance is None and request.objective == "delta"
        self.closed = self.plain and request.method != "program"

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters that answer the request; computed once."""
        return self.request.ask(self)

    def design(self) -> Mechanism:
        """The best mechanism. If rounding makes its delta too large, a slightly smaller delta is aimed at."""
        request = self.request
        if request.method == "paper" and request.question is not DesignQuestion.LEAST_DELTA:
            raise RequestError("method paper needs epsilon, eta and D, and no delta")
        if request.method == "optimal" and not self.plain:
            raise RequestError("method optimal is for sensitivity 1 and no variance limit; use method program")
        if self.closed and request.question in FREE_ETA:
            with suppress(InfeasibleError):  # delta is too small for the weights: aim at less, as below
                return self.canonical(*self.parameters)
        mechanism = self.mechanism(*self.parameters)
        if request.delta is None or mechanism.delta <= request.delta:
            return mechanism
        if self.share == 1:
            return Signed(request, SPARE).design()
        raise InfeasibleError(
            f"delta {show(request.delta)} is too small for weights that sum to 2^{mechanism.certificate.bits}",
            "allow more bits, up to 128, or raise delta",
        )

    # The questions

    def at(self, epsilon: Fraction, eta: Fraction, D: int) -> Parameters:
        return Parameters(epsilon, eta, D)

    def best_accuracy(self, epsilon: Fraction) -> Parameters:
        if self.closed:
            return self.least_D(epsilon, closed_form.largest_eta(epsilon, self.target))
        limit = self._largest_eta_by_program(epsilon, self._ample_D(epsilon))
        return self.least_D(epsilon, limit * Fraction(999, 1000))  # no D reaches the limit itself

    def largest_eta(self, epsilon: Fraction, D: int) -> Parameters:
        if not self.closed:
            return Parameters(epsilon, self._largest_eta_by_program(epsilon, D), D)
        eta = closed_form.largest_eta(epsilon, self.target)
        if not self._meets(epsilon, eta, D):
            least = self.least_D(epsilon, eta).D
            floor = closed_form.least_delta(epsilon, eta, D)
            raise InfeasibleError(
                f"D = {D} is too small for epsilon {show(epsilon)} and delta {show(self.request.delta)}",
                f"at the largest eta, {show(eta, 6, 'down')}, this D has delta {floor:.3e}; D = {least} is enough",
            )
        return Parameters(epsilon, eta, D)

    def least_D(self, epsilon: Fraction, eta: Fraction) -> Parameters:
        top = closed_form.largest_eta(epsilon, self.target)
        delta = show(self.request.delta)
        if self.closed and eta > top:
            raise InfeasibleError(
                f"eta {show(eta)} is too large for epsilon {show(epsilon)} and delta {delta} at any D",
                f"the largest eta is {show(top, rounding='down')}",
            )
        limit = LARGEST_D if self.closed else self._ample_D(epsilon)
        if not self._meets(epsilon, eta, limit):
            raise InfeasibleError(
                f"no D up to {limit} gives delta {delta} at epsilon {show(epsilon)} and eta {show(eta)}",
                "lower eta, or raise epsilon or delta",
            )
        return Parameters(epsilon, eta, least_positive(lambda D: self._meets(epsilon, eta, D), limit))

    def least_epsilon(self, eta: Fraction, D: int) -> Parameters:
        def meets(epsilon: Fraction) -> bool:
            return self._meets(epsilon, eta, D)

        def tolerance(epsilon: Fraction) -> Fraction:
            return max(epsilon / 10 ** (11 if self.closed else 6), LEAST_EPSILON)

        if meets(Fraction(0)):
            return Parameters(Fraction(0), eta, D)
        epsilon = least_epsilon(meets, Fraction(0), LARGEST_EPSILON, tolerance=tolerance, digits=(14, 10))
        if epsilon is None:
            raise InfeasibleError(
                f"no epsilon up to 100 gives delta {show(self.request.delta)} at eta {show(eta)} and D {D}",
                "raise D or delta, or (with a variance limit) the variance",
            )
        return Parameters(epsilon, eta, D)

    def delta(self, epsilon: Fraction, eta: Fraction, D: int) -> Decimal:
        """The least delta of any law with these parameters; infinite if no law has them."""
        if self.closed:
            return closed_form.least_delta(epsilon, eta, D)
        try:
            program = self._program(epsilon, eta, None, D)
            return decimal(program.optimise()[program.delta])
        except NoSolution:
            return Decimal("Infinity")

    def _meets(self, epsilon: Fraction, eta: Fraction, D: int) -> bool:
        return self.delta(epsilon, eta, D) <= decimal(self.target)

    def _largest_eta_by_program(self, epsilon: Fraction, D: int) -> Fraction:
        try:
            program = self._program(epsilon, None, self.target, D)
            return program.optimise()[program.eta]
        except NoSolution:
            variance = self.request.max_variance
            raise InfeasibleError(
                f"no law with D = {D} has epsilon {show(epsilon)} and delta {show(self.request.delta)}"
                + (f" and variance at most {show(variance)}" if variance else ""),
                "raise D, delta, epsilon or max_variance",
            ) from None

    def _ample_D(self, epsilon: Fraction) -> int:
        """A noise bound D so large that a larger one would hardly raise eta."""
        step = epsilon / self.request.sensitivity
        if step == 0:
            raise InfeasibleError("epsilon 0 needs D", "give D, the largest error of a count")
        target = decimal(self.target)
        least = closed_form.largest_eta(step, self.target)
        D = least_positive(lambda D: closed_form.least_delta(step, least, D) <= target, LARGEST_D)
        return min(D + int(3 / step) + 1, LARGEST_PROGRAM_D)

    # The law

    def mechanism(self, epsilon: Fraction, eta: Fraction, D: int) -> Mechanism:
        """The certified mechanism at these parameters."""
        method, half, notes = self.law(epsilon, eta, D)
        return self._certify(lambda bits: symmetric_law(half, bits), method, notes, epsilon, eta, D)

    def _certify(
        self, law: Callable[[int], Law], method: str, notes: tuple[str, ...], epsilon: Fraction, eta: Fraction, D: int
    ) -> Mechanism:
        request = self.request
        low, high = request.counts
        if request.policy == "floor":
            check_floor(request.counts, D)
            low = max(D, low)
        details = {"paper": paper.parts(epsilon, eta, D)} if method == "paper" else None
        settings = terms(request, method, epsilon, eta, D, notes=(*notes, *_policy_notes(request, D)), details=details)
        return certify(lambda bits: LawsByCount(law(bits), lo=low, hi=high), settings)

    def canonical(self, epsilon: Fraction, eta: Fraction, D: int) -> Mechanism:
        """The mechanism of canonical noise, whose eta, D and variance are the best that this guarantee allows.

        **Guarantee.** Its certified delta is at most the requested one, because its weights are rounded on the safe
        side.
        """
        order, delta = exp_bounds(epsilon)[0], self.request.delta or Fraction(0)
        reach = least_positive(lambda reach: self._meets(epsilon, eta, reach), D)
        note = "discrete canonical noise (Awan, Ramasethu): stochastically smallest for this epsilon and delta"
        return self._certify(
            lambda bits: widen(round_down(order, delta, reach, bits), D), "optimal", (note,), epsilon, eta, D
        )

    def law(self, epsilon: Fraction, eta: Fraction, D: int) -> tuple[str, list[int], tuple[str, ...]]:
        """The best law at these parameters: the method that found it, proposals of P(Z = z) for z = 0..D, and notes."""
        request = self.request
        if request.method == "paper" or (
            request.objective == "singleton"
            and request.method == "auto"
            and request.sensitivity == 1
            and request.max_variance is None
            and paper.closed_form(epsilon, eta, D).holds
        ):
            return "paper", self._paper(epsilon, eta, D), ("the paper's law: least singleton delta for n >= D",)
        if self.closed:
            best = closed_form.optimum(epsilon, eta, D)
            words = {
                "cut": "above the knee tanh(epsilon/2): least delta, then least variance",
                "chain": "geometric sides, cut at D: least delta",
                "tent": "eta so small that the law is tent-shaped: least delta",
            }
            return "optimal", proposals(best.half), (f"closed form, {words[best.shape]}",)
        if D > LARGEST_PROGRAM_D and request.max_variance is None and request.objective != "singleton":
            best = closed_form.optimum(epsilon / request.sensitivity, eta, D)
            note = f"D above {LARGEST_PROGRAM_D}: the closed form at epsilon/{request.sensitivity}, not the optimum"
            return "optimal", proposals(best.half), (note,)
        program = self._program(epsilon, eta, self.target if request.objective == "variance" else None, D)
        try:
            left, values = program.solve_in_order().columns[0]
        except NoSolution:
            if request.objective == "variance":
                least = self.delta(epsilon, eta, D)
                raise InfeasibleError(
                    f"no law with eta {show(eta)} and D {D} has delta {show(request.delta)} at epsilon {show(epsilon)}",
                    f"the least delta is {least:.6e}",
                ) from None
            if request.max_variance is None:
                raise SolverError("the solver gave up on this program; lower D, or use method optimal") from None
            raise InfeasibleError(
                f"no law on [-{D}, {D}] with eta {show(eta)} has variance at most {show(request.max_variance)}",
                f"the least possible variance is 1 - eta = {show(1 - eta)}",
            ) from None
        what = {"singleton": "least singleton delta, then variance", "variance": "least variance within delta"}
        aim = what.get(request.objective, "least delta, then variance")
        return "program", list(values[left:]), (f"linear program: {aim}", *program.program.notes)

    def _paper(self, epsilon: Fraction, eta: Fraction, D: int) -> list[int]:
        form = paper.closed_form(epsilon, eta, D)
        half = proposals(form.half)
        if not form.holds:
            law = LawsByCount(symmetric_law(half, 128))
            true = certify(lambda _: law, Terms(epsilon, "signed", "paper", D))
            better = closed_form.least_delta(epsilon, eta, D)
            raise InfeasibleError(
                f"the paper's closed form does not hold at epsilon {show(epsilon)}, eta {show(eta)}, D {D}: it puts "
                f"P(Z = 1) = {form.half[1]:.6f} above e^epsilon * eta + delta*, so its law has delta "
                f"{show(true.delta, 7, 'up')} (singleton {show(true.certificate.delta_singleton, 7, 'up')})",
                f"method optimal has delta {better:.6e} at these parameters",
            )
        return half

    def _program(self, epsilon: Fraction, eta: Fraction | None, delta: Fraction | None, D: int) -> ColumnProgram:
        if D > LARGEST_PROGRAM_D:
            raise RequestError(f"D = {D} is too large for the linear program; lower D to {LARGEST_PROGRAM_D} or less")
        request = self.request
        model = Model(
            epsilon=epsilon,
            D=D,
            eta=eta,
            delta=delta,
            n0=0,
            sensitivity=request.sensitivity,
            singleton=request.objective == "singleton",
            max_variance=request.max_variance,
            signed=True,
        )
        return ColumnProgram(model)


def terms(request: DesignRequest, method: str, epsilon: Fraction, eta: Fraction, D: int, **more: Any) -> Terms:
    """The terms of a mechanism for a request: what to certify it for, and its notes, prices and details (`more`)."""
    return Terms(
        epsilon=epsilon,
        policy=request.policy,
        method=method,
        D=D,
        sensitivity=request.sensitivity,
        counts=request.counts,
        bits=request.bits,
        delta_paper_bound=paper.stated_delta(epsilon, eta, D, request.sensitivity),
        **more,
    )


def _policy_notes(request: DesignRequest, D: int) -> tuple[str, ...]:
    if request.policy == "signed":
        return (f"policy signed: released counts can be negative where n < {D}",)
    if request.policy == "floor":
        return (
            f"policy floor: max(n, {D}) + Z is released; counts below {D} are biased up, 0 by {D} (error to {2 * D})",
        )
    return ()


def show(x: Fraction | None, digits: int = 10, rounding: str = "nearest") -> str:
    """A parameter as a text for error messages."""
    return "none" if x is None else decimal_text(x, digits, rounding)
