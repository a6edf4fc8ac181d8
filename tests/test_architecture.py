"""The architecture, as a test: imports point down, risky dependencies have one importer, no floats in a guarantee."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "countveil"

LAYERS = {
    0: {"errors", "exact", "search", "schema", "durable_files"},
    1: {"law", "query"},
    2: {"remap", "privacy", "rounding", "certificate", "files"},
    3: {"sampling", "releasing"},
    4: {"mechanism", "sum_bias"},
    5: {"design", "families", "auditing"},
    6: {"comparison", "plots", "accounting", "engines", "config", "ledger", "ptables", "noisy_columns", "tables"},
    7: {
        "figures",
        "proposing",
        "inspecting",
        "curator",
        "answers",
        "plans",
        "intervals",
        "fingerprints",
        "releases",
        "keys",
        "received",
        "problem_kinds",
        "wire",
    },
    8: {"cli", "__main__", "", "demo", "service", "client"},
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
EXACT = sorted({"errors", "exact", "law"} | LAYERS[2])
SINGLE_IMPORTERS = {
    "secrets": {"sampling/entropy.py"},
    "cryptography": {"sampling/entropy.py"},
    "highspy": {"design/linear/highs.py"},
    "duckdb": {"engines/duckdb.py"},
    "psycopg": {"engines/postgres.py", "ledger/postgres.py"},
    "pyspark": {"engines/spark_session.py"},
    "yaml": {"ptables/cellkey.py"},
    "sqlite3": {"ledger/sqlite.py", "ledger/restoring.py", "ledger/connection.py"},
    "random": set(),
    "numpy.random": set(),
}
HEAVY = {"numpy", "highspy", "rich", "altair", "vl_convert", "duckdb", "narwhals", "yaml"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(path: Path) -> set[str]:
    """Every imported module, as a dotted name; names imported from a package count as its modules too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def parts_imported(path: Path) -> set[str]:
    """The parts of countveil that a module uses."""
    found = set()
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] == "countveil":
            part = pieces[1] if len(pieces) > 1 else ""
            found.add(part if part in LAYER_OF else "")
    found.discard("") if any(n.startswith("countveil.") for n in imports(path)) else None
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    layer = LAYER_OF[part_of(path)]
    for part in parts_imported(path):
        assert LAYER_OF[part] <= layer, f"{part_of(path)} (layer {layer}) imports {part} (layer {LAYER_OF[part]})"


def test_the_check_on_imports_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "law.py"
    wrong.write_text("from countveil.design import design\nfrom countveil import mechanism\n")
    assert parts_imported(wrong) == {"design", "mechanism"}


def parts_within_reach(part: str, uses: dict[str, set[str]]) -> set[str]:
    """The parts that a part uses, directly or by way of others."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        fresh = uses[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found


def test_no_parts_import_each_other() -> None:
    """Also not inside of functions or for type checking."""
    uses: dict[str, set[str]] = {part: set() for part in LAYER_OF}
    for path in modules():
        uses[part_of(path)] |= parts_imported(path) - {part_of(path)}
    cycles = {part for part in uses if part in parts_within_reach(part, uses)}
    assert not cycles


def test_the_check_on_cycles_can_fail() -> None:
    uses = {"plots": {"comparison"}, "comparison": {"families"}, "families": {"plots"}, "law": set()}
    assert parts_within_reach("plots", uses) == {"comparison", "families", "plots"}
    assert parts_within_reach("law", uses) == set()


def test_mechanisms_have_one_maker() -> None:
    """What is sampled is what was certified: only `mechanism` calls the constructor, behind a certificate."""
    makers = {
        str(path.relative_to(ROOT))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Mechanism"
    }
    assert makers == {"mechanism.py"}


@pytest.mark.parametrize("dependency", sorted(SINGLE_IMPORTERS))
def test_risky_dependencies_have_one_importer(dependency: str) -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in modules()
        if any(name == dependency or name.startswith(dependency + ".") for name in imports(path))
    }
    assert users == SINGLE_IMPORTERS[dependency]


@pytest.mark.parametrize("dependency", ["altair", "vl_convert"])
def test_only_plots_draw(dependency: str) -> None:
    users = {str(path.relative_to(ROOT)) for path in modules() if dependency in imports(path)}
    assert users
    assert all(user.startswith("plots/") for user in users)


@pytest.mark.parametrize("name", EXACT)
def test_no_floats_in_a_guarantee(name: str) -> None:
    """Layers 0-2 have no float literal, no float() and no true division of a non-Fraction literal."""
    tree = ast.parse((ROOT / f"{name}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            assert not isinstance(node.value, float), f"float literal in {name}:{node.lineno}"
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) != "float", f"float() in {name}:{node.lineno}"
        if isinstance(node, ast.FunctionDef) and name != "exact":
            assert "float" not in ast.unparse(node.args), f"float in the signature of {name}.{node.name}"


def test_starting_the_command_line_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import countveil.cli, sys; print(','.join(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.strip().split(","))


def test_public_names() -> None:
    import countveil

    for name in countveil.__all__:
        assert hasattr(countveil, name)


def test_modules_stay_readable() -> None:
    long = {str(p.relative_to(ROOT)): n for p in modules() if (n := len(p.read_text().splitlines())) > 400}
    assert not long, "modules over 400 lines: is it still one concept?"


@pytest.mark.parametrize("package", ["accounting", "demo", "sampling", "service", "service/page"])
def test_the_map_of_a_package_names_every_module(package: str) -> None:
    folder = ROOT / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    listed = {
        name
        for names in re.findall(r"^ *([a-z_]+(?:, [a-z_]+)*) {2,}\S", text, re.MULTILINE)
        for name in names.split(", ")
    }
    here = {path.stem for path in folder.iterdir() if path.name[0] not in "._"}
    assert listed == here


def test_the_walks_are_as_short_as_contributing_says() -> None:
    """A reader who follows a design, a count or a POST meets these files and no others."""
    from tests.support.walks import WALKS, read_walks

    shown = [line.partition(" files: ")[2].split(", ") for line in read_walks().splitlines()]
    for (name, walk), files in zip(WALKS.items(), shown, strict=True):
        assert {file.removesuffix(".py") for file in walk()} == set(files), f"{name}: python -m tests.support.walks"
