"""Every refusal of a service: its name and status over HTTP, its code on the command line, its error in Python."""

from __future__ import annotations

from enum import Enum

from countveil.errors import (
    AccessError,
    BudgetError,
    ConfigError,
    ConflictError,
    CountveilError,
    DataError,
    EngineError,
    LedgerError,
    QueryError,
    RequestError,
    ServiceError,
)


class Kind(Enum):
    """One sort of refusal. `error` is what a client of the service raises; `fixed` stands in place of the library's
    words where those are for the curator alone."""

    BAD_REQUEST = 400, "the request could not be read", 2, RequestError
    UNAUTHORIZED = 401, "a valid key is needed", 2, AccessError
    BUDGET_EXHAUSTED = 402, "the budget is spent", 4, BudgetError
    FORBIDDEN = 403, "this key may not do that", 2, AccessError
    NOT_FOUND = 404, "there is nothing here", 2, ServiceError
    METHOD_NOT_ALLOWED = 405, "this address does not take that method", 2, ServiceError
    CONFLICT = 409, "the idempotency key has another question", 2, ConflictError
    TOO_LARGE = 413, "the request is too large", 2, RequestError
    UNSUPPORTED_MEDIA_TYPE = 415, "the body has to be JSON", 2, ServiceError
    MISDIRECTED = 421, "this host is not served here", 2, ServiceError
    BAD_PARAMETER = 422, "a parameter is not allowed", 2, RequestError
    QUERY_NOT_ALLOWED = 422, "the query is not allowed", 3, QueryError
    TOO_MANY_REQUESTS = 429, "too many requests", 2, ServiceError
    INTERNAL = (
        *(500, "an internal error", 1, ServiceError),
        "nothing was answered; what was charged stays charged; tell the curator",
    )
    NOT_READY = (
        *(503, "the dataset cannot be asked now", 2, ConfigError),
        "the curator has to mend the configuration; the service's log names the entry",
    )
    LEDGER = (
        *(503, "the ledger cannot be used now", 1, LedgerError),
        "nothing was answered; what was charged stays charged; ask again, or tell the curator",
    )
    DATA_DOES_NOT_FIT = (
        *(503, "the data does not fit its declared schema", 5, DataError),
        "the curator can look with: countveil inspect",
    )
    ENGINE = (
        *(503, "the data cannot be reached now", 6, EngineError),
        "what was charged stays charged, and the same question is then free; ask again, or tell the curator",
    )

    def __init__(self, status: int, title: str, code: int, error: type[CountveilError], fixed: str = "") -> None:
        self.status, self.title, self.code, self.error, self.fixed = status, title, code, error, fixed

    @property
    def slug(self) -> str:
        """Its name over HTTP.

        >>> Kind.NOT_FOUND.slug
        'not-found'
        """
        return self.name.lower().replace("_", "-")
