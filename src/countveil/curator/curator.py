"""The workflow: ask, charge, count, draw, record, answer.

**Guarantee.** Whatever is answered about the people of a pool, over all datasets, versions, analysts and processes, is
post-processing of at most as many releases of each of the pool's mechanisms, one for every plan, as were opened and as
the stated epsilon was certified for. A question is paid for before the data is looked at; an answer goes out only when
it is on disk as the one answer of its charge; the same question on the same data is answered from the record.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from countveil.answers import DryRun as DryRun
from countveil.answers import PoolBudget as PoolBudget
from countveil.answers import (
    Receipt,
    Table,
    check_collectable,
    check_inline,
    check_kind,
    draw_counts,
    kind_of,
    make_dry_run,
    make_table,
    pack_counts,
    unpack_counts,
)
from countveil.config import Config, Dataset, load
from countveil.engines import Engine, EnginePool, Snapshot, Source
from countveil.errors import ConflictError, EngineError, LedgerError, ParameterError
from countveil.fingerprints import Fingerprints
from countveil.intervals import Intervals
from countveil.ledger import Asked, Charge, Keyed, Ledger, PlanRecord, Request
from countveil.ledger.opening import open_ledger
from countveil.mechanism import Mechanism
from countveil.plans import Plans, lost_answers
from countveil.query import Form, Question, ask
from countveil.releases import (
    Ready,
    Release,
    check_output,
    evaluated,
    new_folder,
    opened,
)

log = logging.getLogger("countveil.curator")
CURATOR = "curator"


class Curator:
    """Answers questions from configured datasets within their budgets."""

    def __init__(self, config: Config, ledger: Ledger, sources: Mapping[str, object] | None = None) -> None:
        self.config = config
        self.ledger = ledger
        self._frames = dict(sources or {})
        self._engines = EnginePool()
        self._plans = Plans(config, ledger)
        self._versions: dict[tuple[str, Keyed], tuple[PlanRecord, int]] = {}
        cache = config.ledger.with_name(f"{config.ledger.name}.fingerprints")
        self._fingerprints = Fingerprints(ledger.keyed, cache, ledger.unkeyed_fingerprints)

    @classmethod
    def open(cls, config: str | Path | Config | None = None, *, sources: Mapping[str, object] | None = None) -> Curator:
        """A curator for a configuration file; `sources` puts frames in memory in place of configured sources.

        The ledger is created if there is none, and checked from its first entry if there is one.
        """
        loaded = config if isinstance(config, Config) else load(config)
        for name in sources or {}:
            loaded.dataset(name)
        return cls(loaded, open_ledger(loaded.ledger, loaded.anchor, loaded.server), sources)

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
        """The question that SQL text or the Python form asks."""
        return ask(self.config.schemas, question, **form)

    def count(
        self,
        question: str | Question | None = None,
        *,
        analyst: str = CURATOR,
        frame: str | None = None,
        most: int | None = None,
        request: Request | None = None,
        **form: Unpack[Form],
    ) -> Table:
        """Released counts of every cell of a question: paid for, drawn once, on the record; free if asked before.

        `most` is how many answers of the pool the analyst may pay for. A `request` that was answered gets the same
        answer again, whatever has become of the data.
        """
        asked = self.question(question, **form)
        dataset, who = self._admit(asked, analyst)
        kind = self._check_frame(dataset, frame)
        check_collectable(asked)
        before = None if request is None else self._find_answered(asked, who, request)
        if before is not None:
            return self._make_table(asked, before, self._plans.of_charge(before)[1], True, kind)
        with self._prepare(asked, dataset, who) as ready:
            charge = self.ledger.charge(*ready.asked, most=most, request=request, plan=ready.record)
            intervals = ready.intervals if charge.fresh else self._plans.of_charge(charge, ready.record)[1]
            payload = None
            if charge.payload is None:
                with self._anchor_failures():
                    payload = self._draw(ready, asked)
                    charge = self.ledger.record(charge, payload)  # whoever is first: its answer is the answer
        return self._make_table(asked, charge, intervals, charge.payload is not payload, kind)

    def _admit(self, question: Question, analyst: str) -> tuple[Dataset, str]:
        """The dataset of a question and who asks; what can be refused before the source is looked at is refused."""
        dataset = self.config.dataset(question.schema.name)
        dataset.confirmed()
        if not isinstance(analyst, str) or not 0 < len(analyst) <= 100 or not analyst.isprintable():
            raise ParameterError("analyst", analyst, "a name of 1 to 100 printable characters")
        return dataset, analyst

    def _check_frame(self, dataset: Dataset, frame: str | None) -> str | None:
        """The kind of frame that an answer becomes: the one asked for, or that of the source."""
        kind = frame or kind_of(self._frames.get(dataset.name))
        if kind is not None:
            check_kind(kind)
        return kind

    def _find_answered(self, question: Question, analyst: str, request: Request) -> Charge | None:
        """The charge of a request that has its answer."""
        charge = self.ledger.requested(analyst, request)
        if charge is None or charge.payload is None:
            return None
        if charge.question != question.sha256:
            raise ConflictError("the schema changed since this idempotency key was used; use a new key")
        return charge

    def _draw(self, ready: Ready, question: Question) -> bytes:
        """Count and draw. The true counts live in this body and nowhere else."""
        counts = ready.engine.count(question, key=self._key(question))
        self._check_unchanged(ready)
        return pack_counts(draw_counts(ready.intervals.mechanism, counts, question.cells))

    def _make_table(self, question: Question, charge: Charge, intervals: Intervals, replayed: bool, kind: Any) -> Table:
        log.info("answered charge=%s dataset=%s cells=%d", charge.id, charge.dataset, question.cells)
        receipt = self._make_receipt(charge, intervals.mechanism.hash)
        return make_table(question, unpack_counts(charge.payload, question.cells), intervals, receipt, replayed, kind)

    def release(
        self,
        question: str | Question | None = None,
        *,
        output: str | Path,
        analyst: str = CURATOR,
        **form: Unpack[Form],
    ) -> Release:
        """As `count`, for tables that are not collected: Parquet files in a new folder under `output`, drawn once."""
        asked = self.question(question, **form)
        dataset, who = self._admit(asked, analyst)
        place = check_output(output)
        with self._prepare(asked, dataset, who, keep=True) as ready:
            charge = self.ledger.charge(*ready.asked, plan=ready.record)
            replayed = charge.payload is not None
            intervals = self._plans.of_charge(charge, ready.record)[1] if replayed else ready.intervals
            with self._anchor_failures():
                if charge.payload is None:
                    folder, key = new_folder(place, charge.id), self._key(asked)
                    unchanged = partial(self._check_unchanged, ready)
                    charge = evaluated(
                        ready, charge, asked, folder, key=key, unchanged=unchanged, record=self.ledger.record
                    )
                path, manifest = opened(charge, asked, place)
        log.info("answered charge=%s dataset=%s cells=%d", charge.id, dataset.name, asked.cells)
        receipt = self._make_receipt(charge, intervals.mechanism.hash)
        return Release(asked, path, manifest, intervals, receipt, replayed, ready.engine)

    @contextmanager
    def _prepare(self, question: Question, dataset: Dataset, analyst: str, *, keep: bool = False) -> Iterator[Ready]:
        """Refuse everything that can be refused without looking at what was spent, and open the engine.

        The data may be looked at once the question is charged. An engine that is to be kept stays open: what it made
        is read later.
        """
        snapshot = self._fingerprints.look(self._source(dataset))
        with self._open_engine(question, dataset, snapshot, keep=keep) as engine:
            record, intervals = self._plans.of(dataset, opened=True)
            version = self._version(dataset, snapshot.fingerprint, record)
            self.ledger.bind(dataset.name, record.pool, dataset.schema.unit, snapshot.fingerprint)
            asked = Asked(record.pool, dataset.name, version, question.sha256, question.text, analyst)
            yield Ready(asked, record, intervals, engine, snapshot)

    @contextmanager
    def _open_engine(
        self, question: Question, dataset: Dataset, snapshot: Snapshot, *, keep: bool = False
    ) -> Iterator[Engine]:
        """The engine of a dataset in the state that was seen, if it can answer a question."""
        with self._engines.use(snapshot, dataset.schema, dataset.engine, keep=keep) as engine:
            check_collectable(question, engine.writes_files)
            yield engine

    def _version(self, dataset: Dataset, fingerprint: Keyed, record: PlanRecord) -> int:
        """The number of a dataset's content. It stands until a restore, and then the pool's record is read anew."""
        before, version = self._versions.get((dataset.name, fingerprint), (None, 0))
        if before is not record:
            version = self.ledger.version(dataset.name, fingerprint)
            self._versions[dataset.name, fingerprint] = record, version
        return version

    @contextmanager
    def _anchor_failures(self) -> Iterator[None]:
        """If a charge gets no answer, nothing goes out; the anchor moves over the charge, so that it cannot be lost."""
        try:
            yield
        except BaseException:
            with suppress(LedgerError):
                self.ledger.move_anchor()
            raise

    def _key(self, question: Question) -> bytes:
        """What chooses the cells of people who are in too many."""
        return hashlib.sha256(f"{self.ledger.identity}|{question.sha256}".encode()).digest()

    def _check_unchanged(self, ready: Ready) -> None:
        """Refuse to answer if the data is no longer the version that was paid for."""
        if not ready.snapshot.is_current():
            raise EngineError("the source changed while it was counted; the charge is kept; ask again")

    def dry_run(
        self,
        question: str | Question | None = None,
        *,
        analyst: str = CURATOR,
        most: int | None = None,
        release: bool = False,
        **form: Unpack[Form],
    ) -> DryRun:
        """What a question costs and how accurate its answer will be, before it is asked. Nothing is put on record.

        What `count` would refuse is refused here, in the same words. With `release`, it is the dry run of `release`:
        tables that are too large to collect are allowed where the engine can write them to files.
        """
        asked = self.question(question, **form)
        dataset, who = self._admit(asked, analyst)
        self._check_frame(dataset, None)
        if not release:
            check_collectable(asked)
        snapshot = self._fingerprints.look(self._source(dataset))
        with self._open_engine(asked, dataset, snapshot):
            record, intervals = self._plans.of(dataset)
        self.ledger.check_binding(dataset.name, record.pool, dataset.schema.unit, snapshot.fingerprint)
        version, charge = self.ledger.known_version(dataset.name, snapshot.fingerprint), None
        if version is not None:
            charge = self.ledger.find(record.pool, dataset.name, version, asked.sha256)
        if charge is None:
            self._plans.check_left(dataset, who, most)
        else:
            if not release:
                check_inline(charge.payload)
            intervals = self._plans.of_charge(charge, record)[1]
        return make_dry_run(asked, record, intervals, charge, self.left(dataset, who, most))

    # -- the budget --------------------------------------------------------------------------------------------------

    def budget(self, pool: str | None = None) -> list[PoolBudget]:
        """What is left of every pool, or of the pool of one dataset or name."""
        return [self._plans.budget(name) for name in self._plans.pools(pool)]

    def mechanism(self, dataset: str) -> Mechanism:
        """The mechanism that answers questions about a dataset."""
        return self._plans.of(self.config.dataset(dataset))[1].mechanism

    def open_budget(self, pool: str, answers: int | str, reason: str) -> PoolBudget:
        """Open more answers of a pool's mechanism. It stays on the record, with the epsilon of all answers together."""
        return self._plans.extend(pool, answers, reason)

    def replan_budget(self, pool: str, reason: str) -> PoolBudget:
        """A new plan in a pool that has one, as it is configured now, on the record.

        The epsilon that is stated covers everything ever opened in the pool; what was left of the old plan can no
        longer be spent.
        """
        return self._plans.replan(pool, reason)

    def left(self, dataset: Dataset, analyst: str, most: int | None = None) -> int:
        """How many answers of a dataset's pool an analyst, who may pay for at most so many, can still ask for."""
        return self._plans.left(dataset, analyst, most)

    # -- what is needed for an answer --------------------------------------------------------------------------------

    def _source(self, dataset: Dataset) -> Source:
        frame = self._frames.get(dataset.name)
        return dataset.source if frame is None else replace(dataset.source, frame=frame)

    def receipt(self, id: str) -> tuple[Charge, Receipt] | None:
        """A charge by its public name, and its receipt."""
        charge = self.ledger.charge_of(id)
        if charge is None:
            return None
        return charge, self._make_receipt(charge, self._plans.of_charge(charge)[0].mechanism)

    def recorded(self, charge: Charge) -> Table | None:
        """The answer of a charge from the record, if there is one."""
        if charge.payload is None:
            return None
        question = ask(self.config.schemas, charge.text)
        if question.sha256 != charge.question:
            raise ConflictError("the schema changed since this was asked")
        return self._make_table(question, charge, self._plans.of_charge(charge)[1], True, None)

    def _make_receipt(self, charge: Charge, mechanism: str) -> Receipt:
        """What was paid for, by the mechanism that answered; what is stated covers all of the pool."""
        record = self.ledger.plan(charge.pool)
        if record is None:
            raise LedgerError("the plan of this charge is gone from the ledger; nothing was answered")
        return Receipt(
            charge.id,
            charge.dataset,
            charge.version,
            charge.question,
            charge.text,
            mechanism,
            record.pool,
            self._plans.epsilon(record),
            record.delta,
            record.total_answers,
            self.ledger.standing(record.pool).left if charge.left is None else charge.left,
            charge.answered or charge.time,
            lost_answers(record),
        )
