"""A released table as a file: CSV, JSON or Parquet. Each file says what it counts.

A CSV file has it in its last column, because CSV has no metadata: what is counted, with the bounds on what one person
adds and the column that identifies people, as the same text in every row. Parquet has it in the metadata of the file,
under the key `countveil`, together with the receipt.
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from typing import IO, Any

from countveil.curator.results import Table
from countveil.query.truth import Truth

METADATA = b"countveil"
"""The key under which a Parquet file's metadata has the facts about the table."""


def to_csv(table: Table) -> str:
    """The table as CSV text, with a last column that says what is counted."""
    lines = _Lines()
    writer = csv.writer(lines)  # its default line end is \r\n, so it quotes labels with either of these characters
    text = "" if table.truth is None else table.truth.statement
    writer.writerow([*table.columns, truth_column(table)])
    writer.writerows([*(str(v).lower() if isinstance(v, bool) else v for v in row), text] for row in table.rows)
    return "".join(lines)


def truth_column(table: Table) -> str:
    """The name of the CSV column that says what is counted: usually count_of, and different from all other names."""
    name, taken = f"{table.columns[-3]}_of", {column.casefold() for column in table.columns}
    while name.casefold() in taken:
        name += "_what"
    return name


def to_json(table: Table) -> str:
    """The table as one JSON object."""
    return json.dumps(table.describe(), indent=1)


def write_parquet(table: Table, file: IO[bytes]) -> None:
    """Write the table as Parquet, with what it counts and its receipt in the metadata of the file."""
    import pyarrow.parquet as pq

    frame = table.to("pyarrow")
    facts = describe_truth(table.truth) | {"receipt": asdict(table.receipt)}
    pq.write_table(frame.replace_schema_metadata({METADATA: json.dumps(facts)}), file)


def describe_truth(truth: Truth | None) -> dict[str, Any]:
    """What is counted, as JSON values for the metadata of a file."""
    return {"schema_version": 1, "truth": None if truth is None else asdict(truth)}


class _Lines(list[str]):
    """The lines of a CSV file, collected from a csv writer; each ends with a line feed."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")
