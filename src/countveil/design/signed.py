"""Designs whose noise does not depend on n: policies `signed` and `floor`, and promises n >= D.

Order of objectives, by question:

    least delta     delta, then variance
    best accuracy   eta, then D, then variance
    largest eta     eta, then variance
    least D         D, then delta
    least epsilon   epsilon, then variance
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from countveil.certificate import Terms
from countveil.decimals import decimal, proposals
from countveil.design import optimal, paper
from countveil.design.linear import NoSolution
from countveil.design.program import ColumnProgram, Model
from countveil.design.request import LARGEST_D, SMALLEST_EPSILON, Question, Request, check_floor
from countveil.errors import InfeasibleError, RequestError, SolverError
from countveil.exact import decimal_text
from countveil.law import Columns
from countveil.mechanism import Mechanism, certify
from countveil.rounding import symmetric_law

SPARE = 1 - Fraction(1, 10**6)
"""Share of a requested delta that designs aim at; the rest absorbs rounding."""
LARGEST_PROGRAM_D = 1500
EPSILON_DIGITS = 10
LEAST_EPSILON = Fraction(1, 10**15)
"""Where the search for a least epsilon stops; smaller ones than 1e-5 are not offered."""


def answer(request: Request) -> Mechanism:
    """The best mechanism of noise independent of n."""
    if request.method == "paper" and request.question is not Question.LEAST_DELTA:
        raise RequestError("the paper's closed form answers one question: give epsilon, eta and D, and no delta")
    found: Mechanism | None = None
    for spare in (Fraction(1), SPARE):  # the exact optimum may miss delta by its rounding; then aim a little lower
        solver = Solver(request, spare)
        epsilon, eta, D = solver.parameters()
        if request.policy == "floor":
            check_floor(request.counts, D)
        found = solver.mechanism(epsilon, eta, D)
        if request.delta is None or found.delta <= request.delta:
            return found
    raise InfeasibleError(
        f"delta {_t(request.delta)} is finer than weights over 2^{found.certificate.bits if found else 128} can hold",
        "allow more bits, or raise delta",
    )


class Solver:
    """Answers a request by closed forms where they hold and by the program elsewhere."""

    def __init__(self, request: Request, spare: Fraction | None = None) -> None:
        self.request = request
        self.target = None if request.delta is None else request.delta * (SPARE if spare is None else spare)
        plain = request.sensitivity == 1 and request.max_variance is None and request.objective == "delta"
        self.closed = plain and request.method != "program"
        if request.method == "optimal" and not plain:
            raise RequestError("method optimal is for sensitivity 1 and no variance limit; use method program")

    # What is asked

    def parameters(self) -> tuple[Fraction, Fraction, int]:
        """epsilon, eta and D, the missing ones found."""
        request = self.request
        match request.question, request.epsilon, request.eta, request.D:
            case Question.LEAST_DELTA, Fraction() as epsilon, Fraction() as eta, int() as D:
                return epsilon, eta, D
            case Question.BEST_ACCURACY, Fraction() as epsilon, _, _:
                eta = self._largest_eta(epsilon)
                if not self.closed:
                    eta *= Fraction(999, 1000)  # the limit itself is reached by no D
                return epsilon, eta, self._least_D(epsilon, eta)
            case Question.LARGEST_ETA, Fraction() as epsilon, _, int() as D:
                return epsilon, self._largest_eta(epsilon, D), D
            case Question.LEAST_D, Fraction() as epsilon, Fraction() as eta, _:
                return epsilon, eta, self._least_D(epsilon, eta)
            case Question.LEAST_EPSILON, _, Fraction() as eta, int() as D:
                return self._least_epsilon(eta, D), eta, D
            case Question.LEAST_VARIANCE, Fraction() as epsilon, Fraction() as eta, int() as D:
                return epsilon, eta, D
        raise AssertionError("a question without its parameters")

    def delta(self, epsilon: Fraction, eta: Fraction, D: int) -> Decimal:
        """The least delta of a law with these parameters; infinite where there is none."""
        if self.closed:
            return optimal.least_delta(epsilon, eta, D)
        try:
            program = self._program(epsilon, eta, None, D)
            return decimal(program.optimise()[program.delta])
        except NoSolution:
            return Decimal("Infinity")

    def _meets(self, epsilon: Fraction, eta: Fraction, D: int) -> bool:
        return self.target is not None and self.delta(epsilon, eta, D) <= decimal(self.target)

    def _largest_eta(self, epsilon: Fraction, D: int | None = None) -> Fraction:
        if self.target is None:
            raise AssertionError("no delta to meet")
        if not self.closed:
            return self._largest_eta_by_program(epsilon, D)
        eta = optimal.largest_eta(epsilon, self.target)
        if D is not None and not self._meets(epsilon, eta, D):
            least = self._least_D(epsilon, eta)
            floor = optimal.least_delta(epsilon, eta, D)
            raise InfeasibleError(
                f"D = {D} is too small for epsilon {_t(epsilon)} and delta {_t(self.request.delta)}",
                f"at the largest eta, {_t(eta, 'down', 6)}, its delta is {floor:.3e}; D = {least} is enough",
            )
        return eta

    def _largest_eta_by_program(self, epsilon: Fraction, D: int | None) -> Fraction:
        """The largest eta at D, or its limit as D grows."""
        bound = D if D is not None else self._ample_D(epsilon)
        try:
            program = self._program(epsilon, None, self.target, bound)
            return program.optimise()[program.eta]
        except NoSolution:
            raise InfeasibleError(
                f"no law with D = {bound} has epsilon {_t(epsilon)} and delta {_t(self.request.delta)}"
                + (f" and variance at most {_t(self.request.max_variance)}" if self.request.max_variance else ""),
                "raise D, delta, epsilon or max_variance",
            ) from None

    def _ample_D(self, epsilon: Fraction) -> int:
        """A D beyond which eta hardly grows."""
        step = epsilon / self.request.sensitivity
        if self.target is None or step == 0:
            raise InfeasibleError("epsilon 0 needs D to be given", "say how far counts may be off (D)")
        target = decimal(self.target)
        least = optimal.largest_eta(step, self.target)
        D = least_holding(lambda D: optimal.least_delta(step, least, D) <= target)
        return min(D + int(3 / step) + 1, LARGEST_PROGRAM_D)

    def _least_D(self, epsilon: Fraction, eta: Fraction) -> int:
        top = optimal.largest_eta(epsilon, self.target or Fraction(0))
        if self.closed and eta > top:
            raise InfeasibleError(
                f"eta {_t(eta)} is too large for epsilon {_t(epsilon)} and delta {_t(self.request.delta)} at any D",
                f"the largest eta is {_t(top, 'down')}",
            )
        limit = LARGEST_D if self.closed else self._ample_D(epsilon)
        if not self._meets(epsilon, eta, limit):
            raise InfeasibleError(
                f"no D up to {limit} gives delta {_t(self.request.delta)} at epsilon {_t(epsilon)} and eta {_t(eta)}",
                "lower eta, or raise epsilon or delta",
            )
        return least_holding(lambda D: self._meets(epsilon, eta, D), limit)

    def _least_epsilon(self, eta: Fraction, D: int) -> Fraction:
        low, high = Fraction(0), Fraction(100)
        if self._meets(low, eta, D):
            return low
        if not self._meets(high, eta, D):
            raise InfeasibleError(
                f"no epsilon up to 100 gives delta {_t(self.request.delta)} at eta {_t(eta)} and D {D}",
                "raise D or delta, or (with a variance limit) the variance",
            )
        while high - low > max(high / 10 ** (EPSILON_DIGITS + 1 if self.closed else 6), LEAST_EPSILON):
            middle = Fraction(decimal_text((low + high) / 2, EPSILON_DIGITS + 4))
            if self._meets(middle, eta, D):
                high = middle
            else:
                low = middle
        return max(SMALLEST_EPSILON, Fraction(decimal_text(high, EPSILON_DIGITS, "up")))

    # What is answered

    def mechanism(self, epsilon: Fraction, eta: Fraction, D: int) -> Mechanism:
        """The certified law at these parameters."""
        request = self.request
        method, half, notes = self.law(epsilon, eta, D)
        low, high = (D, None) if request.policy == "floor" else request.counts
        if request.policy == "floor" and request.promised:
            low, high = max(D, request.counts[0]), request.counts[1]
        terms = Terms(
            epsilon=epsilon,
            policy=request.policy,
            method=method,
            D=D,
            sensitivity=request.sensitivity,
            counts=request.counts,
            bits=request.bits,
            delta_paper_bound=paper_bound(epsilon, eta, D, request.sensitivity),
            notes=(*notes, *_policy_notes(request, D)),
            details={"paper": paper.parts(epsilon, eta, D)} if method == "paper" else None,
        )
        return certify(lambda bits: Columns(symmetric_law(half, bits), lo=low, hi=high), terms)

    def law(self, epsilon: Fraction, eta: Fraction, D: int) -> tuple[str, list[int], tuple[str, ...]]:
        """Method, proposal and notes."""
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
            best = optimal.optimum(epsilon, eta, D)
            words = {
                "cut": "above the knee tanh(epsilon/2): least delta, then least variance",
                "chain": "geometric sides, cut at D: least delta",
                "tent": "eta so small that the law is tent-shaped: least delta",
            }
            return "optimal", proposals(best.half), (f"closed form, {words[best.shape]}",)
        if D > LARGEST_PROGRAM_D:
            best = optimal.optimum(epsilon / request.sensitivity, eta, D)
            note = f"D above {LARGEST_PROGRAM_D}: the closed form at epsilon/{request.sensitivity}, not the optimum"
            if request.max_variance is not None or request.objective == "singleton":
                raise RequestError(f"this request needs the linear program, which goes to D = {LARGEST_PROGRAM_D}")
            return "optimal", proposals(best.half), (note,)
        program = self._program(epsilon, eta, self.target if request.objective == "variance" else None, D)
        try:
            left, values = program.solve_in_order().columns[0]
        except NoSolution:
            if request.objective == "variance":
                least = self.delta(epsilon, eta, D)
                raise InfeasibleError(
                    f"no law with eta {_t(eta)} and D {D} has delta {_t(request.delta)} at epsilon {_t(epsilon)}",
                    f"the least delta is {least:.6e}",
                ) from None
            if request.max_variance is None:
                raise SolverError("the solver gave up on this program; try a smaller D or method optimal") from None
            raise InfeasibleError(
                f"no law on [-{D}, {D}] with eta {_t(eta)} has variance at most {_t(request.max_variance)}",
                f"the least possible variance is 1 - eta = {_t(1 - eta)}",
            ) from None
        what = {"singleton": "least singleton delta, then variance", "variance": "least variance within delta"}
        aim = what.get(request.objective, "least delta, then variance")
        return "program", list(values[left:]), (f"linear program: {aim}",)

    def _paper(self, epsilon: Fraction, eta: Fraction, D: int) -> list[int]:
        form = paper.closed_form(epsilon, eta, D)
        half = proposals(form.half)
        if not form.holds:
            law = Columns(symmetric_law(half, 128))
            true = certify(lambda _: law, Terms(epsilon, "signed", "paper", D))
            better = optimal.least_delta(epsilon, eta, D)
            raise InfeasibleError(
                f"the paper's closed form does not hold at epsilon {_t(epsilon)}, eta {_t(eta)}, D {D}: it puts "
                f"P(Z = 1) = {form.half[1]:.6f} above e^epsilon * eta + delta*, so its law has delta "
                f"{_t(true.delta, 'up', 7)} (singleton {_t(true.certificate.delta_singleton, 'up', 7)})",
                f"method optimal has delta {better:.6e} there",
            )
        return half

    def _program(self, epsilon: Fraction, eta: Fraction | None, delta: Fraction | None, D: int) -> ColumnProgram:
        if D > LARGEST_PROGRAM_D:
            raise RequestError(f"this request needs the linear program, which goes to D = {LARGEST_PROGRAM_D}")
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


def paper_bound(epsilon: Fraction, eta: Fraction, D: int, sensitivity: int) -> Fraction | None:
    """The paper's min(1, (2D+1) delta*): what it states, not what is certified. None where its theorem fails."""
    if sensitivity > 1:
        return None
    form = paper.closed_form(epsilon, eta, D)
    return min(Fraction(1), (2 * D + 1) * Fraction(form.delta_star)) if form.holds else None


def _policy_notes(request: Request, D: int) -> tuple[str, ...]:
    if request.policy == "signed":
        return (f"policy signed: released counts can be negative where n < {D}",)
    if request.policy == "floor":
        return (
            f"policy floor: max(n, {D}) + Z is released; counts below {D} are biased up, 0 by {D} (error to {2 * D})",
        )
    return ()


def least_holding(holds: Callable[[int], bool], limit: int = LARGEST_D) -> int:
    """The least D in 1..limit for which a monotone condition holds."""
    high = 1
    while high < limit and not holds(high):
        high = min(2 * high, limit)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _t(x: Fraction | None, rounding: str = "nearest", digits: int = 10) -> str:
    return "none" if x is None else decimal_text(x, digits, rounding)
