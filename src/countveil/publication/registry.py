"""An entry for public registries of deployments of differential privacy: what is protected, how, and how much.

It follows the schema of the Differential Privacy Deployments Registry (deployments-schema.yaml of the repository
opendp/deployments-registry-data, as of 2026), whose records are YAML: JSON is YAML, so `deployment.json` can be the
beginning of a record. Every value follows from the manifest. What only the curator knows is null, to be filled in: who
publishes, for what use, about which region and sector, how many people there are, whom they trust, and why the
parameters were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

NEIGHBOURS = {
    "add-remove": "Two datasets are neighbours if one is the other with {person} added or removed (distance 1).",
    "replace": "Two datasets are neighbours if one is the other with {person} replaced by anything else (distance 1).",
}
POST_PROCESSING = {
    "nearest": "Weighted least squares over the tree of tables, then whole numbers that are never negative, within the "
    "certain bounds, and add up over all tables. It uses the noisy measurements and public facts alone.",
    "unbiased": "Weighted least squares over the tree of tables, then random rounding to whole numbers that add up and "
    "are right on average; they can be negative. It uses the noisy measurements and public facts alone.",
}


def describe_deployment(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The registry entry of an edition, from its manifest."""
    truth = manifest["truth"]
    return {
        "url_slug": None,
        "deployment": {
            "basic": {
                "name": manifest["name"],
                "data_curators": [{"data_curator_name": None, "data_curator_type": None}],
                "description": _describe_product(manifest),
                "intended_use": None,
                "data_product_type": "Summary statistics",
                "data_product_region": None,
                "data_product_sector": None,
                "publication_date": manifest["time"][:10],
            },
            "dp_variant": {
                "variant_name": "Pure DP" if Fraction(manifest["guarantee"]["delta"]) == 0 else "Approximate DP",
                "data_domain": f"All tables of rows with the columns of the public schema of {manifest['dataset']}, of "
                f"any size. Counted are {truth['text']}.",
                "unprotected_quantities": "None: tables and labels are public before the data is looked at, and every "
                "count is derived from noisy measurements.",
            },
            "privacy_loss": _describe_loss(manifest),
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "The curator counts and adds the noise; only noisy measurements, and what is "
                "derived from them, are published.",
                "trust_assumptions": None,
                "actors": None,
                "release_type": "Many releases" if manifest["edition"] > 1 else None,
                "release_type_details": f"Edition {manifest['edition']}, of version {manifest['data_version']} of the "
                f"data. The privacy parameters are for {manifest['guarantee']['covers']}; they do not start anew.",
                "data_source_type": "Dynamic" if manifest["data_version"] > 1 else None,
                "data_source_type_details": None,
                "access_type": "Non-interactive",
                "access_type_details": None,
            },
            "implementation": _describe_implementation(manifest),
            "administrative": {"evidence_sources": None, "status": "Draft", "registry_authors": [None], "tier": None},
        },
    }


def _describe_product(manifest: Mapping[str, Any]) -> str:
    tables = ", ".join(f"{each['name']} ({each['rows']:,})" for each in manifest["tables"])
    return (
        f"Edition {manifest['edition']} of tables of counts from {manifest['dataset']} that add up, with an interval "
        f"for every count. Tables, with their numbers of cells: {tables}."
    )


def _describe_loss(manifest: Mapping[str, Any]) -> dict[str, Any]:
    guarantee, truth = manifest["guarantee"], manifest["truth"]
    epsilon, delta, row = guarantee["epsilon"], guarantee["delta"], truth["unit"] == "row"
    person = "one row" if row else f"all rows with one value of {truth['unit']}"
    return {
        "privacy_unit": "Row-level: every row is one person" if row else f"Person-level: {truth['unit']}",
        "privacy_unit_details": NEIGHBOURS[guarantee["neighbours"]].format(person=person),
        "number_of_privacy_units": None,
        "privacy_parameters": {
            "epsilon": None if epsilon.startswith("unknown") else float(Fraction(epsilon)),
            "delta": delta,
        },
        "privacy_parameters_details": f"epsilon = {epsilon}, delta = {delta}, for {guarantee['covers']}: "
        f"{guarantee['answers']} answers of pool {guarantee['pool']}.",
    }


def _describe_implementation(manifest: Mapping[str, Any]) -> dict[str, Any]:
    truth = manifest["truth"]
    laws = "; ".join(
        f"{each['name']}: 95 % within ±{each['law']['margin_95']}, never beyond ±{each['law']['D']}, "
        f"mechanism {each['law']['mechanism']}"
        for each in manifest["tables"]
        if each["law"]
    )
    margins = ", ".join(f"{each['name']} ±{each['margin_published']}" for each in manifest["tables"])
    return {
        "preprocessing_and_hyperparameter_tuning": f"What one person adds is bounded while counting: {truth['text']}. "
        "Laws and margins follow from the public schema and the privacy parameters alone.",
        "mechanisms": f"Bounded integer noise, independent for every cell of every measured table. {laws}. It is "
        f"implemented by {manifest['made_with']}: laws are integer weights that sum to a power of two, their privacy "
        "is computed in integers, and one uniform random integer decides each draw, without floating-point numbers.",
        "composition": "All answers of the pool were planned together, and the delta of their composition at this "
        "epsilon is a certified upper bound, every rounding error included.",
        "post_processing": POST_PROCESSING[manifest["estimate"]],
        "justification": None,
        "utility": f"Widest 95 % margins of published counts, by table: {margins}. Intervals: "
        f"{manifest['intervals']}. Quality marks: {manifest['quality']}.",
        "additional_information": f"Receipts: {', '.join(manifest['receipts'])}. The folder of the edition has the "
        "laws, the hashes of all files, and certain bounds for every count.",
    }
