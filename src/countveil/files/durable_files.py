"""Files that appear whole or not at all and are durable when the call returns; only the owner can read private files.

`replace_file` is the only writer: it writes a temporary file ("part") beside the target, syncs the file to disk,
renames it, and syncs the folder. `open_output` does the same for output files of a user and turns failures into a
ParameterError.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from countveil.errors import ParameterError

PRIVATE = 0o600
UNSYNCABLE = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)


@contextmanager
def replace_file(target: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A new file to write to, which replaces the target when it is complete and on disk.

    If writing fails, the target does not change and no temporary file is left behind. With `mode`, the file gets
    exactly this mode, whatever the umask is; without it, the default mode of new files. Files with a mode belong to a
    ledger or a service and have one writer; any other file may have several writers, on several hosts.
    """
    if mode is None:
        part = target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex}.part")
    else:
        part = part_beside(target)
        part.unlink(missing_ok=True)  # left by a crash; a process that has it open must not see the new content
    try:
        with open(_create(part, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        try:
            sync_folder(target.parent)
        except OSError as error:  # the file is in place; some folders are not readable or do not support fsync
            if mode is not None or error.errno not in UNSYNCABLE:
                raise
    finally:
        part.unlink(missing_ok=True)


def part_beside(target: Path) -> Path:
    """The path of the temporary file beside the target; no other thread on this host uses the same path."""
    return target.with_name(f".{target.name[:50]}.{threading.get_native_id()}.part")


def rename_file(part: Path, target: Path) -> None:
    """Rename a file that is already synced, and sync the folder."""
    os.replace(part, target)
    sync_folder(target.parent)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with replace_file(path, PRIVATE) as file:
        file.write(content)


@contextmanager
def open_output(path: str | Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a user's output file, which appears complete or not at all, with this mode if one is given.

    Links are followed, and devices and pipes are written to directly.
    """
    try:
        target, is_folder = Path(os.path.realpath(path)), not str(path) or os.path.isdir(path)
        is_stream = os.path.exists(path) and not os.path.isfile(path)
    except (ValueError, TypeError):
        raise ParameterError("output", path, "the path of a file") from None
    if is_folder:
        raise ParameterError("output", str(path), "the path of a file")
    try:
        with open(path, "wb") if is_stream else replace_file(target, mode) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ParameterError("output", str(path), f"a path that can be written ({reason})") from None


def create_private(path: Path) -> int:
    """Create an empty private file and return its descriptor; raises FileExistsError if the path exists."""
    return _create(path, PRIVATE)


def open_private(path: Path) -> int:
    """Open a file for reading and writing and return its descriptor; a missing file is created as a private file."""
    try:
        return create_private(path)
    except FileExistsError:
        return os.open(path, os.O_RDWR)


def _create(path: Path, mode: int | None) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    if mode is not None:
        os.fchmod(file, mode)  # the umask may have removed bits
    return file


def make_private(paths: Iterable[Path]) -> None:
    """Restrict existing files to their owner; ignore missing ones."""
    for path in paths:
        if path.exists():
            path.chmod(PRIVATE)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its file names are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find_exposed(paths: Iterable[Path]) -> dict[Path, int]:
    """The files that users other than the owner can access, with their modes.

    Checks every given file, and the files beside it whose names begin with its name (or with a dot and its name).
    """
    exposed = {}
    for path in paths:
        for file in path.parent.iterdir() if path.parent.is_dir() else ():
            if file.name.removeprefix(".").startswith(path.name) and file.is_file():
                mode = file.stat().st_mode & 0o777
                if mode & 0o077:
                    exposed[file] = mode
    return dict(sorted(exposed.items()))
