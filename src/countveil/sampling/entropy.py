"""The only door to randomness: uniform integers from the operating system's cryptographic source."""

from __future__ import annotations

import secrets


def uniform(bits: int) -> int:
    """A uniform integer in [0, 2**bits)."""
    return secrets.randbits(bits)
