"""From real proposals to integer weights, keeping sums, eta and zero bias exact.

Designers compute with decimals of 120 digits, whose exponents cannot overflow; none of these decimals is a guarantee. A
proposal is a probability times 2**SCALE, rounded to an integer: far finer than any law. To round proposals to the
weights of a law, their partial sums are rounded, from the ends inwards: no error accumulates, and each weight is within
one unit of its proposal. Zeros stay zero and positive proposals stay positive, however small: if a tail were rounded to
zero, the outcome before it would become one that a neighbouring count cannot have, at a cost in privacy.
`countveil.mechanism.certificate` measures what rounding costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

from countveil.errors import InfeasibleError
from countveil.laws.law import Law

SCALE = 256
"""A proposal is a probability times 2**SCALE, rounded to an integer."""
PRECISE = Context(prec=120, Emax=MAX_EMAX, Emin=MIN_EMIN)
_UNIT = Decimal(1 << SCALE)


def decimal(x: Fraction) -> Decimal:
    """The fraction x as a Decimal of 120 digits."""
    return PRECISE.divide(Decimal(x.numerator), Decimal(x.denominator))


def exp(epsilon: Fraction) -> Decimal:
    """e^epsilon as a Decimal of 120 digits."""
    return PRECISE.exp(decimal(epsilon))


def fraction(x: Decimal) -> Fraction:
    """x rounded down to a multiple of 2**-SCALE, the resolution of proposals; 0 if x is negative."""
    return Fraction(_proposal(x), 1 << SCALE)


def proposals(values: Iterable[Decimal]) -> list[int]:
    """Probabilities times 2**SCALE, as integers rounded down; negative ones become 0."""
    return [_proposal(value) for value in values]


def _proposal(value: Decimal) -> int:
    return max(0, int(PRECISE.multiply(value, _UNIT)))


def even_weight(eta: int, bits: int) -> int:
    """The largest even weight over 2**bits that is at most `eta`, which is a proposal (a probability times 2**SCALE).

    It is even, so that the two sides of a symmetric law can share the rest equally, and at least 2, so that it is never
    zero.
    """
    return min(max(2, eta >> (SCALE - bits) & ~1), (1 << bits) - 2)


def symmetric_law(half: Sequence[int], bits: int) -> Law:
    """The law with P(Z = i) = P(Z = -i) proportional to half[i], i = 0..D, as weights that sum to 2**bits.

    **Guarantee.** The weights are symmetric, so the mean is exactly zero, and sum to 2**bits.
    """
    centre = even_weight(half[0], bits)
    side = _cumulative(half[:0:-1], bits)[::-1]
    missing = ((1 << bits) - centre) // 2 - sum(side)
    if max(side) + missing < 0:
        what = f"the probabilities are too small for weights that sum to 2^{bits}"
        raise InfeasibleError(what, "give more bits, up to 128")
    _absorb(side, missing)
    return Law((*side[::-1], centre, *side), len(side), bits)


def column_law(values: Sequence[int], left: int, bits: int, *, centre: int | None, unbiased: bool) -> Law:
    """The law on -left, -left + 1, ... with P(Z = z) proportional to values[z + left], as weights that sum to 2**bits.

    **Guarantee.** `centre`, where given, is exactly the weight of z = 0; with `unbiased` the mean is exactly zero. Two
    or three weights absorb the rounding error.
    """
    low = _cumulative(values[:left], bits)
    high = _cumulative(values[:left:-1], bits)[::-1]
    weights = [*low, _nearest(values[left], bits) if centre is None else centre, *high]
    missing = (1 << bits) - sum(weights)
    if not unbiased:
        if centre is None:
            weights[left] += missing
        else:
            _absorb(high if not low or max(high) >= max(low) else low, missing)
            weights = [*low, centre, *high]
        return Law(tuple(weights), left, bits)
    moment = -sum((i - left) * w for i, w in enumerate(weights))
    for z, units in _balancing(weights, left, missing, moment).items():
        weights[z + left] += units
    return Law(tuple(weights), left, bits)


def _balancing(weights: Sequence[int], left: int, missing: int, moment: int) -> dict[int, int]:
    """Units of weight to add to a few outcomes z other than 0, so that all weights together grow by `missing`.

    The units change sum_z z * weight(z) by `moment`. Two outcomes, one of them heavy, are enough if their distance
    divides the required change, as it always does for outcomes next to each other; otherwise a few units on a third
    outcome make the change divisible. No weight becomes negative.
    """
    cells = [z for z in range(-left, len(weights) - left) if z]
    heavy = sorted(cells, key=lambda z: -weights[z + left])
    for third, units in [(0, 0), *((z, k) for k in range(1, len(weights)) for z in cells)]:
        rest, needed = missing - units, moment - third * units
        for first in heavy[:4]:
            for second in heavy:
                shared, left_over = divmod(needed - first * rest, second - first) if second != first else (0, 1)
                added = {first: rest - shared}
                for z, count in ((second, shared), (third, units)):
                    added[z] = added.get(z, 0) + count
                if not left_over and all(weights[z + left] + count >= 0 for z, count in added.items()):
                    return added
    raise ValueError("no two or three outcomes can absorb the rounding error")


def _absorb(side: list[int], missing: int) -> None:
    """Add the rounding error `missing` to the largest weight, where it matters least."""
    side[side.index(max(side))] += missing


def _cumulative(values: Sequence[int], bits: int) -> list[int]:
    """The weights over 2**bits of proposals: differences of their rounded partial sums.

    A positive proposal gets at least the weight 1.
    """
    weights, exact, before = [], 0, 0
    for value in values:
        exact += value
        after = _nearest(exact, bits)
        weights.append(after - before if after > before or not value else 1)
        before = after
    return weights


def _nearest(value: int, bits: int) -> int:
    shift = SCALE - bits
    return (value + (1 << (shift - 1))) >> shift
