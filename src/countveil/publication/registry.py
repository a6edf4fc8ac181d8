"""An entry for public registries of deployments of differential privacy: what is protected, how, and how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def describe_deployment(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The registry entry of an edition, from its manifest."""
    guarantee = manifest["guarantee"]
    return {"name": manifest["name"], "epsilon": guarantee["epsilon"], "delta": guarantee["delta"]}
