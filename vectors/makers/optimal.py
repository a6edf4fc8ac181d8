"""Least exact delta over all zero-mean laws on [-D:D] with p(0) = eta (makes optimal.json).

From the definition, with noise that does not depend on the count: over shifts s = 1..d and both
directions, the largest sum_y max(0, p(y) - E p(y-s)) is minimised by an exact rational simplex
(Fractions; E is e^epsilon to 60 decimals). The optimal law is then measured again straight from
the definition. `symmetric: false` cases let p(-i) differ from p(i). For sensitivity 1 a closed
form is evaluated next to the simplex, also in Fractions, and the two must be equal:

  chain:  p(1) = (eta_bar/2)(1-1/E)/(1-E^-D) <= E eta:
          delta = max(eta - (E-1) eta_bar/2, (eta_bar/2)(E-1)/(E^D-1))
  tent:   otherwise: least r + x, r, x >= 0, with
          sum_{i=1..D} min((E eta + r) E^(i-1), x E^(D-i)) >= eta_bar/2

Run: python vectors/makers/optimal.py
"""

from fractions import Fraction

from common import decimal, exp_fraction, write
from simplex import EXACT, Program


def hockey_stick(p, D, E, sensitivity):
    """The exact delta of a law {z: probability}, from the definition."""
    worst = Fraction(0)
    for s in range(1, sensitivity + 1):
        for sign in (s, -s):
            total = sum(max(Fraction(0), p.get(y, 0) - E * p.get(y - sign, 0)) for y in range(-D - s, D + s + 1))
            worst = max(worst, total)
    return worst


def least_delta(E, eta, D, sensitivity, symmetric):
    program = Program()
    program.variable("delta", cost=1)
    cell = {z: (abs(z) if symmetric else z) for z in range(-D, D + 1)}
    for z in sorted(set(cell.values())):
        program.variable(("p", z))
    program.row({("p", 0): 1}, "=", eta)
    total, mean = {}, {}
    for z in range(-D, D + 1):
        name = ("p", cell[z])
        total[name] = total.get(name, 0) + 1
        mean[name] = mean.get(name, 0) + z
    program.row(total, "=", 1)
    if not symmetric:
        program.row(mean, "=", 0)
    for s in range(1, sensitivity + 1):
        for sign in (s,) if symmetric else (s, -s):
            budget = {"delta": -1}
            for y in range(-D, D + 1):
                if y - sign not in cell:  # nothing to compare with: the whole mass counts
                    name = ("p", cell[y])
                    budget[name] = budget.get(name, 0) + 1
                    continue
                excess = program.variable(("s", sign, y))
                budget[excess] = 1
                terms = {excess: -1, ("p", cell[y]): 1}
                other = ("p", cell[y - sign])
                terms[other] = terms.get(other, 0) - E
                program.row(terms, "<=", 0)
            program.row(budget, "<=", 0)
    delta, x, multipliers = program.solve(EXACT)
    p = {z: x["p", cell[z]] for z in cell}
    assert p[0] == eta and sum(p.values()) == 1 and sum(z * w for z, w in p.items()) == 0
    assert hockey_stick(p, D, E, sensitivity) == delta
    assert program.proved_lower_bound(multipliers) == delta
    return delta


def closed_form(E, eta, D):
    half = (1 - eta) / 2
    first = half / sum(E**-i for i in range(D))  # p(1) of the chain p(i) = p(1) E^-(i-1)
    if first <= E * eta:
        tail = half / sum(E**i for i in range(D))
        knee = eta - (E - 1) * half
        return "knee" if knee > tail else "tail", max(knee, tail)
    program = Program()
    program.variable("r", cost=1)
    program.variable("x", cost=1)
    for i in range(1, D + 1):
        program.variable(("t", i))
        program.row({("t", i): 1, "r": -(E ** (i - 1))}, "<=", eta * E**i)
        program.row({("t", i): 1, "x": -(E ** (D - i))}, "<=", 0)
    program.row({("t", i): -1 for i in range(1, D + 1)}, "<=", -half)
    return "tent", program.solve(EXACT)[0]


def points():
    """(epsilon, eta, D, sensitivity, symmetric). Knees: tanh(epsilon/2)."""
    yield from (("0", "0.3", 4, 1, True), ("0", "0.05", 6, 1, True), ("0", "0.001", 3, 1, True))
    yield from (("0", "0.01", 2, 1, False), ("0", "0.6", 1, 1, True), ("0", "0.2", 5, 1, True))
    knee = {"0.1": "0.0499583", "0.5": "0.2449187", "1.1": "0.5005202", "2.2": "0.8004990", "4": "0.9640276"}
    low = {"0.1": "0.02", "0.5": "0.1", "1.1": "0.3", "2.2": "0.5", "4": "0.6"}
    small = {"0.1": "0.01", "0.5": "0.05", "1.1": "0.08", "2.2": "0.04", "4": "0.01"}
    above = {"0.1": "0.3", "0.5": "0.4", "1.1": "0.7", "2.2": "0.9", "4": "0.99"}
    for k, epsilon in enumerate(knee):
        for j, eta in enumerate((above[epsilon], knee[epsilon], low[epsilon], small[epsilon], "0.001")):
            yield epsilon, eta, 2 + (k + j) % 5, 1, True
            yield epsilon, eta, 6 if (k + j) % 2 else 4, 1, True
    yield from (("1.1", "0.5", 8, 1, True), ("2.2", "0.8", 8, 1, True), ("1.5", "0.5", 6, 1, True))
    yield from (("0.5", "0.2", 12, 1, True), ("1.1", "0.01", 6, 1, True), ("0.5", "0.05", 6, 1, True))
    yield from (("1.1", "0.5", 1, 1, True), ("1.1", "0.1", 1, 1, True), ("2.2", "0.001", 1, 1, True))
    yield from (
        ("1.1", "0.01", 4, 1, False),
        ("0.5", "0.4", 3, 1, False),
        ("0.5", "0.05", 4, 1, False),
        ("2.2", "0.8", 3, 1, False),
        ("2.2", "0.001", 4, 1, False),
        ("4", "0.6", 3, 1, False),
    )
    for d in (2, 3):
        yield from (
            ("0.5", "0.2", 4, d, True),
            ("1.1", "0.5", 5, d, True),
            ("1.1", "0.3", 6, d, True),
            ("2.2", "0.5", 6, d, True),
            ("0.1", "0.05", 5, d, True),
            ("1.1", "0.05", 5, d, True),
            ("0.5", "0.001", 6, d, True),
            ("4", "0.6", 6, d, True),
        )
    yield from (
        ("1.1", "0.3", 3, 2, False),
        ("0.5", "0.05", 4, 3, False),
        ("1.1", "0.3", 3, 2, True),
        ("0.5", "0.05", 4, 3, True),
        ("1.1", "0.3", 2, 3, True),
    )


def main():
    cases = []
    for epsilon, eta, D, sensitivity, symmetric in dict.fromkeys(points()):
        E = exp_fraction(epsilon)
        delta = least_delta(E, Fraction(eta), D, sensitivity, symmetric)
        case = {
            "epsilon": epsilon,
            "eta": eta,
            "D": str(D),
            "sensitivity": str(sensitivity),
            "symmetric": symmetric,
            "delta": decimal(delta),
        }
        if sensitivity == 1:
            branch, formula = closed_form(E, Fraction(eta), D)
            case |= {
                "closed_form_branch": branch,
                "closed_form_delta": decimal(formula),
                "closed_form_equal": formula == delta,
            }
        cases.append(case)
    write(
        "optimal.json",
        "Least exact delta over all zero-mean laws on [-D:D] with p(0) = eta, noise independent of the count.",
        "python vectors/makers/optimal.py: exact rational simplex over Fractions, e^epsilon to 60 decimals; "
        "every optimum is measured again from the definition and proved by its dual.",
        cases,
    )


if __name__ == "__main__":
    main()
