"""A user's own Spark session: its settings change no count, the session is not modified, and no data is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'countveil[spark]'")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("java")]


ROOT = Path(__file__).parents[4]


def test_the_session_of_a_user_is_left_unchanged_and_its_settings_change_no_count(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.support.spark_guest", str(tmp_path)]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["integers"], found["dates"], found["dollars"]) == (2, 2, 2)
    assert found["untouched"] == [True] * 5
    assert found["heard"]
    assert {*found["refused"]} == {
        "source: Spark could not evaluate and store the frame, so it cannot be counted; nothing was charged; "
        "the curator can see why with: frame.write.parquet(...)"
    }
    assert len(found["refused"]) == 6
    assert "secret" not in done.stderr + done.stdout
    assert found["without"] == 4
    assert found["again"] == [8, 2]
    assert found["stopped"] == (
        "source: the Spark session of this DataFrame was stopped; give a frame of a running session"
    )
    assert found["windows"][2] == found["windows"][0]
    assert found["windows"][:2] == [
        "source: the Spark session has spark.ui.enabled and spark.eventLog.enabled and spark.extraListeners on, so "
        "others can see row counts and the values of conditions; start it without, or set "
        "allow_spark_ui = true for the dataset",
        1,
    ]
    assert found["charges"] == [3, 3, 4]
    assert found["calendar"] == [1]
    assert found["extended"] == (
        "source: the Spark session has spark.sql.extensions=org.example.Odd, which can change what is counted; "
        "start it without"
    )
    assert found["left"] == 1
    assert list(temporary.glob("countveil-*")) == []
