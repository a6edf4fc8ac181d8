"""Quantiles and means, computed from the released counts of a column with an order; free, each with an interval.

Guarantee: each interval contains the true value with a probability of at least 95 % over the noise, whatever the counts
are. If y_i is a released count and e_i its noise, the true count is y_i - e_i. So a weighted sum of true counts differs
from that of released counts by sum w_i e_i, which `Intervals.of_weighted_sum` bounds. Nothing is drawn or charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from countveil.curator.grid import Grid
from countveil.errors import ParameterError, RequestError, ServiceError
from countveil.mechanism.intervals import Intervals, Ints
from countveil.query.schema import Column

Ends = tuple[Fraction | None, Fraction | None]
"""The least and the greatest value of a bin; None for an open end."""
STEPS = 20
"""How many times a search interval is halved."""


@dataclass(frozen=True)
class Quantile:
    """The label of the bin that contains a quantile, and the labels of the first and last bin of its 95 % interval."""

    label: Any
    low: Any
    high: Any


@dataclass(frozen=True)
class Mean:
    """A mean, computed as if every value lay in the middle of its bin.

    low..high is its 95 % interval, which holds wherever in their bins the values lie.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """All released cells with one label of a column."""

    label: Any
    ends: Ends
    cells: int
    released: int


class Estimates:
    """The estimates that a released table offers; a base class of `Table`."""

    released: Ints
    intervals: Intervals | None
    declared: tuple[Column, ...]

    @property
    def grid(self) -> Grid:
        raise NotImplementedError

    def quantile(self, q: float, column: str | None = None) -> Quantile:
        """The bin that contains a quantile, for example the median. This is free.

        Args:
            q: Which quantile, from 0 to 1; 0.5 is the median.
            column: The ordered group column; not needed if there is only one.

        Returns:
            The label of the bin with the quantile, and the labels of the first and last bin of its 95 % interval.

        Raises:
            ParameterError: A column without an order, or a q outside of 0..1.
            RequestError: No count was released above zero.

        >>> curator.count(by="age").quantile(0.5).label in ("20-29", "30-39", "40-49", "50-59", "60-69")
        True
        """
        if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
            raise ParameterError("q", q, "a number from 0 to 1; 0.5 is the median")
        bins, intervals = self._bins(column)
        total = _sum_positive(bins)
        reached = low = None
        high = below = 0
        for i, each in enumerate(bins):
            below += each.released
            cells_below = sum(b.cells for b in bins[: i + 1])
            weights = [(1 - q, cells_below), (-q, sum(b.cells for b in bins) - cells_below)]
            excess, margin = below - q * total, intervals.of_weighted_sum(weights)
            if reached is None and excess >= 0:
                reached = i
            if low is None and excess >= -margin:
                low = i
            if excess <= margin:  # bin i + 1 is not excluded
                high = min(i + 1, len(bins) - 1)
        place = len(bins) - 1 if reached is None else reached
        first = place if low is None else min(low, place)
        return Quantile(bins[place].label, bins[first].label, bins[max(high, place)].label)

    def mean(self, column: str | None = None) -> Mean:
        """The mean of a numeric column, estimated from its bins. This is free.

        Args:
            column: The group column of numbers; not needed if there is only one.

        Returns:
            The mean, computed as if every value lay in the middle of its bin. Its interval holds wherever in their bins
            the values lie.

        Raises:
            ParameterError: A column that has no numbers, or an open bin.
            RequestError: No count was released above zero.

        >>> 35 < curator.count(by="age").mean().value < 45
        True
        """
        bins, intervals = self._bins(column, numeric=True)
        ends: list[tuple[float, float]] = []
        for each in bins:
            if each.ends[0] is None or each.ends[1] is None:
                end, advice = "upper", "declare max"
                if each.ends[0] is None:
                    end, advice = "lower", "write its least value as the first edge, and leave out below"
                name = column or next(c.name for c in self.declared if c.is_numeric and c.bin_ends())
                allowed = f"a column of closed bins; {each.label} has no {end} end: {advice}"
                raise ParameterError("column", name, allowed)
            ends.append((float(each.ends[0]), float(each.ends[1])))
        total, least, most = _sum_positive(bins), min(a for a, _ in ends), max(b for _, b in ends)
        middle = sum(each.released * (a + b) / 2 for each, (a, b) in zip(bins, ends, strict=True)) / total
        value = min(max(middle, least), most)
        if total <= intervals.of_weighted_sum([(1.0, sum(each.cells for each in bins))]):
            return Mean(value, least, most)  # perhaps nobody is counted

        def is_excluded(points: Sequence[float], sign: int) -> Callable[[float], bool]:
            def test(m: float) -> bool:
                excess = sign * sum(each.released * (x - m) for each, x in zip(bins, points, strict=True))
                weights = [(x - m, each.cells) for each, x in zip(bins, points, strict=True)]
                return excess > intervals.of_weighted_sum(weights)

            return test

        low = _halve(least, value, is_excluded([a for a, _ in ends], 1))
        high = _halve(most, value, is_excluded([b for _, b in ends], -1))
        return Mean(value, min(low, value), max(high, value))

    def _bins(self, column: str | None, numeric: bool = False) -> tuple[list[Bin], Intervals]:
        """The bins of a column, sorted by value, and the intervals of the mechanism that answered."""
        if self.intervals is None:
            raise ServiceError("a service does not send its mechanism; ask the curator for quantiles and means")
        columns = {each.name: each for each in self.declared}
        usable = [name for name, each in columns.items() if each.bin_ends() and (each.is_numeric or not numeric)]
        if column is None and len(usable) == 1:
            column = usable[0]
        if column is None or column not in usable:
            what = "a group column of numbers" if numeric else "a group column with an order"
            given = "no name" if column is None else column
            raise ParameterError("column", given, f"{what}; this table has: {', '.join(usable) or 'none'}")
        known = dict(zip(columns[column].key_labels(), columns[column].bin_ends() or [], strict=True))
        place = list(columns).index(column)
        bins = [
            Bin(label, known[label], len(cells), int(self.released[cells].astype(object).sum()))
            for (label,), cells in self.grid.split([place])
        ]
        return sorted(bins, key=lambda each: (each.ends[0] is not None, each.ends[0] or 0)), self.intervals


def _sum_positive(bins: Sequence[Bin]) -> int:
    total = sum(each.released for each in bins)
    if total <= 0:
        raise RequestError("no count was released above zero, so there is no quantile and no mean")
    return total


def _halve(excluded: float, possible: float, is_excluded: Callable[[float], bool]) -> float:
    """Find, by halving, the border between excluded and possible values; the result errs to the excluded side.

    There is only one border, because the excess is linear in the value and the margin is convex.
    """
    if not is_excluded(excluded):
        return excluded
    for _ in range(STEPS):
        middle = (excluded + possible) / 2
        excluded, possible = (middle, possible) if is_excluded(middle) else (excluded, middle)
    return excluded
