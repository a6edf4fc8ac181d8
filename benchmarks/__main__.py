"""Every benchmark, one after another, each in a process of its own (`make bench`).

    python benchmarks [OPTION ...]

Options go to every benchmark, for example --save. A benchmark that needs something which is not here is skipped, with
one line that says what; one that fails does not stop the others. All of them together take hours on an idle machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from tests.support import needs  # noqa: E402

BENCHMARKS = sorted(path.stem for path in HERE.glob("*.py") if path != Path(__file__))
PACKAGES = {
    "accounting": ("scipy", "dp_accounting"),
    "grade_search": ("scipy",),
    "page": ("playwright", "pytest", "fastapi", "uvicorn", "jinja2"),
    "release": ("polars", "pyarrow"),
    "scale": ("pyspark", "pandas", "pyarrow"),
    "service": ("fastapi", "uvicorn", "jinja2", "pyarrow"),
}
"""What each imports beyond countveil's own dependencies; all of them come with `pip install -e '.[dev]'`."""
PROGRAMS = {"page": "chromium", "scale": "java"}
"""The program that each needs to measure anything, but not to print its help."""


def missing(name: str) -> str | None:
    """What a benchmark needs and does not find, and how to get it."""
    for package in PACKAGES.get(name, ()):
        if find_spec(package) is None:
            return f"the Python package {package} is missing: pip install -e '.[dev]'"
    program = PROGRAMS.get(name)
    if program and "--help" not in sys.argv and needs.find(program) is None:
        return needs.explain(program)
    if name == "service" and not os.path.isdir("/dev/shm"):
        return "/dev/shm, a folder in memory, is missing: it exists on Linux"
    return None


def main() -> int:
    failed = []
    for name in BENCHMARKS:
        lacking = missing(name)
        if lacking:
            print(f"== benchmarks/{name}.py skipped: {lacking}", flush=True)
            continue
        print(f"== benchmarks/{name}.py", flush=True)
        if subprocess.run([sys.executable, HERE / f"{name}.py", *sys.argv[1:]], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
