"""The least weighted variance of two or three grades, by a search that shares no code with the planner.

    python benchmarks/grade_search.py [SETTING ...] [--save]

Every grade has a law exp(-|z/c|^p), truncated where its edges cost a thousandth of delta. All splits (ratios of the
scales c) and all powers p on a grid are tried, each with the common factor of the scales at which the composed delta
meets the budget; then finer grids around the best point, until steps are below 1 %. The composed delta is computed
here: losses split between the points of a grid (probabilities of both laws kept), and one plain Fourier transform. The
planner's result stands beside it. Two grades take some seconds, three some ten.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from countveil.planning import Grade, plan

Floats = npt.NDArray[np.float64]
Point = tuple[float, ...]

EDGES = 1e-3
"""The share of delta that the edges of all laws take."""
POWERS_OF_TWO = (1.0, 1.25, 1.5, 1.75, 2.0, 2.4)
POWERS_OF_THREE = (1.0, 1.35, 1.7, 2.1)
EXPONENTS_OF_TWO = (0.2, 0.3, 0.35, 0.4, 0.5)
EXPONENTS_OF_THREE = (0.2, 0.3, 0.4)
"""First splits: the scale of a grade is in proportion to weight^-e."""
LEAST_POWER = 0.7
FINEST = 0.01
"""Grids are refined until powers and logarithms of scales move by less."""


@dataclass(frozen=True)
class Setting:
    """A budget, and the number of answers and the weight of every grade."""

    epsilon: str
    delta: str
    grades: tuple[tuple[int, int], ...]


SETTINGS = {
    "1+20": Setting("3", "1e-6", ((1, 16), (20, 1))),
    "4+8": Setting("1", "1e-6", ((4, 16), (8, 1))),
    "10+100": Setting("5", "1e-9", ((10, 16), (100, 1))),
    "2+10+40": Setting("3", "1e-6", ((2, 16), (10, 4), (40, 1))),
}


@dataclass(frozen=True)
class Best:
    """The weighted variance of the best point, and the scale and power of every grade."""

    weighted: float
    shapes: tuple[tuple[float, float], ...]


class Search:
    """Weighted variance as a function of (ln(c_i/c_1) for i > 1, then all p), at the scale that meets the budget."""

    def __init__(self, setting: Setting) -> None:
        self.epsilon, self.delta, self.grades = float(setting.epsilon), float(setting.delta), setting.grades
        self.answers = sum(k for k, _ in setting.grades)
        self.log_scale = math.log(math.sqrt(8 * self.answers) / self.epsilon)
        self.best = Best(math.inf, ())
        self.point: Point = ()

    def run(self) -> Best:
        """The least weighted variance on grids that become finer."""
        many = len(self.grades)
        exponents, powers = (EXPONENTS_OF_TWO, POWERS_OF_TWO) if many == 2 else (EXPONENTS_OF_THREE, POWERS_OF_THREE)
        first = self.grades[0][1]
        ratios = [[e * math.log(first / weight) for e in exponents] for _, weight in self.grades[1:]]
        for point in itertools.product(*ratios, *[powers] * many):
            self.visit(point)
        length = 0.2
        while length >= FINEST:
            middle = self.point
            for steps in itertools.product((-length, 0.0, length), repeat=len(middle)):
                moved = tuple(x + step for x, step in zip(middle, steps, strict=True))
                if moved != middle and min(moved[many - 1 :]) >= LEAST_POWER:
                    self.visit(moved)
            if self.point == middle:
                length /= 2
        return self.best

    def visit(self, point: Point) -> None:
        """Tune the scales of a point to the budget and keep it if it is the best."""
        many = len(self.grades)
        logs, powers = (0.0, *point[: many - 1]), point[many - 1 :]

        def shapes(s: float) -> list[tuple[float, float]]:
            return [(math.exp(s + x), p) for x, p in zip(logs, powers, strict=True)]

        def lack(s: float) -> float:
            return math.log(max(self.composed_delta(shapes(s)), 1e-300) / self.delta)

        low = high = self.log_scale
        while lack(high) > 0:
            low, high = high, high + 0.05
        while low == high or lack(low) < 0:
            low -= 0.05
        self.log_scale = brentq(lack, low, high, xtol=1e-6)
        tuned = shapes(self.log_scale)
        weighted = sum(
            k * weight * variance(self.law(shape)) for (k, weight), shape in zip(self.grades, tuned, strict=True)
        )
        if weighted < self.best.weighted:
            self.best, self.point = Best(weighted, tuple(tuned)), point

    def law(self, shape: tuple[float, float]) -> Floats:
        """Probabilities of -D..D; an edge has at most its share of delta."""
        c, power = shape
        edge = EDGES * self.delta / self.answers * c  # probability of one outcome, times the scale
        D = math.ceil(c * math.log(1 / edge) ** (1 / power)) + 1
        law: Floats = np.exp(-((np.abs(np.arange(-D, D + 1)) / c) ** power))
        law /= law.sum()
        return law

    def composed_delta(self, shapes: Sequence[tuple[float, float]]) -> float:
        """The delta of all answers for one more person, whose count moves every answer by 1."""
        laws = [self.law(shape) for shape in shapes]
        losses = [np.log(law[1:]) - np.log(law[:-1]) for law in laws]
        spreads = [math.sqrt(float(law[1:] @ loss**2)) for law, loss in zip(laws, losses, strict=True)]
        total = math.sqrt(sum(k * s**2 for (k, _), s in zip(self.grades, spreads, strict=True)))
        half = self.epsilon + total**2 / 2 + 11 * total
        size = 2 ** math.ceil(math.log2(2 * half / (min(spreads) / 30)))
        step = 2 * half / size
        product = np.ones(size // 2 + 1, dtype=np.complex128)
        none_infinite = 0.0
        for (k, _), law, loss in zip(self.grades, laws, losses, strict=True):
            below = np.floor(loss / step)
            share = np.expm1(loss - below * step) / math.expm1(step)  # of the probability under Q that goes up
            up = law[:-1] * share * np.exp((below + 1) * step)
            spread = np.zeros(size)
            np.add.at(spread, below.astype(np.int64) % size, law[1:] - up)
            np.add.at(spread, (below.astype(np.int64) + 1) % size, up)
            product *= np.fft.rfft(spread) ** k
            none_infinite += k * math.log1p(-float(law[0]))
        p = np.fft.irfft(product, size)
        sums = (np.arange(size) - size // 2) * step
        p = np.roll(p, size // 2)
        counted = sums > self.epsilon
        return float(p[counted] @ -np.expm1(self.epsilon - sums[counted])) - math.expm1(none_infinite)


def variance(law: Floats) -> float:
    D = len(law) // 2
    return float(law @ np.arange(-D, D + 1) ** 2.0)


def planned(setting: Setting) -> float:
    """The weighted variance of the planner's grades."""
    grades = {f"g{i}": Grade(k, weight=weight) for i, (k, weight) in enumerate(setting.grades)}
    made = plan(epsilon=setting.epsilon, delta=setting.delta, policy="signed", grades=grades)
    return sum(
        k * weight * float(grade.mechanism.certificate.variance)
        for (k, weight), grade in zip(setting.grades, made.grades, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {', '.join(SETTINGS)}; default: all")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/grade_search.txt")
    options = parser.parse_args()
    if unknown := set(options.settings) - set(SETTINGS):
        parser.error(f"SETTING: got {', '.join(sorted(unknown))}, allowed are {', '.join(SETTINGS)}")
    page = [f"The planner against a separate search, {date.today()}"]
    for name in options.settings or SETTINGS:
        setting = SETTINGS[name]
        started = time.process_time()
        best = Search(setting).run()
        taken = time.process_time() - started
        ours = planned(setting)
        grades = ", ".join(f"{k} of weight {weight}" for k, weight in setting.grades)
        shapes = ", ".join(f"{c:.4g}, {p:.4g}" for c, p in best.shapes)
        page += [
            f"({setting.epsilon}, {setting.delta}), {grades}: search {best.weighted:.2f}, planner {ours:.2f}",
            f"    planner/search - 1 = {ours / best.weighted - 1:+.4%}; {taken:.0f} s of processor time",
            f"    c, p: {shapes}",
        ]
        print("\n".join(page[-3:]), flush=True)
    if options.save:
        (Path(__file__).parent / "results" / "grade_search.txt").write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
