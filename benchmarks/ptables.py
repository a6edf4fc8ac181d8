"""How long p-tables take: reading, auditing, designing, writing, and how that grows.

    python benchmarks/ptables.py [--quick] [--save]

1. Audits of integer-key tables of 750 rows, all different: by the number of keys (lines of the file) and by D (cells of
   a row). The goal: 750 rows of 4096 keys in seconds, reading included, with the whole curve.
2. Audits of tau-Argus tables: by the number of rows.
3. Designs: by D, with rows of variance as R's tables have them; and the delta that is won against R's table.
4. Exports of a mechanism, by format.

`--save` writes the output, with date and machine, to benchmarks/results/ptables.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from design import _Tee, machine

import countveil as cv
from countveil import ptables

GOAL = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/ptables.txt")
    options = parser.parse_args()
    page = io.StringIO()
    with contextlib.redirect_stdout(_Tee(page)), tempfile.TemporaryDirectory() as folder:
        print(f"{date.today()}, {machine()}\n")
        integer_keys(Path(folder), options.quick)
        bounds(Path(folder), options.quick)
        designs(options.quick)
        exports(Path(folder))
    if options.save:
        (Path(__file__).parent / "results" / "ptables.txt").write_text(page.getvalue())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def invented(keys: int, D: int, path: Path) -> None:
    """750 rows of noise within ±D (and never below 0), no two alike."""
    generator = np.random.default_rng(keys * 1000 + D)
    with path.open("w") as file:
        file.write('"pcv","ckey","pvalue"\n')
        for i in range(1, 751):
            noise = np.clip(generator.binomial(2 * D, 0.5, keys) - D, -min(i, D), D)
            file.write("".join(f"{i},{k},{v}\n" for k, v in enumerate(noise.tolist())))


def integer_keys(folder: Path, quick: bool) -> None:
    print(
        "1. Integer keys, 750 different rows: seconds to read, to audit at one epsilon, with the whole curve (41 more)"
    )
    path = folder / "keys.csv"
    by_keys = [(keys, 7) for keys in ((256, 4096) if quick else (256, 1024, 4096))]
    by_D = [(4096, D) for D in ((20,) if quick else (14, 28, 56))]
    before = None
    for keys, D in by_keys + by_D:
        invented(keys, D, path)
        reading, table = timed(lambda: ptables.read(path))
        once, _ = timed(lambda table=table: ptables.audit(table, epsilons=["1"]))
        curve, _ = timed(lambda table=table: ptables.audit(table, epsilons=["1"], curve=True))
        total = reading + curve
        growth = f"{total / before:5.1f}x" if before else "      "
        goal = f"   goal {GOAL:.0f} s: {'met' if total < GOAL else 'MISSED'}" if (keys, D) == (4096, 7) else ""
        print(
            f"  {keys:5d} keys, D {D:3d}   {750 * keys:9,d} lines   read {reading:6.2f}   audit {once:6.2f}   "
            f"curve {curve:6.2f}   all {total:6.2f} {growth}{goal}"
        )
        before = total
    print()


def bounds(folder: Path, quick: bool) -> None:
    print("2. tau-Argus, every row different: seconds to read, to audit with the whole curve")
    path = folder / "bounds.txt"
    before = None
    for rows in (100, 400) if quick else (100, 200, 400, 800, 1600):
        generator = np.random.default_rng(rows)
        with path.open("w") as file:
            file.write("i;j;p;v;p_ub\n")
            for i in range(rows):
                values = range(-min(i, 10), 11)
                cuts = np.sort(generator.integers(1, 10**8, len(values) - 1)).tolist()
                for v, a, b in zip(values, [0, *cuts], [*cuts, 10**8], strict=True):
                    file.write(f"{i};{i + v};{(b - a) / 1e8:.8f};{v};{b / 1e8:.8f}\n")
        reading, table = timed(lambda: ptables.read(path))
        curve, _ = timed(lambda table=table: ptables.audit(table, curve=True))
        growth = f"{(reading + curve) / before:5.1f}x" if before else ""
        print(f"  {rows:5d} rows   read {reading:6.2f}   audit {curve:6.2f}   {growth}")
        before = reading + curve
    print()


def designs(quick: bool) -> None:
    print("3. Designs at epsilon 1, 1 and 2 blocked, zero frozen: seconds; delta of counts >= 1, of the last row")
    for D, V in ((5, 3), (7, 4), (10, 6)) if quick else ((5, 3), (7, 4), (10, 6), (15, 10), (20, 15)):
        seconds, found = timed(lambda D=D, V=V: ptables.design(D=D, V=V, js=2))
        theirs = ptables.design(D=D, V=V, js=2, objective="entropy").table
        ours, before = (ptables.audit(table, epsilons=["1"]) for table in (found.table, theirs))
        shown = [f"{float(each.delta(name, 1)):9.2e}" for name in ("from_n0", "last_row") for each in (ours, before)]
        print(
            f"  D {D:3d}, V {V:3d}   {seconds:6.2f} s   counts >= 1: {shown[0]} (R's table {shown[1]})   "
            f"last row: {shown[2]} (R's {shown[3]})"
        )
    print()


def exports(folder: Path) -> None:
    print("4. A mechanism (epsilon 1, delta 1e-6) as a file: seconds to round, measure and write; delta as designed")
    mechanism = cv.design(epsilon="1", delta="1e-6")
    for kind, keys in (("tau-argus", None), ("sas", None), ("cellkey", None), ("ons", 256), ("ons", 4096)):
        seconds, table = timed(lambda kind=kind, keys=keys: written(mechanism, kind, keys, folder))
        delta = float(ptables.audit(table, epsilons=["1"]).delta("designed", 1))
        print(f"  {kind:10s} {keys or '':5}  {seconds:6.2f} s   delta {delta:.3g}")


def written(mechanism: cv.Mechanism, kind: str, keys: int | None, folder: Path) -> ptables.PTable:
    table = ptables.export(mechanism, kind, keys=keys).table
    ptables.save(table, folder / "table", kind)
    return table


if __name__ == "__main__":
    main()
