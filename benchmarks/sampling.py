"""How fast draws are: ratios, measured in one run.

    python benchmarks/sampling.py [--quick] [--save]

1. A release of 10^7 large counts against a warm copy of the same array, and
2. against numpy's geometric difference. A comparison only: numpy.random is not secure, and its geometric is not exact.
3. Against other libraries, each in a virtual environment of its own, driven by the scripts in benchmarks/peers. The
   environments are made when first needed, in $COUNTVEIL_BENCH_CACHE or ~/.cache/countveil-bench.
4. Memory beyond the input.
5. What it costs when 90 % of the counts are small and have laws of their own, and how that depends on cache and batch.

Times are the best of several rounds; what is compared is measured in turn within each round. `--save` writes the
output, with date and machine, to benchmarks/results/sampling.txt.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import countveil as cv
from countveil.sampling import sampler
from countveil.sampling.randomness import NoiseKey

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("COUNTVEIL_BENCH_CACHE") or Path.home() / ".cache" / "countveil-bench")
TARGET = {"epsilon": "1", "delta": "1e-6"}
SMALL = (
    ("program, epsilon 1", TARGET),
    ("remap, epsilon 1", {**TARGET, "method": "remap"}),
    ("remap, epsilon 0.1", {"epsilon": "0.1", "delta": "1e-6", "method": "remap"}),
)
BATCHES = (12, 14, 16, 18, 20)
ROUNDS = 5

Counts = NDArray[np.int64]
PAGE: list[str] = []


class Peer(NamedTuple):
    """A script in benchmarks/peers, what to install for it, and how many draws take it a second or so."""

    script: str
    requirements: tuple[str, ...]
    draws: int
    goal: int | None


PEERS = (
    Peer("opendp_geometric", ("opendp",), 100_000, 1000),
    Peer("opendp_gaussian", ("opendp",), 40_000, 1000),
    Peer("pydp_laplace", ("python-dp",), 200_000, None),
    Peer("diffprivlib_geometric", ("diffprivlib", "scikit-learn<1.6"), 100_000, None),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10^6 counts, and a tenth of the draws of other libraries")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/sampling.txt")
    options = parser.parse_args()
    size = 10**6 if options.quick else 10**7
    say(f"{date.today()}, {machine()}")
    busy = os.getloadavg()[0]
    if busy > 0.3:
        say(f"Other work was running (load average {busy:.1f}): times are too long and noisy; run again when quiet.")
    if options.quick:
        say("Quick: the goals are meant for 10^7 counts; 10^6 stay in the cache, where a copy is twice as fast.")
    say()
    ours = against_memory(size)
    against_peers(ours, 10 if options.quick else 1)
    memory()
    small_counts(size)
    if options.save:
        target = HERE / "results" / "sampling.txt"
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(PAGE) + "\n")


# 1. and 2. Against memory and numpy


def against_memory(size: int) -> float:
    """Prints both sections; returns our cells per second."""
    counts, out = large(size), np.zeros(size, dtype=np.int64)
    mechanism = cv.design(**TARGET, policy="signed")
    generator, p = np.random.default_rng(), -math.expm1(-1.0)

    def numpys() -> Counts:
        return counts + (generator.geometric(p, size) - generator.geometric(p, size))

    copy, alone, release, checked, fresh, geometric = in_turn(
        ROUNDS,
        lambda: np.copyto(out, counts),
        lambda: mechanism.sampler.release(counts, NoiseKey(), out=out, threads=1),
        lambda: mechanism.sampler.release(counts, NoiseKey(), out=out),
        lambda: mechanism.release(counts),
        counts.copy,
        numpys,
    )
    say(f"1. {size:,} large counts, epsilon 1, delta 1e-6, against a copy of the same array: ns per count")
    say(f"  copy, warm, preallocated         {ns(copy, size)}")
    say(f"  release, one thread              {ns(alone, size)}   {100 * copy / alone:5.1f} % of the copy's speed")
    say(
        f"  release, a thread per core       {ns(release, size)}   {100 * copy / release:5.1f} % of the copy's speed"
        f" ({goal(copy / release, 0.25, '25 %')}), {size / release / 1e6:.0f} million cells per second"
    )
    say(f"  copy to new memory               {ns(fresh, size)}")
    say(
        f"  Mechanism.release, new memory    {ns(checked, size)}   {100 * fresh / checked:5.1f} % of that copy's speed,"
        f" {size / checked / 1e6:.0f} million cells per second, counts checked"
    )
    say()
    say("2. Against numpy's geometric difference added to the counts (not secure, not exact): ns per count")
    ratio = geometric / release
    verdict = f"{goal(ratio, 8, '8x')}; with one thread {geometric / alone:.1f}x"
    say(f"  numpy                            {ns(geometric, size)}   we are {ratio:.1f}x as fast ({verdict})")
    say()
    return size / release


# 3. Against other libraries


def against_peers(ours: float, fraction: int) -> None:
    say(f"3. Against other libraries: draws per second, ours {ours:,.0f}")
    for peer in PEERS:
        try:
            found = measured(peer, peer.draws // fraction)
        except (OSError, subprocess.SubprocessError, ValueError) as problem:
            say(f"  {peer.script:22s} not measured: {reason(problem)}")
            continue
        theirs = found["draws"] / found["seconds"]
        ratio = ours / theirs
        verdict = f" ({goal(ratio, peer.goal, f'{peer.goal:,}x')})" if peer.goal else ""
        say(f"  {found['name']:22s} {found['version']:8s} {theirs:12,.0f}   we are {ratio:,.0f}x as fast{verdict}")
    say()


def measured(peer: Peer, draws: int) -> dict[str, Any]:
    """What the peer's script says about itself, run in the peer's own environment."""
    script = HERE / "peers" / f"{peer.script}.py"
    found: dict[str, Any] = json.loads(run(environment(peer.requirements), "-I", script, draws, limit=300))
    return found


def environment(requirements: tuple[str, ...]) -> Path:
    """The python of an environment with these requirements; made once, and only used when it was completed."""
    home = CACHE / f"{requirements[0]}-python{sys.version_info.major}.{sys.version_info.minor}"
    python, done = home / "bin" / "python", home / "installed.txt"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        run(sys.executable, "-m", "venv", home, limit=120)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements, limit=900)
        done.write_text("\n".join(requirements))
    return python


def run(*command: object, limit: float) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=True, timeout=limit, cwd=HERE
    )
    return done.stdout


def reason(problem: Exception) -> str:
    """The last thing that was said before it failed."""
    said = (getattr(problem, "stderr", None) or "") if isinstance(problem, subprocess.CalledProcessError) else ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return [str(problem), *lines[-1:], *errors[-1:]][-1]


# 4. Memory


def memory() -> None:
    size = 10**7  # always: blocks of this size go back to the system when freed, so that the high-water mark is true
    say(f"4. Memory beyond the input, {size:,} counts: multiples of the counts' size, new output included")
    say("                                     allocated   resident (in a process of its own)")
    cases: tuple[tuple[str, dict[str, str], bool], ...] = (
        ("signed, all large", {**TARGET, "policy": "signed"}, False),
        *((f"{name}, 90 % small", request, True) for name, request in SMALL),
    )
    for name, request, few in cases:
        with get_context("spawn").Pool(1) as pool:
            resident = pool.apply(resident_peak, (request, few, size))
        with get_context("spawn").Pool(1) as pool:
            allocated = pool.apply(allocated_peak, (request, few, size))
        shown = "      -" if resident is None else f"{resident:6.2f}x"
        say(f"  {name:34s} {allocated:6.2f}x   {shown}   ({goal(2.0, max(allocated, resident or 0.0), 'at most 2x')})")
    say()


def allocated_peak(request: dict[str, str], few: bool, size: int) -> float:
    """Peak of what Python and numpy allocate in a release."""
    mechanism, counts = ready(request, few, size)
    tracemalloc.start()
    mechanism.release(counts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / counts.nbytes


def resident_peak(request: dict[str, str], few: bool, size: int) -> float | None:
    """Growth of the process's high-water mark in a release; only Linux tells."""
    mechanism, counts = ready(request, few, size)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the mark starts again from what is in use now
        before = high_water()
    except OSError:
        return None
    mechanism.release(counts)
    return (high_water() - before) / counts.nbytes


def ready(request: dict[str, str], few: bool, size: int) -> tuple[cv.Mechanism, Counts]:
    mechanism = cv.design(**request)  # type: ignore[arg-type]
    mechanism.release(np.arange(1000))
    return mechanism, mostly_small(size) if few else large(size)


def high_water() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


# 5. Small counts


def small_counts(size: int) -> None:
    counts, mixed, out = large(size), mostly_small(size), np.empty(size, dtype=np.int64)
    ordered = np.sort(mixed)
    say(f"5. 90 % of {size:,} counts in 0..11, shuffled, against all large: ns per count")
    say("                        columns    tables   all large   shuffled             sorted")
    mechanisms = [(name, cv.design(**request)) for name, request in SMALL]  # type: ignore[arg-type]
    for name, mechanism in mechanisms:
        draws = [lambda c=c, s=mechanism.sampler: s.release(c, NoiseKey(), out=out) for c in (counts, mixed, ordered)]
        far, near, runs = in_turn(3, *draws)
        say(
            f"  {name:20s} {mechanism.laws.stationary_from:8d} {tables(mechanism.sampler) / 1024:6.0f} KB  "
            f"{ns(far, size)}  {ns(near, size)} ({near / far:5.1f}x)  {ns(runs, size)} ({runs / far:5.1f}x)"
        )
    say()
    say("   The same by batch size (words, output and temporaries of a batch should stay in the cache)")
    say("                                " + "".join(f"    2^{power}" for power in BATCHES))
    usual = sampler.BATCH
    signed = ("signed, all large", cv.design(**TARGET, policy="signed"), counts)
    for name, mechanism, values in (signed, *((f"{name}, small", m, mixed) for name, m in mechanisms)):
        row = []
        for power in BATCHES:
            sampler.BATCH = 1 << power
            row += in_turn(3, lambda c=values, s=mechanism.sampler: s.release(c, NoiseKey(), out=out))
        say(f"  {name:30s}" + "".join(f"{1e9 * taken / size:8.2f}" for taken in row))
    sampler.BATCH = usual
    say(f"   In use: 2^{usual.bit_length() - 1}.")


def tables(sampler: sampler.Sampler) -> int:
    """Bytes of all tables that a sampler looks things up in."""
    held = [getattr(value, "table", value) for value in vars(sampler).values()]
    sizes = {value.ctypes.data: value.nbytes for value in held if isinstance(value, np.ndarray)}  # views count once
    return sum(sizes.values())


# Counts without numpy.random, times, words


def scattered(size: int) -> NDArray[np.uint64]:
    """Integers with no pattern that a processor could guess: splitmix64 of 0, 1, ..."""
    x = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def large(size: int) -> Counts:
    return (1000 + scattered(size) % np.uint64(10**6)).astype(np.int64)


def mostly_small(size: int) -> Counts:
    """Nine of ten in 0..11, the others large."""
    x = scattered(size)
    few = (x >> np.uint64(32)) % np.uint64(10) > 0
    return np.where(few, x % np.uint64(12), 1000 + x % np.uint64(10**6)).astype(np.int64)


def in_turn(rounds: int, *tasks: Callable[[], object]) -> list[float]:
    """Best seconds of each task; in every round each has its turn, so that a busy machine is fair to all."""
    best = [math.inf] * len(tasks)
    for _ in range(rounds):
        for i, task in enumerate(tasks):
            started = time.perf_counter()
            task()
            best[i] = min(best[i], time.perf_counter() - started)
    return best


def ns(seconds: float, size: int) -> str:
    return f"{1e9 * seconds / size:8.2f}"


def goal(value: float, least: float, shown: str) -> str:
    return f"goal {shown}: {'reached' if value >= least else 'missed'}"


def machine() -> str:
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"numpy {np.__version__}, cryptography {version('cryptography')}"
    )


def say(line: str = "") -> None:
    """Print and keep."""
    print(line, flush=True)
    PAGE.append(line)


if __name__ == "__main__":
    main()
