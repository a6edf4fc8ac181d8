"""A small linear-program solver for the makers: exact, or fixed-point and then proved.

    minimise c.x   subject to   rows a.x <= b or a.x = b,   0 <= x <= 1

`Program` collects the rows; every variable of our programs is a probability or a delta, so
the bound x <= 1 is harmless, and it is used only by `proved_lower_bound`. Two arithmetics
drive the same tableau:

* `EXACT`: fractions.Fraction. The final tableau is itself the proof of optimality.
* `FIXED`: integers scaled by 2**768. The answer is a proposal: the caller measures the
  proposed law from the definition in Fractions (an upper bound) and compares it with
  `proved_lower_bound`, which is exact weak duality for any multipliers whatever.

Degeneracy is handled by a second right-hand side that is shifted by tiny distinct amounts
(2**-160 times a small odd number): pivots follow the shifted one, answers come from the true
one. In the exact arithmetic a final check refuses a true solution with a negative entry.
"""

from fractions import Fraction

SCALE = 768


class Exact:
    """Plain Fractions."""

    zero_below = 0

    @staticmethod
    def make(value):
        return Fraction(value)

    @staticmethod
    def value(number):
        return number

    @staticmethod
    def ratio(a, b):
        return a / b

    @staticmethod
    def subtract(row, factor, pivot_items):
        for j, b in pivot_items:
            row[j] -= factor * b


class Fixed:
    """Integers that stand for value / 2**SCALE; below 2**-(SCALE/2) counts as zero."""

    zero_below = 1 << (SCALE // 2)

    @staticmethod
    def make(value):
        value = Fraction(value)
        return (value.numerator << SCALE) // value.denominator

    @staticmethod
    def value(number):
        return Fraction(number, 1 << SCALE)

    @staticmethod
    def ratio(a, b):
        return (a << SCALE) // b

    @staticmethod
    def subtract(row, factor, pivot_items):
        for j, b in pivot_items:
            row[j] -= factor * b >> SCALE


EXACT, FIXED = Exact, Fixed


class Program:
    """Rows and costs by variable name."""

    def __init__(self):
        self.names = {}
        self.rows = []  # (terms by index, sense, right-hand side)
        self.cost = {}

    def variable(self, name, cost=0):
        index = self.names.setdefault(name, len(self.names))
        if cost:
            self.cost[index] = Fraction(cost)
        return name

    def row(self, terms, sense, right):
        """terms: {variable name: coefficient}; sense is '<=' or '='."""
        line = {}
        for name, coefficient in terms.items():
            if coefficient:
                line[self.names[name]] = Fraction(coefficient)
        self.rows.append((line, sense, Fraction(right)))

    def solve(self, arithmetic):
        """(least cost, {name: value}, multipliers) of the final basis."""
        return _solve(self, arithmetic)

    def proved_lower_bound(self, multipliers):
        """Weak duality in Fractions: no x in [0,1]^k that meets the rows costs less.

        c.x >= c.x + sum_i u_i (a_i.x - b_i) with u_i >= 0 on '<=' rows and any sign on '='
        rows; the right side is least over the box where each coordinate is 0 or 1.
        """
        reduced = [self.cost.get(j, Fraction(0)) for j in range(len(self.names))]
        bound = Fraction(0)
        for (line, sense, right), u in zip(self.rows, multipliers, strict=True):
            if sense == "<=" and u < 0:
                u = Fraction(0)
            if u:
                bound -= u * right
                for j, coefficient in line.items():
                    reduced[j] += u * coefficient
        return bound + sum(min(Fraction(0), r) for r in reduced)


def _solve(program, ar):
    """Two-phase tableau simplex, steepest reduced cost, on the shifted right-hand side."""
    n, m = len(program.names), len(program.rows)
    width = n + 2 * m  # variables, slacks, artificials; then true and shifted right sides
    true, shifted = width, width + 1
    table, basis, flipped = [], [], []
    for i, (line, sense, right) in enumerate(program.rows):
        row = [ar.make(0)] * (width + 2)
        shift = Fraction(2 * ((i * 7919 + 13) % 1009) + 1, 1 << 160)
        flip = right < 0
        for j, coefficient in line.items():
            row[j] = ar.make(-coefficient if flip else coefficient)
        row[true] = ar.make(abs(right))
        row[shifted] = ar.make(abs(right) + shift)
        if sense == "<=":
            row[n + i] = ar.make(-1 if flip else 1)
        row[n + m + i] = ar.make(1)
        basis.append(n + i if sense == "<=" and not flip else n + m + i)
        table.append(row)
        flipped.append(flip)

    def costs(weights):
        """Reduced costs for the current basis."""
        line = [ar.make(w) for w in weights] + [ar.make(0)] * 2
        for row, b in zip(table, basis, strict=True):
            if weights[b]:
                ar.subtract(line, ar.make(weights[b]), [(j, v) for j, v in enumerate(row) if v])
        return line

    def run(line):
        while True:
            enter = min(range(n + m), key=line.__getitem__)
            if line[enter] >= -ar.zero_below:
                return
            leave, best = None, None
            for i, row in enumerate(table):
                # an artificial that is still in the basis sits at zero: never let it grow
                stuck = basis[i] >= n + m and phase == 2 and abs(row[enter]) > ar.zero_below
                if stuck or row[enter] > ar.zero_below:
                    step = -1 if stuck else ar.ratio(row[shifted], row[enter])
                    if best is None or step < best:
                        leave, best = i, step
            if leave is None:
                raise ArithmeticError("unbounded")
            pivot(line, leave, enter)

    def pivot(line, leave, enter):
        row = table[leave]
        head = row[enter]
        items = []
        for j, v in enumerate(row):
            if v:
                row[j] = v = ar.ratio(v, head)
                if v:
                    items.append((j, v))
        for i, other in enumerate(table):
            if i != leave and other[enter]:
                ar.subtract(other, other[enter], items)
                other[enter] = ar.make(0)
        ar.subtract(line, line[enter], items)
        line[enter] = ar.make(0)
        basis[leave] = enter

    phase = 1
    first = [Fraction(0)] * width
    for i in range(m):
        if basis[i] >= n + m:
            first[basis[i]] = Fraction(1)
    line = costs(first)
    run(line)
    if ar.value(-line[true]) > Fraction(1, 1 << 100):
        raise ArithmeticError("infeasible")
    phase = 2
    second = [program.cost.get(j, Fraction(0)) for j in range(n)] + [Fraction(0)] * (2 * m)
    line = costs(second)
    run(line)

    x = {name: Fraction(0) for name in program.names}
    index_name = list(program.names)
    for i, b in enumerate(basis):
        level = ar.value(table[i][true])
        if level < -Fraction(1, 1 << 100) or (ar is Exact and level < 0):
            raise ArithmeticError("shifted basis is not feasible")
        if b < n:
            x[index_name[b]] = max(Fraction(0), level)
    # the artificial of row i has column e_i (after the flip): its reduced cost is the multiplier
    multipliers = []
    for i in range(m):
        u = ar.value(line[n + m + i])
        multipliers.append(-u if flipped[i] else u)
    return ar.value(-line[true]), x, multipliers
