"""Files appear whole or not at all; only the owner can read private files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from countveil.errors import ParameterError
from countveil.files import durable_files
from countveil.files.durable_files import (
    create_private,
    find_exposed,
    open_output,
    open_private,
    replace_file,
    replace_private,
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_a_new_file_has_its_mode_before_its_first_byte(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        os.close(create_private(tmp_path / "a"))
        os.close(open_private(tmp_path / "b"))
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in "ab"] == [0o600, 0o600]
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "a")
    os.close(open_private(tmp_path / "a"))


def test_an_existing_part_file_is_replaced_and_never_written_to(tmp_path: Path) -> None:
    """A part may be left by a crash or planted by another user, who may have it open."""
    part = tmp_path / f".a.{os.getpid()}.part"
    part.touch()
    part.chmod(0o666)
    with part.open("rb") as reader:
        replace_private(tmp_path / "a", b"secret")
        assert reader.read() == b""
    part.symlink_to(tmp_path / "elsewhere")
    replace_private(tmp_path / "a", b"another")
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "a").read_bytes() == b"another"
    assert mode(tmp_path / "a") == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_the_old_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    replace_private(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_private(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_file_and_folder_are_synced_around_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(file: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{file}")).suffix or "folder")
        real_sync(file)

    def replace(part: Path, target: Path) -> None:
        steps.append("rename")
        real_replace(part, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    folder = tmp_path / "folder"
    folder.mkdir()
    with replace_file(folder / "a") as file:
        file.write(b"content")
    assert steps == [".part", "rename", "folder"]


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o000, 0o666)])
def test_an_output_file_gets_the_default_mode_of_new_files(mask: int, expected: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        with open_output(tmp_path / "a") as file:
            file.write(b"content")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == expected


def test_two_threads_that_write_one_file_do_not_share_a_part_file(tmp_path: Path) -> None:
    """The file has the complete content of the last writer to finish."""
    inside, done = threading.Event(), threading.Event()

    def write() -> None:
        with replace_file(tmp_path / "a") as file:
            file.write(b"first")
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait(10)
    replace_private(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"second"
    done.set()
    thread.join()
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_an_output_follows_links_and_writes_to_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with open_output(tmp_path / "link") as file:
        file.write(b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"content"
    os.mkfifo(tmp_path / "pipe")
    content: list[bytes] = []
    reader = threading.Thread(target=lambda: content.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with open_output(tmp_path / "pipe") as file:
        file.write(b"through")
    reader.join()
    assert content == [b"through"]
    with open_output("/dev/null") as file:
        file.write(b"gone")
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "real"]


def test_a_long_file_name_can_be_written(tmp_path: Path) -> None:
    with open_output(tmp_path / ("é" * 120)) as file:
        file.write(b"content")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("bad", ["", ".", "no/folder/x", "a\0b", None])
def test_an_output_that_cannot_be_written_is_refused(bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="output"), open_output(bad):
        pass
    assert not list(tmp_path.iterdir())


def test_find_exposed_lists_the_path_and_files_named_after_it(tmp_path: Path) -> None:
    for name in ("a[1].x", ".a[1].x.lock", "a[1].x-wal", "a1.x", "b"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o640)
    (tmp_path / "a[1].x-wal").chmod(0o600)
    (tmp_path / "a[1].x.d").mkdir(mode=0o755)
    exposed = find_exposed([tmp_path / "a[1].x", tmp_path / "none" / "c"])
    assert exposed == {tmp_path / ".a[1].x.lock": 0o640, tmp_path / "a[1].x": 0o640}


def test_an_output_is_written_although_its_folder_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some folders are writable but not readable, or do not support fsync; for private files this is an error."""

    def refuse(folder: Path) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(durable_files, "sync_folder", refuse)
    with open_output(tmp_path / "a") as file:
        file.write(b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    with pytest.raises(OSError, match="denied"):
        replace_private(tmp_path / "b", b"secret")


def test_two_writers_of_one_output_never_share_a_part_file(tmp_path: Path) -> None:
    """Thread ids are not unique across hosts, so outputs must not rely on them."""
    with open_output(tmp_path / "a") as first:
        first.write(b"first")
        with open_output(tmp_path / "a") as second:
            second.write(b"second")
        assert (tmp_path / "a").read_bytes() == b"second"
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
