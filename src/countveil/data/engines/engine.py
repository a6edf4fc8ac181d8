"""The base classes of engines, how an engine is opened for a source, and the pool of open engines.

Engines count; they never draw noise and never see an analyst's text. Packages register engines under the entry point
`countveil.engines`: the entry's name is the engine's name, and its value is a subclass of `Engine` or a function that
returns an instance, called with `(source, schema)`. `ENGINES` maps the scheme of a source (such as csv) to its engine.
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

from countveil.data.engines.bounding import number_of
from countveil.data.engines.families import UNITS, Family, check_readable
from countveil.data.engines.sql import Compiler, Dialect, Statement
from countveil.data.source import Snapshot, Source
from countveil.errors import DataError, EngineError, ParameterError, shorten
from countveil.query import Question
from countveil.query.schema import Schema

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

NOT_INSPECTED = "source: this engine cannot be inspected; write countveil.toml by hand"


class Engine(ABC):
    """Counts questions on one source. Every engine is a subclass of this class, third-party engines too.

    A subclass must implement `columns`, `count` and `close`. The other methods are optional: each default says that the
    engine lacks this capability.
    """

    writes_files = False
    """Whether the engine implements `write_release` and `read_release`, for tables too large for one process."""

    @abstractmethod
    def columns(self) -> Mapping[str, Family]:
        """The source's columns, with the family of each column's type (text, integer, float, ...)."""

    @abstractmethod
    def count(self, question: Question, *, salt: bytes) -> NDArray[np.int64]:
        """The true count of every cell, zeros included, as a flat array in which the last axis changes fastest.

        The engine must apply the contribution bounds of the question's schema, because nothing bounds the counts
        afterwards. Of every person it counts at most `question.sensitivity` rows in a cell, in at most
        `question.schema.cells_per_person` cells. `salt` is new for every evaluation and chooses the cells of a person
        who has rows in more. The choice depends on the salt and on that person's rows only, not on other people, on the
        order of rows, or on whether a task runs twice. Rows without a person (NULL) are not counted. If each row is a
        person (`question.schema.unit_is_row`), every row counts. Error messages say nothing about the data.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections and files of the source."""

    def fingerprint(self) -> str:
        """A text that changes when the data on a server changes. Files and frames are hashed without the engine."""
        raise EngineError("source: this engine cannot tell whether the data has changed; use another engine")

    def alive(self) -> bool:
        """False if the engine must be opened again, because the user has stopped the session in which it runs."""
        return True

    def compiler(self) -> Compiler:
        """A compiler that builds statements for `run`. The commands `countveil inspect` and `countveil init` use it."""
        raise EngineError(NOT_INSPECTED)

    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]:
        """Run a statement and return its columns. Every failure is an EngineError with a fixed text."""
        raise EngineError(NOT_INSPECTED)

    def write_release(
        self, question: Question, folder: Path, *, salt: bytes, mechanism: str, unchanged: Callable[[], None]
    ) -> str:
        """Count, draw the noise and write the result into a new folder, once; return the name of the column of counts.

        `mechanism` is the text of a mechanism's file. `unchanged` is called between counting and drawing and raises an
        error if the source has changed.
        """
        raise NotImplementedError

    def read_release(self, files: list[str], columns: Mapping[str, str]) -> object:
        """Open the files that `write_release` wrote, and return them as a frame of the engine.

        `columns` maps the names of the frame's columns to those in the files.
        """
        raise NotImplementedError


class SqlEngine(Engine):
    """An engine that counts by SQL: it runs the generated statement and completes the cells with zeros.

    A subclass must provide:

    - `__init__(source, schema=None)`: open the source, set `relation`, and if a schema is given call `check(schema)`
      before it returns; if anything fails, close what was opened and raise an error without the data's values;
    - `dialect`: a `Dialect` that implements at least `matches`, `among` and `hash`; no expression may fail for any
      value;
    - `relation`: the source as it stands in a FROM clause. Its rows must be stored: refuse views and computed columns;
    - `columns()`: the name and family of every column of the relation, "other" for types that cannot be read;
    - `run(statement)`: bind the values, run one SELECT and return its columns as arrays by name. It reads nothing but
      the source, writes nothing, may run in several threads at once, and turns every error into
      `EngineError(UNREADABLE)`, because messages of a database can quote the data;
    - `close()`: close the connections; a second call does nothing.

    If needed: `garbled`, what the source puts in place of bytes that are not text; `fingerprint`, for data on a server;
    `compiler`, for a subclass of `Compiler`; `check`, to refuse more (call the inherited one too); `alive`.
    """

    dialect: Dialect
    relation: str
    garbled: str | None = None

    @abstractmethod
    def run(self, statement: Statement) -> dict[str, NDArray[np.generic]]: ...

    def compiler(self) -> Compiler:
        return Compiler(self.dialect, self.relation, self.columns(), self.garbled, self.scales())

    def scales(self) -> Mapping[str, int]:
        """For each decimal column, its number of digits after the point. Decimals that are not listed here cannot have
        bins."""
        return {}

    def check(self, schema: Schema) -> None:
        """Refuse a source whose columns do not fit the schema."""
        families, scales = self.columns(), self.scales()
        check_columns(schema, families)
        for column in schema.sources:
            if column.kind == "number" and families[column.name] == "decimal" and column.name not in scales:
                raise DataError(f"column {column.name}: this engine has no bins of decimals; store integers or floats")
            if column.kind == "instant" and type(self.dialect).instant is Dialect.instant:
                raise DataError(f"column {column.name}: this engine has no periods of a zone; store dates")

    def count(self, question: Question, *, salt: bytes) -> NDArray[np.int64]:
        """See `Engine.count`: runs the generated statement, then fills in the cells that have no rows."""
        import numpy as np

        cells = self.run(self.compiler().count(question, number_of(salt)))
        counts = np.zeros(question.cells, dtype=np.int64)
        counts[cells["cell"].astype(np.int64)] = cells["n"].astype(np.int64)
        return counts


def check_columns(schema: Schema, families: Mapping[str, Family]) -> None:
    """Refuse a source that lacks a declared column, or whose type for it cannot be read as the declared type."""
    for column in schema.sources:
        if column.name not in families:
            use = "is declared" if column.declared else "is read by a derived column"
            similar = [name for name in families if name.casefold() == column.name.casefold()]
            hint = f"; capitals count: write {similar[0]}" if similar else ""
            raise DataError(f"column {column.name} {use}, but the source has no column of that name{hint}")
        check_readable(column, families[column.name])
    if schema.unit_is_row:
        return
    if schema.unit not in families:
        raise DataError(f"unit {schema.unit} is declared, but the source has no column of that name")
    if families[schema.unit] not in UNITS:
        raise DataError(
            f"unit {schema.unit}: people are identified by integers or text, not {families[schema.unit]} values"
        )


def open_engine(source: Source, schema: Schema | None = None) -> Engine:
    """Open the engine for a source. If a schema is given, the source's columns are checked against it."""
    if source.useless_setting is not None:
        setting, reason = source.useless_setting
        raise ParameterError(setting, getattr(source, setting), "nothing", reason)
    name = source.engine or ENGINES.get(source.scheme)
    if name is None:
        raise EngineError(
            f"source: countveil cannot read {shorten(source.location, 100)}; "
            'use .csv, .parquet, .duckdb with table = "...", or postgresql://'
        )
    engines = {entry.name: entry for entry in entry_points(group="countveil.engines")}
    if name not in engines:
        raise EngineError(f"engine {shorten(name)} is not installed; installed engines: {', '.join(sorted(engines))}")
    instance = engines[name].load()(source, schema)
    if not isinstance(instance, Engine):
        base = "countveil.data.engines.Engine"
        raise EngineError(f"engine {shorten(name)} is not a subclass of {base}; update the package that provides it")
    return instance


@dataclass
class _Member:
    """An engine in the pool, and how many questions are using it now."""

    state: tuple[object, ...]
    engine: Engine
    users: int = 0


class EnginePool:
    """The open engines of a curator, shared by threads.

    There is one engine for each dataset, opened once for each state of its data. When the data has changed, the old
    engine is closed as soon as no question uses it any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[str, _Member] = {}
        self._retired: list[_Member] = []

    @contextmanager
    def use(self, snapshot: Snapshot, schema: Schema, *, keep: bool = False) -> Iterator[Engine]:
        """The engine of a dataset for a snapshot of its source, opened if needed.

        With `keep` the engine stays open until the pool is closed, because files that it wrote are read later.
        """
        member = self._join(snapshot, schema)
        try:
            yield member.engine
        finally:
            with self._lock:
                member.users -= 0 if keep else 1
            self._close_unused()

    def _join(self, snapshot: Snapshot, schema: Schema) -> _Member:
        with self._lock:
            member = self._current.get(schema.name)
            if member is None or member.state != snapshot.state or not member.engine.alive():
                if member is not None:
                    self._retired.append(self._current.pop(schema.name))
                member = self._current[schema.name] = _Member(snapshot.state, _open_on(snapshot, schema))
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


def _open_on(snapshot: Snapshot, schema: Schema) -> Engine:
    """Open an engine, then check that the source is still as in the snapshot, because opening may copy rows."""
    engine = open_engine(snapshot.source, schema)
    try:
        if not snapshot.is_current():
            raise EngineError("source: the data changed while it was opened; nothing was charged; ask again")
    except BaseException:
        engine.close()
        raise
    return engine
