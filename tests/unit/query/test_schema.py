"""Declarations of columns: which are accepted, and which are refused."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from countveil.errors import ConfigError, QueryError
from countveil.query import ask
from countveil.query.declarations import parse_column
from countveil.query.schema import MAX_VALUES, Column, Schema, date_from_text
from tests.support.effort import within

DAY = datetime.date(2026, 1, 31)
BAD = {
    "an empty name": ("", ["a"], "column names have 1 to 200 printable characters"),
    "a long name": ("n" * 201, ["a"], "column names have"),
    "a name with a line end": ("a\nb", ["a"], "column names have"),
    "a name with NUL": ("a\x00", ["a"], "column names have"),
    "a name with a lone surrogate": ("a\ud800", ["a"], "column names have"),
    "a name that is no text": (5, ["a"], "column names have"),
    "a number": ("c", 5, "give a list of values, or a table"),
    "a text": ("c", "North", "give a list of values, or a table"),
    "nothing": ("c", None, "give a list of values, or a table"),
    "an unknown key": ("c", {"min": 0, "max": 1, "maximum": 2}, "unknown key maximum; allowed are values, min, max"),
    "a key that is no text": ("c", {5: 0}, "unknown key 5"),
    "an unknown type": ("c", {"type": "float", "min": 0, "max": 1}, "type is float; allowed are text, integer"),
    "a type that is a list": ("c", {"type": ["text"], "values": ["a"]}, "allowed are text, integer"),
    "guessed that is no boolean": ("c", {"values": ["a"], "guessed": "yes"}, "guessed must be true or false"),
    "values and a range": ("c", {"values": ["a"], "min": 0, "max": 1}, "not both"),
    "values and a step": ("c", {"values": ["a"], "step": 2}, "not both"),
    "no values": ("c", [], "a list with at least one value"),
    "values that are a text": ("c", {"values": "abc"}, "a list with at least one value"),
    "too many values": ("c", list(range(MAX_VALUES + 1)), "at most 100000 are allowed"),
    "mixed values": ("c", ["a", 1], "1 is not of type text; all values of a column have one type"),
    "a boolean among integers": ("c", [0, True], "True is not of type integer"),
    "floats": ("c", [1.5, 2.5], "1.5 is not a text, integer, boolean or date"),
    "lists": ("c", [["a"], ["b"]], "is not a text, integer, boolean or date"),
    "None": ("c", [None], "None is not a text, integer, boolean or date"),
    "a time": ("c", [datetime.datetime(2026, 1, 1)], "is not a text, integer, boolean or date"),
    "values of another type": ("c", {"type": "text", "values": [1, 2]}, "1 is not of type text"),
    "a text that is no date": ("c", {"type": "date", "values": ["2026-02-30"]}, "2026-02-30 is not a date"),
    "a number that is no date": ("c", {"type": "date", "values": [DAY, 5]}, "5 is not a date; write 2026-01-31"),
    "a time among dates": ("c", {"type": "date", "values": [DAY, datetime.datetime(2026, 1, 1)]}, "is not a date"),
    "a value twice": ("c", ["a", "b", "a"], "a is listed twice"),
    "an integer beyond 64 bits": ("c", [2**63], "integers lie in -2^63..2^63-1"),
    "an integer of 5,000 digits": ("c", [10**5000], "integers lie in -2^63..2^63-1"),
    "NUL in a value": ("c", ["a\x00"], "text values are Unicode without NUL"),
    "a lone surrogate in a value": ("c", ["a\ud800"], "text values are Unicode without NUL"),
    "no range": ("c", {}, "give values, or both min and max"),
    "half a range": ("c", {"min": 0}, "give values, or both min and max"),
    "a range of floats": ("c", {"min": 0.0, "max": 1.0}, "min and max are integers or dates"),
    "a range of booleans": ("c", {"min": False, "max": True}, "min and max are integers or dates"),
    "a range of text": ("c", {"type": "text", "min": 0, "max": 1}, "min and max are integers or dates"),
    "a boolean range": ("c", {"type": "boolean", "min": 0, "max": 1}, "min and max are integers or dates"),
    "an integer range of dates": (
        "c",
        {"type": "integer", "min": DAY, "max": DAY},
        "min and max are integers or dates",
    ),
    "a range of words": ("c", {"min": "a", "max": "z"}, "a is not a date; write 2026-01-31"),
    "dates and integers": ("c", {"min": DAY, "max": 5}, "5 is not a date"),
    "a range upside down": ("c", {"min": 5, "max": 1}, "min 5 is greater than max 1"),
    "an enormous range upside down": ("c", {"min": 10**5000, "max": 1}, "is greater than max 1"),
    "a range beyond 64 bits": ("c", {"min": 0, "max": 2**63}, "lie in -2^63+1..2^63-1"),
    "a range from -2^63": ("c", {"min": -(2**63), "max": 0}, "lie in -2^63+1..2^63-1"),
    "a range of 2^62": ("c", {"min": 0, "max": 2**62}, "less than 2^62 apart"),
    "step 0": ("c", {"min": 0, "max": 9, "step": 0}, "step is 0; allowed is an integer from 1"),
    "step 1.5": ("c", {"min": 0, "max": 9, "step": 1.5}, "step is 1.5"),
    "step true": ("c", {"min": 0, "max": 9, "step": True}, "step is True"),
    "a step beyond the range": ("c", {"min": 0, "max": 9, "step": 11}, "step is 11"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_declaration_is_refused_in_one_line(case: str) -> None:
    name, declared, message = BAD[case]
    with within(5_000), pytest.raises(ConfigError) as error:
        parse_column(name, declared, "columns.c")  # type: ignore[arg-type]
    assert error.value.key == "columns.c"
    assert message in error.value.reason
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_duplicate_at_the_end_of_a_long_list_is_found_quickly() -> None:
    with within(1_000_000), pytest.raises(ConfigError, match="v99998 is listed twice"):
        parse_column("c", [*(f"v{i}" for i in range(MAX_VALUES - 1)), f"v{MAX_VALUES - 2}"], "c")


@pytest.mark.parametrize(
    ("declared", "kind", "keys"),
    [
        (["North", "South"], "text", 2),
        ([3, 1, 2], "integer", 3),
        ([True, False], "boolean", 2),
        ([DAY, datetime.date(2026, 2, 1)], "date", 2),
        ({"type": "date", "values": ["2026-01-31", DAY.replace(day=1)]}, "date", 2),
        ({"type": "boolean"}, "boolean", 2),
        ({"min": -5, "max": 5}, "integer", 11),
        ({"min": 0, "max": 120, "step": 50}, "integer", 3),
        ({"min": 0, "max": 9, "step": 10}, "integer", 1),
        ({"min": "2026-01-01", "max": "2026-01-31", "step": 7}, "date", 5),
        ({"min": datetime.date.min, "max": datetime.date.max, "step": 366}, "date", 9979),
        ({"min": -(2**63) + 1, "max": -(2**62)}, "integer", 2**62),
        ({"values": ["a"], "guessed": True}, "text", 1),
    ],
)
def test_a_valid_declaration_makes_a_column(declared: Any, kind: str, keys: int) -> None:
    column = parse_column("c", declared, "c")
    assert (column.kind, column.keys) == (kind, keys)
    if keys < 10_000:
        labels = column.key_labels()
        assert len(set(labels)) == len(labels) == keys
    assert Schema("t", (column,)).column("C", quoted=False) is column
    assert ask(Schema("t", (column,)), "SELECT count(*) FROM t WHERE c IS NOT NULL").sha256


def test_columns_that_differ_only_by_case_are_refused() -> None:
    with pytest.raises(ConfigError, match="age and AGE are the same, or differ only by case"):
        Schema("t", (Column("age", "integer"), Column("AGE", "integer")))
    with pytest.raises(ConfigError, match="age and age are the same"):
        Schema("t", (Column("age", "integer"), Column("age", "text", ("a",))))
    with pytest.raises(ConfigError, match="straße and STRASSE"):
        Schema("t", (Column("straße", "integer"), Column("STRASSE", "integer")))


@pytest.mark.parametrize(
    "text",
    ["", "2026-1-31", "2026-02-30", "20260131", "2026-01-31T00:00", " 2026-01-31", "２０２６-01-31", "0000-01-01"],
)
def test_a_date_in_another_format_is_refused(text: str) -> None:
    assert date_from_text(text) is None


def test_a_table_of_too_many_cells_is_refused_before_it_is_built() -> None:
    wide = tuple(Column(f"c{i}", "integer", low=0, high=2**61) for i in range(300))
    names = [column.name for column in wide]
    for by, cells in ((names[:1], "over 10^18"), (names[:50], "over 10^18")):
        with pytest.raises(QueryError, match="at most 2000000 are allowed") as error:
            ask(Schema("t", wide), by=by)
        assert cells in error.value.construct
        assert len(str(error.value)) < 300
    exact = Schema("t", (Column("a", "integer", low=1, high=1000), Column("b", "integer", low=1, high=2000)))
    assert ask(exact, by=["a", "b"]).cells == 2_000_000
    with pytest.raises(QueryError, match=r"2000000 cells \(a 1000 x b 2000\)"):
        ask(Schema("t", exact.columns, max_cells=1_999_999), by=["a", "b"])
