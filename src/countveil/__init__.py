"""countveil: publish counts that protect the people counted.

import countveil as cv
m = cv.design(epsilon="1", delta="1e-6")
m.eta, m.D, m.delta, m.certificate
m.release(1234)

curator = cv.Curator.open("countveil.toml")
table = curator.count("SELECT region, count(*) FROM people GROUP BY region")
table.frame, table.receipt
"""

from typing import TYPE_CHECKING, Any

from countveil.accounting import answers_within, compose, plan
from countveil.comparison import Comparison, compare
from countveil.design import design, nonnegative
from countveil.errors import (
    BudgetError,
    CertificateError,
    ConfigError,
    CountveilError,
    DataError,
    EngineError,
    InfeasibleError,
    LedgerError,
    MissingExtraError,
    ParameterError,
    QueryError,
    RequestError,
)
from countveil.mechanism import Mechanism
from countveil.plots import plot
from countveil.query import col

if TYPE_CHECKING:
    from countveil.curator import Curator

__version__ = "0.1.0"

__all__ = [
    "BudgetError",
    "CertificateError",
    "Comparison",
    "ConfigError",
    "CountveilError",
    "Curator",
    "DataError",
    "EngineError",
    "InfeasibleError",
    "LedgerError",
    "Mechanism",
    "MissingExtraError",
    "ParameterError",
    "QueryError",
    "RequestError",
    "__version__",
    "answers_within",
    "col",
    "compare",
    "compose",
    "design",
    "nonnegative",
    "plan",
    "plot",
]


def __getattr__(name: str) -> Any:
    """Curator brings numpy and the ledger along, so it is loaded when it is first named."""
    if name == "Curator":
        from countveil.curator import Curator

        return Curator
    raise AttributeError(f"module 'countveil' has no attribute {name!r}")
