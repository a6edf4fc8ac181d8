"""Laws that are optimised for many answers: Renyi-optimal noise, and its limit, the Cactus law.

Gilani, Gomez, Asoodeh, Calmon, Kosut and Sankar, *Optimizing Noise Distributions for Differential Privacy* (ICML 2025;
arXiv 2504.14730), minimise the Renyi divergence of order alpha between a symmetric law and its shift, at a given
variance. The order is chosen for the number of answers. For alpha -> 1 that is the Kullback-Leibler divergence, and the
law is the one of Alghamdi, Asoodeh, Calmon, Kosut, Sankar and Wei, *Cactus Mechanisms* (arXiv 2207.00420), for the
limit of many answers. For alpha -> infinity it is the staircase, at sensitivity 1 the geometric law.

Both problems are convex in the weights p_0, ..., p_N of one side, beyond which the law is geometric. With sensitivity d
and variance V:

    minimise sum_z f(p(z), p(z - d)),    f(x, y) = x^alpha y^(1 - alpha), or x ln(x / y) for alpha = 1,
    subject to sum_z p(z) = 1, sum_z z^2 p(z) = V.

They are solved by Newton's method in floats, scaled by the weights themselves: f is homogeneous of degree 1, so its
scaled Hessian is c [1, -1; -1, 1] with c = alpha (alpha - 1) f(x, y), or c = x for alpha = 1. At sensitivity d the
outcomes fall into d classes that f does not connect, so the Hessian alone does not fix their relative size; a multiple
of the weights, `caution`, is added to it and fades. **What is measured is the law that the optimiser found**, on
integer weights; nothing depends on its being the exact optimum.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from countveil.errors import ParameterError, SolverError
from countveil.laws.rounding import PRECISE, decimal
from countveil.literature.member import NEGLIGIBLE, Member, cut_off_member, text
from countveil.numeric.exact_numbers import Number, integer, number

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LARGEST_SENSITIVITY = 100
LARGEST_ORDER = 64
WIDEST = 8.0
"""Up to this many standard deviations from zero the weights are free; beyond, the law is geometric."""
LARGEST_N = 900
_STEPS = 400


def renyi_optimal(V: Number, order: Number, sensitivity: int = 1) -> Member:
    """The symmetric law of variance V whose Renyi divergence from its shift by `sensitivity` is least.

    `order` is the order of the divergence, from 1 to 64; order 1 gives the Cactus law.
    """
    variance, alpha = _read("V", V, Fraction(1, 50), 10**4), _read("order", order, Fraction(1), LARGEST_ORDER)
    d = integer("sensitivity", sensitivity, 1, LARGEST_SENSITIVITY)
    try:
        half, tail = optimise(float(variance), float(alpha), d)
    except (np.linalg.LinAlgError, OverflowError):
        what = f"the Renyi divergence of order {text(alpha)} at variance {text(variance)}"
        raise SolverError(f"floats cannot resolve {what}; give a lower order") from None
    name = "Cactus" if alpha == 1 else "Renyi-optimal"
    given: dict[str, Fraction | int] = {"V": variance, "order": alpha} if alpha > 1 else {"V": variance}
    note = f"optimised here in floats from the definition, at sensitivity {d}"
    return cut_off_member(name.lower(), name, _extend(half, tail), given, note)


def divergence(half: Floats, tail: float, order: float, sensitivity: int) -> float:
    """The Renyi divergence (in nats) of a symmetric law from its shift by `sensitivity`; order 1 is Kullback-Leibler.

    `half` are the probabilities of 0..N, and `tail` is the ratio of the geometric tail beyond N.
    """
    problem = _Problem(len(half) - 1, tail, order, sensitivity)
    value = problem.value(half)
    return value if order == 1 else math.log(value) / (order - 1)


def optimise(V: float, order: float, sensitivity: int = 1) -> tuple[Floats, float]:
    """The weights p_0, ..., p_N of the law of least Renyi divergence, and the ratio of its tail beyond N.

    The tail is geometric, with the ratio of the geometric law of variance V, the heaviest that an optimum needs.
    """
    N = min(LARGEST_N, math.ceil(WIDEST * math.sqrt(V)) + 4 * sensitivity + 4)
    tail = math.exp(-2 * math.asinh(1 / math.sqrt(2 * V)))
    problem = _Problem(N, tail, order, sensitivity)
    half: Floats = np.float64(tail) ** np.arange(N + 1, dtype=float) * (
        (1 - tail) / (1 + tail)
    )  # the geometric law meets both constraints
    caution, value = 0.01, problem.value(half)
    for _ in range(_STEPS):
        step, decrement = problem.step(half, caution)
        if decrement < 1e-11 * (value - problem.least) and caution < 1e-5:
            return half, tail
        size = longest = min(1.0, 0.9 / max(0.9, float(-step.min())))  # weights stay positive
        while (trial := problem.value(half * (1 + size * step))) > value - 1e-4 * size * decrement:
            size /= 2
            if size < 1e-6:  # floats cannot resolve a lower value
                return half, tail
        half, value = half * (1 + size * step), trial
        caution = max(1e-10, caution / 4) if size == longest else caution
    raise SolverError("the Renyi-optimal law did not converge; change V or order a little")


class _Problem:
    """The objective and Newton's step for the weights p_0, ..., p_N of a law with a geometric tail beyond N.

    If both an outcome z and z - sensitivity lie in the tail, on the same side, their term is a multiple of p_N.
    """

    def __init__(self, N: int, tail: float, order: float, sensitivity: int) -> None:
        self.N, self.order = N, order
        self.least = 0.0 if order == 1 else 1.0  # the objective for two equal laws
        z = np.arange(-N + 1, N + sensitivity)
        self.x, self.y = _place(z, N), _place(z - sensitivity, N)
        self.x_factor, self.y_factor = _factor(z, N, tail), _factor(z - sensitivity, N, tail)
        ends = (tail**sensitivity * self._f(1.0, tail**-sensitivity) + self._f(1.0, tail**sensitivity)) / (1 - tail)
        self.end = float(ends)
        i = np.arange(N + 1, dtype=float)
        mass, square = np.where(i == 0, 1.0, 2.0), 2 * i**2
        mass[N] = 2 / (1 - tail)
        square[N] = 2 * (N**2 / (1 - tail) + 2 * N * tail / (1 - tail) ** 2 + tail * (1 + tail) / (1 - tail) ** 3)
        self.constraints = np.vstack((mass, square))

    def _f(self, x: Any, y: Any) -> Any:
        """The term of an outcome in the objective; if it exceeds all floats, infinity, which shortens the step."""
        with np.errstate(over="ignore"):
            return x * np.log(x / y) if self.order == 1 else x * (x / y) ** (self.order - 1)

    def value(self, half: Floats) -> float:
        terms = self._f(self.x_factor * half[self.x], self.y_factor * half[self.y])
        return float(terms.sum() + self.end * half[self.N])

    def step(self, half: Floats, caution: float) -> tuple[Floats, float]:
        """Newton's step, relative to the weights, and how fast the objective falls along it; `caution` shortens it."""
        N, alpha = self.N, self.order
        x, y = self.x_factor * half[self.x], self.y_factor * half[self.y]
        terms = self._f(x, y)
        at_x, at_y, curve = (
            (terms + x, -x, x) if alpha == 1 else (alpha * terms, (1 - alpha) * terms, alpha * (alpha - 1) * terms)
        )
        gradient = np.bincount(self.x, at_x, N + 1) + np.bincount(self.y, at_y, N + 1)
        gradient[N] += self.end * half[N]
        hessian = np.diag(caution * half)
        np.add.at(hessian, (self.x, self.x), curve)
        np.add.at(hessian, (self.y, self.y), curve)
        np.add.at(hessian, (self.x, self.y), -curve)
        np.add.at(hessian, (self.y, self.x), -curve)
        scale = 1 / np.sqrt(np.diag(hessian) + 1e-250)
        rows = self.constraints * half * scale
        system = np.zeros((N + 3, N + 3))
        system[: N + 1, : N + 1] = hessian * scale[:, None] * scale
        system[N + 1 :, : N + 1] = rows
        system[: N + 1, N + 1 :] = rows.T
        solution = np.linalg.solve(system, np.concatenate((-gradient * scale, (0.0, 0.0))))
        step = solution[: N + 1] * scale
        return step, float(-gradient @ step)


def _place(z: Ints, N: int) -> Ints:
    """The index of the weight of each outcome z; in the tail, whose weights are multiples of the last one, it is N."""
    places: Ints = np.minimum(np.abs(z), N)
    return places


def _factor(z: Ints, N: int, tail: float) -> Floats:
    factors: Floats = tail ** np.maximum(np.abs(z) - N, 0).astype(float)
    return factors


def _extend(half: Floats, tail: float) -> list[Decimal]:
    """The weights of one side with the geometric tail, until what is left weighs at most 2**-100; as Decimals."""
    with localcontext(PRECISE):
        weights = [Decimal(float(p)) for p in half]
        ratio, limit = Decimal(tail), decimal(NEGLIGIBLE)
        while 2 * weights[-1] * ratio / (1 - ratio) > limit * weights[0]:
            weights.append(weights[-1] * ratio)
        return weights


def _read(argument: str, given: object, low: Fraction, high: int) -> Fraction:
    allowed = f"a decimal number from {float(low):g} to {high}"
    value = number(argument, given, allowed)
    if not low <= value <= high:
        raise ParameterError(argument, given, allowed)
    return value
