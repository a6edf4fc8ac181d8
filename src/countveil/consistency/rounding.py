"""Never negative, whole, additive tables within the certain bounds, as near to the estimates as these bounds allow.

A node is a cell of a table; a family of a node consists of the cells of one finer table that it is divided into. From
the total down: given the whole number X of a parent, each of its families gets the real numbers within their bounds
that add up to X and are nearest to the estimates, weighted by 1/variance of the upward pass of least squares. They are
x = estimate + multiplier * variance, cut at the bounds; a safeguarded Newton search finds the multiplier of every
family at once. Then the numbers are rounded at random. They are laid end to end in random order, and one uniform number
u is drawn for the family: the number that covers [a, b) becomes floor(b + u) - floor(a + u). So each becomes its floor
or its ceiling, and the mean over u is the number itself.

**Guarantee.** The result is additive, whole and within the certain bounds whatever the estimates are. Once the real
numbers are found, all steps use integers, in units of 2^-32, and rounding errors of floats are corrected within the
bounds. Rounding to the largest remainders would not do: the estimates of siblings nearly always differ by whole
numbers, so their remainders are equal, and the order of declaration would decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from countveil.consistency.bounds import CertainBounds, fill
from countveil.consistency.least_squares import LeastSquares
from countveil.consistency.tree import Floats, Ints, Level
from countveil.consistency.uniforms import Uniforms

UNIT_BITS = 32
UNIT = 1 << UNIT_BITS
STEPS = 200
CLOSE = 1e-9


def round_tables(
    fit: LeastSquares,
    estimates: Sequence[Floats],
    reference: Sequence[Ints],
    bounds: CertainBounds,
    uniforms: Uniforms,
) -> Iterator[Ints]:
    """Yield the published counts of one table after the other, coarse to fine.

    `estimates` are differences from the whole tables `reference`.
    """
    levels = fit.tree.levels
    published: list[Ints] = []
    for i, level in enumerate(levels):
        low, high = bounds.low[i] - reference[i], bounds.high[i] - reference[i]
        if i == 0:
            counts = _round_total(float(estimates[0][0]), int(low[0]), int(high[0]), uniforms)
        else:
            above = published[level.above][level.filled] - reference[level.above][level.filled]
            nearest = project(level, estimates[i], fit.rising[i], low, high, above)
            counts = round_families(level, nearest, low, high, above, uniforms)
        published.append(counts + reference[i])
        yield published[-1]


def _round_total(estimate: float, low: int, high: int, uniforms: Uniforms) -> Ints:
    """The estimate of the total, moved into its bounds and rounded at random."""
    whole = np.floor(min(max(estimate, low), high))
    units = round((min(max(estimate, low), high) - whole) * UNIT)
    up = int(uniforms.draw(1, UNIT_BITS)[0]) + units >= UNIT
    return np.array([min(int(whole) + up, high)])


def project(level: Level, estimates: Floats, variances: Floats, low: Ints, high: Ints, sums: Ints) -> Floats:
    """Real numbers within the bounds, as near to the estimates as possible, that add up to `sums` in every family."""
    result = np.empty(len(level))
    lows, highs = low.astype(np.float64), high.astype(np.float64)
    places = np.arange(len(level))
    family = _Families(level.starts, level.widths, estimates, variances, lows, highs, sums.astype(np.float64))
    for _ in range(STEPS):
        x, done = family.step()
        if done.any():
            inside = np.repeat(done, family.widths)
            result[places[inside]] = x[inside]
            places = places[~inside]
            family = family.keep(~done)
            if not len(places):
                return result
    result[places] = family.between()
    return result


class _Families:
    """The families whose multiplier is still searched for, each with a bracket around the multiplier.

    x = estimate + multiplier * variance, cut at the bounds, has to add up to the family's sum.
    """

    def __init__(
        self, starts: Ints, widths: Ints, estimates: Floats, variances: Floats, low: Floats, high: Floats, sums: Floats
    ) -> None:
        self.starts, self.widths = starts, widths
        self.estimates, self.variances, self.low, self.high, self.sums = estimates, variances, low, high, sums
        self.least = np.minimum.reduceat((low - estimates) / variances, starts)
        self.most = np.maximum.reduceat((high - estimates) / variances, starts)
        gap = sums - np.add.reduceat(estimates, starts)
        self.multiplier = np.clip(gap / np.add.reduceat(variances, starts), self.least, self.most)

    def step(self) -> tuple[Floats, np.typing.NDArray[np.bool_]]:
        """Return the numbers of every family and whether their sum is right, and move the multipliers by one step."""
        x = self.at(self.multiplier)
        excess = np.add.reduceat(x, self.starts) - self.sums
        inside = np.where((x > self.low) & (x < self.high), self.variances, 0.0)
        slope = np.add.reduceat(inside, self.starts)
        done: np.typing.NDArray[np.bool_] = np.abs(excess) <= CLOSE * (1 + self.widths)
        self.most = np.where(excess > 0, self.multiplier, self.most)
        self.least = np.where(excess > 0, self.least, self.multiplier)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = self.multiplier - excess / slope
        good = (slope > 0) & (newton > self.least) & (newton < self.most)
        self.multiplier = np.where(good, newton, (self.least + self.most) / 2)
        return x, done

    def at(self, multiplier: Floats) -> Floats:
        x: Floats = np.repeat(multiplier, self.widths)
        x *= self.variances
        x += self.estimates
        return np.clip(x, self.low, self.high, out=x)

    def keep(self, kept: np.typing.NDArray[np.bool_]) -> _Families:
        """The same search for some of the families."""
        nodes = np.repeat(kept, self.widths)
        other = object.__new__(_Families)
        other.widths = self.widths[kept]
        other.starts = np.cumsum(other.widths) - other.widths
        for name in ("estimates", "variances", "low", "high"):
            setattr(other, name, getattr(self, name)[nodes])
        for name in ("sums", "least", "most", "multiplier"):
            setattr(other, name, getattr(self, name)[kept])
        return other

    def between(self) -> Floats:
        """A mixture of the numbers at both ends of the brackets that adds up to the right sums."""
        under, over = self.at(self.least), self.at(self.most)
        short = self.sums - np.add.reduceat(under, self.starts)
        span = np.add.reduceat(over, self.starts) - np.add.reduceat(under, self.starts)
        part = np.clip(short / np.where(span > 0, span, 1.0), 0.0, 1.0)
        mixture: Floats = under + np.repeat(part, self.widths) * (over - under)
        return mixture


def round_families(level: Level, x: Floats, low: Ints, high: Ints, sums: Ints, uniforms: Uniforms) -> Ints:
    """Round every number of x to its floor or its ceiling, at random, so that every family adds up to `sums`."""
    floors = np.floor(x)
    units = np.rint((x - floors) * UNIT).astype(np.int64)
    whole = floors.astype(np.int64)
    whole += units >> UNIT_BITS
    units &= UNIT - 1
    np.clip(whole, low, high, out=whole)
    units[whole == high] = 0
    order = uniforms.shuffle_families(level)
    whole, units, low, high = whole[order], units[order], low[order], high[order]
    units = fit_units(level, whole, units, low, high, sums)
    ends = level.accumulate(units)  # in random order, each family begins at u
    ends += level.spread(uniforms.draw(len(level.starts), UNIT_BITS).astype(np.int64))
    whole -= ends >> UNIT_BITS
    ends += units
    whole += ends >> UNIT_BITS
    counts = np.empty_like(whole)
    counts[order] = whole
    return counts


def fit_units(level: Level, whole: Ints, units: Ints, low: Ints, high: Ints, sums: Ints) -> Ints:
    """The fractions of all numbers in units of 2^-32, corrected so that the sum of every family is exact.

    The sum of the numbers is right except for the rounding of floats; the difference goes to the first nodes that have
    room. `whole`, the integer parts, is changed only where floats failed.
    """
    missing = sums - level.sum_families(whole)
    room = level.sum_families((whole < high).astype(np.int64))
    wrong = (missing < 0) | (missing > room)
    if bool(wrong.any()):
        whole += fill(level, np.where(wrong, np.maximum(missing, 0), 0), high - whole)
        whole -= fill(level, np.where(wrong, np.maximum(-missing, 0), 0), whole - low)
        units = np.where(level.spread(wrong), 0, units)
        missing = sums - level.sum_families(whole)
    change = (missing << UNIT_BITS) - level.sum_families(units)
    up = fill(level, np.maximum(change, 0), np.where(whole < high, UNIT - units, 0))
    down = fill(level, np.maximum(-change, 0), units)
    exact: Ints = units + up - down
    return exact
