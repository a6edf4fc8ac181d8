"""How fast engines count: generated SQL against SQL that is written by hand for DuckDB, in the same process.

    python benchmarks/counting.py [--rows 50000000] [--save]

Rows of a Parquet file: a region (one of 600 texts), a score (0..999) and a person (a fifth as many people as rows, so
almost everybody is in five cells). A table by region and score has 600,000 cells. Runs take turns, the best of each
counts; both ways end with the keys and counts, or the whole flat table, as numpy arrays.

1. Counting rows, growth with rows and with cells.
2. Counting people, each in one cell or in three, against the cheapest of several hand-written ways that hold the same
   bounds with DuckDB's own hash(), and the same for people who are in one cell only. Our hash is MD5 so that every
   engine chooses the same cells; "arithmetic" is what a keyed product modulo 2^31 - 1 would take instead.
3. Questions a second: parse, type, simplify, hash.
4. The pass over a CSV file that finds what is not RFC 4180, against reading the file and against its hash.

`--save` writes the output, with date and machine, to benchmarks/results/counting.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path

import duckdb
import numpy as np

from countveil.engines import Source
from countveil.engines.csv_files import check_file
from countveil.engines.duckdb import DuckDBEngine
from countveil.query import ask
from countveil.schema import Column, Schema

REGIONS = tuple(f"region {i:03d}" for i in range(600))
TURNS = 3
PAGE: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/counting.txt")
    options = parser.parse_args()
    say(
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"duckdb {version('duckdb')}"
    )
    if (busy := os.getloadavg()[0]) > 0.3:
        say(f"Other work was running (load average {busy:.1f}): times are too long and noisy; ratios take turns.")
    say()
    questions()
    checking()
    folder = Path(tempfile.mkdtemp(prefix="counting-"))
    try:
        sizes = [options.rows // 25, options.rows // 5, options.rows]
        for rows in sizes:
            generate(folder / f"{rows}.parquet", rows)
        counting(folder, sizes)
        bounding(folder, sizes[-1])
    finally:
        shutil.rmtree(folder)
    say(f"\nPeak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")
    if options.save:
        target = Path(__file__).parent / "results" / "counting.txt"
        target.write_text("\n".join(PAGE) + "\n")


def generate(path: Path, rows: int) -> None:
    """The same rows every time; `alone` is a person whose rows are all in one cell."""
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT 'region ' || lpad(CAST(hash(i) % 600 AS VARCHAR), 3, '0') AS region, "
            "CAST(hash(i + 1000000007) % 1000 AS INTEGER) AS score, "
            f"CAST(hash(i + 2000000011) % {rows // 5} AS BIGINT) AS person, "
            "CAST(hash(i) % 600 * 1000000000 + hash(i + 1000000007) % 1000 * 1000000 "
            f"+ hash(i + 3000000019) % {max(rows // 3_000_000, 1)} AS BIGINT) AS alone "
            f"FROM range({rows}) AS r(i)) TO '{path}' (FORMAT parquet)"
        )


def schema(scores: int = 1000, unit: str = "row", cells: int = 1) -> Schema:
    columns = (Column("region", "text", REGIONS), Column("score", "integer", low=0, high=scores - 1))
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
            lambda: engine.count(question, key=b"k"), lambda: connection.execute(hand).fetchnumpy()["n"]
        )
    engine.close()
    goal = f"   goal 1.05: {'met' if ours / theirs <= 1.05 else 'MISSED'}" if scores == 1000 else ""
    say(f"  {rows:10,d}  {600 * scores:8,d}  {ours:9.2f}  {theirs:7.2f}  {ours / theirs:6.2f}{goal}")


# 2. People

ONE = {
    "row_number": "SELECT region, score, count(*) AS n FROM (SELECT region, score FROM {rows} QUALIFY row_number() "
    "OVER (PARTITION BY {who} ORDER BY hash(region, score, {who})) <= 1) GROUP BY ALL",
    "arg_min": "SELECT region, score, count(*) AS n FROM (SELECT arg_min(region, h) AS region, "
    "arg_min(score, h) AS score FROM (SELECT *, hash(region, score, {who}) AS h FROM {rows}) GROUP BY {who}) "
    "GROUP BY ALL",
}
THREE = {
    "row_number": "SELECT region, score, count(*) AS n FROM (SELECT region, score FROM (SELECT DISTINCT {who}, region, "
    "score FROM {rows}) QUALIFY row_number() OVER (PARTITION BY {who} ORDER BY hash(region, score, {who})) <= 3) "
    "GROUP BY ALL",
}
ARITHMETIC = (
    "SELECT cell, count(*) AS n FROM (SELECT min((({who} % 2147483647 * 1234567 + 7654321) % 2147483647 * (cell + 77)) "
    "% 2147483647 * 2147483648 + cell) % 2147483648 AS cell FROM (SELECT {who}, d.i * 1000 + CAST(score AS BIGINT) "
    "AS cell FROM {rows} JOIN (SELECT unnest($d) AS v, generate_subscripts($d, 1) - 1 AS i) AS d ON region = d.v) "
    "GROUP BY {who}) GROUP BY cell"
)


def bounding(folder: Path, rows: int) -> None:
    say(f"2. Counting {rows // 5:,d} people of {rows:,d} rows by region and score (600,000 cells): seconds")
    path = folder / f"{rows}.parquet"
    for who, cells, ways in (("person", 1, ONE), ("alone", 1, ONE), ("person", 3, THREE)):
        public = schema(unit=who, cells=cells)
        engine = DuckDBEngine(Source(str(path)), public)
        question = ask(public, "SELECT region, score, count(*) FROM people GROUP BY region, score")
        with duckdb.connect() as connection:
            texts = {name: way.format(rows=f"'{path}'", who=who) for name, way in ways.items()}
            runs = [partial(engine.count, question, key=b"k")]
            if cells == 1:
                texts["arithmetic"] = ARITHMETIC.format(rows=f"'{path}'", who=who)
            runs += [partial(fetched, connection, text) for text in texts.values()]
            ours, *others = in_turns(*runs, turns=2)
        engine.close()
        hands = dict(zip(texts, others, strict=True))
        best = min(taken for name, taken in hands.items() if name != "arithmetic")
        kind = "everybody in about five cells" if who == "person" else "everybody in one cell"
        say(f"  {kind}, {cells} counted: generated {ours:.2f}, ratio {ours / best:.2f} to the cheapest by hand")
        say("    " + ", ".join(f"{name} {taken:.2f}" for name, taken in hands.items()))


def fetched(connection: duckdb.DuckDBPyConnection, text: str) -> np.ndarray:
    return connection.execute(text, {"d": list(REGIONS)} if "$d" in text else {}).fetchnumpy()["n"]


# 3. Questions


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
    say(f"3. Questions: {speed:,.0f} a second parsed and made canonical (goal 1,000: {verdict})\n")


def checking() -> None:
    """Bytes a second of `check_file` on 200 MB that the system has in memory."""
    say("The pass over a CSV file, in GB/s (reading alone | hashing | checking)")
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
        for i, run in enumerate(runs):
            started = time.perf_counter()
            found = run()
            best[i] = min(best[i], time.perf_counter() - started)
            sums.add(int(found.sum()))
    assert len(sums) == 1, sums
    return best


def say(text: str = "") -> None:
    print(text, flush=True)
    PAGE.append(text)


if __name__ == "__main__":
    main()
