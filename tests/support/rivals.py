"""The tables of rivals: in docs/mechanisms.md, docs/paper.md and docs/related-work.md.

python -m tests.support.rivals      measures every mechanism and writes the tables (about a minute)
"""

from __future__ import annotations

from pathlib import Path

import countveil as cv
from countveil.comparison.contenders import CONTENDERS
from countveil.comparison.table import ComparisonRow

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- rivals: python -m tests.support.rivals -->\n", "<!-- end of rivals -->"
TERMS: tuple[dict[str, str | int], ...] = (
    {"epsilon": "1", "delta": "1e-6"},
    {"epsilon": "3", "delta": "1e-6", "answers": 10},
    {"epsilon": "3", "delta": "1e-6", "answers": 30},
)
SHORT = ("countveil", "countveil-signed", "canonical", "renyi", "cactus", "discrete-gaussian", "geometric", "skellam")
PAGES = {"docs/mechanisms.md": SHORT, "docs/paper.md": SHORT, "docs/related-work.md": tuple(CONTENDERS)}
HEAD = """\
| mechanism | kind | one answer, (1, 1e-6): variance | largest error | 10 answers, (3, 1e-6): variance | \
30 answers, (3, 1e-6): variance | largest error |
|---|---|---|---|---|---|---|
"""


DUEL = ("countveil", "countveil-signed", "renyi")
DUEL_PAGE, DUEL_BEGIN, DUEL_END = "docs/related-work.md", "<!-- duel: as above -->\n", "<!-- end of duel -->"
DUEL_TERMS = (("3", 10), ("3", 20), ("3", 30), ("1", 10), ("1", 20))
DUEL_HEAD = """\
| epsilon, delta | answers | countveil | countveil signed | Renyi-optimal | least |
|---|---|---|---|---|---|
"""


def measure_duel() -> list[dict[str, ComparisonRow]]:
    """For each of DUEL_TERMS, the rows of our mechanisms and of the Renyi-optimal law."""
    return [
        {row.mechanism: row for row in cv.compare(epsilon=e, delta="1e-6", answers=k, mechanisms=DUEL).rows}
        for e, k in DUEL_TERMS
    ]


def render_duel(measured: list[dict[str, ComparisonRow]]) -> str:
    lines = []
    for (epsilon, answers), rows in zip(DUEL_TERMS, measured, strict=True):
        noise = " | ".join(f"{float(rows[key].variance):#.4g}" for key in DUEL)
        least = min(rows.values(), key=lambda row: row.variance).name
        lines.append(f"| {epsilon}, 1e-6 | {answers} | {noise} | {least} |\n")
    return DUEL_HEAD + "".join(lines)


def measure_all() -> list[dict[str, ComparisonRow]]:
    """For each of the terms, the rows by mechanism."""
    return [{row.mechanism: row for row in cv.compare(**terms).rows} for terms in TERMS]  # type: ignore[arg-type]


def render_table(measured: list[dict[str, ComparisonRow]], mechanisms: tuple[str, ...]) -> str:
    """The table of some mechanisms, sorted by the variance of the last column."""
    one, ten, thirty = measured
    named = [key for key in mechanisms if key in one or key in thirty]
    named.sort(key=lambda key: (key not in thirty, (thirty if key in thirty else one)[key].variance))
    lines = []
    for key in named:
        row = one.get(key) or thirty[key]
        cells = (
            _variance(one, key),
            _worst(one, key),
            _variance(ten, key),
            _variance(thirty, key),
            _worst(thirty, key),
        )
        lines.append(f"| {row.name} | {row.kind} | " + " | ".join(cells) + " |\n")
    return HEAD + "".join(lines)


def _variance(rows: dict[str, ComparisonRow], key: str) -> str:
    return f"{float(rows[key].variance):#.4g}" if key in rows else "-"


def _worst(rows: dict[str, ComparisonRow], key: str) -> str:
    if key not in rows:
        return "-"
    worst = rows[key].worst_error
    return "none" if worst is None else str(worst)


def read_table(page: str, begin: str = BEGIN, end: str = END) -> str:
    """The table that a page shows."""
    return (ROOT / page).read_text().partition(begin)[2].partition(end)[0]


def _write_table(page: str, table: str, begin: str = BEGIN, end: str = END) -> None:
    path = ROOT / page
    before, _, rest = path.read_text().partition(begin)
    path.write_text(before + begin + table + end + rest.partition(end)[2])


def main() -> None:
    measured = measure_all()
    for page, mechanisms in PAGES.items():
        _write_table(page, render_table(measured, mechanisms))
    _write_table(DUEL_PAGE, render_duel(measure_duel()), DUEL_BEGIN, DUEL_END)


if __name__ == "__main__":
    main()
