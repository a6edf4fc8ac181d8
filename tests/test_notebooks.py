"""The notebooks in examples/: each runs without an error, has outputs, and is small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.notebooks import NOTEBOOKS

MOST_BYTES = 250_000


@pytest.mark.slow  # a kernel starts for each, and designs mechanisms
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(path: Path) -> None:
    """In a process of its own, because kernels start threads; an error in a cell ends it with an error."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.notebooks", "--check", str(path)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PATH": folders},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_with_outputs_and_without_errors_or_paths(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    cells = json.loads(text)["cells"]
    assert cells[0]["source"][0].startswith("# ")
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert len(outputs) >= 3
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert "/tmp/" not in text
    assert "/home/" not in text


def test_there_are_eight_notebooks_and_the_gallery_shows_them() -> None:
    gallery = (Path(__file__).parents[1] / "docs" / "gallery.md").read_text()
    assert len(NOTEBOOKS) == 8
    assert [path.stem for path in NOTEBOOKS if f"examples/{path.stem}\n" not in gallery] == []
