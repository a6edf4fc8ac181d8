"""A demonstration of the whole workflow, on invented people.

census    the invented people
visitors  other invented people, for a publication
report    a page with the questions, the answers, their cost, and their distance from the truth
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.demo.census import Person, write
from countveil.errors import QueryError

if TYPE_CHECKING:
    from countveil.curator.curator import Curator, PoolBudget
    from countveil.curator.results import Table
    from countveil.publication.publication import Publication


@dataclass(frozen=True)
class DemoQuestion:
    """One question of the demo: its answer, or why it was refused."""

    title: str
    sql: str
    table: Table | None
    refusal: str | None
    truth: tuple[int, ...] = ()


@dataclass(frozen=True)
class Demo:
    """The questions, the budget and the report of one run of the demo."""

    folder: Path
    asked: tuple[DemoQuestion, ...]
    budget: PoolBudget
    people: int
    seconds: float
    report: Path
    publication: Publication
    visitors: tuple[int, ...]
    """The true number of visitors in every region, in the order of the publication."""


QUESTIONS = (
    (
        "People in every town",
        "SELECT town, count(*) FROM people GROUP BY town",
    ),
    (
        "People with diabetes in every town, from 40 on",
        "SELECT town, count(*) FROM people WHERE condition = 'diabetes' AND age >= 40 GROUP BY town",
    ),
    (
        "A question that is not allowed",
        "SELECT town, count(*) FROM people WHERE age + 1 > 40 GROUP BY town",
    ),
    (
        "The second question again, in other words",
        "SELECT town, count(*) FROM people WHERE NOT (age < 40 OR condition <> 'diabetes') GROUP BY town",
    ),
)


def run(folder: Path) -> Demo:
    """Invent a census in a folder, ask four questions within a budget, write report.html, and publish a yearbook."""
    from countveil.curator.curator import Curator
    from countveil.demo import visitors
    from countveil.demo.report import write_report

    start = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    everyone = write(folder)
    asked = []
    with Curator.open(folder / "countveil.toml") as curator:
        for title, sql in QUESTIONS:
            asked.append(_ask(curator, title, sql, everyone))
        (budget,) = curator.budget()
    report = folder / "report.html"
    place = folder / "visitors"
    visitors.write(place)
    with Curator.open(place / "countveil.toml") as curator:
        publication = curator.publish(visitors.NAME)
    regions = visitors.count_regions()
    truth = tuple(regions[region] for region in publication["region"]["region"])
    seconds = time.monotonic() - start
    done = Demo(folder, tuple(asked), budget, len(everyone), seconds, report, publication, truth)
    write_report(done)
    return done


def _ask(curator: Curator, title: str, sql: str, everyone: list[Person]) -> DemoQuestion:
    try:
        table = curator.count(sql)
    except QueryError as error:
        return DemoQuestion(title, sql, None, str(error))
    return DemoQuestion(title, sql, table, None, _truth(table, everyone))


def _truth(table: Table, everyone: list[Person]) -> tuple[int, ...]:
    """The true counts for a table, computed from the invented people. Nothing but the demo shows true counts."""
    narrow = "condition" in table.receipt.text
    counted = dict.fromkeys(table.labels[0], 0)
    for person in everyone:
        if not narrow or (person.condition == "diabetes" and person.age >= 40):
            counted[person.town] += 1
    return tuple(counted.values())
