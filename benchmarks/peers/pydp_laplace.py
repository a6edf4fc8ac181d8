"""python-dp: one integer at a time, Laplace mechanism at epsilon 1. Draws: see the command line."""

import json
import sys
import timeit
from importlib.metadata import version

from pydp.algorithms.numerical_mechanisms import LaplaceMechanism

draws = int(sys.argv[1])
add_noise = LaplaceMechanism(epsilon=1.0, sensitivity=1.0).add_noise
seconds = min(timeit.repeat(lambda: [add_noise(1000) for _ in range(draws)], number=1, repeat=3))
print(json.dumps({"name": "python-dp Laplace", "version": version("python-dp"), "draws": draws, "seconds": seconds}))
