"""Confirming a guess removes its mark from the file and nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from countveil.config.configuration import load
from countveil.config.confirmation import confirm, list_guesses
from countveil.errors import ConfigError
from tests.support.curated import config_text, written

TEXT = config_text(
    more="'bounds_guessed' = true   # chosen from the data\n             # and explained here\n# kept",
    columns='region = { values = ["a, guessed = true", "b"], guessed = true }   # , guessed = true\n'
    "age = { 'guessed' = true, min = 0, max = 9 }\n"
    "sex = { values = [0, 1], guessed = true }\n"
    'income_bin = { from = "income", bins = ["0", "10"], "guessed" = true }\n'
    '"a.b" = { guessed = true, type = "boolean" }\n',
)


def test_every_guess_is_listed_and_named_by_the_refusal(tmp_path: Path) -> None:
    config = load(written(tmp_path, TEXT), {})
    assert [guess.column for guess in list_guesses(config)] == [None, "region", "age", "sex", "income_bin", "a.b"]
    with pytest.raises(ConfigError, match=r"not confirmed: region, age, sex, income_bin, a\.b, bounds_guessed;"):
        config.dataset("people").check_confirmed()


def test_confirming_a_guess_leaves_the_rest_of_the_file_unchanged(tmp_path: Path) -> None:
    config = load(written(tmp_path, TEXT), {})
    text = TEXT
    for guess in list_guesses(config):
        before = tomllib.loads(text)
        text = confirm(text, guess)
        entry = before["dataset"]["people"]
        del (entry if guess.column is None else entry["columns"][guess.column])[
            "bounds_guessed" if guess.column is None else "guessed"
        ]
        assert tomllib.loads(text) == before
    assert "# kept" in text
    assert "explained here" not in text
    confirmed = load(written(tmp_path, text), {}).dataset("people")
    confirmed.check_confirmed()
    assert confirmed.schema.by_name["region"].values == ("a, guessed = true", "b")


def test_codes_get_labels_when_they_are_confirmed(tmp_path: Path) -> None:
    config = load(written(tmp_path, TEXT), {})
    (guess,) = (each for each in list_guesses(config) if each.codes)
    text = confirm(TEXT, guess, ['fe"male', "male"])
    sex = load(written(tmp_path, text), {}).dataset("people").schema.by_name["sex"]
    assert (sex.values, sex.labels, sex.guessed) == ((0, 1), ('fe"male', "male"), False)


def test_a_mark_that_cannot_be_removed_safely_is_refused(tmp_path: Path) -> None:
    text = config_text(columns='region = { values = ["a"], "gu\\u0065ssed" = true }')
    (guess,) = list_guesses(load(written(tmp_path, text), {}))
    with pytest.raises(ConfigError, match="delete it in the file by hand"):
        confirm(text, guess)
