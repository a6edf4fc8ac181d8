"""SmartNoise SQL: a first table of visits by region, each patient bounded to three rows."""

import sys

import pandas as pd
import snsql

columns = {"patient": {"type": "int", "private_id": True}, "region": {"type": "string"}}
metadata = {"": {"visits": {"visits": {"max_ids": 3, "rows": 15_484, **columns}}}}
frame = pd.read_parquet(sys.argv[1], columns=["patient", "region"])
reader = snsql.from_df(frame, privacy=snsql.Privacy(epsilon=1.0, delta=1e-6), metadata=metadata)
_, *rows = reader.execute("SELECT region, COUNT(*) AS n FROM visits.visits GROUP BY region")
for region, count in sorted(rows):
    print(f"{region},{count}")
