"""What `manifest.json` says of an edition, and the form that it has.

**Guarantee.** In a manifest for which `check_form` finds nothing, every member is there, no other is, and each is of
the kind that readers expect. Whether it is true is another question: see `verification`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import countveil
from countveil.errors import ParameterError, shorten
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import number
from countveil.publication.edition import RULE, Edition, PublishedMargin, PublishedTable
from countveil.publication.folder import DEPLOYMENT, FORMAT, FORMATS, REPORT, VERSION, kinds_of, name_file
from countveil.publication.registry import NEIGHBOURS, POST_PROCESSING

LARGEST_EPSILON = 10**6
NUMBERS = ("count", "low", "high", "certain_low", "certain_high")
"""The columns that every table has; after them come `measured` if it was, `quality`, and `part_of` if it is a part."""
SUMS = ("estimate", "low", "high", "sum_of_cells", "gap")


# -- what it says ------------------------------------------------------------------------------------------------------


def describe_edition(edition: Edition) -> dict[str, Any]:
    """What a manifest says of an edition that follows from its measurements, without its tables and margins."""
    return {
        "estimate": edition.layout.declared.estimate,
        "intervals": describe_intervals(edition.reconciliation.claim),
        "quality": RULE,
        "digest": edition.layout.digest,
        "receipts": list(edition.receipt_of.values()),
        "uniform": edition.reconciliation.uniform,
    }


def describe_intervals(claim: str) -> str:
    return f"95 % for {claim}; certain bounds hold always"


def describe_table(table: PublishedTable, place: int, style: str) -> dict[str, Any]:
    """The entry of the table with the index `place`, without what it was measured with and the hash of its file."""
    return {
        "name": table.name,
        "by": list(table.by),
        "rows": len(table),
        "coarser": table.coarser,
        "measured": table.measured,
        "margin_published": table.margin_published,
        "file": name_file("tables", place, table.by, style),
        "kinds": kinds_of(table.columns),
    }


def describe_law(table: PublishedTable, place: int, mechanism: Mechanism) -> dict[str, Any]:
    """The entry of the law that a table was measured with, without the hash of its file."""
    return {
        "file": name_file("laws", place, table.by, "json"),
        "mechanism": mechanism.hash,
        "margin_95": mechanism.margin_95,
        "D": mechanism.D,
    }


def describe_margin(margin: PublishedMargin, place: int, style: str) -> dict[str, Any]:
    """The entry of the margin with the index `place`, without the hash of its file."""
    return {
        "name": margin.name,
        "by": list(margin.by),
        "rows": len(margin.columns["estimate"]),
        "table": margin.table,
        "file": name_file("margins", place + 1, margin.by, style),
        "kinds": kinds_of(margin.columns),
    }


def describe_file(manifest: Mapping[str, Any], table: str) -> dict[str, Any]:
    """What the metadata of the Parquet file of a table or a margin say."""
    return {"publication": manifest["name"], "table": table, "truth": manifest["truth"]}


def describe_version() -> str:
    return f"countveil {countveil.__version__}"


# -- its form ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of values: what they are in words, and whether a value is one."""

    words: str
    holds: Callable[[Any], bool]


def _one_of(*values: object) -> Kind:
    words = " or ".join("null" if value is None else str(value).lower() for value in values)
    return Kind(words, lambda given: any(type(given) is type(value) and given == value for value in values))


def _is_number(given: object, least: int = 0) -> bool:
    return type(given) is int and least <= given < 2**63


def _is_epsilon(given: object) -> bool:
    if isinstance(given, str) and re.fullmatch(r"unknown(, at most [0-9]+ answers)?", given):
        return True
    return _is_decimal(given) and 0 < number("epsilon", given) <= LARGEST_EPSILON


def _is_decimal(given: object) -> bool:
    try:
        return isinstance(given, str) and number("", given) is not None
    except ParameterError:
        return False


TEXT = Kind("a text", lambda given: isinstance(given, str) and given != "")
NUMBER = Kind("a whole number", _is_number)
POSITIVE = Kind("a whole number from 1", lambda given: _is_number(given, 1))
HASH = Kind("a SHA-256", lambda given: isinstance(given, str) and bool(re.fullmatch("[0-9a-f]{64}", given)))
EPSILON = Kind(f"a decimal number above 0, up to {LARGEST_EPSILON:,}, or the word unknown", _is_epsilon)
DELTA = Kind("a decimal number from 0 to below 1", lambda given: _is_decimal(given) and 0 <= number("delta", given) < 1)
COLUMN_KINDS = Kind(
    "an object with the kind of every column",
    lambda given: isinstance(given, dict) and set(map(str, given.values())) <= {"integer", "boolean", "date", "text"},
)
LAW = {"file": TEXT, "mechanism": HASH, "margin_95": NUMBER, "D": NUMBER, "sha256": HASH}
TABLE = {
    "name": TEXT,
    "by": [TEXT],
    "rows": POSITIVE,
    "margin_published": NUMBER,
    "file": TEXT,
    "kinds": COLUMN_KINDS,
    "sha256": HASH,
    "coarser": Kind("the name of a table, or null", lambda given: given is None or TEXT.holds(given)),
}
MEASURED = {**TABLE, "measured": _one_of(True), "law": LAW, "receipt": TEXT, "cells_per_person": POSITIVE}
UNMEASURED = {**TABLE, "measured": _one_of(False), "law": _one_of(None)}
MARGIN = {
    "name": TEXT,
    "by": [TEXT],
    "rows": POSITIVE,
    "table": TEXT,
    "file": TEXT,
    "kinds": COLUMN_KINDS,
    "sha256": HASH,
}
FORM = {
    "format": _one_of(FORMAT),
    "version": _one_of(VERSION),
    "name": TEXT,
    "dataset": TEXT,
    "edition": POSITIVE,
    "data_version": POSITIVE,
    "time": TEXT,
    "made_with": TEXT,
    "guarantee": {
        "epsilon": EPSILON,
        "delta": DELTA,
        "neighbours": _one_of(*NEIGHBOURS),
        "answers": POSITIVE,
        "pool": TEXT,
        "covers": TEXT,
    },
    "truth": {
        "text": TEXT,
        "interval": TEXT,
        "counted": _one_of("rows", "people"),
        "unit": TEXT,
        "rows_per_person": POSITIVE,
        "cells_per_person": POSITIVE,
        "bounded": _one_of(False, True),
    },
    "estimate": _one_of(*POST_PROCESSING),
    "intervals": TEXT,
    "quality": TEXT,
    "digest": HASH,
    "receipts": [TEXT],
    "uniform": Kind("a text, or null", lambda given: given is None or TEXT.holds(given)),
    "tables": [lambda entry: MEASURED if isinstance(entry, dict) and entry.get("law") else UNMEASURED],
    "margins": [MARGIN],
    "files": {REPORT: HASH, DEPLOYMENT: HASH},
}


def check_form(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the form of a manifest, in words."""
    wrong = [*_compare(manifest, FORM, "")]
    yield from wrong or _check_names(manifest)


def _compare(given: Any, form: Any, where: str) -> Iterator[str]:
    """Where a value differs from a form: a Kind, a list with the form of every item, or the forms of all members."""
    if isinstance(form, Kind):
        if not form.holds(given):
            yield f"{where} is {shorten(given)}, not {form.words}"
    elif isinstance(form, list):
        if not isinstance(given, list):
            yield f"{where} is {shorten(given)}, not a list"
            return
        for i, each in enumerate(given):
            own = form[0](each) if callable(form[0]) else form[0]
            yield from _compare(each, own, f"{where}[{i}]")
    elif not isinstance(given, dict):
        yield f"{where} is {shorten(given)}, not an object"
    else:
        prefix = f"{where}." if where else ""
        for name in {**form, **given}:
            if name not in given:
                yield f"{prefix}{name} is missing"
            elif name not in form:
                yield f"{prefix}{shorten(name)} is not a member of a manifest"
            else:
                yield from _compare(given[name], form[name], f"{prefix}{name}")


def _check_names(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Tables and margins whose names or columns are not as they have to be; the manifest has the right form."""
    tables, margins = manifest["tables"], manifest["margins"]
    names = [each["name"] for each in (*tables, *margins)]
    if len(set(names)) < len(names):
        yield "two tables or margins have the same name"
    first = tables[0] if tables else {}
    if (first.get("name"), first.get("by"), first.get("coarser")) != ("total", [], None):
        yield "the first table is not the total"
    if first and Path(first["file"]).suffix[1:] not in FORMATS:
        yield f"tables[0].file is {shorten(first['file'])}, not a file of the formats {', '.join(FORMATS)}"
    for i, each in enumerate(tables):
        if i and each["coarser"] not in names[:i]:
            yield f"tables[{i}].coarser is {shorten(each['coarser'])}, not an earlier table"
        labels = [*each["by"], *(column for m in margins if m["table"] == each["name"] for column in m["by"])]
        numbers = [*NUMBERS, *["measured"] * each["measured"], "quality", *["part_of"] * bool(i)]
        yield from _check_columns(each, f"tables[{i}]", labels, numbers)
    for i, each in enumerate(margins):
        if each["table"] not in names[: len(tables)]:
            yield f"margins[{i}].table is {shorten(each['table'])}, not a table"
        yield from _check_columns(each, f"margins[{i}]", each["by"], SUMS)


def _check_columns(entry: Mapping[str, Any], where: str, labels: list[str], numbers: Any) -> Iterator[str]:
    by, kinds = entry["by"], entry["kinds"]
    if len(set(by)) < len(by) or (by and entry["name"] != "*".join(by)):
        yield f"{where}.name is {shorten(entry['name'])}, not that of its columns"
    wanted = {name: "text" if name == "quality" else "integer" for name in numbers}
    if list(kinds) != [*dict.fromkeys(labels), *wanted] or {name: kinds[name] for name in wanted} != wanted:
        yield f"{where}.kinds has other columns than the files of this format"
