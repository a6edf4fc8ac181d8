"""The entry for registries: the fields of their schema, filled from the manifest alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from countveil.publication.registry import describe_deployment
from tests.support.editions import make_edition, write_small

FIELDS = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}
"""The fields of the template of the registry, by section."""
CURATORS = {
    *("url_slug", "data_curator_name", "data_curator_type", "intended_use", "data_product_region"),
    *("data_product_sector", "number_of_privacy_units", "trust_assumptions", "actors", "release_type"),
    *("data_source_type", "data_source_type_details", "access_type_details", "justification", "evidence_sources"),
    *("registry_authors", "tier"),
}
"""What no manifest of a first edition knows."""


def find_unknown(entry: Any, name: str = "") -> Iterator[str]:
    """The fields that are null."""
    if entry is None:
        yield name
    elif isinstance(entry, dict):
        for key, value in entry.items():
            yield from find_unknown(value, key)
    elif isinstance(entry, list):
        for value in entry:
            yield from find_unknown(value, name)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_small(tmp_path_factory.mktemp("small") / "out")
    entry = describe_deployment(folder.manifest)
    assert json.loads(folder.content("deployment.json")) == entry
    return dict(folder.manifest)


def test_the_registry_entry_has_the_fields_of_the_schema(manifest: dict[str, Any]) -> None:
    entry = describe_deployment(manifest)
    assert list(entry) == ["url_slug", "deployment"]
    assert {name: " ".join(section) for name, section in entry["deployment"].items()} == FIELDS
    assert set(find_unknown(entry)) == CURATORS


def test_the_registry_entry_states_what_the_manifest_states(manifest: dict[str, Any]) -> None:
    deployment = describe_deployment(manifest)["deployment"]
    loss, implementation = deployment["privacy_loss"], deployment["implementation"]
    assert deployment["basic"]["name"] == "yearbook"
    assert deployment["basic"]["publication_date"] == "2026-03-01"
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert loss["privacy_parameters"] == {"epsilon": 3.0, "delta": "1e-6"}
    assert "added or removed" in loss["privacy_unit_details"]
    assert manifest["guarantee"]["covers"] in loss["privacy_parameters_details"]
    for table in manifest["tables"]:
        assert table["law"]["mechanism"] in implementation["mechanisms"]
        assert f"{table['name']} ±{table['margin_published']}" in implementation["utility"]
    for receipt in manifest["receipts"]:
        assert receipt in implementation["additional_information"]
    assert "never negative" in implementation["post_processing"]


def test_the_registry_entry_describes_later_editions_and_replaced_people_and_lost_records(tmp_path: Path) -> None:
    edition = make_edition(estimate="unbiased", margins=False)
    changed: dict[str, Any] = {"epsilon": "unknown, at most 9 answers", "neighbours": "replace"}
    folder = write_small(tmp_path / "out", edition, number=2, version=2, **changed)
    deployment = describe_deployment(folder.manifest)["deployment"]
    model, loss = deployment["deployment_model"], deployment["privacy_loss"]
    assert (model["release_type"], model["data_source_type"]) == ("Many releases", "Dynamic")
    assert loss["privacy_parameters"] == {"epsilon": None, "delta": "1e-6"}
    assert "at most 9 answers" in loss["privacy_parameters_details"]
    assert "replaced" in loss["privacy_unit_details"]
    assert "can be negative" in deployment["implementation"]["post_processing"]
