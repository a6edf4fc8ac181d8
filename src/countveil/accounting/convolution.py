"""The sum of many independent losses on a grid, by Fourier transform, with a bound on every error.

The loss of an answer is the log-ratio of its probabilities P and Q at two neighbouring datasets. For the sum L = L_1 +
... + L_k of the losses of k answers (finite parts; infinite losses are counted apart)

    delta(epsilon) = P(some loss is infinite) + sum over l > epsilon of (1 - e^(epsilon - l)) P(L = l).

The law of one loss is tilted: P_t(l) is proportional to e^(t l) P(l), with t such that the mean of the sum is near
epsilon. Then the probabilities that matter are the largest of the transform instead of the smallest, and a delta of
1e-15 is as accurate as one of 1e-3. The transform is circular on N grid points around epsilon, called the window.
**Errors**, each bounded:

- probability beyond the N points wraps around: bounded by Chernoff's inequality;
- the transforms, their powers and products have rounding errors: `spectrum` bounds them;
- rounding in the tilt and in the probabilities themselves: a relative error of k times some units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from countveil.accounting.loss_grid import Losses
from countveil.accounting.privacy_loss import Floats
from countveil.accounting.spectrum import UNIT, Term, sum_law

WIDTH = 9.0
"""The window of the transform first reaches this many standard deviations to each side; it is widened if needed."""
SMALLEST, LARGEST = 2**10, 2**22
ENOUGH = 1e-4
"""The window of the transform is wide enough when the error is below this share of the result."""

Part = tuple[Losses, int]
"""A pair (losses of one answer, number of such answers)."""


@dataclass(frozen=True)
class Estimate:
    """A value, and a bound on the error of computing it; the error of the grid is not included."""

    value: float
    error: float


def estimate(parts: Sequence[Part], epsilon: float) -> float:
    """The delta of all answers together at epsilon, fast and without error bounds: for searches."""
    infinite = _infinite(parts)
    if _largest(parts) <= epsilon:
        return infinite
    tilt = _saddle(parts, epsilon)
    loss, p, _ = _sum_losses(parts, epsilon, tilt, _first_size(parts, tilt, epsilon), bounded=False)
    counted, excess = _excess(loss, epsilon)
    return max(0.0, float((excess * p[counted]).sum())) + infinite


def delta(parts: Sequence[Part], epsilon: float) -> Estimate:
    """The delta of all answers together at epsilon, from their losses on the grid, with a bound on the error."""
    infinite = _infinite(parts)
    if any(not len(losses.p) for losses, _ in parts):
        certain = any(losses.infinite == 1 for losses, _ in parts)
        return Estimate(1.0 if certain else infinite, 8 * UNIT * infinite)
    tilt = _saddle(parts, epsilon)
    if _largest(parts) <= epsilon:
        return Estimate(infinite, 8 * UNIT * infinite)
    size = _first_size(parts, tilt, epsilon)
    while True:
        finite = _finite(parts, epsilon, tilt, size)
        total = finite.value + infinite
        if finite.error <= ENOUGH * total or size >= LARGEST:
            return Estimate(min(1.0, total), finite.error + 8 * UNIT * infinite)
        size *= 4 if size * 4 <= LARGEST else 2


def tails(parts: Sequence[Part], epsilon: float) -> tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]:
    """Two functions of the loss t of one more answer: t -> P(L > epsilon - t) and t -> e^epsilon Q(L > epsilon - t).

    L is the sum of the losses of all answers; P and Q are its laws at two neighbouring datasets. Both functions are
    estimates, interpolated on the grid around epsilon.
    """
    tilt = _saddle(parts, epsilon)
    loss, p, _ = _sum_losses(parts, epsilon, tilt, _first_size(parts, tilt, epsilon), bounded=False)
    p = np.maximum(p, 0.0)
    infinite = _infinite(parts)
    above_p = np.cumsum(p[::-1])[::-1]
    with np.errstate(over="ignore", under="ignore"):
        above_q = np.cumsum((p * np.exp(np.clip(epsilon - loss, -700, 300)))[::-1])[::-1]

    def p_tail(t: Floats) -> Floats:
        return np.interp(epsilon - t, loss, above_p, left=1.0 - infinite, right=0.0) + infinite

    def q_tail(t: Floats) -> Floats:
        return np.interp(epsilon - t, loss, above_q, right=0.0)

    return p_tail, q_tail


def _infinite(parts: Sequence[Part]) -> float:
    """The probability that at least one loss is infinite."""
    return -math.expm1(sum(k * math.log1p(-min(losses.infinite, 1 - UNIT)) for losses, k in parts))


def _excess(loss: Floats, epsilon: float) -> tuple[npt.NDArray[np.bool_], Floats]:
    """A mask of the losses l that are above epsilon, and the value 1 - e^(epsilon - l) of each of these."""
    counted = loss > epsilon
    return counted, -np.expm1(np.minimum(0.0, epsilon - loss[counted]))


def _finite(parts: Sequence[Part], epsilon: float, tilt: float, size: int) -> Estimate:
    loss, p, noise = _sum_losses(parts, epsilon, tilt, size)
    counted, excess = _excess(loss, epsilon)
    value = max(0.0, float((excess * p[counted]).sum()))
    weights = np.exp(np.clip(_log_scale(parts, tilt) - tilt * loss[counted], -745, 700)) * excess
    top, bottom = float(loss[-1]), float(loss[0])
    wrapped = _tilted_beyond(parts, tilt, bottom, top) * float(weights.max(initial=0.0))
    error = noise * float(weights.sum()) + wrapped + _chernoff_above(parts, top)
    return Estimate(value, error + value * (_relative_error(parts, tilt) + UNIT * size))


def _relative_error(parts: Sequence[Part], tilt: float) -> float:
    """The relative error of the probabilities from rounding: some units in the last place for each answer."""
    return sum(
        k * (losses.error + UNIT * (16 + 2 * tilt * losses.reach + abs(_log_mgf(losses, tilt)))) for losses, k in parts
    )


def _sum_losses(
    parts: Sequence[Part], epsilon: float, tilt: float, size: int, *, bounded: bool = True
) -> tuple[Floats, Floats, float]:
    """The losses in the window around epsilon, and the probability of each under P.

    If `bounded`, the third value is the largest error of a tilted probability.
    """
    step = parts[0][0].step
    terms = [
        Term(losses.position, losses.p * np.exp(tilt * losses.loss - _log_mgf(losses, tilt)), k) for losses, k in parts
    ]
    tilted, noise = sum_law(terms, size, bounded=bounded)
    centre = round(epsilon / step)
    first = centre - size // 2
    tilted_sum = np.roll(tilted, -(first % size))
    loss: Floats = np.multiply(np.arange(first, first + size), step, dtype=np.float64)
    with np.errstate(under="ignore"):
        p: Floats = tilted_sum * np.exp(np.clip(_log_scale(parts, tilt) - tilt * loss, -745, 700))
    return loss, p, noise


def _first_size(parts: Sequence[Part], tilt: float, epsilon: float) -> int:
    step = parts[0][0].step
    variance = sum(k * _tilted_moments(losses, tilt)[1] for losses, k in parts)
    mean = sum(k * _tilted_moments(losses, tilt)[0] for losses, k in parts)
    half = WIDTH * math.sqrt(variance) + abs(mean - epsilon)
    whole = sum(k * (int(losses.position[-1]) - int(losses.position[0])) for losses, k in parts)
    wanted = min(2 * half / step + 16, 2.0 * whole + 2 * abs(epsilon) / step + 16)
    return int(min(LARGEST, max(SMALLEST, 2 ** math.ceil(math.log2(wanted)))))


def _saddle(parts: Sequence[Part], epsilon: float) -> float:
    """The tilt t >= 0 at which the tilted sum of losses has a mean of about epsilon, where the window is centred."""
    return _tilt_with_mean(parts, epsilon, 0.0, 1e6)


def _tilt_with_mean(parts: Sequence[Part], mean: float, low: float, high: float) -> float:
    """The tilt t in [low, high] at which the tilted sum of losses has the given mean.

    Computed by Newton's method inside a shrinking bracket.
    """
    t = max(low, min(high, 0.0))
    for _ in range(60):
        moments = [_tilted_moments(losses, t) for losses, _ in parts]
        here = sum(k * m for (m, _), (_, k) in zip(moments, parts, strict=True))
        slope = sum(k * v for (_, v), (_, k) in zip(moments, parts, strict=True))
        low, high = (t, high) if here < mean else (low, t)
        step = (mean - here) / slope if slope > 0 else math.inf
        if abs(step) <= 1e-6 * (1 + abs(t)) or high - low <= 1e-9 * (1 + abs(t)):
            return t
        t = t + max(-2 - abs(t), min(2 + abs(t), step))
        if not low < t < high:
            t = (low + high) / 2 if high < 1e5 else low + 1
    return t


def _tilted_moments(losses: Losses, tilt: float) -> tuple[float, float]:
    logs = tilt * losses.loss
    weights = losses.p * np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = float((weights * losses.loss).sum())
    return mean, float((weights * (losses.loss - mean) ** 2).sum())


def _log_mgf(losses: Losses, tilt: float) -> float:
    """The logarithm of sum_l e^(t l) P(l) over the finite losses l, where t is `tilt`."""
    logs = tilt * losses.loss
    top = float(logs.max())
    return top + math.log(float((losses.p * np.exp(logs - top)).sum()))


def _log_scale(parts: Sequence[Part], tilt: float) -> float:
    return sum(k * _log_mgf(losses, tilt) for losses, k in parts)


def _largest(parts: Sequence[Part]) -> float:
    return sum(k * float(losses.loss[-1]) for losses, k in parts)


def _chernoff_above(parts: Sequence[Part], top: float) -> float:
    """An upper bound on the probability that the sum of finite losses is above `top`, by Chernoff's inequality."""
    if _largest(parts) <= top:
        return 0.0
    tilt = _saddle(parts, top)
    return math.exp(min(0.0, _log_scale(parts, tilt) - tilt * top))


def _tilted_beyond(parts: Sequence[Part], tilt: float, bottom: float, top: float) -> float:
    """An upper bound on the tilted probability that the sum is outside the window, by Chernoff's inequality."""
    base = _log_scale(parts, tilt)
    outside = 0.0
    if _largest(parts) > top:
        t = max(_saddle(parts, top), tilt)
        outside += math.exp(min(0.0, _log_scale(parts, t) - base - (t - tilt) * top))
    if sum(k * float(losses.loss[0]) for losses, k in parts) < bottom:
        t = _tilt_with_mean(parts, bottom, -1e6, tilt)
        outside += math.exp(min(0.0, _log_scale(parts, t) - base - (t - tilt) * bottom))
    return outside
