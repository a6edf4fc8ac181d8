"""The public API: every name is documented, typed and exported, and old names warn."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import countveil as cv
from tests.support.curated import people, runner, written

ROOT = Path(__file__).parents[2]
NAMES = [name for name in dir(cv) if not name.startswith("_")]
CALLABLES = [
    *("design", "make_nonnegative", "plan", "compose", "affordable_answers", "compare", "plot", "col", "connect"),
    *(f"Mechanism.{name}" for name in ("law", "delta_at", "epsilon_at", "profile", "release", "bounds")),
    *(f"Mechanism.{name}" for name in ("save", "load", "describe")),
    *("Composition.delta", "Composition.epsilon", "Comparison.plot"),
    *(f"Curator.{name}" for name in ("open", "question", "count", "count_to_parquet", "dry_run", "budget")),
    *(f"Curator.{name}" for name in ("mechanism", "extend_budget", "replan_budget", "datasets", "history", "receipt")),
    *(f"Connection.{name}" for name in ("count", "dry_run", "budget", "datasets", "history", "receipt")),
    *(f"{source}.{name}" for source in ("Curator", "Connection") for name in ("publications", "publication")),
    *("Publication.open", "Publication.to", "Publication.verify"),
    *("reconcile", "split_budget", "expect_gaps", "Tree.from_parents", "Tree.from_columns"),
    *("Reconciliation.margin", "Reconciliation.sum", "ReconciledTable.to"),
    *("Table.to", "Table.total", "Table.subtotals"),
    *("Curator.publish", "Curator.plan_publication"),
    *("Publication.open", "Publication.to", "Publication.verify", "Publication.change"),
]


def resolve(name: str) -> typing.Any:
    value: typing.Any = cv
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_the_help_of_the_package_is_short_and_names_every_public_name() -> None:
    text = pydoc.render_doc(cv, renderer=pydoc.plaintext)
    lines = text.splitlines()
    assert len(lines) < 300
    assert "countveil: publish counts" in lines[3] or "countveil - " in lines[3]
    listed = re.findall(r"^    (\w+)  +\S", str(cv.__doc__), re.MULTILINE)
    assert sorted(listed) == NAMES


def test_names_for_the_type_checker_are_the_names_at_runtime() -> None:
    tree = ast.parse((ROOT / "src" / "countveil" / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "countveil." in str(node.module)]
    typed = {
        alias.name: node.module
        for node in imports
        for alias in node.names
        if (alias.asname == alias.name and node.module != "countveil.errors") or alias.asname
    }
    assert sorted(typed) == NAMES
    for name, module in typed.items():
        assert getattr(importlib.import_module(str(module)), name) is getattr(cv, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'countveil' has no attribute 'desing'"):
        cv.desing  # noqa: B018


@pytest.mark.parametrize("name", CALLABLES)
def test_public_callables_document_arguments_results_errors_and_an_example(name: str) -> None:
    function = resolve(name)
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters if p != "self"]
    described = text.partition("Args:\n")[2].partition("\n\n")[0]
    for parameter in parameters:
        assert re.search(rf"\b{parameter}\b", described), f"{name} does not describe {parameter}"
    returns_nothing = signature.return_annotation in (None, "None") or inspect.isclass(function)
    assert ("Returns:\n" in text) is not returns_nothing
    assert "Raises:\n" in text or not parameters
    assert ">>> " in text


def types_in(annotation: object) -> set[type]:
    """The classes of countveil in an annotation."""
    if isinstance(annotation, type) and annotation.__module__.startswith("countveil"):
        return {annotation}
    return {kind for part in typing.get_args(annotation) for kind in types_in(part)}


def test_every_type_that_a_user_receives_is_exported() -> None:
    exported = {getattr(cv, name) for name in NAMES if inspect.isclass(getattr(cv, name))}
    internal = {"ColumnReference", "Basis", "PlanRequest", "Sampler", "Intervals", "Manifest", "Engine", "Config"}
    internal |= {"Answer", "Schema", "Column", "Any", "All", "Membership"}  # parts of Composition and Question
    received = set()
    for name in CALLABLES:
        function = resolve(name)
        hints = typing.get_type_hints(function, localns={each: getattr(cv, each) for each in NAMES})
        received |= types_in(function if inspect.isclass(function) else hints.get("return"))
    for kind in list(exported):
        public = {each: getattr(cv, each) for each in NAMES}
        module = {**dict.fromkeys(internal, object), **public, **vars(sys.modules[kind.__module__])}
        for annotation in inspect.get_annotations(kind).values():
            known = eval(annotation, module) if isinstance(annotation, str) else annotation
            received |= types_in(known)
    missing = {kind.__name__ for kind in received - exported}
    assert missing <= internal, f"users receive {missing - internal}, which countveil does not export"


USER_SCRIPT = """
import typing

import countveil as cv

m: cv.Mechanism = cv.design(epsilon="1", delta="1e-6", policy="signed", method="auto", objective="delta")
certificate: cv.Certificate = m.certificate
law: cv.Law = m.law(3)
laws: cv.Laws = m.laws
profile: list[cv.CountProfile] = m.profile()
never: cv.Mechanism = cv.make_nonnegative(m)
composition: cv.Composition = cv.compose(m, 10, neighbours="replace")
bounds: cv.Bounds = composition.delta("1")
number: int = cv.affordable_answers(m, "3", "1e-6")
plan: cv.Plan = cv.plan(epsilon="3", delta="1e-6", answers=10, policy="signed", objective="margin")
grade: cv.Grade = cv.Grade(2, margin=3)
planned: tuple[cv.PlannedGrade, ...] = cv.plan(epsilon="3", delta="1e-6", grades={"fine": grade}).grades
comparison: cv.Comparison = cv.compare(epsilon="1", delta="1e-6")
chart: cv.Chart = cv.plot(comparison)
row: cv.ComparisonRow = comparison.rows[0]


def ask(source: cv.Curator | cv.Connection) -> cv.Total:
    condition: cv.Condition = cv.col("age") >= 65
    datasets: list[cv.DatasetSummary] = source.datasets()
    column: cv.ColumnSummary = datasets[0].columns[0]
    accuracy: cv.MechanismSummary = datasets[0].mechanism
    dry_run: cv.DryRun = source.dry_run(by=column.name, where=condition)
    table: cv.Table = source.count(by=column.name, where=condition, frame="pandas")
    truth: cv.Truth | None = table.truth
    receipt: cv.Receipt | None = source.receipt(table.receipt.id)
    history: list[cv.HistoryEntry] = source.history()
    budget: list[cv.PoolBudget] = source.budget()
    share: cv.Share = budget[0].shares["ann"]
    of_fine: cv.Standing = share.grades["fine"]
    grade: cv.GradeBudget = budget[0].grades[0]
    publications: list[cv.PublicationSummary] = source.publications()
    edition: cv.EditionSummary = publications[0].editions[-1]
    guarantee: cv.Guarantee = edition.guarantee
    tables: tuple[cv.TableSummary, ...] = edition.tables
    publication: cv.Publication = source.publication(publications[0].name, edition.edition)
    findings: list[cv.Finding] = publication.verify()
    print(guarantee, tables, findings)
    print(accuracy, dry_run, truth, receipt, history, of_fine, grade)
    return table.subtotals(column.name)[0][1]


with cv.Curator.open("countveil.toml") as curator:
    question: cv.Question = curator.question(by="region")
    files: cv.ParquetTable = curator.count_to_parquet(question, output="tables")
    ask(curator)
tree: cv.Tree = cv.Tree.from_parents({"county": (None, [0, 0]), "town": ("county", [0, 0, 1])})
level: cv.Level = tree.levels[1]
split: cv.BudgetSplit = cv.split_budget(tree, weights={"town": 1.0})
estimate: cv.Estimate = "unbiased"
tables: cv.Reconciliation = cv.reconcile(tree, {"town": [3, 4, 5]}, m, estimate=estimate)
towns: cv.ReconciledTable = tables["town"]
sums: cv.MarginTable = tables.margin("town", [0, 1, 0])
gaps: cv.ExpectedGaps = cv.expect_gaps(tree, {"town": [3, 4, 5]}, m, "town", [0, 1, 0])
policy: cv.Policy = "floor"
method: cv.DesignMethod = "paper"
objective: cv.DesignObjective = "singleton"
plan_policy: cv.PlanPolicy = "nonnegative"
plan_method: cv.PlanMethod = "program"
plan_objective: cv.PlanObjective = "eta"
neighbours: cv.Neighbours = "add-remove"
kind: cv.FrameKind = "polars"
try:
    ask(cv.connect("https://counts.example.org", key="cvk_example"))
except (ERRORS) as error:
    print(error)


def publications(curator: cv.Curator) -> tuple[cv.PublicationOutlook, cv.Publication]:
    outlook = curator.plan_publication("census")
    tables: tuple[cv.TableOutlook, ...] = outlook.tables
    edition: cv.Publication = cv.Publication.open("edition-1")
    findings: list[cv.Finding] = edition.verify()
    changes: typing.Mapping[str, cv.TableChange] = edition.change(curator.publish("census"))
    return outlook, edition
"""


@pytest.mark.slow  # mypy reads the whole package
def test_a_user_script_that_names_every_type_passes_strict_mypy(tmp_path: Path) -> None:
    errors = ", ".join(f"cv.{name}" for name in NAMES if name.endswith("Error"))
    script = USER_SCRIPT.replace("ERRORS", errors)
    named = set(re.findall(r"\bcv\.(\w+)", script))
    assert set(NAMES) == named
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "wrong.py").write_text('import countveil as cv\ncv.design(epsilon="1", policy="sigend")\ncv.desing()\n')
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    checked = subprocess.run(
        [*command, "script.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    errors_found = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in errors_found] == [["wrong.py", "2"], ["wrong.py", "3"]], checked.stdout


def test_errors_have_the_builtin_bases_that_callers_expect() -> None:
    with pytest.raises(ValueError, match="epsilon: got -1"):
        cv.design(epsilon="-1", delta="1e-6")
    assert issubclass(cv.LedgerError, RuntimeError)
    assert issubclass(cv.ServiceError, ConnectionError)
    assert issubclass(cv.AccessError, PermissionError)
    assert issubclass(cv.MissingExtraError, ImportError)


@pytest.mark.parametrize(
    ("old", "new"), [("answers_within", "affordable_answers"), ("nonnegative", "make_nonnegative")]
)
def test_old_functions_work_and_warn(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"^countveil\.{old} is deprecated; use countveil\.{new}$") as caught:
        assert getattr(cv, old) is getattr(cv, new)
    assert caught[0].filename == __file__


def test_old_methods_of_a_curator_work_and_warn(tmp_path: Path) -> None:
    people(tmp_path)
    with cv.Curator.open(written(tmp_path)) as curator:
        with pytest.warns(DeprecationWarning, match=r"^release= is deprecated; use to_parquet=$"):
            assert curator.dry_run(by="region", release=True).cells == 4
        with pytest.warns(DeprecationWarning, match=r"^Curator\.release is deprecated; use Curator\.count_to_parquet$"):
            assert curator.release(by="region", output=tmp_path / "tables").cells == 4
        with pytest.warns(DeprecationWarning, match=r"^Curator\.open_budget is deprecated; use .*extend_budget$"):
            assert curator.open_budget("people", 2, "more").answers_total == 6


def test_old_members_of_a_mechanism_work_and_warn() -> None:
    m = cv.design(epsilon="1", eta="0.5", D=3, policy="signed")
    with pytest.warns(DeprecationWarning, match=r"^Mechanism\.column is deprecated; use Mechanism\.law$"):
        assert m.column(3) == m.law(3)
    with pytest.warns(DeprecationWarning, match=r"^Mechanism\.family is deprecated; use Mechanism\.laws$"):
        assert m.family == m.laws


def test_the_old_option_of_the_budget_command_works_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people(tmp_path)
    config = str(written(tmp_path))
    with cv.Curator.open(config) as curator:
        curator.count(by="region")
    budget = runner(monkeypatch, capsys, "budget")
    done = budget("people", "-c", config, "--open", "2", "--reason", "more")
    assert (done.code, done.err) == (0, "--open is deprecated; use --extend\n")
    assert "5 of 6 answers left" in done.out
    assert budget("people", "-c", config, "--open", "2", "--extend", "2", "--reason", "more").code == 2
