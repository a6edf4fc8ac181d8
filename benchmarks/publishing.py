"""Publications from question to folder, through the command line, beside a plain GROUP BY with the same files written.

    python benchmarks/publishing.py [--cells N] [--spark] [--data FOLDER] [--save]

Two publications:

    Dallas    one row for each of the adults of the census blocks of Dallas county, published by county, tract, block
              group and block, each by group, with (1, 1e-6) in total for a person replaced by another, planned for
              precincts. The error of the 766 inhabited precincts is computed again from the published files alone, to
              be compared with benchmarks/results/publication.txt. Without its data it is left out.
    wide      invented people in N cells (default 1,000,000: districts by age by sex), in Parquet, with tables by
              region, district, and district by age by sex.

For each: seconds of `countveil publish` as a whole, and of its ledger's first planning; seconds of DuckDB for the same
grouped tables, written to files of the same format; their ratio. `--spark` counts the wide one with Spark as well.
`--save` writes the output, with date and machine, to benchmarks/results/publishing.txt.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import duckdb
import numpy as np
from sampling import HERE, PAGE, machine, say

from countveil.publication.publication import Publication

GROUPS = ("hispanic", "white", "black", "other")
DALLAS = HERE.parent.parent / "shared" / "data" / "dallas"
SMALL = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--data", type=Path, default=DALLAS)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/publishing.txt")
    options = parser.parse_args()
    say(f"{date.today()}, {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        if (options.data / "blocks.csv").exists():
            publish_dallas(options.data, Path(folder) / "dallas")
        else:
            say(f"{options.data}: the blocks of Dallas are not here; Dallas is left out")
        publish_wide(Path(folder) / "wide", options.cells, "duckdb")
        if options.spark:
            publish_wide(Path(folder) / "spark", options.cells, "spark")
    if options.save:
        (HERE / "results" / "publishing.txt").write_text("\n".join(PAGE) + "\n")


def publish(folder: Path, style: str = "csv") -> tuple[float, float]:
    """Plan, then publish, in processes of their own; the seconds of both."""
    config = str(folder / "countveil.toml")
    seconds = []
    for words in (["--dry-run"], ["-o", str(folder / "out"), "--format", style]):
        start = time.perf_counter()
        command = [sys.executable, "-m", "countveil", "publish", "census", "-c", config, "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        if done.returncode:
            raise SystemExit(done.stderr)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


def publish_dallas(data: Path, folder: Path) -> None:
    folder.mkdir()
    with open(data / "blocks.csv", newline="") as file:
        blocks = list(csv.DictReader(file))
    with open(folder / "people.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["block", "race"])
        for block in blocks:
            for group in GROUPS:
                writer.writerows([[block["block"], group]] * int(block[group]))
    with open(folder / "blocks.csv", "w", newline="") as file:
        names = ("block", "block_group", "tract", "precinct")
        csv.writer(file).writerows([names, *([block[name] for name in names] for block in blocks)])
    (folder / "countveil.toml").write_text(
        """
[dataset.people]
source = "people.csv"
unit = "row"
neighbours = "replace"
[dataset.people.columns]
block = { values = "blocks.csv" }
block_group = { from = "block", map = "blocks.csv" }
tract = { from = "block", map = "blocks.csv" }
precinct = { from = "block", map = "blocks.csv" }
race = ["hispanic", "white", "black", "other"]
[dataset.people.budget]
epsilon = "1"
delta = "1e-6"
[publication.census]
dataset = "people"
tables = [
  { by = ["race"], weight = "1e-6" }, { by = ["tract", "race"], weight = "1e-6" },
  { by = ["block_group", "race"], weight = "1e-6" }, { by = ["block", "race"], weight = "1e-6" },
]
margins = [{ by = ["precinct", "race"], weight = "1" }]
"""
    )
    planned, seconds = publish(folder)
    published = Publication.open(folder / "out")
    plain = group_plainly(
        f"read_csv('{folder / 'people.csv'}', all_varchar=true)", ["block, race", "race"], folder, "csv"
    )
    truth = {(b["block"], g): int(b[g]) for b in blocks for g in GROUPS}
    precinct = {b["block"]: b["precinct"] for b in blocks}
    cells = published["block*race"]
    error: dict[tuple[str, str], int] = {}
    own: dict[tuple[str, str], int] = {}
    for block, race, count in zip(cells["block"], cells["race"], cells["count"].tolist(), strict=True):
        for group in (race, "all"):
            key = (precinct[block], group)
            error[key] = error.get(key, 0) + count - truth[block, race]
            own[key] = own.get(key, 0) + truth[block, race]
    inhabited = {place for (place, group), n in own.items() if group == "all" and n}
    say()
    say(f"Dallas: {sum(truth.values()):,} rows, {len(truth):,} finest cells; plan {planned:.0f} s")
    say(f"  countveil publish {seconds:.1f} s, plain GROUP BY of two of its tables, written: {plain:.2f} s")
    for group in (*GROUPS[:3], "all"):
        errors = np.array([error[place, group] for place in inhabited])
        small = np.array([error[place, group] for place in inhabited if own[place, group] < SMALL])
        say(f"  {group:9s} {np.sqrt((errors**2).mean()):6.1f} ({small.mean():+.1f})  {len(inhabited)} precincts")
    say(f"  verified: {len(published.verify())} findings")


def publish_wide(folder: Path, cells: int, engine: str) -> None:
    folder.mkdir()
    districts, ages = max(1, cells // 200), 100
    number = 4 * cells
    connection = duckdb.connect()
    connection.execute(
        f"COPY (SELECT i AS id, (hash(i) % {districts})::INTEGER AS district, (hash(i, 1) % {ages})::INTEGER AS age, "
        f"CASE WHEN hash(i, 2) % 2 = 0 THEN 'f' ELSE 'm' END AS sex FROM range({number}) AS t(i)) "
        f"TO '{folder / 'people.parquet'}' (FORMAT parquet)"
    )
    regions = [f"region{i}" for i in range(20)]
    with open(folder / "regions.csv", "w", newline="") as file:
        csv.writer(file).writerows([("district", "region"), *((i, regions[i % 20]) for i in range(districts))])
    (folder / "countveil.toml").write_text(
        f"""
[dataset.people]
source = "people.parquet"
unit = "id"
{'engine = "spark"' if engine == "spark" else ""}
{"allow_spark_ui = true" if engine == "spark" else ""}
[dataset.people.columns]
district = {{ min = 0, max = {districts - 1} }}
region = {{ from = "district", map = "regions.csv" }}
age = {{ min = 0, max = {ages - 1} }}
sex = ["f", "m"]
[dataset.people.budget]
epsilon = "1"
delta = "1e-6"
[publication.census]
dataset = "people"
tables = [{{ by = ["region"] }}, {{ by = ["district"] }}, {{ by = ["district", "age", "sex"] }}]
"""
    )
    planned, seconds = publish(folder, "parquet")
    source = f"read_parquet('{folder / 'people.parquet'}')"
    plain = group_plainly(source, ["district % 20", "district", "district, age, sex"], folder, "parquet")
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    rows = sum(each["rows"] for each in manifest["tables"])
    say()
    say(f"wide, {engine}: {number:,} people, {rows:,} cells in {len(manifest['tables'])} tables; plan {planned:.0f} s")
    say(f"  countveil publish {seconds:.1f} s, plain GROUP BY, written: {plain:.2f} s, ratio {seconds / plain:.0f}")


def group_plainly(source: str, tables: list[str], folder: Path, style: str) -> float:
    """The seconds of DuckDB for the same grouped tables, written to files."""
    start = time.perf_counter()
    connection = duckdb.connect()
    for i, by in enumerate(tables):
        connection.execute(
            f"COPY (SELECT {by}, count(*) AS n FROM {source} GROUP BY ALL) TO '{folder / f'plain{i}.{style}'}' "
            f"(FORMAT {style})"
        )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
