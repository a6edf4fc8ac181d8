"""Faults of Spark: whether tasks fail, repeat or are lost, the table stays as it was drawn and is paid for once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'countveil[spark]'")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("java")]
ROOT = Path(__file__).parents[2]
MASTERS = {"local[2,4]": ["fails"], "local-cluster[2,1,1024]": ["lost"], "hosts": ["slow"]}


@pytest.mark.parametrize("master", MASTERS)
def test_faults_of_spark_tasks_change_no_number_and_are_not_charged_again(master: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_faults", master, str(tmp_path), *MASTERS[master]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {each["fault"]: each for each in json.loads(done.stdout.splitlines()[-1])}
    assert list(found) == MASTERS[master]
    for fault, each in found.items():
        assert each["identical"], fault
        assert (each["evaluations"], each["charges"], len(each["folders"])) == (1, 1, 1), fault
        assert each["parts"] == 4, fault
        check_attempts(tmp_path / fault / "drawn", fault)


def check_attempts(folder: Path, fault: str) -> None:
    """Check that the first task ran more than once and that all of its attempts drew the same noise."""
    drawn = defaultdict(list)
    for file in folder.iterdir():
        partition, batch, _, _ = file.name.split("-")
        drawn[partition, batch].append(np.load(file))
    assert len(drawn["0", "0"]) > 1, fault
    for attempts in drawn.values():
        assert all((attempt == attempts[0]).all() for attempt in attempts)
