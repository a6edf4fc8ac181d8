"""Shared settings: property tests are reproducible and have no deadline (exact arithmetic takes the time it takes)."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

for folder in ("", "property"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
settings.register_profile("countveil", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("countveil")
