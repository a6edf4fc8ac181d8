"""The same in the words of statistical offices: D, V, pstay, js, and a table of the cell-key method."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from countveil.exact import decimal_text
from countveil.ptables import audit, design
from countveil.ptables.design import Designed
from countveil.ptables.table import PTable

FIELDS = ("epsilon", "D", "V", "pstay", "js")
DEFAULTS = {"epsilon": "1", "D": "5", "V": "2", "js": "0"}
SHOWN = 13


def shown(fields: Mapping[str, str]) -> dict[str, Any]:
    """What the table protects, and the rows of its pictures."""
    made = _made(tuple(sorted(fields.items())))
    table, epsilon = made.table, made.spec.epsilon
    judged = audit(table, epsilons=[epsilon])
    readings = [
        {"reading": each["reading"], "delta": decimal_text(Fraction(next(iter(each["delta"].values()))), 3, "up")}
        for each in judged.describe()["readings"]  # type: ignore[attr-defined]
    ]
    stay = [Fraction(dict(row.items()).get(0, 0), row.total) for row in table.rows]
    return {
        "facts": {
            "epsilon": decimal_text(epsilon),
            "readings": readings,
            "D": table.D,
            "variance": decimal_text(made.largest_variance, 4, "up"),
            "stay": decimal_text(100 * min(stay[1:]), 3),
            "last_stay": decimal_text(100 * stay[-1], 3),
            "rows": len(table.rows),
        },
        "noise": noise(table),
        "small": small(table),
        "notes": list(made.notes),
        "command": command(fields),
        "python": python(fields),
    }


def command(fields: Mapping[str, str]) -> str:
    """The command that makes it, whether or not it can be made here in time."""
    given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in fields.items())
    return f"countveil ptable design {given} -o ptable.csv"


def python(fields: Mapping[str, str]) -> str:
    """The same in Python."""
    given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"from countveil import ptables\n\nptables.save(ptables.design({given}).table, 'ptable.csv')"


def file(fields: Mapping[str, str]) -> dict[str, Any]:
    """The table as tau-Argus reads it."""
    made = _made(tuple(sorted(fields.items())))
    return {"text": "".join(made.format.write(made.table))}


@lru_cache(maxsize=32)
def _made(items: tuple[tuple[str, str], ...]) -> Designed:
    return design(**dict(items))  # type: ignore[arg-type]


def noise(table: PTable) -> list[dict[str, Any]]:
    """{z, p, within} of the last row, from -D to D."""
    row = table.rows[-1]
    found = dict(row.items())
    margin = next(
        m for m in range(table.D + 1) if 20 * sum(found.get(z, 0) for z in range(-m, m + 1)) >= 19 * row.total
    )
    reach = range(-table.D, table.D + 1)
    return [{"z": z, "p": found.get(z, 0) / row.total, "within": abs(z) <= margin} for z in reach]


def small(table: PTable) -> list[dict[str, Any]]:
    """{n, y, last, p, exact}: where the first true counts go."""
    columns = range(SHOWN + table.D)
    rows = []
    for n in range(SHOWN):
        found = dict(table.row(n).items())
        rows += [{"n": n, "y": y, "last": y, "p": found.get(y - n, 0) / table.total, "exact": y == n} for y in columns]
    return rows
