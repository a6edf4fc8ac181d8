"""A CSV file that is not RFC 4180 is refused, so that one record changes the counts by that record alone."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, strategies as st

from countveil.data import csv_files
from countveil.data.csv_files import find_fault
from countveil.data.engines import Source, duckdb as duckdb_engine, open_engine
from countveil.data.engines.duckdb import DuckDBEngine
from countveil.errors import CountveilError, DataError
from countveil.query import ask
from countveil.query.schema import Column, Schema
from tests.support.effort import examples

REGIONS = ("North", "South")
SCHEMA = Schema("people", (Column("region", "text", REGIONS), Column("age", "integer", low=0, high=99)))
ALL = "SELECT count(*) FROM people"
BY_REGION = "SELECT region, count(*) FROM people GROUP BY region"
BY_AGE = "SELECT age, count(*) FROM people GROUP BY age"
MISSING = "SELECT count(*) FROM people WHERE region IS NULL"
HEAD = b"id,region,age\n"


def is_rfc4180(content: bytes, delimiter: str = ",") -> bool:
    """The grammar of RFC 4180, extended to LF as line end and to all bytes."""
    separator = re.escape(delimiter.encode())
    field = rb'(?:"(?:[^"]|"")*"|[^"\r\n' + separator + rb"]*)"
    record = field + rb"(?:" + separator + field + rb")*"
    return re.fullmatch(rb"(?:\xef\xbb\xbf)?" + record + rb"(?:\r?\n" + record + rb")*", content) is not None


def source_of(folder: Path, content: bytes, name: str = "people.csv", delimiter: str | None = None) -> Source:
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Source(name, delimiter=delimiter, directory=folder)


def count(source: Source, *questions: str, schema: Schema = SCHEMA) -> list[int]:
    engine = open_engine(source, schema)
    try:
        return [n for sql in questions for n in engine.count(ask(schema, sql), salt=b"s").tolist()]
    finally:
        engine.close()


# -- accepted files ----------------------------------------------------------------------------------------------------

PIECES = [b"a", b"1", b",", b";", b'"', b'""', b"\n", b"\r\n", b"\r", b" ", "é".encode(), b"\xff", b"\x00", b'","']
FIELDS = [b"a,", b"a\n", b'"a",', b'"a\r\n""",', b'""\n']


@examples(400)
@given(
    pieces=st.lists(st.sampled_from(PIECES) | st.sampled_from(FIELDS), max_size=60),
    delimiter=st.sampled_from(",;"),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    chunk=st.sampled_from([1, 2, 7, 64, 100, 1 << 18]),
)
@example([b'"', *[b"a"] * 63, b'"'], ",", b"", 64)
@example([b"a"] * 62 + [b"\r"], ",", b"", 64)
def test_with_every_chunk_size_exactly_the_files_of_rfc_4180_are_accepted(
    pieces: list[bytes], delimiter: str, mark: bytes, chunk: int
) -> None:
    content = mark + b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "CHUNK", chunk)
        fault = find_fault(io.BytesIO(content).readinto, delimiter)
    assert (fault is None) == is_rfc4180(content, delimiter), fault
    if fault is not None:
        assert not is_rfc4180(content[: fault.offset + 2] + b'"' * (fault.opened is not None), delimiter)


INSIDE, AFTER, OPEN = (
    "a quote inside a field that is not quoted",
    "text after a closing quote",
    "a quote is never closed",
)


@pytest.mark.parametrize(
    ("record", "line", "reason"),
    [
        (b'9001,No"rth,"50\n', "line 3", INSIDE),
        (b'9001,North,5"\n', "line 3", INSIDE),
        (b'9001, "North",50\n', "line 3", INSIDE),
        (b'9001,a"",50\n', "line 3", INSIDE),
        (b'9001,"North"x,50\n', "line 3", AFTER),
        (b'9001,"North" ,50\n', "line 3", AFTER),
        (b'9001,"North\nWest"x,50\n', "line 4, with quotes that were opened on line 3", AFTER),
        (b'9001,"North,50\n', "line 3", OPEN),
        (b'9001,North,50\n9002,"North""\n', "line 4", OPEN),
        (b"9001,No\rrth,50\n", "line 3", "a carriage return without a line feed"),
        (b'9001,"No\rrth\r",50\r', "line 3", "a carriage return without a line feed"),
        (b'9001,"' + b"North,50\n" * 230_000 + b'",50\n', "line 3", "a record of more than 2,000,000 bytes"),
        (b"9001," + b'"North\n",' * 230_000 + b"50\n", "line 3", "a record of more than 2,000,000 bytes"),
    ],
)
@pytest.mark.parametrize("way", ["plain", "gzip", "CRLF", "byte order mark", "several files", "semicolons"])
def test_the_refusal_of_a_csv_file_gives_the_line_and_the_reason(
    tmp_path: Path, record: bytes, line: str, reason: str, way: str
) -> None:
    content, name, delimiter = HEAD + b"1,North,20\n" + record, "people.csv", None
    if way == "byte order mark":
        content = b"\xef\xbb\xbf" + content
    elif way == "CRLF":
        content = content.replace(b"\n", b"\r\n").replace(b"\r\r\n", b"\r\n")
    elif way == "semicolons":
        content, delimiter = content.replace(b",", b";"), ";"
    elif way == "gzip":
        name = "people.csv.gz"
    source = source_of(tmp_path, content, name, delimiter)
    if way == "several files":
        source_of(tmp_path, HEAD + b'2,"South",30', "a.csv")
        source = Source("*.csv", directory=tmp_path)
    for declared in (SCHEMA, None):
        with pytest.raises(DataError) as error:
            open_engine(source, declared)
        message = str(error.value)
        assert f"{name} is not CSV by RFC 4180, {line}" in message
        assert reason in message
        assert "\n" not in message


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"\n", b"\r\n"])
def test_correctly_quoted_fields_are_read(tmp_path: Path, end: bytes, last: bytes) -> None:
    rows = [b'"id","region",age', b'1,"North",20', b'"2",South,"21"', b'3,"a ""b""\r\n, c",22', b'4,"","23"', b"5,,24"]
    source = source_of(tmp_path, b"\xef\xbb\xbf" + end.join(rows) + last)
    assert count(source, BY_REGION, ALL, MISSING) == [1, 1, 5, 1]
    assert count(source, BY_AGE)[20:25] == [1] * 5


def test_records_of_one_column_are_counted_once_whatever_their_line_ends(tmp_path: Path) -> None:
    schema = Schema("people", (Column("age", "integer", low=0, high=9),))
    source = source_of(tmp_path, b'age\n1\r\n2\n"3"\r\n\n5')
    assert count(source, ALL, "SELECT count(*) FROM people WHERE age IS NULL", schema=schema) == [5, 1]


def test_a_record_longer_than_the_buffers_of_the_parser_is_refused(tmp_path: Path) -> None:
    """The parser would read the text within its quotes as seven million records."""
    source = source_of(tmp_path, HEAD + b"1,North,20\n" + b'9001,"' + b"1,South,2\n" * 7_000_000 + b'",50\n')
    with pytest.raises(DataError, match=r"line 3: a record of more than 2,000,000 bytes that has quotes"):
        count(source, ALL)


def test_long_records_without_quotes_are_skipped(tmp_path: Path) -> None:
    source = source_of(tmp_path, HEAD + b"9001," + b"x" * 3_000_000 + b',50\n1,North,20\n2,"South",20\n')
    assert count(source, ALL) == [2]


def test_the_refusal_of_a_header_with_another_delimiter_suggests_that_delimiter(tmp_path: Path) -> None:
    for name, mark, shown in (("a.csv", b";", ";"), ("b.csv", b"\t", r"\\t"), ("c.tsv", b",", ",")):
        source = source_of(tmp_path, HEAD.replace(b",", mark) + b'"1"' + mark + b'"North"' + mark + b"20\n", name)
        with pytest.raises(DataError, match=f'--delimiter "{shown}", or delimiter = "{shown}" in countveil.toml'):
            open_engine(source, SCHEMA)
    schema = Schema("people", (Column("a;b", "integer", low=0, high=9),))
    assert count(source_of(tmp_path, b"a;b\n1\n", delimiter=","), ALL, schema=schema) == [1]


# -- one more record ---------------------------------------------------------------------------------------------------

VALUES = [
    b"North",
    b"South",
    b"",
    b"20",
    b"1",
    b'N"',
    b"a,b",
    b"\n",
    b"1,North,20\n",
    b"\r",
    b"\xff",
    "é".encode(),
    b"\0",
]


def quote(value: bytes) -> bytes:
    return b'"' + value.replace(b'"', b'""') + b'"'


def plain(value: bytes) -> bytes:
    return re.sub(rb'[",\r\n]', b"", value)


field = st.sampled_from(VALUES).flatmap(lambda value: st.sampled_from([quote(value), plain(value)]))
good = st.lists(field, min_size=1, max_size=4).map(b",".join)
wild = st.lists(st.sampled_from([*VALUES, b",", b",", b'"', b'""', b',"', b'",']), max_size=9).map(b"".join)
ends = st.sampled_from([b"\n", b"\r\n"])
QUESTIONS = (BY_REGION, BY_AGE, MISSING, ALL)


class Parser:
    """Reads all fields of a file through the relation that engines count; None if the file is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.connection = folder, duckdb.connect()

    def rows(self, content: bytes) -> list[tuple[str | None, ...]] | None:
        source = source_of(self.folder, HEAD + content)
        try:
            relation = duckdb_engine._relation(source, source.paths(), self.connection)
        except DataError:
            return None
        return self.connection.execute(f"SELECT * FROM {relation}").fetchall()


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    parser = Parser(tmp_path_factory.mktemp("parser"))
    yield parser
    parser.connection.close()


@pytest.fixture(scope="module", params=["copied", "not copied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBEngine, "copies", request.param == "copied")
        yield tmp_path_factory.mktemp("csv")


@examples(200)
@given(
    before=st.lists(st.tuples(good, ends), max_size=3),
    extra=good | wild,
    end=ends,
    after=st.lists(st.tuples(good, ends), max_size=3),
)
@example([(b"1,North,20", b"\n")], b'9001,No"rth,"50', b"\n", [(b'2,"South",20', b"\n")])
def test_one_more_record_does_not_change_how_others_are_read(
    parser: Parser, before: list[tuple[bytes, bytes]], extra: bytes, end: bytes, after: list[tuple[bytes, bytes]]
) -> None:
    first, last = (b"".join(b"".join(record) for record in records) for records in (before, after))
    alone = parser.rows(extra + end)
    both = parser.rows(first + extra + end + last)
    assert (both is None) == (alone is None)
    if alone is not None:
        assert both == (parser.rows(first) or []) + alone + (parser.rows(last) or [])
        assert len(alone) <= 1 or b"\n" in re.sub(rb'"[^"]*"', b"", extra)


@examples(12)
@given(records=st.lists(st.tuples(good, ends), max_size=4), extra=good | wild, end=ends, place=st.integers(0, 4))
@example([(b"1,North,20", b"\n")], b'9001,No"rth,"50', b"\n", 0)
@example([(b'1,"North",20', b"\n")], b'9001,"', b"\n", 0)
def test_one_more_record_changes_the_counts_by_that_record_alone(
    folder: Path, records: list[tuple[bytes, bytes]], extra: bytes, end: bytes, place: int
) -> None:
    """Or the file with the record is refused, even if it is the only record."""
    lines, added = [b"".join(record) for record in records], extra + end
    before, after, alone = (HEAD + b"".join(rows) for rows in (lines, [*lines[:place], added, *lines[place:]], [added]))
    without = count(source_of(folder, before), *QUESTIONS)
    if not is_rfc4180(alone):
        for content in (after, alone):
            with pytest.raises(DataError, match="RFC 4180"):
                count(source_of(folder, content), *QUESTIONS)
        return
    with_one, change = (count(source_of(folder, content), *QUESTIONS) for content in (after, alone))
    assert [a - b for a, b in zip(with_one, without, strict=True)] == change
    if b"\n" not in re.sub(rb'"[^"]*"', b"", extra):
        assert sum(change[: len(REGIONS)]) <= 1
        assert change[-1] <= 1


def test_no_bytes_in_an_accepted_file_make_counting_fail(folder: Path) -> None:
    for content in (b'1,"\xff","20"\n2,"North",20\n', b"\x00\n,,\n", b'"","",""\n', b"\n\n\r\n", b""):
        try:
            count(source_of(folder, HEAD + content), *QUESTIONS)
        except CountveilError as error:
            pytest.fail(f"{content!r}: {error}")
