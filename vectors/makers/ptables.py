"""p-tables and their deltas, from the definition (makes ptables.json).

Small tables are invented here with a fixed generator: probabilities in units of 1/100 to 1/1000, biased. Each case has
the lines of the table (i, j, p as a decimal, upper bound) in shuffled order with repeated (i, j), and for some epsilons
the four deltas, computed over dictionaries of Fractions: sum_j max(0, p(j|n) - E p(j|m)) over counts up to the last row
and two more, where counts beyond the last row use it translated. E is e^epsilon rounded down to 60 digits.
`published` cases are two published tables, which are not part of this repository: the figures that others printed for
them (`printed`, three digits), and the same computation as above (`deltas`) where the tables are at hand; elsewhere
they are kept as they are.

Run: python vectors/makers/ptables.py
"""

import json
import random
from fractions import Fraction

from common import VECTORS, decimal, exp_fraction, write

FOLDER = VECTORS.parents[1] / "shared" / "data" / "ptables"

EPSILONS = ["0", "0.5", "1", "2"]
PUBLISHED = [
    ("tau_testW_ptable.txt", 7, [("0.5", "0.225", "0.220", "0.0539"), ("1", "0.225", "0.0578", "0.00734"),
                                 ("2", "0.225", "0.00268", "0.000442")]),
    ("ptab_freq.txt", 5, [("0.5", "0.397", "0.397", "0.368"), ("1", "0.320", "0.320", "0.256"),
                          ("2", "0.266", "0.0393", "0.0116")]),
]  # fmt: skip


def law_at(rows, n, frozen):
    if n == 0 and frozen:
        return {0: Fraction(1)}
    last = len(rows) - 1
    row = rows[min(n, last)]
    return {j + n - min(n, last): p for j, p in row.items()}


def divergence(p, q, E):
    return sum((max(Fraction(0), w - E * q.get(j, 0)) for j, w in p.items()), Fraction(0))


def delta(rows, E, first, frozen=False):
    worst = Fraction(0)
    for n in range(first, len(rows) + 2):
        a, b = law_at(rows, n, frozen), law_at(rows, n + 1, frozen)
        worst = max(worst, divergence(a, b, E), divergence(b, a, E))
    return worst


def four_deltas(rows):
    deltas = []
    for epsilon in EPSILONS:
        E = exp_fraction(epsilon)
        found = [delta(rows, E, 0), delta(rows, E, 0, True), delta(rows, E, 1), delta(rows, E, len(rows) - 1)]
        deltas.append([epsilon, *(decimal(x, 30) for x in found)])
    return deltas


def published(name):
    """Rows of a file by differences of the last field, in file order."""
    rows = []
    for line in (FOLDER / name).read_text().splitlines()[1:]:
        i, j, *_, bound = line.split(";")
        if int(i) == len(rows):
            rows.append({})
            before = Fraction(0)
        rows[-1][int(j)] = rows[-1].get(int(j), 0) + Fraction(bound) - before
        before = Fraction(bound)
    return rows


def kept(name):
    cases = json.loads((VECTORS / "ptables.json").read_text())["cases"]
    return next(case["deltas"] for case in cases if case.get("file") == name)


def invented(seed, last, D, units):
    generator = random.Random(seed)
    rows, lines = [], []
    for i in range(last + 1):
        outputs = list(range(max(0, i - D), i + D + 1))
        cuts = sorted(generator.randrange(1, units) for _ in range(len(outputs) + 2))
        pieces = [b - a for a, b in zip([0, *cuts], [*cuts, units], strict=True)]
        targets = outputs + [generator.choice(outputs) for _ in range(len(pieces) - len(outputs))]
        generator.shuffle(targets)
        row, bound = {}, 0
        for j, piece in zip(targets, pieces, strict=True):
            bound += piece
            row[j] = row.get(j, 0) + Fraction(piece, units)
            lines.append([i, j, decimal(Fraction(piece, units), 20), decimal(Fraction(bound, units), 20)])
        rows.append({j: p for j, p in row.items() if p})
    deltas = four_deltas(rows)
    moments = []
    for i, row in enumerate(rows):
        mean = sum(p * (j - i) for j, p in row.items())
        moments.append([decimal(mean, 20), decimal(sum(p * (j - i) ** 2 for j, p in row.items()) - mean**2, 20)])
    return {
        "kind": "invented", "seed": seed, "last": last, "D": D, "units": units,
        "lines": lines, "deltas": deltas, "moments": moments,
    }  # fmt: skip


def main():
    cases = [invented(*given) for given in ((1, 2, 2, 100), (2, 4, 3, 100), (3, 6, 2, 256), (4, 3, 5, 1000))]
    for name, D, rows in PUBLISHED:
        deltas = four_deltas(published(name)) if (FOLDER / name).exists() else kept(name)
        cases.append({"kind": "published", "file": name, "D": D, "printed": rows, "deltas": deltas})
    write(
        "ptables.json",
        "exact delta of p-tables in four readings: designed, zero frozen, counts >= 1, last row",
        "vectors/makers/ptables.py: brute force over Fractions; published: figures that others printed",
        cases,
    )


if __name__ == "__main__":
    main()
