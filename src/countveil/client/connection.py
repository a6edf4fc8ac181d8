"""A remote service: `connect` offers what a Curator offers, over HTTP, with only the standard library.

    service = cv.connect("https://counts.example.org", key="cvk_...")   # or COUNTVEIL_KEY in the environment
    service.count(by="region", where=cv.col("age") >= 65).frame

**Guarantee.** The key is sent only in the Authorization header, only to the given address, over TLS unless that address
is on this machine, and only after a countveil service has answered there. The key is in no address, message or repr.
Every `count` has an idempotency key, which stays the same when the request is sent again. So if an answer is lost on
the way, it is paid for only once.
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
from countveil.client.responses import (
    read_datasets,
    read_dry_run,
    read_history,
    read_pools,
    read_receipt,
    read_refusal,
    read_table,
)
from countveil.client.transport import BrokenError, Reply, Wire, parse_address
from countveil.curator.receipts import PoolBudget, Receipt, check_receipt_id
from countveil.curator.results import DryRun, FrameKind, Table, check_kind
from countveil.curator.summaries import DatasetSummary, HistoryEntry
from countveil.errors import (
    AccessError,
    ConfigError,
    CountveilError,
    ParameterError,
    RequestError,
    ServiceError,
    shorten,
)
from countveil.planning.grades import check_name
from countveil.query import (
    Condition,
    Form,
    Question,
    check_form,
    parse,
    parse_condition,
    take_question,
    write_condition,
)
from countveil.query.tokens import UNWRITABLE
from countveil.sampling.randomness import token

ENVIRONMENT = "COUNTVEIL_KEY"
WAITS = (0.0, 0.25, 1.0, 4.0)
"""How many seconds to wait before each retry. The first retry is immediate, for a connection that was idle too long."""
PATIENCE = 60
"""The longest time, in seconds, that the client waits when a service asks it to wait."""
R = TypeVar("R")


class Connection:
    """A connection to the service at an address. Threads may share it.

    Args:
        url: The address of the service.
        key: The API key that its curator gave you. Default: COUNTVEIL_KEY.
        insecure: Allow plain http to other machines: anyone on the network path can then read the key and use it.
        timeout: Seconds to wait for a response.
        cafile: Certificates to trust instead of the system's.

    Raises:
        ParameterError, RequestError: The address, the key or an option is not allowed.
        ServiceError: The service cannot be reached, or is not a countveil service.

    >>> with Connection(url, key) as service:
    ...     service.count("SELECT sex, count(*) FROM people GROUP BY sex").cells
    2
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
        address = parse_address(url, insecure=insecure)
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
        grade: str | None = None,
        frame: FrameKind | None = None,
        idempotency_key: str | None = None,
        **form: Unpack[Form],
    ) -> Table:
        """Ask a question: pay for it and get a released count for every cell. A question that was asked before is free.

        Args:
            question: SQL text; or use the Python form instead.
            grade: The grade that pays. Default: an answer on record in any grade, the finest first; else the pool's
                default grade.
            frame: The kind of `table.frame`. Default: one that is installed.
            idempotency_key: A repeat with the same key gets the recorded answer, even if the data has changed. Default:
                a new key for each call, so a response that was lost is fetched again at no cost.
            **form: `dataset`, `by`, `where`, `people`, `name`.

        Returns:
            The table with its margins and its receipt.

        Raises:
            QueryError: The question is outside the query language or the public schema.
            BudgetError: No answer is left for this key.
            ConflictError: The idempotency key was used for another question.
            AccessError: The service refuses the key.
            ServiceError: The service cannot be reached or fails.

        >>> service.count(by="sex", where="age >= 65").columns
        ['sex', 'count', 'count_low', 'count_high']
        """
        if frame is not None:
            check_kind(frame)
        repeat = token(16) if idempotency_key is None else idempotency_key
        if not isinstance(repeat, str) or not re.fullmatch("[!-~]{1,200}", repeat):
            raise ParameterError("idempotency_key", repeat, "1 to 200 visible ASCII characters")
        asked, where = _write_question(question, grade, **form), form.get("where")
        body = self._ask("/v1/count", asked, where, {"Idempotency-Key": repeat})
        return self._understand(read_table, body, frame)

    def dry_run(
        self, question: str | Question | None = None, *, grade: str | None = None, **form: Unpack[Form]
    ) -> DryRun:
        """What a question costs and how accurate its answer will be. Nothing is spent and nothing is recorded.

        Args:
            question: SQL text; or use the Python form instead.
            grade: As for `count`.
            **form: `dataset`, `by`, `where`, `people`, `name`.

        Returns:
            Cost, cells, margins and notes.

        Raises:
            CountveilError: The errors of `count`.

        >>> service.dry_run(by="region").cells
        4
        """
        asked = _write_question(question, grade, **form)
        return self._understand(read_dry_run, self._ask("/v1/dry-run", asked, form.get("where")))

    def budget(self, pool: str | None = None) -> list[PoolBudget]:
        """What the holder of this key can still ask for, in one pool or in all pools. Only curators see shares.

        Args:
            pool: The name of a pool, or of a dataset.

        Returns:
            The budgets.

        Raises:
            ConfigError: There is no such pool or dataset.
            AccessError, ServiceError: As for `count`.

        >>> [pool.pool for pool in service.budget()]
        ['people']
        """
        pools = self._understand(read_pools, self._ask("/v1/budget"))
        if pool is None:
            return pools
        named = [each for each in pools if pool in each.datasets] or [each for each in pools if pool == each.pool]
        if not named:
            names = ", ".join(each.pool for each in pools)
            raise ConfigError(
                "pool", f"{shorten(pool)} is neither a dataset with a budget nor a pool; there are {names}"
            )
        return named

    # -- what there is, and what was asked ---------------------------------------------------------------------------

    def datasets(self) -> list[DatasetSummary]:
        """The datasets that answer questions: public schema, pool and mechanism. Nothing about the data.

        Returns:
            A summary for each dataset.

        Raises:
            AccessError, ServiceError: As for `count`.

        >>> [(dataset.name, [column.name for column in dataset.columns]) for dataset in service.datasets()]
        [('people', ['region', 'town', 'age', 'sex', 'condition'])]
        """
        return self._understand(read_datasets, self._ask("/v1/datasets"))

    def history(self) -> list[HistoryEntry]:
        """The questions that were charged to this key, oldest first. A curator's key gets the questions of everyone.

        Returns:
            An entry for each charge; its id is that of the receipt.

        Raises:
            AccessError, ServiceError: As for `count`.

        >>> table = service.count(by="sex")
        >>> table.receipt.id in [entry.id for entry in service.history()]
        True
        """
        return self._understand(read_history, self._ask("/v1/asked"))

    def receipt(self, id: str) -> Receipt | None:
        """The receipt with this id.

        Args:
            id: The 24 hexadecimal digits of a receipt.

        Returns:
            The receipt, or None if this key has none with this id.

        Raises:
            ParameterError: No receipt can have this id.
            AccessError, ServiceError: As for `count`.

        >>> table = service.count(by="sex")
        >>> service.receipt(table.receipt.id).text
        'SELECT sex, count(*) FROM people GROUP BY sex'
        """
        check_receipt_id(id)
        body = self._ask(f"/v1/receipts/{id}", may_be_missing=True)
        return None if body is None else self._understand(read_receipt, body)

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Check, without sending the key, that a countveil service is at this address."""
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
        *,
        may_be_missing: bool = False,
    ) -> Any:
        """Send a request and return the parsed JSON response; None if `may_be_missing` and the service has nothing
        there.

        A request that may have been lost is sent again with the same headers and body.
        """
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
        if may_be_missing and reply.status == 404 and reply.problem is not None:
            return None
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
                f"{self._wire.address} sent a response that this version of countveil cannot read; update countveil"
            ) from None

    def _unreachable(self, broken: BrokenError, more: str = "") -> ServiceError:
        return ServiceError(f"{self._wire.address} cannot be reached: {self._line(str(broken))}{more}")

    def _foreign(self, reply: Reply) -> ServiceError:
        if 300 <= reply.status < 400:
            return ServiceError(
                f"{self._wire.address} redirects, and the key is not sent to other addresses; give the final address"
            )
        return ServiceError(f"{self._wire.address} did not respond like a countveil service (status {reply.status})")

    def _refusal(self, reply: Reply, *, positions: bool = True) -> CountveilError:
        """The error that a Curator would raise for the refusal in this reply."""
        problem = reply.problem
        if problem is None:
            return self._foreign(reply)
        if problem["error"].get("name") == "unauthorized":
            return AccessError(f"{self._wire.address} does not know this key; ask its curator for one")
        title, detail = self._line(problem["title"]), self._line(problem["detail"])
        return read_refusal(title, detail, problem["error"], positions=positions)

    def _line(self, words: str) -> str:
        """A text from the service on one line, shortened, with the key removed."""
        return shorten(words.replace(self._key, "..."), 1000)


connect = Connection
"""The public name of the class: `cv.connect(url, key)`."""


# -- requests ----------------------------------------------------------------------------------------------------------


def _check_key(given: object) -> str:
    key = given.strip() if isinstance(given, str) else ""
    if not key:
        raise RequestError(
            f"no key: set {ENVIRONMENT} or give key=...; a curator makes one with: countveil keys add NAME"
        )
    if not re.fullmatch("[!-~]{1,200}", key):
        raise RequestError("key: not a valid key; a key is one word that begins with cvk_")
    return key


def _write_question(question: str | Question | None, grade: str | None, **form: Unpack[Form]) -> dict[str, Any]:
    """The JSON body of a question. The service checks the question; only text that JSON cannot represent is refused
    here."""
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
        "where": write_condition(where) if isinstance(where, Condition) else where,
        "people": bool(form.get("people")),
        "name": form.get("name"),
        "grade": None if grade is None else check_name(grade),
    }
    return {name: value for name, value in body.items() if value is not None}


def _check_text(text: object, reader: Callable[[Any], object]) -> None:
    """Refuse empty text, and text that JSON cannot represent, with the error that the query language gives."""
    if not isinstance(text, str) or not text.strip() or UNWRITABLE.search(text):
        reader(text)
