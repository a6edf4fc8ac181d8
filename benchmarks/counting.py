"""How fast engines count, against SQL that is written by hand, in turns.

    python benchmarks/counting.py [--only duckdb peers servers text] [--rows 20000000 50000000] [--turns 2] [--save]

Rows of a Parquet file: a region (one of 600 texts), a score (0..999), its last digit, and a person (a fifth as many
people as rows, so almost everybody is in five cells). A table by region and score has 600,000 cells, one by region and
last digit has 6,000.

- duckdb: rows, and people in at most one cell or three: ours, the cheapest of several hand-written statements that hold
  the same bounds, and DuckDB's own count(DISTINCT person), which holds none. Every run is a process of its own on two
  threads, for its peak memory. A hand-written statement that took half as long again as another is not run again.
- peers: the same tables by OpenDP's polars integration with truncate_per_group (so many rows of a person), in an
  environment of its own.
- servers: the same in PostgreSQL and Spark, against hand-written SQL of their own.
- text: questions a second (parse, type, simplify, hash), and the check of CSV files.

Ratios are of processor seconds, because other work on the machine stretches elapsed ones; both are shown. `--save`
puts every part that ran, with date, machine and load, in its place in benchmarks/results/counting.txt; one with other
`--rows` than usual has a place of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
from peers.people_count import HANDS, REGIONS
from sampling import environment, reason, run

from countveil.data.csv_files import check_file
from countveil.query import ask
from countveil.query.schema import Column, Schema

Turn = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "counting.txt"
ROWS = [20_000_000, 50_000_000]
SERVER_ROWS = 1_000_000
DISTINCT = {1: 0.6, 3: 2.5}
"""Goals for ours against count(DISTINCT person), with so many cells of a person."""
PAGE: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--turns", type=int, default=2, help="runs of each way of counting")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts alone")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/counting.txt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="counting-") as folder:
        for part in options.only:
            PAGE.clear()
            before = os.getloadavg()[0]
            usual = options.rows == ROWS or part in ("servers", "text")
            name = part if usual else f"{part} with {' and '.join(map(str, options.rows))} rows"
            say(f"{name}, {machine()}")
            stopped = False
            try:
                PARTS[part](Path(folder), options)
            except KeyboardInterrupt:
                stopped = True
                say("  stopped here, before the end of this part")
            say(f"  load average {before:.1f} before and {os.getloadavg()[0]:.1f} after")
            say()
            if options.save:
                save(name)
            if stopped:
                sys.exit(130)


def machine() -> str:
    now = datetime.now(UTC)
    return (
        f"{now:%Y-%m-%d %H:%M}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"duckdb {version('duckdb')}"
    )


def save(name: str) -> None:
    """Put a part in its place in the results; the other parts stay as they are."""
    old = RESULTS.read_text() if RESULTS.exists() else ""
    parts = {text.partition(",")[0]: text for text in re.split(r"^# ", old, flags=re.MULTILINE)[1:]}
    parts[name] = "\n".join(PAGE)
    RESULTS.write_text("\n".join(f"# {parts[each].strip()}\n" for each in sorted(parts)))


def generate(folder: Path, rows: int) -> Path:
    """The same rows every time."""
    path = folder / f"{rows}.parquet"
    if not path.exists():
        with duckdb.connect() as connection:
            connection.execute(
                "COPY (SELECT 'region ' || lpad(CAST(hash(i) % 600 AS VARCHAR), 3, '0') AS region, "
                "CAST(hash(i + 1000000007) % 1000 AS INTEGER) AS score, "
                "CAST(hash(i + 1000000007) % 10 AS INTEGER) AS digit, "
                f"CAST(hash(i + 2000000011) % {rows // 5} AS BIGINT) AS person "
                f"FROM range({rows}) AS r(i)) TO '{path}' (FORMAT parquet)"
            )
    return path


# DuckDB and OpenDP


def run_duckdb(folder: Path, options: argparse.Namespace) -> None:
    for rows in options.rows:
        for scores in (10, 1000):
            for cells in HANDS:
                say(f"  {title(rows, scores, cells)}")
                turns = options.turns if cells else 3 * options.turns  # counting rows is short
                compare(generate(folder, rows), scores, cells, turns)


def compare(path: Path, scores: int, cells: int, turns: int) -> None:
    """Every way in turns, each in a process of its own."""
    hands = list(HANDS[cells])
    others = ["distinct"] * (cells > 0)
    best: dict[str, Turn] = {}
    for _ in range(turns):
        for way in ["ours", *others, *hands]:
            turn = count_once(way, path, scores, cells)
            best[way] = min(best.get(way, turn), turn, key=lambda each: each["processor"])
        least = min(best[way]["processor"] for way in hands)
        hands = [way for way in hands if best[way]["processor"] <= 1.5 * least]
    assert len({best[way]["sum"] for way in best if way != "distinct"}) == 1, best
    hand = min(hands, key=lambda way: best[way]["processor"])
    for way, turn in best.items():
        say(f"    {way:11s} {shown(turn)}{'   the cheapest by hand' if way == hand else ''}")
    compare_with(best, hand, "processor", 1.15 if cells else 1.05)
    compare_with(best, hand, "peak", 1.5)
    for other in others:
        compare_with(best, other, "processor", DISTINCT[cells])


def compare_with(best: dict[str, Turn], other: str, what: str, most: float) -> None:
    ratio = best["ours"][what] / best[other][what]
    say(f"    {what} of ours / {other}: {ratio:.2f} (goal {most}: {'met' if ratio <= most else 'MISSED'})")


def run_peers(folder: Path, options: argparse.Namespace) -> None:
    for rows in options.rows:
        for scores in (10, 1000):
            for cells in DISTINCT:
                say(f"  {title(rows, scores, cells)}")
                path = generate(folder, rows)
                try:
                    python = environment(("opendp[polars]",))
                    theirs = run_peer([python, "-I"], "opendp_bounding.py", path, len(REGIONS), scores, cells)
                except (OSError, subprocess.SubprocessError, ValueError) as problem:
                    say(f"    OpenDP      not measured: {reason(problem)[:150]}")
                    continue
                ours = count_once("ours", path, scores, cells)
                say(f"    ours        {shown(ours)}")
                say(f"    OpenDP      {shown(theirs)}   with noise, version {theirs['version']}")


def count_once(way: str, path: Path, scores: int, cells: int) -> Turn:
    return run_peer([sys.executable], "people_count.py", way, path, scores, cells)


def run_peer(python: list[object], script: str, *arguments: object) -> Turn:
    turn: Turn = json.loads(run_lines(python, script, *arguments)[-1])
    return turn


def run_lines(python: list[object], script: str, *arguments: object) -> list[str]:
    return run(*python, Path(__file__).parent / "peers" / script, *arguments, limit=1800).splitlines()


def title(rows: int, scores: int, cells: int) -> str:
    what = f"people, at most {cells} cell{'s' * (cells > 1)} of a person" if cells else "rows"
    return f"{rows:,d} rows, {600 * scores:,d} cells, counting {what}"


def shown(turn: Turn) -> str:
    return f"{turn['processor']:7.2f} s ({turn['seconds']:7.2f} s)  {turn['peak'] / 2**20:5.2f} GB"


# Servers


def run_servers(folder: Path, options: argparse.Namespace) -> None:
    path = generate(folder, SERVER_ROWS)
    for name in ("postgres", "spark"):
        try:
            lines = run_lines([sys.executable], "server_count.py", name, path, options.turns)
        except (OSError, subprocess.SubprocessError) as problem:
            say(f"  {name}: not measured: {reason(problem)[:150]}")
            continue
        for table in map(json.loads, lines):
            say(f"  {name}, {title(SERVER_ROWS, table['scores'], table['cells'])}")
            ways = {way: {"processor": spent, "seconds": elapsed} for way, (spent, elapsed) in table["ways"].items()}
            hand = min(ways.keys() - {"ours", "distinct"}, key=lambda way: ways[way]["processor"])
            for way, turn in ways.items():
                note = "   the cheapest by hand" if way == hand else ""
                say(f"    {way:11s} {turn['processor']:7.2f} s ({turn['seconds']:7.2f} s){note}")
            compare_with(ways, hand, "processor", 1.25)


# Text


def run_text(folder: Path, options: argparse.Namespace) -> None:
    questions()
    checking(folder)


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
    say(f"  {speed:,.0f} questions a second parsed and made canonical (goal 1,000: {verdict})")


def checking(folder: Path) -> None:
    """Bytes a second of `check_file` on 200 MB that the system has in memory."""
    say("  The pass over a CSV file that finds what is not RFC 4180, in GB/s (reading alone | hashing | checking)")
    records = {
        "no quotes": b"1234567,North,45\n",
        "CRLF, no quotes": b"1234567,North,45\r\n",
        "text quoted": b'1234567,"North",45\n',
        "all quoted": b'"1234567","North","45"\n',
        "line ends within quotes": b'1234567,"North\nor ""so""",45\n',
    }
    path = str(folder / "rows.csv")
    for name, record in records.items():
        size = Path(path).write_bytes(b"id,region,age\n" + record * (200_000_000 // len(record)))
        runs = (lambda: read(path), lambda: digest(path), lambda: check_file(path, ","))
        best = [float("inf")] * len(runs)
        for _ in range(3):
            for i, run_way in enumerate(runs):
                start = time.perf_counter()
                run_way()
                best[i] = min(best[i], time.perf_counter() - start)
        rates = " | ".join(f"{size / seconds / 1e9:5.2f}" for seconds in best)
        say(f"    {name:<24} {rates}   {best[0] / best[2]:.0%} of reading")


def read(path: str) -> None:
    buffer = bytearray(1 << 18)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def digest(path: str) -> None:
    with open(path, "rb") as file:
        hashlib.file_digest(file, "sha256")


def say(text: str = "") -> None:
    print(text, flush=True)
    PAGE.append(text)


PARTS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "duckdb": run_duckdb,
    "peers": run_peers,
    "servers": run_servers,
    "text": run_text,
}

if __name__ == "__main__":
    main()
