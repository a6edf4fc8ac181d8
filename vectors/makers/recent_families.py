"""The mechanisms of the newest papers, from their definitions or from others' formulas (makes recent_families.json).

In mpmath at 60 digits; deltas by sum_y max(0, p(y|n) - E p(y|m)) over both directions:
* canonical noise: not by the recurrence, but as its authors' public R code has it (JordanAwan/OptimizingNoiseForFDP,
  otherFigures.R): differences at half-integers of the truncated Tulap distribution function;
* truncated Gaussian, offset Gaussian, doubly exponential: weights from the formulas; Skellam: besseli of mpmath;
* truncated Laplace: its density integrated over every cell; bounded Laplace: columns from the definition;
* unbiased geometric: columns by brute force over X;
* finite set: the mixed-integer program as it is printed, with big-M rows, solved by scipy's HiGHS;
* Renyi-optimal: scipy's SLSQP on the weights, for small variances.
`printed` cases are numbers of others: four canonical laws; the epsilons at delta 1e-6 that a figure of Gilani et al.
has for 10 answers of variance 64 (Laplace 1.76, Gaussian 1.74, optimised 1.62); Kullback-Leibler divergences in the
public data of the Cactus authors (SankarLab/DP-Cactus-Mechanism-Code, TestData/comparison_L2_cactus.csv).

Run: python vectors/makers/recent_families.py
"""

from itertools import pairwise

import numpy as np
import scipy.optimize as so
from common import decimal, write
from families import additive_delta, divergence, pmf
from mpmath import besseli, exp, floor, log, mp, mpf, nint, quad, sqrt

mp.dps = 60

CANONICAL = [("1", "1e-6"), ("0.5", "1e-6"), ("0.1", "1e-6"), ("3", "1e-6"), ("2", "0.01"), ("0.3", "0.2")]
PRINTED_CANONICAL = [  # epsilon, delta, D, P(0), variance
    ("1", "1e-6", "14", "0.462118", "1.8411"),
    ("0.5", "1e-6", "25", "0.244919", "7.8331"),
    ("0.1", "1e-6", "109", "0.049959", "199.567"),
    ("3", "1e-6", "5", "0.905148", "0.1103"),
]
CACTUS = [("1.5", "0.22183"), ("0.75", "0.86676")]  # standard deviation at sensitivity 1, divergence in nats


def summary(kind, p, epsilons, **given):
    variance = mp.fsum(z * z * w for z, w in p.items())
    deltas = [[e, decimal(additive_delta(p, exp(mpf(e))), 30)] for e in epsilons]
    return {"kind": kind, **given, "variance": decimal(variance, 30), "pmf": pmf(p, 5), "deltas": deltas}


def normalised(weights):
    total = mp.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


def tulap(t, b, cut):
    """The distribution function of the truncated Tulap law with lambda = b."""
    r = nint(t)
    if t <= 0:
        whole = b ** (-r) / (1 + b) * (b + (t - r + mpf(1) / 2) * (1 - b))
    else:
        whole = 1 - b**r / (1 + b) * (b + (r - t + mpf(1) / 2) * (1 - b))
    return min(mpf(1), max(mpf(0), (whole - cut / 2) / (1 - cut)))


def canonical_case(epsilon, delta):
    b, d = exp(-mpf(epsilon)), mpf(delta)
    cut = 2 * d * b / (1 - b + 2 * d * b)
    half, p, z = mpf(1) / 2, {}, 0
    while z < 400:
        mass = tulap(z + half, b, cut) - tulap(z - half, b, cut)
        if mass <= 0:
            break
        p[z] = p[-z] = mass
        z += 1
    D = max(p)
    return summary("canonical", p, [epsilon, str(float(epsilon) / 2)], epsilon=epsilon, delta=delta, D=str(D))


def truncated_gaussian_case(s2, D):
    p = normalised({z: exp(-(mpf(z) ** 2) / (2 * mpf(s2))) for z in range(-D, D + 1)})
    return summary("truncated gaussian", p, ["0.5", "1"], s2=s2, D=str(D))


def offset_case(s2, m):
    R = int(24 * sqrt(mpf(s2))) + 10
    p = normalised({z: exp(-((abs(z) + mpf(m)) ** 2) / (2 * mpf(s2))) for z in range(-R, R + 1)})
    return summary("offset gaussian", p, ["0.5", "2"], s2=s2, m=m)


def skellam_case(V):
    R = int(20 * sqrt(mpf(V))) + 40
    p = {z: exp(-mpf(V)) * besseli(abs(z), mpf(V)) for z in range(-R, R + 1)}
    return summary("skellam", p, ["0.5", "1"], V=V)


def truncated_laplace_case(epsilon, delta):
    e = mpf(epsilon)
    A = log(1 + (exp(e) - 1) / (2 * mpf(delta))) / e
    density = lambda x: exp(-e * abs(x))  # noqa: E731
    half, p, z = mpf(1) / 2, {}, 0
    while z - half < A:
        edges = [max(-A, z - half), *([mpf(0)] if z == 0 else []), min(A, z + half)]
        p[z] = p[-z] = quad(density, edges)
        z += 1
    return summary("truncated laplace", normalised(p), [epsilon, "0.1"], epsilon=epsilon, delta=delta)


def bounded_laplace_case(rate, N):
    columns = [normalised({y: exp(-mpf(rate) * abs(y - n)) for y in range(N + 1)}) for n in range(N + 1)]
    deltas = []
    for e in (rate, "0.2"):
        E = exp(mpf(e))
        worst = max(max(divergence(a, b, E), divergence(b, a, E)) for a, b in pairwise(columns))
        deltas.append([e, decimal(worst, 30)])
    shown = [[decimal(column[y], 30) for y in range(N + 1)] for column in columns]
    return {"kind": "bounded laplace", "epsilon": rate, "N": str(N), "columns": shown, "deltas": deltas}


def doubly_exponential_case(R):
    r = mpf(R)
    p = normalised({z: exp(-exp(r**2 / (r**2 - z * z))) for z in range(-int(r), int(r) + 1) if z * z < r * r})
    return summary("doubly exponential", p, ["0.5", "1"], R=R)


def unbiased_case(epsilon, n):
    """X = n + Z; f(x) = max(x, 0); g(x) = f(x) - a/(1-a)^2 (f(x+1) - 2 f(x) + f(x-1)), rounded at random."""
    a = exp(-mpf(epsilon))
    f = lambda x: mpf(max(x, 0))  # noqa: E731
    column = {}
    for z in range(-2000, 2001):
        weight = (1 - a) / (1 + a) * a ** abs(z)
        value = f(n + z) - a / (1 - a) ** 2 * (f(n + z + 1) - 2 * f(n + z) + f(n + z - 1))
        low = floor(value)
        for y, share in ((int(low), 1 - (value - low)), (int(low) + 1, value - low)):
            column[y] = column.get(y, mpf(0)) + weight * share
    low = min(y for y, w in column.items() if w > mpf(10) ** -50)
    shown = {str(y): decimal(column.get(y, mpf(0)), 30) for y in range(low, n + 6)}
    mean = mp.fsum(y * w for y, w in column.items())
    return {"kind": "unbiased", "epsilon": epsilon, "n": str(n), "column": shown, "mean": decimal(mean, 30)}


def finite_set_case(epsilon, delta, D):
    """Variables p_{-D..D}, and for every z and direction a binary b and the mass m >= p - (1 - b) that it exempts."""
    size, E = 2 * D + 1, float(np.exp(float(epsilon)))
    count = size * 5  # p, two binaries and two masses for every z
    cost = np.zeros(count)
    cost[:size] = [(z - D) ** 2 for z in range(size)]
    rows, low, high = [], [], []

    def add(entries, lower, upper):
        row = np.zeros(count)
        for index, value in entries:
            row[index] += value
        rows.append(row)
        low.append(lower)
        high.append(upper)

    add([(z, 1) for z in range(size)], 1, 1)
    for side, shift in enumerate((1, -1)):
        binary, mass = size * (1 + side), size * (3 + side)
        for z in range(size):
            add([(z, 1), ((z + shift) % size, -E), (binary + z, -1)], -np.inf, 0)
            add([(z, 1), (binary + z, 1), (mass + z, -1)], -np.inf, 1)
        add([(mass + z, 1) for z in range(size)], -np.inf, float(delta))
    for z in range(1, D + 1):
        add([(D + z, 1), (D - z, -1)], 0, 0)
    integrality = np.zeros(count)
    integrality[size : 3 * size] = 1
    result = so.milp(
        cost,
        constraints=so.LinearConstraint(np.array(rows), low, high),
        integrality=integrality,
        bounds=so.Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    assert result.status == 0
    return {"kind": "finite set", "epsilon": epsilon, "delta": delta, "D": str(D), "variance": f"{result.fun:.10g}"}


def renyi_case(V, order, N=9):
    """The least sum of p(z)^a p(z-1)^(1-a) over weights up to N, geometric beyond with the geometric law's ratio."""
    variance, a = float(V), float(order)
    ratio = float(np.exp(-2 * np.arcsinh(1 / np.sqrt(2 * variance))))
    far = np.arange(N + 1, 400)
    z = np.arange(-399, 401)

    def law(logs):
        return np.concatenate((logs, logs[N] + np.log(ratio) * (far - N)))

    def value(logs):
        p = law(logs)
        x, y = p[np.minimum(abs(z), 399)], p[np.minimum(abs(z - 1), 399)]
        terms = np.exp(x) * (x - y) if a == 1 else np.exp(a * x + (1 - a) * y)
        return float(terms.sum() if a == 1 else np.log(terms.sum()) / (a - 1))

    weights = np.where(np.arange(400) == 0, 1.0, 2.0)
    rules = (
        {"type": "eq", "fun": lambda logs: weights @ np.exp(law(logs)) - 1},
        {"type": "eq", "fun": lambda logs: (weights * np.arange(400) ** 2) @ np.exp(law(logs)) - variance},
    )
    start = np.log((1 - ratio) / (1 + ratio)) + np.arange(N + 1) * np.log(ratio)
    options = {"ftol": 1e-15, "maxiter": 3000}
    result = so.minimize(value, start, constraints=rules, method="SLSQP", options=options)
    return {"kind": "renyi", "V": V, "order": order, "divergence": f"{result.fun:.7g}"}


def main():
    cases = [
        *(canonical_case(*x) for x in CANONICAL),
        *({"kind": "printed canonical", "epsilon": e, "delta": d, "D": D, "eta": eta, "variance": v}
          for e, d, D, eta, v in PRINTED_CANONICAL),
        *(truncated_gaussian_case(*x) for x in (("0.5", 2), ("17.9", 25), ("4", 6))),
        *(offset_case(*x) for x in (("4", "0"), ("10", "8"), ("86", "2.3"))),
        *(skellam_case(V) for V in ("0.1", "2", "71.3")),
        *(truncated_laplace_case(*x) for x in (("1", "1e-6"), ("0.3", "0.01"), ("3", "0.1"))),
        *(bounded_laplace_case(*x) for x in (("1", 1), ("0.5", 6), ("2", 9))),
        *(doubly_exponential_case(R) for R in ("1.5", "6", "24.5")),
        *(unbiased_case(*x) for x in (("0.5", 0), ("0.5", 3), ("2", 0), ("2", 1))),
        *(finite_set_case(*x) for x in (("1", "0.1", 2), ("1", "1e-3", 3), ("0.5", "0.3", 2), ("2", "0.05", 3))),
        *(renyi_case(*x) for x in (("1", "1"), ("1", "3"), ("0.4", "2"), ("0.2", "6"))),
        {"kind": "printed renyi", "V": "64", "answers": "10", "delta": "1e-6",
         "geometric": "1.76", "gaussian": "1.74", "renyi": "1.62"},
        *({"kind": "printed cactus", "deviation": s, "divergence": d} for s, d in CACTUS),
    ]  # fmt: skip
    write(
        "recent_families.json",
        "The mechanisms of the newest papers: their pmf, columns, variance and exact delta at several epsilons.",
        "python vectors/makers/recent_families.py: mpmath at 60 digits from definitions or from formulas of the "
        "authors' public code, scipy's solvers for the optimised ones; printed cases are others' published numbers.",
        cases,
    )


if __name__ == "__main__":
    main()
