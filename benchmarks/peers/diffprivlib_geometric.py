"""diffprivlib: one integer at a time, geometric mechanism at epsilon 1. Draws: see the command line."""

import json
import sys
import timeit
from importlib.metadata import version

from diffprivlib.mechanisms import Geometric

draws = int(sys.argv[1])
noisy = Geometric(epsilon=1.0, sensitivity=1).randomise
seconds = min(timeit.repeat(lambda: [noisy(1000) for _ in range(draws)], number=1, repeat=3))
print(
    json.dumps({"name": "diffprivlib geometric", "version": version("diffprivlib"), "draws": draws, "seconds": seconds})
)
