"""The public CSV files that a configuration names, each read once."""

from __future__ import annotations

from pathlib import Path

from countveil.errors import ConfigError, shorten
from countveil.query.public_tables import PublicTable, read_public_table


class PublicFiles:
    """The public files of one dataset; relative paths start from the folder of the configuration.

    Guarantee: a file is read once, so that all columns of a dataset see the same content. What a question uses of it is
    part of the question's hash.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tables: dict[Path, PublicTable] = {}

    def read(self, path: str, key: str) -> PublicTable:
        """The table of a path; `key` is the entry of the configuration that names it."""
        place = self.directory / Path(path).expanduser()
        if place not in self.tables:
            try:
                content = place.read_bytes()
            except (OSError, ValueError):
                raise ConfigError(key, f"{shorten(path, 100)} cannot be read; give the path of a CSV file") from None
            self.tables[place] = read_public_table(content, shorten(path, 60), key)
        return self.tables[place]
