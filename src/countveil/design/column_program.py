"""Linear programs over the laws p(.|n) of all counts n, one variable per (n, z): the paper's general program and ours.

The paper builds laws from three-point laws. Any law with bounded error (P1), fixed eta (P2) and no bias (P3) is a
mixture of these, so the program needs no variable for each of them: the constraints on p(.|n) themselves are linear.
With E = e^epsilon, the laws of neighbouring counts a and b are compared by

    sum_y h(y) <= delta,   h(y) >= p(y|a) - E p(y|b),   h >= 0        (objective "delta"), or
    p(y|a) - E p(y|b) <= delta for every y                            (objective "singleton").

The law of the stationary count M is compared with its own shift, so a finite program covers every n.

**Tied laws.** At sensitivity 1 the optima that were computed have geometric tails, up to deviations within delta: an
observation, not a theorem, so requiring such tails may cost something. Beyond a window of W explicit laws the program
may tie the laws, that is, express them by few variables: the upper side is one law U for all n >= W, and the lower side
falls by 1/E per count, p(y|n) = E^-(n-W) p(y|W) for y < W and p(y|n) = V E^-(n-1-y) for W <= y < n. All tied laws have
total probability 1 and mean n if the lower side of W has probability V/(1-1/E) and the upper side has first moment
V/(1-1/E)^2, and all their pairs have the same delta. The program then grows with W^2 + D instead of D^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from countveil.laws.rounding import SCALE, exp, fraction
from countveil.numeric.linear_program import NoSolution, Program, Solution

Term = tuple[int, Fraction]
"""A pair (variable of the linear program, factor): a value that is the variable times the factor."""
Cells = dict[int, Term]
"""One law: for each outcome y the term that stands for P(y|n)."""

ONE = Fraction(1)
_RELAXATION = Fraction(1, 10**7)
"""In later stages an objective may be worse than its optimum by this share, which keeps these stages well posed."""
_STEEPEST = Fraction(16)
_TINIEST = Fraction(1, 10**40)
_FEASIBLE = Fraction(1, 10**40)
_PROHIBITIVE = Fraction(10**6)
LEEWAY = Fraction(102, 100)
"""The bias may be 2 % above its minimum, because the laws of exactly minimal bias are distorted."""
NEGLIGIBLE = Fraction(1, 10**12)
"""A bias so small that the program does not try to reduce it any further."""
_NOISE = 1 << (SCALE - 170)
"""Probabilities below 2**-170 are rounding errors of the solver, and are set to zero."""


class CellProgram(Program):
    """A linear program whose variables are probabilities of outcomes, with constraints on whole laws."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.one = self.variable(1, 1)
        self._hinges: dict[tuple[Term, Term | None], int] = {}

    def constrain_mass(self, cells: Cells) -> None:
        """Constrain the probabilities of a law to sum to one."""
        self.constrain([*cells.values(), (self.one, -ONE)], lower=0, upper=0)

    def bound_bias(self, n: int, cells: Cells, *, unbiased: bool = False) -> int:
        """Add a variable that is at least the size of the bias of the law of n; with `unbiased` it is fixed at zero."""
        bias = self.variable(0, 0 if unbiased else None)
        mean = moment(n, cells, 1)
        for sign in (1, -1) if mean else ():
            self.constrain([*((v, sign * f) for v, f in mean), (bias, -ONE)], upper=0)
        return bias

    def constrain_excess(self, p: Term, q: Term | None, E: Fraction, bound: int) -> None:
        """Constrain p - E q to at most the variable `bound`; q None stands for zero."""
        self.constrain([(bound, -ONE), p, *([] if q is None else [(q[0], -E * q[1])])], upper=0)

    def constrain_divergence(self, a: Cells, b: Cells, E: Fraction, delta: int) -> None:
        """Constrain the sum over all outcomes y of max(0, a(y) - E b(y)) to at most the variable `delta`."""
        total: list[Term] = [(delta, -ONE)]
        for y, p in a.items():
            q = b.get(y)
            if q is not None and p[0] == q[0] and p[1] <= E * q[1]:
                continue  # both cells have the same variable, so a(y) - E b(y) is never positive
            if (p, q) not in self._hinges:
                self._hinges[p, q] = self.variable()
                self.constrain_excess(p, q, E, self._hinges[p, q])
            total.append((self._hinges[p, q], ONE))
        self.constrain(total, upper=0)

    def solve(self, terms: Iterable[Term], residual: Fraction) -> Solution:
        """The solution of least sum of terms; raises NoSolution if it violates a constraint by over `residual`."""
        solution = self.minimize(terms)
        if solution.residual > residual:
            raise NoSolution("failed")
        return solution

    def solve_later(self, terms: Iterable[Term], residual: Fraction, what: str) -> Solution | None:
        """As `solve`, for a later objective `what`; without a solution the result is None, and `notes` say so."""
        try:
            return self.solve(terms, residual)
        except NoSolution:
            self.notes.append(f"not minimised, because the solver gave up on this stage: {what}")
            return None


def moment(n: int, cells: Cells, power: int) -> list[Term]:
    """The terms whose sum is E (Y - n)^power under the law of n."""
    return [(v, f * (y - n) ** power) for y, (v, f) in cells.items() if y != n]


def propose(cells: Cells, solution: Solution) -> list[int]:
    """The probabilities of a law's outcomes, from the lowest to the highest, as integers over 2**SCALE."""
    terms = (cells.get(y) for y in range(min(cells), max(cells) + 1))
    values = (0 if term is None else int(solution[term[0]] * term[1] * (1 << SCALE)) for term in terms)
    return [value if value >= _NOISE else 0 for value in values]


@dataclass(frozen=True)
class Model:
    """The requirements on the laws of a `ColumnProgram`.

    There are laws for n = lo..M (hi is None; the law of M is stationary) or for n = lo..hi. One of `eta` and `delta`
    may be None: the program optimises it. `cap` bounds every released count from above, and the bias is zero for n0 <=
    n <= cap - n0. `signed` requires one symmetric law for all n, `symmetric` a symmetric stationary law. `window` and
    `reach` tie the laws: they are explicit up to the count `window`, with free cells up to y = `reach`.
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
    """The laws found: (left, values over 2**SCALE) for each n from lo on; the last is stationary if hi is None."""

    columns: tuple[tuple[int, tuple[int, ...]], ...]
    eta: Fraction
    delta: Fraction


@dataclass
class _CountLaw:
    """The law of the count `n`: for each outcome y, the term of the program that stands for its probability."""

    n: int
    cells: Cells = field(default_factory=dict)


class ColumnProgram:
    """The program of a `Model`: `optimise` finds the least delta or largest eta, `solve_in_order` breaks ties."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.program = CellProgram()
        self.E = fraction(exp(min(model.epsilon, _STEEPEST)))  # on the safe side: a smaller epsilon is harder to meet
        self.eta = self.program.variable(*(_fix(model.eta) if model.eta is not None else (0, 1)))
        self.delta = self.program.variable(0, 1)
        self.excess = self.program.variable(0, 1 if model.delta is not None else 0)
        if model.delta is not None:
            self.program.constrain([(self.delta, ONE), (self.excess, -ONE)], upper=model.delta)
        self._biases: dict[int, int] = {}
        self._laws = self._tied_laws() if model.window is not None else self._explicit_laws()
        for law in self._laws:
            self._constrain_law(law)
        for a, b in self._pairs():
            self._compare(a, b)
            self._compare(b, a)
        self._hint()

    def _hint(self) -> None:
        """Tell the solver to expect probabilities near E^-|z|: without expected sizes it can stall on tiny deltas."""
        decay = _powers(1 / self.E, 2 * self.model.D + 1)
        sizes = {self.program.one: ONE, self.eta: Fraction(1, 2), self.delta: Fraction(1, 1000)}
        for law in self._laws:
            for y, (variable, _) in law.cells.items():
                sizes.setdefault(variable, max(decay[min(abs(y - law.n), len(decay) - 1)], _TINIEST))
        self.program.expect(sizes.items())

    # The cells of the laws

    def _explicit_laws(self) -> list[_CountLaw]:
        model = self.model
        if model.signed:
            return [self._symmetric_law()]
        if model.hi is not None:
            return [self._free_law(n) for n in range(model.lo, model.hi + 1)]
        last = max(model.lo, model.D) if model.M is None else model.M
        laws = [self._free_law(n) for n in range(model.lo, last + 1)]
        if model.symmetric:
            cells = laws[-1].cells
            for i in range(1, model.D + 1):
                cells[last - i] = cells[last + i]
        return laws

    def _free_law(self, n: int, reach: int | None = None, upper: Sequence[int] = ()) -> _CountLaw:
        """The variables of the linear program that stand for the law of the count n, one for every outcome y.

        Outcomes above both n and `reach` share the variables in `upper`; every other outcome has one of its own."""
        D = self.model.D
        top = n + D if self.model.cap is None else min(n + D, self.model.cap)
        law = _CountLaw(n)
        for y in range(max(0, n - D), top + 1):
            if y == n and n >= 1 and n != self.model.cap:
                law.cells[y] = (self.eta, ONE)
            elif reach is not None and y > max(n, reach):
                law.cells[y] = (upper[y - n - 1], ONE)
            else:
                law.cells[y] = (self.program.variable(), ONE)
        if n in (0, self.model.cap):
            self.program.constrain([law.cells[n], (self.eta, -ONE)], lower=0)
        return law

    def _symmetric_law(self) -> _CountLaw:
        """The law of noise that does not depend on the count, for the count 0; outcomes may be negative."""
        law = _CountLaw(0, {0: (self.eta, ONE)})
        for i, variable in enumerate(self.program.variables(self.model.D), start=1):
            law.cells[i] = law.cells[-i] = (variable, ONE)
        return law

    def _tied_laws(self) -> list[_CountLaw]:
        """The explicit laws of 0..window and the stationary law, that of D + 1; `_tied_law` makes the others."""
        model, D = self.model, self.model.D
        W, reach = model.window, model.reach
        if W is None or reach is None:
            raise ValueError("a tied program needs a window and a reach")
        a = 1 / self.E
        upper = self.program.variables(D)
        small = [self._free_law(n, reach, upper) for n in range(W)]
        edge = self._free_law(W, W, upper)
        base = self.program.variable()
        below = [term for y, term in edge.cells.items() if y < W]
        self.program.constrain([*below, (base, -1 / (1 - a))], lower=0, upper=0)
        moments = [(variable, Fraction(i)) for i, variable in enumerate(upper, start=1)]
        self.program.constrain([*moments, (base, -1 / (1 - a) ** 2)], lower=0, upper=0)
        self._tie = (edge, upper, base)
        stationary = _CountLaw(D + 1, {D + 1: (self.eta, ONE)})
        lower = upper if model.symmetric else self.program.variables(D)
        for i, variable in enumerate(lower, start=1):
            stationary.cells[D + 1 - i] = (variable, ONE)
            stationary.cells[D + 1 + i] = (upper[i - 1], ONE)
        return [*small, edge, stationary]

    def _tied_law(self, n: int) -> _CountLaw:
        """The law of a count n with window < n <= D, made of the variables of other laws, times powers of 1/E."""
        edge, upper, base = self._tie
        decay = _powers(1 / self.E, n - edge.n)
        law = _CountLaw(n, {n: (self.eta, ONE)})
        for y in range(edge.n):
            law.cells[y] = (edge.cells[y][0], decay[-1])
        for y in range(edge.n, n):
            law.cells[y] = (base, decay[n - 1 - y])
        for i, variable in enumerate(upper, start=1):
            law.cells[n + i] = (variable, ONE)
        return law

    # Constraints

    def _constrain_law(self, law: _CountLaw) -> None:
        n, cells, model = law.n, law.cells, self.model
        self.program.constrain_mass(cells)
        if not model.signed:
            self._biases[n] = self.program.bound_bias(n, cells, unbiased=self.must_be_unbiased(n, model.n0))
        if model.max_variance is not None:
            self.program.constrain(moment(n, cells, 2), upper=model.max_variance)

    def _pairs(self) -> Iterable[tuple[_CountLaw, _CountLaw]]:
        """Pairs of laws of neighbouring counts, including shifts of the stationary law."""
        laws, d = self._laws, self.model.sensitivity
        stationary = laws[-1]
        if self.model.window is not None:
            edge = laws[-2]
            explicit = laws[:-1]
            yield from pairwise(explicit)
            yield edge, self._tied_law(edge.n + 1)
            yield self._tied_law(stationary.n - 1), stationary
            yield stationary, _translate(stationary, 1)
            return
        for i, law in enumerate(laws):
            for s in range(1, d + 1):
                if i + s < len(laws):
                    yield law, laws[i + s]
                elif self.model.hi is None:
                    yield law, _translate(stationary, law.n + s - stationary.n)

    def _compare(self, a: _CountLaw, b: _CountLaw) -> None:
        """Constrain the excess of the law a over E times the law b, as the objective measures it, to at most delta."""
        if not self.model.singleton:
            self.program.constrain_divergence(a.cells, b.cells, self.E, self.delta)
            return
        for y, p in a.cells.items():
            self.program.constrain_excess(p, b.cells.get(y), self.E, self.delta)

    # Questions

    def set_unbiased_from(self, n0: int) -> None:
        """Require zero bias from the count n0 on."""
        for n, variable in self._biases.items():
            self.program.set_variable_bounds(variable, 0, 0 if self.must_be_unbiased(n, n0) else None)

    @property
    def largest_n0(self) -> int:
        """The largest n0 to try: the laws of larger counts are unbiased in any case."""
        return self._laws[-1].n if self.model.window is None else self.model.window

    def must_be_unbiased(self, n: int, n0: int) -> bool:
        """Whether the law of n must have zero bias; the stationary law always must."""
        cap, stationary = self.model.cap, self.model.hi is None and n == self._laws[-1].n
        return stationary or (n >= n0 and (cap is None or n <= cap - n0))

    def optimise(self) -> Solution:
        """Find the least delta or, if delta is given, the largest eta; NoSolution if a given delta cannot be met.

        In the program a given delta may be exceeded, at a prohibitive price: solvers are slow to prove that nothing
        meets it.
        """
        if self.model.delta is None:
            return self.program.solve([(self.delta, ONE)], _FEASIBLE)
        solution = self.program.solve([(self.eta, -ONE), (self.excess, _PROHIBITIVE)], _FEASIBLE)
        if solution[self.excess] > self.model.delta * _RELAXATION:
            raise NoSolution("infeasible")
        return solution

    def solve_in_order(self) -> Proposal:
        """Optimise in this order: the first objective, then the bias below n0, then the mean squared errors.

        If the solver gives up on a later stage, the laws of the stage before are used, and `program.notes` say so.
        """
        solution = self.optimise()
        self._keep_first(solution)
        stages = [("mean squared errors", self._squared_errors())]
        if any(solution[variable] > NEGLIGIBLE for variable in self._biases.values()):
            stages.insert(0, ("the bias of small counts", [(variable, ONE) for variable in self._biases.values()]))
        for what, terms in stages:
            if (better := self.program.solve_later(terms, _FEASIBLE, what)) is None:
                break
            solution = better
            self.program.constrain(terms, upper=solution.objective * LEEWAY + NEGLIGIBLE)
        return self._proposal(solution)

    def least_variance(self) -> Proposal:
        """The laws with the least mean squared errors within the given delta; eta is not constrained."""
        solution = self.program.solve([*self._squared_errors(), (self.excess, _PROHIBITIVE**2)], _FEASIBLE)
        if self.model.delta is None or solution[self.excess] > self.model.delta * _RELAXATION:
            raise NoSolution("infeasible")
        return self._proposal(solution)

    def _keep_first(self, solution: Solution) -> None:
        """Constrain delta or eta to stay at the optimum that was found, up to a tiny relaxation."""
        if self.model.delta is None:
            self.program.set_variable_bounds(self.delta, 0, solution[self.delta] * (1 + _RELAXATION))
        else:
            if self.model.eta is None:
                self.program.set_variable_bounds(self.eta, solution[self.eta] * (1 - _RELAXATION), 1)
            self.program.set_variable_bounds(self.excess, 0, solution[self.excess])

    def _squared_errors(self) -> list[Term]:
        """The terms of all laws' mean squared errors; the stationary law weighs as much as all others together."""
        weight = max(1, len(self._laws) - 1)
        terms = [term for law in self._laws[:-1] for term in moment(law.n, law.cells, 2)]
        last = self._laws[-1]
        return terms + [(v, f * weight) for v, f in moment(last.n, last.cells, 2)]

    def _proposal(self, solution: Solution) -> Proposal:
        laws = self._laws
        if self.model.window is not None:
            edge, stationary = laws[-2], laws[-1]
            tied = [self._tied_law(n) for n in range(edge.n + 1, stationary.n)]
            laws = [*laws[:-1], *tied, stationary]
        values = [(law.n - min(law.cells), tuple(propose(law.cells, solution))) for law in laws]
        return Proposal(tuple(values), solution[self.eta], solution[self.delta])


def _translate(law: _CountLaw, by: int) -> _CountLaw:
    return _CountLaw(law.n + by, {y + by: term for y, term in law.cells.items()})


def _powers(base: Fraction, last: int) -> list[Fraction]:
    """base^0, ..., base^last, each rounded down to a multiple of 2**-SCALE."""
    unit = 1 << SCALE
    powers = [Fraction(1)]
    for _ in range(last):
        powers.append(Fraction(int(powers[-1] * base * unit), unit))
    return powers


def _fix(value: Fraction) -> tuple[Fraction, Fraction]:
    return value, value
