"""docs/api.md: every public name of countveil in the groups of the package's docstring, described by its docstring."""

from __future__ import annotations

import inspect
import re

import countveil as cv

HEAD = """\
# Python

Generated from the docstrings by `python -m tests.test_docs`. These names are the public API, imported with
`import countveil as cv`; modules and packages below `countveil` are internal.
"""


def render_page() -> str:
    """The page: a directive of Sphinx for every name."""
    parts = [HEAD]
    for line in str(cv.__doc__).partition("may change at any time.\n")[2].splitlines():
        if match := re.fullmatch(r"    (\w+)  +\S.*", line):
            name = match[1]
            parts.append(f"```{{eval-rst}}\n.. {directive(name)}:: countveil.{name}\n```\n")
        elif line.strip():
            parts.append(f"## {line.partition(',')[0]}\n")
    return "\n".join(parts)


def directive(name: str) -> str:
    """The directive of autodoc for a public name."""
    value = getattr(cv, name)
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) and not hasattr(value, "__args__") else "autodata"
