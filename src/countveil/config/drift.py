"""Whether new data still fits the schema that was declared for earlier data. The results reveal data: for the curator
only.

A scheduled job inspects before it counts. If a new region appears that the declared list lacks, tables by region would
silently leave out its people; `countveil inspect --strict` stops the job instead.
"""

from __future__ import annotations

from fractions import Fraction

from countveil.config.profile import Inspection
from countveil.errors import DataError

SHARE = "0.001"
"""The default for the share of rows, or of people, that may be left out."""


def find_drift(inspection: Inspection, share: Fraction) -> list[str]:
    """Where more than `share` of the rows or people is left out of tables; one line of text for each case."""
    parts = [
        (f"{column.name}: {{}} of rows are outside the domain", column.outside, column.rows)
        for column in inspection.columns
    ]
    people = inspection.people
    if people is not None:
        parts.append(("unit: {} of rows have no person", people.unnamed, people.rows))
        parts.append(("bounds: {} of people have more rows than one table counts", people.over, people.people))
    return [text.format(write_share(n, of)) for text, n, of in parts if n > share * of]


def check_drift(inspections: list[Inspection], share: Fraction) -> None:
    """Raise an error if more than `share` of the rows or people is left out."""
    lines = [f"{each.dataset}, {line}" for each in inspections for line in find_drift(each, share)]
    if lines:
        allowed = write_share(share.numerator, share.denominator)
        raise DataError(f"{'; '.join(lines)}; at most {allowed} may be left out: mend the data or declare new values")


def write_share(n: int, of: int) -> str:
    """The share n / of as a percentage that is never rounded to 0 % or 100 %.

    >>> write_share(5, 40), write_share(1, 3_000_000), write_share(3, 3)
    ('12.5 %', '3.33e-05 %', '100 %')
    """
    percent = 100 * n / of
    return f"{percent:.3g} %" if percent < 0.1 or percent in (0, 100) else f"{min(percent, 99.9):.3g} %"
