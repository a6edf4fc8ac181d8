"""The notebooks in examples/: executed, with their outputs stored.

python -m tests.support.notebooks [FILE ...]            runs all or some notebooks and stores their outputs
python -m tests.support.notebooks --check FILE ...      runs them and stores nothing; an error in a cell fails
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SECONDS = 300
"""The time limit of a cell."""


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, resources=place).execute()
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i}"
        cell.metadata.pop("execution", None)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "name": "python3"},
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    return notebook


def main(words: list[str]) -> None:
    paths = [Path(word) for word in words if word != "--check"] or NOTEBOOKS
    for path in paths:
        notebook = run(path)
        if "--check" not in words:
            nbformat.validate(notebook)
            nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
