"""Limits of keys: a number of answers, or a number for each grade."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from countveil.errors import ConfigError, ParameterError
from countveil.service.api_keys import Keyring
from tests.support.curated import runner, written


def test_a_limit_may_be_a_number_or_a_number_for_each_grade(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "keys")
    for name, answers in (("ann", 5), ("bob", {"fine": 1, "standard": 4}), ("cyd", None)):
        ring.add(name, answers=answers)
    known = Keyring(tmp_path / "keys").keys()
    again = {key.name: key.answers for key in known}
    assert again == {"ann": 5, "bob": {"fine": 1, "standard": 4}, "cyd": None}


@pytest.mark.parametrize("answers", [0, "many", {"fine": 0}, {"Fine": 1}, {"fine": True}, {"fine": "1.5"}])
def test_an_invalid_limit_is_refused(tmp_path: Path, answers: object) -> None:
    with pytest.raises(ParameterError):
        Keyring(tmp_path / "keys").add("ann", answers=answers)  # type: ignore[arg-type]
    assert Keyring(tmp_path / "keys").keys() == []


@pytest.mark.parametrize(
    "limit", [0, -1, 2.5, True, "5", [5], {"fine": 0}, {"fine": "1"}, {"fine": True}, {"fine": None}]
)
def test_a_damaged_limit_in_the_file_is_refused(tmp_path: Path, limit: object) -> None:
    file = tmp_path / "keys"
    Keyring(file).add("ann", answers=5)
    body = json.loads(file.read_text())
    body["keys"][0]["answers"] = limit
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="is not a file of keys, or it is damaged"):
        Keyring(file).keys()


def test_the_command_keys_takes_a_number_or_a_number_for_each_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    keys = runner(monkeypatch, capsys, "keys")
    assert "5 answers of each budget" in keys("add", "ann", "--answers", "5").err
    both = ("--answers", "fine=1", "--answers", "standard=4")
    assert "1 fine, 4 standard answers of each budget" in keys("add", "bob", *both).err
    for wrong in (("5", "6"), ("5", "fine=1"), ("fine=1", "fine=2"), ("fine=",)):
        words = [word for each in wrong for word in ("--answers", each)]
        assert keys("add", "cyd", *words).code == 2
    listed = {key["name"]: key["answers"] for key in json.loads(keys("list", "--json").out)["keys"]}
    assert listed == {"ann": 5, "bob": {"fine": 1, "standard": 4}}


def test_a_pipe_in_place_of_the_file_of_keys_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(ConfigError, match="keys cannot be read"):
        Keyring(tmp_path / "keys").keys()
