"""Tests of the architecture: imports point down, risky dependencies have fixed importers, guarantees use no floats."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "countveil"

ORDER = (
    *("errors", "numeric", "files", "display"),
    *("laws", "sampling", "mechanism", "literature", "design", "accounting", "planning", "release"),
    *("ptables", "plots", "comparison", "paper_figures"),
    *("query", "ledger", "data", "config", "consistency", "publication", "curator"),
    *("client", "service", "demo", "cli", "countveil"),
)
"""Every part of countveil; each imports only parts before it. The last one is `countveil/__init__.py`."""
EXACT = ("errors", "numeric/exact_numbers", "laws", "mechanism/certificate", "mechanism/document")
SINGLE_IMPORTERS = {
    "secrets": {"sampling/randomness.py"},
    "cryptography": {"sampling/randomness.py"},
    "highspy": {"numeric/linear_program/highs.py"},
    "duckdb": {"data/engines/duckdb.py"},
    "psycopg": {"data/engines/postgres.py", "ledger/postgres.py"},
    "pyspark": {"data/engines/spark_session.py"},
    "yaml": {"ptables/cellkey.py"},
    "sqlite3": {"ledger/sqlite.py", "ledger/restoration.py", "ledger/sqlite_connection.py"},
    "random": set(),
    "numpy.random": set(),
}
HEAVY = {"numpy", "highspy", "rich", "altair", "vl_convert", "duckdb", "narwhals", "yaml"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return {"__init__": "countveil", "__main__": "countveil"}.get(first, first)


def imports(path: Path) -> set[str]:
    """Every imported module, as a dotted name; names imported from a package count as its modules too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return names


def parts_imported(path: Path) -> set[str]:
    """The parts of countveil that a module imports, also inside functions and for type checking."""
    parts = set()
    for name in imports(path):
        first, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if first == "countveil" and rest:
            parts.add(part if part in ORDER else "countveil")
    return parts


def test_every_module_is_in_a_package_of_the_declared_order() -> None:
    """`ls src/countveil` is the architecture."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(ORDER) - {"errors", "countveil"}
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", "__main__", "errors"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    """A part imports itself and earlier parts only."""
    part = part_of(path)
    below = set(ORDER[: ORDER.index(part) + 1])
    assert parts_imported(path) <= below


def test_the_check_of_imports_detects_a_wrong_import(tmp_path: Path) -> None:
    wrong = tmp_path / "law.py"
    wrong.write_text("def draw():\n    from countveil.design import design\n    from countveil import Curator\n")
    assert parts_imported(wrong) == {"design", "countveil"}


def test_no_package_exports_the_name_of_its_module() -> None:
    """Importing the module later would replace the name, unless the name comes from that module itself."""
    for package in sorted(ROOT.rglob("__init__.py")):
        tree = ast.parse(package.read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                names |= {alias.name for alias in node.names if not (node.module or "").endswith(f".{alias.name}")}
        beside = {path.stem for path in package.parent.iterdir()}
        assert not names & beside, f"{package.relative_to(ROOT)} exports {names & beside}, also modules of it"


def test_only_one_module_constructs_mechanisms() -> None:
    """Only `mechanism` calls the constructor, after certification, so every sampled mechanism is certified."""
    makers = {
        str(path.relative_to(ROOT))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Mechanism"
    }
    assert makers == {"mechanism/mechanism.py"}


@pytest.mark.parametrize("dependency", sorted(SINGLE_IMPORTERS))
def test_risky_dependencies_are_imported_by_listed_modules_only(dependency: str) -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in modules()
        if any(name == dependency or name.startswith(dependency + ".") for name in imports(path))
    }
    assert users == SINGLE_IMPORTERS[dependency]


@pytest.mark.parametrize("dependency", ["altair", "vl_convert"])
def test_only_plots_imports_the_drawing_libraries(dependency: str) -> None:
    users = {str(path.relative_to(ROOT)) for path in modules() if dependency in imports(path)}
    assert users
    assert all(user.startswith("plots/") for user in users)


@pytest.mark.parametrize("place", EXACT)
def test_modules_of_the_guarantee_use_no_floats(place: str) -> None:
    """The modules of `EXACT` have no float literal, no call of float() and no float in a signature."""
    folder = ROOT / place
    for path in sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                assert not isinstance(node.value, float), f"float literal in {path.name}:{node.lineno}"
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) != "float", f"float() in {path.name}:{node.lineno}"
            if isinstance(node, ast.FunctionDef) and path.stem != "exact_numbers":
                assert "float" not in ast.unparse(node.args), f"float in the signature of {path.stem}.{node.name}"


def test_starting_the_command_line_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import countveil.cli, sys; print(','.join(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.strip().split(","))


MAPPED = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("*/__init__.py"))


@pytest.mark.parametrize("package", [*MAPPED, "data/engines", "design/remap", "numeric/linear_program", "service/web"])
def test_the_docstring_of_a_package_names_every_module(package: str) -> None:
    folder = ROOT / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    names_in_map = {
        name
        for names in re.findall(r"^ *([a-z_]+(?:, [a-z_]+)*) {2,}\S", text, re.MULTILINE)
        for name in names.split(", ")
    }
    here = {path.stem for path in folder.iterdir() if path.name[0] not in "._"}
    assert names_in_map == here


@pytest.mark.slow  # three commands run under a tracer
def test_contributing_lists_the_files_of_every_walk() -> None:
    """CONTRIBUTING.md lists the files that a design, a count and a POST go through."""
    from tests.support.walks import WALKS, read_walks

    listed_files = [line.partition(" files: ")[2].split(", ") for line in read_walks().splitlines()]
    for (name, walk), files in zip(WALKS.items(), listed_files, strict=True):
        assert {file.removesuffix(".py") for file in walk()} == set(files), f"{name}: python -m tests.support.walks"


def test_the_tree_and_the_picture_show_the_actual_imports() -> None:
    from tests.support import architecture

    assert architecture.read_tree() == architecture.render_tree(), "run: python -m tests.support.architecture"
    assert architecture.PICTURE.read_text() == architecture.draw_imports(), "run: python -m tests.support.architecture"


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checking count too; the `__init__` of a package does not."""
    names = {".".join(("countveil", *path.relative_to(ROOT).with_suffix("").parts)): path for path in modules()}
    uses = {name: imports(path) & names.keys() - {name} for name, path in names.items()}
    assert not {name for name in uses if name in find_reachable(name, uses)}


def find_reachable(start: str, uses: dict[str, set[str]]) -> set[str]:
    """The modules that `start` imports, directly or through others."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = uses[waiting.pop()] - reached
        reached |= fresh
        waiting += fresh
    return reached


def test_the_check_of_circles_detects_a_circle() -> None:
    uses = {"engine": {"sql"}, "sql": {"source"}, "source": {"engine"}, "law": set()}
    assert find_reachable("engine", uses) == {"engine", "sql", "source"}
    assert find_reachable("law", uses) == set()


def test_no_two_public_classes_have_the_same_name() -> None:
    names = [
        node.name
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not {name for name in names if names.count(name) > 1}


def test_few_functions_are_named_by_participles_and_few_results_are_named_found() -> None:
    """Fewer than 40 function names look like a participle, and fewer than 40 results are called `found`."""
    text = "\n".join(path.read_text() for path in modules())
    participles = re.findall(r"def (_?[a-z]+(?:ed|en|wn|ld|pt|ught))\(", text)
    assert len(participles) < 40
    assert len(re.findall(r"\bfound\b[^=\n]*(?<![=!<>])=(?!=)", text)) < 40
