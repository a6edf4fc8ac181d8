"""Files that only their owner can read: mode 0600 from the first byte, under any umask."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def create_private(path: Path) -> int:
    """A new, empty file, open for writing; a FileExistsError if there is one."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(file, 0o600)  # a umask may have taken more away
    return file


def open_private(path: Path) -> int:
    """A file, open for reading and writing; created if there is none."""
    try:
        return create_private(path)
    except FileExistsError:
        return os.open(path, os.O_RDWR)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; durable when it returns."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with open(create_private(part), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    settle_folder(path.parent)


def make_private(paths: Iterable[Path]) -> None:
    """Take from others what they could do with those of some files that exist."""
    for path in paths:
        if path.exists():
            path.chmod(0o600)


def settle_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find_exposed(paths: Iterable[Path]) -> dict[Path, int]:
    """Which of some files, and of the files beside them that have their names with a dot before or anything after,
    others than the owner can reach; with their modes."""
    found = {}
    for path in paths:
        for file in path.parent.iterdir() if path.parent.is_dir() else ():
            if file.name.removeprefix(".").startswith(path.name) and file.is_file():
                mode = file.stat().st_mode & 0o777
                if mode & 0o077:
                    found[file] = mode
    return dict(sorted(found.items()))
