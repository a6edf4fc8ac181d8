"""Publications: charge every table at once, count once, draw, record, then derive everything from the record.

**Guarantee.** Every table of an edition is paid for, in one transaction, before the data is looked at. All measurements
of an edition come from one count with one salt, and are recorded in one transaction; until then nothing is derived from
them, and nothing leaves this process. Once they are recorded no noise is drawn again: the tables are derived from the
record, as often as they are asked for. A process that dies before that leaves at most charges, which a later run
completes with a new salt and new noise keys.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from countveil.config.budget import imagine_epsilon
from countveil.config.configuration import Dataset
from countveil.config.publications import DeclaredPublication, DeclaredTable
from countveil.curator.overview import Overview
from countveil.curator.parquet_results import Ready
from countveil.curator.plan_records import digest_laws, published_tables
from countveil.curator.pool_plans import CURATOR
from countveil.curator.recorded_counts import draw_counts, pack_counts, unpack_counts
from countveil.errors import ConfigError, ParameterError, RequestError
from countveil.ledger import Asked, Charge, PlanRecord
from countveil.mechanism.mechanism import Mechanism
from countveil.numeric.exact_numbers import integer
from countveil.planning.grades import LARGEST_MARGIN
from countveil.publication.edition import Edition, Progress
from countveil.publication.folder import check_format, check_new, find_published, read_target
from countveil.publication.layout import PUBLISH, Layout, check_layout, lay_out
from countveil.publication.outlook import PublicationOutlook, foresee
from countveil.publication.publication import Publication
from countveil.publication.verification import check_same
from countveil.publication.writing import Facts, write_edition
from countveil.query import Question
from countveil.sampling.randomness import salt

log = logging.getLogger("countveil.curator.publishing")


class Publishing(Overview):
    """The part of a Curator that publishes tables that add up."""

    @abstractmethod
    def _prepare(
        self, question: Question, dataset: Dataset, analyst: str, grade: str | None, *, keep: bool = False
    ) -> AbstractContextManager[Ready]: ...

    @abstractmethod
    def _anchor_failures(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _check_unchanged(self, ready: Ready) -> None: ...

    def publish(
        self,
        name: str,
        *,
        output: str | Path | None = None,
        format: str | None = None,
        progress: Progress = iter,
    ) -> Publication:
        """Publish an edition: all tables of a publication, paid for at once, adding up, in a new folder.

        On data that was published before, the recorded numbers are written again; that is free.

        Args:
            name: The name of a `[publication.NAME]` of countveil.toml.
            output: A new folder. Default: edition-N in the publication's `output`.
            format: "csv" or "parquet". Default: csv, or the format of this edition if the folder has it already.
            progress: Wraps the numbers of steps, to show progress.

        Returns:
            The publication in its folder.

        Raises:
            ConfigError: There is no such publication, or the plan on record has other tables.
            ParameterError: The folder has other files, or the format is not known.
            BudgetError: No edition is left.
            DataError, EngineError: The source does not fit its schema, or cannot be read.
            LedgerError: The ledger cannot be used; nothing is published.

        >>> publication = curator.publish("yearbook", output="yearbook")
        >>> publication.tables, publication.replayed
        (('total', 'region', 'region*town*purpose'), False)
        >>> bool(publication["region"]["count"].sum() == publication["total"]["count"][0])
        True
        """
        declared, dataset, layout = self._lay_out(name)
        check_format(format or "csv")
        target = None if output is None else read_target(output)
        check_layout(layout)  # before anything is charged
        with self._prepare(layout.question, dataset, CURATOR, declared.grade_of(0)) as ready:
            grades = published_tables(ready.record, name)
            tables = [table for table in layout.tables if table.name in grades]
            laws = digest_laws(ready.record, name)
            asked = [_ask(ready, layout, table, laws, grades[table.name].name) for table in tables]
            number = self._number_edition(ready, name, laws)
            place = target or read_target(declared.output / f"edition-{number}")
            known = [self.ledger.find(a.pool, a.dataset, a.version, a.question, a.grade) for a in asked]
            replayed = all(charge is not None and charge.payload is not None for charge in known)
            if not replayed:
                check_new(place)
            charges = self.ledger.charge_all(asked, ready.record)
            mechanisms = {t.name: self._plans.of_charge(c).mechanism for t, c in zip(tables, charges, strict=True)}
            if not replayed:
                with self._anchor_failures():
                    charges = self._measure(ready, layout, mechanisms, charges)
                for table, charge in zip(tables, charges, strict=True):
                    cells = len(layout.tree.levels[layout.tree.place(table.name)])
                    log.info("answered charge=%s dataset=%s cells=%d", charge.id, charge.dataset, cells)
        facts = self._describe(ready.record, charges, layout, number)
        folder = find_published(place, facts.receipts)
        if folder is None:
            edition = _derive(layout, mechanisms, charges, progress)
            try:
                folder = write_edition(place, edition, facts, format or "csv")
            except RequestError:
                folder = find_published(place, facts.receipts)  # another process may have written it first
                if folder is None:
                    raise
        check_same(folder, declared, format)
        return Publication(folder, replayed, facts.guarantee)

    def _number_edition(self, ready: Ready, name: str, laws: str) -> int:
        """The number of the edition that the present data makes. Recorded editions are numbered from 1, in order."""
        made: dict[tuple[str, int, str], None] = {}
        for charge in self.ledger.charges(pool=ready.record.pool):
            if charge.answered is not None and charge.text.startswith(f"{PUBLISH}{name}: "):
                plan = self.ledger.plan_of(charge) or ready.record
                made[charge.dataset, charge.version, digest_laws(plan, name)] = None
        here = (ready.asked.dataset, ready.asked.version, laws)
        return list(made).index(here) + 1 if here in made else len(made) + 1

    def _measure(
        self, ready: Ready, layout: Layout, mechanisms: Mapping[str, Mechanism], charges: list[Charge]
    ) -> list[Charge]:
        """Count once, draw every table with a noise key of its own, and record all of them together."""
        counts = ready.engine.count(layout.question, salt=salt())
        self._check_unchanged(ready)
        payloads = []
        for table in layout.tables:
            if table.name in mechanisms:
                sums = layout.sum_table(counts, table)
                payloads.append(pack_counts(draw_counts(mechanisms[table.name], sums, len(sums))))
        return self.ledger.record_all(list(zip(charges, payloads, strict=True)))

    def _describe(self, record: PlanRecord, charges: list[Charge], layout: Layout, number: int) -> Facts:
        """What the manifest says of an edition besides its numbers."""
        first = charges[0]
        receipt = self._plans.make_receipt(first, first.question, layout.question.truth.statement)
        time = first.answered or first.time
        return Facts(
            edition=number,
            version=first.version,
            time=time,
            receipts=tuple(charge.id for charge in charges),
            guarantee={
                "epsilon": receipt.epsilon,
                "delta": receipt.delta,
                "neighbours": record.neighbours,
                "answers": receipt.answers,
                "pool": record.pool,
                "covers": "all answers of the pool together that it had when this folder was written",
            },
            truth=asdict(layout.question.truth),
        )

    def plan_publication(
        self,
        name: str,
        *,
        epsilon: str | None = None,
        table: int | str | None = None,
        margin: int | str | None = None,
    ) -> PublicationOutlook:
        """What a publication will contain and how accurate it will be. Looks at no data and pays nothing.

        Args:
            name: The name of a `[publication.NAME]` of countveil.toml.
            epsilon: Plan as if the pool's budget had this epsilon.
            table, margin: Plan as if this table, given by its number (from 1) or its name, had this 95 % margin.

        Returns:
            Tables with their margins, the guarantee, and notes.

        Raises:
            ConfigError: There is no such publication, or the plan on record has other tables.
            ParameterError, InfeasibleError: This epsilon, table or margin is not possible.

        >>> outlook = curator.plan_publication("yearbook")
        >>> [(each.name, each.cells) for each in outlook.tables]
        [('total', 1), ('region', 4), ('region*town*purpose', 36)]
        """
        declared, dataset, layout = self._lay_out(name)
        if epsilon is None and table is None and margin is None:
            record = self._plans.of(dataset)
            stated, left = self._plans.epsilon(record), self._plans.left(dataset, CURATOR)
        else:
            layout = lay_out(_imagine_table(declared, table, margin), dataset.schema)
            record, stated = self._imagine_plan(dataset, layout, epsilon)
            left = {}
        grades = published_tables(record, name)
        mechanisms = {name: Mechanism.from_text(grade.document) for name, grade in grades.items()}
        outlook = foresee(
            layout,
            mechanisms,
            epsilon=stated,
            delta=record.delta,
            pool=record.pool,
            editions_left=min(left.get(grade.name, grade.answers) for grade in grades.values()),
            answers=sum(grade.answers for grade in record.grades),
        )
        if left or not record.earlier:
            return outlook
        note = f"this would be a new plan, of epsilon {record.epsilon}; the stated epsilon covers the plans before too"
        return replace(outlook, notes=(*outlook.notes, note))

    def _imagine_plan(self, dataset: Dataset, layout: Layout, epsilon: str | None) -> tuple[PlanRecord, str]:
        """The plan that a dataset's pool would get with another epsilon or another publication, and its epsilon."""
        budget = dataset.require_budget()
        if epsilon is not None:
            budget = replace(budget, epsilon=imagine_epsilon(epsilon))
        others = [layout if each.name == layout.name else each for each in self._plans.publications(budget.pool)]
        return self._plans.imagine(budget, others)

    def _lay_out(self, name: str) -> tuple[DeclaredPublication, Dataset, Layout]:
        """A publication with its dataset and layout, after every check that does not read the source."""
        declared = self.config.publication(name)
        dataset = self.config.dataset(declared.dataset)
        dataset.check_confirmed()
        layouts = self._plans.publications(dataset.require_budget().pool)
        return declared, dataset, next(each for each in layouts if each.name == name)


def _derive(layout: Layout, mechanisms: Mapping[str, Mechanism], charges: list[Charge], progress: Progress) -> Edition:
    """Make the edition from the measurements that the ledger has recorded for all tables."""
    measurements: dict[str, Any] = {}
    for table, charge in zip(mechanisms, charges, strict=True):
        size = len(layout.tree.levels[layout.tree.place(table)])
        if charge.payload is None:
            raise ConfigError(f"publication.{layout.name}", "has an edition that was not recorded; verify the ledger")
        measurements[table] = unpack_counts(charge.payload, size)
    return Edition(layout, mechanisms, measurements, [charge.id for charge in charges], progress)


def _ask(ready: Ready, layout: Layout, table: DeclaredTable, laws: str, grade: str) -> Asked:
    """The request to the ledger to charge one table of an edition."""
    return ready.asked._replace(question=layout.digest_of(table, laws), text=layout.text_of(table), grade=grade)


def _imagine_table(
    declared: DeclaredPublication, table: int | str | None, margin: int | str | None
) -> DeclaredPublication:
    """The publication as it would be declared if one of its tables had another margin."""
    if (table is None) != (margin is None):
        raise RequestError("give a table and its margin together, or neither")
    if table is None or margin is None:
        return declared
    names = [each.name for each in declared.tables]
    chosen = str(table)
    if chosen not in names and chosen.isdecimal() and 1 <= int(chosen) <= len(names):
        chosen = names[int(chosen) - 1]
    if chosen not in names:
        raise ParameterError("table", table, f"a number from 1 to {len(names)}, or one of {', '.join(names)}")
    wanted = integer("margin", margin, 1, LARGEST_MARGIN)
    tables = (replace(e, margin=wanted, weight=None) if e.name == chosen else e for e in declared.tables)
    return replace(declared, tables=tuple(tables))
