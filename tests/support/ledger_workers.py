"""Real processes for the ledger's tests: a small server that forks a worker for every task and waits for all of them.

A worker does what an answering process does: it charges, draws (here random bytes, so that tests detect a second
draw), records, and only then sends, which means that it appends a line to a file and syncs it. Workers can be made to
die at the k-th statement that changes the ledger, at the k-th line of the ledger's code, or when the server kills them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Place:
    """The place of a ledger in a test: a file, or the server whose address is in the file `server`.

    Every `host` has its own anchor.
    """

    folder: Path
    host: str = ""

    @property
    def ledger(self) -> Path:
        return self.folder / "x.ledger"

    @property
    def anchor(self) -> Path:
        return self.folder / f"anchor{self.host}" / "x.anchor"

    @property
    def sent(self) -> Path:
        return self.folder / "sent"

    def make(self) -> Place:
        self.anchor.parent.mkdir(parents=True, exist_ok=True)
        return self

    def open(self, **more: Any) -> Any:
        server = self.folder / "server"
        if server.exists():
            from countveil.ledger.postgres import PostgresLedger

            return PostgresLedger(server.read_text(), self.anchor, **more)
        from countveil.ledger.sqlite import SqliteLedger

        return SqliteLedger(self.ledger, self.anchor, **more)


def plan(answers: int, pool: str = "people", **others: int) -> Any:
    """A plan of one grade, `standard`, or with `others` (their answers by name) of several."""
    from countveil.ledger import GradeRecord, PlanRecord

    many = {"standard": answers, **others}
    grades = (GradeRecord(name, k, "nonnegative", "f" * 64, document="a document") for name, k in many.items())
    return PlanRecord(pool, "1", "1e-6", "add-remove", 1, 1, "variance", tuple(grades))


class Workers:
    """The client's side: starts a server that runs tasks at the same time.

    `run` returns their exit codes; a negative code is the signal that ended the process.
    """

    def __init__(
        self, preload: str = "countveil.ledger.restoration", environment: dict[str, str] | None = None
    ) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ledger_workers", preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()

    def run(self, *tasks: dict[str, Any], kill_after: float | None = None, once_sent: int = 0) -> list[int]:
        """Run tasks and return their exit codes. With `kill_after`, kill them all this many seconds after they have
        sent `once_sent` answers together."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(
            json.dumps({"tasks": tasks, "kill_after": kill_after, "once_sent": once_sent}),
            file=self.server.stdin,
            flush=True,
        )
        return list(json.loads(self.server.stdout.readline()))


def lines(folder: Path) -> list[dict[str, Any]]:
    """Everything that was sent, without a last line that is incomplete because its worker was killed."""
    whole = [line for file in sorted(folder.glob("sent*")) for line in file.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in whole if line.endswith("\n")]


def audit(place: Place, *, complete: bool = True) -> dict[str, int]:
    """Check what must be true after any crash: every sent answer is the only answer of one charge; a restart works."""
    ledger = place.open()
    try:
        ledger.verify()
        charges = list(ledger.charges())
        asked = [(c.pool, c.dataset, c.version, c.question, c.grade) for c in charges]
        assert len(set(asked)) == len(asked), "a question was charged twice"
        for pool in {c.pool for c in charges}:
            for grade, standing in ledger.standings(pool).items():
                assert standing.spent == sum((c.pool, c.grade) == (pool, grade) for c in charges)
                assert standing.spent <= standing.answers
        sent = lines(place.folder)
        recorded = {c.id: ledger.find(c.pool, c.dataset, c.version, c.question, c.grade).payload for c in charges}
        for line in sent:
            assert line["charge"] in recorded, "an answer without a charge"
            assert bytes.fromhex(line["payload"]) == recorded[line["charge"]], "a second noise for one charge"
        waiting = [c for c in charges if recorded[c.id] is None]
        if complete:
            for each in waiting:
                asked = (each.pool, each.dataset, each.version, each.question, each.text, each.analyst, each.grade)
                again = ledger.charge(*asked)
                assert (again.id, again.fresh) == (each.id, False), "an open charge was paid again"
                ledger.record(again, b"completed")
            assert len(list(ledger.charges())) == len(charges)
            ledger.verify()
        return {"charges": len(charges), "open": len(waiting), "sent": len(sent)}
    finally:
        ledger.close()


# -- the workers' side -------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_step(at: int | None) -> Callable[[str], None]:
    """A function that counts the statements that change the ledger, and ends the process at the k-th."""
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            die()

    return step


def die_at_line(at: int, count: list[int], files: tuple[str, ...] = ("",)) -> None:
    """End the process at the k-th line of the ledger's own code (or of some of its files) from now on."""
    endings = tuple(f"/countveil/ledger/{file}" if file else ".py" for file in files)
    seen = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal seen
        name = frame.f_code.co_filename
        if "/countveil/ledger/" not in name or not name.endswith(endings):
            return None
        if event == "line":
            seen += 1
            count[0] = seen
            if seen == at:
                die()
        return trace

    sys.settrace(trace)


def send(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")
        out.flush()
        os.fsync(out.fileno())


def answering(
    folder: str,
    *,
    questions: list[str],
    answers: int = 10**6,
    others: dict[str, int] | None = None,
    share: int | None = None,
    die_at_step: int | None = None,
    line: int | None = None,
    tell: str | None = None,
    analyst: str = "ann",
    host: str = "",
) -> None:
    """Open a ledger, make a plan, and answer every question as a curator does, with random bytes as noise.

    `others` are the answers of other grades than standard. A question "a@fine" is question a, paid by grade fine.
    """
    from countveil.errors import BudgetError

    place, count = Place(Path(folder), host), [0]
    steps: list[str] = []
    dying = dying_step(die_at_step)

    def step(name: str) -> None:
        steps.append(name)
        dying(name)

    if line is not None:
        die_at_line(line, count)
    ledger = place.open(step=step)
    ledger.open_plan(plan(answers, **(others or {})))
    for grade in ("standard", *(others or {})) if share is not None else ():
        ledger.set_share("people", analyst, share, grade)
    version = ledger.version("people", "a fingerprint")
    for question in questions:
        asked, _, grade = question.partition("@")
        try:
            charge = ledger.charge("people", "people", version, asked, "how many?", analyst, grade or "standard")
        except BudgetError:
            send(place.folder / f"refused.{os.getpid()}", {"question": question})
            continue
        if charge.payload is None:
            charge = ledger.record(charge, os.urandom(16))
        send(
            place.folder / f"sent.{os.getpid()}",
            {"charge": charge.id, "payload": charge.payload.hex(), "fresh": charge.fresh, "question": question},
        )
    ledger.close()
    sys.settrace(None)
    if tell is not None:
        send(Path(tell), {"steps": steps, "lines": count[0]})


def at_once(folder: str, *, go: str, **task: Any) -> None:
    """Do the same as `answering`, but begin at the same time as all other workers."""
    while not Path(go).exists():
        time.sleep(0.002)
    answering(folder, **task)


def enduring(folder: str, *, host: str, stop: str) -> None:
    """Answer the same questions as all other workers, in order, and go on whatever happens to the server."""
    from countveil.errors import LedgerError

    place, ledger, question, said = Place(Path(folder), host), None, 0, dict[str, int]()
    while not Path(stop).exists():
        try:
            if ledger is None:
                ledger = place.open()
            charge = ledger.charge("people", "people", 1, f"{question}", "how many?", "ann")
            if charge.payload is None:
                charge = ledger.record(charge, os.urandom(16))
        except LedgerError as error:
            said[str(error)] = said.get(str(error), 0) + 1
            if ledger is not None and sum(said.values()) % 20 == 0:
                ledger.close()  # every now and then, start anew
                ledger = None
            time.sleep(0.03)
            continue
        line = {"charge": charge.id, "payload": charge.payload.hex(), "fresh": charge.fresh, "question": question}
        send(place.folder / f"sent.{os.getpid()}", line)
        question += 1
    send(place.folder / f"said.{os.getpid()}", said)


def begin(*, go: str, after: float = 0.2) -> None:
    time.sleep(after)
    Path(go).touch()


def restoring(folder: str, *, copy: str | None, line: int | None = None, tell: str | None = None, **more: bool) -> None:
    """Restore a copy, and end the process at the k-th line of the code that moves files."""
    from countveil.ledger.restoration import restore

    place, count = Place(Path(folder)), [0]
    if line is not None:
        die_at_line(line, count, ("restoration.py", "anchor.py"))
    restore(Path(copy) if copy else None, place.ledger, place.anchor, **more)
    sys.settrace(None)
    if tell is not None:
        send(Path(tell), {"lines": count[0]})


def asking(config: str, *, go: str, sql: str, out: str, grade: str | None = None) -> None:
    """Ask through a curator, and write the answer, or the name of the error, to a file."""
    from countveil.curator.curator import Curator
    from countveil.errors import CountveilError

    while not Path(go).exists():
        time.sleep(0.002)
    try:
        with Curator.open(config) as curator:
            table = curator.count(sql, grade=grade)
        result: dict[str, Any] = {"charge": table.receipt.id, "rows": table.released.tolist()}
        if grade is not None:
            result["grade"] = table.receipt.grade
    except CountveilError as error:
        result = {"refused": type(error).__name__, "message": str(error)}
    send(Path(out) / f"got.{os.getpid()}", result)


def disk_fault(folder: str, *, syncs: int = -1, writes: int = -1, tell: str, question: str) -> None:
    """Charge, record and send while syncs or writes fail from the k-th on; then do the same without failures."""
    import ctypes

    from countveil.errors import LedgerError

    disk = ctypes.CDLL(None)
    place = Place(Path(folder))
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    disk.faulty_from(syncs, writes, -1)
    said, got = None, None
    try:
        charge = ledger.charge("people", "people", 1, question, "how many?", "ann")
        if charge.payload is None:
            charge = ledger.record(charge, os.urandom(16))
        got = {"charge": charge.id, "payload": charge.payload.hex(), "fresh": True, "question": question}
    except LedgerError as error:
        said = str(error)
    tried = disk.faulty_tried()
    disk.faulty_from(-1, -1, -1)
    if got is not None:
        send(place.folder / "sent", got)
    send(Path(tell), {"said": said, "tried": tried, "sent": got is not None})
    os._exit(0)  # without closing: what is not on disk now is left to the restart


def order_of_syncs(folder: str, *, notes: str) -> None:
    import ctypes

    place = Place(Path(folder))
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    handle = os.open(notes, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    ctypes.CDLL(None).faulty_from(-1, -1, handle)
    charge = ledger.charge("people", "people", 1, "a", "how many?", "ann")
    os.write(handle, b"look at the data\n")
    ledger.record(charge, b"x")
    os.write(handle, b"send\n")
    ctypes.CDLL(None).faulty_from(-1, -1, -1)


def out_of_room(folder: str, *, room: int, tell: str) -> None:
    """Work with a limit on the size of files instead of a full disk: every write beyond the limit fails."""
    import resource

    from countveil.errors import LedgerError

    place = Place(Path(folder))
    ledger = place.open()
    ledger.open_plan(plan(10**6))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = place.ledger.with_name("x.ledger-wal").stat().st_size
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (log + room, hard))
    sent, said = [], None
    try:
        for i in range(1000):
            charge = ledger.charge("people", "people", 1, f"{room}.{i}", "how many?", "ann")
            charge = ledger.record(charge, os.urandom(16))
            sent.append({"charge": charge.id, "payload": charge.payload.hex(), "question": f"{i}"})
    except LedgerError as error:
        said = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for each in sent:
        send(place.folder / "sent", each)
    send(Path(tell), {"said": said, "sent": len(sent)})
    ledger.charge("people", "people", 1, f"{room} and after", "how many?", "ann")
    ledger.close()


TASKS: dict[str, Callable[..., None]] = {
    "answering": answering,
    "at_once": at_once,
    "begin": begin,
    "enduring": enduring,
    "restoring": restoring,
    "asking": asking,
    "disk_fault": disk_fault,
    "order_of_syncs": order_of_syncs,
    "out_of_room": out_of_room,
}


def serve() -> None:
    __import__(sys.argv[1])
    __import__("countveil.sampling.randomness")  # once here, and not in every worker
    for request in sys.stdin:
        wanted = json.loads(request)
        children = [child(task) for task in wanted["tasks"]]
        if wanted["kill_after"] is not None:
            files = [Path(task["folder"]) / f"sent.{pid}" for task, pid in zip(wanted["tasks"], children, strict=True)]
            until = time.monotonic() + 30
            while sum(sent_by(file) for file in files) < wanted["once_sent"] and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(wanted["kill_after"])
            for pid in children:
                os.kill(pid, signal.SIGKILL)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]), flush=True)


def sent_by(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def child(task: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(0)
            random.seed()  # otherwise every child makes the same choices
            name = task.pop("task")
            TASKS[name](**task)
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return pid


if __name__ == "__main__":
    serve()
