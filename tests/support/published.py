"""Folders with invented people, a hierarchy and a publication, for tests; the plan is made once for all of them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from countveil.curator.curator import Curator
from tests.support.curated import write_rows

TOWNS = {"a": "A", "b": "A", "c": "A", "d": "B", "e": "B"}
"""The county of every town."""
COLUMNS = f"""
town = {list(TOWNS)}
county = {{ from = "town", map = "towns.csv" }}
sex = ["f", "m"]
age = {{ min = 0, max = 99 }}
young = {{ from = "age", bands = [0, 18, 65] }}
"""
TABLES = '[{ by = [] }, { by = ["county"] }, { by = ["town"] }, { by = ["town", "sex"], margin = 9 }]'


def config_text(*, tables: str = TABLES, budget: str = "", dataset: str = "", more: str = "") -> str:
    """A configuration with a publication named census."""
    return f"""
[dataset.people]
source = "people.csv"
unit = "id"
{dataset}
[dataset.people.columns]
{COLUMNS}
[dataset.people.budget]
epsilon = "5"
delta = "1e-4"
{budget}
[publication.census]
dataset = "people"
tables = {tables}
editions = 2
{more}
"""


def rows(number: int = 400) -> list[tuple[int, str, str, int]]:
    """People with ids 1, 2, ...: town e has few, and no man."""
    towns = list(TOWNS)
    people = []
    for i in range(1, number + 1):
        town = towns[(i * i) % 4] if i % 50 else "e"
        people.append((i, town, "f" if town == "e" or i % 3 else "m", (7 * i) % 100))
    return people


def write_people(folder: Path, number: int = 400) -> None:
    write_rows(folder / "people.csv", ["id", "town", "sex", "age"], rows(number))


def write_place(folder: Path, text: str | None = None) -> Path:
    """A folder with people, towns and a configuration; returns the path of the configuration."""
    folder.mkdir(exist_ok=True)
    write_rows(folder / "towns.csv", ["town", "county"], TOWNS.items())
    write_people(folder)
    path = folder / "countveil.toml"
    path.write_text(text or config_text())
    return path


@cache
def open_place() -> Path:
    """A folder whose ledger has the plan of `config_text()`."""
    folder = Path(mkdtemp(prefix="countveil-test-")) / "place"
    config = write_place(folder)
    with Curator.open(config) as curator:
        dataset = curator.config.dataset("people")
        curator._plans.of(dataset, opened=True)
    return folder


def copy_place(folder: Path, *, more: str = "") -> Path:
    """As `write_place`, with a ledger that has the plan of `config_text()`; `more` must not change the plan."""
    shutil.copytree(open_place(), folder, dirs_exist_ok=True)
    path = folder / "countveil.toml"
    path.write_text(config_text(more=more))
    return path
