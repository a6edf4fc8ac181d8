"""The exact delta of a p-table, in four readings: assumptions about which counts it is applied to.

    designed      all rows as in the file
    zero_frozen   0 is published as 0, whatever row 0 says, as in every tool that applies p-tables
    from_n0       only counts n >= n0 (default 1)
    last_row      only counts that use the repeated rows: the last row against its own translation

Each is the maximum, over neighbouring counts n and m and both directions, of sum_j max(0, p(j|n) - E p(j|m)), where
p(j|n) is the probability that n is published as j, and E = e^epsilon is the order. Pairs beyond the last row repeat, so
finitely many pairs suffice.

**Guarantee.** Sums are over integers. Orders are Fractions: a lower bound of e^epsilon gives an upper bound of delta,
because delta(E) never increases with E.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from countveil.laws.privacy import Divergence
from countveil.ptables.table import PTable, Row

READINGS = ("designed", "zero_frozen", "from_n0", "last_row")


def hockey_stick(p: Row, q: Row, shift: int, order: Fraction | None) -> Fraction:
    """The divergence sum_j max(0, p(j) - order * q(j)) over published counts j.

    p and q are the laws of the noise at two counts; that of q is larger by `shift`. If `order` is None, it is infinite:
    the result is the probability under p of published counts that q does not have.

    >>> hockey_stick(Row(0, (2,), 2), Row(-1, (1, 1), 2), 1, Fraction(1))
    Fraction(1, 2)
    """
    if order is None:
        return Fraction(sum(w for v, w in p.items() if not q.weight(v - shift)), p.total)
    a, b = order.numerator, order.denominator
    excess = 0
    slot = p.least - shift - q.least
    other, width = q.weights, len(q.weights)
    for w in p.weights:
        x = b * w - a * other[slot] if 0 <= slot < width else b * w
        if x > 0:
            excess += x
        slot += 1
    return Fraction(excess, b * p.total)


def pair_divergence(p: Row, q: Row, n: int, order: Fraction | None) -> Divergence:
    """The larger divergence of the two directions between the counts n (whose law is p) and n + 1 (whose law is q)."""
    down = hockey_stick(p, q, 1, order)
    up = hockey_stick(q, p, -1, order)
    return Divergence(down, n, n + 1) if down >= up else Divergence(up, n + 1, n)


def pair_divergences(table: PTable, order: Fraction | None) -> list[Divergence]:
    """The divergence of each pair of counts (n, n + 1), n = 0..last; the count last + 1 uses the first repeated row."""
    known: dict[tuple[Row, Row], Divergence] = {}
    divergences = []
    for n in range(table.last + 1):
        p, q = table.row(n), table.row(n + 1)
        divergence = known.get((p, q))
        if divergence is None:
            divergence = known[p, q] = pair_divergence(p, q, n, order)
        down = divergence.n < divergence.m
        divergences.append(Divergence(divergence.value, n + (not down), n + down))
    return divergences


def readings(table: PTable, order: Fraction | None, n0: int = 1) -> dict[str, Divergence]:
    """The delta in each reading, with the pair of counts (n, m) that attains it.

    The probabilities of n are compared with those of m times `order`, which is e^epsilon, or None for infinity.
    """
    pairs = pair_divergences(table, order)
    frozen = table.freeze_zero()
    applied = [pair_divergence(frozen.row(0), frozen.row(1), 0, order), *pairs[1:], *pairs[table.last :]]
    beyond = table.last - table.repeat + 1
    return {
        "designed": worst(pairs),
        "zero_frozen": worst(applied),
        "from_n0": _first_from(worst(pairs[min(n0, beyond) :]), n0, table.repeat),
        "last_row": worst(pairs[beyond:]),
    }


def _first_from(divergence: Divergence, n0: int, repeat: int) -> Divergence:
    """The first pair of counts >= n0 with this divergence: pairs beyond the last row recur every `repeat` counts."""
    offset = max(0, -(-(n0 - min(divergence.n, divergence.m)) // repeat)) * repeat
    return Divergence(divergence.value, divergence.n + offset, divergence.m + offset)


def worst(divergences: Sequence[Divergence]) -> Divergence:
    """The largest divergence; the first one, if several are equal."""
    return max(divergences, key=lambda divergence: divergence.value)
