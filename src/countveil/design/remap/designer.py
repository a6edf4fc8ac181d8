"""Never-negative counts by remapping a signed law (`countveil.laws.remap`), for policy `nonnegative`.

The privacy is that of the signed law; only the accuracy of small counts is lower. The map publishes negative outcomes
as 0 and pulls small positive outcomes down. From `unbiased_from` on the bias is exactly zero: the pulls make it tiny,
then moves (a few units of weight given to another outcome) make it zero, and the cost of the moves in delta is
certified.

Order of objectives: those of the signed law, whose eta is the knee tanh(epsilon/2) if none is given; then the least n0
(the count from which on the bias is zero) for which pulls suffice; then the least total mean squared error.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from countveil.design.closed_form import knee, least_delta
from countveil.design.remap import map_program, pulls
from countveil.design.remap.map_program import MAP_BITS, row_of
from countveil.design.remap.wide_map import is_wide, wide_targets
from countveil.design.request import LARGEST_D, SMALLEST_EPSILON, DesignRequest, least_epsilon
from countveil.design.signed import SPARE, Parameters, Signed, terms
from countveil.errors import InfeasibleError, RequestError
from countveil.laws import privacy
from countveil.laws.law import Law, LawsByCount
from countveil.laws.remap import Remap, Row
from countveil.laws.rounding import decimal, symmetric_law
from countveil.mechanism.mechanism import Mechanism, bind, enough_bits
from countveil.numeric.exact_numbers import decimal_text, exp_bounds
from countveil.numeric.search import least_positive

_ONE = 1 << MAP_BITS


def remap_law(source: Law, D: int | None = None, n0: int | None = None) -> Remap:
    """The signed law `source` made non-negative, and exactly unbiased from n0 on (default: the least possible)."""
    n0, g = _pulls(source, n0)
    rows: list[Row] = [((0, _ONE),)]
    for j, pull in enumerate(g, start=1):
        rows.append(_row(j, pull))
    pull = max(j - row[0][0] for j, row in enumerate(rows))
    bound = max(source.left + pull, source.right) if D is None else D
    try:
        laws = Remap(source, ((0, _ONE),), tuple(rows), MAP_BITS, n0, bound)
        laws.moves  # noqa: B018  raises ValueError if the residue is too large to be moved
    except ValueError as error:
        raise InfeasibleError(f"D = {bound} is too small for remap: {error}", "raise D") from None
    return laws


def remap_nearly(source: Law, n0: int | None = None, max_bias: Fraction | None = None) -> Remap:
    """The signed law `source` made non-negative without moves, so at no privacy cost; a small bias remains.

    If neither n0 nor a bias is given, the map only pulls small outcomes down: P(Y = n) is eta from a few counts on, and
    from two standard deviations on the bias is about a thousandth of a standard deviation. Otherwise a linear program
    finds the map (`map_program`) or, for laws too wide for it, pulls alone. Plans of many answers use this function:
    moves would cost k answers k * share * (1 + E) of delta, where share is the probability that is moved and E =
    e^epsilon.
    """
    if max_bias is None and is_wide(source):
        start = math.ceil(2 * math.sqrt(source.variance)) if n0 is None else n0
        return map_program.without_moves(source, [((y, _ONE),) for y in wide_targets(source, start)])
    if n0 is None and max_bias is None:
        side = pulls.geometric_side(source)
        if side is not None and side[1] <= 1:
            return _pull(source, _pulls(source, None)[1])
        wide = math.ceil(2 * math.sqrt(source.variance))
        return _pull(source, pulls.program_pulls(source, wide, wide))
    start = map_program.usual_n0(source) if n0 is None else n0
    if map_program.is_small(source, start):
        if max_bias is None:
            return map_program.best_map(source, start)
        return map_program.map_within(source, start, max_bias, explain=True)
    laws = _pull(source, _pulls(source, start)[1])  # too wide for the program
    bias = map_program.bias_from(laws, start)
    if max_bias is not None and bias > max_bias:
        raise InfeasibleError(
            f"the least bias from n = {start} on is {decimal_text(bias, 6, 'up')} for a law with so large a variance",
            "raise unbiased_from or max_bias",
        )
    return laws


def _pull(source: Law, g: list[float]) -> Remap:
    return map_program.without_moves(
        source, [row_of(Fraction(0)), *(_row(j, pull) for j, pull in enumerate(g, start=1))]
    )


def _pulls(source: Law, n0: int | None) -> tuple[int, list[float]]:
    side = pulls.geometric_side(source)
    if side is None:
        start = n0 if n0 is not None else max(1, math.ceil(math.sqrt(source.variance)))
        return start, pulls.program_pulls(source, start, start)
    ratio, onset = side
    first = _least_n0(ratio, onset)
    if n0 is not None and n0 < first:
        raise InfeasibleError(
            f"method remap cannot be unbiased from n = {n0} on, because it cannot lower outcomes below 0",
            f"give unbiased_from {first} or more, or use method program, which may allow less",
        )
    start = first if n0 is None else n0
    return start, pulls.geometric_pulls(source, ratio, start - onset)


def _least_n0(ratio: float, onset: int) -> int:
    return max(1, pulls.least_T(ratio) + onset)


def _row(j: int, pull: float) -> Row:
    """The row of the map that sends j to j - pull on average, by one of the two integers around it."""
    return row_of(Fraction(j) - Fraction(pull))


class Remapper:
    """The designer for method remap: it designs laws by remapping those of the designer `signed`."""

    def __init__(self, request: DesignRequest, signed: Signed) -> None:
        if request.has_promise:
            raise RequestError("method remap is only for all counts n >= 0; use method program for counts LO:HI")
        if request.objective == "singleton":
            raise RequestError("method remap has no objective singleton; use method program, or objective delta")
        self.request = request
        self.signed = signed

    # The questions

    def at(self, epsilon: Fraction, eta: Fraction, D: int) -> Mechanism:
        return self._mechanism(epsilon, eta, self._within(epsilon, eta, D), D)

    def best_accuracy(self, epsilon: Fraction) -> Mechanism:
        return self.least_D(epsilon, self._eta(epsilon))

    def largest_eta(self, epsilon: Fraction, D: int) -> Mechanism:
        return self._check(self.at(epsilon, self._eta(epsilon), D))

    def least_D(self, epsilon: Fraction, eta: Fraction) -> Mechanism:
        """The mechanism with the least D whose certified delta, the cost of moves included, meets the request."""
        target = self.request.delta or Fraction(0)
        bound = self._first_bound(epsilon, eta, target)
        for _ in range(40):
            mechanism = self._mechanism(epsilon, eta, bound, None)
            if mechanism.delta <= target:
                break
            bound += max(1, bound // 20)
        return self._check(mechanism)

    def least_epsilon(self, eta: Fraction, D: int) -> Mechanism:
        target = (self.request.delta or Fraction(0)) * SPARE

        def meets(epsilon: Fraction) -> bool:
            try:
                laws, _ = self._remap(epsilon, eta, self._within(epsilon, eta, D), D)
            except InfeasibleError:
                return False
            return privacy.delta(laws, exp_bounds(epsilon)[0], self.request.sensitivity).value <= target

        def tolerance(epsilon: Fraction) -> Fraction:
            return max(epsilon / 10**7, SMALLEST_EPSILON / 10)

        low = self.signed.parameters.epsilon
        epsilon = least_epsilon(meets, low, max(low, Fraction(1, 1000)), tolerance=tolerance, digits=(12, 7))
        if epsilon is None:
            raise InfeasibleError(
                f"no epsilon up to 100 gives delta {decimal_text(target)} at eta {decimal_text(eta)}, D {D} by remap",
                "raise D or delta",
            )
        return self._check(self.at(epsilon, eta, D))

    def _eta(self, epsilon: Fraction) -> Fraction:
        """The eta to use if none is given: the knee, tanh(epsilon/2).

        A larger eta would raise delta and shorten the sides of the law, which the map needs.
        """
        if epsilon == 0:
            raise InfeasibleError("epsilon 0 has no default eta for remap", "give eta and D, or use method program")
        return knee(epsilon) if self.signed.closed else self._quarter.eta

    @cached_property
    def _quarter(self) -> Parameters:
        """The parameters that the signed program finds for a quarter of delta; the rest of delta is for moves."""
        delta = self.request.delta
        return Signed(replace(self.signed.request, delta=None if delta is None else delta / 4), SPARE).parameters

    # The law and its map

    def _remap(self, epsilon: Fraction, eta: Fraction, bound: int, D: int | None) -> tuple[Remap, tuple[str, ...]]:
        """The remap of the signed law with noise up to `bound`, and the notes of that law."""
        _, half, notes = self.signed.law(epsilon, eta, bound)

        def build(bits: int) -> LawsByCount:
            return LawsByCount(symmetric_law(half, bits))

        bits = self.request.bits or enough_bits(build, epsilon, self.request.sensitivity)
        return remap_law(build(bits).stationary, D, self.request.unbiased_from), notes

    def _mechanism(self, epsilon: Fraction, eta: Fraction, bound: int, D: int | None) -> Mechanism:
        laws, notes = self._remap(epsilon, eta, bound, D)
        settings = terms(
            self.request,
            "remap",
            epsilon,
            eta,
            laws.D,
            notes=(
                f"signed law with noise up to {bound}: {notes[0]}",
                f"remap: outcomes below 0 become 0, outcomes 1..{laws.T} are pulled down at random; "
                "this costs no privacy",
                f"exactly unbiased from n = {laws.n0} on; eta holds from n = {laws.T + 1} on",
                "order: eta at the knee or as given, then least D, then least n0, then mean squared error",
            ),
            prices=self._prices(laws),
            details={"bias_before_moves": decimal_text(map_program.bias_from(laws, laws.n0), rounding="up")},
        )
        return bind(laws, settings)

    def _within(self, epsilon: Fraction, eta: Fraction, D: int) -> int:
        """The bound for the signed noise that leaves room for the map within D.

        The map may pull an outcome down, so noise and pull together must not exceed D.
        """
        law = symmetric_law(self.signed.law(epsilon, eta, D)[1], 64)
        _, g = _pulls(law, self.request.unbiased_from)
        bound = D - max((math.ceil(pull) for pull in g), default=0)
        if bound < 3:
            raise InfeasibleError(
                f"D = {D} leaves no room for noise, as method remap lowers outcomes by up to {D - bound}",
                f"use D >= {D - bound + 3}",
            )
        return bound

    def _first_bound(self, epsilon: Fraction, eta: Fraction, target: Fraction) -> int:
        """The first noise bound to try: there the signed law and its moves should stay within the delta `target`.

        Moves cost about (1 + E)/(E - 1) times the probability of the outermost noise, where E = e^epsilon.
        """
        if not self.signed.closed:
            return max(3, self._quarter.D)
        order = exp_bounds(epsilon)[0]
        share = decimal(1 + (1 + order) / (order - 1)) if order > 1 else decimal(Fraction(4))

        def enough(bound: int) -> bool:
            return least_delta(epsilon, eta, bound) * share <= decimal(target)

        if not enough(LARGEST_D):
            raise InfeasibleError(
                f"eta {decimal_text(eta, 10)} cannot have delta {decimal_text(target)} at epsilon "
                f"{decimal_text(epsilon)} by remap",
                f"the largest eta is about tanh(epsilon/2) = {decimal_text(knee(epsilon), 6, 'down')}",
            )
        return max(3, least_positive(enough, LARGEST_D))

    def _check(self, mechanism: Mechanism) -> Mechanism:
        target = self.request.delta
        if target is not None and mechanism.delta > target:
            raise InfeasibleError(
                f"D = {mechanism.D} is too small for delta {decimal_text(target)} by remap at epsilon "
                f"{decimal_text(mechanism.epsilon)}: the least delta found is {decimal_text(mechanism.delta, 6, 'up')}",
                "raise D or delta (remaps go down to about 1e-18)",
            )
        return mechanism

    def _prices(self, laws: Remap) -> tuple[dict[str, object], ...]:
        """What it costs to be unbiased from a smaller count n0 on.

        For a few values of n0, this is the mean squared error at the count 0: floats, for display.
        """
        side = pulls.geometric_side(laws.source)
        if side is None:
            return ()
        least = _least_n0(*side)
        rows: list[dict[str, object]] = []
        for n0 in sorted({least, laws.n0, 2 * least}):
            _, g = _pulls(laws.source, n0)
            error = round(_mse_at_zero(laws.source, g), 6)
            rows.append({"unbiased_from": n0, "mse_at_0_estimate": error, "chosen": n0 == laws.n0})
        return tuple(rows)


def _mse_at_zero(law: Law, g: list[float]) -> float:
    total = 0.0
    for j in range(1, law.right + 1):
        mean = j - (g[j - 1] if j <= len(g) else 0.0)
        part = mean - math.floor(mean)
        total += law.weight(j) / law.total * (mean * mean + part * (1 - part))
    return total
