"""Synthetic visitors: 20,000 invented overnight guests, the same every time, for the publication of the demo.

They are other people than those of the census, so they have a budget of their own.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from countveil.demo.census import TOWNS
from countveil.files.durable_files import open_output

VISITORS = 20_000
PURPOSES = ("holiday", "business", "family")
NAME = "yearbook"
CONFIG = """\
# Synthetic visitors: invented people, so that everything can be shown.
[dataset.visitors]
source = "visitors.csv"
unit = "visitor"

[dataset.visitors.columns]
town = {{ values = "towns.csv" }}
region = {{ from = "town", map = "towns.csv" }}
purpose = [{purposes}]

[dataset.visitors.budget]
epsilon = "2"
delta = "1e-6"

[publication.yearbook]
dataset = "visitors"
tables = [{{ by = [] }}, {{ by = ["region"] }}, {{ by = ["region", "town", "purpose"] }}]
editions = 4
margins = [["purpose"]]
"""


def visitors() -> list[tuple[int, str, str]]:
    """All invented visitors: a number, a town and a purpose. Larger towns have more of them."""
    places = [town for town, _, size in TOWNS for _ in range(1 + size // 500)]
    guests = []
    for number in range(1, VISITORS + 1):
        digest = hashlib.sha256(f"visitor {number}".encode()).digest()
        a, b = (int.from_bytes(digest[i : i + 4], "big") for i in (0, 4))
        purpose = PURPOSES[0 if b % 10 < 6 else 1 if b % 10 < 9 else 2]
        guests.append((number, places[a % len(places)], purpose))
    return guests


def count_regions() -> Counter[str]:
    """The true counts by region. Nothing but the demo shows true counts."""
    regions = {town: region for town, region, _ in TOWNS}
    return Counter(regions[town] for _, town, _ in visitors())


def write(folder: Path) -> None:
    """Write visitors.csv, towns.csv and countveil.toml to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_rows(folder / "visitors.csv", ("visitor", "town", "purpose"), visitors())
    _write_rows(folder / "towns.csv", ("town", "region"), ((town, region) for town, region, _ in TOWNS))
    with open_output(folder / "countveil.toml") as file:
        file.write(CONFIG.format(purposes=", ".join(f'"{purpose}"' for purpose in PURPOSES)).encode())


def _write_rows(path: Path, header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header, *rows])
    with open_output(path) as file:
        file.write(text.getvalue().encode())
