"""What the figures of a p-table mean, in plain words, and what breaks the guarantee."""

from __future__ import annotations

from fractions import Fraction

from countveil.exact import decimal_text, exp_bounds
from countveil.ptables.audit import Audit
from countveil.ptables.measure import READINGS, readings
from countveil.ptables.table import PTable

BREAKS = (
    "the figures are for ONE published cell per person: a person who is in several tables, or in a cell and its "
    "margins, is protected by the composition of all of them, which is weaker (countveil plan)",
    "cells made of the same records share one key, so their noise is the same everywhere; cells that differ in one "
    "record have independent noise, and each is one more answer about that record",
    "asking again gives nothing new only while keys, table and data stay the same; new keys for the same data average "
    "the noise away",
    "record keys must be uniform, independent and secret; the table itself may be public",
)
"""What the guarantee rests on."""


def meaning(audit: Audit) -> list[str]:
    """Sentences about one audit, the most important first."""
    table = audit.table
    epsilon = min(audit.deltas["designed"], key=lambda e: abs(e - 1))
    at = {name: found[epsilon].value for name, found in audit.deltas.items()}
    found = [
        f"all rows have delta {_short(at['designed'])} at epsilon {_t(epsilon)}: one person more or less in a cell "
        f"changes the probability of anything that can be published about it by a factor e^{_t(epsilon)}, plus "
        f"{_short(at['designed'])}, at most"
    ]
    applied, nonzero = at["zero_frozen"], at["from_n0"]
    zero = audit.deltas["zero_frozen"][epsilon]
    if 0 in (zero.n, zero.m):
        some = Fraction(table.total - table.row(1).weight(-1), table.total)
        found.append(
            f"the tools always publish 0 as 0, so a cell of one person that is not published as 0 (probability "
            f"{_short(some)}) gives that person away: delta as applied {_short(applied)}"
        )
    if audit.n0 and applied > nonzero:
        public = "are empty" if audit.n0 == 1 else f"are below {audit.n0}"
        found.append(
            f"counts >= {audit.n0} alone have delta {_short(nonzero)}, the right figure only where it is public which "
            f"cells {public}"
        )
    n, m = audit.deltas["from_n0"][epsilon].n, audit.deltas["from_n0"][epsilon].m
    found.append(f"the worst pair of counts from {audit.n0} on: {n} against {m}")
    floor = audit.floors["from_n0"]
    if floor:
        found.append(
            f"{_short(floor)} is left at any epsilon: published counts that only one of two neighbours can have"
        )
    if table.keys is not None:
        found.append(
            f"{table.keys} equally likely keys: no delta is below 1/{table.keys} = {_short(Fraction(1, table.keys))}"
        )
    biased = [i for i, row in enumerate(table.rows) if abs(row.mean) > Fraction(1, 10**6)]
    if biased:
        worst = max(biased, key=lambda i: abs(table.rows[i].mean))
        bias = decimal_text(table.rows[worst].mean, 3)
        found.append(f"{len(biased)} rows have a bias; the largest is {bias}, at count {worst}")
    return found


def compared(table: PTable, incumbent: PTable, epsilon: Fraction) -> list[str]:
    """The readings in which the incumbent is better after all, at this epsilon and at half of it."""
    found = []
    for e in (epsilon, epsilon / 2):
        order = exp_bounds(e)[0]
        ours, theirs = readings(table, order), readings(incumbent, order)
        worse = [
            f"{name} ({_short(ours[name].value)}, not {_short(theirs[name].value)})"
            for name in READINGS
            if ours[name].value > theirs[name].value
        ]
        if worse:
            found.append(f"at epsilon {_t(e)} worse than the incumbent in these readings: {', '.join(worse)}")
    return found


def _short(x: Fraction) -> str:
    return decimal_text(x, 3, "up")


def _t(x: Fraction) -> str:
    return decimal_text(x, 6)
