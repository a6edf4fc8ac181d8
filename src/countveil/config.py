"""`countveil.toml`: which data, which public schema, which budget. Unknown keys are errors; silence is refusal.

    [ledger]
    path = "countveil.ledger"            # what was charged and answered; or "postgresql://role@host/database"
    anchor = "countveil.ledger.anchor"   # better on another disk: it tells a restored older ledger

    [dataset.people]
    source = "people.parquet"            # a path or glob; .duckdb needs table = "..."
    unit = "person_id"                   # or "row": every row is one person
    allow_spark_ui = true                # in Spark: whoever sees the session's UI or event log may see the data

    [dataset.people.columns]
    region = ["North", "South"]
    age = { min = 0, max = 120, step = 10 }

    [dataset.people.budget]
    epsilon = "3"
    delta = "1e-6"
    answers = 50

    [service]                            # for countveil serve; all of it may be left out
    keys = "countveil.keys"              # who may ask: countveil keys add NAME
    open_design = true                   # designs and comparisons without a key (default: on this machine only)
    rate = 600                           # requests a minute for each key
    max_cells = 1000000                  # of one answer

The environment goes over the file: COUNTVEIL_LEDGER, COUNTVEIL_ANCHOR, COUNTVEIL_KEYS, COUNTVEIL_SOURCE_<DATASET>
(the name in capitals, - as _).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from countveil.engines.source import Source
from countveil.errors import ConfigError, ParameterError, shortened
from countveil.exact import number
from countveil.schema import MAX_NAME, Schema, parse_column

DEFAULT_FILE = "countveil.toml"
_LEDGER = "countveil.ledger"
MOST_ROWS = 20
"""Rows of a person in one cell that a mechanism can be designed for."""
MOST_CELLS = 10**10
"""Cells of a table that workers draw; what one process collects is less, see `answers`."""
_DATASET_KEYS = {
    "source",
    "table",
    "delimiter",
    "engine",
    "allow_spark_ui",
    "unit",
    "rows_per_person",
    "cells_per_person",
    "neighbours",
    "max_cells",
    "columns",
    "budget",
}
_BUDGET_KEYS = {"epsilon", "delta", "answers", "pool", "policy", "objective", "shares"}


@dataclass(frozen=True)
class Budget:
    """The plan of a pool: `answers` tables together cost (epsilon, delta). `shares` caps single analysts."""

    pool: str
    epsilon: str
    delta: str
    answers: int
    policy: str = "nonnegative"
    objective: str = "variance"
    shares: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Dataset:
    """One dataset as configured."""

    schema: Schema
    source: Source
    engine: str | None
    budget: Budget | None

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def ready(self) -> bool:
        """Can it be asked?"""
        return self.budget is not None and not any(column.guessed for column in self.schema.columns)

    def confirmed(self) -> None:
        """Refuse domains that were guessed from the data: they are not public until a curator says so."""
        guessed = [column.name for column in self.schema.columns if column.guessed]
        if guessed:
            raise ConfigError(
                f"dataset.{self.name}.columns.{guessed[0]}",
                "this domain was guessed from the data; check it against public knowledge, then remove guessed = true",
            )
        self.allowed()

    def allowed(self) -> Budget:
        """What may be spent; refused where nothing is."""
        if self.budget is None:
            raise ConfigError(f"dataset.{self.name}.budget", "no budget, no answers; declare epsilon, delta, answers")
        return self.budget


class _Confirmed(Mapping[str, Schema]):
    """Schemas that may be spoken of."""

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        self._datasets = datasets

    def __getitem__(self, name: str) -> Schema:
        dataset = self._datasets[name]
        dataset.confirmed()
        return dataset.schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)


@dataclass(frozen=True)
class Service:
    """How the datasets are served. `open_design`: may designs be asked for without a key? None: on loopback only."""

    keys: Path
    open_design: bool | None = None
    rate: int = 600
    max_cells: int = 1_000_000


@dataclass(frozen=True)
class Config:
    """The whole file."""

    path: Path
    datasets: Mapping[str, Dataset]
    ledger: Path
    """The ledger's file; with a server, where what this host keeps of it goes."""
    anchor: Path
    service: Service
    server: str | None = None
    """The address of a ledger on PostgreSQL."""
    text: str = ""
    """The file as it was read."""

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """The schemas by dataset. One that is not confirmed is refused when it is looked up: it is data until then."""
        return _Confirmed(self.datasets)

    def dataset(self, name: str) -> Dataset:
        """The dataset of this name."""
        if name not in self.datasets:
            declared = shortened(", ".join(sorted(self.datasets)), 100)
            raise ConfigError("dataset", f"{shortened(name)} is not declared in {self.path.name}; declared: {declared}")
        return self.datasets[name]

    def pool(self, name: str) -> list[Dataset]:
        """The datasets that share a budget."""
        return [d for d in self.datasets.values() if d.budget is not None and d.budget.pool == name]


def load(
    path: str | Path | None = None, environment: Mapping[str, str] = os.environ, *, copy: str | Path | None = None
) -> Config:
    """Read and check a configuration file; COUNTVEIL_CONFIG names it where no path is given.

    A `copy` is read in its place, as if it were there.
    """
    file = Path(path or environment.get("COUNTVEIL_CONFIG") or DEFAULT_FILE)
    try:
        text = Path(copy or file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(shortened(str(file), 200), "is not UTF-8 text") from None
    except (OSError, ValueError):
        raise ConfigError(shortened(str(file), 200), "cannot be read; make one with: countveil init FILE") from None
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a syntax error, or a number of thousands of digits
        raise ConfigError(shortened(str(file), 200), f"is not valid TOML: {shortened(str(error), 120)}") from None
    return replace(read(table, file, environment), text=text)


def read(table: Mapping[str, object], file: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """A configuration from parsed TOML; relative paths start from the folder of the file."""
    _known(table, {"dataset", "ledger", "service"}, "")
    directory = file.resolve().parent
    ledger = _table(table.get("ledger", {}), "ledger")
    _known(ledger, {"path", "anchor"}, "ledger.")
    path = environment.get("COUNTVEIL_LEDGER") or _text(ledger.get("path", _LEDGER), "ledger.path")
    server, path = (path, _LEDGER) if path.startswith(("postgresql://", "postgres://")) else (None, path)
    anchor = environment.get("COUNTVEIL_ANCHOR") or _text(ledger.get("anchor", f"{path}.anchor"), "ledger.anchor")
    if (directory / path).resolve() == (directory / anchor).resolve():
        raise ConfigError("ledger.anchor", "is the ledger itself; the anchor is a file of its own")
    entries = _table(table.get("dataset", {}), "dataset")
    if not entries:
        raise ConfigError("dataset", "no dataset is declared; add [dataset.NAME], or run: countveil init FILE")
    datasets = {
        name: _dataset(name, _table(e, _key("dataset", name)), directory, environment) for name, e in entries.items()
    }
    service = _service(_table(table.get("service", {}), "service"), directory, environment)
    config = Config(file, datasets, directory / path, directory / anchor, service, server)
    _agree(config)
    return config


def _dataset(name: str, entry: Mapping[str, object], directory: Path, environment: Mapping[str, str]) -> Dataset:
    key = _key("dataset", name)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,99}", name):
        raise ConfigError(key, "names of datasets have letters, digits, _ and -, and begin with a letter")
    _known(entry, _DATASET_KEYS, f"{key}.")
    declared = _text(_need(entry, "source", key), f"{key}.source")
    location = environment.get(f"COUNTVEIL_SOURCE_{name.upper().replace('-', '_')}") or declared
    unit = _text(_need(entry, "unit", key, 'who is a person? a column, or "row"'), f"{key}.unit")
    if not unit.isprintable() or len(unit) > MAX_NAME:
        raise ConfigError(f"{key}.unit", f"column names have 1 to {MAX_NAME} printable characters")
    rows = _count(entry.get("rows_per_person", 1), f"{key}.rows_per_person", MOST_ROWS)
    cells = _count(entry.get("cells_per_person", 1), f"{key}.cells_per_person", 1000)
    if unit == "row" and (rows, cells) != (1, 1):
        raise ConfigError(key, 'with unit = "row" both rows_per_person and cells_per_person are 1; remove them')
    neighbours = entry.get("neighbours", "add-remove")
    if neighbours not in ("add-remove", "replace"):
        raise ConfigError(f"{key}.neighbours", f"got {shortened(neighbours)}, allowed are add-remove and replace")
    columns = _table(_need(entry, "columns", key), f"{key}.columns")
    if not columns:
        raise ConfigError(f"{key}.columns", "no column is declared, so nothing could be asked but the total")
    schema = Schema(
        name,
        tuple(parse_column(column, declared, _key(f"{key}.columns", column)) for column, declared in columns.items()),
        unit,
        rows,
        cells,
        neighbours,
        _count(entry.get("max_cells", Schema.max_cells), f"{key}.max_cells", MOST_CELLS),
    )
    table, delimiter, engine = (_optional(entry.get(k), f"{key}.{k}") for k in ("table", "delimiter", "engine"))
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise ConfigError(f"{key}.delimiter", f"got {shortened(delimiter)}, allowed is one ASCII character, no quote")
    budget = _budget(name, _table(entry["budget"], f"{key}.budget")) if "budget" in entry else None
    shown = entry.get("allow_spark_ui", False)
    if not isinstance(shown, bool):
        raise ConfigError(f"{key}.allow_spark_ui", f"got {shortened(shown)}, allowed is true or false")
    source = Source(location, table, delimiter, directory=directory, schema=schema, allow_spark_ui=shown)
    if source.unused is not None:
        raise ConfigError(f"{key}.{source.unused[0]}", source.unused[1])
    if "allow_spark_ui" in entry and "spark" not in (engine, source.scheme):
        raise ConfigError(f"{key}.allow_spark_ui", 'is for what Spark counts; set engine = "spark", or remove it')
    return Dataset(schema, source, engine, budget)


def _budget(name: str, entry: Mapping[str, object]) -> Budget:
    key = f"dataset.{name}.budget"
    if "on_new_data" in entry:
        raise ConfigError(f"{key}.on_new_data", "remove this line: new data always continues the pool's plan")
    _known(entry, _BUDGET_KEYS, f"{key}.")
    epsilon = _decimal(_need(entry, "epsilon", key), f"{key}.epsilon", "0.001", "100")
    delta = _decimal(_need(entry, "delta", key), f"{key}.delta", "1e-15", "0.1")
    answers = _count(_need(entry, "answers", key), f"{key}.answers", 1_000_000)
    pool = _text(entry.get("pool", name), f"{key}.pool")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,99}", pool):
        raise ConfigError(f"{key}.pool", "names of pools have letters, digits, _ and -, and begin with a letter")
    policy = _choice(entry.get("policy", "nonnegative"), f"{key}.policy", ("nonnegative", "signed"))
    objective = _choice(entry.get("objective", "variance"), f"{key}.objective", ("variance", "eta", "margin"))
    shares = _table(entry.get("shares", {}), f"{key}.shares")
    capped = {who: _count(share, _key(f"{key}.shares", who), answers) for who, share in shares.items()}
    if not all(0 < len(who) <= 100 and who.isprintable() for who in capped):
        raise ConfigError(f"{key}.shares", "names of analysts have 1 to 100 printable characters")
    return Budget(pool, epsilon, delta, answers, policy, objective, capped or None)


def _service(entry: Mapping[str, object], directory: Path, environment: Mapping[str, str]) -> Service:
    _known(entry, {"keys", "open_design", "rate", "max_cells"}, "service.")
    keys = environment.get("COUNTVEIL_KEYS") or _text(entry.get("keys", "countveil.keys"), "service.keys")
    opened = entry.get("open_design")
    if opened is not None and not isinstance(opened, bool):
        raise ConfigError("service.open_design", f"got {shortened(opened)}, allowed is true or false")
    rate = _count(entry.get("rate", Service.rate), "service.rate", 1_000_000)
    cells = _count(entry.get("max_cells", Service.max_cells), "service.max_cells", 10**7)
    return Service(directory / keys, opened, rate, cells)


def _agree(config: Config) -> None:
    """Datasets of one pool share one plan, so they must declare the same one."""
    seen: dict[str, Dataset] = {}
    for dataset in config.datasets.values():
        if dataset.budget is None:
            continue
        other = seen.setdefault(dataset.budget.pool, dataset)
        if other.budget != dataset.budget:
            raise ConfigError(
                f"dataset.{dataset.name}.budget", f"pool {dataset.budget.pool} is declared otherwise by {other.name}"
            )


# -- values ------------------------------------------------------------------------------------------------------------


def _key(key: str, name: str) -> str:
    """The dotted name of an entry, on one line whatever it is called."""
    return f"{key}.{shortened(name)}"


def _known(entry: Mapping[str, object], known: set[str], key: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ConfigError(f"{key}{shortened(unknown[0])}", f"unknown key; allowed are {', '.join(sorted(known))}")


def _need(entry: Mapping[str, object], name: str, key: str, question: str = "") -> object:
    if name not in entry:
        raise ConfigError(f"{key}.{name}", f"is required{'; ' + question if question else ''}")
    return entry[name]


def _table(value: object, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"got {shortened(value)}, allowed is a table")
    return value


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ConfigError(key, f"got {shortened(value)}, allowed is text")
    return value


def _optional(value: object, key: str) -> str | None:
    return None if value is None else _text(value, key)


def _count(value: object, key: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(key, f"got {shortened(value)}, allowed is a whole number from 1 to {most}")
    return value


def _choice(value: object, key: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(key, f"got {shortened(value)}, allowed are {', '.join(allowed)}")
    return value


def _decimal(value: object, key: str, least: str, most: str) -> str:
    """A privacy parameter, kept as the decimal text that was written."""
    allowed = f'a decimal in quotes from "{least}" to "{most}"'
    if not isinstance(value, str):
        raise ConfigError(key, f"got {shortened(value)}, allowed is {allowed}")
    try:
        found = number(key, value)
    except ParameterError:
        found = Fraction(-1)
    if not Fraction(least) <= found <= Fraction(most):
        raise ConfigError(key, f"got {shortened(value)}, allowed is {allowed}")
    return value.strip()
