"""Tumult Analytics: counts by region and score of a Parquet file over public keys, and the same counts plain."""

import json
import os
import sys
import tempfile
import time
from importlib.metadata import version

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session

path, regions, scores, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.memory", "3g")
    .config("spark.sql.warehouse.dir", tempfile.mkdtemp(prefix="tmlt-"))
    .config("spark.sql.parquet.inferTimestampNTZ.enabled", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
frame = spark.read.parquet(path).select("region", "score")
frame = frame.withColumn("score", frame["score"].cast("bigint"))
keys = KeySet.from_dict({"region": [f"region {i:03d}" for i in range(regions)], "score": list(range(scores))})
plain, private, cells = [], [], 0
for _ in range(turns):
    started = time.perf_counter()
    frame.where(frame["score"] < scores).groupBy("region", "score").count().toPandas()
    plain.append(time.perf_counter() - started)
    started = time.perf_counter()
    session = Session.from_dataframe(PureDPBudget(1), "rows", frame, protected_change=AddOneRow())
    found = session.evaluate(QueryBuilder("rows").groupby(keys).count(), PureDPBudget(1)).toPandas()
    private.append(time.perf_counter() - started)
    cells = len(found)
print(json.dumps({"version": version("tmlt.analytics"), "plain": min(plain), "private": min(private), "cells": cells}))
