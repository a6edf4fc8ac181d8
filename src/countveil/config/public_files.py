"""Reads the public CSV files that a configuration names, each of them once."""

from __future__ import annotations

import os
from pathlib import Path

from countveil.errors import ConfigError, shorten
from countveil.query.public_tables import MAX_BYTES, PublicTable, read_public_table


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
        place = self.directory / os.path.expanduser(path)
        if place not in self.tables:
            content = _read(place, path, key)
            self.tables[place] = read_public_table(content, shorten(path, 60), key)
        return self.tables[place]


def _read(place: Path, path: str, key: str) -> bytes:
    """The content of a regular file; a pipe or a device could be endless."""
    try:
        if not place.is_file():
            raise OSError
        with place.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):
        raise ConfigError(key, f"{shorten(path, 100)} cannot be read; give the path of a CSV file") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(key, f"{shorten(path, 100)} is too large; at most {MAX_BYTES:,} bytes are allowed")
    return content
