"""`countveil init`: propose a configuration for a source.

Domains are read from the data, so each is marked `guessed = true` and nothing is answered until a curator has put
public knowledge in its place. Columns with too many values, and the likely person column, are left as comments.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from countveil.config import DEFAULT_FILE, read
from countveil.engines import Source, SqlEngine, open_engine
from countveil.engines.survey import guess_column
from countveil.errors import ConfigError, EngineError, ParameterError, shortened
from countveil.schema import Column, parse_column

MOST_VALUES = 60
MOST_LETTERS = 60
HEAD = """\
# Proposed by `countveil init`. Three things only a curator can know:
# 1. unit: who is a person? A column, or "row" if every row is one person.
# 2. columns: every domain marked guessed was read from the data. Put in what is publicly known to be possible,
#    then remove guessed = true. Columns that are not listed cannot be asked about.
# 3. budget: what all answers together may cost.
"""

LEDGER = """\
# [ledger]
# anchor = "/another/disk/countveil.anchor"   # tells a restored older ledger; beside the ledger it goes back with it
"""


def propose(
    source: Source,
    *,
    name: str | None = None,
    unit: str | None = None,
    epsilon: str = "3",
    delta: str = "1e-6",
    answers: int = 50,
) -> str:
    """The text of a configuration file for a source. It can be read, and answers nothing before it is confirmed."""
    dataset = dataset_name(source) if name is None else name
    _check(dataset, unit or "row", epsilon, delta, answers)
    engine = open_engine(source)
    if not isinstance(engine, SqlEngine):
        raise EngineError("source: this engine cannot propose a configuration; write countveil.toml by hand")
    try:
        found = engine.columns()
        if unit is not None and unit != "row" and unit not in found:
            columns = shortened(", ".join(found), 200)
            raise ParameterError("unit", unit, f"row, or a column of the source: {columns}")
        guesses = {column: guess_column(engine, column, MOST_VALUES) for column in found if column != unit}
    finally:
        engine.close()
    lines = [HEAD, LEDGER, f"[dataset.{dataset}]", f"source = {_toml(source.location)}"]
    lines += [
        f"{key} = {_toml(value)}" for key, value in (("table", source.table), ("delimiter", source.delimiter)) if value
    ]
    if unit is None:
        likely = [column for column in guesses if _looks_like_person(column)]
        guesses |= dict.fromkeys(likely[:1])  # who people are is nothing to ask about
        hint = f"perhaps {_toml(likely[0])}" if likely else 'a column, or "row"'
        lines.append(f'# unit = "..."                       # required: who is a person? {hint}')
    else:
        lines.append(f"unit = {_toml(unit)}")
    if unit != "row":
        lines += ["rows_per_person = 1                  # rows of a person that count in one cell"]
        lines += ["cells_per_person = 1                 # cells of one table that a person counts in"]
    lines += ["", f"[dataset.{dataset}.columns]"]
    lines += _column_lines(guesses)
    lines += ["", f"[dataset.{dataset}.budget]", f"epsilon = {_toml(epsilon)}", f"delta = {_toml(delta)}"]
    lines += [f"answers = {answers}", ""]
    return "\n".join(lines)


def dataset_name(source: Source) -> str:
    """A name for the dataset: the table, or the file without its ending."""
    stem = source.table or re.sub(r"[*?\[\].].*$", "", Path(source.location).name)
    plain = re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_")
    return (plain if re.match(r"[a-z]", plain) else f"data_{plain}".rstrip("_"))[:MOST_LETTERS]


def _looks_like_person(column: str) -> bool:
    return re.search(r"(^|_)(id|person|pid|uid|user|patient|household|client)", column.lower()) is not None


def _check(dataset: str, unit: str, epsilon: str, delta: str, answers: int) -> None:
    """Refuse what would make a file that cannot be read."""
    budget = {"epsilon": epsilon, "delta": delta, "answers": answers}
    table = {"source": "-", "unit": unit, "columns": {"a": [1]}, "budget": budget}
    try:
        read({"dataset": {dataset: table}}, Path(DEFAULT_FILE), {})
    except ConfigError as error:
        given = {"unit": unit, "name": dataset, **budget}
        last = error.key.rpartition(".")[2]
        argument = last if last in given else "name"
        raise ParameterError(argument, given[argument], error.reason.rpartition("allowed is ")[2]) from None


def _column_lines(guesses: Mapping[str, Column | None]) -> Iterator[str]:
    """A line for every column; what the configuration would refuse is a comment."""
    taken: set[str] = set()
    for name, guess in guesses.items():
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
        line = f"{key} = {_domain(guess)}" if guess is not None else ""
        try:
            if not line or name.casefold() in taken:
                raise ConfigError(key, "not proposed")
            parse_column(name, next(iter(tomllib.loads(line).values())), key)
        except (ConfigError, ValueError):
            reason = f"not proposed: more than {MOST_VALUES} values, none, a person, or nothing that can be declared"
            yield f"# {key} = [...]   # {reason}"
        else:
            taken.add(name.casefold())
            yield line


def _domain(guess: Column) -> str:
    if guess.kind == "boolean":
        return '{ type = "boolean", guessed = true }'
    if guess.listed:
        return f"{{ values = [{', '.join(_toml(str(v)) for v in guess.values)}], guessed = true }}"
    return f"{{ min = {guess.value(guess.low)}, max = {guess.value(guess.high)}, guessed = true }}"


def _toml(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL and characters beyond 16 bits."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
