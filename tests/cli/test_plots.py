"""The option `--plot` of `countveil design` and `countveil certify`, run as separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

import countveil as cv

QUICK = ("--epsilon", "1", "--delta", "1e-5", "--policy", "signed")


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


@pytest.fixture(scope="module")
def mechanism_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mechanism") / "mechanism.json"
    cv.design(epsilon="0.5", delta="1e-4", method="remap").save(path)
    return path


def without(folder: Path, *names: str) -> Path:
    """A folder that hides packages from a new process, as if they were not installed."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {names!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    return folder


def one_line(done: Done) -> str:
    assert done.out == ""
    assert done.err.count("\n") == 1
    return done.err


@pytest.mark.slow  # draws pictures
def test_design_saves_its_plots_and_its_mechanism(tmp_path: Path) -> None:
    done = run("design", *QUICK, "--plot", "page.svg", "-o", "m.json", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out)["epsilon"] == "1"
    assert "plots saved to page.svg" in done.err
    ElementTree.parse(tmp_path / "page.svg")
    assert sorted(os.listdir(tmp_path)) == ["m.json", "page.svg"]


@pytest.mark.slow  # draws pictures
def test_certify_saves_its_plots(mechanism_file: Path, tmp_path: Path) -> None:
    done = run("certify", mechanism_file, "--plot", tmp_path / "page.png")
    assert done.code == 0, done.err
    assert "every claim holds for the weights in the file" in done.out
    assert f"plots saved to {tmp_path / 'page.png'}" in done.err
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow  # draws pictures
def test_an_existing_plot_is_replaced(mechanism_file: Path, tmp_path: Path) -> None:
    (tmp_path / "page.svg").write_text("old")
    assert run("certify", mechanism_file, "--plot", tmp_path / "page.svg").code == 0
    ElementTree.parse(tmp_path / "page.svg")


@pytest.mark.parametrize("name", ["page.pdf", "page", "page.svgz", ""])
def test_a_plot_with_another_file_ending_is_refused(name: str, mechanism_file: Path, tmp_path: Path) -> None:
    for words in (("design", *QUICK, "-o", "m.json"), ("certify", mechanism_file)):
        done = run(*words, "--plot", name, cwd=tmp_path)
        assert done.code == 2
        assert "allowed is a name that ends in .svg, .png or .html" in one_line(done)
        assert (name or "an empty text") in done.err
    assert os.listdir(tmp_path) == []


def test_the_file_ending_is_checked_before_the_design(tmp_path: Path) -> None:
    """This design would take minutes if it were started."""
    done = run("design", "--epsilon", "0.1", "--delta", "1e-9", "--method", "program", "--plot", "a.bmp", cwd=tmp_path)
    assert "ends in .svg" in one_line(done)


@pytest.mark.parametrize("hidden", ["altair", "vl_convert"])
def test_without_the_plots_extra_the_command_says_what_to_install(
    hidden: str, mechanism_file: Path, tmp_path: Path
) -> None:
    hides, target = tmp_path / "hides", tmp_path / "empty"
    hides.mkdir()
    target.mkdir()
    without(hides, hidden)
    for words in (("design", *QUICK, "-o", "m.json"), ("certify", mechanism_file)):
        done = run(*words, "--plot", "page.svg", first=hides, cwd=target)
        assert done.code == 6
        assert 'is not installed; run: pip install "countveil[plots]"' in one_line(done)
    assert os.listdir(target) == []
    assert run("certify", mechanism_file, "--json", first=hides).code == 0, "nothing else needs the extra"


@pytest.mark.slow  # draws pictures
def test_a_path_that_cannot_be_written_is_refused(mechanism_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.svg").mkdir()
    places = [tmp_path / "missing" / "page.svg", tmp_path / "file" / "page.svg", tmp_path / "folder.svg"]
    for place in places:
        done = run("certify", mechanism_file, "--plot", place)
        assert done.code == 2
        assert "a path that can be written" in one_line(done)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.svg"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(mechanism_file: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = run("certify", mechanism_file, "--plot", closed / "page.svg")
    assert done.code == 2
    assert "Permission denied" in one_line(done)


def test_help_lists_the_formats() -> None:
    for command in ("design", "certify"):
        assert ".svg, .png or .html" in " ".join(run(command, "--help").out.split())
