"""docs/errors.md: every error class with a real message, its exit code, its HTTP status and the next step.

Each example runs the code that raises the error, in a folder of its own.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import countveil as cv
from countveil import errors
from countveil.ledger import Request
from countveil.ptables.formats import read
from countveil.service.problem_json import to_problem
from tests.support.curated import config_text, people, written
from tests.support.serving import Server

SQL = "SELECT region, count(*) FROM people GROUP BY region"


def example_config() -> Path:
    """A dataset of seven people with a budget of four answers, in this folder."""
    people(Path())
    return written(Path())


def exceed_the_solver_limit() -> None:
    with patch("countveil.numeric.linear_program.highs.WORK", 0):
        cv.design(epsilon="1", eta="0.5", D=5, method="program")


def read_a_broken_ptable() -> None:
    Path("table.csv").write_text("i;j;p\n0;0;2\n")
    read("table.csv")


def ask_a_source(change: Callable[[Path], object]) -> None:
    config = example_config()
    change(Path("people.csv"))
    with cv.Curator.open(config) as curator:
        curator.count(SQL)


def configure_an_unknown_entry() -> None:
    cv.Curator.open(written(Path(), config_text(more='neighbors = "replace"')))


def spend_the_budget() -> None:
    with cv.Curator.open(example_config()) as curator:
        for age in (10, 20, 30, 40, 50):
            curator.count(f"SELECT count(*) FROM people WHERE age >= {age}")


def reuse_an_idempotency_key() -> None:
    with cv.Curator.open(example_config()) as curator:
        curator.count(SQL, request=Request("key", "one"))
        curator.count("SELECT count(*) FROM people", request=Request("key", "another"))


def use_an_unknown_key() -> None:
    server = Server(example_config().resolve())
    try:
        with cv.connect(server.url, key="cvk_unknown") as service:
            service.budget()
    except cv.AccessError as error:
        raise cv.AccessError(re.sub("https?://[^ ]+", "https://counts.example.org", str(error))) from None
    finally:
        server.stop()


def damage_the_ledger() -> None:
    config = example_config()
    with cv.Curator.open(config) as curator:
        ledger = curator.config.ledger
    ledger.write_bytes(b"not a ledger")
    cv.Curator.open(config)


def read_yaml_without_pyyaml() -> None:
    Path("table.yaml").write_text("table:\n  - 1\n")
    with patch.dict(sys.modules, {"yaml": None}):
        read("table.yaml")


EXAMPLES: dict[str, Callable[[], object]] = {
    "ParameterError": lambda: cv.design(epsilon="-1", delta="1e-6"),
    "RequestError": lambda: cv.design(epsilon="1"),
    "InfeasibleError": lambda: cv.design(epsilon="1", delta="1e-6", eta="0.9", policy="signed"),
    "SolverError": exceed_the_solver_limit,
    "CertificateError": lambda: cv.Mechanism.load("mechanism.json"),
    "PTableError": read_a_broken_ptable,
    "QueryError": lambda: cv.Curator.open(example_config()).count("SELECT avg(age) FROM people"),
    "ConfigError": configure_an_unknown_entry,
    "DataError": lambda: ask_a_source(lambda file: file.write_text("person,region\n1,North\n")),
    "EngineError": lambda: ask_a_source(os.remove),
    "BudgetError": spend_the_budget,
    "ConflictError": reuse_an_idempotency_key,
    "AccessError": use_an_unknown_key,
    "ServiceError": lambda: cv.connect("http://127.0.0.1:9", key="cvk_example"),
    "LedgerError": damage_the_ledger,
    "MissingExtraError": read_yaml_without_pyyaml,
}


def list_errors(base: type[errors.CountveilError] = errors.CountveilError) -> Iterator[type[errors.CountveilError]]:
    """Every error class below a base, in the order of their definition."""
    for kind in base.__subclasses__():
        yield kind
        yield from list_errors(kind)


def raise_example(kind: type[errors.CountveilError]) -> errors.CountveilError:
    """The error that the example of a class raises."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        try:
            EXAMPLES[kind.__name__]()
        except errors.CountveilError as error:
            if type(error) is kind:
                return error
            raise
    raise AssertionError(f"the example of {kind.__name__} raises nothing")


def list_statuses(error: errors.CountveilError) -> list[int]:
    """The HTTP statuses for which a client raises this class or, if there are none, the status that a service sends."""
    statuses = {kind.status for kind in errors.ProblemKind if kind.error is type(error)}
    return sorted(statuses) or [to_problem(error).kind.status]


def render_page() -> str:
    """The text of docs/errors.md."""
    rows = [
        "# Errors",
        "",
        "Every error that countveil raises on purpose, with a message from the code. A message is one line: what was",
        "given, what is allowed, what to do next. All classes are in `countveil` (`cv.QueryError`) and have the",
        "builtin base that callers expect. The exit code is of the command line, the status of the service. Generated",
        "from the code by `python -m tests.test_docs`.",
        "",
        "```text",
        *re.findall(r"^    ((?:CountveilError$|[├└│]).*)", str(errors.__doc__), re.MULTILINE),
        "```",
    ]
    for kind in list_errors():
        error = raise_example(kind)
        meaning, _, step = " ".join(str(kind.__doc__).split()).partition("What to do: ")
        builtin = next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
        statuses = ", ".join(map(str, list_statuses(error)))
        rows += [
            "",
            f"## {kind.__name__}",
            "",
            meaning.strip(),
            "",
            "```text",
            str(error),
            "```",
            "",
            f"- exit code {kind.exit_code}; HTTP status {statuses}; also a `{builtin}`",
            f"- next step: {step}",
        ]
    return "\n".join(rows) + "\n"
