"""The package altair, imported when the first chart is drawn: it is an extra, and slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from altair import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        return getattr(import_module("altair"), name)
