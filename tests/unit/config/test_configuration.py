"""`countveil.toml`: valid settings are read, and every other entry is refused by its key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from countveil.config.configuration import load
from countveil.errors import ConfigError
from countveil.planning import Grade
from tests.support.curated import COLUMNS, QUICK, config_text, written

BUDGET = "dataset.people.budget"


def load_text(folder: Path, text: str, **environment: str) -> object:
    return load(written(folder, text), environment)


def refusal(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        load_text(folder, text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    return error.value


def test_every_setting_of_a_file_is_read(tmp_path: Path) -> None:
    config = load(
        written(
            tmp_path,
            '[ledger]\npath = "book"\nanchor = "/elsewhere/anchor"\n'
            + config_text(more="rows_per_person = 2\ncells_per_person = 3\nneighbours = 'replace'\nmax_cells = 99"),
        ),
        {},
    )
    people = config.dataset("people")
    assert (config.ledger, config.anchor) == (tmp_path / "book", Path("/elsewhere/anchor"))
    schema = people.schema
    assert (schema.unit, schema.rows_per_person, schema.cells_per_person) == ("person", 2, 3)
    assert (schema.neighbours, schema.max_cells) == ("replace", 99)
    assert people.source.directory == tmp_path  # relative paths start from the file's folder
    assert people.budget is not None
    assert (people.budget.epsilon, people.budget.delta, people.budget.answers) == ("10", "0.01", 4)
    assert (people.budget.pool, people.budget.policy, people.budget.objective) == ("people", "nonnegative", "variance")
    people.check_confirmed()


def test_missing_settings_have_defaults(tmp_path: Path) -> None:
    config = load(written(tmp_path), {})
    assert (config.ledger, config.anchor) == (tmp_path / "countveil.ledger", tmp_path / "countveil.ledger.anchor")
    schema = config.dataset("people").schema
    assert (schema.rows_per_person, schema.cells_per_person, schema.neighbours) == (1, 1, "add-remove")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[datasets.people]\n", "datasets"),
        ("colour = 1\n" + config_text(), "colour"),
        ("[ledger]\nfile = 'x'\n" + config_text(), "ledger.file"),
        (config_text(more="units = 'row'"), "dataset.people.units"),
        (config_text(budget=QUICK + "eps = '1'"), f"{BUDGET}.eps"),
        (config_text(columns=COLUMNS + "sex = { vals = [1] }"), "dataset.people.columns.sex"),
        (config_text(more='"two\\nlines" = 1'), "dataset.people.two lines"),
    ],
)
def test_an_unknown_key_is_refused(text: str, key: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).key == key


@pytest.mark.parametrize("missing", ["source", "unit"])
def test_a_dataset_without_source_or_unit_is_refused(missing: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in config_text().splitlines() if not line.startswith(missing))
    assert refusal(tmp_path, text).key == f"dataset.people.{missing}"


@pytest.mark.parametrize("missing", ["epsilon", "delta", "answers"])
def test_a_budget_without_epsilon_or_delta_or_answers_is_refused(missing: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in config_text().splitlines() if not line.startswith(missing))
    assert refusal(tmp_path, text).key == f"{BUDGET}.{missing}"


def test_a_file_without_datasets_or_columns_or_a_budget_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "").key == "dataset"
    assert refusal(tmp_path, config_text(columns="")).key == "dataset.people.columns"
    config = load(written(tmp_path, config_text().split("[dataset.people.budget]")[0]), {})
    with pytest.raises(ConfigError, match="no budget is declared, so nothing is answered"):
        config.dataset("people").check_confirmed()


def test_guessed_bounds_are_refused_until_confirmed(tmp_path: Path) -> None:
    dataset = load(written(tmp_path, config_text(more="bounds_guessed = true")), {}).dataset("people")
    assert not dataset.ready
    with pytest.raises(ConfigError, match="public or earlier knowledge") as error:
        dataset.check_confirmed()
    assert error.value.key == "dataset.people.bounds_guessed"
    dataset = load(written(tmp_path, config_text(more="bounds_guessed = false")), {}).dataset("people")
    dataset.check_confirmed()
    assert refusal(tmp_path, config_text(more="bounds_guessed = 1")).key == "dataset.people.bounds_guessed"


def test_guessed_domains_are_refused_until_confirmed(tmp_path: Path) -> None:
    text = config_text(columns='region = { values = ["North"], guessed = true }')
    with pytest.raises(ConfigError, match="guessed from the data") as error:
        load(written(tmp_path, text), {}).dataset("people").check_confirmed()
    assert error.value.key == "dataset.people.columns.region"
    load(written(tmp_path, text.replace("true", "false")), {}).dataset("people").check_confirmed()


BAD_NUMBERS = ['"0"', '"-1"', '"nan"', '"NaN"', '"inf"', '"-inf"', '"1e-400"', '"1e400"', '"1e-999999999"', "true"]
BAD_NUMBERS += ["[1]", "{ a = 1 }", '""', '"1,5"', '"0x1"', "1", "0.5", "nan", "inf", '"abc"', '"1/0"', "2026-01-01"]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_invalid_privacy_parameters_are_refused(name: str, value: str, tmp_path: Path) -> None:
    lines = [f"{name} = {value}" if line.startswith(name) else line for line in config_text().splitlines()]
    error = refusal(tmp_path, "\n".join(lines))
    assert error.key == f"{BUDGET}.{name}"
    assert "in quotes" in error.reason


@pytest.mark.parametrize(
    ("name", "value"), [("epsilon", "101"), ("epsilon", "0.0009"), ("delta", "1"), ("delta", "1e-16")]
)
def test_privacy_parameters_out_of_range_are_refused(name: str, value: str, tmp_path: Path) -> None:
    lines = [f'{name} = "{value}"' if line.startswith(name) else line for line in config_text().splitlines()]
    assert refusal(tmp_path, "\n".join(lines)).key == f"{BUDGET}.{name}"


@pytest.mark.parametrize("value", ["0", "-1", "1.0", "true", '"4"', "10000000", "[4]", "9" * 5000])
@pytest.mark.parametrize("name", ["answers", "rows_per_person", "cells_per_person", "max_cells"])
def test_invalid_whole_numbers_are_refused(name: str, value: str, tmp_path: Path) -> None:
    if (name, value) == ("max_cells", "10000000"):
        pytest.skip("allowed")
    if name == "answers":
        text = config_text(budget=QUICK.replace("answers = 4", f"answers = {value}"))
    else:
        text = config_text(more=f"{name} = {value}")
    error = refusal(tmp_path, text)
    if len(value) < 100:
        assert error.key.endswith(name)
        assert "whole number" in error.reason


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("neighbours = 'both'", "dataset.people.neighbours"),
        ("neighbours = 1", "dataset.people.neighbours"),
        ("cells = 'gone.csv'", "dataset.people.cells"),
        ("cells = ''", "dataset.people.cells"),
        ("cells = ['a.csv']", "dataset.people.cells"),
        ("delimiter = ';;'", "dataset.people.delimiter"),
        ("delimiter = '\"'", "dataset.people.delimiter"),
        ("delimiter = '→'", "dataset.people.delimiter"),
        ("table = 3", "dataset.people.table"),
        ("engine = ''", "dataset.people.engine"),
    ],
)
def test_invalid_values_are_refused(more: str, key: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, config_text(more=more)).key == key


@pytest.mark.parametrize(
    ("source", "more", "key"),
    [
        ("people.csv", "table = 'x'", "table"),
        ("people.tsv.gz", "table = 'x'", "table"),
        ("people.parquet", "table = 'x'", "table"),
        ("years/*", "table = 'x'", "table"),
        ("people.parquet", "table = 'x'\nengine = 'spark'", "table"),
        ("spark://people", "table = 'x'", "table"),
        ("people.parquet", "delimiter = ';'", "delimiter"),
        ("people.duckdb", "table = 'people'\ndelimiter = ';'", "delimiter"),
        ("postgresql://role@host/data", "table = 'people'\ndelimiter = ';'", "delimiter"),
    ],
)
def test_settings_without_effect_on_a_source_are_refused(source: str, more: str, key: str, tmp_path: Path) -> None:
    """Otherwise the same data could look like different data, with a second budget."""
    error = refusal(tmp_path, config_text(source=source, more=more))
    assert error.key == f"dataset.people.{key}"
    assert f"remove {key}" in error.reason
    moved = written(tmp_path, config_text(source="people.duckdb", more="table = 'x'"))
    with pytest.raises(ConfigError, match=r"^dataset\.people\.table"):
        load(moved, {"COUNTVEIL_SOURCE_PEOPLE": "people.csv"})


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("pool = 'a b'", "pool"),
        ("pool = 3", "pool"),
        ("on_new_data = 'same-plan'", "on_new_data"),
        ("policy = 'remap'", "policy"),
        ("objective = 'best'", "objective"),
        ("shares = { ann = 5 }", "shares.ann"),
        ("shares = { ann = 0 }", "shares.ann"),
        ("shares = [1]", "shares"),
        ("shares = { '' = 1 }", "shares"),
        ('shares = { "a\\u0007b" = 1 }', "shares"),
    ],
)
def test_invalid_budgets_are_refused(change: str, key: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, config_text(budget=QUICK + change)).key == f"{BUDGET}.{key}"


def test_the_removed_setting_on_new_data_is_refused_with_a_hint(tmp_path: Path) -> None:
    error = refusal(tmp_path, config_text(budget=QUICK + "on_new_data = 'same-plan'"))
    assert str(error) == f"{BUDGET}.on_new_data: remove this line: new data always continues the pool's plan"


@pytest.mark.parametrize("unit", ["", "a\\nb", "x" * 201])
def test_invalid_units_are_refused(unit: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, config_text(unit=unit)).key == "dataset.people.unit"


def test_bounds_per_person_are_refused_where_every_row_is_a_person(tmp_path: Path) -> None:
    assert "remove them" in refusal(tmp_path, config_text(unit="row", more="rows_per_person = 2")).reason


@pytest.mark.parametrize("name", ["a b", "1a", "", "é", "a.b", "x" * 101, "two\\nlines", "a'b"])
def test_invalid_dataset_names_are_refused(name: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, config_text().replace("[dataset.people", f'[dataset."{name}"'))
    assert "names of datasets" in error.reason


@pytest.mark.parametrize(
    "columns",
    [
        "a = []",
        "a = ['x', 'x']",
        "a = [1, 'x']",
        "a = [1, true]",
        "a = [1.5]",
        "a = [9223372036854775808]",
        "a = ['\\u0000']".replace("'", '"'),
        "a = 3",
        "a = {}",
        "a = { min = 1 }",
        "a = { min = 2, max = 1 }",
        "a = { min = 0, max = 1, step = 0 }",
        "a = { min = 0, max = 1, step = true }",
        "a = { min = 0.5, max = 1 }",
        "a = { min = true, max = true }",
        "a = { min = 2026-01-01T00:00:00Z, max = 2026-01-02T00:00:00Z }",
        "a = { values = [1], min = 0, max = 1 }",
        "a = { values = [1], guessed = 1 }",
        "a = { type = 'float', min = 0, max = 1 }",
        "a = { type = 'date', values = ['2026-02-30'] }",
        "a = { min = -9223372036854775808, max = 0 }",
        "a = [1]\nA = [2]",
        '"two\\nlines" = [1]',
    ],
)
def test_invalid_domains_are_refused(columns: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, config_text(columns=columns)).key.startswith("dataset.people.columns")


@pytest.mark.parametrize(
    "content",
    [
        b"[dataset",
        b"a = 1\na = 2\n",
        b"a = \xff",
        b"a = " + b"[" * 5000,
        b"x = 2026-02-30\n",
        b"\x00",
        b"a = " + b"1" * 5000,
    ],
    ids=["syntax", "twice", "latin", "deep", "date", "NUL", "digits"],
)
def test_a_file_that_is_not_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "countveil.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"is not (valid TOML|UTF-8 text)"):
        load(path, {})


def test_an_unreadable_file_is_refused_with_a_hint(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, "a\0b"):
        with pytest.raises(
            ConfigError, match="cannot be read; check its path and permissions, or make a configuration"
        ):
            load(path, {})


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "countveil.toml"
    path.write_bytes(b"\xef\xbb\xbf" + config_text().encode())
    assert load(path, {}).dataset("people").name == "people"


def test_environment_variables_override_the_file(tmp_path: Path) -> None:
    text = config_text() + config_text().replace("people]", "my-data]").replace("people.", "my-data.")
    path = written(tmp_path, '[ledger]\npath = "a"\nanchor = "b"\n' + text)
    config = load(
        None,
        {
            "COUNTVEIL_CONFIG": str(path),
            "COUNTVEIL_LEDGER": "/x/ledger",
            "COUNTVEIL_ANCHOR": "y.anchor",
            "COUNTVEIL_SOURCE_PEOPLE": "other.parquet",
            "COUNTVEIL_SOURCE_MY_DATA": "mine.csv",
        },
    )
    assert (config.ledger, config.anchor) == (Path("/x/ledger"), tmp_path / "y.anchor")
    assert config.dataset("people").source.location == "other.parquet"
    assert config.dataset("my-data").source.location == "mine.csv"
    assert load(path, {"COUNTVEIL_CONFIG": "/nowhere", "COUNTVEIL_LEDGER": ""}).ledger == tmp_path / "a"


def test_an_anchor_at_the_path_of_the_ledger_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, '[ledger]\npath = "a"\nanchor = "./a"\n' + config_text()).key == "ledger.anchor"


def test_datasets_of_one_pool_must_declare_the_same_budget(tmp_path: Path) -> None:
    first = config_text(budget=QUICK + 'pool = "all"')
    second = first.replace("dataset.people", "dataset.visits")
    config = load(written(tmp_path, first + "\n" + second), {})
    assert [d.name for d in config.pool("all")] == ["people", "visits"]
    error = refusal(tmp_path, first + "\n" + second.replace("answers = 4", "answers = 5"))
    assert error.reason == "differs from that of people in the same pool all; declare the same in both"


def test_datasets_of_one_pool_must_have_the_same_unit(tmp_path: Path) -> None:
    first = config_text(unit="person_id", budget=QUICK + 'pool = "all"')
    for unit in ("household_id", "row"):
        second = first.replace("dataset.people", "dataset.homes").replace("person_id", unit)
        error = refusal(tmp_path, f"{first}\n{second}")
        assert error.key == "dataset.homes.unit"
        assert error.reason == (
            f"is {unit}, and that of people in the same pool all is person_id: a pool protects one unit; give each "
            "unit a pool and a source of its own, or, if both identify the same people, one name to the column that "
            "does"
        )
        apart = second.replace('pool = "all"', "")
        assert len(load(written(tmp_path, f"{first}\n{apart}"), {}).pool("all")) == 1
    one = first.replace("person_id", "row")
    two = one.replace("dataset.people", "dataset.more")
    assert len(load(written(tmp_path, f"{one}\n{two}"), {}).pool("all")) == 2


def test_an_unknown_dataset_is_refused_with_the_declared_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope is not declared in countveil\.toml; declared: people"):
        load(written(tmp_path), {}).dataset("nope")


# -- grades ------------------------------------------------------------------------------------------------------------

TERMS = 'epsilon = "3"\ndelta = "1e-6"\n'
GRADES = "[dataset.people.budget.grades]\n"


def graded(grades: str, more: str = "") -> str:
    return config_text(budget=f"{TERMS}{more}\n{GRADES}{grades}\n")


def test_answers_alone_declare_one_grade_called_standard(tmp_path: Path) -> None:
    short = load(written(tmp_path), {}).dataset("people").require_budget()
    text = config_text(budget='epsilon = "10"\ndelta = "0.01"\n' + GRADES + "standard = { answers = 4 }\n")
    whole = load(written(tmp_path, text), {}).dataset("people").require_budget()
    assert short == whole
    assert (short.answers, short.default_grade, dict(short.grades)) == (4, "standard", {"standard": Grade(4)})


def test_the_targets_and_weights_and_policies_of_grades_are_read(tmp_path: Path) -> None:
    grades = """fine = { answers = 2, margin = 3 }
standard = { answers = 10, policy = "signed" }
coarse = { answers = 40, weight = "0.25" }
bounded = { answers = 1, D = 20, policy = "floor" }
even = { answers = 1, variance = "2.5" }
exact = { answers = 1, eta = "0.5" }"""
    budget = load(written(tmp_path, graded(grades)), {}).dataset("people").require_budget()
    assert dict(budget.grades) == {
        "fine": Grade(2, margin=3),
        "standard": Grade(10, policy="signed"),
        "coarse": Grade(40, weight="0.25"),
        "bounded": Grade(1, D=20, policy="floor"),
        "even": Grade(1, variance="2.5"),
        "exact": Grade(1, eta="0.5"),
    }
    assert (budget.answers, budget.default_grade) == (55, "standard")


@pytest.mark.parametrize(
    ("grades", "more", "key"),
    [
        ("fine = { answers = 2 }\ncoarse = { answers = 2 }", "", "default_grade"),
        ("fine = { answers = 2 }", "default_grade = 'coarse'", "default_grade"),
        ("fine = { answers = 2 }", "answers = 4", "answers"),
        ("fine = 2", "", "grades.fine"),
        ("", "", "grades"),
        ("fine = { answers = 0 }", "", "grades.fine.answers"),
        ("fine = { margin = 3 }", "", "grades.fine.answers"),
        ("fine = { answers = 2, margins = 3 }", "", "grades.fine.margins"),
        ("fine = { answers = 2, margin = -1 }", "", "grades.fine.margin"),
        ("fine = { answers = 2, weight = 0.25 }", "", "grades.fine.weight"),
        ("fine = { answers = 2, weight = 'much' }", "", "grades.fine.weight"),
        ("fine = { answers = 2, weight = true }", "", "grades.fine.weight"),
        ("fine = { answers = 2, margin = 3, weight = 2 }", "", "grades.fine"),
        ("fine = { answers = 2, policy = 'remap' }", "", "grades.fine.policy"),
        ("Fine = { answers = 2 }", "", "grades"),
        ("fine = { answers = 2 }", "objective = 'margin'", "objective"),
        ("fine = { answers = 999999 }\nstandard = { answers = 2 }", "", "grades"),
    ],
)
def test_invalid_grades_are_refused(grades: str, more: str, key: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, graded(grades, more)).key == f"{BUDGET}.{key}"


@pytest.mark.parametrize(
    ("share", "key"),
    [("2", ""), ("{ fine = 3 }", ".fine"), ("{ coarse = 1 }", ".coarse"), ("{ fine = 0 }", ".fine"), ("'2'", "")],
)
def test_shares_are_read_for_each_grade(share: str, key: str, tmp_path: Path) -> None:
    grades = "fine = { answers = 2 }\nstandard = { answers = 4 }"
    shares = "[dataset.people.budget.shares]\nann = "
    good = load(written(tmp_path, graded(f"{grades}\n{shares}{{ fine = 1, standard = 4 }}")), {})
    assert good.dataset("people").require_budget().shares == {"ann": {"fine": 1, "standard": 4}}
    assert refusal(tmp_path, graded(f"{grades}\n{shares}{share}")).key == f"{BUDGET}.shares.ann{key}"


@pytest.mark.parametrize("name", ["~nobody-here/m.csv", "pipe", "link", "/dev/zero", "folder", "gone.csv", "large.csv"])
def test_a_public_file_must_be_a_regular_file_of_limited_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe would be waited for, and a device has no end."""
    monkeypatch.setattr("countveil.config.public_files.MAX_BYTES", 99)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large.csv").write_text("region,area\n" + "North,x\n" * 11)
    columns = f'region = ["North"]\narea = {{ from = "region", map = "{name}" }}'
    error = refusal(tmp_path, config_text(columns=columns))
    assert error.key == "dataset.people.columns.area.map"
    reason = "is too large; at most 99 bytes" if name == "large.csv" else "cannot be read; give the path of a CSV file"
    assert f"{name} {reason}" in str(error)


def test_a_publication_in_the_home_of_an_unknown_user_is_refused(tmp_path: Path) -> None:
    publication = '[publication.p]\ndataset = "people"\noutput = "~nobody-here/p"\ntables = [{ by = ["region"] }]\n'
    error = refusal(tmp_path, config_text() + publication)
    assert error.key == "publication.p.output"
    assert "no such user has a home" in str(error)
