"""Countveil in a Spark session that the user started, with Spark's default logging.

Run as: python -m tests.support.spark_guest FOLDER

The results are printed as JSON; the test reads everything that is printed to stderr.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

warnings.simplefilter("ignore")
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYSPARK_PYTHON"] = sys.executable
LEFT: list[Any] = []
"""Curators that nobody closes."""


def main(folder: Path) -> dict[str, Any]:
    from pyspark import RDD
    from pyspark.sql import SparkSession

    from countveil.curator.curator import Curator
    from countveil.data.engines import Source
    from countveil.data.engines.spark import SparkEngine
    from countveil.data.engines.spark_storage import store
    from countveil.errors import EngineError
    from countveil.query import ask
    from countveil.query.schema import Column, Schema
    from tests.support.curated import QUICK, charged, config_text, with_plan, written

    def started() -> Any:
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        session.conf.set("spark.sql.parser.escapedStringLiterals", "true")
        session.conf.set("spark.sql.groupByOrdinal", "false")
        return session

    user, found = started(), {}
    log = user._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    user.sql("SELECT 1").collect()

    def state() -> list[Any]:
        return [sorted(user.conf.getAll.items()), str(log.getLevel()), SparkSession.getActiveSession() is user]

    before, bound = state(), RDD.toDF
    numbers = [("3", "2020-01-02", "x${b}y"), ("x", None, None), ("-7", "2020-01-03", "n")]
    frame = user.createDataFrame(numbers, "n STRING, d STRING, `a${spark.app.name}` STRING")
    columns = (
        Column("n", "integer", low=-9, high=9),
        Column("d", "date", low=737425, high=737440),
        Column("a${spark.app.name}", "text", ("x${b}y", "n")),
    )
    schema = Schema("people", columns)

    def counted() -> None:
        engine = SparkEngine(Source(frame=frame), schema)
        for name, column in zip(("integers", "dates", "dollars"), columns, strict=True):
            found[name] = int(engine.count(ask(schema, by=[column.name]), salt=b"s").sum())
        engine.close()
        if threading.current_thread() is not threading.main_thread():
            found["active"] = SparkSession.getActiveSession() is None

    counted()
    found["untouched"] = [state() == before, RDD.toDF is bound]
    thread = threading.Thread(target=counted)
    thread.start()
    thread.join()
    found["untouched"] += [state() == before, bound is RDD.toDF, found.pop("active")]

    print("BEGIN", file=sys.stderr, flush=True)
    values = "SELECT concat('secret', id) AS word FROM range(8)"
    words = user.sql(values)
    bad = [user.sql(f"SELECT CAST(word AS INT) AS x FROM ({values})"), words.selectExpr("CAST(word AS INT) AS x")]
    bad.append(words.select(words.word.cast("int").alias("x")))
    one = Schema("people", (Column("x", "integer", low=0, high=9),))
    found["refused"] = []
    for each in bad:
        for run in (
            lambda each=each: SparkEngine(Source(frame=each), one).count(ask(one, by=["x"]), salt=b"s"),
            lambda each=each: store(Source(frame=each)),
        ):
            try:
                run()
            except EngineError as error:
                found["refused"].append(str(error))
    print("END", file=sys.stderr, flush=True)
    found["heard"] = state() == before
    user.createDataFrame([(1, True)], "age LONG, half BOOLEAN").write.parquet(str(folder / "people"))
    os.rename(next((folder / "people").glob("part-*")), folder / "people.parquet")
    text = "half = [false, true]\nage = { min = 0, max = 3 }\n"
    config = config_text(
        source="people.parquet", unit="row", columns=text, budget=QUICK.replace("4", "5"), more='engine = "spark"'
    )
    path = written(folder, config)
    with_plan(path)
    with Curator.open(path) as curator:
        table = curator.count_to_parquet(dataset="people", by="half", output=folder / "out")
        user.stop()
        found["without"] = int(curator.count(dataset="people", by="age").released.size)
        SparkSession.getActiveSession().stop()
        started()
        found["again"] = [int(curator.count(dataset="people", by=["age", "half"]).released.size), table.frame.count()]
        found["charges"] = charged(path)
    with Curator.open(path, sources={"people": frame}) as curator:
        try:
            curator.count(dataset="people", by="half", where="age = 1")
        except EngineError as error:
            found["stopped"] = str(error)
    found["charges"] = [found["charges"], charged(path)]
    SparkSession.getActiveSession().stop()
    watched = watching(folder)
    found["windows"] = []
    allowed = written(folder, config.replace("\nunit", "\nallow_spark_ui = true\nunit"), "allowed.toml")
    for each in (path, allowed):
        with Curator.open(each) as curator:
            try:
                found["windows"].append(int(curator.count(dataset="people", where="age = 1").released.size))
            except EngineError as error:
                found["windows"].append(str(error))
    found["charges"].append(charged(path))
    pq.write_table(pa.table({"d": [datetime.date(1500, 3, 1)]}), folder / "d.parquet")
    days = Schema("people", (Column("d", "date", (datetime.date(1500, 3, 1),)),))
    engine = SparkEngine(Source(str(folder / "d.parquet"), allow_spark_ui=True), days)
    found["calendar"] = engine.count(ask(days, by=["d"]), salt=b"s").tolist()
    watched.sparkContext._conf.set("spark.ui.enabled", "false")  # too late
    try:
        SparkEngine(Source(frame=watched.range(3)))
    except EngineError as error:
        found["windows"].append(str(error))
    watched.stop()
    odd = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.extensions", "org.example.Odd")
    try:
        SparkEngine(Source(frame=odd.getOrCreate().range(3)))
    except EngineError as error:
        found["extended"] = str(error)
    SparkSession.getActiveSession().stop()
    LEFT.append(Curator.open(path, sources={"people": started().sql("SELECT 1L AS age, true AS half")}))
    LEFT[0].dry_run(dataset="people")
    found["left"] = len(list(Path(tempfile.gettempdir()).glob("countveil-rows-*")))
    return found


def watching(folder: Path) -> Any:
    """A session with every option that shows its work to others, and with the Julian calendar."""
    from pyspark.sql import SparkSession

    (folder / "events").mkdir()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.port", "0").config("spark.ui.enabled", "true")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", str(folder / "events"))
    builder = builder.config("spark.extraListeners", "org.apache.spark.scheduler.StatsReportListener")
    return builder.config("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY").getOrCreate()


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
