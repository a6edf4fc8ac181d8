"""The law of least *exact* delta among all laws of noise that does not depend on the count, in closed form.

Sensitivity 1, P(Z = 0) = eta, noise between -D and D, mean zero; E = e^epsilon and eta_bar = 1 - eta. Averaging a law
with its mirror image never raises delta, so the optimum is symmetric; with p_i = P(Z = i) = P(Z = -i) its delta is a
sum over all steps:

    delta = sum_{i=0..D} max(0, p_i - E p_{i+1}) + sum_{i=1..D} max(0, p_i - E p_{i-1}),    p_{D+1} = 0.

The knee is eta = tanh(epsilon/2), the P(Z = 0) of the two-sided geometric law. The optimum has one of three shapes,
depending on eta:

- **cut** (above the knee): p_1 = eta/E, p_{i+1} = p_i/E until the probability eta_bar/2 of a side is used up. Every law
  with p_i >= E p_{i+1} has the same delta = eta - (E-1) eta_bar/2; this one has the least variance.
- **chain** (around and below the knee): p_i = p_1 E^-(i-1) for i = 1..D. delta = p_D = (eta_bar/2) (E-1)/(E^D - 1).
- **tent** (p_1 of the chain would exceed E eta): the sides first rise, then fall. p_i = min((E eta + r) E^(i-1),
  x E^(D-i)), and delta = r + x, with r and x as small as the probability of a side allows. Of m rising steps, a unit
  of r adds the probability sum_{j<m} E^j, and a unit of x adds sum_{j<D-m} E^j; so r = 0 while m <= D/2, and beyond
  that r and x grow alike.

docs/proofs.md proves that no law of this eta and D has less delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.laws.rounding import PRECISE, decimal, exp
from countveil.numeric.search import least_integer


@dataclass(frozen=True)
class Optimum:
    """A law of least delta: `half[i]` is P(Z = i) = P(Z = -i), and `shape` is "cut", "chain" or "tent".

    `delta` is a Decimal of 120 digits; what counts is the delta that is certified after rounding.
    """

    shape: str
    delta: Decimal
    half: tuple[Decimal, ...]


def optimum(epsilon: Fraction, eta: Fraction, D: int) -> Optimum:
    """The law of least exact delta with P(Z = 0) = eta and noise between -D and D, at sensitivity 1."""
    with localcontext(PRECISE):
        E, centre, side, first = _chain(epsilon, eta, D)
        if centre >= E * first:
            return _cut(E, centre, side, D)
        if first <= E * centre:
            half = [centre, first]
            for _ in range(D - 1):
                half.append(half[-1] / E)
            return Optimum("chain", half[-1], tuple(half))
        return _tent(E, centre, side, D)


def knee(epsilon: Fraction) -> Fraction:
    """tanh(epsilon/2), the largest eta whose delta is negligible; it is P(Z = 0) of the two-sided geometric law."""
    E = exp(epsilon)
    value = PRECISE.divide(PRECISE.subtract(E, 1), PRECISE.add(E, 1))
    return Fraction(int(value.scaleb(40, PRECISE)), 10**40)


def is_tent(epsilon: Fraction, eta: Fraction, D: int) -> bool:
    """Whether eta is so small that the law of least delta is a tent: its sides rise before they fall."""
    with localcontext(PRECISE):
        E, centre, _, first = _chain(epsilon, eta, D)
        return first > E * centre


def least_delta(epsilon: Fraction, eta: Fraction, D: int) -> Decimal:
    """The delta of `optimum`; where a formula gives the delta, the law itself is not computed."""
    with localcontext(PRECISE):
        E, centre, side, first = _chain(epsilon, eta, D)
        if first > E * centre:
            return _tent(E, centre, side, D).delta
        return max(centre - (E - 1) * side, first / E ** (D - 1))


def largest_eta(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest eta that (epsilon, delta) allows: (2 delta + E - 1)/(E + 1), where E = e^epsilon.

    Rounded down to 60 decimal places. Awan and Ramasethu prove that no law allows more; docs/proofs.md has a short
    proof.
    """
    with localcontext(PRECISE):
        E = exp(epsilon)
        eta = (2 * decimal(delta) + E - 1) / (E + 1)
        return Fraction(int(eta.scaleb(60)), 10**60)


def _chain(epsilon: Fraction, eta: Fraction, D: int) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    """E = e^epsilon, P(Z = 0), the probability of one side, and P(Z = 1) if the sides fall geometrically."""
    E, centre = exp(epsilon), decimal(eta)
    side = (1 - centre) / 2
    return E, centre, side, side / _geometric(1 / E, D)


def _geometric(ratio: Decimal, terms: int) -> Decimal:
    """The sum of ratio^j over j = 0..terms - 1."""
    return Decimal(terms) if ratio == 1 else (1 - ratio**terms) / (1 - ratio)


def _cut(E: Decimal, centre: Decimal, side: Decimal, D: int) -> Optimum:
    half, rest = [centre], side
    for _ in range(D):
        half.append(min(half[-1] / E, rest))
        rest -= half[-1]
    half[1] += rest  # a rounding error of the 120 digits, at the boundary of this case
    return Optimum("cut", centre - (E - 1) * side, tuple(half))


def _tent(E: Decimal, centre: Decimal, side: Decimal, D: int) -> Optimum:
    """The tent, whose sides rise, then fall: p_i = min(a E^(i-1), x E^(D-i)), i = 1..D; delta is a - E eta + x."""
    a, x, rising = _one_sided_tent(E, centre, side, D)
    if 2 * rising > D:
        middle = D // 2
        if D % 2:
            a = x = side / (2 * _geometric(E, middle) + E**middle)
        else:
            both = side / _geometric(E, middle)
            a, x = both * E / (1 + E), both / (1 + E)  # of the laws with this delta, the one of least spread
    half = [centre]
    rise, fall = a, x * E ** (D - 1)
    for _ in range(D):
        half.append(min(rise, fall))
        rise *= E
        fall /= E
    return Optimum("tent", a - E * centre + x, tuple(half))


def _one_sided_tent(E: Decimal, centre: Decimal, side: Decimal, D: int) -> tuple[Decimal, Decimal, int]:
    """The tent with a = E eta, which is the least a: the numbers a and x (see `_tent`), and how many steps rise.

    x is such that the probabilities of a side sum to `side`.
    """
    a = E * centre

    def edge(rising: int) -> Decimal:
        return (side - a * _geometric(E, rising)) / _geometric(E, D - rising)

    def has_crossed(rising: int) -> bool:
        return a * E**rising >= edge(rising) * E ** (D - rising - 1)

    rising = least_integer(has_crossed, 0, D)
    return a, edge(rising) if rising < D else Decimal(0), rising
