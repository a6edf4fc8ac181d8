"""The exact delta of a p-table, in four readings.

    designed      all rows as they are
    zero_frozen   row 0 replaced by 0 -> 0, as every tool that applies p-tables does
    from_n0       only counts n >= n0 (1 unless said otherwise)
    last_row      only counts that use the repeated rows: the last row against its own translation

Each is the maximum, over neighbouring counts (n, n + 1) and both directions, of sum_j max(0, p(j|n) - E p(j|m)).
Pairs beyond the last row repeat, so finitely many represent all.

**Guarantee.** Sums are over integers. Orders are Fractions: with a lower bound of e^epsilon the result is an upper
bound of delta, because delta(E) never increases with E.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from countveil.privacy import Divergence
from countveil.ptables.table import PTable, Row

READINGS = ("designed", "zero_frozen", "from_n0", "last_row")


def hockey_stick(p: Row, q: Row, shift: int, order: Fraction | None) -> Fraction:
    """sum_j max(0, p(j) - order * q(j)), where q is the law of noise at a count that is larger by `shift`.

    Without an order (an infinite one): the mass of p where q has none.

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
    """The larger of both directions, for the counts n (law p) and n + 1 (law q)."""
    down = hockey_stick(p, q, 1, order)
    up = hockey_stick(q, p, -1, order)
    return Divergence(down, n, n + 1) if down >= up else Divergence(up, n + 1, n)


def pair_divergences(table: PTable, order: Fraction | None) -> list[Divergence]:
    """For every pair (n, n + 1), n = 0..last; the last one leads back to the first repeated row, translated."""
    known: dict[tuple[Row, Row], Divergence] = {}
    found = []
    for n in range(table.last + 1):
        p, q = table.row(n), table.row(n + 1)
        same = known.get((p, q))
        if same is None:
            same = known[p, q] = pair_divergence(p, q, n, order)
        down = same.n < same.m
        found.append(Divergence(same.value, n + (not down), n + down))
    return found


def readings(table: PTable, order: Fraction | None, n0: int = 1) -> dict[str, Divergence]:
    """The delta of each reading, and where it is attained: p(.|n) against E p(.|m)."""
    pairs = pair_divergences(table, order)
    frozen = table.frozen()
    applied = [pair_divergence(frozen.row(0), frozen.row(1), 0, order), *pairs[1:], *pairs[table.last :]]
    beyond = table.last - table.repeat + 1
    return {
        "designed": worst(pairs),
        "zero_frozen": worst(applied),
        "from_n0": _from(worst(pairs[min(n0, beyond) :]), n0, table.repeat),
        "last_row": worst(pairs[beyond:]),
    }


def _from(found: Divergence, n0: int, repeat: int) -> Divergence:
    """The same pair where it occurs first among counts >= n0: pairs beyond the last row come again every `repeat`."""
    again = max(0, -(-(n0 - min(found.n, found.m)) // repeat)) * repeat
    return Divergence(found.value, found.n + again, found.m + again)


def worst(found: Sequence[Divergence]) -> Divergence:
    """The largest; of equal ones the first."""
    return max(found, key=lambda divergence: divergence.value)
