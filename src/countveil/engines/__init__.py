"""Engines count; they never draw noise and never see an analyst's text.

An engine is found by the entry point `countveil.engines`: its name is an engine's name, its value a function
`open(source, schema) -> Engine`. `ENGINES` says which engine reads which scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from countveil.engines.source import Source
from countveil.errors import EngineError, ParameterError, shortened
from countveil.query import Question
from countveil.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Engine", "GuestEngine", "QuickEngine", "Source", "WatchedEngine", "WritingEngine", "open_engine"]

ENGINES = {
    "frame": "duckdb",
    "csv": "duckdb",
    "parquet": "duckdb",
    "duckdb": "duckdb",
    "postgresql": "postgres",
    "postgres": "postgres",
    "spark": "spark",
}


@runtime_checkable
class Engine(Protocol):
    """Counts questions on one source."""

    def describe(self) -> Mapping[str, str]:
        """The columns of the source and the family of their types: integer, float, text, boolean, date, ..."""
        ...

    def count(self, question: Question, *, key: bytes) -> NDArray[np.int64]:
        """The true count of every cell, flat, the last group column running fastest, zeros included.

        `key` chooses which cells count of a person who is in too many. Errors say nothing about the data.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class QuickEngine(Protocol):
    """An engine that may have all of a small table in memory."""

    def quick(self) -> bool:
        """It has, and no question takes it long."""
        ...


@runtime_checkable
class WatchedEngine(Protocol):
    """An engine of a server, which can tell whether its rows have changed."""

    def fingerprint(self) -> str:
        """Another text for other content."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class GuestEngine(Protocol):
    """An engine in a session that is not its own, and may end."""

    def alive(self) -> bool:
        """The session is there; otherwise the engine must be opened anew."""
        ...


@runtime_checkable
class WritingEngine(Protocol):
    """An engine whose workers can draw a table that is too large for one process, and write it to Parquet files."""

    def write_release(
        self, question: Question, folder: Path, *, key: bytes, mechanism: str, unchanged: Callable[[], None]
    ) -> str:
        """Count, draw and write into a new folder, once; the name of the column of counts in the files.

        `mechanism` is a mechanism's file; `unchanged` is called between counting and drawing, and may refuse.
        """
        ...

    def read_release(self, files: list[str], columns: Mapping[str, str]) -> object:
        """The engine's frame of released files: `columns` are the names to show, and those in the files."""
        ...


def open_engine(source: Source, schema: Schema | None = None, engine: str | None = None) -> Engine:
    """The engine that counts on a source; with a schema, the source's columns are checked against it."""
    if source.unused is not None:
        setting, reason = source.unused
        raise ParameterError(setting, getattr(source, setting), "nothing", reason)
    name = engine or ENGINES.get(source.scheme)
    if name is None:
        raise EngineError(
            f"source: {shortened(source.location, 100)} is of no known kind; "
            'use .csv, .parquet, .duckdb with table = "...", or postgresql://'
        )
    found = {entry.name: entry for entry in entry_points(group="countveil.engines")}
    if name not in found:
        raise EngineError(f"engine {shortened(name)} is not installed; installed are {', '.join(sorted(found))}")
    opened: Engine = found[name].load()(source, schema)
    return opened
