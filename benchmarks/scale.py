"""Past one machine: what privacy costs on top of plain counting, and where the noise is best drawn.

    python benchmarks/scale.py [--quick] [--save]

1. Rows. A Parquet file with a region (one of 600 texts) and a score (0..9): 6,000 cells. Private is counting and
   drawing, to an array of all cells; plain is the engine's own GROUP BY, collected through Arrow. Both in the same
   process, in Spark in the same session on the same prepared view; in turns, the median of each.
2. Cells. Two million rows over 10^3 to 10^7 cells in Spark, to files on disk: the driver's way (collect through Arrow,
   draw, write) and the workers' way (counts to disk, completed, drawn by the workers, written). The crossing is where
   the workers' way becomes the faster one.
3. Tumult Analytics, private against plain on its own Spark, the same 6,000 cells; in an environment of its own.
4. What one row and one cell cost at most, by the largest sizes: the figures that docs/scale.md works with.

`--quick` is at most 10^7 rows and 3 * 10^6 cells. `--save` writes benchmarks/results/scale.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
from sampling import HERE, PAGE, environment, goal, machine, reason, run, say

import countveil as cv
from countveil.curator.parquet_results import COLLECTED, make_manifest, write_counts
from countveil.data.engines import Engine, Source, spark_release
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.data.engines.spark import SparkEngine
from countveil.mechanism.mechanism import Mechanism
from countveil.query import Question, ask
from countveil.query.schema import Column, Schema

REGIONS = tuple(f"region {i:03d}" for i in range(600))
SCORES = 10
PLAIN = "SELECT region, score, count(*) AS n FROM {rows} GROUP BY region, score"
TURNS = 15
WARMING = 40
"""Turns before the first that count: until Java has compiled what both ways run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer turns")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/scale.txt")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    arguments = "--master local[2] --driver-memory 4g --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", arguments)
    say(f"{date.today()}, {machine()}, duckdb {version('duckdb')}, pyspark {version('pyspark')} on local[2]")
    if (busy := os.getloadavg()[0]) > 0.3:
        say(f"Other work was running (load average {busy:.1f}): times are too long and noisy; ratios take turns.")
    if options.quick:
        say("Reduced sizes (--quick).")
    say()
    sizes = [10**6, 10**7] if options.quick else [10**6, 10**7, 5 * 10**7]
    cells = [10**3, 10**4, 10**5, 10**6, 3 * 10**6] + ([] if options.quick else [10**7])
    mechanism = cv.design(epsilon=1, delta="1e-6")
    folder = Path(tempfile.mkdtemp(prefix="countveil-scale-"))
    try:
        for rows in sizes:
            generate(folder / f"{rows}.parquet", rows)
        per_row = by_rows(folder, sizes, mechanism, TURNS)
        per_cell = by_cells(folder, cells, mechanism, 1 if options.quick else 3)
        tumult(folder, sizes[:1] if options.quick else [sizes[0], sizes[-1]])
    finally:
        shutil.rmtree(folder)
    say("4. Core time at the largest sizes, all of it put down to the rows, or to the cells")
    say(f"  a row counted in Spark                     {2 * per_row * 1e9:9.1f} ns")
    say(f"  a cell, counts to disk to files, workers   {2 * per_cell * 1e9:9.1f} ns")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(f"  peak memory of the driver's Python         {peak:9.1f} GB")
    if options.save:
        (HERE / "results" / "scale.txt").write_text("\n".join(PAGE) + "\n")


def generate(path: Path, rows: int) -> None:
    """The same rows every time."""
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT 'region ' || lpad(CAST(hash(i) % 600 AS VARCHAR), 3, '0') AS region, "
            f"CAST(hash(i + 1000000007) % {SCORES} AS INTEGER) AS score FROM range({rows}) AS r(i)) "
            f"TO '{path}' (FORMAT parquet)"
        )


# 1. Rows


def by_rows(folder: Path, sizes: list[int], mechanism: Mechanism, turns: int) -> float:
    """Private against plain; the seconds of Spark for each row of the largest size."""
    public = Schema("people", (Column("region", "text", REGIONS), Column("score", "integer", low=0, high=SCORES - 1)))
    question = ask(public, by=["region", "score"])
    say(f"1. Counting rows into {question.cells:,} cells: seconds, median of {turns} in turns")
    say(f"   after {WARMING} that warm up; in Spark, both read the same prepared view in the same session")
    say("  engine        rows   private    plain   ratio")
    spent = []
    for name in ("duckdb", "spark"):
        for rows in sizes:
            path = folder / f"{rows}.parquet"
            with duckdb.connect() as connection:
                if name == "duckdb":
                    engine: Engine = DuckDBEngine(Source(str(path)), public)
                    plain = partial(plain_duckdb, connection, PLAIN.format(rows=f"'{path}'"))
                else:
                    engine = SparkEngine(Source(str(path)), public)
                    plain = partial(plain_spark, engine, PLAIN.format(rows=engine.relation))
                ways = (partial(private, engine, question, mechanism), plain)
                if rows == sizes[0]:
                    in_turns(*ways, turns=WARMING)
                ours, theirs = in_turns(*ways, turns=turns)
            engine.close()
            aim = "   " + goal(1 / (ours / theirs), 1 / 1.15, "1.15x at most") if name == "spark" else ""
            say(f"  {name:7s} {rows:11,d}  {ours:8.3f} {theirs:8.3f}  {ours / theirs:6.2f}{aim}")
            spent.append(ours)
    say()
    return spent[-1] / sizes[-1]


def private(engine: Engine, question: Question, mechanism: Mechanism) -> object:
    return mechanism.release(engine.count(question, salt=b"s"))


def plain_duckdb(connection: duckdb.DuckDBPyConnection, text: str) -> object:
    return connection.execute(text).fetchnumpy()


def plain_spark(engine: SparkEngine, text: str) -> object:
    return engine.session.sql(text).toArrow()


# 2. Cells


def by_cells(folder: Path, sizes: list[int], mechanism: Mechanism, turns: int) -> float:
    """Both ways; the seconds of the workers for each cell of the largest size."""
    rows = 2_000_000
    say(f"2. {rows:,} rows into cells, in Spark, to files: seconds, median of {turns} after one that warms up")
    say("        cells    driver   workers")
    document, times = mechanism.to_text(), []
    for cells in sizes:
        path = folder / f"cells-{cells}.parquet"
        with duckdb.connect() as connection:
            spread = f"SELECT CAST(hash(i) % {cells} AS BIGINT) AS v FROM range({rows}) AS r(i)"
            connection.execute(f"COPY ({spread}) TO '{path}' (FORMAT parquet)")
        public = Schema("people", (Column("v", "integer", low=0, high=cells - 1),), max_cells=cells)
        question = ask(public, by=["v"])
        engine = SparkEngine(Source(str(path)), public)
        ways = (
            partial(driver, engine, question, folder, mechanism),
            partial(workers, engine, question, folder, document),
        )
        if not times:
            in_turns(*ways, turns=1)
        times.append(in_turns(*ways, turns=turns))
        say(f"  {cells:11,d}  {times[-1][0]:8.2f}  {times[-1][1]:8.2f}")
        engine.close()
        path.unlink()
    faster = next((size for size, (a, b) in zip(sizes, times, strict=True) if b < a), None)
    say(
        f"  the workers are faster from {faster:,} cells on"
        if faster
        else "  the driver is faster at every size measured"
    )
    say(f"  chosen: up to {COLLECTED:,} cells ({8 * COLLECTED / 1e6:,.0f} MB of counts) the driver, then the workers")
    say()
    return times[-1][1] / sizes[-1]


def driver(engine: SparkEngine, question: Question, folder: Path, mechanism: Mechanism) -> None:
    table = folder / "driver"
    count = write_counts(question, mechanism.release(engine.count(question, salt=b"s")), table)
    make_manifest(table, "driver", question, "driver", count)
    shutil.rmtree(table)


def workers(engine: SparkEngine, question: Question, folder: Path, document: str) -> None:
    table = folder / "workers"
    count = spark_release.write(engine, question, table, salt=b"s", mechanism=document, unchanged=lambda: None)
    make_manifest(table, "workers", question, "workers", count)
    shutil.rmtree(table)


# 3. Tumult Analytics


def tumult(folder: Path, sizes: list[int]) -> None:
    say(f"3. Tumult Analytics, {len(REGIONS) * SCORES:,} cells: seconds, best of 2")
    for rows in sizes:
        path = folder / f"{rows}.parquet"
        try:
            python = environment(("tmlt.analytics",))
            script = HERE / "peers" / "tmlt_spark.py"
            said = run(python, "-I", script, path, len(REGIONS), SCORES, 2, limit=1800)
            found: dict[str, Any] = json.loads(said.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
            say(f"  {rows:11,d} rows: not measured: {reason(problem)}")
            break
        ratio = found["private"] / found["plain"]
        say(
            f"  {rows:11,d} rows: private {found['private']:.3f}, plain {found['plain']:.3f}, ratio {ratio:.2f}"
            f" (version {found['version']})"
        )
    say()


def in_turns(*runs: Callable[[], object], turns: int) -> list[float]:
    """The median seconds of each, run in turns."""
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(turns):
        for times, each in zip(taken, runs, strict=True):
            started = time.perf_counter()
            each()
            times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in taken]


if __name__ == "__main__":
    main()
