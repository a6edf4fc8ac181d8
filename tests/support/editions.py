"""Small editions of publications, derived from measurements of known counts and written to a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import countveil as cv
from countveil.config.publications import DeclaredPublication, DeclaredTable
from countveil.consistency.reconciler import read_law
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.edition import Edition
from countveil.publication.folder import Folder
from countveil.publication.layout import Layout, lay_out
from countveil.publication.writing import Facts, write_edition
from countveil.query.schema import Column, Schema

REGIONS = ("North", "South", "East", "West")
GUARANTEE: dict[str, Any] = {
    "epsilon": "3",
    "delta": "1e-6",
    "neighbours": "add-remove",
    "answers": 6,
    "pool": "people",
    "covers": "all answers of the pool together, those of all editions included",
}


@cache
def mechanism(sensitivity: int = 1, bits: int | None = None) -> Mechanism:
    """The mechanism of measured tables of which one person changes a cell by at most `sensitivity`."""
    return cv.design(epsilon="1", delta="1e-3", policy="signed", sensitivity=sensitivity, bits=bits)


def make_edition(
    regions: Sequence[str] = REGIONS,
    *,
    estimate: str = "nearest",
    margins: bool = True,
    ages: int = 3,
    rows: int = 1,
    cells: int = 1,
    order: Sequence[int] = (0, 1, 2),
    bits: int | None = None,
) -> Edition:
    """An edition by region, and by region and age group; a few of its cells are truly empty."""
    columns_of = (), ("region",), ("region", "age")
    tables = tuple(DeclaredTable(columns_of[i]) for i in order)
    across = (DeclaredTable(("age",)),) if margins else ()
    declared = DeclaredPublication("yearbook", "people", tables, Path("out"), 2, across, estimate=estimate)
    region = Column("region", "text", values=tuple(regions))
    columns = region, Column("age", "integer", low=0, high=ages - 1)
    layout = lay_out(declared, Schema("people", columns, unit="id", rows_per_person=rows, cells_per_person=cells))
    mechanisms = {table.name: mechanism(layout.sensitivity_of(table)[0], bits) for table in tables}
    return Edition(layout, mechanisms, _measure(layout, mechanisms), ["aa11", "bb22", "cc33"])


def _measure(layout: Layout, mechanisms: Mapping[str, Mechanism]) -> dict[str, Any]:
    """Every table with noise of its law, from a fixed seed."""
    rng = np.random.default_rng(7)
    truth = (rng.pareto(0.8, layout.question.cells) * 4).astype(np.int64)
    measured = {}
    for table in layout.tables:
        law, sums = read_law("", mechanisms[table.name]), layout.sum_table(truth, table)
        weights = np.array(law.weights, dtype=float) / sum(law.weights)
        noise = rng.choice(np.arange(-law.left, law.right + 1), len(sums), p=weights / weights.sum())
        measured[table.name] = sums + noise
    return measured


def write_small(
    folder: Path, edition: Edition | None = None, *, number: int = 1, version: int = 1, **guarantee: Any
) -> Folder:
    """An edition in a folder, the first on the first version of its data; `guarantee` are changed terms."""
    edition = make_edition() if edition is None else edition
    facts = Facts(
        edition=number,
        version=version,
        time="2026-03-01T12:00:00+00:00",
        receipts=("aa11", "bb22", "cc33"),
        guarantee={**GUARANTEE, **guarantee},
        truth=asdict(edition.layout.question.truth),
    )
    return write_edition(folder, edition, facts, "csv")
