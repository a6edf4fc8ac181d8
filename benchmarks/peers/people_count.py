"""One count by region and score in a process of its own: by countveil, or by SQL that was written by hand.

    python people_count.py WAY FILE SCORES CELLS

counts people, each in at most so many cells, or rows if CELLS is 0. Prints seconds, processor seconds, peak memory
(KB), and the sum of all cells as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from countveil.query import Question

REGIONS = tuple(f"region {i:03d}" for i in range(600))
SETTINGS: dict[str, Any] = {"memory_limit": "8GB", "threads": 2}
SALT = 8_732_468_723
DISTINCT = "SELECT region, {score} AS score, count(DISTINCT person) AS n FROM '{path}' GROUP BY ALL"
PLACED = (
    "WITH d AS (SELECT unnest($d) AS v, generate_subscripts($d, 1) - 1 AS i), placed AS (SELECT person AS u, "
    "CAST(d.i * {scores} + {score} AS BIGINT) AS cell FROM '{path}' JOIN d ON region = d.v), "
)
WORD = "(CAST(hash(u, cell, {salt}) >> 1 AS BIGINT) & -{step} | cell)"
GROUPED = f"{PLACED}words AS (SELECT u, {WORD} AS w FROM placed GROUP BY u, cell), "
HEAP = "kept AS (SELECT unnest(min(w, 3)) AS w FROM words GROUP BY u)"
END = " SELECT w & ({step} - 1) AS cell, count(*) AS n FROM kept GROUP BY 1"
HANDS = {
    0: {"group": "SELECT region, {score} AS score, count(*) AS n FROM '{path}' GROUP BY ALL"},
    1: {
        "word": f"{PLACED}kept AS (SELECT min({WORD}) AS w FROM placed GROUP BY u){END}",
        "struct": "SELECT s.region, s.score, count(*) AS n FROM (SELECT min({{h: hash(region, {score}, person, "
        "{salt}), region: region, score: {score}}}) AS s FROM '{path}' GROUP BY person) GROUP BY ALL",
    },
    3: {
        "group-heap": GROUPED + HEAP + END,
        "dedupe-heap": f"{PLACED}words AS (SELECT DISTINCT u, {WORD} AS w FROM placed), {HEAP}{END}",
        "group-list": f"{GROUPED}kept AS (SELECT unnest(list_sort(list(w))[:3]) AS w FROM words GROUP BY u){END}",
    },
}
"""Statements that count rows, and people in at most one cell or three, each once in a cell. What is not here took at
least half as long again with 1,000,000 rows: arg_min, and windows over words or rows."""


def main() -> None:
    way, path, scores, cells = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    run = ours(path, scores, cells) if way == "ours" else by_hand(path, statement(way, path, scores, cells))
    started, spent = time.perf_counter(), time.process_time()
    total = run()
    seconds, processor = time.perf_counter() - started, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "processor": processor, "peak": peak, "sum": total}))


def ours(path: str, scores: int, cells: int) -> Callable[[], int]:
    from countveil.data.engines import Source
    from countveil.data.engines.duckdb import DuckDBEngine

    class Limited(DuckDBEngine):
        settings = SETTINGS

    question = question_of(scores, cells)
    engine = Limited(Source(path), question.schema)
    return lambda: int(engine.count(question, salt=b"s").sum())


def question_of(scores: int, cells: int) -> Question:
    from countveil.query import ask
    from countveil.query.schema import Column, Schema

    name = score_name(scores)
    columns = (Column("region", "text", REGIONS), Column(name, "integer", low=0, high=scores - 1))
    unit = "person" if cells else "row"
    public = Schema("people", columns, unit=unit, cells_per_person=max(cells, 1))
    return ask(public, f"SELECT region, {name}, count(*) FROM people GROUP BY region, {name}")


def by_hand(path: str, text: str) -> Callable[[], int]:
    connection = duckdb.connect(config=SETTINGS)
    connection.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchnumpy()  # opened and imported before, as ours is
    values: dict[str, Any] = {"d": list(REGIONS)} if "$d" in text else {}
    return lambda: int(connection.execute(text, values).fetchnumpy()["n"].sum())


def statement(way: str, path: str, scores: int, cells: int) -> str:
    text = {"distinct": DISTINCT, **HANDS[cells]}[way]
    step = 1 << (len(REGIONS) * scores - 1).bit_length()
    return text.format(path=path, score=score_name(scores), scores=scores, salt=SALT, step=step)


def score_name(scores: int) -> str:
    return "score" if scores == 1000 else "digit"


if __name__ == "__main__":
    main()
