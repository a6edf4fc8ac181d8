"""`countveil figures`, run as a separate process."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

import countveil as cv
from countveil.paper_figures import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run(*words: object, first: Path | None = None, cwd: Path | None = None) -> Done:
    """Run the command in a new process, with `first` before this countveil on the import path."""
    folders = [str(folder) for folder in (first, Path(cv.__file__).parents[1]) if folder]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-W", "error", "-m", "countveil", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr)


def one_line(done: Done) -> str:
    assert done.out == ""
    assert done.err.count("\n") == 1
    return done.err


@pytest.mark.slow  # a process for every command
def test_the_chosen_figures_are_written_as_svg_png_and_csv(tmp_path: Path) -> None:
    done = run("figures", "--out", "new/folder", "--only", "gaussian", "--only", "noise", cwd=tmp_path)
    assert done.code == 0, done.err
    assert [line.split(" ")[0] for line in done.out.splitlines()] == ["new/folder/noise.svg", "new/folder/gaussian.svg"]
    assert done.err == ""
    names = {f"{name}.{ending}" for name in ("noise", "gaussian") for ending in ("svg", "png", "csv")}
    assert set(os.listdir(tmp_path / "new" / "folder")) == names
    with (tmp_path / "new" / "folder" / "noise.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {"series": "paper", "z": "1", "probability": rows[1]["probability"]}
    assert rows[1]["probability"].startswith("0.0898")


@pytest.mark.slow  # a process for every command
def test_json_lists_the_files_and_an_old_figure_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "noise.svg").write_text("old")
    done = run("figures", "--out", tmp_path, "--only", "noise", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["schema_version"] == 1
    (figure,) = result["figures"]
    assert figure["name"] == "noise"
    assert figure["files"] == [str(tmp_path / f"noise.{ending}") for ending in ("svg", "png", "csv")]
    assert figure["facts"]["paper_delta_exact"] == "0.0153693741279118"
    assert figure["points"] == 28
    ElementTree.parse(tmp_path / "noise.svg")
    assert len(os.listdir(tmp_path)) == 3


def test_an_unknown_figure_is_refused(tmp_path: Path) -> None:
    done = run("figures", "--out", tmp_path / "out", "--only", "noise", "--only", "six")
    assert done.code == 2
    assert "figure: got six, allowed is one of noise, epsilon, eta-1.1" in one_line(done)
    assert os.listdir(tmp_path) == []


def test_the_option_out_is_required() -> None:
    done = run("figures")
    assert done.code == 2
    assert "--out" in one_line(done)


@pytest.mark.slow  # a process for every command
def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", "/proc/figures", ""):
        done = run("figures", "--out", place)
        assert done.code == 2
        assert "allowed is a folder that can be written" in one_line(done)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = run("figures", "--out", closed)
    assert done.code == 2
    assert "Permission denied" in one_line(done)


@pytest.mark.parametrize("hidden", ["altair", "vl_convert"])
def test_without_the_plots_extra_the_command_says_what_to_install(hidden: str, tmp_path: Path) -> None:
    hides = tmp_path / "hides"
    hides.mkdir()
    (hides / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {hidden!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    done = run("figures", "--out", tmp_path / "out", first=hides)
    assert done.code == 6
    assert 'is not installed; run: pip install "countveil[plots]"' in one_line(done)
    assert os.listdir(tmp_path) == ["hides"]


def test_help_lists_every_figure() -> None:
    names = re.findall(r"^    (\S+)  ", run("figures", "--help").out, re.MULTILINE)
    assert tuple(names[: len(NAMES)]) == NAMES


def test_the_message_in_the_docs_is_the_message_of_the_command() -> None:
    """docs/paper.md quotes the message for parameters that the theorem does not cover."""
    page = PAGE.read_text(encoding="utf-8")
    command = re.search(r"`countveil (design [^`]*--method paper)` prints the same line and exits with 2", page)
    assert command
    done = run(*command[1].split())
    assert done.code == 2
    message = re.search(r"InfeasibleError: (.*)", page)
    assert message
    assert one_line(done) == f"countveil: {message[1]}\n"
