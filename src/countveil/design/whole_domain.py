"""Designs for the whole domain of counts by linear program: policy `nonnegative`, method `program`.

A mechanism here has a law for each small count and one stationary law for all larger ones. Released counts are never
negative, exact with probability eta for every count n >= 1 (at least eta at n = 0), and exactly unbiased from the count
n0 on. For each question, what is optimised first, what next among equals:

    least delta     delta, then bias below n0, then mean squared errors
    best accuracy   least D whose eta is within 0.1 % of the limit, then eta, bias, mean squared errors
    largest eta     eta, then bias, then mean squared errors
    least D         D, then as for least delta
    least epsilon   epsilon, then as for least delta

The price of an n0 is the least delta or, where delta is given, the largest eta that it allows. The default n0 is the
smallest with a good price: delta at most twice the signed optimum at the same eta and D, or eta at least 98 % of the
signed optimum. All computed prices are reported.

The solver works best with deltas above its tolerance and few laws. A noise bound smaller than the given D is allowed,
so the program uses D only as far as that lowers delta visibly. (If method program is requested explicitly for the
largest eta at D, it uses D as far as the solver can resolve, because that eta still grows with D in its fourth digit.)
Up to LARGEST_FREE_D every probability is a variable of its own. Above it, laws are tied: outer laws are expressed by
few variables (see `column_program`). Tents (see `closed_form`) are the exception: their sides rise and cannot be tied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from countveil.design import closed_form
from countveil.design.column_program import ColumnProgram, Model, Proposal
from countveil.design.request import SMALLEST_EPSILON, DesignQuestion, DesignRequest, least_epsilon
from countveil.design.signed import SPARE, Signed, show, terms
from countveil.errors import InfeasibleError, RequestError, SolverError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import SCALE, column_law, decimal, even_weight, exp
from countveil.mechanism.mechanism import Mechanism, certify
from countveil.numeric.exact_numbers import decimal_text
from countveil.numeric.linear_program import NoSolution
from countveil.numeric.search import least_integer

ETA_SHARE = Fraction(98, 100)
DELTA_FACTOR = 2
LISTED_PRICES = 4
RETRIES = 3
LARGEST_FREE_D = 26
LARGEST_TENT_D = 20
LARGEST_TIED_D = 400
LARGEST_EXPLICIT = 200
LARGEST_TIED_CELLS = 2600
LEAST_DELTA = Fraction(1, 10**16)
THOROUGH_DELTA = Fraction(1, 10**18)
LEAST_SHARE = Fraction(1, 20)


def design(request: DesignRequest, signed: Signed) -> Mechanism:
    """A never-negative mechanism for all counts: the best that the linear programs tried here find.

    If the solver fails, it is tried again with a slightly smaller noise bound. If method program is requested
    explicitly for the largest eta at D, the thorough program is tried first. Some of its probabilities are so small
    that the solver may report it infeasible by mistake, so only such a report on the usual program is trusted.
    """
    if request.method == "program" and request.question is DesignQuestion.LARGEST_ETA:
        for spared in range(RETRIES):
            with suppress(SolverError, InfeasibleError):
                return request.ask(Whole(request, signed, spared, thorough=True))
    for spared in range(RETRIES):
        with suppress(SolverError):
            return request.ask(Whole(request, signed, spared))
    return request.ask(Whole(request, signed, RETRIES))


def bias_floor(epsilon: Fraction, n0: int, D: int, sensitivity: int) -> Fraction:
    """A lower bound on delta for every never-negative mechanism with zero bias from the count n0 on.

    It is (n0 + d - E n0)/(n0 + d + D), with sensitivity d and E = e^epsilon, or 0 if that is negative.
    """
    upper = n0 + sensitivity
    value = (upper - exp(epsilon) * n0) / (upper + D)
    return max(Fraction(0), Fraction(value))


class Whole:
    """The designer of never-negative laws by linear program; `signed` designs signed noise, for comparison.

    The program uses D only as far as that lowers delta visibly, or if `thorough` as far as the solver can resolve.
    `spared` lowers the bound further, for retries after the solver failed.
    """

    def __init__(self, request: DesignRequest, signed: Signed, spared: int = 0, *, thorough: bool = False) -> None:
        self.request = request
        self.signed = signed
        self.spared, self.thorough = spared, thorough
        self.low, self.high = request.counts
        self.target = None if request.delta is None else request.delta * SPARE
        self.prices: dict[int, Fraction | None] = {}
        self.rule_met = True

    # The questions

    def at(self, epsilon: Fraction, eta: Fraction, D: int) -> Mechanism:
        program = self._program(epsilon, D, eta, self.target)
        limit = Fraction(1) if self.target else DELTA_FACTOR * self._signed_delta(epsilon, eta, program.model.D)
        n0 = self._choose_n0(program, lambda value: value <= limit, epsilon, D)
        return self._mechanism(program, n0, D)

    def largest_eta(self, epsilon: Fraction, D: int) -> Mechanism:
        program = self._program(epsilon, D, None, self.target)
        return self._mechanism(program, self._n0_for_eta(program, epsilon, D), D)

    def best_accuracy(self, epsilon: Fraction) -> Mechanism:
        least, ample = self._bounds(epsilon)
        program = self._program(epsilon, ample, None, self.target, tie=True)
        n0 = self._n0_for_eta(program, epsilon, ample)
        enough = self._value(program, n0)
        if enough is None:
            raise self._no_solution(epsilon, ample, n0)

        def close(D: int) -> bool:
            eta = self._value(self._program(epsilon, D, None, self.target, tie=D > 16), n0)
            return eta is not None and eta >= enough * Fraction(999, 1000)

        D = least_integer(close, least, ample)
        return self._mechanism(self._program(epsilon, D, None, self.target), n0, D)

    def least_D(self, epsilon: Fraction, eta: Fraction) -> Mechanism:
        least, ample = self._bounds(epsilon)
        n0 = self._choose_n0(self._program(epsilon, ample, eta, None), self._is_within, epsilon, ample)
        D = least_integer(lambda D: self._meets(epsilon, eta, D, n0), least, ample)
        return self._mechanism(self._program(epsilon, D, eta, None), n0, D)

    def least_epsilon(self, eta: Fraction, D: int) -> Mechanism:
        low = self.signed.parameters.epsilon
        high = max(low, Fraction(1, 100)) * Fraction(21, 20)
        program = self._program(high, D, eta, None)
        limit = max(self.target or 0, DELTA_FACTOR * self._signed_delta(high, eta, D))
        n0 = self._choose_n0(program, lambda delta: delta <= limit, high, D)

        def meets(epsilon: Fraction) -> bool:
            with suppress(SolverError):
                return self._meets(epsilon, eta, D, n0)
            return False

        def tolerance(epsilon: Fraction) -> Fraction:
            return max(epsilon / 10**4, SMALLEST_EPSILON)

        epsilon = least_epsilon(meets, low, high, tolerance=tolerance, digits=(9, 6))
        if epsilon is None:
            raise InfeasibleError(
                f"no epsilon up to 100 gives delta {show(self.request.delta)} at eta {show(eta)}, D {D} and "
                f"unbiased_from {n0}",
                "raise D, delta or unbiased_from",
            )
        return self._mechanism(self._program(epsilon, D, eta, None), n0, D)

    def _bounds(self, epsilon: Fraction) -> tuple[int, int]:
        """The least and the largest D to consider: the D of signed noise, and one beyond which little is gained."""
        if epsilon == 0 and self.request.eta is None:
            raise InfeasibleError("epsilon 0 needs D", "give D, the largest error of a count")
        least = self.signed.parameters.D
        return least, least + math.ceil(6 * self.request.sensitivity / epsilon) if epsilon else 4 * least

    def _meets(self, epsilon: Fraction, eta: Fraction, D: int, n0: int) -> bool:
        delta = self._value(self._program(epsilon, D, eta, None), n0)
        return delta is not None and self._is_within(delta)

    def _is_within(self, delta: Fraction) -> bool:
        return self.target is not None and delta <= self.target

    def _signed_delta(self, epsilon: Fraction, eta: Fraction, D: int) -> Fraction:
        delta = self.signed.delta(epsilon, eta, D)
        if not delta.is_finite():
            raise InfeasibleError(
                f"no law with eta {show(eta)} and D {D} has variance at most {show(self.request.max_variance)}",
                f"the least possible variance is 1 - eta = {show(1 - eta)}",
            )
        return Fraction(delta)

    # Choosing n0

    def _n0_for_eta(self, program: ColumnProgram, epsilon: Fraction, D: int) -> int:
        goal = ETA_SHARE * self.signed.largest_eta(epsilon, D).eta
        return self._choose_n0(program, lambda eta: eta >= goal, epsilon, D)

    def _choose_n0(self, program: ColumnProgram, good: Callable[[Fraction], bool], epsilon: Fraction, D: int) -> int:
        """The requested n0 or, if none is requested, the least n0 whose price is good.

        Every computed price, which the module's docstring defines, is recorded.
        """
        given = self.request.unbiased_from
        if given is None and self.request.objective == "singleton":
            given = max(1, self.low)
        if given is not None:
            given = max(given, self.low)
            if self._value(program, given) is None:
                raise self._no_solution(epsilon, D, given)
            return given
        first = max(1, self.low)
        last = program.largest_n0
        while first < last and self._is_hopeless(epsilon, first, D):
            first += 1

        def holds(n0: int) -> bool:
            value = self._value(program, n0)
            return value is not None and good(value)

        for n0 in range(first, min(first + LISTED_PRICES, last + 1)):  # each is computed, for the price list
            if holds(n0):
                return n0
        n0 = least_integer(holds, min(first + LISTED_PRICES, last), last)
        self.rule_met = holds(n0)
        return n0

    def _is_hopeless(self, epsilon: Fraction, n0: int, D: int) -> bool:
        """Whether zero bias from the count n0 on already needs more delta than requested (`bias_floor`)."""
        return self.target is not None and bias_floor(epsilon, n0, D, self.request.sensitivity) > self.target

    def _value(self, program: ColumnProgram, n0: int) -> Fraction | None:
        """The least delta or the largest eta with zero bias from n0 on; None if the program has no solution."""
        program.set_unbiased_from(n0)
        try:
            solution = program.optimise()
            value = solution[program.delta] if program.model.delta is None else solution[program.eta]
        except NoSolution as no:
            if no.reason == "failed":
                raise SolverError("the solver gave up on this program; lower D, or use method remap") from None
            value = None
        self.prices[n0] = value
        return value

    # Programs and mechanisms

    def _program(
        self, epsilon: Fraction, D: int, eta: Fraction | None, delta: Fraction | None, *, tie: bool = False
    ) -> ColumnProgram:
        """The linear program for noise up to D, or to a smaller bound where the rest of D gains next to nothing."""
        request, low, high = self.request, self.low, self.high
        if request.cap and low > 0:
            raise RequestError("cap needs counts that begin at 0: give counts 0:HI (--counts 0:500 --cap)")
        small_range = high is not None and high - low <= 2 * _stationary(D) + 2
        if small_range and high is not None and high - low > LARGEST_EXPLICIT:
            raise RequestError(
                f"counts {low}:{high} at D = {D} need {high - low + 1} laws, and method program allows at most "
                f"{LARGEST_EXPLICIT + 1}; lower D, or promise fewer counts"
            )
        if not small_range:
            D = self._useful_D(epsilon, D, eta)
            if D > LARGEST_TENT_D and eta is not None and epsilon > 0 and closed_form.is_tent(epsilon, eta, D):
                D = LARGEST_TENT_D  # tied laws cannot rise; a smaller noise bound keeps the promise of D
        model = Model(
            epsilon=epsilon,
            D=D,
            eta=eta,
            delta=delta,
            n0=request.unbiased_from or 0,
            lo=low,
            hi=high if small_range else None,
            cap=high if request.cap and small_range else None,
            sensitivity=request.sensitivity,
            singleton=request.objective == "singleton",
            max_variance=request.max_variance,
            symmetric=request.cap and not small_range,
            M=max(low, _stationary(D)),
        )
        can_tie = low == 0 and request.sensitivity == 1 and not model.singleton and epsilon > 0 and D > 4
        if small_range or (D <= LARGEST_FREE_D and not ((tie or (self.thorough and D > 16)) and can_tie)):
            return ColumnProgram(model)
        if not can_tie:
            raise RequestError(
                f"D = {D} is too large: method program allows D up to {LARGEST_FREE_D} if counts begin above 0, "
                "sensitivity is above 1, the objective is singleton or epsilon is 0; lower D, or use method remap or "
                "policy signed"
            )
        if D > LARGEST_TIED_D:
            raise RequestError(
                f"method program allows D up to {LARGEST_TIED_D}, but this request needs D = {D}; use method remap"
            )
        least = 0 if delta is None else 14 if self.thorough else 8  # tiny deltas need few cells
        window = min(D - 1, max(math.ceil(4 / epsilon), least, (request.unbiased_from or 0) + 2))
        reach = D if self.thorough else min(D, max(math.ceil(10 / epsilon), 3 * least))
        while window * reach > LARGEST_TIED_CELLS and reach > window + 10:
            reach -= 5
        return ColumnProgram(replace(model, window=window, reach=reach, M=None))

    def _useful_D(self, epsilon: Fraction, D: int, eta: Fraction | None) -> int:
        """D, or a smaller noise bound where that is good enough.

        It is good enough if its delta is far below the requested one, or below what the solver can resolve.
        """
        step = epsilon / self.request.sensitivity
        least = LEAST_DELTA
        if self.target is not None:
            least = THOROUGH_DELTA if self.thorough else max(LEAST_DELTA, self.target * LEAST_SHARE)
        centre = eta if eta is not None else closed_form.largest_eta(step, least)
        while D > 4 and closed_form.least_delta(step, centre, D) < decimal(least):
            D -= 1
        return max(D - self.spared, min(D, 2))

    def _mechanism(self, program: ColumnProgram, n0: int, D: int) -> Mechanism:
        program.set_unbiased_from(n0)
        try:
            proposal = program.solve_in_order()
        except NoSolution as no:
            if no.reason == "failed":
                raise SolverError("the solver gave up on this program; lower D, or use method remap") from None
            raise self._no_solution(program.model.epsilon, D, n0) from None
        request, epsilon = self.request, program.model.epsilon
        notes = (*self._notes(n0, D, program), *program.program.notes)
        prices = self._price_list(n0, program)
        settings = terms(request, "program", epsilon, proposal.eta, D, notes=notes, prices=prices)
        mechanism = certify(lambda bits: self._laws(proposal, program, n0, bits), settings)
        if request.delta is not None and mechanism.delta > request.delta:
            raise self._no_solution(epsilon, D, n0)
        return mechanism

    def _laws(self, proposal: Proposal, program: ColumnProgram, n0: int, bits: int) -> LawsByCount:
        centre = even_weight(int(proposal.eta * (1 << SCALE)), bits)
        cap = program.model.cap
        laws: list[Law] = []
        for n, (left, values) in enumerate(proposal.columns, start=self.low):
            unbiased = program.must_be_unbiased(n, n0)
            free = n in (0, cap) and values[left] > proposal.eta * (1 << SCALE) + (4 << (SCALE - bits))
            laws.append(column_law(values, left, bits, centre=None if free else centre, unbiased=unbiased))
        if program.model.symmetric and self.high is not None:
            top = tuple(law.mirror() for law in reversed(laws[:-1]))
            return LawsByCount(laws[-1], tuple(laws[:-1]), lo=self.low, hi=self.high, top=top)
        return LawsByCount(laws[-1], tuple(laws[:-1]), lo=self.low, hi=self.high)

    # Words

    def _notes(self, n0: int, D: int, program: ColumnProgram) -> tuple[str, ...]:
        request = self.request
        first = "least singleton delta" if request.objective == "singleton" else request.question.value
        notes = [
            f"linear program over the columns of all counts; order: {first}, bias below n = {n0}, mean squared errors"
        ]
        if request.unbiased_from is None and request.objective == "delta":
            rule = "delta at most twice" if program.model.delta is None else "eta at least 98 % of"
            words = "is the smallest with" if self.rule_met else "is the largest tried; none has"
            notes.append(f"unbiased_from {n0} {words} {rule} the signed optimum")
        if program.model.window is not None:
            notes.append(
                f"D above {LARGEST_FREE_D}: geometric tails were imposed on the columns; delta may be up to about "
                "twice the optimum, eta a fraction of a percent below it"
            )
        if program.model.D < D:
            notes.append(f"noise up to {program.model.D} is enough here: the rest of D is not used")
        if request.has_promise:
            high = "" if self.high is None else f" <= {self.high}"
            notes.append(
                f"accuracy assumes {self.low} <= n{high}; counts outside are moved to the nearest end first, so "
                "privacy holds for every dataset all the same"
            )
        return tuple(notes)

    def _price_list(self, chosen: int, program: ColumnProgram) -> tuple[dict[str, object], ...]:
        what = "delta" if program.model.delta is None else "eta"
        return tuple(
            {
                "unbiased_from": n0,
                what: None if value is None else decimal_text(value, 6, "up" if what == "delta" else "down"),
                "chosen": n0 == chosen,
            }
            for n0, value in sorted(self.prices.items())
        )

    def _no_solution(self, epsilon: Fraction, D: int, n0: int) -> InfeasibleError:
        request = self.request
        floor = bias_floor(epsilon, n0, D, request.sensitivity)
        asked = f"epsilon {show(epsilon)}, D {D}, unbiased_from {n0}"
        if request.delta is not None:
            asked += f", delta {show(request.delta)}"
        if request.eta is not None:
            asked += f", eta {show(request.eta)}"
        if request.max_variance is not None:
            asked += f", variance at most {show(request.max_variance)}"
        message = f"no never-negative mechanism has {asked}"
        if self.target is not None and floor > self.target:
            nearest = n0
            while bias_floor(epsilon, nearest, D, request.sensitivity) > self.target:
                nearest += 1
            return InfeasibleError(
                f"{message}: never-negative counts unbiased from {n0} on need delta >= {decimal_text(floor, 4, 'up')}",
                f"unbiased_from {nearest} or more needs no such delta",
            )
        hint = "raise unbiased_from, D, delta or epsilon, or use method remap or policy signed"
        return InfeasibleError(message, hint)


def _stationary(D: int) -> int:
    """The stationary count M to use in a program whose laws are all free: somewhat above D.

    Delta still falls a little as M grows from D to about 2D.
    """
    return D + (D if D <= 8 else 8 if D <= 16 else 4)
