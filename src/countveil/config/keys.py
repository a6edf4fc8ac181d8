"""Every key of `countveil.toml` and every environment variable, with what it takes and what it means.

The reader of the file allows exactly these keys, and docs/configuration.md is generated from them. The keys of columns
are in `query.declarations` and `query.derived`, below this package; a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """What a key takes, its default ("required" if it has none), and what it means."""

    takes: str
    default: str
    meaning: str


TOP = {
    "dataset": Setting(
        "a table for every dataset", "required", "`[dataset.NAME]`; the name has letters, digits, _ and -"
    ),
    "ledger": Setting("a table", "none", "where charges and answers are recorded"),
    "publication": Setting(
        "a table for every publication", "none", "`[publication.NAME]`; the name has a-z, 0-9, _ and -, up to 28"
    ),
    "service": Setting("a table", "none", "settings of `countveil serve`"),
}
LEDGER = {
    "path": Setting(
        "a path, or `postgresql://...`",
        "`countveil.ledger`",
        "the ledger: a file in the folder of the configuration, or a database",
    ),
    "anchor": Setting(
        "a path",
        "the path of the ledger and `.anchor`",
        "a small file that detects an older ledger that was restored; best on another disk",
    ),
}
SERVICE = {
    "keys": Setting("a path", "`countveil.keys`", "the file of API keys"),
    "open_design": Setting("true, false", "true on loopback only", "whether designs and comparisons need no API key"),
    "rate": Setting("1 to 1000000", "600", "requests a minute for each API key, and for each address without one"),
    "max_cells": Setting("1 to 10000000", "1000000", "most cells of one new answer over HTTP"),
}
DATASET = {
    "source": Setting(
        "a path, a glob, or an address", "required", "the rows: CSV, Parquet, DuckDB, PostgreSQL or Spark"
    ),
    "table": Setting("text", "none", "the table of a DuckDB or PostgreSQL database"),
    "delimiter": Setting("one ASCII character", "a comma", "the field separator of a CSV file"),
    "engine": Setting("text", "by the source", "the engine that counts, such as `spark` for Parquet files"),
    "allow_spark_ui": Setting("true, false", "false", "whether readers of Spark's UI or event log may see the data"),
    "unit": Setting(
        "a column, or `row`", "required", "the column that identifies a person; `row` if a row is a person"
    ),
    "rows_per_person": Setting("1 to 1000", "1", "most rows of one person that count in one cell"),
    "cells_per_person": Setting("1 to 10000", "1", "most cells of one table in which a person counts"),
    "bounds_guessed": Setting("true, false", "false", "true: the two bounds were guessed, and nothing is answered"),
    "neighbours": Setting("`add-remove`, `replace`", "`add-remove`", "which datasets the guarantee compares"),
    "max_cells": Setting("1 to 10000000000", "2000000", "most cells of one table"),
    "columns": Setting("a table", "required", "the public columns; see below"),
    "cells": Setting("a public CSV file", "all combinations", "which combinations of its columns can exist"),
    "budget": Setting("a table", "none: nothing is answered", "what all answers together may cost; see below"),
}
BUDGET = {
    "epsilon": Setting("a decimal in quotes, 0.001 to 100", "required", "privacy loss of all answers together"),
    "delta": Setting("a decimal in quotes, 1e-15 to 0.1", "required", "delta of all answers together"),
    "answers": Setting("1 to 1000000", "required without grades", "number of answers; short for one grade, `standard`"),
    "grades": Setting("a table for every grade", "one, `standard`", "answers of different accuracy; see below"),
    "default_grade": Setting("a grade", "`standard`, or the only one", "pays for a question that names no grade"),
    "pool": Setting("text", "the dataset's name", "datasets about the same people name the same pool and budget"),
    "policy": Setting("`nonnegative`, `signed`, `floor`", "`nonnegative`", "the policy of grades that name none"),
    "objective": Setting("`variance`, `eta`, `margin`", "`variance`", "what the plan makes best"),
    "shares": Setting("a number, or a number for every grade, for each analyst", "none", "most answers of an analyst"),
}
GRADE = {
    "answers": Setting("1 to 1000000", "required", "the number of answers"),
    "margin": Setting("0 to 100000", "none", "a 95 % margin to keep"),
    "variance": Setting("a number", "none", "a variance to keep, for a typical count"),
    "eta": Setting("a decimal in quotes", "none", "a probability of an exact answer to keep, for a typical count"),
    "D": Setting("3 to 100000", "none", "no answer is ever further from the truth"),
    "weight": Setting("a number", "1", "how much its variance counts, if it has no margin, variance or eta to keep"),
    "policy": Setting("`nonnegative`, `signed`, `floor`", "the plan's", "the policy of this grade"),
}
COLUMN = {
    "values": Setting("a list, or a public CSV file", "or `min` and `max`", "the values; short form: `NAME = [...]`"),
    "min": Setting("a whole number or a date", "with `max`", "the least value; with `by`, the first period"),
    "max": Setting("a whole number or a date", "with `min`", "the greatest value; with `by`, the last period"),
    "step": Setting("a whole number", "1", "the width of the groups of a range"),
    "type": Setting("`text`, `integer`, `boolean`, `date`", "by the values", "the type of the values"),
    "labels": Setting("a list or a table of texts", "the values", "texts that are shown instead of values or groups"),
    "guessed": Setting("true, false", "false", "true: the domain was guessed from the data, and nothing is answered"),
}
DERIVED = {
    "from": Setting("a column", "required", "the source: a declared column, or one of the data that is not declared"),
    "bands": Setting("a list of integers or dates", "one of these four", "groups from each value up to the next"),
    "bins": Setting("a list of numbers", "one of these four", "groups from each value (included) up to the next"),
    "by": Setting(
        "`year`, `quarter`, `month`, `week`, `weekday`, `day`", "one of these four", "periods of dates and times"
    ),
    "map": Setting("a public CSV file", "one of these four", "groups by the label beside each value in the file"),
    "below": Setting("true, false", "false", "with `bands`, `bins`: adds a group of everything below the first value"),
    "zone": Setting("a time zone, such as `Europe/Berlin`", "none", "with `by`: the zone of time stamps that have one"),
}
PUBLICATION = {
    "dataset": Setting("a dataset", "required", "the dataset that is published, and whose budget pays"),
    "tables": Setting("a list of tables", "required", "the tables of the publication; see below"),
    "editions": Setting("1 to 1000", "1", "how often it can be published, on new data each time"),
    "margins": Setting("a list of lists of columns, or of tables", "none", "sums that are no table; see below"),
    "cells": Setting("a public CSV file", "all cells", "which finest cells can exist; only these are published"),
    "count": Setting("`rows`, `people`", "`rows`", "what is counted"),
    "estimate": Setting("`nearest`, `unbiased`", "`nearest`", "never negative, or unbiased and possibly negative"),
    "output": Setting("a folder", "`publications/NAME`", "where editions are written; the service serves them"),
}
PUBLISHED_TABLE = {
    "by": Setting("a list of columns", "required", "the columns of the table; an empty list is the total"),
    "margin": Setting("1 to 100000", "none", "a 95 % margin that the published numbers keep; not for sums"),
    "weight": Setting("a decimal in quotes", "1; in margins: none", "how much its variance counts, without a margin"),
}
SECTIONS = {
    "The file": TOP,
    "[ledger]": LEDGER,
    "[service]": SERVICE,
    "[dataset.NAME]": DATASET,
    "[dataset.NAME.columns]": COLUMN,
    "Derived columns": DERIVED,
    "[dataset.NAME.budget]": BUDGET,
    "[dataset.NAME.budget.grades]": GRADE,
    "[publication.NAME]": PUBLICATION,
    "Tables of a publication": PUBLISHED_TABLE,
}
"""The tables of the file, by title."""
ENVIRONMENT = {
    "COUNTVEIL_CONFIG": "the path of the configuration; an option `-c` or an argument wins",
    "COUNTVEIL_LEDGER": "instead of `path` in `[ledger]`",
    "COUNTVEIL_ANCHOR": "instead of `anchor` in `[ledger]`",
    "COUNTVEIL_KEYS": "instead of `keys` in `[service]`",
    "COUNTVEIL_SOURCE_NAME": "instead of `source` of the dataset `NAME`, whose name is in capitals, - as _",
    "COUNTVEIL_KEY": "the API key of an analyst, for `cv.connect` and `--url`",
    "COUNTVEIL_TRACE": "set to 1: an internal error shows its traceback, which can quote data",
    "COUNTVEIL_SERVICE": "set by `countveil serve` for its workers; not for users",
}
