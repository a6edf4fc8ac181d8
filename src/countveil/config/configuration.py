"""`countveil.toml`: which data, which public schema, which budget. Unknown keys are errors.

    [ledger]
    path = "countveil.ledger"            # every charge and answer; or "postgresql://role@host/database"
    anchor = "countveil.ledger.anchor"   # better on another disk: it detects an older ledger that was restored

    [dataset.people]
    source = "people.parquet"            # a path or glob; .duckdb needs table = "..."
    unit = "person_id"                   # or "row": every row is one person
    cells = "possible.csv"               # a public list of the combinations of some columns that can exist
    allow_spark_ui = true                # for Spark: readers of the session's UI or event log may see the data

    [dataset.people.columns]
    region = ["North", "South"]
    age = { min = 0, max = 120, step = 10 }
    age_group = { from = "age", bands = [0, 18, 65] }   # a derived column; also by, bins, map

    [dataset.people.budget]
    epsilon = "3"
    delta = "1e-6"
    answers = 50                         # or [dataset.people.budget.grades], with fine = { answers = 2, margin = 3 }

    [publication.census]                 # tables that add up: see module `publications`
    dataset = "people"
    tables = [{ by = [] }, { by = ["region"] }, { by = ["region", "age_group"], margin = 10 }]

    [service]                            # for countveil serve; every entry is optional
    keys = "countveil.keys"              # the API keys: countveil keys add NAME
    open_design = true                   # designs and comparisons without an API key (default: on loopback only)
    rate = 600                           # requests a minute for each API key
    max_cells = 1000000                  # of one answer

Environment variables override the file: COUNTVEIL_LEDGER, COUNTVEIL_ANCHOR, COUNTVEIL_KEYS, COUNTVEIL_SOURCE_<DATASET>
(the name in capitals, - as _).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.config import keys
from countveil.config.budget import Budget, read_budget
from countveil.config.ledger_places import describe_place, read_places, remember_place
from countveil.config.public_files import PublicFiles
from countveil.config.publications import DeclaredPublication, published_datasets, read_publications
from countveil.config.values import check_names, read_count, read_flag, read_optional, read_table, read_text, require
from countveil.data.source import Source
from countveil.errors import ConfigError, RequestError, different_units, shorten
from countveil.planning.grades import LARGEST_CELLS, LARGEST_SENSITIVITY
from countveil.query.derived import parse_columns
from countveil.query.possible_cells import parse_cells
from countveil.query.schema import MAX_NAME, Schema

if TYPE_CHECKING:
    from countveil.ledger import Ledger

DEFAULT_FILE = "countveil.toml"
_LEDGER = "countveil.ledger"
MOST_ROWS = LARGEST_SENSITIVITY
"""The largest `rows_per_person` for which a mechanism can be designed."""
MOST_CELLS_PER_PERSON = LARGEST_CELLS
"""The largest `cells_per_person`."""
MOST_CELLS = 10**10
"""The most cells of a table if an engine's workers draw the noise. One process alone can collect fewer."""


@dataclass(frozen=True)
class Dataset:
    """The configuration of one dataset."""

    schema: Schema
    source: Source
    budget: Budget | None
    bounds_guessed: bool = False
    """Whether the contribution bounds were chosen from the data and are not confirmed."""

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def ready(self) -> bool:
        """Whether questions are allowed: a budget is declared, and all domains and bounds per person are confirmed."""
        return self.budget is not None and not self.guesses

    @property
    def guesses(self) -> tuple[str, ...]:
        """The configuration keys of domains and bounds that were guessed from the data and are not confirmed yet."""
        columns = tuple(f"columns.{column.name}" for column in self.schema.columns if column.guessed)
        return columns + (("bounds_guessed",) if self.bounds_guessed else ())

    def check_confirmed(self) -> None:
        """Raise an error that names all domains and bounds that were guessed from the data and are not confirmed yet.

        A missing budget is an error too.
        """
        if self.guesses:
            names = ", ".join(shorten(guess.removeprefix("columns."), 60) for guess in self.guesses)
            raise ConfigError(
                f"dataset.{self.name}.{self.guesses[0]}",
                f"guessed from the data, and not confirmed: {names}; base each on public or earlier knowledge, then "
                "confirm it: countveil init --confirm",
            )
        self.require_budget()

    def require_budget(self) -> Budget:
        """The budget of the dataset; an error if none is declared."""
        if self.budget is None:
            raise ConfigError(
                f"dataset.{self.name}.budget",
                "no budget is declared, so nothing is answered; add epsilon, delta, answers",
            )
        return self.budget


class _ConfirmedSchemas(Mapping[str, Schema]):
    """The schemas by dataset. Looking up a schema with unconfirmed guesses raises an error."""

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        self._datasets = datasets

    def __getitem__(self, name: str) -> Schema:
        dataset = self._datasets[name]
        dataset.check_confirmed()
        return dataset.schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)


@dataclass(frozen=True)
class Service:
    """Settings of the service. `open_design` allows designs without an API key; None allows them on loopback only."""

    keys: Path
    open_design: bool | None = None
    rate: int = 600
    max_cells: int = 1_000_000


@dataclass(frozen=True)
class Config:
    """The content of a configuration file, with overrides from the environment."""

    path: Path
    datasets: Mapping[str, Dataset]
    ledger: Path
    """The path of the ledger's file. If the ledger is on a server, only the names of other files are based on it."""
    anchor: Path
    service: Service
    server: str | None = None
    """The address of the ledger, if it is on a PostgreSQL server."""
    text: str = ""
    """The text of the file."""
    publications: Mapping[str, DeclaredPublication] = field(default_factory=dict)

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """The schemas by dataset. Looking up a schema with unconfirmed guesses raises an error: guesses reveal data."""
        return _ConfirmedSchemas(self.datasets)

    def dataset(self, name: str) -> Dataset:
        """The dataset with this name; an error if it is not declared."""
        if name not in self.datasets:
            declared = shorten(", ".join(sorted(self.datasets)), 100)
            raise ConfigError("dataset", f"{shorten(name)} is not declared in {self.path.name}; declared: {declared}")
        return self.datasets[name]

    def publication(self, name: str) -> DeclaredPublication:
        """The publication with this name; an error if it is not declared."""
        if name not in self.publications:
            known = shorten(", ".join(self.publications), 100) or "none; add [publication.NAME]"
            raise ConfigError("publication", f"{shorten(name)} is not declared in {self.path.name}; declared: {known}")
        return self.publications[name]

    def publications_of(self, pool: str) -> list[DeclaredPublication]:
        """The publications that a pool pays for."""
        paid = {dataset.name for dataset in self.pool(pool)}
        return [each for each in self.publications.values() if each.dataset in paid]

    def open_ledger(self, *, create: bool = True, new: bool = False) -> Ledger:
        """Open the ledger, on its server or in its file, and check its whole history. If there is none, it is created,
        but only with `new` if another was used beside this configuration: a new one would give its budget back."""
        from countveil.ledger.store import Earlier

        folder = self.path.resolve().parent
        places = read_places(folder)  # before the ledger is opened: other processes remember it when they have made it
        ours = {self.anchor.resolve(), None if self.server else self.ledger.resolve()}
        left = [name for name in (_LEDGER, f"{_LEDGER}.anchor") if (folder / name).exists()]
        if _LEDGER not in places:
            places += [name for name in left if (folder / name).resolve() not in ours][:1]
        earlier = Earlier(tuple(places), new)
        ledger: Ledger
        if self.server is not None:
            from countveil.ledger.postgres import PostgresLedger

            ledger = PostgresLedger(self.server, self.anchor, create=create, earlier=earlier)
            place = ledger.display_name
        else:
            from countveil.ledger.sqlite import SqliteLedger

            ledger = SqliteLedger(self.ledger, self.anchor, create=create, earlier=earlier)
            place = describe_place(folder, self.ledger)
        if new and ledger.begun is None:
            ledger.close()
            raise RequestError(f"the ledger {place} exists already; leave out --new-ledger (Python: new_ledger=True)")
        if place not in places:
            remember_place(folder, [*places, place])
        return ledger

    def restore_ledger(self, copy: Path | None, *, accept_loss: bool = False, latest: bool = False) -> int:
        """Replace the ledger by a copy, or settle the present ledger; return the number of entries that were lost."""
        if self.server is None:
            from countveil.ledger.restoration import restore

            return restore(copy, self.ledger, self.anchor, accept_loss=accept_loss, latest=latest)
        from countveil.ledger.postgres import DUMP, settle

        if copy is not None:
            raise RequestError(f"{DUMP}; then, without a file: countveil ledger restore")
        return settle(self.server, self.anchor, accept_loss=accept_loss, latest=latest)

    def pool(self, name: str) -> list[Dataset]:
        """The datasets that this pool pays for."""
        return [d for d in self.datasets.values() if d.budget is not None and d.budget.pool == name]


def load(
    path: str | Path | None = None, environment: Mapping[str, str] = os.environ, *, copy: str | Path | None = None
) -> Config:
    """Read and check a configuration file: `path`, or $COUNTVEIL_CONFIG, or countveil.toml.

    If `copy` is given, its text is read instead; relative paths still start from the folder of `path`.
    """
    file = Path(path or environment.get("COUNTVEIL_CONFIG") or DEFAULT_FILE)
    try:
        text = Path(copy or file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(shorten(str(file), 200), "is not UTF-8 text") from None
    except (OSError, ValueError):
        raise ConfigError(
            shorten(str(file), 200),
            "is missing or cannot be read; check its path and permissions, "
            "or make a configuration with: countveil init DATAFILE",
        ) from None
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a syntax error, or a number of thousands of digits
        raise ConfigError(shorten(str(file), 200), f"is not valid TOML: {shorten(str(error), 120)}") from None
    return replace(read(table, file, environment), text=text)


def read(table: Mapping[str, object], file: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration from parsed TOML. Relative paths start from the folder of `file`."""
    check_names(table, keys.TOP, "")
    directory = file.resolve().parent
    ledger = read_table(table.get("ledger", {}), "ledger")
    check_names(ledger, keys.LEDGER, "ledger.")
    path = environment.get("COUNTVEIL_LEDGER") or read_text(ledger.get("path", _LEDGER), "ledger.path")
    server, path = (path, _LEDGER) if path.startswith(("postgresql://", "postgres://")) else (None, path)
    anchor = environment.get("COUNTVEIL_ANCHOR") or read_text(ledger.get("anchor", f"{path}.anchor"), "ledger.anchor")
    if (directory / path).resolve() == (directory / anchor).resolve():
        raise ConfigError("ledger.anchor", "is the same file as ledger.path; choose another file")
    entries = read_table(table.get("dataset", {}), "dataset")
    if not entries:
        raise ConfigError("dataset", "no dataset is declared; add [dataset.NAME], or run: countveil init FILE")
    declared = read_table(table.get("publication", {}), "publication")
    published = published_datasets(declared)
    datasets = {
        name: _dataset(name, read_table(e, f"dataset.{name}"), directory, environment, name in published)
        for name, e in entries.items()
    }
    service = _service(read_table(table.get("service", {}), "service"), directory, environment)
    publications = read_publications(declared, {name: each.schema for name, each in datasets.items()}, directory)
    _check_grades(publications, datasets)
    config = Config(file, datasets, directory / path, directory / anchor, service, server, publications=publications)
    _check_pools(config)
    return config


def _dataset(
    name: str, entry: Mapping[str, object], directory: Path, environment: Mapping[str, str], published: bool
) -> Dataset:
    key = f"dataset.{name}"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,99}", name):
        raise ConfigError(key, "names of datasets have letters, digits, _ and -, and begin with a letter or _")
    check_names(entry, keys.DATASET, f"{key}.")
    declared = read_text(require(entry, "source", key), f"{key}.source")
    location = environment.get(f"COUNTVEIL_SOURCE_{name.upper().replace('-', '_')}") or declared
    unit = read_text(
        require(entry, "unit", key, 'name the column that identifies a person, or write "row"'), f"{key}.unit"
    )
    if not unit.isprintable() or len(unit) > MAX_NAME:
        raise ConfigError(f"{key}.unit", f"column names have 1 to {MAX_NAME} printable characters")
    rows = read_count(entry.get("rows_per_person", 1), f"{key}.rows_per_person", MOST_ROWS)
    cells = read_count(entry.get("cells_per_person", 1), f"{key}.cells_per_person", MOST_CELLS_PER_PERSON)
    if unit == "row" and (rows, cells) != (1, 1):
        raise ConfigError(key, 'with unit = "row" both rows_per_person and cells_per_person are 1; remove them')
    neighbours = entry.get("neighbours", "add-remove")
    if neighbours not in ("add-remove", "replace"):
        raise ConfigError(f"{key}.neighbours", f"got {shorten(neighbours)}, allowed are add-remove and replace")
    columns = read_table(require(entry, "columns", key), f"{key}.columns")
    if not columns:
        raise ConfigError(f"{key}.columns", "no column is declared, so only the total could be asked; declare one")
    files = PublicFiles(directory).read
    parsed = parse_columns(columns, f"{key}.columns", files)
    cells_file = read_optional(entry.get("cells"), f"{key}.cells")
    schema = Schema(
        name,
        parsed,
        unit,
        rows,
        cells,
        neighbours,
        read_count(entry.get("max_cells", Schema.max_cells), f"{key}.max_cells", MOST_CELLS),
        None if cells_file is None else parse_cells(cells_file, parsed, f"{key}.cells", files),
    )
    table, delimiter, engine = (read_optional(entry.get(k), f"{key}.{k}") for k in ("table", "delimiter", "engine"))
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise ConfigError(
            f"{key}.delimiter", f"got {shorten(delimiter)}, allowed is one ASCII character that is not a quote"
        )
    budget = read_budget(name, read_table(entry["budget"], f"{key}.budget"), published) if "budget" in entry else None
    allow_ui, bounds_guessed = (read_flag(entry, name, key) for name in ("allow_spark_ui", "bounds_guessed"))
    source = Source(
        location, table, delimiter, directory=directory, schema=schema, engine=engine, allow_spark_ui=allow_ui
    )
    if source.useless_setting is not None:
        raise ConfigError(f"{key}.{source.useless_setting[0]}", source.useless_setting[1])
    if "allow_spark_ui" in entry and "spark" not in (engine, source.scheme):
        raise ConfigError(
            f"{key}.allow_spark_ui", 'is only for datasets that Spark counts; set engine = "spark", or remove it'
        )
    return Dataset(schema, source, budget, bounds_guessed)


def _service(entry: Mapping[str, object], directory: Path, environment: Mapping[str, str]) -> Service:
    check_names(entry, keys.SERVICE, "service.")
    keys_file = environment.get("COUNTVEIL_KEYS") or read_text(entry.get("keys", "countveil.keys"), "service.keys")
    open_design = read_flag(entry, "open_design", "service") if "open_design" in entry else None
    rate = read_count(entry.get("rate", Service.rate), "service.rate", 1_000_000)
    cells = read_count(entry.get("max_cells", Service.max_cells), "service.max_cells", 10**7)
    return Service(directory / keys_file, open_design, rate, cells)


def _check_grades(publications: Mapping[str, DeclaredPublication], datasets: Mapping[str, Dataset]) -> None:
    """Refuse a grade with the name of one that pays for a table of a publication."""
    for each in publications.values():
        budget = datasets[each.dataset].budget
        taken = [] if budget is None else [grade for grade in each.grades if grade in budget.grades]
        if taken:
            raise ConfigError(
                f"dataset.{each.dataset}.budget.grades",
                f"{taken[0]} is the name of a grade that pays for publication {each.name}; rename this grade",
            )


def _check_pools(config: Config) -> None:
    """Refuse datasets of one pool with different budgets, because they share one plan, or with different units, because
    a person who leaves a household of several changes more cells than a household does."""
    first_of_pool: dict[str, Dataset] = {}
    for dataset in config.datasets.values():
        if dataset.budget is None:
            continue
        other = first_of_pool.setdefault(dataset.budget.pool, dataset)
        if other.budget != dataset.budget:
            raise ConfigError(
                f"dataset.{dataset.name}.budget",
                f"differs from that of {other.name} in the same pool {dataset.budget.pool}; declare the same in both",
            )
        if other.schema.unit != dataset.schema.unit:
            raise different_units(dataset.name, dataset.schema.unit, other.name, other.schema.unit, other.budget.pool)
