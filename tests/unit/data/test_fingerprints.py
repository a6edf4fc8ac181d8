"""The same content has the same fingerprint, and other content another, however it is stored."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil import fingerprints
from countveil.engines import Source
from countveil.engines import source as sources
from countveil.errors import EngineError
from countveil.fingerprints import frame_hash
from countveil.ledger.records import Secret


class Fingerprints(fingerprints.Fingerprints):
    def __init__(self, *more: Any, **options: Any) -> None:
        super().__init__(Secret("of these tests").keyed, *more, **options)

    def of(self, source: Source) -> str:
        return self.look(source).fingerprint


def source(path: Path, **more: str) -> Source:
    return Source(path.name, directory=path.parent, **more)


def test_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    first = Fingerprints().of(source(path))
    path.write_text("a\n2\n")
    assert Fingerprints().of(source(path)) != first
    path.write_text("a\n1\n")
    os.utime(path, (0, 0))
    assert Fingerprints().of(source(path)) == first
    (tmp_path / "b.csv").write_text("a\n1\n")
    assert Fingerprints().of(source(tmp_path / "b.csv")) == first


def test_several_files_in_any_order_are_the_same_rows(tmp_path: Path) -> None:
    files = Source("*.csv", directory=tmp_path)
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n2\n")
    first = Fingerprints().of(files)
    os.rename(tmp_path / "a.csv", tmp_path / "c.csv")
    assert Fingerprints().of(files) == first
    (tmp_path / "b.csv").write_text("a\n1\n")
    assert Fingerprints().of(files) != first


def test_folders_count_where_they_are_columns(tmp_path: Path) -> None:
    for region, name in (("N", "one"), ("S", "two")):
        (tmp_path / f"region={region}").mkdir()
        pq.write_table(pa.table({"name": [name]}), tmp_path / f"region={region}" / "rows.parquet")
    glob = Source("*/*.parquet", directory=tmp_path)
    first = Fingerprints().of(glob)
    alone = Fingerprints().of(Source("region=N/rows.parquet", directory=tmp_path))
    os.rename(tmp_path / "region=N", tmp_path / "region=M")
    moved = Fingerprints().of(glob)
    assert moved != first
    assert Fingerprints().of(Source("region=M/rows.parquet", directory=tmp_path)) == alone
    os.rename(tmp_path / "region=S", tmp_path / "region=N")
    os.rename(tmp_path / "region=M", tmp_path / "region=S")
    assert Fingerprints().of(glob) not in (first, moved)


def test_the_cache_tells_apart_two_patterns_for_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RECENT", 0)
    (tmp_path / "region=N").mkdir()
    pq.write_table(pa.table({"name": ["one"]}), tmp_path / "region=N" / "rows.parquet")
    patterns = [Source(pattern, directory=tmp_path) for pattern in ("region=N/*.parquet", "*/*.parquet")]
    for order in (patterns, patterns[::-1]):
        (tmp_path / "cache").unlink(missing_ok=True)
        alone = [Fingerprints().of(pattern) for pattern in order]
        assert len(set(alone)) == 2
        for _ in range(2):
            known = Fingerprints(tmp_path / "cache")
            assert [known.of(pattern) for pattern in order] == alone


def test_what_was_asked_before_there_was_a_secret_keeps_its_fingerprint(tmp_path: Path) -> None:
    hashes = []
    for name, text in (("a.csv", "a\n1\n"), ("b.csv", "a\n2\n")):
        (tmp_path / name).write_text(text)
        hashes.append(hashlib.sha256(text.encode()).hexdigest())
    files = Source("*.csv", directory=tmp_path)
    for order in (hashes, hashes[::-1]):
        old = hashlib.sha256("".join(order).encode()).hexdigest()
        assert Fingerprints(old=lambda old=old: {old}).of(files) == Secret("of these tests").keyed(old)
        (tmp_path / "a.csv").write_text("a\n2\n")
        (tmp_path / "b.csv").write_text("a\n1\n")


def test_a_change_of_equal_size_at_once_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when the clock of the file system stands still between two writes."""
    path = tmp_path / "a.csv"
    path.write_text("a\n0\n")
    held, real = os.stat(path), os.stat
    monkeypatch.setattr(os, "stat", lambda p, **more: held if str(p) == str(path) else real(p, **more))
    known = Fingerprints(tmp_path / "cache")
    seen = set()
    for i in range(5):
        path.write_text(f"a\n{i}\n")
        seen.add(known.of(source(path)))
    assert len(seen) == 5
    path.write_text("a\n7\n")
    monkeypatch.setattr(sources, "RECENT", 0)  # a while later: what was read at once is not trusted then either
    assert known.of(source(path)) not in seen


def test_an_old_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    monkeypatch.setattr(sources, "RECENT", 0)  # as if it had been written long ago
    first = Fingerprints(tmp_path / "cache").of(source(path))
    read = []
    real = fingerprints._file_hash
    monkeypatch.setattr(fingerprints, "_file_hash", lambda path: read.append(path) or real(path))
    assert Fingerprints(tmp_path / "cache").of(source(path)) == first
    assert not read
    path.write_text("a\n2\n")
    assert Fingerprints(tmp_path / "cache").of(source(path)) != first
    assert read


@pytest.mark.parametrize("content", [b"", b"not json", b"[1]", b'{"x": 3}', b"\xff"])
def test_a_damaged_cache_is_forgotten(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    (tmp_path / "cache").write_bytes(content)
    assert Fingerprints(tmp_path / "cache").of(source(path)) == Fingerprints().of(source(path))


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    assert Fingerprints(tmp_path / "no" / "cache").of(source(path)) == Fingerprints().of(source(path))


def test_files_of_a_glob(tmp_path: Path) -> None:
    for name in ("p1.csv", "p2.csv"):
        (tmp_path / name).write_text(f"a\n{name}\n")
    glob = Source("p*.csv", directory=tmp_path)
    first = Fingerprints().of(glob)
    (tmp_path / "p3.csv").write_text("a\n")
    assert Fingerprints().of(glob) != first
    (tmp_path / "p3.csv").unlink()
    assert Fingerprints().of(glob) == first


def test_one_file_by_two_names_is_read_once_and_counts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p1.csv").write_text("a\n1\n")
    (tmp_path / "p2.csv").symlink_to(tmp_path / "p1.csv")
    monkeypatch.setattr(sources, "RECENT", 0)
    known, glob = Fingerprints(), Source("p*.csv", directory=tmp_path)
    first = known.look(glob)
    monkeypatch.setattr(fingerprints, "_file_hash", lambda path: pytest.fail("it was not touched"))
    assert known.look(glob) == first
    assert known.look(glob).state == first.state
    assert first.is_current()
    assert len(first.traces) == 2
    assert first.fingerprint != known.look(Source("p1.csv", directory=tmp_path)).fingerprint


def test_of_several_files_those_that_changed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RECENT", 0)
    for name in ("p1.csv", "p2.csv"):
        (tmp_path / name).write_text(f"a\n{name}\n")
    known, glob, read = Fingerprints(), Source("p*.csv", directory=tmp_path), []
    real = fingerprints._file_hash
    monkeypatch.setattr(fingerprints, "_file_hash", lambda path: read.append(Path(path).name) or real(path))
    known.look(glob)
    (tmp_path / "p3.csv").write_text("a\n3\n")
    assert known.of(glob) == Fingerprints().of(glob)
    assert read == ["p1.csv", "p2.csv", "p3.csv", "p1.csv", "p2.csv", "p3.csv"]


def test_what_was_fresh_before_it_was_read_is_not_certain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the reading takes: a second write within the same tick would leave the same traces."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    read, real = [], fingerprints._file_hash

    def slow(path: str) -> str:
        monkeypatch.setattr(sources, "RECENT", 0)  # as if it had taken a while
        read.append(path)
        return real(path)

    monkeypatch.setattr(fingerprints, "_file_hash", slow)
    seen = Fingerprints().look(source(path))
    assert not seen.certain
    assert seen.state != seen.state
    assert len(read) == 1
    assert seen.is_current()
    assert len(read) == 2, "traces alone do not tell"


def test_a_snapshot_is_current_until_its_files_are_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the same bytes are back: what was read in between could be anything."""
    monkeypatch.setattr(sources, "RECENT", 0)
    path, database = tmp_path / "a.csv", tmp_path / "a.duckdb"
    path.write_text("a\n1\n")
    with duckdb.connect(str(database)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    file, table = Fingerprints().look(source(path)), Fingerprints().look(source(database, table="t"))
    glob = Fingerprints().look(Source("*.csv", directory=tmp_path))
    assert file.is_current()
    assert table.is_current()
    (tmp_path / "b.csv").write_text("a\n1\n")
    assert glob.is_current(), "its files are those that were seen"
    path.write_text("a\n2\n")
    path.write_text("a\n1\n")
    assert not file.is_current()
    assert not glob.is_current()
    (tmp_path / "a.duckdb.wal").write_bytes(b"more rows")
    assert not table.is_current()
    path.unlink()
    with pytest.raises(EngineError, match="a file is gone"):
        file.is_current()


def test_a_snapshot_of_a_frame_is_current_until_its_values_change() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    seen = Fingerprints().look(Source(frame=frame))
    assert seen.is_current()
    assert seen.state == Fingerprints().look(Source(frame=frame.copy())).state
    frame.loc[0, "a"] = 7
    assert not seen.is_current()


def test_the_table_of_a_database_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert Fingerprints().of(source(path, table="t")) != Fingerprints().of(source(path, table="u"))


def test_one_table_has_one_fingerprint_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    same = {Fingerprints().of(source(path, table=table)) for table in ("t", "T", "main.t", "Main.T")}
    assert same == {
        Secret("of these tests").keyed(
            hashlib.sha256(f"t{hashlib.sha256(path.read_bytes()).hexdigest()}".encode()).hexdigest()
        )
    }
    others = {Fingerprints().of(source(path, table=table)) for table in ("t", "other.t", "é", "É")}
    assert len(others) == 4, "DuckDB takes letters for one another in ASCII only"


def test_a_file_without_tables_has_the_fingerprint_of_its_bytes(tmp_path: Path) -> None:
    """As ever, so that what was answered before is found."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    bytes_alone = Secret("of these tests").keyed(
        hashlib.sha256(hashlib.sha256(path.read_bytes()).hexdigest().encode()).hexdigest()
    )
    for table in (None, "x"):
        assert Fingerprints().of(source(path, table=table)) == bytes_alone


def test_what_is_in_the_log_of_a_database_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    before = Fingerprints().of(source(path, table="t"))
    (tmp_path / "a.duckdb.wal").write_bytes(b"more rows")
    assert Fingerprints().of(source(path, table="t")) != before


def test_files_that_are_gone(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="matches no file"):
        Fingerprints().of(Source("none.csv", directory=tmp_path))
    with pytest.raises(EngineError, match="a file is gone"):
        sources.read_trace(str(tmp_path / "none"))


DATA = {"a": [1, 2, 3], "b": ["x", None, "ž"], "c": [0.5, float("nan"), -0.0]}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames(kind: type) -> None:
    first = frame_hash(kind(DATA))
    assert frame_hash(kind(DATA)) == first
    for name, values in (("a", [1, 2, 4]), ("b", ["x", "", "ž"]), ("c", [0.5, 1.0, -0.0])):
        assert frame_hash(kind({**DATA, name: values})) != first
    assert frame_hash(kind({"z": DATA["a"], **{k: DATA[k] for k in ("b", "c")}})) != first


def test_slices_and_chunks_of_a_frame() -> None:
    whole = pa.table(DATA)
    assert frame_hash(whole.slice(1, 2)) == frame_hash(pa.table({k: v[1:] for k, v in DATA.items()}))
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    assert frame_hash(chunked) == frame_hash(whole)
