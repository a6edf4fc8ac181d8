"""Designs for the whole domain of counts by linear program: policy `nonnegative`, methods `program`.

A law per small count and one stationary law, never negative, exact with probability eta at every n >= 1 (at least
eta at n = 0), exactly unbiased from n0 on. Orders of objectives:

    least delta     delta, then bias below n0, then mean squared errors
    best accuracy   least D whose eta is within 0.1 % of the limit, then eta, bias, mean squared errors
    largest eta     eta, then bias, then mean squared errors
    least D         D, then as for least delta
    least epsilon   epsilon, then as for least delta

The default n0 is the smallest whose price is small: delta at most twice the signed optimum at the same eta
and D or, where delta is given, eta at least 98 % of the signed optimum. The prices looked at are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from countveil.certificate import Terms
from countveil.decimals import exp
from countveil.design.linear import NoSolution
from countveil.design.program import ColumnProgram, Proposal
from countveil.design.request import SMALLEST_EPSILON, Question, Request
from countveil.design.signed import Solver, paper_bound
from countveil.design.sizing import LARGEST_FREE_D, Size, is_thorough, sized_program
from countveil.errors import InfeasibleError, SolverError
from countveil.exact import decimal_text
from countveil.law import Columns, Law
from countveil.mechanism import Mechanism, certify
from countveil.rounding import SCALE, column_law, even_weight

SPARE = 1 - Fraction(1, 10**6)
"""Share of a requested delta that programs aim at; the rest absorbs later stages and rounding."""
ETA_SHARE = Fraction(98, 100)
DELTA_FACTOR = 2
LISTED_PRICES = 4
RETRIES = 3


def answer(request: Request) -> Mechanism:
    """The best whole-domain mechanism; where the solver gives up, with a noise bound a little smaller than allowed.

    A program that uses all of a large D has cells so small that the solver can take it for infeasible: what it says is
    believed only of the usual one.
    """
    for spared in range(RETRIES) if is_thorough(request) else ():
        with suppress(SolverError, InfeasibleError):
            return _WholeDomain(request, spared, thorough=True).answer()
    for spared in range(RETRIES):
        try:
            return _WholeDomain(request, spared).answer()
        except SolverError:
            continue
    return _WholeDomain(request, RETRIES).answer()


def bias_floor(epsilon: Fraction, n0: int, D: int, sensitivity: int) -> Fraction:
    """Non-negative outputs and zero bias from n0 on force delta >= (n0 + d - E n0)/(n0 + d + D)."""
    upper = n0 + sensitivity
    value = (upper - exp(epsilon) * n0) / (upper + D)
    return max(Fraction(0), Fraction(value))


class _WholeDomain:
    def __init__(self, request: Request, spared: int, thorough: bool = False) -> None:
        self.request = request
        self.size = Size(spared, thorough)
        self.low, self.high = request.counts
        self.target = None if request.delta is None else request.delta * SPARE
        self.prices: dict[int, Fraction | None] = {}
        self.rule_met = True

    def answer(self) -> Mechanism:
        request = self.request
        match request.question, request.epsilon, request.eta, request.D:
            case Question.LEAST_DELTA, Fraction() as epsilon, Fraction() as eta, int() as D:
                return self._least_delta(epsilon, eta, D)
            case Question.BEST_ACCURACY, Fraction() as epsilon, _, _:
                return self._best_accuracy(epsilon)
            case Question.LARGEST_ETA, Fraction() as epsilon, _, int() as D:
                return self._largest_eta(epsilon, D)
            case Question.LEAST_D, Fraction() as epsilon, Fraction() as eta, _:
                return self._least_D(epsilon, eta)
            case Question.LEAST_EPSILON, _, Fraction() as eta, int() as D:
                return self._least_epsilon(eta, D)
            case Question.LEAST_VARIANCE, Fraction() as epsilon, Fraction() as eta, int() as D:
                program = self._program(epsilon, D, eta, self.target)
                n0 = self._choose_n0(program, lambda _: True, epsilon, D)
                return self._mechanism(program, n0, D)
        raise AssertionError("a question without its parameters")

    # The five questions

    def _least_delta(self, epsilon: Fraction, eta: Fraction, D: int) -> Mechanism:
        program = self._program(epsilon, D, eta, None)
        limit = DELTA_FACTOR * self._signed_delta(epsilon, eta, program.model.D)
        n0 = self._choose_n0(program, lambda delta: delta <= limit, epsilon, D)
        return self._mechanism(program, n0, D)

    def _largest_eta(self, epsilon: Fraction, D: int) -> Mechanism:
        program = self._program(epsilon, D, None, self.target)
        n0 = self._n0_for_eta(program, epsilon, D)
        return self._mechanism(program, n0, D)

    def _best_accuracy(self, epsilon: Fraction) -> Mechanism:
        if epsilon == 0:
            raise InfeasibleError("epsilon 0 needs D to be given", "say how far counts may be off (D)")
        _, _, least = self._signed_parameters()
        ample = least + math.ceil(6 * self.request.sensitivity / epsilon)
        program = self._program(epsilon, ample, None, self.target, tie=True)
        n0 = self._n0_for_eta(program, epsilon, ample)
        enough = self._value(program, n0)
        if enough is None:
            raise self._no_solution(epsilon, ample, n0)

        def close(D: int) -> bool:
            found = self._value(self._program(epsilon, D, None, self.target, tie=D > 16), n0)
            return found is not None and found >= enough * Fraction(999, 1000)

        D = _bisect(close, least, ample)
        return self._mechanism(self._program(epsilon, D, None, self.target), n0, D)

    def _least_D(self, epsilon: Fraction, eta: Fraction) -> Mechanism:
        _, _, least = self._signed_parameters()
        ample = least + math.ceil(6 * self.request.sensitivity / epsilon) if epsilon else 4 * least
        target = self.target or Fraction(0)
        program = self._program(epsilon, ample, eta, None)
        n0 = self._choose_n0(program, lambda delta: delta <= target, epsilon, ample)

        def meets(D: int) -> bool:
            found = self._value(self._program(epsilon, D, eta, None), n0)
            return found is not None and found <= target

        D = _bisect(meets, least, ample)
        return self._mechanism(self._program(epsilon, D, eta, None), n0, D)

    def _least_epsilon(self, eta: Fraction, D: int) -> Mechanism:
        signed_epsilon, _, _ = self._signed_parameters()
        target = self.target or Fraction(0)
        low, high = signed_epsilon, max(signed_epsilon, Fraction(1, 100)) * Fraction(21, 20)
        program = self._program(high, D, eta, None)
        limit = max(target, DELTA_FACTOR * self._signed_delta(high, eta, D))
        n0 = self._choose_n0(program, lambda delta: delta <= limit, high, D)

        def meets(epsilon: Fraction) -> bool:
            try:
                found = self._value(self._program(epsilon, D, eta, None), n0)
            except SolverError:
                return False
            return found is not None and found <= target

        while not meets(high):
            low, high = high, high * Fraction(5, 4)
            if high > 100:
                raise InfeasibleError(
                    f"no epsilon up to 100 gives delta {_t(self.request.delta)} at eta {_t(eta)}, D {D} and "
                    f"unbiased_from {n0}",
                    "raise D, delta or unbiased_from",
                )
        while high - low > max(high / 10**4, SMALLEST_EPSILON):
            middle = Fraction(decimal_text((low + high) / 2, 9))
            low, high = (low, middle) if meets(middle) else (middle, high)
        epsilon = max(SMALLEST_EPSILON, Fraction(decimal_text(high, 6, "up")))
        return self._mechanism(self._program(epsilon, D, eta, None), n0, D)

    # The signed optimum, for comparison

    def _signed_request(self) -> Request:
        return replace(self.request, policy="signed", method="auto", objective="delta", counts=(0, None), cap=False)

    def _signed_parameters(self) -> tuple[Fraction, Fraction, int]:
        return Solver(self._signed_request()).parameters()

    def _signed_delta(self, epsilon: Fraction, eta: Fraction, D: int) -> Fraction:
        found = Solver(self._signed_request()).delta(epsilon, eta, D)
        if not found.is_finite():
            raise InfeasibleError(
                f"no law with eta {_t(eta)} and D {D} has variance at most {_t(self.request.max_variance)}",
                f"the least possible variance is 1 - eta = {_t(1 - eta)}",
            )
        return Fraction(found)

    def _signed_eta(self, epsilon: Fraction, D: int) -> Fraction:
        request = replace(self._signed_request(), question=Question.LARGEST_ETA, epsilon=epsilon, eta=None, D=D)
        return Solver(request).parameters()[1]

    # Choosing n0

    def _n0_for_eta(self, program: ColumnProgram, epsilon: Fraction, D: int) -> int:
        goal = ETA_SHARE * self._signed_eta(epsilon, D)
        return self._choose_n0(program, lambda eta: eta >= goal, epsilon, D)

    def _choose_n0(self, program: ColumnProgram, good: Callable[[Fraction], bool], epsilon: Fraction, D: int) -> int:
        """The given n0, or the least one whose price is good; the prices seen are kept."""
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
        while first < last and self._hopeless(epsilon, first, D):
            first += 1

        def holds(n0: int) -> bool:
            value = self._value(program, n0)
            return value is not None and good(value)

        for n0 in range(first, min(first + LISTED_PRICES, last + 1)):  # every price on the way, for the list
            if holds(n0):
                return n0
        found = _bisect(holds, min(first + LISTED_PRICES, last), last)
        self.rule_met = holds(found)
        return found

    def _hopeless(self, epsilon: Fraction, n0: int, D: int) -> bool:
        """Whether the floor on delta alone rules n0 out."""
        return self.target is not None and bias_floor(epsilon, n0, D, self.request.sensitivity) > self.target

    def _value(self, program: ColumnProgram, n0: int) -> Fraction | None:
        """Least delta or largest eta with zero bias from n0 on; None where there is no solution."""
        program.set_unbiased_from(n0)
        try:
            solution = program.optimise()
            value = solution[program.delta] if program.model.delta is None else solution[program.eta]
        except NoSolution as no:
            if no.reason == "failed":
                raise SolverError("the solver gave up on this program; try a smaller D, or method remap") from None
            value = None
        self.prices[n0] = value
        return value

    # Programs and mechanisms

    def _program(
        self, epsilon: Fraction, D: int, eta: Fraction | None, delta: Fraction | None, *, tie: bool = False
    ) -> ColumnProgram:
        return sized_program(self.request, epsilon, D, eta, delta, self.size, target=self.target, tie=tie)

    def _mechanism(self, program: ColumnProgram, n0: int, D: int) -> Mechanism:
        program.set_unbiased_from(n0)
        try:
            proposal = program.solve_in_order()
        except NoSolution as no:
            if no.reason == "failed":
                raise SolverError("the solver gave up on this program; try a smaller D, or method remap") from None
            raise self._no_solution(program.model.epsilon, D, n0) from None
        request, epsilon = self.request, program.model.epsilon
        eta = proposal.eta
        terms = Terms(
            epsilon=epsilon,
            policy=request.policy,
            method="program",
            D=D,
            sensitivity=request.sensitivity,
            counts=request.counts,
            bits=request.bits,
            delta_paper_bound=paper_bound(epsilon, eta, D, request.sensitivity),
            notes=self._notes(n0, D, program),
            prices=self._price_list(n0, program),
        )
        mechanism = certify(lambda bits: self._columns(proposal, program, n0, bits), terms)
        if request.delta is not None and mechanism.delta > request.delta:
            raise self._no_solution(epsilon, D, n0)
        return mechanism

    def _columns(self, proposal: Proposal, program: ColumnProgram, n0: int, bits: int) -> Columns:
        centre = even_weight(int(proposal.eta * (1 << SCALE)), bits)
        cap = program.model.cap
        laws: list[Law] = []
        for n, (left, values) in enumerate(proposal.columns, start=self.low):
            unbiased = program.unbiased(n, n0)
            free = n in (0, cap) and values[left] > proposal.eta * (1 << SCALE) + (4 << (SCALE - bits))
            laws.append(column_law(values, left, bits, centre=None if free else centre, unbiased=unbiased))
        if program.model.symmetric and self.high is not None:
            top = tuple(law.mirrored() for law in reversed(laws[:-1]))
            return Columns(laws[-1], tuple(laws[:-1]), lo=self.low, hi=self.high, top=top)
        return Columns(laws[-1], tuple(laws[:-1]), lo=self.low, hi=self.high)

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
        if request.promised:
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
        asked = f"epsilon {_t(epsilon)}, D {D}, unbiased_from {n0}"
        if request.delta is not None:
            asked += f", delta {_t(request.delta)}"
        if request.eta is not None:
            asked += f", eta {_t(request.eta)}"
        if request.max_variance is not None:
            asked += f", variance at most {_t(request.max_variance)}"
        words = f"no never-negative mechanism has {asked}"
        if self.target is not None and floor > self.target:
            nearest = n0
            while bias_floor(epsilon, nearest, D, request.sensitivity) > self.target:
                nearest += 1
            return InfeasibleError(
                f"{words}: never-negative counts unbiased from {n0} on need delta >= {decimal_text(floor, 4, 'up')}",
                f"unbiased_from {nearest} or more removes this floor",
            )
        return InfeasibleError(words, "raise unbiased_from, D, delta or epsilon, or use method remap or policy signed")


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer in low..high for which a monotone condition holds, high being taken on trust."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _t(x: Fraction | None) -> str:
    return "none" if x is None else decimal_text(x, 10)
