"""The points of a figure: exact values, which are written as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from fractions import Fraction

from countveil.numeric.exact_numbers import decimal_text

Value = Fraction | int | str | None
Point = dict[str, Value]


def as_written(x: Fraction, rounding: str = "nearest") -> Fraction:
    """A parameter rounded to the 15 digits of the CSV; the points of a figure are computed for the rounded value.

    >>> as_written(Fraction(1, 3))
    Fraction(333333333333333, 1000000000000000)
    """
    return Fraction(decimal_text(x, rounding=rounding))


def point_of(columns: tuple[str, ...], series: str, **values: Value) -> Point:
    """A point with a value for every column; columns that are not given are None."""
    return {**dict.fromkeys(columns), "series": series, **values}


@dataclass(frozen=True)
class Figure:
    """The points of a figure, each with a value for every column; `facts` are numbers to quote, as decimal texts.

    The parameters of a point, epsilon and eta, are chosen so that they are written exactly. `rounded` is the safe
    direction of rounding for a column: deltas measured on integer weights round up, values that a linear program
    reaches round down. Points of series "paper" are values of the paper's formula and round to nearest.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    points: tuple[Point, ...]
    facts: dict[str, str] = field(default_factory=dict)
    rounded: dict[str, str] = field(default_factory=lambda: {"delta": "up", "exact": "up"})

    def select(self, **values: Value) -> list[Point]:
        """The points that have these values in these columns."""
        return [point for point in self.points if all(point[key] == value for key, value in values.items())]

    def text(self, point: Point, column: str) -> str:
        """One value as it is written to CSV, with 15 digits."""
        value = point[column]
        if value is None:
            return ""
        if not isinstance(value, Fraction):
            return str(value)
        safe = self.rounded.get(column, "nearest") if point["series"] != "paper" else "nearest"
        return decimal_text(value, rounding=safe)

    def csv(self) -> str:
        """The points as CSV: a header, and a line for every point."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([self.text(point, column) for column in self.columns] for point in self.points)
        return file.getvalue()
