"""Documentation by running: every Python example in README and docs, every command shown, the generated reference.

Run as a script, this rewrites docs/cli.md.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = (
    *("design", "compare", "plan", "nonnegative", "certify", "release", "audit", "figures"),
    *("init", "inspect", "count", "budget", "ledger"),
    *("ledger verify", "ledger log", "ledger backup", "ledger restore", "demo"),
    *("ptable", "ptable audit", "ptable design", "ptable export"),
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_examples(page: Path) -> None:
    results = doctest.testfile(str(page), module_relative=False)
    assert results.failed == 0


def shown_commands() -> list[str]:
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    found = [line[2:] for line in lines if line.startswith("$ countveil ")]
    helps = subprocess.run(
        [sys.executable, "-m", "countveil", "design", "--help"], capture_output=True, text=True, check=True
    )
    found += [line.strip() for line in helps.stdout.splitlines() if line.strip().startswith("countveil design --")]
    return list(dict.fromkeys(found))


def test_commands_shown_to_users_work(tmp_path: Path) -> None:
    commands = shown_commands()
    assert len(commands) >= 6
    for command in commands:
        words = shlex.split(command.split("  ")[0])
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout


def reference() -> str:
    """The command-line reference, from the commands' own help."""
    parts = ["# Command line\n\nGenerated from `--help` by `python tests/test_docs.py`.\n"]
    for words in ([], *(name.split() for name in COMMANDS)):
        done = subprocess.run(
            [sys.executable, "-m", "countveil", *words, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "100"},
        )
        title = " ".join(["countveil", *words])
        body = re.sub(r"^Usage: .*? \[", f"Usage: {title} [", done.stdout, count=1)
        parts.append(f"## {title}\n\n```text\n{body.rstrip()}\n```\n")
    return "\n".join(parts)


def test_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "run: python tests/test_docs.py"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(reference())
