"""Files that only their owner can read, whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from countveil.private_files import create_private, find_exposed, open_private, replace_private


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


def test_whoever_has_an_old_part_open_sees_nothing_of_the_new_file(tmp_path: Path) -> None:
    """What a crash left behind, or someone put there, is not written to."""
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


def test_without_room_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    replace_private(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_private(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_exposed_files_are_those_named_after_a_path(tmp_path: Path) -> None:
    for name in ("a[1].x", ".a[1].x.lock", "a[1].x-wal", "a1.x", "b"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o640)
    (tmp_path / "a[1].x-wal").chmod(0o600)
    (tmp_path / "a[1].x.d").mkdir(mode=0o755)
    found = find_exposed([tmp_path / "a[1].x", tmp_path / "none" / "c"])
    assert found == {tmp_path / ".a[1].x.lock": 0o640, tmp_path / "a[1].x": 0o640}
