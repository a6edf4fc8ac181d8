"""Never-negative counts at no privacy cost: a signed law followed by a fixed random map.

The curator forms Y' = n + Z, the true count plus signed noise whose law does not depend on n, and publishes Y = f(Y').
The map f leaves every y' above a threshold T alone and sends every other y' to a non-negative integer, at random.
Post-processing costs no privacy, so Y inherits the exact delta of Z at every order and for any number of answers.

Sending negative y' to 0 pushes counts up, so f pulls some small positive y' down and may push others up. f is chosen so
that the bias is zero, or almost zero, for all counts from n0 on. For a bounded law a small bias remains, the residue.
Moves remove the residue exactly: the law of n gives 2^K equally likely integers (K is `bits`), and some of these
integers are given another value, so that the mean of Y is n. Moving a share theta of a law changes delta at order E by
at most theta * (1 + E). This is the only cost of the remap, and `slack` is the largest theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from countveil.display.cards import Shown
from countveil.laws.law import Law
from countveil.numeric.exact_numbers import convolve

Row = tuple[tuple[int, int], ...]
"""Where the map sends one value y' = n + Z: pairs (y, weight) with y >= 0, whose weights sum to 2**map_bits."""


class CountProfile(NamedTuple):
    """The exact accuracy at one true count n: bias, P(Y = n | n) (`exact`) and mean squared error (`mse`)."""

    n: int
    bias: Fraction
    exact: Fraction
    mse: Fraction


class _Move(NamedTuple):
    source: int
    target: int
    units: int


@dataclass(frozen=True, repr=False)
class Remap(Shown):
    """Laws of Y = f(n + Z): the signed noise Z has the law `source`, and f is the map. `D` bounds |Y - n| for every n.

    For negative values of n + Z the map uses the row `negative`, for the value j in 0..T the row `rows[j]`; larger
    values stay. From the count n0 on, moves make the law exactly unbiased. T is at most n0, so that the map does not
    change the outcomes n + 1 and n + 2, from which moves take weight. A map without moves has n0 equal to the
    stationary count.
    """

    source: Law
    negative: Row
    rows: tuple[Row, ...]
    map_bits: int
    n0: int
    D: int

    def _line(self) -> str:
        return f"to counts from 0 on, D={self.D} n0={self.n0}: {self.source!r}"

    lo = 0
    hi = None

    def __post_init__(self) -> None:
        for row in (self.negative, *self.rows):
            if sum(w for _, w in row) != 1 << self.map_bits or any(not 0 <= y <= self.T or w < 0 for y, w in row):
                raise ValueError(
                    "every row of the map needs outcomes in 0..T, and weights >= 0 that sum to 2**map_bits"
                )
        if self.n0 < max(1, self.T):
            raise ValueError("n0 must be at least 1 and at least T, the last outcome that the map changes")
        if self.source.left < 0 or self.source.right < 2:
            raise ValueError("the signed law needs a left end of at most 0 and a right end of at least 2")
        if self.reach > self.D:
            raise ValueError(f"noise and map together change a count by up to {self.reach}, more than D = {self.D}")

    @property
    def T(self) -> int:
        """The largest value of n + Z that the map may change."""
        return len(self.rows) - 1

    @property
    def bits(self) -> int:
        """The number K such that the weights of the law of n sum to 2**K, for every n below the stationary count."""
        return self.source.bits + self.map_bits

    @property
    def stationary_from(self) -> int:
        return self.T + self.source.left + 1

    @property
    def stationary(self) -> Law:
        return self.source

    def row(self, signed: int) -> Row:
        """The row of the map for the value `signed` of n + Z: where the map sends it, with weights."""
        if signed < 0:
            return self.negative
        return self.rows[signed] if signed <= self.T else ((signed, 1 << self.map_bits),)

    def law(self, n: int) -> Law:
        """The law of Y - n. Its weights sum to 2**bits; from the stationary count on, to 2**source.bits."""
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
    def reach(self) -> int:
        """The largest |Y - n| that noise and map, without moves, can cause at any count n."""
        least, greatest = self.source.least, self.source.greatest
        worst = max(-least, greatest)
        for signed in range(min(least, 0), self.T + 1):
            low, high = max(0, signed - greatest), signed - least
            for y, share in self.row(signed):
                if share and high >= low:
                    worst = max(worst, high - y, y - low)
        return worst

    @cached_property
    def targets(self) -> tuple[int, ...] | None:
        """f(0), ..., f(T) if f is not random, never falls, sends negative values to 0 and has no moves; else None.

        For such a map, Y <= y exactly if n + Z <= h, where h is the last value with f(h) <= y. So a quantile of Y is f
        of the same quantile of n + Z.
        """
        one = 1 << self.map_bits
        if self.n0 < self.stationary_from or self.negative != ((0, one),):
            return None
        if any(len(row) != 1 for row in self.rows):
            return None
        targets = tuple(row[0][0] for row in self.rows)
        return targets if all(a <= b for a, b in pairwise(targets)) else None

    def send(self, signed: int) -> int:
        """f(signed): where a map that is not random sends the value `signed` of n + Z."""
        return self.row(signed)[0][0]

    @cached_property
    def residues(self) -> list[int]:
        """The bias E[Y - n] that is left without moves, in units of 2**-bits, for counts below the stationary one."""
        return self._excess(1)

    @cached_property
    def moves(self) -> dict[int, list[_Move]]:
        """For every count n from n0 to below the stationary count, the moves that make the mean of Y equal to n.

        A move takes units of weight from one noise z and gives them to another. Neither is z = 0, so eta stays the
        same.
        """
        moves = {}
        for n in range(self.n0, self.stationary_from):
            moment = self.residues[n]
            far = -min(n, self.D) if moment >= 0 else self.D
            units, rest = divmod(abs(moment), abs(far - 1))
            near = _Move(2, 1, rest) if moment >= 0 else _Move(1, 2, rest)
            moves[n] = [move for move in (_Move(1, far, units), near) if move.units]
            if units + rest > min(self.source.weight(1), self.source.weight(2)) << self.map_bits:
                raise ValueError(
                    "this map cannot be corrected: moves from z = 1 and z = 2 cannot remove all of its bias"
                )
        return moves

    @cached_property
    def slack(self) -> Fraction:
        """The largest share of its weight that a law gives to other values by moves, over all counts n."""
        most = max((sum(move.units for move in moves) for moves in self.moves.values()), default=0)
        return Fraction(most, 1 << self.bits)

    def _excess(self, power: int) -> list[int]:
        """E[Y^power] - E[(n + Z)^power] without moves, in units of 2**-bits, for n below the stationary count.

        This is how much the map changes the first or second moment: `power` is 1 or 2.
        """
        one, left, T = 1 << self.map_bits, self.source.left, self.T
        reversed_law = [self.source.weight(-u) for u in range(-T, left + 1)]
        change = [sum(w * y**power for y, w in self.rows[j]) - j**power * one for j in range(T + 1)]
        unit = one if self.targets is not None else 1  # `one` divides every change of a map that is not random
        raised = convolve(reversed_law, [max(0, c) // unit for c in change])
        lowered = convolve(reversed_law, [max(0, -c) // unit for c in change])
        excess = [(up - down) * unit for up, down in zip(raised[T:], lowered[T:], strict=True)]
        sent = sum(w * y**power for y, w in self.negative)
        mass = moment = square = 0  # sums over Z = -i for i > n, where y' = n - i is negative
        for n in range(left - 1, -1, -1):
            weight = self.source.weight(-n - 1)
            mass += weight
            moment += (n + 1) * weight
            square += (n + 1) ** 2 * weight
            signed = n * mass - moment if power == 1 else n * n * mass - 2 * n * moment + square
            excess[n] += sent * mass - signed * one
        return excess

    @cached_property
    def profiles(self) -> list[CountProfile]:
        """The exact bias, P(Y = n | n) and mean squared error of every count below the stationary one."""
        total = 1 << self.bits
        base = sum(z * z * w for z, w in self.source.items()) << self.map_bits
        exact = [Fraction(w, total) for w in self._exact_weights()]
        exact += [self.source.eta] * (self.stationary_from - len(exact))
        unbiased = Fraction(0)
        profiles = []
        for n, (first, second) in enumerate(zip(self.residues, self._excess(2), strict=True)):
            for move in self.moves.get(n, ()):
                first += move.units * (move.target - move.source)
                second += move.units * (move.target - move.source) * (move.target + move.source + 2 * n)
            bias = Fraction(first, total) if first else unbiased
            profiles.append(CountProfile(n, bias, exact[n], Fraction(base + second - 2 * n * first, total)))
        return profiles

    def _exact_weights(self) -> list[int]:
        """The weight of Y = n in the law of n, for n = 0..T; for larger n, P(Y = n | n) is eta."""
        weights = [0] * (self.T + 1)
        for signed in range(-self.source.left, self.T + 1):
            for y, share in self.row(signed):
                weights[y] += self.source.weight(signed - y) * share
        return weights
