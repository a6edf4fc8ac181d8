"""How fast engines count: generated SQL against SQL that is written by hand for DuckDB, in the same process.

    python benchmarks/counting.py [--rows 20000000 50000000] [--turns 2] [--only people] [--save]

Rows of a Parquet file: a region (one of 600 texts), a score (0..999), its last digit, and a person (a fifth as many
people as rows, so almost everybody is in five cells). A table by region and score has 600,000 cells, one by region and
last digit has 6,000. Runs take turns, the best of each counts.

1. Counting rows, growth with rows and with cells; both ways end with arrays.
2. Counting people, each in at most one cell or three: ours, the cheapest of several hand-written statements that hold
   the same bounds, DuckDB's own count(DISTINCT person), which holds none, and OpenDP's polars integration with
   truncate_per_group (so many rows of a person), in an environment of its own. Every run is a process of its own on two
   threads, for its peak
   memory. Ratios are of processor seconds, because other work on the machine stretches elapsed ones; both are shown.
3. The same in PostgreSQL and Spark against hand-written SQL.
4. Questions a second: parse, type, simplify, hash.
5. The pass over a CSV file that finds what is not RFC 4180, against reading the file and against its hash.

`--save` writes the output, with date and machine, to benchmarks/results/counting.txt.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from peers.people_count import HANDS, REGIONS
from sampling import environment, reason, run

from countveil.data.csv_files import check_file
from countveil.data.engines import Engine, Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.query import Question, ask
from countveil.query.schema import Column, Schema

Found = dict[str, Any]
TURNS = 3
PAGE: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000_000, 50_000_000])
    parser.add_argument("--turns", type=int, default=2, help="runs of each way of counting people")
    parser.add_argument("--only", choices=("rows", "people", "servers", "text"), help="one part alone")
    parser.add_argument("--without-opendp", action="store_true", help="do not install and measure OpenDP")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/counting.txt")
    options = parser.parse_args()
    say(
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"duckdb {version('duckdb')}"
    )
    if (busy := os.getloadavg()[0]) > 0.3:
        say(f"Other work was running (load average {busy:.1f}): times are too long and noisy; ratios take turns.")
    say()
    folder = Path(tempfile.mkdtemp(prefix="counting-"))
    try:
        if options.only in (None, "text"):
            questions()
            checking()
        for rows in options.rows * (options.only in (None, "rows", "people")):
            generate(folder / f"{rows}.parquet", rows)
        if options.only in (None, "rows"):
            counting(folder, options.rows)
        if options.only in (None, "people"):
            people(folder, options.rows, options.turns, not options.without_opendp)
        if options.only in (None, "servers"):
            servers(folder, options.turns)
    finally:
        shutil.rmtree(folder)
    if options.save:
        target = Path(__file__).parent / "results" / "counting.txt"
        target.write_text("\n".join(PAGE) + "\n")


def generate(path: Path, rows: int) -> None:
    """The same rows every time."""
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT 'region ' || lpad(CAST(hash(i) % 600 AS VARCHAR), 3, '0') AS region, "
            "CAST(hash(i + 1000000007) % 1000 AS INTEGER) AS score, "
            "CAST(hash(i + 1000000007) % 10 AS INTEGER) AS digit, "
            f"CAST(hash(i + 2000000011) % {rows // 5} AS BIGINT) AS person "
            f"FROM range({rows}) AS r(i)) TO '{path}' (FORMAT parquet)"
        )


def schema(scores: int = 1000, unit: str = "row", cells: int = 1) -> Schema:
    score = Column("digit" if unit != "row" and scores == 10 else "score", "integer", low=0, high=scores - 1)
    columns = (Column("region", "text", REGIONS), score)
    return Schema("people", columns, unit=unit, cells_per_person=cells)


# 1. Rows


def counting(folder: Path, sizes: list[int]) -> None:
    say("1. Counting rows by region and score: seconds, best of several in turns")
    say("        rows     cells   generated  by hand   ratio")
    for rows in sizes:
        compare_counts(folder, rows, 1000)
    for scores in (1, 10, 100):
        compare_counts(folder, sizes[-1], scores)
    say()


def compare_counts(folder: Path, rows: int, scores: int) -> None:
    path = folder / f"{rows}.parquet"
    public = schema(scores)
    engine = DuckDBEngine(Source(str(path)), public)
    question = ask(public, "SELECT region, score, count(*) FROM people GROUP BY region, score")
    with duckdb.connect() as connection:
        hand = f"SELECT region, score, count(*) AS n FROM '{path}' WHERE score < {scores} GROUP BY region, score"
        ours, theirs = in_turns(
            lambda: engine.count(question, salt=b"s"), lambda: connection.execute(hand).fetchnumpy()["n"]
        )
    engine.close()
    goal = f"   goal 1.05: {'met' if ours / theirs <= 1.05 else 'MISSED'}" if scores == 1000 else ""
    say(f"  {rows:10,d}  {600 * scores:8,d}  {ours:9.2f}  {theirs:7.2f}  {ours / theirs:6.2f}{goal}")


# 2. People


def people(folder: Path, sizes: list[int], turns: int, opendp: bool) -> None:
    say("2. Counting people: processor seconds (elapsed seconds) and peak memory; the least of turns")
    for rows in sizes:
        for scores in (10, 1000):
            for cells, aim in ((1, 0.6), (3, 2.5)):
                compare_people(folder / f"{rows}.parquet", rows, scores, cells, aim, turns)
                if opendp:
                    compare_opendp(folder / f"{rows}.parquet", scores, cells)
    say()


def compare_people(path: Path, rows: int, scores: int, cells: int, aim: float, turns: int) -> None:
    ways = ("ours", *HANDS[cells], "distinct")
    best: dict[str, Found] = {}
    for _ in range(turns):
        for way in ways:
            turn = run_peer([sys.executable], "people_count.py", way, path, scores, cells)
            best[way] = min(best.get(way, turn), turn, key=lambda each: each["processor"])
    assert len({best[way]["sum"] for way in ways[:-1]}) == 1, best
    hand = min(ways[1:-1], key=lambda way: best[way]["processor"])
    say(f"  {rows:,d} rows, {600 * scores:,d} cells, at most {cells} of a person")
    for way in ways:
        say(f"    {way:11s} {shown(best[way])}{'   the cheapest by hand' if way == hand else ''}")
    for other, least, what in ((hand, 1.15, "processor"), ("distinct", aim, "processor"), (hand, 1.5, "peak")):
        ratio = best["ours"][what] / best[other][what]
        verdict = "met" if ratio <= least else "MISSED"
        say(f"    {what} of ours / {other}: {ratio:.2f} (goal {least}: {verdict})")


def compare_opendp(path: Path, scores: int, cells: int) -> None:
    try:
        found = run_peer([environment(("opendp[polars]",)), "-I"], "opendp_bounding.py", path, 600, scores, cells)
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        say(f"    OpenDP      not measured: {reason(problem)[:150]}")
        return
    say(f"    OpenDP      {shown(found)}   with noise, version {found['version']}")


def run_peer(python: list[object], script: str, *arguments: object) -> Found:
    said = run(*python, Path(__file__).parent / "peers" / script, *arguments, limit=1800)
    found: Found = json.loads(said.splitlines()[-1])
    return found


def shown(found: Found) -> str:
    return f"{found['processor']:7.2f} s ({found['seconds']:7.2f} s)  {found['peak'] / 2**20:5.2f} GB"


# 3. Servers

SERVER_ROWS = 2_000_000
PLACED = (
    "WITH placed AS (SELECT person AS u, d.i * {scores} + {score} AS cell FROM {rows} AS r JOIN regions AS d "
    "ON r.region = d.v), "
)
WORD = "(({cell_hash} & -{step}) | cell)"
WORDS = f"words AS (SELECT u, {WORD} AS w FROM placed GROUP BY u, cell), "
END = " SELECT w & ({step} - 1) AS cell, count(*) AS n FROM kept GROUP BY 1"
ROW_NUMBER = (
    "SELECT region, {score}, count(*) AS n FROM (SELECT region, {score}, row_number() OVER (PARTITION BY person "
    "ORDER BY {text_hash}) AS place FROM (SELECT DISTINCT person, region, {score} FROM {rows}) AS pairs) AS ranked "
    "WHERE place <= {cells} GROUP BY 1, 2"
)
DISTINCT = "SELECT region, {score}, count(DISTINCT person) AS n FROM {rows} GROUP BY 1, 2"
ONE = {"word": f"{PLACED}kept AS (SELECT min({WORD}) AS w FROM placed GROUP BY u){END}", "row_number": ROW_NUMBER}
RANKED = "SELECT w, row_number() OVER (PARTITION BY u ORDER BY w) AS place FROM words"
SEVERAL = {
    "window": f"{PLACED}{WORDS}kept AS (SELECT w FROM ({RANKED}) AS ranked WHERE place <= {{cells}}){END}",
    "row_number": ROW_NUMBER,
}
SERVER_HANDS: dict[tuple[str, bool], dict[str, str]] = {
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
    "postgres": {
        "cell_hash": "hashint8extended(cell, hashint8extended(u, 77))",
        "text_hash": "hashtextextended(region, hashint8extended({score}, hashint8extended(person, 77)))",
    },
    "spark": {"cell_hash": "xxhash64(u, cell, 77L)", "text_hash": "xxhash64(person, region, {score}, 77L)"},
}


def servers(folder: Path, turns: int) -> None:
    say(f"3. {SERVER_ROWS:,d} rows in PostgreSQL and Spark: processor seconds (elapsed seconds), the least of turns")
    path = folder / f"{SERVER_ROWS}.parquet"
    generate(path, SERVER_ROWS)
    for each in (in_postgres, in_spark):
        try:
            each(path, turns)
        except (ImportError, OSError, RuntimeError, BaseExceptionGroup) as problem:
            say(f"  {each.__name__}: not measured: {problem}")
    say()


@dataclass
class Server:
    """A server under test: how an engine of it is opened, how SQL is run on it, and its first process."""

    name: str
    rows: str
    open_engine: Callable[[Schema], Engine]
    count_by_hand: Callable[[str], int]
    process: int


def compare_server(server: Server, turns: int) -> None:
    for scores in (10, 1000):
        for cells in (1, 3):
            public = schema(scores, "person", cells)
            column = public.columns[1].name
            question = ask(public, f"SELECT region, {column}, count(*) FROM people GROUP BY region, {column}")
            step = 1 << (600 * scores - 1).bit_length()
            names = {"rows": server.rows, "score": column, "scores": scores, "cells": cells, "step": step}
            names |= {name: text.format(score=column) for name, text in HASHES[server.name].items()}
            hands = SERVER_HANDS[server.name, cells > 1]
            engine = server.open_engine(public)
            ways: dict[str, Callable[[], int]] = {"ours": partial(count_all, engine, question)}
            for way, text in {**hands, "distinct": DISTINCT}.items():
                ways[way] = partial(server.count_by_hand, text.format(**names))
            spent = take_turns(ways, server.process, turns)
            engine.close()
            hand = min(hands, key=spent.__getitem__)
            ratio = spent["ours"][0] / spent[hand][0]
            verdict = "met" if ratio <= 1.25 else "MISSED"
            say(f"  {server.name}, {600 * scores:,d} cells, at most {cells} of a person")
            for way, (processor, elapsed) in spent.items():
                say(f"    {way:11s} {processor:6.2f} s ({elapsed:6.2f} s){'   the cheapest by hand' * (way == hand)}")
            say(f"    processor of ours / {hand}: {ratio:.2f} (goal 1.25: {verdict})")


def count_all(engine: Engine, question: Question) -> int:
    return int(engine.count(question, salt=b"s").sum())


def take_turns(ways: dict[str, Callable[[], int]], process: int, turns: int) -> dict[str, tuple[float, float]]:
    """The least processor seconds of each way, and its seconds; all but count(DISTINCT) must find as many people."""
    best: dict[str, tuple[float, float]] = {}
    sums: dict[str, int] = {}
    for _ in range(turns):
        for way, run_way in ways.items():
            started, spent = time.perf_counter(), processor_seconds(process)
            sums[way] = run_way()
            turn = (processor_seconds(process) - spent, time.perf_counter() - started)
            best[way] = min(best.get(way, turn), turn)
    assert len({sums[way] for way in ways if way != "distinct"}) == 1, sums
    return best


def processor_seconds(process: int) -> float:
    """The processor seconds of this process, and of another one with its children, also those that have ended."""
    spent = time.process_time()
    for number in (process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())):
        with suppress(OSError):  # a child that has ended since counts with its parent
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            spent += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return spent


def in_postgres(path: Path, turns: int) -> None:
    """A server of its own, made by what the tests use."""
    import psycopg

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from countveil.data.engines.postgres import PostgresEngine
    from tests.support.servers import Postgres

    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not programs:
        raise OSError("apt-get install postgresql")
    cluster = Postgres(Path(programs[-1]))
    try:
        with psycopg.connect(cluster.admin, autocommit=True) as connection, duckdb.connect() as reader:
            connection.execute("CREATE TABLE people (region text, score integer, digit integer, person bigint)")
            connection.execute("CREATE TABLE regions (v text, i bigint)")
            with connection.cursor() as cursor:
                with cursor.copy("COPY people FROM STDIN") as copy:
                    reader.execute(f"SELECT region, score, digit, person FROM '{path}'")
                    while rows := reader.fetchmany(100_000):
                        for row in rows:
                            copy.write_row(row)
                cursor.executemany("INSERT INTO regions VALUES (%s, %s)", [(v, i) for i, v in enumerate(REGIONS)])
            connection.execute("VACUUM ANALYZE people")
            connection.execute("VACUUM ANALYZE regions")
            connection.execute("GRANT SELECT ON people TO reader")

            def count_by_hand(text: str) -> int:
                return sum(int(row[-1]) for row in connection.execute(text).fetchall())

            source = Source(cluster.url, table="people")
            process = int((cluster.data / "postmaster.pid").read_text().split()[0])
            compare_server(Server("postgres", "people", partial(PostgresEngine, source), count_by_hand, process), turns)
    finally:
        cluster.remove()


def in_spark(path: Path, turns: int) -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    arguments = "--master local[2] --driver-memory 2g --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", arguments)
    from countveil.data.engines.spark import SparkEngine

    source = Source(str(path))
    engine = SparkEngine(source, schema(10, "person"))
    session = engine.session
    session.createDataFrame([(v, i) for i, v in enumerate(REGIONS)], "v string, i bigint").createOrReplaceTempView(
        "regions"
    )

    def count_by_hand(text: str) -> int:
        return int(session.sql(text).toArrow().column("n").to_numpy().sum())

    process = int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    compare_server(Server("spark", engine.relation, partial(SparkEngine, source), count_by_hand, process), turns)
    engine.close()


# 4. Questions


def questions() -> None:
    public = Schema(
        "people",
        (
            Column("region", "text", REGIONS[:20]),
            Column("age", "integer", low=0, high=120),
            Column("score", "integer", low=0, high=999),
            Column("adult", "boolean", (False, True)),
        ),
    )
    texts = [
        "SELECT count(*) FROM people",
        "SELECT region, count(*) FROM people GROUP BY region",
        "SELECT region, count(*) FROM people WHERE age >= {n} AND region <> 'region 003' GROUP BY region",
        "SELECT count(*) FROM people WHERE age BETWEEN {n} AND 90 OR (adult AND score IN (1, 2, 3, {n}))",
        "SELECT region, adult, count(*) FROM people WHERE NOT (age < {n} OR score IS NULL) GROUP BY region, adult",
    ]
    asked = [text.replace("adult AND", "adult = TRUE AND").format(n=n) for n in range(80) for text in texts]
    for text in asked[:50]:
        ask(public, text).sha256  # noqa: B018
    started = time.perf_counter()
    for text in asked:
        ask(public, text).sha256  # noqa: B018
    speed = len(asked) / (time.perf_counter() - started)
    verdict = "met" if speed >= 1000 else "MISSED"
    say(f"4. Questions: {speed:,.0f} a second parsed and made canonical (goal 1,000: {verdict})\n")


def checking() -> None:
    """Bytes a second of `check_file` on 200 MB that the system has in memory."""
    say("5. The pass over a CSV file, in GB/s (reading alone | hashing | checking)")
    records = {
        "no quotes": b"1234567,North,45\n",
        "CRLF, no quotes": b"1234567,North,45\r\n",
        "text quoted": b'1234567,"North",45\n',
        "all quoted": b'"1234567","North","45"\n',
        "line ends within quotes": b'1234567,"North\nor ""so""",45\n',
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        for name, record in records.items():
            size = Path(path).write_bytes(b"id,region,age\n" + record * (200_000_000 // len(record)))
            runs = (lambda: read(path), lambda: digest(path), lambda: check_file(path, ","))
            best = [float("inf")] * len(runs)
            for _ in range(TURNS):
                for i, run in enumerate(runs):
                    start = time.perf_counter()
                    run()
                    best[i] = min(best[i], time.perf_counter() - start)
            rates = " | ".join(f"{size / seconds / 1e9:5.2f}" for seconds in best)
            say(f"  {name:<24} {rates}   {best[0] / best[2]:.0%} of reading")
    say()


def read(path: str) -> None:
    buffer = bytearray(1 << 18)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def digest(path: str) -> None:
    with open(path, "rb") as file:
        hashlib.file_digest(file, "sha256")


def in_turns(*runs: Callable[[], np.ndarray], turns: int = TURNS) -> list[float]:
    """The least seconds of each, run in turns; all must find the same number of people or rows."""
    best = [float("inf")] * len(runs)
    sums = set()
    for _ in range(turns):
        for i, run_way in enumerate(runs):
            started = time.perf_counter()
            found = run_way()
            best[i] = min(best[i], time.perf_counter() - started)
            sums.add(int(found.sum()))
    assert len(sums) == 1, sums
    return best


def say(text: str = "") -> None:
    print(text, flush=True)
    PAGE.append(text)


if __name__ == "__main__":
    main()
