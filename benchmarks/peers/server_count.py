"""Counts of people by region and score in PostgreSQL or Spark: by countveil, and by SQL that was written by hand.

    python server_count.py postgres|spark FILE TURNS

prints a line of JSON for each table: its scores, the cells of a person, and for every way the least processor seconds
of this process and the server's, with the elapsed seconds of that turn. The ways take turns; a first turn of each, in
which the server reads files and compiles, is not counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
from people_count import REGIONS, question_of, score_name

from countveil.data.engines import Engine, Source
from countveil.query import Question
from countveil.query.schema import Schema

PLACED = (
    "WITH placed AS (SELECT person AS u, d.i * {scores} + {score} AS cell FROM {rows} AS r JOIN regions AS d "
    "ON r.region = d.v), "
)
WORD = "(({cell_hash} & -{step}) | cell)"
WORDS = f"words AS (SELECT u, {WORD} AS w FROM placed GROUP BY u, cell), "
RANKED = "SELECT w, row_number() OVER (PARTITION BY u ORDER BY w) AS place FROM words"
END = " SELECT w & ({step} - 1) AS cell, count(*) AS n FROM kept GROUP BY 1"
DISTINCT = "SELECT region, {score}, count(DISTINCT person) AS n FROM {rows} GROUP BY 1, 2"
ONE = {"word": f"{PLACED}kept AS (SELECT min({WORD}) AS w FROM placed GROUP BY u){END}"}
SEVERAL = {
    "window": f"{PLACED}words AS (SELECT DISTINCT u, {WORD} AS w FROM placed), "
    f"kept AS (SELECT w FROM ({RANKED}) AS ranked WHERE place <= {{cells}}){END}",
}
HANDS: dict[tuple[str, bool], dict[str, str]] = {
    ("postgres", False): ONE,
    ("spark", False): ONE,
    ("postgres", True): SEVERAL
    | {
        "arrays": f"{PLACED}{WORDS}kept AS (SELECT unnest((array_agg(w ORDER BY w))[1:{{cells}}]) AS w FROM words "
        f"GROUP BY u){END}",
        "sets": f"{PLACED}kept AS (SELECT unnest((array_agg(DISTINCT {WORD}))[1:{{cells}}]) AS w FROM placed "
        f"GROUP BY u){END}",
    },
    ("spark", True): SEVERAL
    | {
        "arrays": f"{PLACED}{WORDS}kept AS (SELECT explode(slice(sort_array(collect_list(w)), 1, {{cells}})) AS w "
        f"FROM words GROUP BY u){END}",
        "sets": f"{PLACED}kept AS (SELECT explode(slice(sort_array(collect_set({WORD})), 1, {{cells}})) AS w "
        f"FROM placed GROUP BY u){END}",
    },
}
"""Statements for one cell of a person, and for several; all hold the bounds."""
HASHES = {
    "postgres": "hashint8extended(cell, hashint8extended(u, 77))",
    "spark": "xxhash64(u, cell, 77L)",
}


@dataclass
class Server:
    """A server under test: the rows, how an engine of it is opened and SQL is run on it, and its first process."""

    rows: str
    open_engine: Callable[[Schema], Engine]
    count_by_hand: Callable[[str], int]
    process: int


def main() -> None:
    name, path, turns = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with {"postgres": open_postgres, "spark": open_spark}[name](path) as server:
        for scores in (10, 1000):
            for cells in (1, 3):
                best = compare(name, server, scores, cells, turns)
                print(json.dumps({"scores": scores, "cells": cells, "ways": best}), flush=True)


def compare(name: str, server: Server, scores: int, cells: int, turns: int) -> dict[str, tuple[float, float]]:
    question = question_of(scores, cells)
    step = 1 << (question.cells - 1).bit_length()
    names = {"rows": server.rows, "score": score_name(scores), "scores": scores, "cells": cells, "step": step}
    names["cell_hash"] = HASHES[name]
    with closing(server.open_engine(question.schema)) as engine:
        ways: dict[str, Callable[[], int]] = {"ours": partial(count_all, engine, question)}
        for way, text in {**HANDS[name, cells > 1], "distinct": DISTINCT}.items():
            ways[way] = partial(server.count_by_hand, text.format(**names))
        return take_turns(ways, server.process, turns)


def count_all(engine: Engine, question: Question) -> int:
    return int(engine.count(question, salt=b"s").sum())


def take_turns(ways: dict[str, Callable[[], int]], process: int, turns: int) -> dict[str, tuple[float, float]]:
    """The least processor seconds of each way, and its seconds; all but count(DISTINCT) must find as many people."""
    best: dict[str, tuple[float, float]] = {}
    sums = {way: run_way() for way, run_way in ways.items()}
    assert len({total for way, total in sums.items() if way != "distinct"}) == 1, sums
    for _ in range(turns):
        for way, run_way in ways.items():
            started, spent = time.perf_counter(), processor_seconds(process)
            run_way()
            turn = (processor_seconds(process) - spent, time.perf_counter() - started)
            best[way] = min(best.get(way, turn), turn)
    return best


def processor_seconds(process: int) -> float:
    """The processor seconds of this process, and of another one with its children, also those that have ended."""
    spent = time.process_time()
    for number in (process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())):
        with suppress(OSError):  # a child that has ended since counts with its parent
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return spent


@contextmanager
def open_postgres(path: Path) -> Iterator[Server]:
    """A server of its own, made by what the tests use."""
    import psycopg

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from countveil.data.engines.postgres import PostgresEngine
    from tests.support.needs import explain, find
    from tests.support.servers import Postgres

    program = find("initdb")
    if program is None:
        raise OSError(explain("initdb"))
    with ExitStack() as stack:
        cluster = Postgres(program.parent)
        stack.callback(cluster.remove)
        connection = stack.enter_context(psycopg.connect(cluster.admin, autocommit=True))
        connection.execute("CREATE TABLE people (region text, score integer, digit integer, person bigint)")
        connection.execute("CREATE TABLE regions (v text, i bigint)")
        reader = stack.enter_context(duckdb.connect())
        reader.execute(f"SELECT region, score, digit, person FROM '{path}'")
        with connection.cursor() as cursor:
            with cursor.copy("COPY people FROM STDIN") as copy:
                while rows := reader.fetchmany(100_000):
                    copy.write("".join(f"{r}\t{s}\t{d}\t{p}\n" for r, s, d, p in rows))
            cursor.executemany("INSERT INTO regions VALUES (%s, %s)", [(v, i) for i, v in enumerate(REGIONS)])
        connection.execute("VACUUM ANALYZE people")
        connection.execute("VACUUM ANALYZE regions")
        connection.execute("GRANT SELECT ON people TO reader")

        def count_by_hand(text: str) -> int:
            return sum(int(row[-1]) for row in connection.execute(text).fetchall())

        source = Source(cluster.url, table="people")
        process = int((cluster.data / "postmaster.pid").read_text().split()[0])
        yield Server("people", partial(PostgresEngine, source), count_by_hand, process)


@contextmanager
def open_spark(path: Path) -> Iterator[Server]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    arguments = "--master local[2] --driver-memory 2g --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", arguments)
    from countveil.data.engines.spark import SparkEngine

    source = Source(str(path))
    with closing(SparkEngine(source, question_of(10, 1).schema)) as engine:
        session = engine.session
        regions = session.createDataFrame(list(zip(REGIONS, range(len(REGIONS)), strict=True)), "v string, i bigint")
        regions.createOrReplaceTempView("regions")

        def count_by_hand(text: str) -> int:
            return int(session.sql(text).toArrow().column("n").to_numpy().sum())

        process = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        yield Server(engine.relation, partial(SparkEngine, source), count_by_hand, process)


if __name__ == "__main__":
    main()
