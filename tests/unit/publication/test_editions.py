"""Editions in the declared output: one that cannot be read hides itself only, and is named."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countveil.errors import ParameterError, RequestError
from countveil.publication.editions import choose_edition, find_editions, summarise_publication
from countveil.publication.folder import MANIFEST
from tests.support.editions import make_edition, write_small


def break_manifest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / MANIFEST).write_text((place / MANIFEST).read_text().replace('"edition": 2', '"edition": 1e999'))


def break_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the disk fails when the entry is looked at."""
    stat = os.stat

    def failing(path: Any, *given: Any, **more: Any) -> os.stat_result:
        if Path(path) == place:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, *given, **more)

    monkeypatch.setattr(os, "stat", failing)


@pytest.mark.parametrize("break_edition", [break_manifest, break_disk])
def test_an_edition_that_cannot_be_read_hides_itself_only_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_edition: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    edition = make_edition()
    declared = replace(edition.layout.declared, output=tmp_path)
    for number in (1, 2, 3):
        write_small(tmp_path / f"edition-{number}", edition, number=number)
    assert list(find_editions(declared)) == [1, 2, 3]
    break_edition(tmp_path / "edition-2", monkeypatch)
    assert list(find_editions(declared)) == [1, 3]
    summary = summarise_publication(declared)
    assert [each.edition for each in summary.editions] == [1, 3]
    assert summary.unreadable == ("edition-2",)
    assert choose_edition(summary, None).edition == 3
    with pytest.raises(ParameterError, match="one of 1, 3; edition-2 cannot be read; move it away and publish again"):
        choose_edition(summary, 2)


def test_if_no_edition_can_be_read_the_message_names_those_that_cannot(tmp_path: Path) -> None:
    declared = replace(make_edition().layout.declared, output=tmp_path)
    with pytest.raises(RequestError, match="has no edition yet; countveil publish makes one"):
        choose_edition(summarise_publication(declared), None)
    (tmp_path / "edition-7").mkdir()
    with pytest.raises(RequestError, match="has no edition that can be read; edition-7 cannot be read; move it away"):
        choose_edition(summarise_publication(declared), None)
