"""countveil: publish counts that protect the people counted.

import countveil as cv
m = cv.design(epsilon="1", delta="1e-6")
m.eta, m.D, m.delta, m.certificate
m.release(1234)

curator = cv.Curator.open("countveil.toml")
table = curator.count("SELECT region, count(*) FROM people GROUP BY region")
table.frame, table.receipt

service = cv.connect("https://counts.example.org", key="cvk_...")
service.count("SELECT region, count(*) FROM people GROUP BY region").frame
"""

from typing import TYPE_CHECKING, Any

from countveil.accounting import answers_within, compose, plan
from countveil.comparison import Comparison, compare
from countveil.design import design, nonnegative
from countveil.errors import (
    AccessError,
    BudgetError,
    CertificateError,
    ConfigError,
    ConflictError,
    CountveilError,
    DataError,
    EngineError,
    InfeasibleError,
    LedgerError,
    MissingExtraError,
    ParameterError,
    QueryError,
    RequestError,
    ServiceError,
)
from countveil.mechanism import Mechanism
from countveil.plots import plot
from countveil.query import col

if TYPE_CHECKING:
    from countveil.client import Connection, connect
    from countveil.curator import Curator

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "BudgetError",
    "CertificateError",
    "Comparison",
    "ConfigError",
    "ConflictError",
    "Connection",
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
    "ServiceError",
    "__version__",
    "answers_within",
    "col",
    "compare",
    "compose",
    "connect",
    "design",
    "nonnegative",
    "plan",
    "plot",
]


_LATER = {"Curator": "curator", "Connection": "client", "connect": "client"}


def __getattr__(name: str) -> Any:
    """Curator and Connection bring numpy and the ledger along, so they are loaded when they are first named."""
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"countveil.{_LATER[name]}"), name)
    raise AttributeError(f"module 'countveil' has no attribute {name!r}")
