"""Every error that countveil raises on purpose, with its exit code and its meaning over HTTP.

A message is one line: what was given, what is allowed, what to do next. Messages depend on parameters and files, never
on the data that a question is about. The one exception is `countveil release`, which publishes a finished table: it
names the invalid row to the table's owner.

Each class also has the builtin base that callers expect, so `except ValueError` works without importing countveil:

    CountveilError
    ├── ParameterError      ValueError        an argument is not allowed
    ├── RequestError        ValueError        arguments that do not fit together
    ├── InfeasibleError     ValueError        no mechanism has these properties
    ├── SolverError         RuntimeError      the solver found no answer
    ├── CertificateError    ValueError        a mechanism file is invalid or its claims are false
    │   └── PTableError                       a p-table is invalid (countveil.ptables)
    ├── QueryError          ValueError        a question outside the query language or the schema
    ├── ConfigError         ValueError        countveil.toml is invalid
    ├── DataError           ValueError        a source does not fit its schema
    ├── EngineError         RuntimeError      a source cannot be read
    ├── BudgetError         RuntimeError      no answer is left
    ├── ConflictError       ValueError        an idempotency key was used for another question
    ├── AccessError         PermissionError   a service refuses the key
    ├── ServiceError        ConnectionError   a service cannot be reached or fails
    ├── LedgerError         RuntimeError      the ledger cannot be read, written or trusted
    └── MissingExtraError   ImportError       an optional dependency is not installed

`docs/errors.md` shows an example of each; it is generated from this module.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping
from enum import Enum


class CountveilError(Exception):
    """Base of all errors that countveil raises on purpose; `exit_code` is what the command line returns.

    What to do: catch this class where every failure of countveil is handled alike.
    """

    exit_code = 1


class ParameterError(CountveilError, ValueError):
    """An argument has a value that is not allowed.

    `argument` is its name, `given` the value, and `allowed` says in words what is allowed. What to do: give a value
    that the message allows.
    """

    exit_code = 2

    def __init__(self, argument: str, given: object, allowed: str, hint: str = "") -> None:
        self.argument = argument
        self.given = given
        self.allowed = allowed
        self.hint = hint
        shown = shorten(given)
        tail = f"; {hint}" if hint else ""
        super().__init__(f"{argument}: got {shown}, allowed is {allowed}{tail}")


class RequestError(CountveilError, ValueError):
    """Each argument is allowed, but together they contradict each other or leave something open.

    What to do: add or leave out the argument that the message names.
    """

    exit_code = 2


class InfeasibleError(CountveilError, ValueError):
    """No mechanism has the requested properties: `reason` says why, and `nearest` names the nearest possible values.

    What to do: ask for the nearest values, or relax epsilon, delta, eta or D.
    """

    exit_code = 2

    def __init__(self, reason: str, nearest: str = "") -> None:
        self.reason = reason
        self.nearest = nearest
        super().__init__(f"{reason}; {nearest}" if nearest else reason)


class SolverError(CountveilError, RuntimeError):
    """The linear-programming solver found no solution and no proof that there is none.

    What to do: use a smaller D, or another method.
    """

    exit_code = 2


class CertificateError(CountveilError, ValueError):
    """A mechanism file is malformed, or claims properties that its weights do not have.

    What to do: do not use the file; design the mechanism again, or fetch the original file.
    """

    exit_code = 2


class QueryError(CountveilError, ValueError):
    """A question is outside the query language or the public schema; `position` counts characters from 1.

    What to do: ask with what the message allows; docs/asking.md has the whole language.
    """

    exit_code = 3

    def __init__(self, construct: str, allowed: str, position: int | None = None) -> None:
        self.construct = construct
        self.allowed = allowed
        self.position = position
        where = f" at position {position}" if position is not None else ""
        super().__init__(f"query not allowed{where}: {construct}; {allowed}")


class ConfigError(CountveilError, ValueError):
    """A configuration file cannot be used; `key` is the dotted name of the invalid entry.

    What to do: correct the entry in countveil.toml.
    """

    exit_code = 2

    def __init__(self, key: str, reason: str) -> None:
        self.key = shorten(key, 200)  # a file can have any name
        self.reason = reason
        super().__init__(f"{self.key}: {reason}")


class DataError(CountveilError, ValueError):
    """The columns of a source, or their types, do not fit the declared schema; or a CSV file violates RFC 4180.

    The message never depends on values. What to do: compare the source with its schema: countveil inspect.
    """

    exit_code = 5


class EngineError(CountveilError, RuntimeError):
    """A source cannot be read. The engine's own message is withheld, because it can quote the data.

    What to do: check that the source exists and can be opened, then ask again; a charge that was made stays paid.
    """

    exit_code = 6


class BudgetError(CountveilError, RuntimeError):
    """The pool, or an analyst's share of it, has no answer left. Repeating an answered question is free.

    What to do: a curator adds answers: countveil budget POOL --extend N --reason WHY.
    """

    exit_code = 4

    def __init__(
        self,
        pool: str,
        answers: int,
        analyst: str | None = None,
        *,
        grade: str | None = None,
        others: Mapping[str, int] | None = None,
        publishes: bool = False,
    ) -> None:
        self.pool = pool
        self.answers = answers
        self.analyst = analyst
        self.grade = grade
        """The grade that was asked for, if the pool has several."""
        self.others = dict(others or {})
        """For each other grade with answers left, their number by the name of the grade."""
        self.publishes = publishes
        """Whether the grade pays for a table of a publication; answers cannot be added to such a grade alone."""
        of = "" if grade is None else f"grade {grade} of "
        if analyst is not None and answers == 0:
            name = shorten(analyst, 40)
            super().__init__(f"{name} has no share in {of}the budget of {pool}; a curator can give one")
            return
        whose = f"the share of {shorten(analyst, 40)} in" if analyst else "the budget of"
        super().__init__(
            f"{whose} {of}{pool} is spent, {all_answers(answers)}; questions asked before stay free; {self._advice()}"
        )

    def _advice(self) -> str:
        if self.analyst is not None:
            return "a curator can raise the share in countveil.toml, or the limit of the key"
        if self.publishes:
            plan = f"countveil budget {self.pool} --replan --reason WHY"
            return f"a curator can raise editions in countveil.toml and make a new plan: {plan}"
        to = "" if self.grade is None else f" --grade {self.grade}"
        add = f"a curator can add answers with: countveil budget {self.pool} --extend N{to} --reason WHY"
        return f"{describe_others(self.others)}; {add}" if self.others else add


def describe_others(others: Mapping[str, int]) -> str:
    """A sentence on other grades that have answers left; `others` maps the name of such a grade to their number."""
    left = ", ".join(f"{many} of {name}" for name, many in others.items())
    return f"other grades have answers left ({left}): ask again and name one of these grades"


class ConflictError(CountveilError, ValueError):
    """A request uses the idempotency key of another question, or of the same question under an older schema.

    What to do: use a new idempotency key.
    """

    exit_code = 2


class AccessError(CountveilError, PermissionError):
    """A service does not know the API key, or the key does not allow what was asked.

    What to do: ask the curator of the service for a key: countveil keys add NAME.
    """

    exit_code = 2


class ServiceError(CountveilError, ConnectionError):
    """A service cannot be reached, is too busy, fails, or is not a countveil service.

    What to do: check the address and try again; if the question was charged already, asking again is free.
    """

    exit_code = 6


class LedgerError(CountveilError, RuntimeError):
    """The ledger cannot be read, written or trusted; nothing is answered.

    What to do: run countveil ledger verify, and restore a backup if that command says so.
    """

    exit_code = 1


class MissingExtraError(CountveilError, ImportError):
    """An optional dependency is not installed: `extra` is the extra of countveil that installs it.

    What to do: run the command in the message.
    """

    exit_code = 6

    def __init__(self, what: str, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f'{what} is not installed; run: pip install "countveil[{extra}]"')


class ProblemKind(Enum):
    """A kind of refusal by the service: HTTP status, title, exit code, and the `error` class that the client raises.

    `fixed`, if given, is the text that the service sends instead of the library's message, which is only for the
    curator.
    """

    BAD_REQUEST = 400, "the request could not be read", 2, RequestError
    UNAUTHORIZED = 401, "a valid key is needed", 2, AccessError
    BUDGET_EXHAUSTED = 402, "the budget is spent", 4, BudgetError
    FORBIDDEN = 403, "this key may not do that", 2, AccessError
    NOT_FOUND = 404, "there is nothing here", 2, ServiceError
    METHOD_NOT_ALLOWED = 405, "this address does not take that method", 2, ServiceError
    CONFLICT = 409, "the idempotency key was used for another question", 2, ConflictError
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
        "the curator has to correct the configuration; the service's log names the entry",
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
        """The name of this kind in HTTP responses.

        >>> ProblemKind.NOT_FOUND.slug
        'not-found'
        """
        return self.name.lower().replace("_", "-")


def warn_deprecated(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that the name `old` is replaced by `new`; the old name works for one more release."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=stacklevel)


def different_units(dataset: str, unit: str, other: str, unit_of_other: str, pool: str) -> ConfigError:
    """The error for two datasets of one pool that count different units as one person."""
    return ConfigError(
        f"dataset.{dataset}.unit",
        f"is {shorten(unit, 40)}, and that of {shorten(other, 40)} in the same pool {shorten(pool, 40)} is "
        f"{shorten(unit_of_other, 40)}: a pool protects one unit; give each unit a pool and a source of its own, or, "
        "if both identify the same people, one name to the column that does",
    )


def all_answers(answers: int) -> str:
    """The number of answers of a spent budget in words, such as "all 10 answers"."""
    return "its one answer" if answers == 1 else f"all {answers} answers"


def shorten(given: object, limit: int = 60) -> str:
    """The given value on one line, cut to at most `limit` characters, with unprintable characters replaced.

    >>> shorten("\\x1b[2J")
    '\ufffd[2J'
    """
    try:
        text = str(given) if isinstance(given, (str, datetime.date)) else repr(given)
    except ValueError:  # an int of thousands of digits has no repr
        text = "a number of thousands of digits"
    text = " ".join(text[: 10 * limit].split()) or "an empty text"
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
