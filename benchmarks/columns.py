"""What long lists and deep hierarchies cost: processor seconds of counts on DuckDB, in turns with what they replace.

    python benchmarks/columns.py [--rows 4000000 20000000] [--turns 5] [--only WORDS] [--save]

Rows of a Parquet file: a district (one of 3,000 texts, listed in a CSV file with their municipality, region and
country), a part (one of 4 texts), an age, a sex and a time of the year 2024 with a zone, all even.

1. A table by district against one by part, by us and by SQL that is written by hand and checks nothing.
2. The same column and data with a list of 3,000 values against a list of the 4 that occur: the list alone.
3. A condition on 1,500 districts against one on 2 parts.
4. The table by country, region, municipality, district, 8 bands of age and sex: 48,000 cells, against a plain GROUP BY
   of district, band and sex; and the same with a public list of half of its cells.
5. A table by the 366 days of a zone against one by its 12 months: many edges.

Ratios are of processor seconds, the least of turns, because other work on the machine stretches elapsed ones. `--save`
writes the output, with date and machine, to benchmarks/results/columns.txt.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

import duckdb
import numpy as np

from countveil.config.public_files import PublicFiles
from countveil.data.engines import Source
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.query import Question, ask
from countveil.query.derived import parse_columns
from countveil.query.possible_cells import parse_cells
from countveil.query.schema import Schema

DISTRICTS = 3_000
BANDS = [0, 5, 15, 25, 45, 65, 75, 85]
PAGE: list[str] = []
Way = Callable[[], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000_000, 20_000_000])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="only the rows whose name has these words")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/columns.txt")
    options = parser.parse_args()
    say(
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"duckdb {version('duckdb')}"
    )
    if (busy := os.getloadavg()[0]) > 0.3:
        say(f"Other work was running (load average {busy:.1f}): times are too long and noisy; ratios take turns.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in options.rows:
            say(f"\n{rows:,d} rows: processor seconds, and their ratio")
            generate(folder / "people.parquet", rows)
            compare(folder, options.turns, options.only)
    if options.save:
        (Path(__file__).parent / "results" / "columns.txt").write_text("\n".join(PAGE) + "\n")


def generate(path: Path, rows: int) -> None:
    """The same rows every time."""
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 'district ' || hash(i) % {DISTRICTS} AS district, "
            "'part ' || hash(i + 1000000007) % 4 AS part, "
            "CAST(hash(i + 2000000011) % 100 AS TINYINT) AS age, CAST(1 + hash(i + 3000000019) % 2 AS TINYINT) AS sex, "
            "make_timestamptz(1704067200000000 + CAST(hash(i + 4000000007) % 31622400000000 AS BIGINT)) AS time "
            f"FROM range({rows}) AS r(i)) TO '{path}' (FORMAT parquet)"
        )


def schema(folder: Path) -> Schema:
    """The columns, and the list of the cells of women only, which is half of all."""
    places = [f"district {i},municipality {i // 10},region {i // 250},country {i // 1500}" for i in range(DISTRICTS)]
    (folder / "geography.csv").write_text("district,municipality,region,country\n" + "\n".join(places) + "\n")
    (folder / "parts.csv").write_text("part\n" + "".join(f"part {i}\n" for i in range(4)))
    more = "".join(f"part {i}\n" for i in range(DISTRICTS))
    (folder / "long.csv").write_text("long\n" + more)
    (folder / "possible.csv").write_text(
        "district,sex\n" + "".join(f"district {i},{1 + i % 2}\n" for i in range(DISTRICTS))
    )
    files = PublicFiles(folder).read
    declared = {
        "country": {"from": "region", "map": "geography.csv"},
        "region": {"from": "municipality", "map": "geography.csv"},
        "municipality": {"from": "district", "map": "geography.csv"},
        "district": {"values": "geography.csv"},
        "band": {"from": "age", "bands": BANDS},
        "sex": [1, 2],
        "part": {"values": "parts.csv"},
        "day": {"from": "time", "by": "day", "min": "2024-01", "max": "2024-12", "zone": "Europe/Berlin"},
        "month": {"from": "time", "by": "month", "min": "2024-01", "max": "2024-12", "zone": "Europe/Berlin"},
    }
    columns = parse_columns(declared, "columns", files)
    return Schema("people", columns, possible=parse_cells("possible.csv", columns, "cells", files))


def compare(folder: Path, turns: int, only: str) -> None:
    path, listed = folder / "people.parquet", schema(folder)
    public = replace(listed, possible=None)
    values = tuple(f"part {i}" for i in range(DISTRICTS))
    longer = Schema("people", tuple(replace(c, values=values) if c.name == "part" else c for c in public.columns))
    deep = ["country", "region", "municipality", "district", "band", "sex"]
    some = [f"district {i}" for i in range(0, DISTRICTS, 2)]
    engine = DuckDBEngine(Source(str(path)), public)
    connection = duckdb.connect()

    def ours(question: Question) -> Way:
        return lambda: engine.count(question, salt=b"s")

    def hand(columns: str, where: str = "TRUE") -> Way:
        sql = f"SELECT {columns}, count(*) AS n FROM '{path}' WHERE {where} GROUP BY ALL"
        return lambda: connection.execute(sql).fetchnumpy()["n"]

    half = "district IN (" + ", ".join(f"'{name}'" for name in some) + ")"
    bands = f"CASE {' '.join(f'WHEN age >= {low} THEN {low}' for low in reversed(BANDS))} END"
    pairs: list[tuple[str, Way, Way]] = [
        ("by district / by part, ours", ours(ask(public, by="district")), ours(ask(public, by="part"))),
        ("by district / by part, by hand", hand("district"), hand("part")),
        ("by district, ours / by hand", ours(ask(public, by="district")), hand("district")),
        ("by part, 3,000 values listed / 4", ours(ask(longer, by="part")), ours(ask(public, by="part"))),
        (
            "1,500 districts / 2 parts, ours",
            ours(ask(public, where=f"district IN ({', '.join(map(repr, some))})")),
            ours(ask(public, where="part IN ('part 0', 'part 2')")),
        ),
        (
            "1,500 districts / 2 parts, by hand",
            hand("1", half),
            hand("1", "part IN ('part 0', 'part 2')"),
        ),
        ("48,000 cells, ours / by hand", ours(ask(public, by=deep)), hand(f"district, {bands}, sex")),
        ("24,000 possible of 48,000 / all", ours(ask(listed, by=deep)), ours(ask(public, by=deep))),
        ("by 366 days of a zone / 12 months", ours(ask(public, by="day")), ours(ask(public, by="month"))),
    ]
    for what, one, other in pairs:
        if only not in what:
            continue
        first, second = in_turns(one, other, turns=turns)
        goal = ""
        if what.endswith(("by part, ours", "listed / 4")):
            goal = f"   goal 1.1: {'met' if first <= 1.1 * second else 'MISSED'}"
        say(f"  {what:36s} {first:7.3f} {second:7.3f}  {first / second:5.2f}{goal}")
    engine.close()
    connection.close()


def in_turns(*ways: Way, turns: int) -> list[float]:
    """The least processor seconds of each way, in turns."""
    best = [float("inf")] * len(ways)
    for _ in range(turns):
        for i, way in enumerate(ways):
            started = time.process_time()
            way()
            best[i] = min(best[i], time.process_time() - started)
    return best


def say(text: str = "") -> None:
    print(text, flush=True)
    PAGE.append(text)


if __name__ == "__main__":
    main()
