"""OpenDP's polars integration: counts by place and year of a Parquet file over public keys, discrete Laplace noise."""

import json
import resource
import sys
import time
from importlib.metadata import version

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
path, places, years, least = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
keys = pl.LazyFrame({"place": [f"place {i:04d}" for i in range(places)]}).join(
    pl.LazyFrame({"year": pl.Series(range(years), dtype=pl.Int32)}), how="cross"
)
start = time.perf_counter()
context = dp.Context.compositor(
    data=pl.scan_parquet(path),
    privacy_unit=dp.unit_of(contributions=1),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(max_length=2**31)],
)
query = context.query().filter(pl.col("age") >= least).group_by(["place", "year"]).agg(dp.len()).with_keys(keys)
frame = query.release().collect()
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"version": version("opendp"), "seconds": seconds, "cells": frame.height, "peak": peak}))
