"""Reads the public CSV files that a configuration names, each of them once."""

from __future__ import annotations

from pathlib import Path

from countveil.errors import ConfigError, shorten
from countveil.query.public_tables import PublicTable, read_public_table


class PublicFiles:
    """The public files of one dataset. Relative paths start from the folder of the configuration.

    Guarantee: a file is read once, so all columns of a dataset see the same content. What a question uses of the
    content is part of the question's hash.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tables: dict[Path, PublicTable] = {}

    def read(self, path: str, key: str) -> PublicTable:
        """The table in the file at `path`. `key` is the configuration key that names the file, for error messages."""
        place = self.directory / Path(path).expanduser()
        if place not in self.tables:
            try:
                content = place.read_bytes()
            except (OSError, ValueError):
                raise ConfigError(key, f"{shorten(path, 100)} cannot be read; give the path of a CSV file") from None
            self.tables[place] = read_public_table(content, shorten(path, 60), key)
        return self.tables[place]
