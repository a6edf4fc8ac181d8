"""The whole path from question to frame, against plain DuckDB: ratios, measured in one run.

    python benchmarks/release.py [--rows N] [--save]

1. A private GROUP BY of a Parquet file with 600,000 cells (parse, charge, count, draw, record, frame with intervals)
   against plain DuckDB on the same file to the same kind of frame. Rounds take turns; every round asks another
   question, because the same one would be a replay. First with the plan made, then what the first question adds.
2. Peak memory of both, each in a process of its own.
3. The same table by OpenDP's polars integration, in an environment of its own.
4. A replay.

`--save` writes the output, with date and machine, to benchmarks/results/release.txt.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import duckdb
from sampling import HERE, PAGE, environment, goal, high_water, machine, reason, run, say

PLACES, YEARS = 600, 1000
ROUNDS = 5
SQL = "SELECT place, year, count(*) FROM people WHERE age >= {least} GROUP BY place, year"
CONFIG = """\
[dataset.people]
source = "people.parquet"
unit = "row"
[dataset.people.columns]
place = [{places}]
year = {{ min = 0, max = {last} }}
age = {{ min = 0, max = 99 }}
[dataset.people.budget]
epsilon = "3"
delta = "1e-6"
answers = 100
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/release.txt")
    parser.add_argument("--alone", nargs=2, metavar=("WHO", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        alone(*options.alone)
        return
    say(f"{date.today()}, {machine()}, DuckDB {duckdb.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, options.rows)
        size = (folder / "people.parquet").stat().st_size / 1e6
        say(f"{options.rows:,} rows ({size:,.0f} MB of Parquet), {PLACES * YEARS:,} cells, polars frames")
        say()
        ours = speed(folder)
        memory(folder)
        peer(folder, ours)
    if options.save:
        (HERE / "results" / "release.txt").write_text("\n".join(PAGE) + "\n")


def generate(folder: Path, rows: int) -> None:
    """The same people every time: hashes of their numbers."""
    duckdb.connect().execute(
        f"COPY (SELECT 'place ' || lpad((hash(i) % {PLACES})::VARCHAR, 4, '0') AS place, "
        f"(hash(i + 7) % {YEARS})::INTEGER AS year, (hash(i + 13) % 100)::INTEGER AS age "
        f"FROM range({rows}) AS r(i)) TO '{folder / 'people.parquet'}' (FORMAT parquet)"
    )
    listed = ", ".join(f'"place {i:04d}"' for i in range(PLACES))
    (folder / "countveil.toml").write_text(CONFIG.format(places=listed, last=YEARS - 1))


def speed(folder: Path) -> float:
    """Prints section 1 and 4; returns our seconds."""
    import countveil as cv

    start = time.perf_counter()
    curator = cv.Curator.open(folder / "countveil.toml")
    first = timed(lambda: curator.count(SQL.format(least=1), frame="polars").frame)
    first += time.perf_counter() - start - first
    plain(folder, 1)
    ours, theirs, ratios = [], [], []
    for i in range(ROUNDS):
        least = 2 + i
        a = timed(lambda n=least: curator.count(SQL.format(least=n), frame="polars").frame)
        b = timed(lambda n=least: plain(folder, n))
        ours.append(a)
        theirs.append(b)
        ratios.append(a / b)
    a, b = min(ours), min(theirs)
    say("1. Seconds from question to frame, best of some rounds that take turns")
    say(f"  plain DuckDB                      {b:7.3f} s")
    say(f"  countveil                         {a:7.3f} s   {a / b:.3f}x ({goal(1.10, a / b, 'at most 1.10x')})")
    say(f"  median of the rounds' ratios      {statistics.median(ratios):.3f}x")
    say(f"  the first question of a ledger    {first:7.3f} s   plan, ledger and the file's hash included")
    again = timed(lambda: curator.count(SQL.format(least=2), frame="polars").frame)
    say(f"  a replay                          {again:7.3f} s")
    say()
    curator.close()
    return a


def plain(folder: Path, least: int) -> object:
    """Hand-written SQL to a frame, a connection of its own as a user would have."""
    table = f"read_parquet('{folder / 'people.parquet'}')"
    query = SQL.format(least=least).replace("people", table).replace("count(*)", "count(*) AS count")
    return duckdb.connect().sql(query).pl()


def timed(task: object) -> float:
    start = time.perf_counter()
    task()  # type: ignore[operator]
    return time.perf_counter() - start


def memory(folder: Path) -> None:
    say("2. Peak memory of a process that asks once, in MB")
    found = {
        who: json.loads(run(sys.executable, __file__, "--alone", who, folder, limit=600)) for who in ("plain", "ours")
    }
    say(f"  plain DuckDB                      {found['plain'] / 1e6:7,.0f}")
    say(f"  countveil                         {found['ours'] / 1e6:7,.0f}   {found['ours'] / found['plain']:.2f}x")
    say()


def alone(who: str, folder: str) -> None:
    """One question, then the high-water mark in bytes."""
    if who == "plain":
        plain(Path(folder), 50)
    else:
        import countveil as cv

        with cv.Curator.open(Path(folder) / "countveil.toml") as curator:
            assert curator.count(SQL.format(least=50), frame="polars").frame.height == PLACES * YEARS
    print(high_water())


def peer(folder: Path, ours: float) -> None:
    say("3. The same table by OpenDP's polars integration (epsilon 1, discrete Laplace, unbounded, one answer)")
    try:
        python = environment(("opendp[polars]",))
        script = HERE / "peers" / "opendp_polars.py"
        found = json.loads(run(python, "-I", script, folder / "people.parquet", PLACES, YEARS, 2, limit=900))
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        say(f"  not measured: {reason(problem)}")
        return
    say(
        f"  OpenDP {found['version']:8s}                 {found['seconds']:8.3f} s   "
        f"we are {found['seconds'] / ours:.1f}x as fast"
    )
    say(f"  its peak memory                   {found['peak'] / 1000:7,.0f} MB, {found['cells']:,} cells")
    say()


if __name__ == "__main__":
    main()
