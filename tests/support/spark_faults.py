"""One release under faults, in a Spark session of its own: python -m tests.support.spark_faults MASTER FOLDER FAULT...

MASTER is Spark's name of one, or "hosts": a standalone cluster of two hosts, 127.0.0.2 and 127.0.0.3, because Spark
starts no speculative copy of a task on the host that runs it.

Every fault hits attempt 0 of the first task, after it has drawn. The draws of every attempt are kept in
FOLDER/FAULT/drawn. The released counts are printed as JSON, together with those that the driver alone releases from
the same true counts with the same noise key.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CELLS = 20_000
SECRET = bytes(range(32))
COLUMNS = f"region = ['North', 'South']\nage = {{ min = 0, max = {CELLS // 2 - 1} }}\n"


def hosts(folder: Path) -> str:
    """Start a master and two workers, which end with this process; returns the master's address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    place = ["--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), *place]]
    for host in ("127.0.0.2", "127.0.0.3"):
        room = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{host}"), *place]
        commands.append([f"{deploy}.worker.Worker", *room, master])
    for command in commands:
        words = [str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-class"), *command]
        started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(started.kill)
    return master


def start(master: str, folder: Path) -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    if master == "hosts":
        master = hosts(folder)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.executor.memory": "700m",
        "spark.speculation": "true",
        "spark.speculation.efficiency.enabled": "false",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def faulty(fault: str, marks: str) -> Callable[[Any], Any]:
    """A wrapper of a task's draw that leaves a mark for every drawn batch, and fails after the first batch."""

    def around(draw: Any) -> Any:
        def run(batches: Iterator[Any]) -> Iterator[Any]:
            import os
            import signal
            import time
            import uuid

            import numpy as np
            from pyspark import TaskContext

            task = TaskContext.get()
            first = task.partitionId() == 0
            for i, batch in enumerate(draw(batches)):
                name = f"{task.partitionId()}-{i}-{task.attemptNumber()}-{uuid.uuid4().hex}.npy"
                np.save(os.path.join(marks, name), batch.column(batch.num_columns - 1).to_numpy())
                if first and task.attemptNumber() == 0 and fault == "fails":
                    raise RuntimeError("a fault after drawing")
                deadline = time.monotonic() + 240
                while first and task.attemptNumber() == 0 and fault == "slow" and time.monotonic() < deadline:
                    if len([other for other in os.listdir(marks) if other.startswith("0-0-")]) > 1:
                        break  # a speculative copy has drawn too: now both want to write
                    time.sleep(0.05)
                alone = len([other for other in os.listdir(marks) if other.startswith("0-0-")]) == 1
                if first and alone and fault == "lost":  # a lost shuffle file starts the stage anew, at attempt 0
                    with open(f"/proc/{os.getppid()}/stat") as file:  # the daemon of the workers; its parent is the JVM
                        os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
                    time.sleep(20)
                yield batch

        return run

    return around


def release(folder: Path, fault: str) -> dict[str, object]:
    from countveil.curator import parquet_results
    from countveil.curator.curator import Curator
    from countveil.data.engines import spark_release
    from countveil.data.engines.spark import SparkEngine
    from countveil.sampling.randomness import NoiseKey
    from tests.support.curated import QUICK, charged, config_text, with_plan, written

    marks = folder / "drawn"
    marks.mkdir(parents=True)
    rng = np.random.default_rng(7)
    ages = rng.integers(0, CELLS // 2, 30_000)
    regions = np.array(["North", "South"])[rng.integers(0, 2, 30_000)]
    pq.write_table(pa.table({"region": regions, "age": ages}), folder / "people.parquet")
    text = config_text(source="people.parquet", unit="row", columns=COLUMNS, budget=QUICK, more='engine = "spark"')
    path = written(folder, text)
    with_plan(path)
    parquet_results.COLLECTED = 1000
    spark_release.CELLS_OF_A_PART = 5000
    kept = []

    def write_release(self: SparkEngine, question: Any, target: Path, **given: Any) -> str:
        kept.append((self.count(question, salt=given["salt"]), spark_release.mechanism_of(given["mechanism"])))
        return spark_release.write(
            self, question, target, **given, around=faulty(fault, str(marks)), noise=NoiseKey(SECRET)
        )

    SparkEngine.write_release = write_release  # type: ignore[method-assign]
    started = time.monotonic()
    with Curator.open(path) as curator:
        table = curator.count_to_parquet(by=["region", "age"], dataset="people", output=folder / "out")
        again = curator.count_to_parquet(by=["region", "age"], dataset="people", output=folder / "out")
        numbers = [[row[2] for row in each.frame.orderBy("region", "age").collect()] for each in (table, table, again)]
    counts, mechanism = kept[0]
    expected = mechanism.sampler.release(counts, NoiseKey(SECRET)).tolist()
    return {
        "fault": fault,
        "seconds": time.monotonic() - started,
        "identical": all(each == expected for each in numbers),
        "evaluations": len(kept),
        "charges": charged(path),
        "folders": sorted(os.listdir(folder / "out")),
        "parts": len(table.files),
    }


def main() -> None:
    master, folder, faults = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    warnings.simplefilter("ignore")
    session = start(master, folder)
    found = [release(folder / fault, fault) for fault in faults]
    session.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
