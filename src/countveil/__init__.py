"""Publish counts that protect the people counted.

    import countveil as cv

    m = cv.design(epsilon="1", delta="1e-6")              # a mechanism for one count
    m.eta, m.D, m.delta, m.certificate
    m.release(1234)

    curator = cv.Curator.open("countveil.toml")            # your data, within a budget
    table = curator.count("SELECT region, count(*) FROM people GROUP BY region")
    table.frame, table.receipt

    service = cv.connect("https://counts.example.org", key="cvk_...")     # the data of others
    service.count(by="region", where=cv.col("age") >= 65).frame

These names are the public API. Modules and packages below `countveil` are internal and may change at any time.

Mechanisms
    design              a certified mechanism for given values of epsilon, delta, eta and D
    make_nonnegative    a signed mechanism made never negative, at no privacy cost
    compare             mechanisms of the literature and ours on equal terms
    plot                a picture of a mechanism, a comparison, a plan, a composition, a table or an audit
    Mechanism           laws of the noise with their certificate: release, save, load
    Certificate         the exact properties of a mechanism
    Law                 the law of the noise for one true count
    Laws                the laws of the noise for every true count
    CountProfile        bias, eta and mean squared error at one true count
    Chart               the result of plot, shown inline by notebooks
    Comparison          the result of compare
    ComparisonRow       one mechanism of a comparison

Many answers
    plan                the best mechanisms that a search finds for a number of answers within one budget
    Grade               what is asked of answers of one accuracy: their number, and a target or a weight
    PlannedGrade        a grade of a plan with its mechanism
    compose             the privacy of many answers together
    affordable_answers  how many answers of a mechanism a budget allows
    Plan                the result of plan
    Composition         the result of compose: delta(epsilon), epsilon(delta)
    Bounds              a number with proved lower and upper bounds

Tables that add up
    Tree                which cell of a table is part of which cell of a coarser one
    Level               one table of a tree
    reconcile           whole, never negative tables that add up, from noisy ones
    split_budget        how to divide a budget among the tables of a tree
    expect_gaps         by how much sums of published cells will exceed the true sums
    Reconciliation      the result of reconcile
    ReconciledTable     one table of a Reconciliation, with intervals and certain bounds
    MarginTable         sums across the tree, with intervals
    BudgetSplit         the result of split_budget
    ExpectedGaps        the result of expect_gaps

Publications
    Publication         one edition of tables that add up, from its folder
    PublicationOutlook  what a publication will contain and cost, before it is published
    TableOutlook        one table of a PublicationOutlook
    TableChange         the changes of a table between two editions
    PublicationSummary  a declared publication and its editions
    EditionSummary      an edition: its time, tables and guarantee
    TableSummary        a published table: its columns and its margin
    Guarantee           the guarantee of an edition
    Finding             what is wrong with a file of an edition

Counting
    Curator             answers questions about your data within its budget
    connect             a connection to the service of another curator
    Connection          the calls of a Curator over HTTP
    col                 a column, for conditions in Python
    Condition           a condition in Python
    Question            a checked question
    Table               released counts with their margins
    Total               a sum of released counts with its margin
    Truth               what an answer's counts count (rows or people), and the bounds on what one person adds
    ParquetTable        released counts in Parquet files
    Receipt             what was paid for an answer
    DryRun              cost and accuracy of a question, before it is asked
    PoolBudget          what is left of a budget
    GradeBudget         a grade of a budget: its accuracy, and what is left of it
    Share               what is left of an analyst's share of a budget
    Standing            how many answers there are, and how many are spent
    DatasetSummary      the public schema of a dataset
    ColumnSummary       a column of a public schema
    MechanismSummary    the accuracy of a dataset's answers
    HistoryEntry        a question that was charged

Literal types of arguments
    Policy              nonnegative, signed, floor
    DesignMethod        auto, paper, optimal, program, remap
    DesignObjective     delta, singleton, variance
    PlanPolicy          nonnegative, signed, floor
    PlanMethod          remap, program
    PlanObjective       variance, eta, margin
    Neighbours          add-remove, replace
    FrameKind           pandas, polars, pyarrow
    Estimate            nearest, unbiased

Errors, each with the next step in its message
    CountveilError      the base of all of them
    ParameterError      an argument is not allowed
    RequestError        arguments that do not fit together
    InfeasibleError     no mechanism has these properties
    SolverError         the solver found no answer
    CertificateError    a mechanism file is invalid, or its claims are false
    PTableError         a p-table is invalid
    QueryError          a question outside the query language or the schema
    ConfigError         countveil.toml is invalid
    DataError           a source does not fit its schema
    EngineError         a source cannot be read
    BudgetError         no answer is left
    ConflictError       an idempotency key was used for another question
    AccessError         a service refuses the key
    ServiceError        a service cannot be reached or fails
    LedgerError         the ledger cannot be read, written or trusted
    MissingExtraError   an optional dependency is not installed
"""

from typing import TYPE_CHECKING, Any

import countveil.display.cards as _cards
from countveil.design import design as design  # at once, because countveil.design is a package too

if TYPE_CHECKING:
    from countveil.accounting import (
        Neighbours as Neighbours,
        affordable_answers as affordable_answers,
        compose as compose,
    )
    from countveil.accounting.composition import Bounds as Bounds, Composition as Composition
    from countveil.client.connection import Connection as Connection, connect as connect
    from countveil.comparison import Comparison as Comparison, compare as compare
    from countveil.comparison.table import ComparisonRow as ComparisonRow
    from countveil.consistency import Estimate as Estimate, reconcile as reconcile
    from countveil.consistency.gaps import ExpectedGaps as ExpectedGaps, expect_gaps as expect_gaps
    from countveil.consistency.reconciliation import (
        MarginTable as MarginTable,
        ReconciledTable as ReconciledTable,
        Reconciliation as Reconciliation,
    )
    from countveil.consistency.split import BudgetSplit as BudgetSplit, split_budget as split_budget
    from countveil.consistency.tree import Level as Level, Tree as Tree
    from countveil.curator.curator import Curator as Curator
    from countveil.curator.parquet_results import ParquetTable as ParquetTable
    from countveil.curator.receipts import (
        GradeBudget as GradeBudget,
        PoolBudget as PoolBudget,
        Receipt as Receipt,
        Share as Share,
    )
    from countveil.curator.results import (
        DryRun as DryRun,
        FrameKind as FrameKind,
        Table as Table,
        Total as Total,
    )
    from countveil.curator.summaries import (
        ColumnSummary as ColumnSummary,
        DatasetSummary as DatasetSummary,
        HistoryEntry as HistoryEntry,
        MechanismSummary as MechanismSummary,
    )
    from countveil.design import make_nonnegative as make_nonnegative
    from countveil.design.request import DesignMethod as DesignMethod, DesignObjective as DesignObjective
    from countveil.errors import (
        AccessError as AccessError,
        BudgetError as BudgetError,
        CertificateError as CertificateError,
        ConfigError as ConfigError,
        ConflictError as ConflictError,
        CountveilError as CountveilError,
        DataError as DataError,
        EngineError as EngineError,
        InfeasibleError as InfeasibleError,
        LedgerError as LedgerError,
        MissingExtraError as MissingExtraError,
        ParameterError as ParameterError,
        QueryError as QueryError,
        RequestError as RequestError,
        ServiceError as ServiceError,
        SolverError as SolverError,
    )
    from countveil.laws.law import Law as Law, Laws as Laws
    from countveil.laws.remap import CountProfile as CountProfile
    from countveil.ledger import Standing as Standing
    from countveil.mechanism.certificate import Certificate as Certificate, Policy as Policy
    from countveil.mechanism.mechanism import Mechanism as Mechanism
    from countveil.planning import (
        Grade as Grade,
        PlanMethod as PlanMethod,
        PlannedGrade as PlannedGrade,
        PlanObjective as PlanObjective,
        PlanPolicy as PlanPolicy,
        plan as plan,
    )
    from countveil.planning.plans import Plan as Plan
    from countveil.plots import plot as plot
    from countveil.plots.chart_files import Chart as Chart
    from countveil.ptables.lines import PTableError as PTableError
    from countveil.publication.change import TableChange as TableChange
    from countveil.publication.editions import (
        EditionSummary as EditionSummary,
        Guarantee as Guarantee,
        PublicationSummary as PublicationSummary,
        TableSummary as TableSummary,
    )
    from countveil.publication.outlook import PublicationOutlook as PublicationOutlook, TableOutlook as TableOutlook
    from countveil.publication.publication import Publication as Publication
    from countveil.publication.verification import Finding as Finding
    from countveil.query import Condition as Condition, Question as Question, col as col
    from countveil.query.truth import Truth as Truth

__version__ = "0.1.0"

_MODULES = {
    "accounting": ("Neighbours", "affordable_answers", "compose"),
    "accounting.composition": ("Bounds", "Composition"),
    "client.connection": ("Connection", "connect"),
    "comparison": ("Comparison", "compare"),
    "comparison.table": ("ComparisonRow",),
    "consistency": ("Estimate", "reconcile"),
    "consistency.gaps": ("ExpectedGaps", "expect_gaps"),
    "consistency.reconciliation": ("MarginTable", "ReconciledTable", "Reconciliation"),
    "consistency.split": ("BudgetSplit", "split_budget"),
    "consistency.tree": ("Level", "Tree"),
    "curator.curator": ("Curator",),
    "curator.parquet_results": ("ParquetTable",),
    "curator.receipts": ("GradeBudget", "PoolBudget", "Receipt", "Share"),
    "curator.results": ("DryRun", "FrameKind", "Table", "Total"),
    "curator.summaries": ("ColumnSummary", "DatasetSummary", "HistoryEntry", "MechanismSummary"),
    "design": ("design", "make_nonnegative"),
    "design.request": ("DesignMethod", "DesignObjective"),
    "errors": (
        *("AccessError", "BudgetError", "CertificateError", "ConfigError", "ConflictError", "CountveilError"),
        *("DataError", "EngineError", "InfeasibleError", "LedgerError", "MissingExtraError", "ParameterError"),
        *("QueryError", "RequestError", "ServiceError", "SolverError"),
    ),
    "laws.law": ("Law", "Laws"),
    "laws.remap": ("CountProfile",),
    "ledger": ("Standing",),
    "mechanism.certificate": ("Certificate", "Policy"),
    "mechanism.mechanism": ("Mechanism",),
    "planning": ("Grade", "PlanMethod", "PlanObjective", "PlanPolicy", "PlannedGrade", "plan"),
    "planning.plans": ("Plan",),
    "plots": ("plot",),
    "plots.chart_files": ("Chart",),
    "ptables.lines": ("PTableError",),
    "publication.change": ("TableChange",),
    "publication.outlook": ("PublicationOutlook", "TableOutlook"),
    "publication.editions": ("EditionSummary", "Guarantee", "PublicationSummary", "TableSummary"),
    "publication.publication": ("Publication",),
    "publication.verification": ("Finding",),
    "query": ("Condition", "Question", "col"),
    "query.truth": ("Truth",),
}
"""For each module, the public names that it defines; a module is imported when one of its names is first used."""
_OLD_NAMES = {"answers_within": "affordable_answers", "nonnegative": "make_nonnegative"}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def _draw(shown: Any, path: Any = None) -> Any:
    """`plot`, imported when it is first used."""
    from countveil.plots import plot

    return plot(shown, path)


_cards.set_painter(_draw)


def __dir__() -> list[str]:
    """The public names."""
    return ["__version__", *sorted(_PLACES)]


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used; a deprecated name also gives a warning."""
        from importlib import import_module

        if name in _OLD_NAMES:
            from countveil.errors import warn_deprecated

            warn_deprecated(f"countveil.{name}", f"countveil.{_OLD_NAMES[name]}")
            name = _OLD_NAMES[name]
        if name not in _PLACES:
            raise AttributeError(f"module 'countveil' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"countveil.{_PLACES[name]}"), name)
        return value
