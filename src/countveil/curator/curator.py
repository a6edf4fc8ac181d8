"""The workflow: ask, charge, count, draw, record, answer.

**Guarantee.** Each grade of each plan of a pool has one mechanism. All answers about the pool's people, over all
datasets, versions, analysts and processes and in any order, are computed from releases of these mechanisms alone. A
mechanism makes at most as many releases as its grade has answers, and the stated epsilon covers all of these. A
question is paid for before the data is looked at. An answer goes out only when it is on disk as the one answer of its
charge. The same question on the same data is answered from the record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from countveil.config.configuration import Config, Dataset, load
from countveil.curator.parquet_results import (
    ParquetTable,
    Ready,
    check_output,
    evaluate,
    new_folder,
    open_recorded,
)
from countveil.curator.pool_plans import CURATOR, Plans
from countveil.curator.publishing import Publishing
from countveil.curator.receipts import PoolBudget as PoolBudget
from countveil.curator.recorded_counts import check_inline, draw_counts, pack_counts
from countveil.curator.results import (
    DryRun as DryRun,
    FrameKind,
    Table,
    check_collectable,
    check_kind,
    kind_of,
    make_dry_run,
)
from countveil.data.engines import Engine, EnginePool, Snapshot, Source
from countveil.data.fingerprints import Fingerprints
from countveil.errors import ConflictError, EngineError, LedgerError, ParameterError, QueryError, warn_deprecated
from countveil.ledger import Asked, Charge, Keyed, Ledger, Most, PlanRecord, Request
from countveil.mechanism.mechanism import Mechanism
from countveil.query import Form, Question, ask
from countveil.sampling.randomness import salt

log = logging.getLogger("countveil.curator.curator")


class Curator(Publishing):
    """Answers questions from configured datasets within their budgets.

    >>> with Curator.open("census/countveil.toml") as curator:
    ...     table = curator.count("SELECT region, count(*) FROM people GROUP BY region")
    >>> table.columns
    ['region', 'count', 'count_low', 'count_high']
    """

    def __init__(self, config: Config, ledger: Ledger, sources: Mapping[str, object] | None = None) -> None:
        self.config = config
        self.ledger = ledger
        self.most_cells: int | None = None
        """The most cells of a table that is not on record yet, as a service limits them; None: only the schema does."""
        self._frames = dict(sources or {})
        self._engines = EnginePool()
        self._plans = Plans(config, ledger)
        self._versions: dict[tuple[str, Keyed], tuple[PlanRecord, int]] = {}
        cache = config.ledger.with_name(f"{config.ledger.name}.fingerprints")
        self._fingerprints = Fingerprints(ledger.make_keyed_hash, cache, ledger.unkeyed_fingerprints)

    @classmethod
    def open(
        cls,
        config: str | Path | Config | None = None,
        *,
        sources: Mapping[str, object] | None = None,
        new_ledger: bool = False,
    ) -> Curator:
        """Open a curator for a configuration file. Its ledger is checked if there is one, and created otherwise.

        Args:
            config: The path of a countveil.toml. Default: COUNTVEIL_CONFIG, or countveil.toml in this folder.
            sources: Frames in memory by the name of a dataset: each replaces the configured source of its dataset.
            new_ledger: Begin a ledger in place of one used before. It says so, and does not cover the answers of that.

        Returns:
            The curator; close it, or use it in a `with` block.

        Raises:
            ConfigError: The configuration is invalid, lacks a dataset of `sources`, or has another ledger than before.
            LedgerError: The ledger cannot be used.
        >>> Curator.open("census/countveil.toml").budget()[0].answers_total
        10
        """
        loaded = config if isinstance(config, Config) else load(config)
        for name in sources or {}:
            loaded.dataset(name)
        return cls(loaded, loaded.open_ledger(new=new_ledger), sources)

    def close(self) -> None:
        self._engines.close()
        self._fingerprints.close()
        self.ledger.close()

    def __enter__(self) -> Curator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- asking ------------------------------------------------------------------------------------------------------

    def question(self, question: str | Question | None = None, **form: Unpack[Form]) -> Question:
        """Check a question without asking it: nothing is charged, and the data is not read.

        Args:
            question: SQL text; or use the Python form instead.
            **form: `dataset`, `by`, `where`, `people`, `name`.

        Returns:
            The typed question, with its number of cells.

        Raises:
            QueryError: The question is outside the query language or the public schema.

        >>> curator.question(by=["region", "sex"]).cells
        8
        """
        return ask(self.config.schemas, question, **form)

    def count(
        self,
        question: str | Question | None = None,
        *,
        grade: str | None = None,
        analyst: str = CURATOR,
        frame: FrameKind | None = None,
        most: Most | None = None,
        request: Request | None = None,
        **form: Unpack[Form],
    ) -> Table:
        """Ask a question: pay for it and get a released count for every cell. A question that was asked before is free.

        Args:
            question: SQL text; or use the Python form instead.
            grade: The grade that pays. Default: an answer on record in any grade, the finest first; else the pool's
                default grade.
            analyst: Who pays; a share in countveil.toml limits it.
            frame: The kind of `table.frame`. Default: the kind of the source.
            most: The most answers that the analyst may pay for: in the whole pool, or in each grade by its name.
            request: Identifies a request that may be repeated. Once it is answered, a repetition gets the same answer,
                even if the data has changed.
            **form: `dataset`, `by`, `where`, `people`, `name`.

        Returns:
            The table with its margins and its receipt.

        Raises:
            QueryError: The question is outside the query language or the public schema.
            BudgetError: No answer is left.
            RequestError: The table is too large to collect.
            DataError, EngineError: The source does not fit its schema, or cannot be read.
            LedgerError: The ledger cannot be used; nothing is answered.

        >>> table = curator.count(by="sex", where="age >= 65")
        >>> table.cells, table.receipt.answers_left, table.replayed
        (2, 9, False)
        >>> curator.count("SELECT sex, count(*) FROM people WHERE NOT age < 65 GROUP BY sex").replayed
        True
        """
        asked = self.question(question, **form)
        dataset, who = self._admit(asked, analyst, grade)
        kind = self._check_frame(dataset, frame)
        check_collectable(asked)
        before = None if request is None else self._find_answered(asked, who, request)
        if before is not None:
            return self._make_table(asked, before, self._plans.of_charge(before), True, kind)
        self._check_cells(asked, dataset, grade)
        with self._prepare(asked, dataset, who, grade) as ready:
            charge = self.ledger.charge(*ready.asked, most=most, request=request, plan=ready.record)
            intervals = self._plans.of_charge(charge, ready.record)
            payload = None
            if charge.payload is None:
                with self._anchor_failures():
                    payload = self._draw(ready, asked, intervals.mechanism)
                    charge = self.ledger.record(charge, payload)  # returns the first recorded answer, ours or not
        return self._make_table(asked, charge, intervals, charge.payload is not payload, kind)

    def _admit(self, question: Question, analyst: str, grade: str | None) -> tuple[Dataset, str]:
        """Check everything that needs no look at the source; return the question's dataset and the analyst's name."""
        dataset = self.config.dataset(question.schema.name)
        dataset.check_confirmed()
        if not isinstance(analyst, str) or not 0 < len(analyst) <= 100 or not analyst.isprintable():
            raise ParameterError("analyst", analyst, "a name of 1 to 100 printable characters")
        self._plans.check_grade(dataset, grade)
        return dataset, analyst

    def _check_cells(self, question: Question, dataset: Dataset, grade: str | None) -> None:
        """Refuse a table of more than `most_cells` cells, unless its answer is on record. Writes nothing."""
        if self.most_cells is None or question.cells <= self.most_cells:
            return
        version = self.ledger.known_version(dataset.name, self._fingerprints.look(self._source(dataset)).fingerprint)
        paid = self.ledger.find_all(dataset.require_budget().pool, dataset.name, version or 0, question.sha256)
        if not any(each.payload is not None and grade in (None, each.grade) for each in paid):
            raise QueryError(
                f"a table of {question.cells} cells",
                f"at most {self.most_cells} are allowed at this service; group by fewer columns",
            )

    def _check_frame(self, dataset: Dataset, frame: str | None) -> str | None:
        """The kind of frame for the result: the requested one, else that of the source, else None for any."""
        kind = frame or kind_of(self._frames.get(dataset.name))
        if kind is not None:
            check_kind(kind)
        return kind

    def _find_answered(self, question: Question, analyst: str, request: Request) -> Charge | None:
        """The charge of a request that was answered before, or None."""
        charge = self.ledger.find_request(analyst, request)
        if charge is None or charge.payload is None:
            return None
        if charge.question != question.sha256:
            raise ConflictError("the schema changed since this idempotency key was used; use a new idempotency key")
        return charge

    def _draw(self, ready: Ready, question: Question, mechanism: Mechanism) -> bytes:
        """Count, then add noise with a new salt and a new noise key. The true counts never leave this method."""
        counts = ready.engine.count(question, salt=salt())
        self._check_unchanged(ready)
        return pack_counts(draw_counts(mechanism, counts, question.cells))

    def count_to_parquet(
        self,
        question: str | Question | None = None,
        *,
        output: str | Path,
        grade: str | None = None,
        analyst: str = CURATOR,
        **form: Unpack[Form],
    ) -> ParquetTable:
        """Like `count`, for tables too large to collect: the answer is written to Parquet files in a new folder, once.

        Args:
            question: SQL text; or use the Python form instead.
            output: A folder that can be written; created if it is missing.
            grade, analyst: As for `count`.
            **form: `dataset`, `by`, `where`, `people`, `name`.

        Returns:
            The files and the receipt.

        Raises:
            ParameterError: `output` cannot be written.
            MissingExtraError: The extra `parquet` is not installed.
            Exception: The errors of `count`.

        >>> files = curator.count_to_parquet(by="sex", output="census/tables")
        >>> len(files.files), files.frame.column_names
        (1, ['sex', 'count'])
        """
        asked = self.question(question, **form)
        dataset, who = self._admit(asked, analyst, grade)
        place = check_output(output)
        with self._prepare(asked, dataset, who, grade, keep=True) as ready:
            charge = self.ledger.charge(*ready.asked, plan=ready.record)
            replayed = charge.payload is not None
            intervals = self._plans.of_charge(charge, ready.record)
            with self._anchor_failures():
                if charge.payload is None:
                    folder, unchanged = new_folder(place, charge.id), partial(self._check_unchanged, ready)
                    write = partial(evaluate, salt=salt(), unchanged=unchanged, record=self.ledger.record)
                    charge = write(ready.engine, intervals.mechanism, charge, asked, folder)
                path, manifest = open_recorded(charge, asked, place)
        log.info("answered charge=%s dataset=%s cells=%d", charge.id, dataset.name, asked.cells)
        receipt = self._plans.make_receipt(charge, intervals.mechanism.hash, asked.truth.statement)
        return ParquetTable(asked, path, manifest, intervals, receipt, replayed, ready.engine)

    def release(self, question: str | Question | None = None, *, output: str | Path, **more: Any) -> ParquetTable:
        """The old name of `count_to_parquet`, kept for one release."""
        warn_deprecated("Curator.release", "Curator.count_to_parquet")
        return self.count_to_parquet(question, output=output, **more)

    @contextmanager
    def _prepare(
        self, question: Question, dataset: Dataset, analyst: str, grade: str | None, *, keep: bool = False
    ) -> Iterator[Ready]:
        """Open the engine, choose the grade, and check everything but the remaining budget, before the charge.

        The engine counts only after the charge. With `keep` it stays open, because it later reads the files of the
        answer.
        """
        snapshot = self._fingerprints.look(self._source(dataset))
        with self._open_engine(question, dataset, snapshot, keep=keep) as engine:
            record = self._plans.of(dataset, opened=True)
            version = self._version(dataset, snapshot.fingerprint, record)
            self.ledger.bind(dataset.name, record.pool, dataset.schema.unit, snapshot.fingerprint)
            chosen = grade or self._plans.choose_grade(dataset, record, version, question.sha256)
            asked = Asked(record.pool, dataset.name, version, question.sha256, question.text, analyst, chosen)
            yield Ready(asked, record, engine, snapshot)

    @contextmanager
    def _open_engine(
        self, question: Question, dataset: Dataset, snapshot: Snapshot, *, keep: bool = False
    ) -> Iterator[Engine]:
        """The engine for this snapshot of a dataset. A question that the engine cannot answer is refused."""
        with self._engines.use(snapshot, dataset.schema, keep=keep) as engine:
            check_collectable(question, engine.writes_files)
            yield engine

    def _version(self, dataset: Dataset, fingerprint: Keyed, record: PlanRecord) -> int:
        """The version number of a dataset's content. It is cached until the plan record is replaced, which happens
        after a restore, for example."""
        before, version = self._versions.get((dataset.name, fingerprint), (None, 0))
        if before is not record:
            version = self.ledger.version(dataset.name, fingerprint)
            self._versions[dataset.name, fingerprint] = record, version
        return version

    @contextmanager
    def _anchor_failures(self) -> Iterator[None]:
        """Within this block, if a charged question fails, move the anchor past the charge, so that the charge cannot be
        lost."""
        try:
            yield
        except BaseException:
            with suppress(LedgerError):
                self.ledger.move_anchor()
            raise

    def _check_unchanged(self, ready: Ready) -> None:
        """Refuse to answer if the source has changed since the charge."""
        if not ready.snapshot.is_current():
            raise EngineError("the source changed while it was counted; the charge is kept; ask again")

    def dry_run(
        self,
        question: str | Question | None = None,
        *,
        grade: str | None = None,
        analyst: str = CURATOR,
        most: Most | None = None,
        to_parquet: bool = False,
        release: bool | None = None,
        **form: Unpack[Form],
    ) -> DryRun:
        """What a question costs and how accurate its answer will be. Nothing is spent and nothing is recorded.

        A question that `count` would refuse is refused here with the same message.

        Args:
            question: SQL text; or use the Python form instead.
            grade, analyst, most: As for `count`.
            to_parquet: Make the dry run of `count_to_parquet`: tables that are too large to collect are allowed if the
                engine can write them to files.
            release: The old name of `to_parquet`, kept for one release.
            **form: `dataset`, `by`, `where`, `people`, `name`.

        Returns:
            Cost, cells, margins and notes.

        Raises:
            CountveilError: The errors of `count`.

        >>> dry_run = curator.dry_run(by="region")
        >>> dry_run.cells, dry_run.cost, dry_run.answers_left
        (4, 1, 10)
        """
        if release is not None:
            warn_deprecated("release=", "to_parquet=")
            to_parquet = release
        asked = self.question(question, **form)
        dataset, who = self._admit(asked, analyst, grade)
        self._check_frame(dataset, None)
        if not to_parquet:
            check_collectable(asked)
        self._check_cells(asked, dataset, grade)
        snapshot = self._fingerprints.look(self._source(dataset))
        with self._open_engine(asked, dataset, snapshot):
            record = self._plans.of(dataset)
        self.ledger.check_binding(dataset.name, record.pool, dataset.schema.unit, snapshot.fingerprint)
        version = self.ledger.known_version(dataset.name, snapshot.fingerprint) or 0  # versions begin at 1
        grade = grade or self._plans.choose_grade(dataset, record, version, asked.sha256)
        charge = self.ledger.find(record.pool, dataset.name, version, asked.sha256, grade)
        if charge is None:
            self._plans.check_left(dataset, grade, who, most)
            intervals = self._plans.of_grade(record, grade)
        else:
            if not to_parquet:
                check_inline(charge.payload)
            intervals = self._plans.of_charge(charge, record)
        return make_dry_run(asked, record.pool, grade, self.grades_left(dataset, who, most), intervals, charge)

    # -- what is needed for an answer --------------------------------------------------------------------------------

    def _source(self, dataset: Dataset) -> Source:
        frame = self._frames.get(dataset.name)
        return dataset.source if frame is None else replace(dataset.source, frame=frame)
