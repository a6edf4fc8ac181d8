"""The linear program of a p-table: least delta at one epsilon under a limit on the variance of every row.

Let p(j|i) be the probability that the true count i is published as j, and E = e^epsilon. The program has a variable for
every p(j|i) with i = 0..M, j from i - D to i + D, j >= 0 and not among the blocked published counts 1..js. The last row
M is compared with its own translation, so a finite program covers every count. From row D + js + 1 on nothing is cut
off or blocked; a few more rows let the last row reach its own optimum. For each pair n of neighbouring counts a and b,
in both directions,

    sum_j h(j) <= delta_n,   h(j) >= p(j|a) - E p(j|b),   h >= 0.

With `unimodal`, probabilities do not fall towards the true count on either side. The objectives are minimised in this
order; each optimum becomes a constraint of the next stage:

1. the largest delta_n (with zero frozen: over counts >= 1, because the pair 0, 1 has its own lower bound);
2. the delta of the last row, which most counts use; 3. with zero frozen, the delta of the pair 0, 1;
4. the bias of rows that may be biased; 5. the sum of all delta_n; 6. the sum of the mean squared errors.

The solver only proposes; nothing here is a guarantee. `export.table_from` rounds the rows, `readings` measures them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from countveil.design.column_program import ONE, CellProgram, Cells, Term, moment
from countveil.laws.rounding import exp, fraction
from countveil.numeric.linear_program import Solution

_SPARE = 5
_RELAXATION = Fraction(1, 10**4)
"""In later stages an objective may be worse than its optimum by this share, which keeps these stages well posed."""
_FEASIBLE = Fraction(1, 10**10)
"""Constraints may be violated by this much: rounding removes the violation, and the result is measured."""
_HAIR = Fraction(1, 10**12)
_NOISE = Fraction(1, 2**170)
"""Smaller probabilities are numerical errors of the solver and count as zero."""
_TINIEST = Fraction(1, 10**30)


@dataclass(frozen=True)
class Spec:
    """The requirements on a p-table: noise bound, largest variance, probability to stay, blocked counts 1..js.

    With `freeze_zero`, 0 is always published as 0. If `pstay` is None, the probability that a count stays is free.
    """

    epsilon: Fraction
    D: int
    max_variance: Fraction
    pstay: Fraction | None = None
    js: int = 0
    freeze_zero: bool = True
    unbiased_from: int = 1
    unimodal: bool = False
    zero_delta: Fraction | None = None
    """An upper limit on the delta of the pair of counts 0 and 1, if zero is frozen."""

    @property
    def last(self) -> int:
        return self.D + self.js + _SPARE

    def outputs(self, i: int) -> list[int]:
        """The counts that may be published for the true count i."""
        return [j for j in range(max(0, i - self.D), i + self.D + 1) if not 1 <= j <= self.js]


class TableProgram:
    """The linear program for a `Spec`; `solve` returns the rows, each a mapping from noise v to probability."""

    def __init__(self, spec: Spec, max_variance: Fraction) -> None:
        self.spec = spec
        self.program = CellProgram()
        self.E = fraction(exp(spec.epsilon))
        self._sizes: dict[int, Fraction] = {self.program.one: ONE}
        self._rows = [self._cells(i) for i in range(spec.last + 1)]
        self._biases = [self._constrain(i, cells, max_variance) for i, cells in enumerate(self._rows)]
        translated = {j + 1: term for j, term in self._rows[-1].items()}
        pairs = list(zip(self._rows, [*self._rows[1:], translated], strict=True))
        self._deltas = self.program.variables(len(pairs), 0, 1)
        if spec.zero_delta is not None:
            self.program.set_variable_bounds(self._deltas[0], 0, spec.zero_delta)
        for delta, (here, there) in zip(self._deltas, pairs, strict=True):
            self.program.constrain_divergence(here, there, self.E, delta)
            self.program.constrain_divergence(there, here, self.E, delta)
        self._largest = self.program.variable(0, 1)
        for delta in self._deltas[1 if spec.freeze_zero else 0 :]:
            self.program.constrain([(delta, ONE), (self._largest, -ONE)], upper=0)
        self.program.expect(self._sizes.items())

    def _cells(self, i: int) -> Cells:
        spec = self.spec
        if i == 0 and spec.freeze_zero:
            return {0: (self.program.one, ONE)}
        cells: Cells = {}
        for j in spec.outputs(i):
            if i and j == i and spec.pstay is not None:
                cells[j] = (self.program.one, spec.pstay)
            else:
                variable = self.program.variable()
                cells[j] = (variable, ONE)
                self._sizes[variable] = max(self.E ** -min(abs(j - i), 200), _TINIEST)
        return cells

    def _constrain(self, i: int, cells: Cells, max_variance: Fraction) -> int:
        """Constrain the sum and the variance of row i; return a variable that is at least the size of its bias."""
        self.program.constrain_mass(cells)
        self.program.constrain(moment(i, cells, 2), upper=max_variance)
        if self.spec.unimodal and i in cells:
            for a, b in pairwise(cells):
                low, high = (a, b) if b <= i else (b, a)
                self.program.constrain([cells[low], (cells[high][0], -cells[high][1])], upper=0)
        return self.program.bound_bias(i, cells, unbiased=i >= self.spec.unbiased_from)

    def solve(self) -> list[dict[int, Fraction]]:
        """The rows of the best table; `program.notes` name later objectives on which the solver gave up."""
        solution = self.program.solve([(self._largest, ONE)], _FEASIBLE)
        self._keep_optimal([(self._largest, ONE)], solution)
        for what, terms in self._later_objectives():
            better = self.program.solve_later(terms, _FEASIBLE, what)
            if better is not None:
                solution = better
                self._keep_optimal(terms, solution)
        return [self._row(i, solution) for i in range(len(self._rows))]

    def _later_objectives(self) -> list[tuple[str, list[Term]]]:
        stages = [("the delta of the last row", [(self._deltas[-1], ONE)])]
        if self.spec.freeze_zero:
            stages.append(("the delta of the counts 0 and 1", [(self._deltas[0], ONE)]))
        loose = range(1 if self.spec.freeze_zero else 0, min(self.spec.unbiased_from, len(self._biases)))
        if loose:
            stages.append(("the bias of small counts", [(self._biases[i], ONE) for i in loose]))
        stages.append(("the sum of all deltas", [(delta, ONE) for delta in self._deltas]))
        errors = [term for i, cells in enumerate(self._rows) for term in moment(i, cells, 2)]
        stages.append(("mean squared errors", errors))
        return stages

    def _keep_optimal(self, terms: Sequence[Term], solution: Solution) -> None:
        self.program.constrain(terms, upper=solution.objective * (1 + _RELAXATION) + _HAIR)

    def _row(self, i: int, solution: Solution) -> dict[int, Fraction]:
        values = {j - i: solution[v] * f for j, (v, f) in self._rows[i].items()}
        return {v: p for v, p in values.items() if p > _NOISE}
