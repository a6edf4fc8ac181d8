"""The architecture as it follows from the imports: the tree in CONTRIBUTING.md, the picture in docs/architecture.md.

    python -m tests.support.architecture      writes both

Nothing in them is written by hand: packages and their order are those of tests/test_architecture.py, the line of a
package is the first sentence of its docstring, and a square of the picture is an import in the source.
"""

from __future__ import annotations

import ast
from pathlib import Path

from countveil.display import svg
from tests.test_architecture import ORDER, ROOT, modules, part_of, parts_imported

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "CONTRIBUTING.md"
PICTURE = REPOSITORY / "docs" / "figures" / "architecture.svg"
BEGIN, END = "<!-- tree: python -m tests.support.architecture -->\n```\n", "```\n<!-- end of tree -->"
STYLE = """
svg { background: #fff } text { font: 13px system-ui, sans-serif; fill: #1a1a1a } .name { font-weight: 600 }
.quiet { fill: #6b6b6b } .cell { fill: #f0f2f5 } .own { fill: #c9ced6 } .used { fill: #0b3c6f }
@media (prefers-color-scheme: dark) { svg { background: #14171c } text { fill: #e8e8e8 } .quiet { fill: #a0a7b1 }
.cell { fill: #1f242c } .own { fill: #4a5260 } .used { fill: #7fb2d9 } }
"""
ROW, SQUARE, NAMES, WORDS = 26, 22, 118, 560


def summary_of(part: str) -> str:
    """The first sentence of the docstring of a part."""
    path = ROOT / "__init__.py" if part == "countveil" else ROOT / part / "__init__.py"
    doc = ast.get_docstring(ast.parse((path if path.exists() else ROOT / f"{part}.py").read_text())) or ""
    return doc.partition("\n")[0].partition(". ")[0].rstrip(".").replace("`", "")


def find_uses() -> dict[str, set[str]]:
    """The parts that each part imports."""
    uses: dict[str, set[str]] = {part: set() for part in ORDER}
    for path in modules():
        uses[part_of(path)] |= parts_imported(path) - {part_of(path)}
    return uses


def render_tree() -> str:
    """Every package with its line, the lowest first."""
    names = ("errors.py" if part == "errors" else f"{part}/" for part in ORDER[:-1])
    return "".join(f"{name:15}{summary_of(part)}\n" for name, part in zip(names, ORDER, strict=False))


def read_tree() -> str:
    """The tree that CONTRIBUTING.md shows."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def draw_imports() -> str:
    """The picture as SVG: a row for every part, with a dark square in the column of every part that it imports.

    Imports point down, so every dark square is to the right of the square of the part itself.
    """
    rows = ORDER[-2::-1]
    uses, left, top = find_uses(), NAMES + WORDS, 96
    parts = [f"<style>{STYLE}</style>"]
    for i, part in enumerate(rows):
        y = top + i * ROW
        parts.append(svg.text(10, y + 16, part, kind="name"))
        parts.append(svg.text(NAMES, y + 16, summary_of(part), kind="quiet"))
        turned = f"translate({left + i * SQUARE + 15} {top - 8}) rotate(-55)"
        parts.append(svg.shape("text", "", inside=part, transform=turned))
        for j, other in enumerate(rows[i:], start=i):
            kind = "own" if i == j else "used" if other in uses[part] else "cell"
            title = f"{part} imports {other}" if kind == "used" else ""
            parts.append(svg.rect(left + j * SQUARE, y, SQUARE - 3, ROW - 4, kind, title, rx=3))
    width, height = left + len(rows) * SQUARE + 60, top + len(rows) * ROW + 10
    picture = svg.draw(parts, "The packages of countveil, and which imports which", height, width)
    return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page.replace(BEGIN + read_tree() + END, BEGIN + render_tree() + END))
    PICTURE.write_text(draw_imports())
    print(render_tree(), end="")
