"""The first five minutes: from nothing to a first private table of a user's own Parquet file.

    python benchmarks/first_five_minutes.py [--only countveil opendp smartnoise] [--save]

The file has 15,484 visits of 6,000 patients, thirty of whom have twenty. Every package gets a new environment, and the
commands that its documentation shows, one after another: seconds (elapsed, downloads included), megabytes and packages
that were installed, commands, lines of Python that a user writes, failures, and the table: one answer at epsilon 1. The
truth within the same bound on the rows of a patient is shown beside it: the difference is noise, or a fault. PyPI must
be reachable; countveil is installed from this folder.

`--save` writes the output, with date and machine, to benchmarks/results/first_five_minutes.txt.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
ROOT = HERE.parent
LIMIT = 900
LARGEST = 9
"""How many packages are named with their size."""
DATA = """
COPY (SELECT patient, ['North', 'South', 'East'][1 + patient % 7 % 3] AS region
      FROM range(6000) p(patient), range(20) v(visit)
      WHERE visit <= hash(patient) % 4 OR patient % 200 = 0) TO '{}'
"""
BOUNDED = """
SELECT region, sum(least(n, {}))::BIGINT FROM
(SELECT patient, region, count(*) AS n FROM '{}' GROUP BY ALL) GROUP BY region ORDER BY region
"""
WANTED = ("--by", "region", "--epsilon", "1", "--answers", "1")
QUESTION = "SELECT region, count(*) FROM visits GROUP BY region"
PAGE: list[str] = []


@dataclass(frozen=True)
class Contender:
    """A package: what is installed, and the commands up to the first table, with what is typed into them."""

    requirements: tuple[str, ...]
    commands: tuple[tuple[tuple[str, ...], str], ...]
    script: str | None = None


@dataclass
class Found:
    """What happened with one package."""

    install: float = 0.0
    use: float = 0.0
    commands: int = 0
    failures: list[str] = field(default_factory=list)
    table: str = ""


CONTENDERS = {
    "countveil": Contender(
        (str(ROOT),),
        (
            (("countveil", "init", "visits.parquet", "--unit", "patient", *WANTED), ""),
            (("countveil", "init", "--confirm"), "yes\n" * 20),
            (("countveil", "count", QUESTION, "--format", "csv"), ""),
        ),
    ),
    "opendp": Contender(
        ("opendp[polars]",), ((("python", "opendp_first_table.py", "visits.parquet"), ""),), "opendp_first_table.py"
    ),
    "smartnoise": Contender(
        ("smartnoise-sql", "pyarrow"),
        ((("python", "smartnoise_first_table.py", "visits.parquet"), ""),),
        "smartnoise_first_table.py",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/first_five_minutes.txt")
    options = parser.parse_args()
    say(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if (busy := os.getloadavg()[0]) > 0.3:
        say(f"Other work was running (load average {busy:.1f}): times are too long.")
    for name in options.only:
        folder = Path(tempfile.mkdtemp(prefix="first-"))
        try:
            measure(name, CONTENDERS[name], folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if options.save:
        (HERE / "results" / "first_five_minutes.txt").write_text("\n".join(PAGE) + "\n")


def measure(name: str, contender: Contender, folder: Path) -> None:
    """Install a package into a new environment, use it, and say what it took."""
    data = folder / "visits.parquet"
    duckdb.sql(DATA.format(data))
    if contender.script:
        shutil.copy(HERE / "peers" / contender.script, folder)
    found = Found()
    found.install += step(found, folder, sys.executable, "-m", "venv", "env")
    empty = size(folder)
    found.install += step(found, folder, "env/bin/python", "-m", "pip", "install", "--quiet", *contender.requirements)
    megabytes, packages = (size(folder) - empty) / 1e6, len(list_packages(folder))
    for (program, *words), typed in contender.commands:
        found.use += step(found, folder, f"env/bin/{program}", *words, typed=typed)
    lines = 0
    if contender.script:
        lines = sum(bool(line.strip()) for line in (folder / contender.script).read_text().splitlines()[1:])
    say()
    say(f"{name}: {', '.join(list_versions(folder, contender))}")
    say(f"  install {found.install:.0f} s, first table {found.use:.1f} s, {found.commands} commands")
    say(f"  {lines} lines of Python to write")
    say(f"  {megabytes:.0f} MB in {packages} packages; failures: {len(found.failures)}")
    say(
        "  largest: "
        + ", ".join(f"{package} {megabytes:.1f} MB" for package, megabytes in list_sizes(folder)[:LARGEST])
    )
    for failure in found.failures:
        say(f"    {failure}")
    released = [line for line in found.table.splitlines() if line.startswith(("East", "North", "South"))]
    say("  released: " + "; ".join(",".join(line.split(",")[:2]) for line in sorted(released)))
    bound = read_bound(folder)
    truth = duckdb.sql(BOUNDED.format(bound, data)).fetchall()
    say(f"  truth within {bound} rows of a patient: " + "; ".join(f"{region},{count}" for region, count in truth))


def read_bound(folder: Path) -> int:
    """The rows of a patient that count: what countveil proposed, and three in the scripts of the others."""
    config = folder / "countveil.toml"
    return int(tomllib.loads(config.read_text())["dataset"]["visits"]["rows_per_person"]) if config.exists() else 3


def step(found: Found, folder: Path, *command: str, typed: str = "") -> float:
    """Run one command; its elapsed seconds."""
    found.commands += 1
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=folder, input=typed, capture_output=True, text=True, check=False, timeout=LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        found.failures.append(f"{' '.join(command[:4])}: {error}"[:300])
        return time.perf_counter() - started
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        found.failures.append(f"{' '.join(command[:4])}: {''.join(last)}"[:300])
    found.table = done.stdout
    return time.perf_counter() - started


def size(folder: Path) -> int:
    """The bytes of the files of the environment, without compiled Python, which depends on what was imported."""
    return sum(path.lstat().st_size for path in (folder / "env").rglob("*") if path.is_file() and path.suffix != ".pyc")


def list_packages(folder: Path) -> list[str]:
    """The installed packages, without pip and setuptools, which every new environment has."""
    names = [path.name for path in (folder / "env").rglob("*.dist-info")]
    return [name for name in names if not name.startswith(("pip-", "setuptools-"))]


def list_sizes(folder: Path) -> list[tuple[str, float]]:
    """Installed packages and their megabytes, the largest first, from what pip recorded."""
    sizes = {}
    for record in (folder / "env").rglob("*.dist-info/RECORD"):
        with record.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row[2] and not row[0].endswith(".pyc")]
        sizes[record.parent.name.split("-")[0]] = sum(int(row[2]) for row in rows) / 1e6
    for name in ("pip", "setuptools"):
        sizes.pop(name, None)
    return sorted(sizes.items(), key=lambda item: -item[1])


def list_versions(folder: Path, contender: Contender) -> list[str]:
    names = {Path(word).name.partition("[")[0].replace("-", "_") for word in contender.requirements} | {"countveil"}
    return [name[:-10] for name in list_packages(folder) if name.split("-")[0].lower() in names]


def say(text: str = "") -> None:
    print(text, flush=True)
    PAGE.append(text)


if __name__ == "__main__":
    main()
