"""OpenDP's polars integration: counts by region and score over public keys, each person truncated to so many rows,
discrete Laplace noise. (Version 0.16.0 fails on truncate_num_groups with two columns, which would keep so many groups.)

    python opendp_bounding.py FILE REGIONS SCORES CELLS
"""

import json
import resource
import sys
import time
from importlib.metadata import version

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
path, regions, scores, cells = sys.argv[1], *map(int, sys.argv[2:5])
score = "score" if scores == 1000 else "digit"
keys = pl.LazyFrame({"region": [f"region {i:03d}" for i in range(regions)]}).join(
    pl.LazyFrame({score: pl.Series(range(scores), dtype=pl.Int32)}), how="cross"
)
by = ["region", score]
started, spent = time.perf_counter(), time.process_time()
context = dp.Context.compositor(
    data=pl.scan_parquet(path),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(max_length=2**31)],
)
query = context.query().truncate_per_group(cells)
frame = query.group_by(by).agg(dp.len()).with_keys(keys).release().collect()
said = {
    "version": version("opendp"),
    "seconds": time.perf_counter() - started,
    "processor": time.process_time() - spent,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    "cells": frame.height,
}
print(json.dumps(said))
