"""ONS cell-key-perturbation: apply a p-table to a frame of cells with given counts; the noise it adds, as JSON.

    python cell_key_perturbation_apply.py PTABLE.csv COUNT,COUNT,... KEYS SEED CELLS

Microdata: for every count, CELLS cells of so many records each, with uniform record keys below KEYS.
"""

import contextlib
import io
import json
import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
from cell_key_perturbation.create_perturbed_table import create_perturbed_table

path, counts, keys, seed, cells = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
generator = np.random.default_rng(seed)
noise = {}
ptable = pd.read_csv(path)
for count in map(int, counts.split(",")):
    cell = np.repeat(np.arange(cells), count)
    frame = pd.DataFrame({"cell": cell, "one": 1, "record_key": generator.integers(0, keys, len(cell))})
    with contextlib.redirect_stdout(io.StringIO()):
        found = create_perturbed_table(
            data=frame, ptable=ptable, geog=["cell"], tab_vars=["one"], record_key="record_key", threshold=0
        )
    added = (found["count"] - found["pre_sdc_count"]).astype(int)
    noise[str(count)] = {str(v): int(n) for v, n in added.value_counts().items()}
print(json.dumps({"version": version("cell-key-perturbation"), "noise": noise}))
