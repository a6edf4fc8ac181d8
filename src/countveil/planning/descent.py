"""Descent on a smooth function of some variables by quasi-Newton steps (BFGS): floats, for searches only."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from countveil.accounting.privacy_loss import Floats
from countveil.numeric.search import NoRootError

STEPS = 60
LEAST_GAIN = 1e-7
STEEPEST = 1e12
"""A slope beyond this size is a numerical error."""


class Slope(Protocol):
    """A function with its gradient, for `descend`; it remembers the best point at which it was evaluated."""

    def value(self, x: Floats) -> float:
        """The value at x; infinite where the function is not defined."""

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        """The value and the gradient at x; raises NoRootError where they are not defined."""


@np.errstate(over="ignore", invalid="ignore")  # a slope that overflows, or is not a number, ends the descent
def descend(slope: Slope, x: Floats, steps: int = STEPS) -> None:
    """Go downhill from x by at most `steps` steps; the function remembers the best point.

    The descent ends when three steps in a row gain less than LEAST_GAIN, or when no step gains anything.
    """
    try:
        value, gradient = slope.value_and_gradient(x)
    except NoRootError:
        return
    inverse = np.eye(len(x))
    small = 0
    for _ in range(steps):
        direction = -inverse @ gradient
        along = float(direction @ gradient)
        if not -STEEPEST < along < 0:
            inverse, direction = np.eye(len(x)), -gradient
            along = float(direction @ gradient)
        if not -STEEPEST < along < 0:
            return
        length = min(1.0, 0.2 / max(1e-12, float(np.abs(direction).max())))
        for _ in range(8):
            trial = x + length * direction
            trial_value = slope.value(trial)
            if trial_value < value + 1e-4 * length * along:
                break
            length /= 3
        else:
            return
        try:
            new_value, new_gradient = slope.value_and_gradient(trial)
        except NoRootError:
            return
        step, change = trial - x, new_gradient - gradient
        curvature = float(step @ change)
        if curvature > 1e-14 * float(step @ step):
            rho = 1 / curvature
            left = np.eye(len(x)) - rho * np.outer(step, change)
            inverse = left @ inverse @ left.T + rho * np.outer(step, step)
        small = small + 1 if value - new_value < LEAST_GAIN else 0
        x, value, gradient = trial, new_value, new_gradient
        if small == 3:
            return
