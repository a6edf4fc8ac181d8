"""`countveil init`: proposes a configuration for a source.

Domains and contribution bounds are guessed from the data and marked as guessed. Nothing is answered until a curator has
confirmed them from public knowledge. Long lists of values go to a CSV file beside the configuration. Ids, index columns
and the column that probably identifies people become comments that say why.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from countveil.config.bounds import BoundsTable, PlannedAnswers, choose_tables, compare_bounds
from countveil.config.configuration import DEFAULT_FILE, read
from countveil.data.engines import Source, open_engine
from countveil.data.engines.families import UNITS
from countveil.data.guesses import MOST_VALUES, ColumnGuess, guess_column
from countveil.data.survey import count_rows
from countveil.errors import ConfigError, ParameterError, shorten
from countveil.query.derived import parse_columns
from countveil.query.public_tables import PublicTable, read_public_table
from countveil.query.schema import Column

MOST_LETTERS = 60
HEAD = """\
# Proposed by `countveil init`. Three things only a curator can know:
# 1. unit: who is a person? A column, or "row" if every row is one person.
# 2. columns: every domain marked guessed was read from the data. Replace it by the publicly known possible values,
#    then confirm it: countveil init --confirm. Columns that are not listed cannot be asked about.
# 3. budget: what all answers together may cost.
"""
GUESSED_BOUNDS = """\
bounds_guessed = true                # chosen from the data, with a look at what they leave out: countveil inspect;
                                     # base them on public or earlier knowledge, then remove this line
"""

HINT = '   # two codes: labels = ["...", "..."] shows words instead'
LEDGER = """\
# [ledger]
# anchor = "/another/disk/countveil.anchor"   # detects an older ledger; on the same disk a backup may restore both
"""


@dataclass(frozen=True)
class Draft:
    """The text of a proposed configuration. `bounds` compares contribution bounds if a column identifies people."""

    text: str
    bounds: BoundsTable | None
    columns: Mapping[str, ColumnProposal]
    files: Mapping[str, str]
    """The CSV files of long lists, by name; they belong beside the configuration."""


@dataclass(frozen=True)
class ColumnProposal:
    """Whether a column of the source is proposed, and the reason."""

    proposed: bool
    reason: str


def propose(
    source: Source,
    *,
    name: str | None = None,
    unit: str | None = None,
    epsilon: str = "3",
    delta: str = "1e-6",
    answers: int = 50,
    by: Sequence[str] = (),
    with_files: bool = True,
) -> Draft:
    """Propose a valid configuration file for a source. Nothing is answered until a curator confirms it.

    Without `with_files`, columns with long lists are not proposed. The contribution bounds are those with the least
    total error in some tables; each string of `by` names the columns of one of them, see `choose_tables`.
    """
    dataset = dataset_name(source) if name is None else name
    _check(dataset, unit or "row", epsilon, delta, answers)
    engine = open_engine(source)
    try:
        columns = engine.columns()
        if unit is not None and unit != "row" and unit not in columns:
            names = shorten(", ".join(columns), 200)
            raise ParameterError("unit", unit, f"row, or a column of the source: {names}")
        person = unit if unit not in (None, "row") and columns.get(unit) in UNITS else None
        guesses = {column: guess_column(engine, column, person) for column in columns if column != unit}
        bounds = None
        if person is not None:
            known = [guess.column for guess in guesses.values() if guess.column is not None]
            named = {name for names in by for name in names.split(",")}
            short = [column for column in known if len(column.values) <= MOST_VALUES or column.name in named]
            tables = choose_tables(short, by)
            planned = PlannedAnswers(float(Fraction(epsilon)), float(Fraction(delta)), answers)
            bounds = compare_bounds(engine, person, tables, count_rows(engine), planned)
        elif by:
            raise ParameterError("by", by[0], "nothing", "bounds are only chosen if unit is a column; give --unit")
    finally:
        engine.close()
    lines = [HEAD, LEDGER, f"[dataset.{dataset}]", f"source = {_toml(source.location)}"]
    lines += [
        f"{key} = {_toml(value)}" for key, value in (("table", source.table), ("delimiter", source.delimiter)) if value
    ]
    if unit is None:
        likely = [column for column in guesses if _looks_like_person(column)]
        guesses |= {name: ColumnGuess(None, "it may identify people") for name in likely[:1]}
        hint = f"perhaps {_toml(likely[0])}" if likely else 'a column, or "row"'
        lines.append(f'# unit = "..."                       # required: who is a person? {hint}')
    else:
        lines.append(f"unit = {_toml(unit)}")
        if columns.get(unit) == "float":
            lines.append("# the ids are floats: those of 2^53 and more identify nobody; store ids as text")
    if unit != "row":
        rows, cells = (1, 1) if bounds is None else bounds.best.bounds
        lines += [f"rows_per_person = {rows:<18} # rows of a person that count in one cell"]
        lines += [f"cells_per_person = {cells:<17} # cells of one table that a person counts in"]
    if bounds is not None:
        lines.append(GUESSED_BOUNDS.rstrip("\n"))
    lines += ["", f"[dataset.{dataset}.columns]"]
    writer = _ColumnLines(dataset, guesses, with_files)
    lines += writer.write()
    lines += ["", f"[dataset.{dataset}.budget]", f"epsilon = {_toml(epsilon)}", f"delta = {_toml(delta)}"]
    lines += [f"answers = {answers}", ""]
    return Draft("\n".join(lines), bounds, writer.proposals, writer.files)


def dataset_name(source: Source) -> str:
    """A name for the dataset: the name of its table, or of its file without the ending."""
    stem = source.table or re.sub(r"[*?\[\].].*$", "", Path(source.location).name)
    plain = _plain(stem)
    return (plain if re.match(r"[a-z]", plain) else f"data_{plain}".rstrip("_"))[:MOST_LETTERS]


def _looks_like_person(column: str) -> bool:
    return re.search(r"(^|_)(id|person|pid|uid|user|patient|household|client)", column.lower()) is not None


def _check(dataset: str, unit: str, epsilon: str, delta: str, answers: int) -> None:
    """Refuse arguments that would make an invalid configuration file."""
    budget = {"epsilon": epsilon, "delta": delta, "answers": answers}
    table = {"source": "-", "unit": unit, "columns": {"a": [1]}, "budget": budget}
    try:
        read({"dataset": {dataset: table}}, Path(DEFAULT_FILE), {})
    except ConfigError as error:
        arguments = {"unit": unit, "name": dataset, **budget}
        last = error.key.rpartition(".")[2]
        argument = last if last in arguments else "name"
        raise ParameterError(argument, arguments[argument], error.reason.rpartition("allowed is ")[2]) from None


class _ColumnLines:
    """Writes the lines of the columns. A column that is not proposed, or would be refused, becomes a comment."""

    def __init__(self, dataset: str, guesses: Mapping[str, ColumnGuess], with_files: bool) -> None:
        self.dataset, self.guesses, self.with_files = dataset, guesses, with_files
        self.proposals: dict[str, ColumnProposal] = {}
        self.files: dict[str, str] = {}

    def write(self) -> Iterator[str]:
        taken: set[str] = set()
        for name, guess in self.guesses.items():
            key = _key(name)
            reason = self.refuse(name, guess, taken)
            self.proposals[name] = ColumnProposal(not reason, reason or guess.reason)
            if reason:
                yield f"# {key} = [...]   # not proposed: {reason}"
                continue
            taken.add(name.casefold())
            yield f"{key} = {self.domain(guess)}{HINT if guess.is_coded else ''}"
            month = f"{name}_month"
            if guess.has_months and month.casefold() not in {*taken, *map(str.casefold, self.guesses)}:
                taken.add(month.casefold())
                yield f'{_key(month)} = {{ from = {_toml(name)}, by = "month" }}'

    def refuse(self, name: str, guess: ColumnGuess, taken: set[str]) -> str:
        """Why a column is not proposed, in words; empty if it is proposed."""
        if guess.column is None and not guess.bins:
            return guess.reason
        if name.casefold() in taken:
            return "another column has the same name but for capitals"
        files = dict(self.files)
        try:
            declared = tomllib.loads(f"{_key(name)} = {self.domain(guess)}")
            parse_columns(declared, "columns", self.read)
        except ValueError:  # of the schema or of TOML
            self.files = files
            return "its name or values cannot be declared"
        if len(self.files) > len(files) and not self.with_files:
            self.files = files
            return f"over {MOST_VALUES} values, which go to a file beside the configuration: give -o FILE"
        return ""

    def domain(self, guess: ColumnGuess) -> str:
        column = guess.column
        if column is None:
            below = ", below = true" if guess.below else ""
            return f"{{ from = {_toml(guess.name)}, bins = {_list(guess.bins)}{below}, guessed = true }}"
        if column.kind == "boolean":
            return '{ type = "boolean", guessed = true }'
        if len(column.values) > MOST_VALUES:
            kind = ', type = "integer"' if column.kind == "integer" else ""
            return f"{{ values = {_toml(self.list_in_file(column))}{kind}, guessed = true }}"
        if column.is_listed:
            return f"{{ values = {_list(column.values)}, guessed = true }}"
        return f"{{ min = {column.value(column.low)}, max = {column.value(column.high)}, guessed = true }}"

    def list_in_file(self, column: Column) -> str:
        """Add the values of a column to the draft, as a CSV file to be written; return the file's name."""
        stem = f"{self.dataset}_{_plain(column.name) or 'column'}"[:MOST_LETTERS]
        text = "".join(
            '"{}"\n'.format(str(value).replace('"', '""')) for value in (column.name, *column.values) if value != ""
        )
        names = (f"{stem}{number}.values.csv" for number in ("", *range(2, len(self.guesses) + 2)))
        name = next(each for each in names if self.files.get(each, text) == text)
        self.files[name] = text
        return name

    def read(self, path: str, key: str) -> PublicTable:
        return read_public_table(self.files[path].encode(), path, key)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")


def _list(values: Sequence[object]) -> str:
    return f"[{', '.join(str(value) if isinstance(value, int) else _toml(str(value)) for value in values)}]"


def _toml(text: str) -> str:
    """A text as a TOML string. TOML is like JSON here, except that it escapes DEL and has no surrogate pairs."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
