"""A synthetic census: 100,000 invented people in twelve towns, the same every time.

Each field is computed from the SHA-256 of the person's number, so no random generator is needed and every machine
writes the same file. The towns have from 90 to 50,000 inhabitants, to show what noise does to small ones.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from countveil.files.durable_files import open_output

TOWNS = (
    ("Aldermoor", "North", 50_000),
    ("Brackenford", "South", 20_000),
    ("Cinderby", "East", 12_000),
    ("Dunmore", "West", 7_000),
    ("Elmstead", "North", 4_500),
    ("Fairhaven", "South", 2_800),
    ("Goldwick", "East", 1_700),
    ("Hartlow", "West", 1_000),
    ("Inverash", "North", 510),
    ("Juniper Hill", "South", 250),
    ("Kestrel Bay", "East", 150),
    ("Larkspur", "West", 90),
)
REGIONS = ("North", "South", "East", "West")
CONDITIONS = ("none", "asthma", "depression", "diabetes")
CONFIG = """\
# A synthetic census: invented people, so that everything can be shown.
[dataset.people]
source = "people.csv"
unit = "person_id"

[dataset.people.columns]
region = [{regions}]
town = [{towns}]
age = {{ min = 0, max = 99, step = 10 }}
sex = ["female", "male"]
condition = [{conditions}]

[dataset.people.budget]
epsilon = "3"
delta = "1e-6"
answers = 10
"""


class Person(NamedTuple):
    """One invented person, which is one row of the file."""

    person_id: int
    region: str
    town: str
    age: int
    sex: str
    condition: str


def people() -> Iterator[Person]:
    """All invented people, town by town."""
    number = 0
    for town, region, size in TOWNS:
        for _ in range(size):
            number += 1
            digest = hashlib.sha256(f"census {number}".encode()).digest()
            a, b, c, d = (int.from_bytes(digest[i : i + 4], "big") / 2**32 for i in (0, 4, 8, 12))
            age = int(100 * (0.62 * a + 0.38 * a * b))  # more young than old
            yield Person(number, region, town, age, "female" if c < 0.508 else "male", _condition(age, d))


def _condition(age: int, u: float) -> str:
    """A sensitive attribute that depends on age; `u` is a number from 0 to 1 that decides for this person."""
    for name, base, growth in (("diabetes", 0.005, 0.0016), ("depression", 0.05, 0.0003), ("asthma", 0.08, -0.0003)):
        share = base + growth * age
        if u < share:
            return name
        u -= share
    return "none"


def write(folder: Path) -> list[Person]:
    """Write people.csv and countveil.toml to a folder; return everyone in the file."""
    everyone = list(people())
    rows = io.StringIO(newline="")
    writer = csv.writer(rows)
    writer.writerow(Person._fields)
    writer.writerows(everyone)
    with open_output(folder / "people.csv") as file:
        file.write(rows.getvalue().encode())
    listed = {
        "regions": REGIONS,
        "towns": [town for town, _, _ in TOWNS],
        "conditions": CONDITIONS,
    }
    text = CONFIG.format(**{name: ", ".join(f'"{value}"' for value in values) for name, values in listed.items()})
    with open_output(folder / "countveil.toml") as file:
        file.write(text.encode())
    return everyone
