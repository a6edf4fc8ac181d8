"""OpenDP: integer vectors with discrete Gaussian noise of scale 1. Draws: see the command line."""

import json
import sys
import timeit
from importlib.metadata import version

import opendp.prelude as dp

dp.enable_features("contrib")
draws = int(sys.argv[1])
space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
noisy = space >> dp.m.then_gaussian(scale=1.0)
counts = [1000] * draws
seconds = min(timeit.repeat(lambda: noisy(counts), number=1, repeat=3))
print(json.dumps({"name": "OpenDP Gaussian", "version": version("opendp"), "draws": draws, "seconds": seconds}))
