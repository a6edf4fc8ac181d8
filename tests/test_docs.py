"""The documentation is run: Python examples and commands of README and docs, and the generated reference.

docs/http.md is one session: its commands, curl among them, and its Python run in order against the server it starts.

A figure from a benchmark is followed by a mark: the file in benchmarks/results and the words around the figure in that
file, with {} for the figure and ... for any one word:

    82 %<!-- service.txt: durably charged, 16 clients: {} %, -->       in text
    seconds = 14.72  # scale.txt: 10,000,000 ... {} the driver         in code

`python -m tests.test_docs` regenerates docs/cli.md, docs/errors.md and the pages of `MADE`, and updates the marked
figures.
"""

from __future__ import annotations

import doctest
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import countveil as cv
from countveil.cli import cli
from tests.support import api_page, configuration_page, figures, routes_page
from tests.support.curated import runner
from tests.support.error_page import list_errors, render_page
from tests.support.needs import need
from tests.support.serving import Server, clean

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVED = ROOT / "docs" / "http.md"
ADDRESS = "http://127.0.0.1:8000"
COMMANDS = (
    *("design", "compare", "plan", "nonnegative", "certify", "release", "audit", "figures"),
    *("init", "inspect", "count", "publish", "budget", "ledger"),
    *("ledger verify", "ledger log", "ledger backup", "ledger restore", "demo"),
    *("ptable", "ptable audit", "ptable design", "ptable export"),
    *("serve", "keys", "keys add", "keys list", "keys revoke"),
)
MADE = (api_page, configuration_page, routes_page)
"""Modules that make a page of the reference; `api_page` makes docs/api.md."""
SESSIONS = [ROOT / "docs" / name for name in ("tutorial.md", "many-rows.md", "schedule.md", "restore.md", "formats.md")]
SESSIONS.append(ROOT / "README.md")
"""Pages that are one session: what an example writes, the next ones read."""

LONG = {"composition.md", "paper.md"}
"""Pages whose examples compute figures of many mechanisms."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in LONG else (), id=page.name)
        for page in PAGES
        if page not in (SERVED, *SESSIONS)
    ],
)
def test_python_examples_print_the_shown_output(page: Path) -> None:
    results = doctest.testfile(str(page), module_relative=False)
    assert results.failed == 0


def list_commands(page: Path) -> list[str]:
    """The commands of a page in order, each once."""
    lines = [line[2:] for line in page.read_text().splitlines() if line.startswith("$ countveil ")]
    return list(dict.fromkeys(lines))


BEFORE = {"budget.md": ["countveil demo --out census"]}
"""Commands that a page assumes were run before."""


@pytest.mark.slow  # plans, figures and a demo, for every page that shows them
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p not in (SERVED, *SESSIONS) and list_commands(p)], ids=lambda p: p.name
)
def test_commands_shown_to_users_work(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in [*BEFORE.get(page.name, []), *list_commands(page)]:
        check_command(command, monkeypatch, capsys)


def test_examples_in_the_help_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = runner(monkeypatch, capsys, "design")
    lines = [line.strip() for line in run("--help").out.splitlines()]
    examples = [line for line in lines if line.startswith("countveil design --")]
    assert len(examples) >= 6
    for command in examples:
        check_command(command, monkeypatch, capsys)


def check_command(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Check that a command succeeds and prints something; its output."""
    name, *words = shlex.split(command.split("  ")[0])[1:]
    done = runner(monkeypatch, capsys, name)(*words)
    assert done.code == 0, f"{command}: {done.err}"
    assert done.out, command
    return done.out


@pytest.mark.parametrize("page", SESSIONS, ids=lambda p: p.name)
def test_the_session_on_a_page_runs_as_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one folder: Python, commands with the output that is shown, and configurations, which are written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    checker, names = doctest.OutputChecker(), dict[str, Any]()
    for _, language, indented in re.findall(
        r"^( *)```(console|python|toml)\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE
    ):
        text = textwrap.dedent(indented)
        if language == "toml":
            Path("countveil.toml").write_text(text)
        elif language == "python":
            test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
            assert doctest.DocTestRunner(checker, optionflags=doctest.ELLIPSIS).run(test, clear_globs=False).failed == 0
            names = test.globs
        for command, expected in commands(text) if language == "console" else ():
            if command.startswith("cd "):
                monkeypatch.chdir(command[3:])
                continue
            output = check_command(command, monkeypatch, capsys)
            assert checker.check_output(expected, output, doctest.ELLIPSIS) or not expected, (command, output)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the console and Python blocks of a page, in order."""
    return re.findall(r"^```(console|python)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with its expected output."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    matches = [re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", part, re.DOTALL) for part in parts]
    return [(match[1], match[2]) for match in matches if match is not None]


@pytest.mark.smoke
def test_the_session_on_the_page_of_the_service_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("curl")
    environment, names = {**clean(), "NO_PROXY": "*"}, {}
    checker, checked, server = doctest.OutputChecker(), 0, None
    python = doctest.DocTestRunner(checker)
    try:
        for language, text in blocks(SERVED):
            text = text.replace(ADDRESS, server.url if server else ADDRESS)
            if language == "python":
                monkeypatch.setenv("COUNTVEIL_KEY", environment["COUNTVEIL_KEY"])
                test = doctest.DocTestParser().get_doctest(text, names, SERVED.name, str(SERVED), 0)
                assert python.run(test, clear_globs=False).failed == 0
                names = test.globs
                continue
            for command, expected in commands(text):
                if command.startswith("countveil serve") and command.endswith("&"):
                    words = shlex.split(command.removesuffix("&"))
                    server = Server(tmp_path / words[words.index("-c") + 1])
                    text = text.replace(ADDRESS, server.url)
                    continue
                output, environment = run_in_shell(command, tmp_path, environment)
                if expected:
                    want = expected.rstrip("\n") + "\n"
                    checked += 1
                    assert checker.check_output(want, output.rstrip("\n") + "\n", doctest.ELLIPSIS), (command, output)
    finally:
        if server is not None:
            server.stop()
    assert server is not None
    assert python.tries >= 8
    assert checked >= 12


def run_in_shell(command: str, folder: Path, environment: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The output of a command and the environment variables after it; `umask` and the like are not kept."""
    variables = folder / "environment"
    here = f'umask 077\ncountveil() {{ {shlex.quote(sys.executable)} -m countveil "$@"; }}\nset -e\n'
    script = f"{here}{command}\nenv -0 > {shlex.quote(str(variables))}\n"
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    entries = variables.read_text().rstrip("\0").split("\0")
    return done.stdout, dict(entry.split("=", 1) for entry in entries)


def test_the_page_of_the_service_lists_every_problem_kind() -> None:
    from countveil.errors import ProblemKind

    rows = re.findall(r"^\| ([0-9]+) \| `([a-z-]+)` \| ([0-9]) \| `(\w+)` \|", SERVED.read_text(), re.MULTILINE)
    kinds = [(kind.status, kind.slug, kind.code, kind.error.__name__) for kind in ProblemKind]
    assert sorted((int(status), name, int(code), error) for status, name, code, error in rows) == sorted(kinds)


def test_the_page_of_the_service_names_every_route() -> None:
    from countveil.service.routes import plain, v1

    text = SERVED.read_text()
    for route in (*v1.routes, *plain.routes):
        assert f"{route.path}`" in text, f"docs/http.md does not name {route.path}"  # type: ignore[attr-defined]


def path_of(maker: ModuleType) -> Path:
    """The page that a module makes."""
    return ROOT / "docs" / f"{maker.__name__.rpartition('.')[2].removesuffix('_page')}.md"


def reference() -> str:
    """The command-line reference, made from the help of the commands."""
    parts = ["# Command line\n\nGenerated from `--help` by `python -m tests.test_docs`.\n"]
    for words in ([], *(name.split() for name in COMMANDS)):
        done = CliRunner().invoke(cli, [*words, "--help"], prog_name="countveil", terminal_width=98)
        assert done.exit_code == 0, words
        title = " ".join(["countveil", *words])
        body = re.sub(r"^Usage: .*? \[", f"Usage: {title} [", done.output, count=1)
        parts.append(f"## {title}\n\n```text\n{body.rstrip()}\n```\n")
    return "\n".join(parts)


def test_the_command_line_reference_is_up_to_date() -> None:
    """Generated in a new process, because commands remember the name of their first call."""
    code = "from tests.test_docs import reference; print(reference(), end='')"
    generated = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "docs" / "cli.md").read_text() == generated, "run: python -m tests.test_docs"


def test_the_page_of_errors_is_up_to_date() -> None:
    """Every error class is on it, with the message that its example raises now."""
    page = (ROOT / "docs" / "errors.md").read_text()
    assert page == render_page(), "run: python -m tests.test_docs"
    assert re.findall(r"^## (\w+)", page, re.MULTILINE) == [kind.__name__ for kind in list_errors()]


@pytest.mark.parametrize("maker", MADE, ids=lambda maker: maker.__name__.rpartition(".")[2])
def test_generated_pages_are_up_to_date(maker: ModuleType) -> None:
    assert path_of(maker).read_text() == maker.render_page(), "run: python -m tests.test_docs"


def test_links_between_pages_lead_to_existing_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_only_the_page_on_installing_says_where_countveil_comes_from() -> None:
    """Elsewhere `pip install "countveil[EXTRA]"` adds an extra to the installed countveil, which needs no index."""
    command = re.compile(r"pip install (?:\.|countveil)(?![\[\w])")
    assert [page.name for page in PAGES if command.search(page.read_text())] == ["install.md"]


RESULTS = ROOT / "benchmarks" / "results"
MARK = re.compile(
    r"(?P<figure>[0-9][0-9.,]*)(?P<unit> %)?\s*(?:<!--|#) (?P<file>[a-z_]+\.txt): (?P<row>.*?\{\}.*?)(?: -->|$)",
    re.MULTILINE,
)
NUMBER = r"([0-9](?:[0-9.,]*[0-9])?(?:e[-+]?[0-9]+)?)"


def read_result(mark: re.Match[str]) -> str:
    """The figure in the results file, with as many decimals as on the page."""
    results = " ".join((RESULTS / mark["file"]).read_text().split())
    before, after = (re.escape(part).replace(re.escape("..."), r"\S+") for part in mark["row"].split("{}"))
    numbers = re.findall(before + NUMBER + after, results)
    assert len(numbers) == 1, f"{mark['file']} has {len(numbers)} places like {mark['row']!r}"
    decimals = len(mark["figure"].partition(".")[2])
    return f"{float(numbers[0].replace(',', '')):,.{decimals}f}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_marked_figures_equal_the_benchmark_results(page: Path) -> None:
    for mark in MARK.finditer(page.read_text()):
        assert mark["figure"] == read_result(mark), f"{page.name}: {mark.group()}; run: python -m tests.test_docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_figures_beside_a_benchmark_are_marked(page: Path) -> None:
    """In a paragraph or row that names a benchmark, every figure with a unit has a mark."""
    unmarked = MARK.sub("", page.read_text())
    for paragraph in re.split(r"\n\n|\n(?=[|])", unmarked):
        if "benchmarks/" in paragraph:
            assert not re.findall(r"[0-9.,]+ ?(?:%|x\b|s\b|ms\b|[MG]B\b|times\b|answers\b)", paragraph), paragraph


@pytest.mark.parametrize("name", figures.PICTURES)
def test_pictures_are_drawn_from_the_benchmark_results(name: str) -> None:
    assert (figures.FIGURES / name).read_text() == figures.PICTURES[name](), "run: python -m tests.support.figures"


def test_the_pages_on_http_and_reliability_show_the_same_figures_of_the_service() -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("http.md", "reliability.md")]
    figures = [{(m["row"], m["figure"]) for m in MARK.finditer(page) if m["file"] == "service.txt"} for page in pages]
    assert len(figures[0]) == 3
    assert figures[0] == figures[1]


def test_the_citation_names_the_version() -> None:
    assert f"version: {cv.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_title_on_the_page_of_mechanisms_states_the_number_of_questions() -> None:
    title, table = re.search(
        r"^## (\w+) questions$.*?^\|---\|---\|\n(.*?)\n\n",
        (ROOT / "docs" / "mechanisms.md").read_text(),
        re.MULTILINE | re.DOTALL,
    ).groups()
    assert title == ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven")[len(table.splitlines())]


def test_files_named_in_texts_exist() -> None:
    """Paths in texts are relative to the root, to docs, or to the file with the text."""
    folders = ("src", "docs", "tests", "vectors", "benchmarks")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".md", ".json")
    ]
    for path in (*files, *ROOT.glob("*.md"), ROOT / "Makefile"):
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"(?<![\w./-])([\w-]+(?:/[\w-]+)*\.md)(?!\w)", text)
        names += re.findall(r"(?<![\w./-])((?:tests|benchmarks)/[\w/-]+\.(?:py|txt))\b", text)
        for name in names:
            places = (ROOT, ROOT / "docs", path.parent)
            assert any((place / name).exists() for place in places), f"{path.relative_to(ROOT)} names {name}"


def test_make_bench_runs_every_benchmark_and_every_benchmark_starts() -> None:
    """`make bench` runs every benchmark; here each prints its help, which needs all of its imports and no server."""
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # as if make were not running already
    recipe = subprocess.run(
        ["make", "-n", "bench"], cwd=ROOT, env=alone, capture_output=True, text=True, check=True
    ).stdout
    assert recipe.splitlines()[-1].endswith("/python benchmarks ")
    done = subprocess.run(
        [sys.executable, "benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for path in (ROOT / "benchmarks").glob("[a-z]*.py"):
        assert f"== benchmarks/{path.name}\nusage: {path.name} " in done.stdout


def test_a_benchmark_names_its_missing_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTVEIL_BARE", "1")
    bench = runpy.run_path(str(ROOT / "benchmarks" / "__main__.py"))
    assert bench["missing"]("scale") == "Java is missing: make test-system, or apt-get install openjdk-17-jre-headless"
    assert bench["missing"]("page") == "Chromium is missing: make test-system, or apt-get install chromium"
    assert bench["missing"]("ledger") is None


def rewrite_figures(page: Path) -> None:
    text = page.read_text()
    for mark in reversed(list(MARK.finditer(text))):
        text = text[: mark.start("figure")] + read_result(mark) + text[mark.end("figure") :]
    page.write_text(text)


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(reference())
    (ROOT / "docs" / "errors.md").write_text(render_page())
    for maker in MADE:
        path_of(maker).write_text(maker.render_page())
    for shown in PAGES:
        rewrite_figures(shown)
