"""The service against a bare endpoint that returns the plain count: requests a second and how long each waits.

    python benchmarks/service.py [--quick] [--save] [--folder FOLDER] [--profile]

1. Dry runs, fresh counts and replays at 1, 16 and 64 clients, in turn with a bare FastAPI + DuckDB endpoint: the same
   Parquet file, the same question in hand-written SQL, the same server settings and number of workers, no keys, no
   ledger, no noise. It reads the file for every question, as one would write it first; a second one has read it into
   a table of DuckDB's memory. A fresh count takes three syncs before it is sent, one after another: of its charge and
   of its answer in the ledger's log, and of the anchor.
2. What the disk costs: the same with ledger and anchor in memory (/dev/shm), where a sync does nothing.
3. What grouping commits gives: the same with one change in each transaction.

Both servers run all the time and are asked in turn, so that whatever else the machine does falls on both. Clients keep
their connections and send the next request when they have the answer. `--profile` samples where a worker's time goes
while fresh counts are asked. `--save` writes the output, with date and machine, to benchmarks/results/service.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from pydantic import BaseModel
from sampling import goal

from countveil.config.configuration import load
from countveil.curator.curator import Curator
from countveil.ledger import group_commit
from countveil.service.api_keys import Keyring

CLIENTS = (1, 16, 64)
WORKERS = os.cpu_count() or 1
ROWS = 5_000
HERE = Path(__file__).parent
SQL = "SELECT region, count(*) FROM {table} WHERE age >= {least} GROUP BY region"
CONFIG = """\
[ledger]
path = "{ledger}/x.ledger"
anchor = "{ledger}/x.anchor"
[service]
rate = 1000000
keys = "{folder}/keys"
[dataset.people]
source = "{folder}/people.parquet"
unit = "row"
[dataset.people.columns]
region = ["North", "South", "East", "West"]
age = {{ min = 0, max = 999999 }}
[dataset.people.budget]
epsilon = "3"
delta = "1e-6"
answers = 100
"""
PAGE: list[str] = []


class Ask(BaseModel):
    """What the bare endpoint takes."""

    least: int


class Load(NamedTuple):
    """What a round of some seconds gave."""

    rate: float
    waits: list[float]
    own: float
    """The share of one core that the clients took."""
    spent: float
    """Seconds of all cores that the server took for a request, whatever else ran."""


class Server(NamedTuple):
    """A server that runs, and the request that asks for people of at least some age."""

    port: int
    asking: Callable[[str, int], bytes]
    process: subprocess.Popen[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round for each figure")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/service.txt")
    parser.add_argument("--folder", default="build", help="where to put the ledger (default: build, which git ignores)")
    parser.add_argument("--profile", action="store_true", help="only sample where a worker's time goes")
    parser.add_argument("--serve", nargs=2, metavar=("WHICH", "CONFIG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    seconds, rounds = (1.0, 1) if options.quick else (1.5, 9)  # many short ones: what disturbs a few does not count
    python = platform.python_version()
    say(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {python}, DuckDB {duckdb.__version__}")
    busy = os.getloadavg()[0]
    if busy > 0.3:
        say(f"Other work was running (load average {busy:.1f}): rates are too low and noisy; run again when quiet.")
    say(f"{ROWS:,} rows of Parquet, 4 cells, {WORKERS} workers; clients and servers share the machine")
    place = Path(options.folder).resolve()
    place.mkdir(exist_ok=True)
    say(f"A sync of 4 kB to this disk takes {1000 * synced(place):.2f} ms (median)")
    say()
    with tempfile.TemporaryDirectory(dir=place) as disk, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        if options.profile:
            profile(Path(disk))
            return
        against_bare(Path(disk), seconds, rounds)
        variants(Path(disk), Path(memory), seconds, rounds)
    if options.save:
        (HERE / "results" / "service.txt").write_text("\n".join(PAGE) + "\n")


# -- what is measured --------------------------------------------------------------------------------------------------


def against_bare(folder: Path, seconds: float, rounds: int) -> None:
    say("1. Against a bare endpoint, medians of rounds in turn: requests a second, p50 and p99 in ms,")
    say("   and ms of processor time that the server took for each")
    fresh = count(1)
    with ExitStack() as stack:
        ours = stack.enter_context(running("ours", folder / "ours"))
        bare = stack.enter_context(running("bare", folder / "bare"))
        held = stack.enter_context(running("held", folder / "held"))
        known = [next(fresh) for _ in range(50)]
        load_of(ours, "count", iter(known * WORKERS * 4), 16, 60.0)  # on record, and known to every worker
        tasks: dict[str, Callable[[int], Load]] = {
            "bare endpoint": lambda n: load_of(bare, "count", fresh, n, seconds),
            "bare, in memory": lambda n: load_of(held, "count", fresh, n, seconds),
            "dry run": lambda n: load_of(ours, "plan", fresh, n, seconds),
            "fresh count": lambda n: load_of(ours, "count", fresh, n, seconds),
            "replay": lambda n: load_of(ours, "count", cycle(known), n, seconds),
        }
        spread, own = {}, []
        for clients in CLIENTS:
            found = in_turn(tasks, clients, rounds)
            base = statistics.median(load.rate for load in found["bare endpoint"])
            for name, loads in found.items():
                ratio = 100 * statistics.median(load.rate for load in loads) / base
                own += [load.own for load in loads]
                told = "" if name == "bare endpoint" else f"   {ratio:4.0f} % of the bare endpoint"
                if name in ("dry run", "replay"):
                    told += f" ({goal(ratio, 100, 'at least 100 %')})"
                say(f"  {clients:2d} clients  {name:15s} {figures(loads)}{told}")
            spread[clients] = [
                shares(found["fresh count"], found[name]) for name in ("bare endpoint", "bare, in memory")
            ]
    for clients, (plain, memory) in spread.items():
        low, ratio, high, spent = plain
        say(
            f"  fresh counts, durably charged, {clients:2d} clients: {ratio:.0f} %, half of the rounds "
            f"{low:.0f}-{high:.0f} % ({goal(ratio, 30, 'at least 30 %')}); {memory[1]:.0f} % of the one in memory; "
            f"by processor time {spent:.0f} % of the bare endpoint, {memory[3]:.0f} % of the one in memory"
        )
    say(f"  the clients took {100 * statistics.median(own):.0f} % of one core (at most {100 * max(own):.0f} %)")
    say()


def variants(disk: Path, memory: Path, seconds: float, rounds: int) -> None:
    say("2. and 3. Fresh counts with the ledger on disk, in memory, and with one change in each transaction")
    fresh = count(1)
    with ExitStack() as stack:
        servers = {
            "on disk": stack.enter_context(running("ours", disk / "disk")),
            "in memory": stack.enter_context(running("ours", memory / "memory")),
            "not grouped": stack.enter_context(running("ungrouped", disk / "alone")),
        }
        tasks: dict[str, Callable[[int], Load]] = {
            name: partial(lambda server, n: load_of(server, "count", fresh, n, seconds), server)
            for name, server in servers.items()
        }
        for clients in CLIENTS:
            found = in_turn(tasks, clients, rounds)
            rates = {name: statistics.median(load.rate for load in loads) for name, loads in found.items()}
            for name, loads in found.items():
                told = "" if name == "on disk" else f"   {rates[name] / rates['on disk']:.2f}x of on disk"
                say(f"  {clients:2d} clients  {name:15s} {figures(loads)}{told}")


def shares(ours: list[Load], theirs: list[Load]) -> tuple[float, float, float, float]:
    """Our rate in per cent of theirs: the median rates, between the quartiles of what rounds in turn gave. Last, the
    requests for the same processor time, which other work on the machine does not change."""
    each = sorted(100 * a.rate / b.rate for a, b in zip(ours, theirs, strict=True))
    median = 100 * statistics.median(a.rate for a in ours) / statistics.median(b.rate for b in theirs)
    spent = 100 * statistics.median(b.spent for b in theirs) / statistics.median(a.spent for a in ours)
    return each[len(each) // 4], median, each[-1 - len(each) // 4], spent


def synced(folder: Path) -> float:
    """Seconds that a sync of one page takes, over a file that is there."""
    took = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(201):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - begun)
    return statistics.median(took)


def figures(loads: list[Load]) -> str:
    waits = sorted(wait for load in loads for wait in load.waits)
    p50, p99 = (1000 * waits[min(len(waits) - 1, int(share * len(waits)))] for share in (0.50, 0.99))
    rate, spent = (statistics.median(values) for values in ([x.rate for x in loads], [x.spent for x in loads]))
    return f"{rate:7.0f} /s   {p50:6.1f} {p99:7.1f}   {1000 * spent:5.2f}"


def in_turn(tasks: dict[str, Callable[[int], Load]], clients: int, rounds: int) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            found[name].append(task(clients))
    return found


# -- the clients -------------------------------------------------------------------------------------------------------


def load_of(server: Server, what: str, questions: Iterator[int], clients: int, seconds: float) -> Load:
    """So many clients in one thread, each with a request under way until the time is over or no question is left."""
    waits: list[float] = []
    used, spent, started = time.process_time(), taken(server.process.pid), time.perf_counter()
    until, open_ = started + seconds, 0
    with selectors.DefaultSelector() as selector:

        def ask(client: socket.socket) -> bool:
            question = next(questions, None) if time.perf_counter() < until else None
            if question is None:
                selector.unregister(client)
                client.close()
                return False
            state = selector.get_key(client).data
            state["since"], state["got"] = time.perf_counter(), b""
            client.sendall(server.asking(what, question))
            return True

        for _ in range(clients):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(client, selectors.EVENT_READ, {})
            open_ += ask(client)
        while open_:
            for key, _ in selector.select():
                client, state = key.fileobj, key.data
                assert isinstance(client, socket.socket)
                state["got"] += client.recv(1 << 16)
                if whole(state["got"]):
                    waits.append(time.perf_counter() - state["since"])
                    open_ -= not ask(client)
    took = time.perf_counter() - started
    spent = (taken(server.process.pid) - spent) / max(1, len(waits))
    return Load(len(waits) / took, waits, (time.process_time() - used) / took, spent)


def taken(process: int) -> float:
    """Seconds of processor time of a process and all that it started."""
    own = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()
    started = (Path("/proc") / str(process) / "task" / str(process) / "children").read_text().split()
    return (int(own[11]) + int(own[12])) / os.sysconf("SC_CLK_TCK") + sum(taken(int(child)) for child in started)


def whole(got: bytes) -> bool:
    """A response has arrived; one that is not an answer ends the run."""
    head, mark, body = got.partition(b"\r\n\r\n")
    if not mark:
        return False
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"not an answer: {got[:1000]!r}")
    lowered = head.lower()
    start = lowered.index(b"content-length: ") + 16
    return len(body) >= int(lowered[start:].partition(b"\r\n")[0])


# -- the servers -------------------------------------------------------------------------------------------------------


@contextmanager
def running(which: str, folder: Path) -> Iterator[Server]:
    """A server with its own folder, data and ledger, until the block ends."""
    key = prepared(folder)
    command = [sys.executable, __file__, "--serve", which, str(folder / "countveil.toml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    port = int(process.stderr.readline().rpartition(":")[2])
    threading.Thread(target=process.stderr.read, daemon=True).start()
    plain = partial(request, "", lambda least: {"least": least})
    asked = partial(request, f"Authorization: Bearer {key}\r\n", lambda n: {"sql": SQL.format(table="people", least=n)})
    server = Server(port, plain if which in ("bare", "held") else asked, process)
    try:
        load_of(server, "count", iter(range(900_000, 900_100)), 8, 120.0)  # warm, and the file is no longer fresh
        time.sleep(2.5)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def request(header: str, body: Callable[[int], dict[str, Any]], what: str, number: int) -> bytes:
    """The request of the n-th question; they are all different, and of all sizes."""
    content = json.dumps(body(number * 7919 % 1_000_000))
    return (
        f"POST /v1/{what} HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}Content-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n{content}"
    ).encode()


def prepared(folder: Path) -> str:
    """Data, configuration, a ledger with answers enough, and a key."""
    folder.mkdir()
    words = "['North', 'South', 'East', 'West'][1 + (hash(i) % 4)::INTEGER]"
    duckdb.connect().execute(
        f"COPY (SELECT {words} AS region, (hash(i + 7) % 1000000)::INTEGER AS age FROM range({ROWS}) AS r(i)) "
        f"TO '{folder / 'people.parquet'}' (FORMAT parquet)"
    )
    path = folder / "countveil.toml"
    path.write_text(CONFIG.format(ledger=folder, folder=folder))
    with Curator.open(path) as curator:
        curator.count("SELECT count(*) FROM people")
        curator.ledger.extend("people", 900_000, "100", "a benchmark asks more than anyone may")
    return Keyring(load(path).service.keys).add("bench")[1]


def serve(which: str, config: str) -> None:
    """In a process of its own: the service's way to run, with another application in its place if asked for."""
    import uvicorn

    from countveil.service import server

    make = uvicorn.Config
    others = {name: f"service:{name}" for name in ("bare", "held", "ungrouped", "sampled")}
    os.environ["COUNTVEIL_BENCH_FOLDER"] = str(Path(config).parent)
    if which in others:
        server.uvicorn.Config = lambda app, **settings: make(others[which], **settings)  # type: ignore[assignment]
    place = server.Place(port=0, workers=WORKERS)
    server.serve(load(config), place, lambda address: print(address, file=sys.stderr, flush=True))


def ungrouped() -> Any:
    """The service with one change in each transaction."""
    from countveil.service.app import from_environment

    group_commit.MOST = 1
    return from_environment()


def bare() -> Any:
    """What anyone would write first: the question as SQL, its counts as JSON."""
    return endpoint(duckdb.connect(), _file())


def held() -> Any:
    """The same on a table in memory."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people AS SELECT * FROM {_file()}")
    return endpoint(connection, "people")


def _file() -> str:
    return f"read_parquet('{os.environ['COUNTVEIL_BENCH_FOLDER']}/people.parquet')"


def endpoint(connection: duckdb.DuckDBPyConnection, table: str) -> Any:
    from fastapi import FastAPI

    app, sql = FastAPI(), SQL.format(table=table, least="?")

    @app.post("/v1/count")
    def answer(ask: Ask) -> dict[str, Any]:
        with connection.cursor() as cursor:
            return {"columns": ["region", "count"], "rows": cursor.execute(sql, [ask.least]).fetchall()}

    return app


# -- where the time goes -----------------------------------------------------------------------------------------------


def profile(folder: Path) -> None:
    """Fresh counts while every worker samples its own threads."""
    with running("sampled", folder / "sampled") as server:
        found = load_of(server, "count", count(1), 16, 15.0)
        say(f"{found.rate:.0f} /s while sampled; the clients took {100 * found.own:.0f} % of one core")
    for file in sorted((folder / "sampled").glob("samples.*")):
        say(f"\n{file.name}")
        print(file.read_text())


def sampled() -> Any:
    """The service, with a thread that looks at all others every few milliseconds and writes down where they are."""
    from countveil.service.app import from_environment

    def sample() -> None:
        inside: Counter[str] = Counter()
        at: Counter[str] = Counter()
        me, last, total = threading.get_ident(), time.monotonic(), 0
        file = Path(os.environ["COUNTVEIL_BENCH_FOLDER"]) / f"samples.{os.getpid()}"
        while True:
            time.sleep(0.003)
            for thread, frame in sys._current_frames().items():
                names, here = [], frame
                while here is not None:
                    code = here.f_code
                    names.append(f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_name}")
                    here = here.f_back  # type: ignore[assignment]
                if thread != me and not any("_bootstrap" in names[0] or "queue.py" in name for name in names[:3]):
                    total += 1
                    at[f"{names[0]}:{frame.f_lineno}"] += 1
                    inside.update(set(names))
            if time.monotonic() > last + 2:
                lines = [f"{total} samples", "-- inside"]
                lines += [f"{100 * n / total:6.1f} %  {name}" for name, n in inside.most_common(90)]
                lines += ["-- at"] + [f"{100 * n / total:6.1f} %  {name}" for name, n in at.most_common(40)]
                file.write_text("\n".join(lines))
                last = time.monotonic()

    threading.Thread(target=sample, daemon=True).start()
    return from_environment()


def say(line: str = "") -> None:
    print(line, flush=True)
    PAGE.append(line)


if __name__ == "__main__":
    main()
