"""An outside check: ONS's own package applies our exported table, and the noise it adds follows our law.

The package lives in an environment of its own, which `make test-long` makes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from scipy.stats import chisquare

import countveil as cv
from countveil import ptables
from tests.support import needs

PEER = Path(__file__).parents[2] / ".venv-peer"
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "peers" / "cell_key_perturbation_apply.py"
SURE = 1e-9
KEYS = 4096


@pytest.fixture(scope="module")
def python() -> Path:
    """The python of an environment with the package."""
    if not (PEER / ".installed").exists():
        needs.miss("cell-key-perturbation is missing: make .venv-peer/.installed")
    return PEER / "bin" / "python"


def applied(python: Path, table: Path, counts: list[int], cells: int) -> dict[int, dict[int, int]]:
    """How often the package adds each noise v to so many cells of each count, as {count: {v: times}}."""
    words = [python, "-I", SCRIPT, table, ",".join(map(str, counts)), KEYS, 20261116, cells]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(done.stdout)["noise"]
    return {int(n): {int(v): times for v, times in noise.items()} for n, noise in found.items()}


def p_value(noise: dict[int, int], row: ptables.Row) -> float:
    """Pearson's test of the noise against a row; cells expected less than 10 times are pooled."""
    cells = sum(noise.values())
    if any(not row.weight(v) for v in noise):
        return 0.0
    expected = {v: cells * w / row.total for v, w in row.items()}
    common = [v for v in expected if expected[v] >= 10]
    rare = [v for v in expected if expected[v] < 10]
    observed = [noise.get(v, 0) for v in common] + [sum(noise.get(v, 0) for v in rare)] * bool(rare)
    wanted = [expected[v] for v in common] + [sum(expected[v] for v in rare)] * bool(rare)
    return float(chisquare(observed, wanted).pvalue)


def test_the_check_of_noise_accepts_the_law_and_rejects_narrower_and_wider_noise() -> None:
    row = ptables.Row(-1, (1, 2, 1), 4)
    assert p_value({-1: 250, 0: 500, 1: 250}, row) > 0.9
    assert p_value({-1: 325, 0: 350, 1: 325}, row) < SURE
    assert p_value({-1: 175, 0: 650, 1: 175}, row) < SURE
    assert p_value({-1: 250, 0: 500, 2: 250}, row) == 0


@pytest.mark.slow
@pytest.mark.parametrize("made", ["mechanism", "design"])
def test_the_ons_package_adds_noise_with_the_law_of_our_table(made: str, python: Path, tmp_path: Path) -> None:
    if made == "mechanism":
        table = ptables.export(cv.design(epsilon="1", eta="0.4", D=7), "ons", keys=KEYS).table
    else:
        table = ptables.design(D=7, V=4, js=2, format="ons", keys=KEYS).table
    path = tmp_path / "ptable.csv"
    ptables.save(table, path, "ons")
    small = applied(python, path, [1, 2, 3, 4, 8, 30], 20_000)
    large = applied(python, path, [500, 751, 1001], 1_500)
    other = ptables.design(D=7, V="0.8", format="ons", keys=KEYS).table
    for n, noise in {**small, **large}.items():
        row = table.row(n)
        assert max(map(abs, noise)) <= 7
        assert min(noise) >= -n
        assert p_value(noise, row) > SURE
        assert p_value(noise, other.row(n)) < SURE
    assert sum(sum(noise.values()) for noise in small.values()) == 6 * 20_000
