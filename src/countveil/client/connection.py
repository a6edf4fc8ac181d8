"""A service from afar: `connect` gives what a Curator gives, over HTTP, with nothing but the standard library.

    service = cv.connect("https://counts.example.org", key="cvk_...")   # or COUNTVEIL_KEY in the environment
    service.count(by="region", where=cv.col("age") >= 65).frame

**Guarantee.** The key goes into the Authorization header of requests to the one address that was given, over TLS unless
that is this machine, after something there has shown itself to be a countveil service; it is in no address, message or
repr. Every `count` carries an idempotency key, the same when it is sent again, so an answer that is lost on the way is
paid for once.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Unpack

import countveil
from countveil.answers import DryRun, PoolBudget, Table, check_kind
from countveil.errors import (
    AccessError,
    ConfigError,
    CountveilError,
    ParameterError,
    RequestError,
    ServiceError,
    shortened,
)
from countveil.query import Condition, Form, Question, check_form, parse, parse_condition, take_question, written
from countveil.query.tokens import UNWRITABLE
from countveil.received import read_dry_run, read_pools, read_table, refusal
from countveil.sampling.entropy import token
from countveil.wire import BrokenError, Reply, Wire, address_of

ENVIRONMENT = "COUNTVEIL_KEY"
WAITS = (0.0, 0.25, 1.0, 4.0)
"""Seconds before a request is sent again, once for each entry; the first is for a connection that was idle too long."""
PATIENCE = 60
"""The longest wait, in seconds, that a service may ask for."""
R = TypeVar("R")


class Connection:
    """Ask the service at an address, with a key that its curator gave you (default: COUNTVEIL_KEY).

    It answers questions within its curator's budgets. `timeout` is how many seconds to wait for it, `cafile` holds
    certificates to trust in place of the system's. `insecure` allows plain http to other machines: whoever is on the
    way can then read the key and use it. A connection may be shared by threads.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        insecure: bool = False,
        timeout: float = 120.0,
        cafile: str | Path | None = None,
    ) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise ParameterError("timeout", timeout, "a number of seconds above 0")
        address = address_of(url, insecure=insecure)
        self._key = _check_key(os.environ.get(ENVIRONMENT) if key is None else key)
        self._wire = Wire(address, timeout, cafile)
        self._headers = {"Accept": "application/json", "User-Agent": f"countveil/{countveil.__version__}"}
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Connection {self._wire.address}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a connection has a key in it and is not pickled or copied; connect again")

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- asking ------------------------------------------------------------------------------------------------------

    def count(
        self,
        question: str | Question | None = None,
        *,
        frame: str | None = None,
        idempotency_key: str | None = None,
        **form: Unpack[Form],
    ) -> Table:
        """Released counts of every cell of a question: paid for, drawn once, on the record; free if asked before.

        The question is SQL text, or the Python form: `dataset`, `by`, `where`, `people`, `name`. What is sent again
        with the same `idempotency_key` gets the same answer, whatever has become of the data. If none is given, each
        call has a key of its own, and an answer lost on the way is fetched again at no cost.
        """
        if frame is not None:
            check_kind(frame)
        repeat = token(16) if idempotency_key is None else idempotency_key
        if not isinstance(repeat, str) or not re.fullmatch("[!-~]{1,200}", repeat):
            raise ParameterError("idempotency_key", repeat, "1 to 200 visible ASCII characters")
        asked, where = _write_question(question, **form), form.get("where")
        body = self._ask("/v1/count", asked, where, {"Idempotency-Key": repeat})
        return self._understand(read_table, body, frame)

    def dry_run(self, question: str | Question | None = None, **form: Unpack[Form]) -> DryRun:
        """What a question costs and how accurate its answer will be, before it is asked. Nothing is put on record."""
        asked = _write_question(question, **form)
        return self._understand(read_dry_run, self._ask("/v1/plan", asked, form.get("where")))

    def budget(self, pool: str | None = None) -> list[PoolBudget]:
        """What the holder of this key can still ask for of every pool, or of the pool of one dataset or name.

        Shares are for curators to see.
        """
        found = self._understand(read_pools, self._ask("/v1/budget"))
        if pool is None:
            return found
        named = [each for each in found if pool in each.datasets] or [each for each in found if pool == each.pool]
        if not named:
            pools = ", ".join(each.pool for each in found)
            raise ConfigError(
                "pool", f"{shortened(pool)} is neither a dataset with a budget nor a pool; there are {pools}"
            )
        return named

    # -- over the wire -----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Is this a countveil service? Asked without the key."""
        try:
            reply = self._wire.send("GET", "/openapi.json", self._headers)
        except BrokenError as broken:
            raise self._unreachable(broken) from None
        if reply.status != 200 and reply.problem is not None:
            raise self._refusal(reply)
        document = reply.json if reply.status == 200 else None
        about = document.get("info") if isinstance(document, dict) else None
        if not isinstance(about, dict) or about.get("title") != "countveil":
            raise self._foreign(reply)

    def _ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        where: object = None,
        more: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON value of an answer. What may have been lost is sent again, with the same headers and body."""
        headers = {**self._headers, "Authorization": f"Bearer {self._key}", **(more or {})}
        sent = None if body is None else json.dumps(body).encode()
        if sent is not None:
            headers["Content-Type"] = "application/json"
        for wait in (*WAITS, None):
            try:
                reply = self._wire.send("GET" if sent is None else "POST", path, headers, sent)
            except BrokenError as broken:
                if wait is None or broken.final:
                    paid = "; if it was charged, the same question is now free" if path == "/v1/count" else ""
                    raise self._unreachable(broken, paid) from None
                time.sleep(wait)
                continue
            again = reply.again
            if wait is None or again is None or again > PATIENCE:
                break
            time.sleep(max(wait, again))
        if reply.status != 200:
            raise self._refusal(reply, positions=not isinstance(where, Condition))
        return reply.json

    def _understand(self, read: Callable[..., R], body: Any, *more: Any) -> R:
        try:
            if body["schema_version"] != 1:
                raise ValueError
            return read(body, *more)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise ServiceError(
                f"{self._wire.address} gave an answer that this version of countveil cannot read"
            ) from None

    def _unreachable(self, broken: BrokenError, more: str = "") -> ServiceError:
        return ServiceError(f"{self._wire.address} cannot be asked: {self._line(str(broken))}{more}")

    def _foreign(self, reply: Reply) -> ServiceError:
        if 300 <= reply.status < 400:
            return ServiceError(
                f"{self._wire.address} redirects, and a key does not follow; give the address of the service itself"
            )
        return ServiceError(f"{self._wire.address} does not answer as a countveil service does (status {reply.status})")

    def _refusal(self, reply: Reply, *, positions: bool = True) -> CountveilError:
        """The error that the same refusal would be without a network between."""
        problem = reply.problem
        if problem is None:
            return self._foreign(reply)
        if problem["error"].get("name") == "unauthorized":
            return AccessError(f"{self._wire.address} does not know this key; ask its curator for one")
        said = {name: self._line(problem[name]) for name in ("title", "detail")}
        return refusal(said["title"], said["detail"], problem["error"], positions=positions)

    def _line(self, words: str) -> str:
        """What a service said, on one line, and never the key."""
        return shortened(words.replace(self._key, "..."), 1000)


connect = Connection
"""The name by which users call it: `cv.connect(url, key)`."""


# -- what is sent ------------------------------------------------------------------------------------------------------


def _check_key(given: object) -> str:
    key = given.strip() if isinstance(given, str) else ""
    if not key:
        raise RequestError(
            f"no key: set {ENVIRONMENT} or give key=...; a curator makes one with: countveil keys add NAME"
        )
    if not re.fullmatch("[!-~]{1,200}", key):
        raise RequestError("key: this is not one; a key is one word that begins with cvk_")
    return key


def _write_question(question: str | Question | None, **form: Unpack[Form]) -> dict[str, Any]:
    """The body of a question. Text is for the service to judge, unless it cannot travel."""
    asked = take_question(question, form)
    sql = asked.text if isinstance(asked, Question) else asked
    if sql is not None:
        _check_text(sql, parse)
    where = form.get("where")
    columns = check_form(**form)
    if isinstance(where, str):
        _check_text(where, parse_condition)
    body = {
        "sql": sql,
        "dataset": form.get("dataset"),
        "by": columns,
        "where": written(where) if isinstance(where, Condition) else where,
        "people": bool(form.get("people")),
        "name": form.get("name"),
    }
    return {word: value for word, value in body.items() if value is not None}


def _check_text(text: object, reader: Callable[[Any], object]) -> None:
    """Refuse what JSON cannot carry, or what is nothing, as the query language does."""
    if not isinstance(text, str) or not text.strip() or UNWRITABLE.search(text):
        reader(text)
