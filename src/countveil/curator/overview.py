"""What a curator reports besides new answers: datasets, history, recorded answers, receipts and budgets."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from countveil.config.configuration import Config, Dataset
from countveil.curator.plan_records import digest_laws
from countveil.curator.pool_plans import Plans
from countveil.curator.receipts import GradeBudget, PoolBudget, Receipt, check_receipt_id
from countveil.curator.recorded_counts import unpack_counts
from countveil.curator.results import Table, make_table
from countveil.curator.summaries import DatasetSummary, HistoryEntry, summarise_charge, summarise_dataset
from countveil.errors import ConflictError, QueryError, warn_deprecated
from countveil.ledger import Charge, Ledger, Most
from countveil.mechanism.intervals import Intervals
from countveil.mechanism.mechanism import Mechanism
from countveil.publication.editions import PublicationSummary, choose_edition, find_editions, summarise_publication
from countveil.publication.layout import PUBLISH
from countveil.publication.publication import Publication
from countveil.query import Question, ask

log = logging.getLogger("countveil.curator.curator")
CHANGED = "unknown: the schema or the bounds of the dataset have changed since"
"""The text that a receipt has in place of what was counted, if its question would mean something else today."""


class Overview:
    """A base class of `Curator`, with everything that a curator reports besides new answers."""

    config: Config
    ledger: Ledger
    _plans: Plans

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.config.datasets)}>"

    def datasets(self) -> list[DatasetSummary]:
        """The datasets that answer questions: public schema, pool and mechanism. Nothing about the data.

        Returns:
            A summary for each dataset that has a budget and whose domains and bounds are all confirmed.

        >>> [(dataset.name, [column.name for column in dataset.columns]) for dataset in curator.datasets()]
        [('people', ['region', 'town', 'age', 'sex', 'condition'])]
        """
        return [
            summarise_dataset(each, self.budget(each.name)[0], self.mechanism(each.name))
            for each in self.config.datasets.values()
            if each.ready
        ]

    def publications(self) -> list[PublicationSummary]:
        """The declared publications, with the editions that are in their `output`. Nothing is published here.

        Returns:
            A summary for each publication.

        >>> [(each.name, each.dataset, len(each.editions)) for each in curator.publications()]
        [('yearbook', 'visitors', 0)]
        """
        return [summarise_publication(each) for each in self.config.publications.values()]

    def publication(self, name: str, edition: int | None = None) -> Publication:
        """A published edition, from the publication's `output`. Nothing is published here.

        Args:
            name: The name of a `[publication.NAME]` of countveil.toml.
            edition: Its number. Default: the newest.

        Returns:
            The publication in its folder.

        Raises:
            ConfigError: There is no such publication.
            ParameterError: There is no such edition.
            RequestError: There is no edition yet.

        >>> curator.publication("yearbook")
        Traceback (most recent call last):
        countveil.errors.RequestError: publication yearbook has no edition yet; countveil publish makes one
        """
        declared = self.config.publication(name)
        chosen = choose_edition(summarise_publication(declared), edition).edition
        return Publication(find_editions(declared)[chosen])

    def history(self, analyst: str | None = None) -> list[HistoryEntry]:
        """The questions that were charged, oldest first.

        Args:
            analyst: Only those of this analyst. Default: those of everyone.

        Returns:
            An entry for each charge; its id is that of the receipt.

        Raises:
            LedgerError: The ledger cannot be read.

        >>> table = curator.count(by="sex")
        >>> [entry.id == table.receipt.id for entry in curator.history()]
        [True]
        """
        return [summarise_charge(charge) for charge in self.ledger.charges(analyst=analyst)]

    def receipt(self, id: str) -> Receipt | None:
        """The receipt with this id.

        Args:
            id: The 24 hexadecimal digits of a receipt.

        Returns:
            The receipt, or None if there is none with this id.

        Raises:
            ParameterError: No receipt can have this id.

        >>> table = curator.count(by="sex")
        >>> curator.receipt(table.receipt.id).text
        'SELECT sex, count(*) FROM people GROUP BY sex'
        """
        check_receipt_id(id)
        charge = self.ledger.charge_of(id)
        if charge is None:
            return None
        return self._plans.make_receipt(charge, self._plans.of_charge(charge).mechanism.hash, self._read_truth(charge))

    def _read_truth(self, charge: Charge) -> str:
        """What a charge counted, in words, if its dataset still has the schema and the bounds that it had then."""
        plan = self.ledger.plan_of(charge)
        if plan is not None and charge.text.startswith(PUBLISH):
            for layout in self._plans.publications(charge.pool):
                laws = digest_laws(plan, layout.name)
                if charge.question in [layout.digest_of(table, laws) for table in layout.tables]:
                    return layout.question.truth.statement
        dataset = self.config.datasets.get(charge.dataset)
        with suppress(QueryError):
            question = None if dataset is None else ask(dataset.schema, charge.text)
            if question is not None and question.sha256 == charge.question:
                return question.truth.statement
        return CHANGED

    def read_recorded_table(self, charge: Charge) -> Table | None:
        """The recorded answer of a charge as a table; None if there is no answer, or the charge is a publication's."""
        if charge.payload is None or charge.text.startswith(PUBLISH):
            return None
        question = ask(self.config.schemas, charge.text)
        if question.sha256 != charge.question:
            raise ConflictError("the schema changed since this question was asked; ask it again")
        return self._make_table(question, charge, self._plans.of_charge(charge), True, None)

    def _make_table(self, question: Question, charge: Charge, intervals: Intervals, replayed: bool, kind: Any) -> Table:
        log.info("answered charge=%s dataset=%s cells=%d", charge.id, charge.dataset, question.cells)
        receipt = self._plans.make_receipt(charge, intervals.mechanism.hash, question.truth.statement)
        return make_table(question, unpack_counts(charge.payload, question.cells), intervals, receipt, replayed, kind)

    def budget(self, pool: str | None = None) -> list[PoolBudget]:
        """What is left of one pool, or of all pools.

        Args:
            pool: The name of a pool, or of a dataset.

        Returns:
            The budgets.

        Raises:
            ConfigError: There is no such pool or dataset.

        >>> [(pool.pool, pool.answers_left) for pool in curator.budget()]
        [('people', 10)]
        """
        return [self._plans.budget(name) for name in self._plans.pools(pool)]

    def mechanism(self, dataset: str, grade: str | None = None) -> Mechanism:
        """The mechanism that answers questions about a dataset in a grade.

        Args:
            dataset: Its name.
            grade: The name of a grade. Default: the grade of questions that name none.

        Returns:
            The mechanism of this grade of the pool's plan.

        Raises:
            ConfigError: There is no such dataset.
            ParameterError: There is no such grade.

        >>> curator.mechanism("people").policy
        'nonnegative'
        """
        declared = self.config.dataset(dataset)
        if grade is not None:
            self._plans.check_grade(declared, grade)
        chosen = grade or self._plans.default_grade(declared)
        return self._plans.of_grade(self._plans.of(declared), chosen).mechanism

    def extend_budget(self, pool: str, answers: int | str, reason: str, *, grade: str | None = None) -> PoolBudget:
        """Add answers to a grade of a pool's plan. The ledger records this, and the epsilon of all answers together.

        Args:
            pool: The name of a pool, or of a dataset.
            answers: How many answers to add.
            reason: Why; the ledger records it.
            grade: The name of a grade; needed if the pool has several.

        Returns:
            The budget afterwards.

        Raises:
            ParameterError, RequestError: An argument is not allowed, or there is no plan yet.
            ConfigError: There is no such pool.

        >>> table = curator.count(by="sex")
        >>> curator.extend_budget("people", 5, "second edition").answers_total
        15
        """
        return self._plans.extend(pool, answers, reason, grade)

    def open_budget(self, pool: str, answers: int | str, reason: str) -> PoolBudget:
        """The old name of `extend_budget`, kept for one release."""
        warn_deprecated("Curator.open_budget", "Curator.extend_budget")
        return self.extend_budget(pool, answers, reason)

    def replan_budget(self, pool: str, reason: str) -> PoolBudget:
        """Make a new plan for a pool from the current configuration. The ledger records this.

        The stated epsilon covers all plans of the pool together. The rest of the old plan can no longer be spent.

        Args:
            pool: The name of a pool, or of a dataset.
            reason: Why; the ledger records it.

        Returns:
            The budget afterwards.

        Raises:
            RequestError: The pool has no plan yet, or the new one is the same.
            ConfigError: There is no such pool.

        >>> curator.replan_budget("people", "more rows")
        Traceback (most recent call last):
        countveil.errors.RequestError: pool people has no plan yet; its first question records the configured plan
        """
        return self._plans.replan(pool, reason)

    def left(self, dataset: Dataset, analyst: str, most: Most | None = None) -> int:
        """How many answers an analyst can still ask for on this dataset: the sum over its grades for single questions.

        A number as `most` limits this sum.
        """
        single = dataset.require_budget().grades
        left = sum(many for grade, many in self._plans.left(dataset, analyst, most).items() if grade in single)
        if isinstance(most, int):
            left = min(left, most - self.ledger.spent_by(dataset.require_budget().pool, analyst))
        return max(0, left)

    def grades_left(self, dataset: Dataset, analyst: str, most: Most | None = None) -> tuple[GradeBudget, ...]:
        """The grades of a dataset's pool, each with the number of answers that an analyst can still ask for."""
        return self._plans.grades_left(dataset, analyst, most)
