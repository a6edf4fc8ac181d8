"""The comparators of the literature, from their formulas (makes families.json).

All in mpmath at 60 digits; columns by brute force, deltas by sum_y max(0, p(y|n) - E p(y|m)) over both directions:
* discrete Gaussian: pmf from the theta series; delta_G = P(Z > eps s2 - 1/2) - E P(Z > eps s2 + 1/2), summed directly;
* truncated geometric, rounded Laplace (by integrating the density), staircase: pmf and delta at a few epsilons;
* explicit fair: columns from the definition; clamped and folded geometric: columns from tail sums;
* maximum entropy without active inequalities: the moment equations solved by mpmath.findroot.
`printed` cases are numbers of others: R ptable 1.0.0's vignette (D 2, V 1), the p-tables ptab_freq.txt and
tau_testW_ptable.txt that tau-Argus ships, and dp-accounting's discrete Gaussian (see `source`).

Run: python vectors/makers/families.py
"""

from common import decimal, write
from mpmath import exp, findroot, floor, mp, mpf, quad

mp.dps = 60

# dp-accounting 0.6.0, python 3.11: DiscreteGaussianPrivacyLoss(math.sqrt(s2)).get_delta_for_epsilon(epsilon)
DP_ACCOUNTING = [
    ("1", "1", "0.14135133940562195"),
    ("4", "0.5", "0.05400722369415445"),
    ("20", "1", "3.0424390409285133e-07"),
    ("0.5", "2", "0.14107263736703182"),
    ("72", "0.7", "3.754915041684472e-11"),
]
VIGNETTE, FREQ, TEST = "R ptable 1.0.0, introduction vignette", "ptab_freq.txt", "tau_testW_ptable.txt"
PTABLES = [  # source, D, V, pstay, js, exact variance, row, printed p by v, tolerance
    (VIGNETTE, "2", "1", None, "0", False, "1", "-1 0.3665 0 0.3665 1 0.1676 2 0.0995", "5e-5"),
    (VIGNETTE, "2", "1", None, "0", False, "2", "-2 0.06382714 -1 0.2446915 0 0.3829628 1 0.24469145", "6e-8"),
    (FREQ, "5", "3", "0.5", "2", True, "2", "-2 0.40880704 1 0.40664356 2 0.14762399 5 0.00033972", "3e-8"),
    (FREQ, "5", "3", "0.5", "2", True, "6", "-3 0.09063278 -2 0.09217047 -1 0.09217047 0 0.5 1 0.07126272", "3e-8"),
    (TEST, "7", "4", None, "2", True, "1", "-1 0.775078850966306 2 0.0873643732150699 7 0.0145509942445495", "3e-8"),
    (TEST, "7", "4", None, "2", True, "5", "-5 0.0401827877495497 -1 0.202811782200345 0 0.202811782200345", "3e-8"),
]


def divergence(p, q, E):
    """sum max(0, p - E q) over dicts y -> probability."""
    return mp.fsum(max(mpf(0), w - E * q.get(y, mpf(0))) for y, w in p.items())


def additive_delta(p, E, sensitivity=1):
    found = mpf(0)
    for s in range(1, sensitivity + 1):
        shifted = {z + s: w for z, w in p.items()}
        found = max(found, divergence(p, shifted, E), divergence(shifted, p, E))
    return found


def pmf(p, shown=4):
    return {str(z): decimal(p[z], 40) for z in range(shown + 1) if z in p}


def gaussian(s2):
    s2 = mpf(s2)
    R = int(25 * mp.sqrt(s2)) + 25
    w = {z: exp(-(mpf(z) ** 2) / (2 * s2)) for z in range(-R, R + 1)}
    total = mp.fsum(w.values())
    return {z: v / total for z, v in w.items()}


def gaussian_case(s2, epsilons):
    p = gaussian(s2)
    cases = []
    for epsilon in epsilons:
        edge = mpf(epsilon) * mpf(s2)
        above = mp.fsum(w for z, w in p.items() if z > edge - mpf(1) / 2)
        beyond = mp.fsum(w for z, w in p.items() if z > edge + mpf(1) / 2)
        cases.append([epsilon, decimal(above - exp(mpf(epsilon)) * beyond, 30)])
    variance = mp.fsum(z * z * w for z, w in p.items())
    return {"kind": "gaussian", "s2": s2, "variance": decimal(variance, 40), "pmf": pmf(p), "deltas": cases}


def truncated_case(epsilon, D):
    w = {z: exp(-mpf(epsilon) * abs(z)) for z in range(-D, D + 1)}
    total = mp.fsum(w.values())
    p = {z: v / total for z, v in w.items()}
    deltas = [[e, decimal(additive_delta(p, exp(mpf(e))), 30)] for e in (epsilon, "0.1", "0")]
    return {"kind": "truncated", "epsilon": epsilon, "D": str(D), "pmf": pmf(p), "deltas": deltas}


def laplace_case(epsilon):
    e = mpf(epsilon)
    density = lambda x: e / 2 * exp(-e * abs(x))  # noqa: E731
    half = mpf(1) / 2
    p = {z: quad(density, [z - half, z, z + half]) for z in range(5)}
    return {"kind": "laplace", "epsilon": epsilon, "pmf": {str(z): decimal(w, 30) for z, w in p.items()}}


def staircase_case(epsilon, d, r):
    b = exp(-mpf(epsilon))
    R = d * (int(100 / float(epsilon)) + 1)
    height = lambda i: b ** (i // d + (0 if i % d < r else 1))  # noqa: E731
    w = {z: height(abs(z)) for z in range(-R, R + 1)}
    total = mp.fsum(w.values())
    p = {z: v / total for z, v in w.items()}
    variance = mp.fsum(z * z * v for z, v in p.items())
    half = str(float(epsilon) / 2)
    deltas = [[half, decimal(additive_delta(p, exp(mpf(half)), d), 30)]]
    return {
        "kind": "staircase", "epsilon": epsilon, "d": str(d), "r": str(r),
        "variance": decimal(variance, 30), "pmf": pmf(p, d), "deltas": deltas,
    }  # fmt: skip


def fair_case(epsilon, N):
    a = exp(-mpf(epsilon))
    columns = []
    for j in range(N + 1):
        near = min(j, N - j)
        column = [a ** (abs(i - j) if abs(i - j) < near else -floor(-mpf(abs(i - j) + near) / 2)) for i in range(N + 1)]
        columns.append([w / mp.fsum(column) for w in column])
    half = str(float(epsilon) / 2)
    E = exp(mpf(half))
    delta = max(
        divergence(dict(enumerate(columns[m])), dict(enumerate(columns[n])), E)
        for j in range(N) for m, n in ((j, j + 1), (j + 1, j))
    )  # fmt: skip
    return {
        "kind": "fair", "epsilon": epsilon, "N": str(N), "deltas": [[half, decimal(delta, 30)]],
        "columns": [[decimal(w, 30) for w in column] for column in columns],
    }  # fmt: skip


def bounded_case(kind, epsilon, N, n):
    """Column n of the clamped or folded geometric: each y sums p over all signed y' that go there."""
    a = exp(-mpf(epsilon))
    p = lambda z: (1 - a) / (1 + a) * a ** abs(z)  # noqa: E731
    top = N if N is not None else n + 10
    column = []
    for y in range(top + 1):
        if kind == "clamped":
            mass = p(y - n)
            if y == 0:
                mass += mp.fsum(p(-n - k) for k in range(1, 400))
            if y == N:
                mass += mp.fsum(p(y - n + k) for k in range(1, 400))
        elif N is None:
            mass = p(y - n) + (p(-y - n) if y else 0)
        else:
            period = 2 * N
            mass = mp.fsum(p(y + k * period - n) for k in range(-400, 401))
            if 0 < y < N:
                mass += mp.fsum(p(-y + k * period - n) for k in range(-400, 401))
        column.append(decimal(mass, 30))
    return {"kind": kind, "epsilon": epsilon, "N": None if N is None else str(N), "n": str(n), "column": column}


def entropy_case(D, V):
    """The last row: p ~ exp(-c v^2) with variance V."""

    def moment(c):
        w = [exp(-c * v * v) for v in range(-D, D + 1)]
        return mp.fsum(v * v * x for v, x in zip(range(-D, D + 1), w, strict=True)) / mp.fsum(w)

    c = findroot(lambda c: moment(c) - mpf(V), mpf(1) / (2 * mpf(V)))
    w = {v: exp(-c * v * v) for v in range(-D, D + 1)}
    total = mp.fsum(w.values())
    return {"kind": "entropy", "D": str(D), "V": V, "pmf": pmf({v: x / total for v, x in w.items()}, D)}


def entropy_row_case(D, V, i):
    """A small row without monotony: p ~ exp(b v + c v^2) on -i..D."""
    points = range(-min(i, D), D + 1)

    def equations(b, c):
        w = [exp(b * v + c * v * v) for v in points]
        return (
            mp.fsum(v * x for v, x in zip(points, w, strict=True)),
            mp.fsum((v * v - mpf(V)) * x for v, x in zip(points, w, strict=True)),
        )

    b, c = findroot(equations, (mpf("-0.3"), mpf("-0.1")))
    w = [exp(b * v + c * v * v) for v in points]
    return {
        "kind": "entropy row", "D": str(D), "V": V, "n": str(i),
        "column": [decimal(x / mp.fsum(w), 30) for x in w],
    }  # fmt: skip


def printed_gaussian(s2, epsilon, delta):
    source = "dp-accounting 0.6.0"
    return {"kind": "printed gaussian", "source": source, "s2": s2, "deltas": [[epsilon, delta]], "relative": "1e-12"}


def printed_ptable(source, D, V, pstay, js, exact, row, printed, within):
    words = printed.split()
    return {
        "kind": "printed ptable", "source": source, "D": D, "V": V, "pstay": pstay, "js": js, "exact_variance": exact,
        "n": row, "pmf": dict(zip(words[::2], words[1::2], strict=True)), "within": within,
    }  # fmt: skip


def main():
    cases = [
        gaussian_case("0.05", ["1", "9"]),
        gaussian_case("0.2660156010491258864869955764", ["2.18", "5.6"]),
        gaussian_case("0.5", ["0.5", "2", "8"]),
        gaussian_case("1", ["0", "1", "3"]),
        gaussian_case("4", ["0.5", "1.7"]),
        gaussian_case("17.9", ["1"]),
        gaussian_case("72", ["0.7", "0.79"]),
        gaussian_case("400", ["0.05", "0.33"]),
        truncated_case("1.5", 7),
        truncated_case("0.5", 7),
        truncated_case("0.05", 200),
        *(laplace_case(e) for e in ("0.1", "1", "3")),
        *(staircase_case(*x) for x in (("1", 1, 1), ("1", 5, 2), ("2", 10, 3), ("0.5", 3, 3))),
        *(fair_case(*x) for x in (("1", 1), ("0.5", 4), ("1", 5), ("0.3", 8), ("2", 7))),
        *(bounded_case(k, e, N, n) for k in ("clamped", "folded") for e in ("0.5", "1.5")
          for N, n in ((None, 0), (None, 2), (6, 0), (6, 4), (6, 6), (1, 1))),
        *(entropy_case(*x) for x in ((2, "1"), (5, "3"), (7, "4"), (30, "0.3"))),
        *(entropy_row_case(*x) for x in ((2, "1", 1), (5, "2", 1), (5, "3", 3), (9, "4", 2))),
        *(printed_gaussian(*x) for x in DP_ACCOUNTING),
        *(printed_ptable(*x) for x in PTABLES),
    ]  # fmt: skip
    write(
        "families.json",
        "The mechanisms users would pick instead: their pmf, columns, variance and exact delta at several epsilons.",
        "python vectors/makers/families.py: mpmath at 60 digits from the formulas, brute force over outcomes; printed "
        "cases are others' published numbers (sources named; dp-accounting 0.6.0 run once in its own environment).",
        cases,
    )


if __name__ == "__main__":
    main()
