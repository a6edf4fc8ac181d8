"""Every error that a user can meet, with the facts it carries and the exit code it becomes.

A message is one line: what was given, what is allowed, what to do next. Messages depend on parameters and files, never
on data that is asked about; only releasing a finished table names the row and value that its owner has to mend.
"""

from __future__ import annotations

import datetime


class CountveilError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class ParameterError(CountveilError):
    """An argument is outside what is allowed."""

    exit_code = 2

    def __init__(self, argument: str, given: object, allowed: str, hint: str = "") -> None:
        self.argument = argument
        self.given = given
        self.allowed = allowed
        self.hint = hint
        shown = shortened(given)
        tail = f"; {hint}" if hint else ""
        super().__init__(f"{argument}: got {shown}, allowed is {allowed}{tail}")


class RequestError(CountveilError):
    """The arguments are each fine but do not determine one mechanism, or contradict each other."""

    exit_code = 2


class InfeasibleError(CountveilError):
    """No mechanism has the properties asked for; `nearest` names what would be possible."""

    exit_code = 2

    def __init__(self, reason: str, nearest: str = "") -> None:
        self.reason = reason
        self.nearest = nearest
        super().__init__(f"{reason}; {nearest}" if nearest else reason)


class SolverError(CountveilError):
    """The linear-programming solver gave up; nothing is known about the request."""

    exit_code = 2


class CertificateError(CountveilError):
    """A mechanism file is malformed, or claims what its weights do not have."""

    exit_code = 2


class QueryError(CountveilError):
    """A question is outside the query language or the public schema; `position` counts characters from 1."""

    exit_code = 3

    def __init__(self, construct: str, allowed: str, position: int | None = None) -> None:
        self.construct = construct
        self.allowed = allowed
        self.position = position
        where = f" at position {position}" if position is not None else ""
        super().__init__(f"query not allowed{where}: {construct}; {allowed}")


class ConfigError(CountveilError):
    """A configuration file cannot be used; `key` is the dotted name of the entry at fault."""

    exit_code = 2

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


class DataError(CountveilError):
    """A source does not fit the declared schema: its columns or their types, never its values; or a CSV file is not
    RFC 4180, so that nobody knows where its records end."""

    exit_code = 5


class EngineError(CountveilError):
    """A source cannot be read; the engine's own words are withheld because they can quote the data."""

    exit_code = 6


def all_answers(answers: int) -> str:
    """How a spent budget is said to have been spent."""
    return "its one answer" if answers == 1 else f"all {answers} answers"


class BudgetError(CountveilError):
    """The plan, or an analyst's share of it, has no answer left."""

    exit_code = 4

    def __init__(self, pool: str, answers: int, analyst: str | None = None) -> None:
        self.pool = pool
        self.answers = answers
        self.analyst = analyst
        more = f"more is opened with: countveil budget {pool} --open N --reason WHY"
        if analyst is not None:
            more = "a curator can raise the share in countveil.toml, or the limit of the key"
        if analyst is not None and answers == 0:
            super().__init__(f"{shortened(analyst, 40)} has no share in the budget of {pool}; a curator can give one")
            return
        whose = f"the share of {shortened(analyst, 40)} in" if analyst else "the budget of"
        super().__init__(f"{whose} {pool} is spent, {all_answers(answers)}; questions asked before stay free; {more}")


class ConflictError(CountveilError):
    """A request contradicts one that was made before under the same key."""

    exit_code = 2


class AccessError(CountveilError):
    """A service does not know the key, or its holder may not do that."""

    exit_code = 2


class ServiceError(CountveilError):
    """A service cannot be reached, is too busy, or is none of ours; what was charged there stays charged."""

    exit_code = 6


class LedgerError(CountveilError):
    """The ledger cannot be read, written or trusted; nothing is answered."""

    exit_code = 1


class MissingExtraError(CountveilError):
    """An optional dependency is not installed."""

    exit_code = 6

    def __init__(self, what: str, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f'{what} is not installed; run: pip install "countveil[{extra}]"')


def shortened(given: object, limit: int = 60) -> str:
    """The given value on one line, cut to a readable length, with a mark for what a terminal would act on.

    >>> shortened("\\x1b[2J")
    '\ufffd[2J'
    """
    try:
        text = str(given) if isinstance(given, (str, datetime.date)) else repr(given)
    except ValueError:  # an int of thousands of digits has no repr
        text = "a number of thousands of digits"
    text = " ".join(text[: 10 * limit].split()) or "an empty text"
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
