"""Derived columns as they are declared, and the refusals of declarations and of public files."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest

from countveil.errors import ConfigError, QueryError
from countveil.query import ask
from countveil.query.calendar import PERIODS, end_of, instant_of, load_zone, periods, start_of
from countveil.query.derived import parse_columns
from countveil.query.public_tables import MAX_BYTES, PublicTable, read_public_table
from countveil.query.schema import Schema

FILE = b"district,municipality,county\nd1,m1,east\nd2,m1,east\nd3,m2,west\n"


def declare(declared: dict[str, Any], file: bytes = FILE) -> Schema:
    def read(path: str, key: str) -> PublicTable:
        return read_public_table(file, path, key)

    return Schema("people", parse_columns(declared, "columns", read))


LABELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "open bands": ({"from": "x", "bands": [0, 15, 65]}, ["0-14", "15-64", "65+"]),
    "closed bands": ({"from": "x", "bands": [0, 15, 65], "max": 65}, ["0-14", "15-64", "65"]),
    "negative bands": ({"from": "x", "bands": [-5, 0, 1], "below": True}, ["under -5", "-5..-1", "0", "1+"]),
    "bands of dates": ({"from": "x", "bands": ["2020", "2021-07"]}, ["2020-01-01..2021-06-30", "from 2021-07"]),
    "closed bands of dates": ({"from": "x", "bands": ["2020", "2022"], "max": "2024"},
                              ["2020-01-01..2021-12-31", "2022-01-01..2024-12-31"]),
    "a band of one month": ({"from": "x", "bands": ["2024-02"], "max": "2024-02"}, ["2024-02-01..2024-02-29"]),
    "a band of one day": ({"from": "x", "bands": ["2024-02"], "max": "2024-02-01"}, ["2024-02-01"]),
    "a band to the last year": ({"from": "x", "bands": ["2024-02"], "max": "9999"}, ["2024-02-01..9999-12-31"]),
    "bins": ({"from": "x", "bins": ["0", "0.30", "+5"], "below": True},
             ["under 0", "0 to under 0.30", "0.30 to under 5", "5+"]),
    "closed bins": ({"from": "x", "bins": [0, 1], "max": "2.5"}, ["0 to under 1", "1 to under 2.5"]),
    "own labels": ({"from": "x", "bands": [0, 18], "labels": ["child", "adult"]}, ["child", "adult"]),
    "labels by name": ({"from": "x", "bands": [0, 18], "labels": {"18+": "adult"}}, ["0-17", "adult"]),
    "years": ({"from": "x", "by": "year", "min": 2023, "max": "2024"}, ["2023", "2024"]),
    "quarters": ({"from": "x", "by": "quarter", "min": "2023-Q4", "max": "2024-02-29"}, ["2023-Q4", "2024-Q1"]),
    "weeks": ({"from": "x", "by": "week", "min": "2024-12-29", "max": "2025-01-01"}, ["2024-W52", "2025-W01"]),
    "a map": ({"from": "district", "map": "geography.csv"}, ["m1", "m2"]),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_labels_are_in_their_declared_order(case: str) -> None:
    entry, labels = LABELS[case]
    column = declare({"municipality": entry}).columns[0]
    assert column.key_labels() == labels
    assert column.keys == ask(Schema("people", (column,)), by="municipality").cells == len(labels)


DAYS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "two days": ({"min": "2024-07-01", "max": "2024-07-02"}, {"by": "weekday"}, ["Monday", "Tuesday"]),
    "over a weekend": ({"min": "2024-07-06", "max": "2024-07-08"}, {"by": "weekday"}, ["Monday", "Saturday", "Sunday"]),
    "listed days": (
        {"type": "date", "values": ["2024-07-01", "2024-07-03"]},
        {"by": "weekday", "labels": {"Wednesday": "Wed"}},
        ["Monday", "Wed"],
    ),
    "listed months": (
        {"type": "date", "values": ["2024-01-31", "2024-03-01"]},
        {"by": "month"},
        ["2024-01", "2024-03"],
    ),
    "a shorter range": (
        {"min": "2024-07-01", "max": "2024-07-31"},
        {"by": "weekday", "min": "2024-07-03", "max": "2024-07-03"},
        ["Wednesday"],
    ),
}


@pytest.mark.parametrize("case", DAYS)
def test_periods_without_a_declared_day_are_left_out(case: str) -> None:
    days, entry, labels = DAYS[case]
    schema = declare({"d": days, "c": {"from": "d", **entry}})
    assert schema.by_name["c"].key_labels() == labels
    assert ask(schema, by="c").cells == len(labels)


def test_a_question_depends_on_the_instants_at_which_periods_begin_and_not_on_the_name_of_the_zone() -> None:
    """So a version of tzdata that moves the beginning of a period makes another question."""
    month = {"from": "t", "by": "month", "min": "2024-01", "max": "2024-06"}
    zones = ("Europe/Berlin", "Europe/Paris", "UTC")
    hashes = [ask(declare({"month": {**month, "zone": zone}}), by="month").sha256 for zone in zones]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("zone", ["America/St_Johns", "America/Goose_Bay", "Canada/Newfoundland"])
def test_a_date_that_is_left_and_reached_again_begins_when_it_is_first_reached(zone: str) -> None:
    known = load_zone(zone)
    assert known is not None
    start = instant_of(datetime.date(2010, 11, 7), known)
    dates = [datetime.datetime.fromtimestamp(start + s, known).date().day for s in (-1, 0, 59, 60, 3599, 3600)]
    assert dates == [6, 7, 7, 6, 6, 7]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "two functions": ({"from": "x", "bands": [0], "bins": ["0"]}, "one of bands, bins, by and map"),
    "no function": ({"from": "x"}, "one of bands, bins, by and map"),
    "an unknown key": ({"from": "x", "bands": [0], "step": 5}, "unknown key step"),
    "no list": ({"from": "x", "bands": 5}, "give a list"),
    "edges out of order": ({"from": "x", "bands": [5, 0]}, "greater than the one before"),
    "an edge twice": ({"from": "x", "bins": ["0.1", "0.10"]}, "greater than the one before"),
    "a max below the last edge": ({"from": "x", "bands": [0, 5], "max": 4}, "greater than the one before"),
    "a float as an edge": ({"from": "x", "bins": [0.1]}, "write decimals in quotes"),
    "a word as an edge": ({"from": "x", "bins": ["inf"]}, "is not an edge"),
    "an exponent": ({"from": "x", "bins": ["1e3"]}, "is not an edge"),
    "a decimal band": ({"from": "x", "bands": ["0.5"]}, "for decimals, write bins"),
    "an unknown period": ({"from": "x", "by": "hour", "min": "2024", "max": "2024"}, "allowed are year, quarter"),
    "no range": ({"from": "x", "by": "year"}, "give min and max"),
    "a range upside down": ({"from": "x", "by": "year", "min": "2024", "max": "2023"}, "min must not be after max"),
    "a year too late": ({"from": "x", "by": "year", "min": "2024", "max": "9999"}, "in the years 2 to 2999"),
    "an unknown zone": ({"from": "x", "by": "day", "min": "2024", "max": "2024", "zone": "../etc"}, "not a time zone"),
    "days of a century": ({"from": "x", "by": "day", "min": "1900", "max": "2024", "zone": "UTC"}, "a shorter range"),
    "no such month": ({"from": "x", "by": "month", "min": "2024-13", "max": "2025"}, "not a date or a period"),
    "too few labels": ({"from": "x", "bands": [0, 18], "labels": ["child"]}, "a list of 2 texts"),
    "one label for two": ({"from": "x", "bands": [0, 18], "labels": ["a", "a"]}, "stands for two values"),
    "a label of no value": ({"from": "x", "bands": [0, 18], "labels": {"99+": "old"}}, "is not a value of this column"),
    "no column of the file": ({"from": "y", "map": "geography.csv"}, "has no column y; its header is district"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_derived_column_is_refused_in_one_line(case: str) -> None:
    entry, message = BAD[case]
    with pytest.raises(ConfigError, match=message) as error:
        declare({"c": entry})
    assert error.value.key.startswith("columns.c")
    assert "\n" not in str(error.value)


CHAINS: dict[str, tuple[dict[str, Any], str]] = {
    "a cycle": ({"a": {"from": "b", "map": "f.csv"}, "b": {"from": "a", "map": "f.csv"}}, "a cycle: a from b from a"),
    "a long chain": (
        {f"c{i}": {"from": f"c{i + 1}", "map": "f.csv"} for i in range(30)},
        "a chain of over 20 columns: c0 from c1 from c2",
    ),
    "bands of a derived column": (
        {"county": {"from": "municipality", "bands": [1]}, "municipality": {"from": "district", "map": "f.csv"}},
        "only map can follow",
    ),
    "two readings of one source": (
        {"a": {"from": "x", "bands": [0]}, "b": {"from": "x", "bins": ["0"]}},
        "reads x as number, but a reads it as integer",
    ),
    "another kind than the source's": (
        {"x": ["a", "b"], "c": {"from": "x", "bands": [0]}},
        "x has values of type text, not integer",
    ),
    "a band beyond the source": (
        {"x": {"min": 0, "max": 9}, "c": {"from": "x", "bands": [0, 10]}},
        r"10\+: no value of x belongs to it",
    ),
    "a year beyond the source": (
        {"x": {"min": "2020-01-01", "max": "2020-12-31"}, "c": {"from": "x", "by": "year", "max": "2021"}},
        "2021: no value of x belongs to it; remove it",
    ),
    "a key that is no value": (
        {"district": ["d1"], "county": {"from": "district", "map": "f.csv"}},
        "f.csv, line 3: d2 is not a value of district",
    ),
}


@pytest.mark.parametrize("case", CHAINS)
def test_columns_that_do_not_fit_their_source_are_refused(case: str) -> None:
    declared, message = CHAINS[case]
    with pytest.raises(ConfigError, match=message):
        declare(declared)


FILES: dict[str, tuple[bytes, str]] = {
    "a quote in a field": (b'district,county\nd1,ea"st\n', "line 2: a quote"),
    "text after a quote": (b'district,county\nd1,"east"x\n', "line 2: a quote"),
    "a quote that is never closed": (b'district,county\nd1,east\nd2,"west\n', "line 3: a quote"),
    "a lone carriage return": (b"district,county\nd1,ea\rst\n", "line 2: a quote or carriage return"),
    "NUL": (b"district,county\nd1,east\nd2,we\0st\n", "line 3: a value has NUL"),
    "not UTF-8": (b"district,county\nd1,\xff\n", "line 2: is not UTF-8"),
    "a record twice": (b"district,county\nd1,east\nd2,west\nd1,east\n", "line 4: the same record as line 2"),
    "two parents": (b"district,county\nd1,east\nd1,west\n", "line 3: d1 belongs to west here, and to east in line 2"),
    "no value": (b"district,county\nd1,east\nd2,\n", "line 3: no value for county"),
    "no key": (b"district,county\n,east\n", "line 2: no value for district"),
    "a field too many": (b"district,county\nd1,east,x\n", "line 2: 3 fields; the header has 2"),
    "a field too few": (b"district,county\nd1\n", "line 2: 1 fields"),
    "an empty line": (b"district,county\nd1,east\n\nd2,east\n", "line 3: 1 fields"),
    "a column twice": (b"county,county\nd1,east\n", "line 1: the header needs a different name"),
    "no records": (b"district,county\n", "needs a header and at least one record"),
    "an empty file": (b"", "needs a header"),
    "a control character in a label": (b"district,county\nd1,ea\x1bst\n", "line 2: .* is not printable"),
    "too large": (b"district,county\n" + b"x" * MAX_BYTES, "bytes; at most"),
    "lines within quotes": (b'district,county\n"d\n1",east\nd2,we"st\n', "line 4: a quote"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_hostile_map_is_refused_with_its_line(case: str) -> None:
    content, message = FILES[case]
    with pytest.raises(ConfigError, match=message):
        declare({"county": {"from": "district", "map": "geography.csv"}}, content)


ONE_VALUE = {
    "leading zeros of listed integers": ({"values": [7, 8]}, ("7", "07", "8")),
    "leading zeros in a range": ({"min": 0, "max": 9}, ("7", "07", "8")),
    "a negative zero": ({"min": -1, "max": 9}, ("0", "-0", "8")),
    "words and digits of booleans": ({"type": "boolean"}, ("true", "1", "FALSE")),
    "cases of booleans": ({"type": "boolean"}, ("true", "TRUE", "0")),
    "a value and its label": ({"values": ["m", "f"], "labels": ["male", "female"]}, ("m", "male", "f")),
}


@pytest.mark.parametrize("case", ONE_VALUE)
def test_two_spellings_of_one_value_in_a_map_have_one_label(case: str) -> None:
    """Otherwise one row counts in two cells, and the certified sensitivity is too low."""
    source, (first, second, other) = ONE_VALUE[case]
    declared = {"x": source, "label": {"from": "x", "map": "f.csv"}}
    with pytest.raises(ConfigError, match=f"line 3: {second} belongs to B here, and as {first} to A in line 2"):
        declare(declared, f"x,label\n{first},A\n{second},B\n{other},C\n".encode())
    column = declare(declared, f"x,label\n{first},A\n{second},A\n{other},C\n".encode()).by_name["label"]
    assert column.block_sizes == [1, 1]


@pytest.mark.parametrize(
    ("values", "labels"), [([1, 2], ["2", "1"]), ([1, 2], ["02", "b"]), ([False, True], ["1", "0"])]
)
def test_a_label_is_not_the_spelling_of_another_value(values: list[Any], labels: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"{labels[0]} stands for two values"):
        declare({"x": {"values": values, "labels": labels}})
    assert declare({"x": {"values": values, "labels": [str(value) for value in values]}})


def test_a_file_may_have_quotes_line_ends_and_a_byte_order_mark() -> None:
    content = b'\xef\xbb\xbfdistrict,county\r\n"d,1","the ""east"""\r\nd2,west'
    column = declare({"county": {"from": "district", "map": "geography.csv"}}, content).columns[0]
    assert (column.key_labels(), column.root.values) == (['the "east"', "west"], ("d,1", "d2"))


def test_values_may_be_a_column_of_a_file() -> None:
    columns = {column.name: column for column in declare({"municipality": {"values": "f.csv"}, "d": [1]}).columns}
    assert columns["municipality"].values == ("m1", "m2")
    numbers = declare({"code": {"values": "f.csv", "type": "integer"}}, b"code\n1\n2\n").columns[0]
    assert numbers.values == (1, 2)
    with pytest.raises(ConfigError, match=r"f.csv, line 3: x is not of type integer"):
        declare({"code": {"values": "f.csv", "type": "integer"}}, b"code\n1\nx\n")


def test_labels_stand_for_codes_in_answers_and_conditions() -> None:
    plain = declare({"sex": {"values": [1, 2]}, "ok": {"type": "boolean"}})
    schema = declare(
        {
            "sex": {"values": [1, 2], "labels": {"1": "male", "2": "female"}},
            "ok": {"type": "boolean", "labels": ["no", "yes"]},
        }
    )
    assert schema.by_name["sex"].key_labels() == ["male", "female"]
    assert schema.by_name["ok"].key_labels() == ["no", "yes"]
    for where in ("sex = 'female' AND ok = 'yes'", "sex = 2 AND ok = TRUE"):
        question = ask(schema, where=where, by="sex")
        assert question.sha256 == ask(plain, where="sex = 2 AND ok = TRUE", by="sex").sha256
        assert ask(schema, question.text).sha256 == question.sha256


@pytest.mark.parametrize("by", PERIODS)
def test_every_day_belongs_to_one_period(by: Any) -> None:
    low, high = datetime.date(2019, 12, 25), datetime.date(2025, 1, 9)
    starts = [start for start, _ in periods(by, low, high)]
    day = low
    while day <= high:
        start = start_of(day, by)
        assert start in starts
        assert start <= day < end_of(day, by)
        assert (day + datetime.timedelta(1) == end_of(day, by)) == (start_of(day + datetime.timedelta(1), by) != start)
        day += datetime.timedelta(1)


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Africa/Monrovia", "UTC"])
def test_in_every_zone_a_day_begins_at_the_first_second_of_its_date(name: str) -> None:
    zone = load_zone(name)
    assert zone is not None
    for days in range(0, 80_000, 97):
        day = datetime.date(1850, 1, 1) + datetime.timedelta(days)
        second = instant_of(day, zone)
        before, at = (datetime.datetime.fromtimestamp(s, datetime.UTC).astimezone(zone) for s in (second - 1, second))
        assert before.date() < day <= at.date()


def test_a_column_and_its_bands_have_the_cells_of_one_of_them() -> None:
    """Only the cells that exist count against the limit: not the product of a column with its bands."""
    declared = {"age": {"min": 0, "max": 2999}, "group": {"from": "age", "bands": [0, 18, 65]}, "sex": ["f", "m"]}
    schema = Schema("t", parse_columns(declared, "columns"), max_cells=3000)
    assert ask(schema, by=["age", "group"]).cells == 3000
    with pytest.raises(QueryError, match=r"a table of 6000 cells \(age 3000 with group 3 x sex 2\); at most 3000"):
        ask(schema, by=["sex", "age", "group"])
    with pytest.raises(QueryError, match=r"a table of 3000 cells \(age 3000 with group 3\); at most 2999"):
        ask(replace(schema, max_cells=2999), by=["age", "group"])


def test_bands_that_leave_values_out_leave_their_cells_out_too() -> None:
    declared = {"n": {"min": 0, "max": 2**61}, "few": {"from": "n", "bands": [3, 5, 9], "max": 11}}
    schema = Schema("t", parse_columns(declared, "columns"), max_cells=9)
    question = ask(schema, by=["n", "few"])
    assert question.cells == 9
    assert [label for axis in question.axes for label in axis.labels(schema.columns[0])] == list(range(3, 12))
    with pytest.raises(QueryError, match=r"a table of 9 cells .*; at most 8 are allowed"):
        ask(replace(schema, max_cells=8), by=["n", "few"])
