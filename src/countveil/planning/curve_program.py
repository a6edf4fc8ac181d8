"""Never-negative laws whose privacy curves are below given heights at a grid of orders, so that they compose.

The privacy curve of two laws is the function delta(E) of the order E = e^epsilon. The law of all counts n >= D is
given: it is symmetric, with noise up to D. A linear program finds the laws of the counts n < D, so that

    P1   y >= 0 and |y - n| <= D                      P2   P(Y = n | n) = eta for n >= 1, at least eta for n = 0
    P3   zero bias for n >= n0                        sum_y max(0, p(y|a) - E p(y|b)) <= height(E)

for all neighbours a, b, in both directions, at every order E >= 1 of the grid. Orders below 1 follow from the other
direction. A curve is convex in E, so between the orders it is below the straight lines that join the heights: the cost
of k answers is bounded before the laws are known, and certified afterwards.

**Few hinges.** A hinge is an extra variable for a term max(0, p - E q). The program requires that p(y|n) falls with the
distance from n, and that the ratio of an outcome's probabilities at neighbouring counts stays near the ratio in the
given law, at most MARGIN orders of the grid away. So most terms of the sum have a known sign, and need no hinge.
Objectives, in this order: least bias of small counts, least mean squared errors.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from countveil.design.column_program import LEEWAY, NEGLIGIBLE, ONE, CellProgram, Cells, Term, moment, propose
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import SCALE, column_law
from countveil.numeric.linear_program import NoSolution, Solution

MARGIN = 2
WIDE = 4
"""Unless n0 is given, the bias is required to be zero from this many standard deviations on."""
_MET = Fraction(1, 10**9)
"""Curves may exceed the heights by this share, which is within the solver's tolerance."""
_EXACT = Fraction(1, 10**40)
_ROUGH = Fraction(1, 10**7)
"""A residual that rounding to integers can repair; the certificate includes its cost."""
_SAME = ONE + Fraction(1, 10**6)


class CurveProgram:
    """The linear program for the laws of counts n < D, given the symmetric law of counts n >= D.

    The privacy curves of the laws must be at most heights[i] at the order orders[i]; the orders ascend from 1.
    """

    def __init__(self, law: Law, orders: Sequence[Fraction], heights: Sequence[Fraction]) -> None:
        if orders[0] != 1 or not law.is_symmetric():
            raise ValueError("orders must begin at 1, and the law must be symmetric")
        self.law, self.orders, self.heights = law, tuple(orders), tuple(heights)
        self.D = law.right
        self.program = CellProgram()
        self.excess = self.program.variable()
        self._sizes: dict[int, Fraction] = {self.program.one: ONE}
        ratios = [law.probability(i) / law.probability(i + 1) for i in range(self.D)]
        self._bins = [bisect_right(self.orders, ratio * _SAME) for ratio in ratios]
        self._cells_by_count = [self._cells(n) for n in range(self.D)]
        self._biases = [self._constrain(n, cells) for n, cells in enumerate(self._cells_by_count)]
        last = {self.D + z: (self.program.one, law.probability(z)) for z in range(-self.D, self.D + 1)}
        for n, (here, there) in enumerate(pairwise([*self._cells_by_count, last])):
            self._bound_curve([(here[y], there.get(y), n - y) for y in here if y <= n])
            self._bound_curve([(there[y], here.get(y), y - n - 1) for y in there if y > n])
            for y in here:
                if y > n:
                    self._at_most(here[y], there[y], ONE)
                elif y in there:
                    self._at_most(there[y], here[y], ONE)
        self.program.expect(self._sizes.items())

    def _cells(self, n: int) -> Cells:
        cells: Cells = {}
        for y in range(n + self.D + 1):
            if y == n and n:
                cells[y] = (self.program.one, self.law.eta)
            else:
                variable = self.program.variable(self.law.eta if y == n else 0)
                cells[y] = (variable, ONE)
                self._sizes[variable] = self.law.probability(y - n)
        return cells

    def _constrain(self, n: int, cells: Cells) -> int:
        """Constrain the law of n to sum to one; return a variable that is at least the size of its bias."""
        self.program.constrain_mass(cells)
        return self.program.bound_bias(n, cells)

    def _bound_curve(self, cells: Sequence[tuple[Term, Term | None, int]]) -> None:
        """Constrain the sum of max(0, p - E q) to at most its height, at every order E of the grid.

        `cells` are triples (p, q, distance): p and q are the probabilities of an outcome at two neighbouring counts, p
        >= q, and `distance` is how far the outcome is from the count of p.
        """
        sums: list[list[Term]] = [[(self.program.one, -h), (self.excess, -h)] for h in self.heights]
        for p, q, distance in cells:
            if q is None:
                for terms in sums:
                    terms.append(p)
                continue
            guess = self._bins[distance]  # the number of orders up to the ratio in the given law
            first, last = max(1, guess - MARGIN), min(len(sums), guess + MARGIN)
            for g in range(first):
                sums[g] += [p, (q[0], -self.orders[g] * q[1])]
            if first > 1:
                self._at_least(p, q, self.orders[first - 1])
            for g in range(first, last):
                hinge = self.program.variable()
                self.program.constrain_excess(p, q, self.orders[g], hinge)
                sums[g].append((hinge, ONE))
            if last < len(sums):
                self._at_most(p, q, self.orders[last])
        for terms in sums:
            self.program.constrain(terms, upper=0)

    def _at_most(self, p: Term, q: Term, order: Fraction) -> None:
        self.program.constrain([p, (q[0], -order * q[1])], upper=0)

    def _at_least(self, p: Term, q: Term, order: Fraction) -> None:
        self.program.constrain([p, (q[0], -order * q[1])], lower=0)

    def solve(self, n0: int | None = None) -> tuple[LawsByCount, int]:
        """The best laws, as integer weights, and the count from which on their bias is zero.

        That count is n0, if given. Otherwise the biases, weighted by n + 1, are made as small as possible: they vanish
        from some count on.
        """
        last = min(self.D, math.ceil(WIDE * math.sqrt(self.law.variance))) if n0 is None else min(n0, self.D)
        self._set_unbiased_from(last)
        if self.program.solve([(self.excess, ONE)], _EXACT).objective > _MET:
            raise NoSolution("infeasible")
        self.program.set_variable_bounds(self.excess, 0, _MET)
        biases = [(variable, Fraction(n + 1)) for n, variable in enumerate(self._biases[:last])]
        solution = self.program.solve(biases, _ROUGH)
        if n0 is None:
            last = max((n + 1 for n, v in enumerate(self._biases[:last]) if solution[v] > NEGLIGIBLE), default=0)
        self._set_unbiased_from(last)
        self.program.constrain(biases, upper=solution.objective * LEEWAY + NEGLIGIBLE)
        solution = self.program.solve_later(self._spread(), _ROUGH, "mean squared errors") or solution
        return LawsByCount(self.law, tuple(self._law(n, solution, unbiased=n >= last) for n in range(self.D))), last

    def _set_unbiased_from(self, n0: int) -> None:
        for n, bias in enumerate(self._biases):
            self.program.set_variable_bounds(bias, 0, 0 if n >= n0 else None)

    def _spread(self) -> list[Term]:
        return [term for n, cells in enumerate(self._cells_by_count) for term in moment(n, cells, 2)]

    def _law(self, n: int, solution: Solution, *, unbiased: bool) -> Law:
        values = propose(self._cells_by_count[n], solution)
        bits, centre = self.law.bits, self.law.weight(0)
        free = n == 0 and values[0] > (centre + 4) << (SCALE - bits)
        return column_law(values, n, bits, centre=None if free else centre, unbiased=unbiased)
