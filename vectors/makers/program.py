"""Least delta when the law may depend on the count (makes program.json).

kind "whole" (all counts n >= 0): columns n = 0..M with p_n(y) >= 0 on y in [max(0,n-D), n+D],
sum 1, p_n(n) = eta for n >= 1, p_0(0) >= eta, mean n for n >= n0. Column M, translated, serves
every n >= M, so it is also compared with its own shift. The least delta can still fall a little
as M grows beyond D (some points are given at several M). Minimised over all such columns:
  objective "exact":      max over neighbours (n, n+1), both directions, of sum_y max(0, p_a(y) - E p_b(y))
  objective "singleton":  the same with the maximum over y instead of the sum.
kind "paper": counts n = 1..N only, N explicit columns, p_n(n) = eta and mean n for all of them,
singleton objective; solved once over the cells p_n(y) ("direct") and once over the weights
alpha of the three-point laws on {i1, 0, i2} ("pairs"); the two must agree.

How: a simplex in 768-bit fixed point proposes columns and multipliers. Both are then judged in
Fractions (E is e^epsilon to 60 decimals): the proposed columns are repaired to meet eta, sum and mean
exactly and measured straight from the definition, which bounds the optimum from above; the
multipliers give an exact weak-duality bound from below. A case is written only when the two
differ by less than 1e-35 of delta, so every printed digit is proved.

Run: python vectors/makers/program.py   (some minutes)
"""

from fractions import Fraction

from common import decimal, exp_fraction, write
from simplex import FIXED, Program

ZERO = Fraction(0)


def support(n, D):
    return range(max(0, n - D), n + D + 1)


def measure(columns, E, objective, stationary):
    """delta of the columns {n: {y: probability}}, from the definition."""
    columns = dict(columns)
    if stationary:
        last = max(columns)
        columns[last + 1] = {y + 1: w for y, w in columns[last].items()}
    fold = sum if objective == "exact" else max
    worst = ZERO
    for n in columns:
        for m in (n - 1, n + 1):
            if m in columns:
                a, b = columns[n], columns[m]
                worst = max(worst, fold(max(ZERO, w - E * b.get(y, ZERO)) for y, w in a.items()))
    return worst


def repair(column, n, eta, centred):
    """Meet p(n) = eta (or sum only, at n = 0), sum 1 and, if asked, mean n exactly.

    The fixed-point answer misses them by about 2**-700; the heaviest cells take up the rest.
    """
    column = dict(column)
    if n == 0:
        column[0] = max(column[0], eta)
        heavy = max((y for y in column if y != 0), key=column.__getitem__)
        column[heavy] += 1 - sum(column.values())
        if column[heavy] < 0:  # all mass was at 0 already
            column[0] += column[heavy]
            column[heavy] = ZERO
    else:
        column[n] = eta
        others = [y for y in column if y != n]
        i = max(others, key=column.__getitem__)
        gap = 1 - sum(column.values())
        if not centred:
            column[i] += gap
        else:
            j = max((y for y in others if y != i), key=column.__getitem__)
            drift = n - sum(y * w for y, w in column.items())
            # add u at i and v at j: u + v = gap, i u + j v = drift
            u = (drift - j * gap) / (i - j)
            column[i] += u
            column[j] += gap - u
    assert all(w >= 0 for w in column.values()) and sum(column.values()) == 1
    assert column[0] >= eta if n == 0 else column[n] == eta
    assert not centred or sum(y * w for y, w in column.items()) == n
    return column


def add_privacy(program, cells, counts, E, objective, stationary):
    """Rows for every neighbouring pair; cells[n][y] is {variable: coefficient}."""
    cells = dict(cells)
    pairs = [(n, n + 1) for n in counts[:-1]]
    if stationary:
        last = counts[-1]
        cells[last + 1] = {y + 1: terms for y, terms in cells[last].items()}
        pairs.append((last, last + 1))
    for n, m in pairs:
        for a, b in ((n, m), (m, n)):
            budget = {"delta": Fraction(-1)}
            for y, mine in cells[a].items():
                terms = dict(mine)
                for name, coefficient in cells[b].get(y, {}).items():
                    terms[name] = terms.get(name, ZERO) - E * coefficient
                if objective == "singleton":
                    program.row(terms | {"delta": Fraction(-1)}, "<=", 0)
                elif y in cells[b]:
                    excess = program.variable(("s", a, b, y))
                    budget[excess] = Fraction(1)
                    program.row(terms | {excess: Fraction(-1)}, "<=", 0)
                else:
                    for name, coefficient in terms.items():
                        budget[name] = budget.get(name, ZERO) + coefficient
            if objective == "exact":
                program.row(budget, "<=", 0)


def cell_program(E, eta, D, counts, n0, objective, stationary):
    """One variable per cell (n, y)."""
    program = Program()
    program.variable("delta", cost=1)
    cells = {n: {y: {program.variable(("p", n, y)): Fraction(1)} for y in support(n, D)} for n in counts}
    for n in counts:
        if n == 0:
            program.row({("p", 0, 0): -1}, "<=", -eta)
        else:
            program.row({("p", n, n): 1}, "=", eta)
        program.row({("p", n, y): 1 for y in support(n, D)}, "=", 1)
        if n >= n0:
            program.row({("p", n, y): y - n for y in support(n, D)}, "=", 0)
    add_privacy(program, cells, counts, E, objective, stationary)
    return program, cells


def pair_program(E, eta, D, counts):
    """One variable per three-point law (i1, i2) of each count; singleton objective."""
    program = Program()
    program.variable("delta", cost=1)
    one = program.variable("one")  # carries the constant eta
    program.row({one: 1}, "=", 1)
    cells = {}
    for n in counts:
        cells[n] = {y: {} for y in support(n, D)}
        cells[n][n][one] = eta
        weights = {}
        for i1 in range(-min(n, D), 0):
            for i2 in range(1, D + 1):
                name = program.variable(("alpha", i1, i2, n))
                weights[name] = 1
                cells[n][n + i1][name] = (1 - eta) * Fraction(i2, i2 - i1)
                cells[n][n + i2][name] = (1 - eta) * Fraction(-i1, i2 - i1)
        program.row(weights, "=", 1)
    add_privacy(program, cells, counts, E, "singleton", stationary=False)
    return program, cells


def proved(program, cells, E, eta, n0, objective, stationary):
    """The optimum, with a proof that both sides agree to 1e-35 relative."""
    _, x, multipliers = program.solve(FIXED)
    columns = {}
    for n, column in cells.items():
        raw = {y: sum((c * x[name] for name, c in terms.items()), ZERO) for y, terms in column.items()}
        columns[n] = repair(raw, n, eta, centred=n >= n0)
    upper = measure(columns, E, objective, stationary)
    lower = program.proved_lower_bound(multipliers)
    assert ZERO <= upper - lower <= upper / 10**35, (float(upper), float(lower))
    return upper


def whole(epsilon, eta, D, n0, M, objective):
    E, counts = exp_fraction(epsilon), list(range(M + 1))
    assert n0 <= M
    program, cells = cell_program(E, Fraction(eta), D, counts, n0, objective, stationary=True)
    return proved(program, cells, E, Fraction(eta), n0, objective, stationary=True)


def paper(epsilon, eta, D, N, form):
    E, counts, eta = exp_fraction(epsilon), list(range(1, N + 1)), Fraction(eta)
    if form == "direct":
        program, cells = cell_program(E, eta, D, counts, 1, "singleton", stationary=False)
    else:
        program, cells = pair_program(E, eta, D, counts)
    return proved(program, cells, E, eta, 1, "singleton", stationary=False)


# epsilon, eta, D, n0, extra columns beyond M = max(D, n0)
WHOLE = [
    ("0.5", "0.2", 2, 1, 0),
    ("0.5", "0.2", 3, 2, 0),
    ("0.5", "0.2", 3, 2, 2),
    ("0.5", "0.15", 5, 3, 0),
    ("0.7", "0.3", 4, 1, 0),
    ("1", "0.4", 3, 1, 0),
    ("1", "0.4", 3, 1, 2),
    ("1", "0.44", 4, 2, 0),
    ("1", "0.44", 5, 3, 0),
    ("1", "0.44", 5, 3, 2),
    ("1.1", "0.5", 4, 4, 0),
    ("1.1", "0.05", 4, 2, 0),
    ("1.1", "0.05", 4, 2, 2),
    ("1.1", "0.7", 4, 2, 0),
    ("1.1", "0.5", 2, 4, 0),
    ("1.5", "0.5", 4, 1, 0),
    ("1.5", "0.5", 5, 2, 0),
    ("2", "0.74", 4, 1, 0),
    ("2", "0.74", 4, 1, 2),
    ("2", "0.5", 5, 2, 0),
    ("2.2", "0.7", 5, 1, 0),
    ("3", "0.8", 4, 1, 0),
    ("3", "0.8", 5, 2, 0),
    ("3", "0.8", 6, 1, 0),
    ("4", "0.9", 5, 1, 0),
    ("4", "0.9", 6, 1, 0),
    ("5", "0.9", 4, 1, 0),
    ("5", "0.9", 5, 1, 0),
    ("5", "0.95", 6, 2, 0),
    ("2", "0.01", 3, 1, 0),
    ("1.1", "0.5", 8, 1, 0),
    ("1.1", "0.5", 8, 4, 0),
    ("1.1", "0.5", 8, 6, 0),
    ("1.1", "0.5", 8, 4, 2),
    ("1.5", "0.5", 6, 1, 0),
    # the same points with more columns of their own: M = D is sound but not always least
    ("0.5", "0.2", 3, 2, 1),
    ("0.5", "0.2", 3, 2, 3),
    ("0.5", "0.2", 3, 2, 6),
    ("1", "0.44", 4, 2, 2),
    ("1", "0.44", 4, 2, 4),
    ("0.5", "0.15", 5, 3, 4),
    ("0.5", "0.2", 2, 1, 2),
    ("1.1", "0.5", 4, 4, 2),
]
SINGLETON = [
    ("0.5", "0.2", 3, 2, 0),
    ("1", "0.4", 3, 1, 0),
    ("1", "0.44", 5, 3, 0),
    ("1.1", "0.05", 4, 2, 0),
    ("1.5", "0.5", 5, 2, 0),
    ("2", "0.74", 4, 1, 0),
    ("2", "0.74", 4, 1, 2),
    ("3", "0.8", 5, 2, 0),
    ("5", "0.9", 5, 1, 0),
    ("1.5", "0.5", 6, 1, 0),
]
# epsilon, eta, D, N
PAPER = [(epsilon, "0.5", 2, 3) for epsilon in ("0", "0.5", "1", "1.1", "1.5", "2", "3", "5")] + [
    ("1.1", "0.5", 2, 4),
    ("1.1", "0.5", 3, 4),
    ("2", "0.7", 3, 5),
    ("0.5", "0.2", 3, 5),
    ("1.5", "0.5", 3, 6),
    ("3", "0.8", 3, 6),
    ("1.1", "0.05", 2, 5),
    ("1.1", "0.5", 2, 6),
]


def main():
    cases = []
    for objective, points in (("exact", WHOLE), ("singleton", SINGLETON)):
        for epsilon, eta, D, n0, extra in points:
            M = max(D, n0) + extra
            delta = whole(epsilon, eta, D, n0, M, objective)
            cases.append(
                {
                    "kind": "whole",
                    "objective": objective,
                    "epsilon": epsilon,
                    "eta": eta,
                    "D": str(D),
                    "n0": str(n0),
                    "M": str(M),
                    "delta": decimal(delta),
                }
            )
    for epsilon, eta, D, N in PAPER:
        direct, pairs = (decimal(paper(epsilon, eta, D, N, form)) for form in ("direct", "pairs"))
        assert direct == pairs
        cases.append(
            {
                "kind": "paper",
                "objective": "singleton",
                "epsilon": epsilon,
                "eta": eta,
                "D": str(D),
                "N": str(N),
                "delta": direct,
                "delta_pairs": pairs,
            }
        )
    write(
        "program.json",
        "Least delta when the law depends on the count: the whole domain n >= 0, and the paper's general "
        "program on n = 1..N.",
        "python vectors/makers/program.py: fixed-point simplex, then both the law (measured from the "
        "definition) and its dual bound are checked in Fractions; they agree to 1e-35 relative.",
        cases,
    )


if __name__ == "__main__":
    main()
