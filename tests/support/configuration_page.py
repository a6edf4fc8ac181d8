"""docs/configuration.md: every key of countveil.toml and every environment variable, from `countveil.config.keys`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from countveil.config.keys import ENVIRONMENT, SECTIONS

SOURCE = Path(__file__).parents[2] / "src" / "countveil"
HEAD = """\
# Configuration

Generated from `src/countveil/config/keys.py` by `python -m tests.test_docs`. `countveil.toml` says which data, which
public schema and which budget. A key that is not listed here is an error. Paths are relative to the folder of the file,
and epsilon, delta and other decimals are written in quotes, because they are exact. `countveil init FILE` writes a
first file; [asking](asking.md) explains columns, [budget](budget.md) grades, pools and shares.

```toml
[ledger]
path = "countveil.ledger"

[dataset.people]
source = "people.parquet"
unit = "person_id"
rows_per_person = 3
cells_per_person = 2

[dataset.people.columns]
region = ["North", "South"]
age = { min = 0, max = 120, step = 10 }
age_group = { from = "age", bands = [0, 18, 65] }

[dataset.people.budget]
epsilon = "3"
delta = "1e-6"
answers = 50
```
"""
NOTES = {
    "[dataset.NAME.columns]": "Each entry is a column: a list of its values, or a table with these keys.",
    "Derived columns": "An entry with `from` is a function of another column: a table with these keys, and with "
    "`min`, `max`, `labels` and `guessed` as above. See [derived columns](asking.md#derived-columns).",
    "[dataset.NAME.budget.grades]": "Each entry is a grade: a table with these keys. Give at most one of `margin`, "
    "`variance`, `eta`. See [budget](budget.md).",
    "[publication.NAME]": "See [publications](publications.md).",
    "Tables of a publication": "Each entry of `tables` is a table with these keys. An entry of `margins` is a list of "
    "columns, or such a table with a weight.",
}


def render_page() -> str:
    """The page, from the keys."""
    parts = [HEAD]
    for title, keys in SECTIONS.items():
        note = f"{NOTES[title]}\n\n" if title in NOTES else ""
        rows = [f"| `{name}` | {key.takes} | {key.default} | {key.meaning} |" for name, key in keys.items()]
        heading = f"`{title}`" if title.startswith("[") else title
        parts.append(
            f"## {heading}\n\n{note}| key | takes | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows)
        )
    rows = [f"| `{name}` | {meaning} |" for name, meaning in ENVIRONMENT.items()]
    parts.append(
        "## Environment variables\n\nThey override the file; options of the command line override both.\n\n"
        "| variable | meaning |\n|---|---|\n" + "\n".join(rows)
    )
    return parts[0] + "\n" + "\n\n".join(parts[1:]) + "\n"


def list_checked_keys() -> set[str]:
    """The second argument of every call of `check_names` in the source, as text."""
    return {
        ast.unparse(node.args[1])
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "check_names"
    }


def list_variables() -> set[str]:
    """Every environment variable named in the source."""
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "keys.py")
    names = set(re.findall(r"\bCOUNTVEIL_[A-Z]+(?:_(?=[<{])|\b)", text))
    return {f"{name}NAME" if name.endswith("_") else name for name in names}
