"""The explore page with the parameters of statistical offices (D, V, pstay, js): designs a table of the cell-key
method.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from countveil.numeric.exact_numbers import decimal_text
from countveil.ptables import audit, design
from countveil.ptables.design import Designed
from countveil.ptables.table import PTable

FIELDS = ("epsilon", "D", "V", "pstay", "js")
DEFAULTS = {"epsilon": "1", "D": "5", "V": "2", "js": "0"}
SHOWN = 13


def make_view(fields: Mapping[str, str]) -> dict[str, Any]:
    """The facts about the designed table, and the numbers of its pictures."""
    designed = _design_table(tuple(sorted(fields.items())))
    table, epsilon = designed.table, designed.spec.epsilon
    report = audit(table, epsilons=[epsilon])
    readings = [
        {"reading": each["reading"], "delta": decimal_text(Fraction(next(iter(each["delta"].values()))), 3, "up")}
        for each in report.describe()["readings"]  # type: ignore[attr-defined]
    ]
    stay = [Fraction(dict(row.items()).get(0, 0), row.total) for row in table.rows]
    return {
        "facts": {
            "epsilon": decimal_text(epsilon),
            "readings": readings,
            "D": table.D,
            "variance": decimal_text(designed.largest_variance, 4, "up"),
            "stay": decimal_text(100 * min(stay[1:]), 3),
            "last_stay": decimal_text(100 * stay[-1], 3),
            "rows": len(table.rows),
        },
        "noise": noise_rows(table),
        "small": small_count_rows(table),
        "notes": list(designed.notes),
        "command": write_command(fields),
        "python": write_python(fields),
    }


def write_command(fields: Mapping[str, str]) -> str:
    """The command that designs this table, even if the service cannot design it in time."""
    given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in fields.items())
    return f"countveil ptable design {given} -o ptable.csv"


def write_python(fields: Mapping[str, str]) -> str:
    """Python code that designs this table."""
    given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"from countveil import ptables\n\nptables.save(ptables.design({given}).table, 'ptable.csv')"


def write_file(fields: Mapping[str, str]) -> dict[str, Any]:
    """The table as text in the format of tau-Argus."""
    designed = _design_table(tuple(sorted(fields.items())))
    return {"text": "".join(designed.format.write(designed.table))}


@lru_cache(maxsize=32)
def _design_table(items: tuple[tuple[str, str], ...]) -> Designed:
    return design(**dict(items))  # type: ignore[arg-type]


def noise_rows(table: PTable) -> list[dict[str, Any]]:
    """For each noise z in the table's last row: its probability p, and whether z is `within` the 95 % margin."""
    row = table.rows[-1]
    weights = dict(row.items())
    margin = next(
        m for m in range(table.D + 1) if 20 * sum(weights.get(z, 0) for z in range(-m, m + 1)) >= 19 * row.total
    )
    reach = range(-table.D, table.D + 1)
    return [{"z": z, "p": weights.get(z, 0) / row.total, "within": abs(z) <= margin} for z in reach]


def small_count_rows(table: PTable) -> list[dict[str, Any]]:
    """The probability p of each published count y, for the smallest true counts n; `exact` says whether y equals n."""
    published = range(SHOWN + table.D)
    rows = []
    for n in range(SHOWN):
        weights = dict(table.row(n).items())
        rows += [
            {"n": n, "y": y, "last": y, "p": weights.get(y - n, 0) / table.total, "exact": y == n} for y in published
        ]
    return rows
