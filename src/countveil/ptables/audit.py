"""What a p-table protects: its exact delta(epsilon) in four readings, and what each row does to a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from countveil.errors import ParameterError
from countveil.exact import Number, decimal_text, exp_bounds, integer, number
from countveil.privacy import Divergence
from countveil.ptables.lines import LARGEST_COUNT
from countveil.ptables.measure import READINGS, readings
from countveil.ptables.table import PTable

EPSILONS = ("0.5", "1", "2")
LARGEST_EPSILON = 100
CURVE_POINTS = 41
MOST_EPSILONS = 1000


@dataclass(frozen=True)
class Audit:
    """The figures of one table. `deltas[reading][epsilon]` is exact at a lower bound of e^epsilon, so an upper bound.

    `floors[reading]` is what no epsilon gets below: the mass of outcomes that only one of two neighbours can have.
    """

    table: PTable
    n0: int
    deltas: dict[str, dict[Fraction, Divergence]]
    floors: dict[str, Fraction]
    curve: dict[Fraction, dict[str, Fraction]]

    def delta(self, reading: str, epsilon: Number) -> Fraction:
        """The delta of one reading, at one of the epsilons that were asked for.

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
                    "delta": {_t(e): _up(d.value) for e, d in self.deltas[name].items()},
                    "worst_pair": {_t(e): [d.n, d.m] for e, d in self.deltas[name].items()},
                    "delta_at_any_epsilon": _up(self.floors[name]),
                }
                for name in READINGS
            ],
            "curve": [
                {"epsilon": _t(e), **{name: _up(value) for name, value in found.items()}}
                for e, found in self.curve.items()
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
    """Measure a table at some epsilons, and (`curve`) along a whole range of them.

    **Guarantee.** e^epsilon is rounded DOWN, so no delta is stated smaller than it is.
    """
    wanted = list(dict.fromkeys(_epsilon(e) for e in epsilons))
    if not 1 <= len(wanted) <= MOST_EPSILONS:
        raise ParameterError("epsilon", len(wanted), f"between 1 and {MOST_EPSILONS} of them")
    start = integer("n0", n0, 0, LARGEST_COUNT)
    found = {e: readings(table, exp_bounds(e)[0], start) for e in wanted}
    floors = readings(table, None, start)
    points: dict[Fraction, dict[str, Fraction]] = {}
    if curve:
        top = max(Fraction(4), max(wanted) * Fraction(5, 4))
        for k in range(CURVE_POINTS):
            e = top * k / (CURVE_POINTS - 1)
            at = found[e] if e in found else readings(table, exp_bounds(e)[0], start)
            points[e] = {name: at[name].value for name in READINGS}
    return Audit(
        table=table,
        n0=start,
        deltas={name: {e: found[e][name] for e in wanted} for name in READINGS},
        floors={name: floors[name].value for name in READINGS},
        curve=points,
    )


def _epsilon(given: object) -> Fraction:
    allowed = f"a decimal number from 0 to {LARGEST_EPSILON}"
    value = number("epsilon", given, allowed)
    if not 0 <= value <= LARGEST_EPSILON:
        raise ParameterError("epsilon", given, allowed)
    return value


def _t(x: Fraction) -> str:
    return decimal_text(x)


def _up(x: Fraction) -> str:
    return decimal_text(x, rounding="up")
