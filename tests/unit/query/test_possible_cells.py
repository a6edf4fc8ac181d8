"""The public list of possible cells: what it says, which tables it restricts, and its refusals with the line."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from countveil.errors import ConfigError, QueryError
from countveil.query import Question, ask, joint_axes
from countveil.query.derived import parse_columns
from countveil.query.possible_cells import parse_cells
from countveil.query.public_tables import PublicTable, read_public_table
from countveil.query.schema import Schema

GEOGRAPHY = b"district,county\nd1,east\nd2,east\nd3,west\n"
DECLARED: dict[str, Any] = {
    "district": ["d1", "d2", "d3", "d4"],
    "county": {"from": "district", "map": "geography.csv"},
    "age": {"min": 0, "max": 99},
    "band": {"from": "age", "bands": [0, 18, 65]},
    "tens": {"min": 0, "max": 99, "step": 10},
    "sex": {"values": [1, 2], "labels": ["male", "female"]},
    "ok": {"type": "boolean"},
    "day": {"min": "2026-01-01", "max": "2026-01-31"},
}


def schema_of(lines: str | bytes, declared: dict[str, Any] = DECLARED) -> Schema:
    content = lines.encode() if isinstance(lines, str) else lines

    def read(path: str, key: str) -> PublicTable:
        return read_public_table(GEOGRAPHY if path == "geography.csv" else content, path, key)

    columns = parse_columns(declared, "columns", read)
    return Schema("people", columns, possible=parse_cells("possible.csv", columns, "cells", read))


def labels(question: Question) -> list[tuple[Any, ...]]:
    (axis,) = question.axes
    return list(zip(*(axis.labels(column) for column in axis.columns), strict=True))


def test_a_list_may_have_values_and_labels_of_every_kind() -> None:
    schema = schema_of("ok,sex,tens,day,district\ntrue,male,10-19,2026-01-02,d1\nfalse,2,90-99,2026-01-01,d4\n")
    assert schema.possible is not None
    written = [
        [str(column.key_labels()[i]) for column, i in zip(schema.possible.columns, row, strict=True)]
        for row in schema.possible.rows
    ]
    assert written == [
        ["True", "male", "10-19", "2026-01-02", "d1"],
        ["False", "female", "90-99", "2026-01-01", "d4"],
    ]
    (axis,) = ask(schema, by=["district", "tens", "sex"]).axes
    assert [axis.labels(column) for column in axis.columns] == [["d1", "d4"], ["10-19", "90-99"], ["male", "female"]]


def test_combinations_are_in_the_declared_order_not_that_of_the_file() -> None:
    schema = schema_of('band,district\n65+,d3\n0-17,d3\n"18-64",d1\n0-17,d1\n')
    assert labels(ask(schema, by=["district", "band"])) == [
        ("d1", "0-17"),
        ("d1", "18-64"),
        ("d3", "0-17"),
        ("d3", "65+"),
    ]


def test_a_list_restricts_tables_by_some_of_its_columns_and_by_columns_of_their_sources() -> None:
    schema = schema_of("county,band\neast,0-17\nwest,18-64\nwest,0-17\n")
    sizes = {
        "county": 2,
        "band": 2,
        "county,band": 3,
        "district": 3,  # d4 has no county, so the list excludes it
        "district,band": 4,
        "county,age": 18 + 65,
        "district,county,age": 18 + 18 + 65,
        "sex,county": 4,
        "district,band,sex,ok": 16,
        "sex": 2,
        "": 1,
    }
    assert {by: ask(schema, by=[name for name in by.split(",") if name]).cells for by in sizes} == sizes


def test_questions_with_the_same_cells_are_equal() -> None:
    schema = schema_of("county,band\neast,0-17\nwest,18-64\nwest,0-17\n")
    plain = replace(schema, possible=None)

    def hash_of(schema: Schema, *by: str, where: str | None = None) -> str:
        return ask(schema, by=by, where=where).sha256

    assert hash_of(schema, "district", "band") == hash_of(schema, "district", "county", "band")
    assert hash_of(schema, "county", "band") != hash_of(schema, "district", "band")
    assert hash_of(schema, "district", "band") != hash_of(plain, "district", "band")
    assert hash_of(schema, "sex", "ok") == hash_of(plain, "sex", "ok")  # the list has neither column
    assert hash_of(schema, "county") == hash_of(plain, "county")  # the list has every county
    assert hash_of(schema, "band", where="band <> '65+'") == hash_of(schema, "band")  # the list excludes 65+
    assert hash_of(schema, "district", where="county IS NOT NULL") == hash_of(schema, "district")
    every = schema_of(
        "county,band\n" + "".join(f"{c},{b}\n" for c in ("east", "west") for b in ("0-17", "18-64", "65+"))
    )
    assert hash_of(every, "county", "band") == hash_of(plain, "county", "band")


def test_the_part_of_the_list_that_a_question_uses_changes_its_hash() -> None:
    one = schema_of("county,band\neast,0-17\nwest,18-64\nwest,0-17\n")
    reordered = schema_of("county,band\nwest,18-64\nwest,0-17\neast,0-17\n")
    other = schema_of("county,band\neast,18-64\nwest,18-64\nwest,0-17\n")
    both = {"by": ["county", "band"]}
    assert ask(one, **both).sha256 == ask(reordered, **both).sha256 != ask(other, **both).sha256
    assert ask(one, by="band").sha256 == ask(other, by="band").sha256


def test_the_limit_of_cells_applies_to_the_possible_cells_only() -> None:
    schema = replace(schema_of("district,age\nd1,3\nd2,4\n"), max_cells=100)
    assert ask(schema, by=["district", "age"]).cells == 2
    with pytest.raises(QueryError, match="a table of 124 cells"):
        ask(schema, by=["district", "county", "age", "day", "sex"])


WIDE: dict[str, Any] = {
    "code": {"min": 0, "max": 5999},
    "half": {"from": "code", "bands": [0, 3000]},
    "other": {"min": 0, "max": 2999},
    "third": {"from": "other", "bands": [0, 1000, 2000], "max": 2999},
    "postal": {"min": 0, "max": 9_999_999},
    "zone": {"from": "postal", "bands": [0, 5_000_000]},
}


def test_values_that_the_list_leaves_out_do_not_count_against_the_limit_of_cells() -> None:
    schema = replace(schema_of("code\n7\n8\n5\n5999\n70\n", WIDE), max_cells=1000)
    (axis,) = ask(schema, by="code").axes
    assert axis.labels(schema.columns[0]) == [5, 7, 8, 70, 5999]
    question = ask(schema, by=["half", "code"])
    assert labels(question) == [(5, "0-2999"), (7, "0-2999"), (8, "0-2999"), (70, "0-2999"), (5999, "3000+")]
    with pytest.raises(QueryError, match=r"a table of 15000 cells \(code 6000 x other 3000\)"):
        ask(schema, by=["code", "other"])
    far = replace(schema_of("postal,code\n12345,1\n9999999,2\n", WIDE), max_cells=2)
    assert labels(ask(far, by=["postal", "code"])) == [(1, 12345), (2, 9999999)]
    assert labels(ask(schema_of("n\n1\n", {"n": {"min": 0, "max": 2**40}}), by="n")) == [(1,)]
    with pytest.raises(QueryError, match="a table by postal, zone, which has 10000000 bins; at most 100000 are"):
        ask(far, by=["postal", "zone"])


def test_a_table_with_too_many_possible_cells_is_refused_without_building_them() -> None:
    schema = schema_of("half,third\n0-2999,0-999\n3000+,1000-1999\n", WIDE)
    tracemalloc.start()
    try:
        with pytest.raises(QueryError, match=r"a table of 6000000 cells \(code 6000 x other 3000\); at most 2000000"):
            ask(schema, by=["code", "other"])
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_table_without_cells_is_refused() -> None:
    with pytest.raises(QueryError, match="a table by county, which has no cell"):
        ask(schema_of("district,sex\nd4,1\n"), by="county")


def test_a_table_of_too_many_combinations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_axes, "MOST_POSSIBLE", 50)
    schema = schema_of("band,sex\n18-64,1\n0-17,2\n")
    assert ask(schema, by=["band", "sex"]).cells == 2
    with pytest.raises(QueryError, match=r"200 combinations, of which 65 are possible; at most .* and 50 are allowed"):
        ask(schema, by=["age", "sex"])


BAD: dict[str, tuple[str | bytes, str]] = {
    "a column that is not declared": ("district,shoe\nd1,1\n", "line 1: shoe is not a declared column"),
    "a column of another case": ("District,sex\nd1,1\n", "line 1: District is not a declared column"),
    "a column twice": ("sex,sex\n1,1\n", "line 1: the header needs a different name"),
    "a value outside the domain": ("district,sex\nd1,1\nd9,1\n", "line 3: d9 is not a value of district"),
    "a number outside the range": ("age,sex\n100,1\n", "line 2: 100 is not a value of age"),
    "a value of another type": ("age,sex\n1.0,1\n", r"line 2: 1\.0 is not a value of age"),
    "a value within a group": ("tens,sex\n15,1\n", "line 2: 15 is not a value of tens"),
    "a label of another column": ("district,sex\neast,1\n", "line 2: east is not a value of district"),
    "an empty field": ("district,sex\nd1,\n", "line 2: an empty field"),
    "a combination twice": ("district,sex\nd1,1\nd1,1\n", "line 3: the same record as line 2"),
    "a value and its label": ("district,sex\nd1,1\nd1,male\n", "line 3: the same combination as line 2"),
    "a number written twice": ("age,sex\n7,1\n07,1\n", "line 3: the same combination as line 2"),
    "a child of another parent": ("county,district\neast,d1\nwest,d2\n", "line 3: west, d2 exclude each other"),
    "an age out of its band": ("age,sex,band\n70,1,0-17\n", "line 2: 70, 0-17 exclude each other"),
    "a child without a parent": ("district,county\nd4,east\n", "line 2: d4, east exclude each other"),
    "an empty file": ("", "needs a header and at least one record"),
    "only a header": ("district,sex\n", "needs a header and at least one record"),
    "NUL": ("district,sex\nd1,\x001\n", "line 2: a value has NUL"),
    "an open quote": ('district,sex\n"d1,1\n', "line 2: a quote or carriage return"),
    "a quote inside": ('district,sex\nd"1,1\n', "line 2: a quote or carriage return"),
    "a line break in a value": ('district,sex\n"d\n1",1\n', "line 2: 'd.*n1' is not a value of district|line 2: d"),
    "too few fields": ("district,sex\nd1,1\nd2\n", "line 3: 1 fields; the header has 2"),
    "bytes that are not text": (b"district,sex\nd1,1\nd\xff,1\n", "line 3: is not UTF-8 text"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_with_their_line(case: str) -> None:
    content, message = BAD[case]
    with pytest.raises(ConfigError, match=rf"possible\.csv,? (has|{message})|possible\.csv {message}") as error:
        schema_of(content)
    assert "\n" not in str(error.value)


def test_lists_of_too_many_values_are_refused() -> None:
    wide = {name: {"min": 0, "max": 10**9} for name in "abc"}
    with pytest.raises(ConfigError, match=r"more than 2\^62 combinations"):
        schema_of("a,b,c\n1,2,3\n", wide)
    with pytest.raises(ConfigError, match="a has 500,000,001 groups; at most 100,000 can be listed"):
        schema_of("a,b\n0-1,2\n", {"a": {"min": 0, "max": 10**9, "step": 2}, "b": wide["b"]})
