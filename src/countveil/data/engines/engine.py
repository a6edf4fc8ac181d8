"""The base class of engines, how one is opened for a source, and the pool of those that are open.

Engines count; they never draw noise and never see an analyst's text. An engine is found by the entry point
`countveil.engines`: its name is an engine's name, its value a subclass of `Engine`, or a function that returns one,
called with `(source, schema)`. `ENGINES` says which engine reads which scheme.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.engines.source import Snapshot, Source
from countveil.engines.sql import UNITS, Compiler, Dialect, Family, Statement, check_readable
from countveil.errors import DataError, EngineError, ParameterError, shortened
from countveil.query import Question
from countveil.schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENGINES = {
    "frame": "duckdb",
    "csv": "duckdb",
    "parquet": "duckdb",
    "duckdb": "duckdb",
    "postgresql": "postgres",
    "postgres": "postgres",
    "spark": "spark",
}
UNREADABLE = "the source could not be read; the curator can look with: countveil inspect"


class Engine(ABC):
    """Counts questions on one source. Every engine is a subclass, also one of a third party.

    `columns`, `count` and `close` must be implemented. The other methods are for engines that can do more, and say what
    is true of an engine that cannot.
    """

    writes_files = False
    """Its workers can draw a table that is too large for one process: `write_release` and `read_release`."""

    @abstractmethod
    def columns(self) -> Mapping[str, Family]:
        """The source's columns and the families of their types."""

    @abstractmethod
    def count(self, question: Question, *, key: bytes) -> NDArray[np.int64]:
        """The true count of every cell, flat, the last group column running fastest, zeros included.

        `key` chooses which cells count of a person who is in too many. Errors say nothing about the data.
        """

    @abstractmethod
    def close(self) -> None:
        """Let the source go."""

    def fingerprint(self) -> str:
        """Another text for other content, where the source is a server's. Files and frames are hashed without it."""
        raise EngineError("source: this engine cannot tell whether its data has changed")

    def alive(self) -> bool:
        """False if it ran in a session of someone else's, which has ended: it must be opened anew."""
        return True

    def write_release(
        self, question: Question, folder: Path, *, key: bytes, mechanism: str, unchanged: Callable[[], None]
    ) -> str:
        """Count, draw and write into a new folder, once; the name of the column of counts in the files.

        `mechanism` is a mechanism's file; `unchanged` is called between counting and drawing, and may refuse.
        """
        raise NotImplementedError

    def read_release(self, files: list[str], columns: Mapping[str, str]) -> object:
        """The engine's frame of released files: `columns` are the names to show, and those in the files."""
        raise NotImplementedError


class SqlEngine(Engine):
    """An engine that speaks SQL: it runs the generated statement and completes the cells with zeros.

    A subclass opens the source, and implements `columns` and `run`.
    """

    dialect: Dialect
    relation: str
    garbled: str | None = None
    """What the source puts in the place of text that cannot be read; people named with it are not counted."""

    @abstractmethod
    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        """The columns of a statement's result; every fault is an EngineError with a fixed text."""

    def compiler(self) -> Compiler:
        return Compiler(self)

    def check(self, schema: Schema) -> None:
        check_columns(schema, self.columns())

    def count(self, question: Question, *, key: bytes) -> NDArray[np.int64]:
        """The true count of every cell."""
        import numpy as np

        found = self.run(self.compiler().count(question, key.hex()))
        counts = np.zeros(question.cells, dtype=np.int64)
        counts[found["cell"].astype(np.int64)] = found["n"].astype(np.int64)
        return counts


def check_columns(schema: Schema, families: Mapping[str, Family]) -> None:
    """Refuse a source that lacks a declared column or holds a type that cannot be read as declared."""
    for column in schema.columns:
        if column.name not in families:
            raise DataError(f"column {column.name} is declared, but the source has no column of that name")
        check_readable(column, families[column.name])
    if schema.unit_is_row:
        return
    if schema.unit not in families:
        raise DataError(f"unit {schema.unit} is declared, but the source has no column of that name")
    if families[schema.unit] not in UNITS:
        raise DataError(
            f"unit {schema.unit}: people are identified by integers or text, not {families[schema.unit]} values"
        )


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
    opened = found[name].load()(source, schema)
    if not isinstance(opened, Engine):
        raise EngineError(f"engine {shortened(name)} is no subclass of countveil.engines.Engine; update it")
    return opened


@dataclass
class _Member:
    """An engine of the pool and how many questions use it now."""

    state: tuple[object, ...]
    engine: Engine
    users: int = 0


class EnginePool:
    """The open engines of a curator: one for each dataset, opened once for a state of the data, shared by threads, and
    closed when the data has another state and the last question is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[str, _Member] = {}
        self._retired: list[_Member] = []

    @contextmanager
    def use(
        self, snapshot: Snapshot, schema: Schema, engine: str | None = None, *, keep: bool = False
    ) -> Iterator[Engine]:
        """The engine of a dataset on what was seen of its source; `engine` is its name, if one is configured.

        With `keep` it stays open until the pool is closed: what it made is read later.
        """
        member = self._join(snapshot, schema, engine)
        try:
            yield member.engine
        finally:
            with self._lock:
                member.users -= 0 if keep else 1
            self._close_unused()

    def _join(self, snapshot: Snapshot, schema: Schema, engine: str | None) -> _Member:
        with self._lock:
            member = self._current.get(schema.name)
            if member is None or member.state != snapshot.state or not member.engine.alive():
                if member is not None:
                    self._retired.append(self._current.pop(schema.name))
                member = self._current[schema.name] = _Member(snapshot.state, _open_on(snapshot, schema, engine))
            member.users += 1
        self._close_unused()
        return member

    def _close_unused(self) -> None:
        with self._lock:
            unused = [member for member in self._retired if not member.users]
            self._retired = [member for member in self._retired if member.users]
        for member in unused:
            member.engine.close()

    def close(self) -> None:
        with self._lock:
            for member in (*self._current.values(), *self._retired):
                member.engine.close()
            self._current.clear()
            self._retired.clear()


def _open_on(snapshot: Snapshot, schema: Schema, name: str | None) -> Engine:
    """An engine on the content that was seen: what it reads while it is opened, it may keep."""
    engine = open_engine(snapshot.source, schema, name)
    try:
        if not snapshot.is_current():
            raise EngineError("source: it was written while it was opened; nothing was charged; ask again")
    except BaseException:
        engine.close()
        raise
    return engine
