"""The discrete canonical noise for (epsilon, delta): the least noise for one signed count at sensitivity 1.

Awan and Ramasethu, *Optimizing Noise for f-Differential Privacy via Anti-Concentration and Stochastic Dominance* (arXiv
2308.08343), prove that it is the stochastically smallest integer noise for its guarantee. With E = e^epsilon and the
upper tails G_k = P(Z >= k), so that G_0 = 1 - G_1 by symmetry,

    G_1 = (1 - delta) / (E + 1),    G_{k+1} = max(0, (G_k - delta) / E),    P(Z = 0) = (E - 1 + 2 delta) / (E + 1).

So P(Z = i) = P(Z = 0) E^-i until the probability of a side is used up: the noise is bounded. docs/proofs.md has a short
proof.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.errors import InfeasibleError, ParameterError
from countveil.laws.law import Law, LawsByCount
from countveil.laws.privacy import hockey_stick
from countveil.laws.rounding import PRECISE, decimal, exp, proposals
from countveil.literature.member import BITS, Member, distance, read_epsilon, text
from countveil.numeric.exact_numbers import Number, exp_bounds, number

LARGEST_D = 100_000
_ATTEMPTS = 24


def canonical_noise(epsilon: Number, delta: Number) -> Member:
    """The least integer noise that is (epsilon, delta)-private for one signed count at sensitivity 1."""
    value, allowed = read_epsilon(epsilon), "a decimal number from 1e-24 to 0.999"
    target = number("delta", delta, allowed)
    if not Fraction(1, 10**24) <= target <= Fraction(999, 1000):
        raise ParameterError("delta", delta, allowed)
    half = ideal_half(value, target)
    law = round_down(exp_bounds(value)[0], target, len(half) - 1, BITS)
    proposed = proposals(half)
    return Member(
        family="canonical",
        name="canonical noise",
        laws=LawsByCount(law),
        cut=distance(law, [*proposed[:0:-1], *proposed]),
        parameters={"epsilon": text(value), "delta": text(target)},
        notes=("the stochastically smallest integer noise for its (epsilon, delta) (Awan, Ramasethu)",),
    )


def ideal_half(epsilon: Fraction, delta: Fraction) -> list[Decimal]:
    """The ideal probabilities P(Z = i) for i = 0..D, to 120 digits, by the recurrence in the module's docstring."""
    with localcontext(PRECISE):
        E, target = exp(epsilon), decimal(delta)
        tail = (1 - target) / (E + 1)
        half = [1 - 2 * tail]
        while tail > 0:
            if len(half) > LARGEST_D:
                raise InfeasibleError(f"canonical noise would need D above {LARGEST_D}", "raise epsilon or delta")
            following = max(Decimal(0), (tail - target) / E)
            half.append(tail - following)
            tail = following
        return half


def round_down(order: Fraction, delta: Fraction, D: int, bits: int) -> Law:
    """The canonical noise as integer weights that sum to 2**bits, on -D..D; `order` is E = e^epsilon.

    **Guarantee.** Its exact delta at `order` is at most `delta`.

    The weight of 0 is the largest even one that a symmetric law with this delta can have. Every further weight is at
    most 1/E of the one before. So for z >= 0, max(0, p(z) - E p(z + 1)) is p(z) - E p(z + 1), and the sum of these
    terms telescopes. If rounding leaves a few units over, they are added to the weight of D, and P(Z = 0) is lowered
    until the guarantee holds.
    """
    total = 1 << bits
    largest = (total * (order - 1 + 2 * delta) / (order + 1)).__floor__() & ~1
    for attempt in range(_ATTEMPTS):
        centre = largest - (0 if attempt == 0 else 2 << (attempt - 1))
        if centre < 0:
            break
        rest = (total - centre) // 2
        side: list[int] = []
        last = centre
        for i in range(1, D + 1):
            last = rest if i == D else min(last * order.denominator // order.numerator, rest)
            side.append(last)
            rest -= last
        law = Law((*side[::-1], centre, *side), D, bits)
        if hockey_stick(law, law.shift(1), order) <= delta:
            return law
    what = f"delta is too small for weights that sum to 2^{bits}"
    raise InfeasibleError(what, "allow more bits, up to 128, or raise delta")


def widen(law: Law, D: int) -> Law:
    """The same symmetric law, written with weights on -D..D; the new outer weights are zero."""
    spare = (0,) * (D - law.right)
    return Law((*spare, *law.weights, *spare), D, law.bits)
