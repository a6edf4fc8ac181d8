"""Files that appear whole or not at all, durable when the call returns; private ones only their owner can read.

`replace_file` is the one writer: it writes a part beside the target, syncs it, renames it, and syncs the folder.
`open_output` is the same for what a user asked to have written, with failures in words for the user.
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
    """A file to write that takes the target's name when it is complete and on disk; on failure nothing is left behind.

    It gets this mode under any umask; without one, the mode that new files have. Files with a mode are those of a
    ledger or a service, which others do not write meanwhile; any other may have several writers, on several hosts.
    """
    if mode is None:
        part = target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex}.part")
    else:
        part = part_beside(target)
        part.unlink(missing_ok=True)  # a crash may have left it; whoever has it open sees nothing of the new one
    try:
        with open(_create(part, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        try:
            sync_folder(target.parent)
        except OSError as error:  # the file is there: some folders may be written but not read, or never sync
            if mode is not None or error.errno not in UNSYNCABLE:
                raise
    finally:
        part.unlink(missing_ok=True)


def part_beside(target: Path) -> Path:
    """Where a file is written before it takes its name; no other thread of these processes writes there."""
    return target.with_name(f".{target.name[:50]}.{threading.get_native_id()}.part")


def rename_file(part: Path, target: Path) -> None:
    """Give a file that is on disk its name, durably."""
    os.replace(part, target)
    sync_folder(target.parent)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    with replace_file(path, PRIVATE) as file:
        file.write(content)


@contextmanager
def open_output(path: str | Path) -> Iterator[BinaryIO]:
    """The output that a user named, complete or not at all; a device or a pipe is written to, a link is followed."""
    try:
        target, is_folder = Path(os.path.realpath(path)), not str(path) or os.path.isdir(path)
        is_stream = os.path.exists(path) and not os.path.isfile(path)
    except (ValueError, TypeError):
        raise ParameterError("output", path, "the path of a file") from None
    if is_folder:
        raise ParameterError("output", str(path), "the path of a file")
    try:
        with open(path, "wb") if is_stream else replace_file(target) as file:
            yield file
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise ParameterError("output", str(path), f"a path that can be written ({why})") from None


def create_private(path: Path) -> int:
    """A new, empty file, open for writing; a FileExistsError if there is one."""
    return _create(path, PRIVATE)


def open_private(path: Path) -> int:
    """A file, open for reading and writing; created if there is none."""
    try:
        return create_private(path)
    except FileExistsError:
        return os.open(path, os.O_RDWR)


def _create(path: Path, mode: int | None) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    if mode is not None:
        os.fchmod(file, mode)  # a umask may have taken more away
    return file


def make_private(paths: Iterable[Path]) -> None:
    """Take from others what they could do with those of some files that exist."""
    for path in paths:
        if path.exists():
            path.chmod(PRIVATE)


def sync_folder(folder: Path) -> None:
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
