"""Linear programs over the columns p(.|n), one variable per (n, z): the paper's general program and ours.

Any law with P1-P3 is a mixture of the paper's three-point laws, so the program needs no variable per pair
(i1, i2): the constraints on p(.|n) themselves are linear. Columns are compared with their neighbours by

    sum_y h(y) <= delta,   h(y) >= p(y|a) - E p(y|b),   h >= 0        (objective "delta"), or
    p(y|a) - E p(y|b) <= delta for every y                            (objective "singleton").

Column M is the stationary law. It is compared with its own shift, so a finite program covers every n.

**Tied columns.** At sensitivity 1 the tails of an optimum are geometric up to what delta can pay for. Beyond
a window of W explicit columns the program may be tied: the upper side is one law U for all n >= W, and the
lower side decays by 1/E per count, p(y|n) = E^-(n-W) p(y|W) for y < W and p(y|n) = V E^-(n-1-y) for W <= y < n.
Mass and mean of all those columns are right if lower mass(W) = V/(1-1/E) and upper moment = V/(1-1/E)^2, and all
their pairs pay alike. The program then grows with W^2 + D instead of D^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from countveil.design.linear import NoSolution, Program, Solution
from countveil.rounding import SCALE, exp, fraction

Term = tuple[int, Fraction]
"""A variable and its factor: the value of a cell."""
Cells = dict[int, Term]
"""The cells of one column: y -> P(y|n)."""

ONE = Fraction(1)
_HOLD = Fraction(1, 10**7)
"""How far an optimum may be relaxed, relatively, to keep the next stage well posed."""
_STEEPEST = Fraction(16)
_TINIEST = Fraction(1, 10**40)
_FEASIBLE = Fraction(1, 10**40)
_PROHIBITIVE = Fraction(10**6)
LEEWAY = Fraction(102, 100)
"""The bias may be 2 % above its least: squeezing out the last of it makes columns ugly."""
NEGLIGIBLE = Fraction(1, 10**12)
"""A bias that is not worth another stage."""
_NOISE = 1 << (SCALE - 170)
"""Probabilities below 2**-170 are what the solver leaves where it means zero."""


class CellProgram(Program):
    """A linear program whose variables are cells, and the rows that are asked of columns of them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = self.variable(1, 1)
        self._hinges: dict[tuple[Term, Term | None], int] = {}

    def constrain_mass(self, cells: Cells) -> None:
        """The probabilities sum to one."""
        self.constrain([*cells.values(), (self.one, -ONE)], lower=0, upper=0)

    def bound_bias(self, n: int, cells: Cells, *, unbiased: bool = False) -> int:
        """A variable that is at least the size of the bias of the column of n: zero, or whatever it takes."""
        bias = self.variable(0, 0 if unbiased else None)
        mean = moment(n, cells, 1)
        for sign in (1, -1) if mean else ():
            self.constrain([*((v, sign * f) for v, f in mean), (bias, -ONE)], upper=0)
        return bias

    def constrain_excess(self, p: Term, q: Term | None, E: Fraction, bound: int) -> None:
        """p - E q is at most the variable `bound`."""
        self.constrain([(bound, -ONE), p, *([] if q is None else [(q[0], -E * q[1])])], upper=0)

    def constrain_divergence(self, a: Cells, b: Cells, E: Fraction, delta: int) -> None:
        """sum_y max(0, a(y) - E b(y)) is at most the variable `delta`."""
        total: list[Term] = [(delta, -ONE)]
        for y, p in a.items():
            q = b.get(y)
            if q is not None and p[0] == q[0] and p[1] <= E * q[1]:
                continue  # the same variable, decaying by no more than E: never positive
            if (p, q) not in self._hinges:
                self._hinges[p, q] = self.variable()
                self.constrain_excess(p, q, E, self._hinges[p, q])
            total.append((self._hinges[p, q], ONE))
        self.constrain(total, upper=0)

    def solve(self, terms: Iterable[Term], residual: Fraction) -> Solution:
        """The least value of the terms; a solution that is less feasible than asked for counts as none."""
        solution = self.minimize(terms)
        if solution.residual > residual:
            raise NoSolution("failed")
        return solution


def moment(n: int, cells: Cells, power: int) -> list[Term]:
    """E (Y - n)^power of the column of n."""
    return [(v, f * (y - n) ** power) for y, (v, f) in cells.items() if y != n]


def propose(cells: Cells, solution: Solution) -> list[int]:
    """The column from its lowest outcome to its highest, as integers over 2**SCALE."""
    terms = (cells.get(y) for y in range(min(cells), max(cells) + 1))
    values = (0 if term is None else int(solution[term[0]] * term[1] * (1 << SCALE)) for term in terms)
    return [value if value >= _NOISE else 0 for value in values]


@dataclass(frozen=True)
class Model:
    """What is asked of the columns.

    Columns exist for n = lo..M (hi is None, column M stationary) or n = lo..hi (all explicit). `eta` or `delta` may
    be None: then it is what the program optimises. `cap` bounds every output from above, and P3 then holds for n0
    <= n <= cap - n0. `signed` asks for one symmetric law that does not depend on n, `symmetric` for a symmetric
    stationary law. `window` and `reach` tie the columns: explicit up to `window`, free cells up to y = `reach`.
    """

    epsilon: Fraction
    D: int
    eta: Fraction | None
    delta: Fraction | None
    n0: int
    lo: int = 0
    hi: int | None = None
    M: int | None = None
    cap: int | None = None
    sensitivity: int = 1
    singleton: bool = False
    max_variance: Fraction | None = None
    window: int | None = None
    reach: int | None = None
    signed: bool = False
    symmetric: bool = False


@dataclass(frozen=True)
class Proposal:
    """Columns as integers over 2**SCALE, (left, values) for each n from lo on; the last is stationary if hi is None."""

    columns: tuple[tuple[int, tuple[int, ...]], ...]
    eta: Fraction
    delta: Fraction


@dataclass
class _Column:
    """The cells y -> term of one column, and n."""

    n: int
    cells: Cells = field(default_factory=dict)


class ColumnProgram:
    """The program of a `Model`; `least_delta` and `largest_eta` solve it, `solve_in_order` breaks ties."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.program = CellProgram()
        self.E = fraction(exp(min(model.epsilon, _STEEPEST)))  # a smaller epsilon is only harder to meet
        self.eta = self.program.variable(*(_fixed(model.eta) if model.eta is not None else (0, 1)))
        self.delta = self.program.variable(0, 1)
        self.excess = self.program.variable(0, 1 if model.delta is not None else 0)
        if model.delta is not None:
            self.program.constrain([(self.delta, ONE), (self.excess, -ONE)], upper=model.delta)
        self._biases: dict[int, int] = {}
        self._columns = self._tied() if model.window is not None else self._explicit()
        for column in self._columns:
            self._constrain_column(column)
        for a, b in self._pairs():
            self._compare(a, b)
            self._compare(b, a)
        self._hint()

    def _hint(self) -> None:
        """Tell the solver that cells decay like E^-|z|: without a scale to go by it can stall on tiny deltas."""
        decay = _powers(1 / self.E, 2 * self.model.D + 1)
        sizes = {self.program.one: ONE, self.eta: Fraction(1, 2), self.delta: Fraction(1, 1000)}
        for column in self._columns:
            for y, (variable, _) in column.cells.items():
                sizes.setdefault(variable, max(decay[min(abs(y - column.n), len(decay) - 1)], _TINIEST))
        self.program.expect(sizes.items())

    # The cells of the columns

    def _explicit(self) -> list[_Column]:
        model = self.model
        if model.signed:
            return [self._symmetric_column()]
        if model.hi is not None:
            return [self._free_column(n) for n in range(model.lo, model.hi + 1)]
        last = max(model.lo, model.D) if model.M is None else model.M
        columns = [self._free_column(n) for n in range(model.lo, last + 1)]
        if model.symmetric:
            cells = columns[-1].cells
            for i in range(1, model.D + 1):
                cells[last - i] = cells[last + i]
        return columns

    def _free_column(self, n: int, reach: int | None = None, upper: Sequence[int] = ()) -> _Column:
        """One variable per cell; beyond `reach` above n the shared `upper` law."""
        D = self.model.D
        top = n + D if self.model.cap is None else min(n + D, self.model.cap)
        column = _Column(n)
        for y in range(max(0, n - D), top + 1):
            if y == n and n >= 1 and n != self.model.cap:
                column.cells[y] = (self.eta, ONE)
            elif reach is not None and y > max(n, reach):
                column.cells[y] = (upper[y - n - 1], ONE)
            else:
                column.cells[y] = (self.program.variable(), ONE)
        if n in (0, self.model.cap):
            self.program.constrain([column.cells[n], (self.eta, -ONE)], lower=0)
        return column

    def _symmetric_column(self) -> _Column:
        """A law that does not depend on n and may go below zero, at n = 0."""
        column = _Column(0, {0: (self.eta, ONE)})
        for i, variable in enumerate(self.program.variables(self.model.D), start=1):
            column.cells[i] = column.cells[-i] = (variable, ONE)
        return column

    def _tied(self) -> list[_Column]:
        """Columns 0..W, then the tied ones W+1 and D that stand for all of W..D, then the stationary one D+1."""
        model, D = self.model, self.model.D
        W, reach = model.window, model.reach
        if W is None or reach is None:
            raise ValueError("a tied program needs a window and a reach")
        a = 1 / self.E
        upper = self.program.variables(D)
        small = [self._free_column(n, reach, upper) for n in range(W)]
        edge = self._free_column(W, W, upper)
        base = self.program.variable()
        below = [term for y, term in edge.cells.items() if y < W]
        self.program.constrain([*below, (base, -1 / (1 - a))], lower=0, upper=0)
        moments = [(variable, Fraction(i)) for i, variable in enumerate(upper, start=1)]
        self.program.constrain([*moments, (base, -1 / (1 - a) ** 2)], lower=0, upper=0)
        self._tie = (edge, upper, base)
        stationary = _Column(D + 1, {D + 1: (self.eta, ONE)})
        lower = upper if model.symmetric else self.program.variables(D)
        for i, variable in enumerate(lower, start=1):
            stationary.cells[D + 1 - i] = (variable, ONE)
            stationary.cells[D + 1 + i] = (upper[i - 1], ONE)
        return [*small, edge, stationary]

    def _tied_column(self, n: int) -> _Column:
        """The column of W < n <= D: the window's edge, decayed, and the geometric part."""
        edge, upper, base = self._tie
        decay = _powers(1 / self.E, n - edge.n)
        column = _Column(n, {n: (self.eta, ONE)})
        for y in range(edge.n):
            column.cells[y] = (edge.cells[y][0], decay[-1])
        for y in range(edge.n, n):
            column.cells[y] = (base, decay[n - 1 - y])
        for i, variable in enumerate(upper, start=1):
            column.cells[n + i] = (variable, ONE)
        return column

    # Constraints

    def _constrain_column(self, column: _Column) -> None:
        n, cells, model = column.n, column.cells, self.model
        self.program.constrain_mass(cells)
        if not model.signed:
            self._biases[n] = self.program.bound_bias(n, cells, unbiased=self.unbiased(n, model.n0))
        if model.max_variance is not None:
            self.program.constrain(moment(n, cells, 2), upper=model.max_variance)

    def _pairs(self) -> Iterable[tuple[_Column, _Column]]:
        """Neighbouring columns, translated copies of the stationary one included."""
        columns, d = self._columns, self.model.sensitivity
        stationary = columns[-1]
        if self.model.window is not None:
            edge = columns[-2]
            explicit = columns[:-1]
            yield from pairwise(explicit)
            yield edge, self._tied_column(edge.n + 1)
            yield self._tied_column(stationary.n - 1), stationary
            yield stationary, _translated(stationary, 1)
            return
        for i, column in enumerate(columns):
            for s in range(1, d + 1):
                if i + s < len(columns):
                    yield column, columns[i + s]
                elif self.model.hi is None:
                    yield column, _translated(stationary, column.n + s - stationary.n)

    def _compare(self, a: _Column, b: _Column) -> None:
        """The divergence of a from b is at most delta."""
        if not self.model.singleton:
            self.program.constrain_divergence(a.cells, b.cells, self.E, self.delta)
            return
        for y, p in a.cells.items():
            self.program.constrain_excess(p, b.cells.get(y), self.E, self.delta)

    # Questions

    def set_unbiased_from(self, n0: int) -> None:
        """Ask for zero bias from another count on."""
        for n, variable in self._biases.items():
            self.program.set_variable_bounds(variable, 0, 0 if self.unbiased(n, n0) else None)

    @property
    def largest_n0(self) -> int:
        """The largest count from which zero bias can be asked for: later columns are unbiased anyway."""
        return self._columns[-1].n if self.model.window is None else self.model.window

    def unbiased(self, n: int, n0: int) -> bool:
        """Whether the column of n has to have zero bias; the stationary one always has."""
        cap, stationary = self.model.cap, self.model.hi is None and n == self._columns[-1].n
        return stationary or (n >= n0 and (cap is None or n <= cap - n0))

    def optimise(self) -> Solution:
        """The first objective: least delta, or, where delta is given, the largest eta.

        A given delta may be exceeded at a prohibitive price. So there always is a solution (solvers are slow to
        see that there is none), and one with an excess means that the delta cannot be met.
        """
        if self.model.delta is None:
            return self._minimise([(self.delta, ONE)])
        solution = self._minimise([(self.eta, -ONE), (self.excess, _PROHIBITIVE)])
        if solution[self.excess] > self.model.delta * _HOLD:
            raise NoSolution("infeasible")
        return solution

    def solve_in_order(self) -> Proposal:
        """Lexicographically: the first objective, then the bias below n0, then the mean squared errors.

        A later stage that the solver gives up on is left out: the columns are then as good in the objectives before.
        """
        solution = self.optimise()
        self._hold_first(solution)
        stages = [[(variable, ONE) for variable in self._biases.values()], self._spread()]
        if not any(solution[variable] > NEGLIGIBLE for variable in self._biases.values()):
            del stages[0]
        for terms in stages:
            try:
                solution = self._minimise(terms)
            except NoSolution:
                break
            self.program.constrain(terms, upper=solution.objective * LEEWAY + NEGLIGIBLE)
        return self._proposal(solution)

    def least_variance(self) -> Proposal:
        """The least mean squared errors within the given delta; eta is what it will be."""
        solution = self._minimise([*self._spread(), (self.excess, _PROHIBITIVE**2)])
        if self.model.delta is None or solution[self.excess] > self.model.delta * _HOLD:
            raise NoSolution("infeasible")
        return self._proposal(solution)

    def _minimise(self, terms: Sequence[Term]) -> Solution:
        return self.program.solve(terms, _FEASIBLE)

    def _hold_first(self, solution: Solution) -> None:
        """Keep delta or eta at its optimum, up to a hair."""
        if self.model.delta is None:
            self.program.set_variable_bounds(self.delta, 0, solution[self.delta] * (1 + _HOLD))
        else:
            if self.model.eta is None:
                self.program.set_variable_bounds(self.eta, solution[self.eta] * (1 - _HOLD), 1)
            self.program.set_variable_bounds(self.excess, 0, solution[self.excess])

    def _spread(self) -> list[Term]:
        """The mean squared errors of all columns, the stationary one counting as much as the others together."""
        weight = max(1, len(self._columns) - 1)
        terms = [term for column in self._columns[:-1] for term in moment(column.n, column.cells, 2)]
        last = self._columns[-1]
        return terms + [(v, f * weight) for v, f in moment(last.n, last.cells, 2)]

    def _proposal(self, solution: Solution) -> Proposal:
        columns = self._columns
        if self.model.window is not None:
            edge, stationary = columns[-2], columns[-1]
            tied = [self._tied_column(n) for n in range(edge.n + 1, stationary.n)]
            columns = [*columns[:-1], *tied, stationary]
        values = [(column.n - min(column.cells), tuple(propose(column.cells, solution))) for column in columns]
        return Proposal(tuple(values), solution[self.eta], solution[self.delta])


def _translated(column: _Column, by: int) -> _Column:
    return _Column(column.n + by, {y + by: term for y, term in column.cells.items()})


def _powers(base: Fraction, last: int) -> list[Fraction]:
    """base^0..base^last, each at the resolution of proposals."""
    unit = 1 << SCALE
    powers = [Fraction(1)]
    for _ in range(last):
        powers.append(Fraction(int(powers[-1] * base * unit), unit))
    return powers


def _fixed(value: Fraction) -> tuple[Fraction, Fraction]:
    return value, value
