"""OpenDP's polars integration: a first table of visits by region over public keys, three rows of each patient."""

import sys

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
context = dp.Context.compositor(
    data=pl.scan_parquet(sys.argv[1]),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("patient")),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(max_length=100_000)],
)
keys = pl.LazyFrame({"region": ["North", "South", "East"]})
query = context.query().truncate_per_group(3).group_by(["region"]).agg(dp.len()).with_keys(keys)
for region, count in query.release().collect().sort("region").rows():
    print(f"{region},{count}")
