"""Never-negative counts at no privacy cost: a signed law followed by a fixed random map.

The curator forms Y' = n + Z with a law of Z that does not depend on n, and publishes Y = f(Y'), where f
leaves every y' > T alone and sends every other y' to the non-negative integers at random. Post-processing
costs no privacy, so Y inherits the exact delta of Z at every order and for any number of answers.

Sending y' < 0 to 0 pushes counts up, so f pulls some small positive y' down; the pulls are chosen so that
the bias is (almost) zero from n0 on. A bounded law leaves a residue in the order of its edge
mass. Moves remove it exactly: in the column of n some of the 2^K equally likely outcomes are given
another value, so that the mean is n. Moving a share theta of a column changes delta at order E by at most
theta * (1 + E): that is the whole cost, and `slack` is the largest theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from countveil.exact import convolve
from countveil.law import Law

Row = tuple[tuple[int, int], ...]
"""Pairs (y, weight), y >= 0, weights summing to 2**map_bits: where one y' is sent."""


class CountProfile(NamedTuple):
    """What a reader of one count should know, exactly."""

    n: int
    bias: Fraction
    exact: Fraction
    mse: Fraction


class _Move(NamedTuple):
    source: int
    target: int
    units: int


@dataclass(frozen=True)
class Remap:
    """Y = f(n + Z), with exact moves from n0 on; `D` bounds |Y - n| for every n.

    `negative` is the row of every y' < 0 and `rows[j]` that of y' = j, j = 0..T; T <= n0, so that the outcomes n + 1
    and n + 2, which moves draw on, are beyond the map.
    """

    source: Law
    negative: Row
    rows: tuple[Row, ...]
    map_bits: int
    n0: int
    D: int

    lo = 0
    hi = None

    def __post_init__(self) -> None:
        for row in (self.negative, *self.rows):
            if sum(w for _, w in row) != 1 << self.map_bits or any(y < 0 or w < 0 for y, w in row):
                raise ValueError("a row of the map needs weights that sum to 2**map_bits, on y >= 0")
        if not 1 <= max(1, self.T) <= self.n0:
            raise ValueError("zero bias begins at the last outcome that the map changes, or later")

    @property
    def T(self) -> int:
        """The largest y' that the map may change."""
        return len(self.rows) - 1

    @property
    def bits(self) -> int:
        """K: a column's weights sum to 2**K."""
        return self.source.bits + self.map_bits

    @property
    def stationary_from(self) -> int:
        return self.T + self.source.left + 1

    @property
    def stationary(self) -> Law:
        return self.source

    def row(self, signed: int) -> Row:
        """Where y' = signed is sent."""
        if signed < 0:
            return self.negative
        return self.rows[signed] if signed <= self.T else ((signed, 1 << self.map_bits),)

    def column(self, n: int) -> Law:
        """The law of Y - n over 2**K (over 2**source.bits where the map has no effect)."""
        if n >= self.stationary_from:
            return self.source
        left, right = min(n, self.D), self.D
        weights = [0] * (left + right + 1)
        for z, w in self.source.items():
            if w:
                for y, share in self.row(n + z):
                    weights[y - n + left] += w * share
        for move in self.moves.get(n, ()):
            weights[move.source + left] -= move.units
            weights[move.target + left] += move.units
        return Law(tuple(weights), left, self.bits)

    @cached_property
    def residues(self) -> list[int]:
        """The first moment of Y - n in units of 2**-K, n = 0..M-1, before any move."""
        return self._excess(1)

    @cached_property
    def moves(self) -> dict[int, list[_Move]]:
        """For n0 <= n < M: the units taken from one z and given to another, so that the mean becomes n.

        z = 0 is never touched, so eta is not either.
        """
        found = {}
        for n in range(self.n0, self.stationary_from):
            moment = self.residues[n]
            far = -min(n, self.D) if moment >= 0 else self.D
            units, rest = divmod(abs(moment), abs(far - 1))
            near = _Move(2, 1, rest) if moment >= 0 else _Move(1, 2, rest)
            found[n] = [move for move in (_Move(1, far, units), near) if move.units]
        return found

    @cached_property
    def slack(self) -> Fraction:
        """The largest share of a column that moves change."""
        most = max((sum(move.units for move in moves) for moves in self.moves.values()), default=0)
        return Fraction(most, 1 << self.bits)

    def _excess(self, power: int) -> list[int]:
        """sum_y' q(y' - n) (E f(y')^power - y'^power) in units of 2**-K, for n = 0..M-1."""
        one, left, T = 1 << self.map_bits, self.source.left, self.T
        reversed_law = [self.source.weight(-u) for u in range(-T, left + 1)]
        change = [
            sum(w * y**power for y, w in self.row(signed)) - signed**power * one for signed in range(-left, T + 1)
        ]
        raised = convolve(reversed_law, [max(0, c) for c in change])
        lowered = convolve(reversed_law, [max(0, -c) for c in change])
        first = T + left
        return [raised[k] - lowered[k] for k in range(first, first + self.stationary_from)]

    @cached_property
    def profiles(self) -> list[CountProfile]:
        """Bias, P(Y = n | n) and mean squared error of every count below M, exactly."""
        total = 1 << self.bits
        squares = self._excess(2)
        base = self.source.mse
        exact = [0] * self.stationary_from
        below_zero = -self.source.left
        for signed in range(below_zero, self.T + 1):
            for y, share in self.row(signed):
                exact[y] += self.source.weight(signed - y) * share
        for n in range(self.T + 1, self.stationary_from):
            exact[n] += self.source.weight(0) << self.map_bits
        found = []
        for n, (first, second) in enumerate(zip(self.residues, squares, strict=True)):
            for move in self.moves.get(n, ()):
                first += move.units * (move.target - move.source)
                second += move.units * (move.target - move.source) * (move.target + move.source + 2 * n)
            mse = base + Fraction(second - 2 * n * first, total)
            found.append(CountProfile(n, Fraction(first, total), Fraction(exact[n], total), mse))
        return found
