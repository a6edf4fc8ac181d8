"""The optimal noise for queries with finitely many answers, modulo their number, by mixed-integer program.

Kadam, Scaglione, Ravi, Peisert, Lunghino and Shumavon, *Optimum Noise Mechanism for Differentially Private Queries in
Discrete Finite Sets* (2024; arXiv 2111.11661), publish (n + Z) modulo N + 1 for counts 0..N. The law of Z has the least
expected cost among those whose privacy loss exceeds epsilon with probability at most delta:

    minimise E c(Z)  subject to  sum of P(Z = z) over the z with P(Z = z) > e^epsilon P(Z = z - 1) at most delta,

and likewise for z + 1. A binary variable says for every z whether its loss may exceed epsilon. Here N = 2D, the cost is
z^2, the law is symmetric, and all choices of the 2D binary variables of one side are tried: small D only. Their
condition is stricter than (epsilon, delta)-differential privacy; what is measured is the exact delta.

Adding modulo N + 1 has no edges, so that delta can be 0; the price is that counts near one end are published near the
other.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

from countveil.errors import InfeasibleError, ParameterError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.rounding import PRECISE, decimal
from countveil.literature.member import BITS, Member, read_epsilon, symmetric, text
from countveil.numeric.exact_numbers import Number, exp_bounds, integer, number
from countveil.numeric.linear_program import NoSolution, Program

LARGEST_D = 4


def finite_set_noise(epsilon: Number, delta: Number, D: int) -> Member:
    """The mechanism (n + Z) mod (2D + 1) for counts n in 0..2D; Z is the symmetric noise of least variance.

    Its privacy loss exceeds epsilon with probability at most delta.
    """
    value, bound = read_epsilon(epsilon), integer("D", D, 1, LARGEST_D, "a larger D takes too long")
    allowed = "a decimal number from 0 to 0.999"
    target = number("delta", delta, allowed)
    if not 0 <= target <= Fraction(999, 1000):
        raise ParameterError("delta", delta, allowed)
    half = _least_variance(exp_bounds(value)[0], target, bound)
    with localcontext(PRECISE):
        law, _ = symmetric([decimal(p) if p > 0 else Decimal(0) for p in half])
    size = 2 * bound + 1
    laws = tuple(Law(tuple(law.weights[(y - n + bound) % size] for y in range(size)), n, BITS) for n in range(size))
    return Member(
        family="finite set",
        name="finite-set noise",
        laws=LawsByCount(laws[bound], small=laws, hi=size - 1),
        cut=Fraction(0),
        parameters={"epsilon": text(value), "delta": text(target), "D": text(bound)},
        notes=(f"added modulo {size}, for counts 0..{size - 1}: a count near one end is published near the other",),
        counts=(0, size - 1),
    )


def _least_variance(E: Fraction, delta: Fraction, D: int) -> list[Fraction]:
    """P(Z = i), i = 0..D, of the law of least variance over all choices of the losses that may exceed epsilon."""
    best: tuple[Fraction, list[Fraction]] | None = None
    for exempt in product((False, True), repeat=2 * D):
        program = Program()
        p = program.variables(D + 1)
        program.constrain([(p[0], 1), *((x, 2) for x in p[1:])], 1, 1)
        spared = []
        for i in range(D):
            for inner, outer, free in ((p[i], p[i + 1], exempt[2 * i]), (p[i + 1], p[i], exempt[2 * i + 1])):
                if free:
                    spared.append((inner, 1))
                else:
                    program.constrain([(inner, 1), (outer, -E)], upper=0)
        program.constrain(spared, upper=delta)
        try:
            solution = program.minimize([(x, 2 * i * i) for i, x in enumerate(p)])
        except NoSolution:
            continue
        if best is None or solution.objective < best[0]:
            best = solution.objective, [solution[x] for x in p]
    if best is None:
        raise InfeasibleError("no noise on a finite set has this guarantee", "raise epsilon or delta")
    return best[1]
