"""The audit of a p-table: its exact delta(epsilon) in four readings, figures for each row, and an explanation.

A reading is an assumption about which counts the table is applied to; `readings` lists the four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from countveil.display.cards import Card, Drawable
from countveil.errors import ParameterError
from countveil.laws.privacy import Divergence
from countveil.numeric.exact_numbers import Number, decimal_text, exp_bounds, integer, number
from countveil.ptables.lines import LARGEST_COUNT
from countveil.ptables.readings import READINGS, readings
from countveil.ptables.table import PTable

EPSILONS = ("0.5", "1", "2")
LARGEST_EPSILON = 100
CURVE_POINTS = 41
MOST_EPSILONS = 1000
BREAKS = (
    "the figures are for ONE published cell per person: a person who is in several tables, or in a cell and its "
    "margins, is protected by the composition of all of them, which is weaker (countveil plan)",
    "cells made of the same records share one cell key, so their noise is the same everywhere; cells that differ in "
    "one record have independent noise, and each is one more answer about that record",
    "a repeated query reveals nothing new only while record keys, table and data stay the same; with new record keys "
    "for the same data the noise can be averaged away",
    "record keys must be uniform, independent and secret; the table itself may be public",
)
"""What the guarantee of a p-table assumes, and where it ends."""


@dataclass(frozen=True, repr=False)
class Audit(Drawable):
    """The measured figures of one table.

    `deltas[reading][epsilon]` is an upper bound on delta: it is computed exactly, with e^epsilon rounded down.
    `floors[reading]` is the delta that remains at every epsilon: the probability of published counts that only one of
    two neighbouring counts can have. `curve` has the deltas for a whole range of epsilons, if they were asked for.
    """

    table: PTable
    n0: int
    deltas: dict[str, dict[Fraction, Divergence]]
    floors: dict[str, Fraction]
    curve: dict[Fraction, dict[str, Fraction]]

    def _line(self) -> str:
        words = (f"delta({_brief(e)})={_short(d.value)}" for e, d in self.deltas["designed"].items())
        return f"of {self.table!r}: {' '.join(words)}"

    def _card(self) -> Card:
        epsilons = list(self.deltas["designed"])
        head = ("delta, in the reading", *(f"at epsilon {_brief(e)}" for e in epsilons), "at any epsilon")
        rows = [
            (name, *(_short(self.deltas[name][e].value) for e in epsilons), _short(self.floors[name]))
            for name in READINGS
        ]
        facts = {"D": self.table.D, "rows": len(self.table.rows), "keys": self.table.keys}
        return Card("Audit of a p-table", facts, "", head, rows, len(rows), meaning(self))

    def delta(self, reading: str, epsilon: Number) -> Fraction:
        """The delta in one of the four readings (assumptions about the counts), at one of the audited epsilons.

        >>> from countveil.ptables.table import Row
        >>> coin = PTable((Row(0, (2,), 2), Row(-1, (1, 0, 1), 2)))
        >>> audit(coin, epsilons=["1"]).delta("designed", 1)
        Fraction(1, 1)
        """
        return self.deltas[reading][number("epsilon", epsilon)].value

    def describe(self) -> dict[str, object]:
        """The audit as plain JSON values; deltas are decimal texts, rounded up."""
        table = self.table
        return {
            "D": table.D,
            "last_row": table.last,
            "repeated_rows": table.repeat,
            "keys": table.keys,
            "zero_frozen_in_file": table.is_zero_frozen or table.keys is not None,  # no row for 0: no noise
            "n0": self.n0,
            "readings": [
                {
                    "reading": name,
                    "delta": {decimal_text(e): _up(d.value) for e, d in self.deltas[name].items()},
                    "worst_pair": {decimal_text(e): [d.n, d.m] for e, d in self.deltas[name].items()},
                    "delta_at_any_epsilon": _up(self.floors[name]),
                }
                for name in READINGS
            ],
            "curve": [
                {"epsilon": decimal_text(e), **{name: _up(value) for name, value in deltas.items()}}
                for e, deltas in self.curve.items()
            ],
            "rows": [
                {
                    "count": i,
                    "variance": decimal_text(row.variance),
                    "bias": decimal_text(row.mean),
                    "stay": decimal_text(row.stay),
                    "support": [i + row.least, i + row.greatest],
                    "outcomes": len(row.items()),
                }
                for i, row in enumerate(table.rows)
            ],
            "notes": list(table.notes),
        }


def audit(table: PTable, *, epsilons: Sequence[Number] = EPSILONS, n0: int = 1, curve: bool = False) -> Audit:
    """Measure a table at the given epsilons; with `curve`, also along a whole range of epsilons.

    **Guarantee.** e^epsilon is rounded DOWN, so every stated delta is an upper bound.
    """
    wanted = list(dict.fromkeys(_epsilon(e) for e in epsilons))
    if not 1 <= len(wanted) <= MOST_EPSILONS:
        raise ParameterError("epsilons", f"{len(wanted)} of them", f"1 to {MOST_EPSILONS} epsilons")
    start = integer("n0", n0, 0, LARGEST_COUNT)
    deltas = {e: readings(table, exp_bounds(e)[0], start) for e in wanted}
    floors = readings(table, None, start)
    points: dict[Fraction, dict[str, Fraction]] = {}
    if curve:
        top = max(Fraction(4), max(wanted) * Fraction(5, 4))
        for k in range(CURVE_POINTS):
            e = top * k / (CURVE_POINTS - 1)
            at = deltas[e] if e in deltas else readings(table, exp_bounds(e)[0], start)
            points[e] = {name: at[name].value for name in READINGS}
    return Audit(
        table=table,
        n0=start,
        deltas={name: {e: deltas[e][name] for e in wanted} for name in READINGS},
        floors={name: floors[name].value for name in READINGS},
        curve=points,
    )


def meaning(audit: Audit) -> list[str]:
    """Explain an audit in sentences, the most important first."""
    table = audit.table
    epsilon = min(audit.deltas["designed"], key=lambda e: abs(e - 1))
    at = {name: by_epsilon[epsilon].value for name, by_epsilon in audit.deltas.items()}
    sentences = [
        f"all rows have delta {_short(at['designed'])} at epsilon {_brief(epsilon)}: one person more or less in a cell "
        f"changes the probability of anything that can be published about it by a factor e^{_brief(epsilon)}, plus "
        f"{_short(at['designed'])}, at most"
    ]
    applied, nonzero = at["zero_frozen"], at["from_n0"]
    zero = audit.deltas["zero_frozen"][epsilon]
    if 0 in (zero.n, zero.m):
        some = Fraction(table.total - table.row(1).weight(-1), table.total)
        sentences.append(
            f"the tools always publish 0 as 0, so a cell of one person that is not published as 0 (probability "
            f"{_short(some)}) gives that person away: delta as applied {_short(applied)}"
        )
    if audit.n0 and applied > nonzero:
        public = "are empty" if audit.n0 == 1 else f"are below {audit.n0}"
        sentences.append(
            f"counts >= {audit.n0} alone have delta {_short(nonzero)}, the right figure only where it is public which "
            f"cells {public}"
        )
    n, m = audit.deltas["from_n0"][epsilon].n, audit.deltas["from_n0"][epsilon].m
    sentences.append(f"the worst pair of counts from {audit.n0} on: {n} against {m}")
    floor = audit.floors["from_n0"]
    if floor:
        sentences.append(
            f"{_short(floor)} remains at any epsilon: published counts that only one of two neighbours can have"
        )
    if table.keys is not None:
        sentences.append(
            f"{table.keys} equally likely cell keys: no delta is below 1/{table.keys} = "
            f"{_short(Fraction(1, table.keys))}"
        )
    biased = [i for i, row in enumerate(table.rows) if abs(row.mean) > Fraction(1, 10**6)]
    if biased:
        worst = max(biased, key=lambda i: abs(table.rows[i].mean))
        bias = decimal_text(table.rows[worst].mean, 3)
        sentences.append(f"{len(biased)} rows have a bias; the largest is {bias}, at count {worst}")
    return sentences


def list_worse_readings(table: PTable, incumbent: PTable, epsilon: Fraction) -> list[str]:
    """List the readings in which `table` has a larger delta than the incumbent, at this epsilon and at half of it."""
    sentences = []
    for e in (epsilon, epsilon / 2):
        order = exp_bounds(e)[0]
        ours, theirs = readings(table, order), readings(incumbent, order)
        worse = [
            f"{name} ({_short(ours[name].value)} instead of {_short(theirs[name].value)})"
            for name in READINGS
            if ours[name].value > theirs[name].value
        ]
        if worse:
            sentences.append(f"at epsilon {_brief(e)} delta is larger than the incumbent's in {', '.join(worse)}")
    return sentences


def _epsilon(given: object) -> Fraction:
    allowed = f"a decimal number from 0 to {LARGEST_EPSILON}"
    value = number("epsilon", given, allowed)
    if not 0 <= value <= LARGEST_EPSILON:
        raise ParameterError("epsilon", given, allowed)
    return value


def _up(x: Fraction) -> str:
    return decimal_text(x, rounding="up")


def _short(x: Fraction) -> str:
    return decimal_text(x, 3, "up")


def _brief(x: Fraction) -> str:
    return decimal_text(x, 6)
