"""Whether new data still fits the schema that was declared for earlier data. The results reveal data: for the curator
only.

A scheduled job inspects before it counts. If a new region appears that the declared list lacks, tables by region would
silently leave out its people; so would a region that is suddenly blank. `countveil inspect --strict` stops the job
instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from countveil.config.inspections import Facts
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
    if inspection.impossible is not None:
        parts.append(("cells: {} of rows are in no possible cell", inspection.impossible, inspection.rows))
    people = inspection.people
    if people is not None:
        parts.append(("unit: {} of rows have no person", people.unnamed, people.rows))
        parts.append(("bounds: {} of people have more rows than one table counts", people.over, people.people))
    return [text.format(write_share(n, of)) for text, n, of in parts if n > share * of]


def find_new_nulls(inspection: Inspection, share: Fraction, earlier: Facts | None) -> list[str]:
    """Where the share of NULLs has grown by more than `share` since an earlier inspection; one line for each column."""
    lines = []
    for column in inspection.columns:
        old = None if earlier is None else earlier["columns"].get(column.name)
        if old is None:
            continue
        rows = max(old["inside"] + old["null"] + old["outside"], 1)  # of no rows, none is NULL
        if column.null * rows > (share * rows + old["null"]) * column.rows:
            now, before = write_share(column.null, column.rows), write_share(old["null"], rows)
            lines.append(f"{column.name}: {now} of rows are NULL, {before} at the last inspection")
    return lines


def check_drift(inspections: list[Inspection], share: Fraction, earlier: Mapping[str, Facts]) -> None:
    """Raise an error if a source has no rows, if more than `share` of the rows or people is left out, or if the share
    of NULLs has grown by more than `share` since the `earlier` inspection of the dataset."""
    empty = [each.dataset for each in inspections if not each.rows]
    if empty:
        raise DataError(f"{', '.join(empty)}: the source has no rows; with --strict it needs at least one")
    outside = [f"{each.dataset}, {line}" for each in inspections for line in find_drift(each, share)]
    nulls = [
        f"{each.dataset}, {line}"
        for each in inspections
        for line in find_new_nulls(each, share, earlier.get(each.dataset))
    ]
    allowed = write_share(share.numerator, share.denominator)
    reasons = []
    if outside:
        reasons.append(f"{'; '.join(outside)}; at most {allowed} may be left out: mend the data or declare new values")
    if nulls:
        reasons.append(
            f"{'; '.join(nulls)}; at most {allowed} more may be NULL: mend the data, or accept it by an inspection "
            "with --since and without --strict"
        )
    if reasons:
        raise DataError("; ".join(reasons))


def write_share(n: int, of: int) -> str:
    """The share n / of as a percentage that is never rounded to 0 % or 100 %.

    >>> write_share(5, 40), write_share(1, 3_000_000), write_share(3, 3)
    ('12.5 %', '3.33e-05 %', '100 %')
    """
    percent = 100 * n / of
    return f"{percent:.3g} %" if percent < 0.1 or percent in (0, 100) else f"{min(percent, 99.9):.3g} %"
