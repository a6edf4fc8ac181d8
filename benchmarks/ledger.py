"""How many answers a ledger can pay for and record in a second, against what its disk can sync.

    python benchmarks/ledger.py [--quick] [--save] [--folder FOLDER]

An answer is a charge and its record: two transactions, each on disk in the log (one sync) and then in the anchor (two
syncs: its file, its folder). So the physical limit of one process is a sixth of the rate at which the same disk syncs a
small write, measured in the same run before and after. Processes that write at the same time share the anchor's syncs.

`--save` writes the output, with date and machine, to benchmarks/results/ledger.txt.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from datetime import date
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from countveil.ledger import GradeRecord, PlanRecord
from countveil.ledger.sqlite import SqliteLedger

WRITERS = 8
SYNCS = 6
PAGE: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a second for each figure instead of five")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/ledger.txt")
    parser.add_argument("--folder", default=".", help="where to put the ledger (default: here)")
    options = parser.parse_args()
    seconds = 1.0 if options.quick else 5.0
    python, sqlite = platform.python_version(), sqlite3.sqlite_version
    say(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {python}, SQLite {sqlite}")
    busy = os.getloadavg()[0]
    if busy > 0.3:
        say(f"Other work was running (load average {busy:.1f}): rates are too low and noisy; run again when quiet.")
    say()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        before = syncs(folder, seconds)
        alone = answers(folder / "alone", 1, seconds)
        between = syncs(folder, seconds)
        together = answers(folder / "together", WRITERS, seconds)
        after = syncs(folder, seconds)
        opening(folder)
    for what, rate, around in (
        ("1 process", alone, (before, between)),
        (f"{WRITERS} processes", together, (between, after)),
    ):
        limit = statistics.mean(around) / SYNCS
        say(
            f"{what:12s} {rate:8.0f} answers a second; the disk's {statistics.mean(around):.0f} syncs a second allow "
            f"{limit:.0f} one after another; {rate / limit:.2f} of it"
        )
    for line in OPENED:
        say(line)
    if options.save:
        target = Path(__file__).parent / "results" / "ledger.txt"
        target.write_text("\n".join(PAGE) + "\n")


def syncs(folder: Path, seconds: float) -> float:
    """Small writes to the end of a file, each synced: the physical limit."""
    count, started = 0, time.perf_counter()
    with (folder / "raw").open("ab", buffering=0) as file:
        while time.perf_counter() - started < seconds:
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            count += 1
    return count / (time.perf_counter() - started)


def answers(folder: Path, writers: int, seconds: float) -> float:
    """Charges and records by several processes on one ledger; all are counted in the ledger afterwards."""
    folder.mkdir()
    ledger = opened(folder)
    grade = GradeRecord("standard", 10**6, "nonnegative", "f" * 64, document="{}")
    ledger.open_plan(PlanRecord("people", "1", "1e-6", "add-remove", 1, 1, "variance", (grade,)))
    ledger.close()
    context = get_context("spawn")
    barrier = context.Barrier(writers)
    processes = [context.Process(target=write, args=(folder, i, seconds, barrier)) for i in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    ledger = opened(folder)
    done = sum(charge.answered is not None for charge in ledger.charges())
    ledger.close()
    return done / seconds


def write(folder: Path, me: int, seconds: float, barrier: Barrier) -> None:
    ledger = opened(folder)
    barrier.wait()
    i, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        charge = ledger.charge("people", "people", 1, f"{me}.{i}", "SELECT count(*) FROM people", "ann")
        ledger.record(charge, b"x" * 100)
        i += 1
    ledger.close()


OPENED: list[str] = []


def opening(folder: Path) -> None:
    """How long it takes to verify what was written."""
    for name in ("alone", "together"):
        started = time.perf_counter()
        ledger = opened(folder / name)
        entries = len(list(ledger.entries()))
        OPENED.append(f"opening and verifying {entries:,} entries: {time.perf_counter() - started:.2f} s")
        ledger.close()


def opened(folder: Path) -> SqliteLedger:
    return SqliteLedger(folder / "x.ledger", folder / "x.anchor")


def say(line: str = "") -> None:
    print(line, flush=True)
    PAGE.append(line)


if __name__ == "__main__":
    main()
