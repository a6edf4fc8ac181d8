"""OpenDP: integer vectors with geometric (discrete Laplace) noise of scale 1. Draws: see the command line."""

import json
import sys
import timeit
from importlib.metadata import version

import opendp.prelude as dp

dp.enable_features("contrib")
draws = int(sys.argv[1])
space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
noisy = space >> dp.m.then_geometric(scale=1.0)
counts = [1000] * draws
seconds = min(timeit.repeat(lambda: noisy(counts), number=1, repeat=3))
print(json.dumps({"name": "OpenDP geometric", "version": version("opendp"), "draws": draws, "seconds": seconds}))
