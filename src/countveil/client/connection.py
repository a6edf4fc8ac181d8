"""A remote service: `connect` offers what a Curator offers, over HTTP, with only the standard library.

    service = cv.connect("https://counts.example.org", key="cvk_...")   # or COUNTVEIL_KEY in the environment
    service.count(by="region", where=cv.col("age") >= 65).frame

**Guarantee.** The key is sent only in the Authorization header, only to the given address, over TLS unless that address
is on this machine, and only after a countveil service has answered there. The key is in no address, message or repr.
Every `count` has an idempotency key, which stays the same when the request is sent again. So if an answer is lost on
the way, it is paid for only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

from countveil.client.exchange import Exchange
from countveil.client.publications import download, find_edition, read_publications
from countveil.client.responses import (
    read_datasets,
    read_dry_run,
    read_history,
    read_pools,
    read_receipt,
    read_table,
)
from countveil.curator.receipts import PoolBudget, Receipt, check_receipt_id
from countveil.curator.results import DryRun, FrameKind, Table, check_kind
from countveil.curator.summaries import DatasetSummary, HistoryEntry
from countveil.errors import ConfigError, ParameterError, shorten
from countveil.planning.grades import check_name
from countveil.publication.editions import PublicationSummary
from countveil.publication.publication import Publication
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


class Connection(Exchange):
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
            idempotency_key: A repeat with the same idempotency key gets the recorded answer, even if the data has
                changed. Default: a new one for each call, so a response that was lost is fetched again at no cost.
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
            names = ", ".join(each.pool for each in pools) or "none"
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

    # -- publications ------------------------------------------------------------------------------------------------

    def publications(self) -> list[PublicationSummary]:
        """The publications of the service and their editions: tables, margins, guarantee. Costs nothing.

        Returns:
            A summary for each publication.

        Raises:
            AccessError, ServiceError: As for `count`.

        >>> [(each.name, each.dataset) for each in service.publications()]
        [('yearbook', 'visitors')]
        """
        return self._understand(read_publications, self._ask("/v1/publications"))

    def publication(self, name: str, edition: int | None = None, *, output: str | Path | None = None) -> Publication:
        """A published edition: its files are downloaded and have the SHA-256 that its manifest states. Costs nothing.

        Args:
            name: The name of a publication.
            edition: Its number. Default: the newest.
            output: A new folder for the files. Default: a temporary folder, deleted when the result is no longer used.

        Returns:
            The publication in its folder; `to` makes frames, `verify` checks the numbers too.

        Raises:
            ConfigError: There is no such publication.
            ParameterError: There is no such edition, or the folder has other files.
            RequestError: There is no edition yet, or the folder cannot be written.
            AccessError, ServiceError: As for `count`; or a file is not the one that the manifest names.

        >>> service.publication("yearbook").to("region", "pyarrow").column_names[:2]
        ['region', 'count']
        """
        number = find_edition(self.publications(), name, edition)
        return download(self._fetch, self._wire.address, name, number, output)


connect = Connection
"""The public name of the class: `cv.connect(url, key)`."""


# -- requests ----------------------------------------------------------------------------------------------------------


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
