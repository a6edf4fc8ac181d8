"""The keys that are documented are the keys that are read."""

from __future__ import annotations

from countveil.config import keys
from countveil.config.configuration import MOST_CELLS, MOST_CELLS_PER_PERSON, MOST_ROWS, Service
from countveil.query import declarations, derived
from countveil.query.schema import Schema
from tests.support.configuration_page import list_checked_keys, list_variables


def test_every_table_of_the_configuration_reads_documented_keys_only() -> None:
    """`set(grades)` stands for the names of the grades, which the file chooses."""
    names = ("TOP", "LEDGER", "SERVICE", "DATASET", "BUDGET", "GRADE", "PUBLICATION", "PUBLISHED_TABLE")
    tables = {f"keys.{name}" for name in names}
    assert list_checked_keys() == tables | {"set(grades)"}, "declare new keys in config/keys.py"
    assert {id(table) for table in keys.SECTIONS.values()} >= {
        id(getattr(keys, name.removeprefix("keys."))) for name in tables
    }


def test_every_key_of_a_column_is_documented() -> None:
    assert set(declarations.KEYS) == set(keys.COLUMN)
    assert {key for rule in derived.KEYS.values() for key in rule} - set(keys.COLUMN) == set(keys.DERIVED)


def test_every_environment_variable_is_documented() -> None:
    assert list_variables() == set(keys.ENVIRONMENT)


def test_documented_defaults_are_the_actual_defaults() -> None:
    assert (keys.SERVICE["rate"].default, keys.SERVICE["max_cells"].default) == (
        str(Service.rate),
        str(Service.max_cells),
    )
    assert keys.DATASET["max_cells"].default == str(Schema.max_cells)
    assert keys.DATASET["rows_per_person"].default == str(Schema.rows_per_person)
    assert keys.DATASET["neighbours"].default == f"`{Schema.neighbours}`"


def test_documented_limits_are_the_actual_limits() -> None:
    limits = {"rows_per_person": MOST_ROWS, "cells_per_person": MOST_CELLS_PER_PERSON, "max_cells": MOST_CELLS}
    for name, most in limits.items():
        assert keys.DATASET[name].takes == f"1 to {most}"
