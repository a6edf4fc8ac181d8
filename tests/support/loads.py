"""Load on a real service: many clients at once, workers that are killed, and a check of the ledger afterwards."""

from __future__ import annotations

import http.client
import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from countveil.config.configuration import load
from countveil.curator.recorded_counts import unpack_counts
from countveil.ledger.sqlite import SqliteLedger
from tests.support.curated import config_text, people, with_plan, written
from tests.support.servers import wait_until
from tests.support.serving import UNLIMITED, WAIT, Client, Server

CUT_SHORT = (OSError, http.client.HTTPException, ValueError)
"""The errors that a client gets if its worker dies: no connection, no response, or an incomplete one."""


class Asked(NamedTuple):
    """A question, and the idempotency key that its client sent, if any."""

    sql: str
    repeatable: str | None = None


class Reply(NamedTuple):
    """A complete response."""

    asked: Asked
    status: int
    body: Mapping[str, Any]

    @property
    def receipt(self) -> str:
        return str(self.body["receipt"]["id"])

    @property
    def counts(self) -> list[int]:
        """The released numbers, each followed by low and high."""
        return [row[-3] for row in self.body["rows"]]


def datasets(folder: Path, budgets: Mapping[str, str]) -> Path:
    """A configuration with one dataset and one pool for each name, with different people; all plans are made."""
    text = ""
    for i, (name, budget) in enumerate(budgets.items()):
        people(folder, "NNNSSEW" * 20 + "N" * i, f"{name}.csv")
        text += config_text(source=f"{name}.csv", budget=budget).replace("dataset.people", f"dataset.{name}")
    config = written(folder, text + UNLIMITED)
    with_plan(config)
    return config


def questions(dataset: str, n: int) -> list[str]:
    """n different questions with four cells each."""
    pairs = itertools.islice(itertools.combinations(range(120), 2), n)
    return [f"SELECT region, count(*) FROM {dataset} WHERE age BETWEEN {a} AND {b} GROUP BY region" for a, b in pairs]


class Crowd:
    """Clients in one thread each, which begin together and ask until they have no more questions or are stopped.

    A client whose connection breaks sends the same request again until it has a complete response.
    """

    def __init__(self, server: Server, tasks: Iterable[tuple[str, Iterable[Asked]]]) -> None:
        self.replies: list[Reply] = []
        self.cut_short: list[Asked] = []
        self.faults: list[BaseException] = []
        self.stopped = threading.Event()
        clients = list(tasks)
        self._go = threading.Barrier(len(clients))
        self._threads = [threading.Thread(target=self._run, args=(server, *client)) for client in clients]
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[Reply]:
        for thread in self._threads:
            thread.join()
        assert not self.faults, self.faults
        return self.replies

    def _run(self, server: Server, key: str, asked: Iterable[Asked]) -> None:
        client = Client(server, key)
        try:
            self._go.wait()
            for each in asked:
                if self.stopped.is_set():
                    return
                while True:
                    try:
                        self.replies.append(self._reply(client, each))
                        break
                    except CUT_SHORT:
                        self.cut_short.append(each)
                        client.close()
                        if self.stopped.wait(0.05):
                            return
        except BaseException as error:  # a fault of the test: it must not pass for a client that had nothing to say
            self.faults.append(error)
        finally:
            client.close()

    @staticmethod
    def _reply(client: Client, asked: Asked) -> Reply:
        headers = {} if asked.repeatable is None else {"Idempotency-Key": asked.repeatable}
        answer = client.ask("POST", "/v1/count", {"sql": asked.sql}, headers=headers)
        return Reply(asked, answer.status, answer.json())


def ask_all(server: Server, tasks: Iterable[tuple[str, Iterable[Asked]]]) -> list[Reply]:
    return Crowd(server, tasks).finish()


def shared_out(asked: list[Asked], clients: int) -> list[list[Asked]]:
    return [asked[i::clients] for i in range(clients)]


def workers(server: Server) -> list[int]:
    """The identifiers of the worker processes, including those that are still starting."""
    found = []
    for pid in server.family()[1:]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"spawn_main" in command:
            found.append(pid)
    return found


def all_there(server: Server, n: int) -> None:
    """Wait until n workers have opened the ledger and can answer."""

    def opened(pid: int) -> bool:
        ledger = str(load(server.config, {}).ledger)
        try:
            return any(os.readlink(handle) == ledger for handle in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            return False

    wait_until(lambda: sum(map(opened, workers(server))) == n, WAIT)


def kill(pid: int) -> bool:
    """Kill a process by SIGKILL; returns False if it did not exist."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Audit(NamedTuple):
    """What the ledger records of a pool, and the number of complete answers that were found in it."""

    charges: int
    spent: int
    left: int
    answered: int
    found: int


def audit(config: Path, replies: Iterable[Reply], pool: str) -> Audit:
    """Check that every answer that arrived is the only recorded answer of one charge, and that the ledger verifies."""
    loaded = load(config, {})
    ledger = SqliteLedger(loaded.ledger, loaded.anchor, create=False)
    try:
        ledger.verify()
        charges = list(ledger.charges(pool))
        asked = Counter((c.dataset, c.version, c.question) for c in charges)
        assert max(asked.values(), default=1) == 1, "a question was charged twice"
        standing = ledger.standing(pool)
        assert standing.spent == len(charges)
        assert standing.spent <= standing.answers
        recorded: dict[str, list[int]] = {}
        found = 0
        for reply in replies:
            if reply.status != 200:
                continue
            charge = ledger.charge_of(reply.receipt)
            assert charge is not None, "an answer without a charge"
            assert charge.pool == pool
            assert charge.payload is not None, "an answer that is not on record"
            if charge.id not in recorded:
                recorded[charge.id] = unpack_counts(charge.payload, len(reply.counts)).tolist()
            assert reply.counts == recorded[charge.id], "two answers for one charge"
            found += 1
        answered = sum(charge.answered is not None for charge in charges)
        return Audit(len(charges), standing.spent, standing.left, answered, found)
    finally:
        ledger.close()


def numbered(names: str, sql: Callable[[int], str]) -> Iterator[Asked]:
    """Endless questions, each with an idempotency key of its own."""
    for i in itertools.count():
        yield Asked(sql(i), f"{names}-{i}")
