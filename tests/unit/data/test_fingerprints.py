"""Equal content has equal fingerprints and different content different ones, however it is stored."""

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

from countveil.data import fingerprints, source as sources
from countveil.data.engines import Source
from countveil.data.fingerprints import frame_hash
from countveil.errors import EngineError
from countveil.ledger.records import Secret


class Fingerprints(fingerprints.Fingerprints):
    def __init__(self, *more: Any, **options: Any) -> None:
        super().__init__(Secret("of these tests").make_keyed_hash, *more, **options)

    def of(self, source: Source) -> str:
        return self.look(source).fingerprint


def source(path: Path, **more: str) -> Source:
    return Source(path.name, directory=path.parent, **more)


def test_the_fingerprint_depends_on_content_alone(tmp_path: Path) -> None:
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


def test_the_order_of_files_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    files = Source("*.csv", directory=tmp_path)
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n2\n")
    first = Fingerprints().of(files)
    os.rename(tmp_path / "a.csv", tmp_path / "c.csv")
    assert Fingerprints().of(files) == first
    (tmp_path / "b.csv").write_text("a\n1\n")
    assert Fingerprints().of(files) != first


def test_names_of_folders_change_the_fingerprint_only_if_they_are_columns(tmp_path: Path) -> None:
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


def test_the_cache_distinguishes_two_globs_for_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RECENT", 0)
    (tmp_path / "region=N").mkdir()
    pq.write_table(pa.table({"name": ["one"]}), tmp_path / "region=N" / "rows.parquet")
    patterns = [Source(pattern, directory=tmp_path) for pattern in ("region=N/*.parquet", "*/*.parquet")]
    for order in (patterns, patterns[::-1]):
        (tmp_path / "cache").unlink(missing_ok=True)
        alone = [Fingerprints().of(pattern) for pattern in order]
        assert len(set(alone)) == 2
        for _ in range(2):
            prints = Fingerprints(tmp_path / "cache")
            assert [prints.of(pattern) for pattern in order] == alone


def test_data_from_before_the_ledger_had_a_secret_keeps_its_fingerprint(tmp_path: Path) -> None:
    hashes = []
    for name, text in (("a.csv", "a\n1\n"), ("b.csv", "a\n2\n")):
        (tmp_path / name).write_text(text)
        hashes.append(hashlib.sha256(text.encode()).hexdigest())
    files = Source("*.csv", directory=tmp_path)
    for order in (hashes, hashes[::-1]):
        old = hashlib.sha256("".join(order).encode()).hexdigest()
        assert Fingerprints(old=lambda old=old: {old}).of(files) == Secret("of these tests").make_keyed_hash(old)
        (tmp_path / "a.csv").write_text("a\n2\n")
        (tmp_path / "b.csv").write_text("a\n1\n")


def test_an_immediate_change_of_equal_size_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the file system gives two writes the same time."""
    path = tmp_path / "a.csv"
    path.write_text("a\n0\n")
    frozen, real = os.stat(path), os.stat
    monkeypatch.setattr(os, "stat", lambda p, **more: frozen if str(p) == str(path) else real(p, **more))
    prints = Fingerprints(tmp_path / "cache")
    values = set()
    for i in range(5):
        path.write_text(f"a\n{i}\n")
        values.add(prints.of(source(path)))
    assert len(values) == 5
    path.write_text("a\n7\n")
    monkeypatch.setattr(sources, "RECENT", 0)  # later: the cache must not trust what was read just after a write
    assert prints.of(source(path)) not in values


def test_an_unchanged_old_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    monkeypatch.setattr(sources, "RECENT", 0)  # as if it had been written long ago
    first = Fingerprints(tmp_path / "cache").of(source(path))
    paths_read = []
    real = fingerprints._file_hash
    monkeypatch.setattr(fingerprints, "_file_hash", lambda path: paths_read.append(path) or real(path))
    assert Fingerprints(tmp_path / "cache").of(source(path)) == first
    assert not paths_read
    path.write_text("a\n2\n")
    assert Fingerprints(tmp_path / "cache").of(source(path)) != first
    assert paths_read


@pytest.mark.parametrize("content", [b"", b"not json", b"[1]", b'{"x": 3}', b"\xff"])
def test_a_damaged_cache_is_ignored(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    (tmp_path / "cache").write_bytes(content)
    assert Fingerprints(tmp_path / "cache").of(source(path)) == Fingerprints().of(source(path))


def test_fingerprints_work_without_a_writable_cache(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    assert Fingerprints(tmp_path / "no" / "cache").of(source(path)) == Fingerprints().of(source(path))


def test_a_new_file_of_a_glob_changes_the_fingerprint(tmp_path: Path) -> None:
    for name in ("p1.csv", "p2.csv"):
        (tmp_path / name).write_text(f"a\n{name}\n")
    glob = Source("p*.csv", directory=tmp_path)
    first = Fingerprints().of(glob)
    (tmp_path / "p3.csv").write_text("a\n")
    assert Fingerprints().of(glob) != first
    (tmp_path / "p3.csv").unlink()
    assert Fingerprints().of(glob) == first


def test_one_file_under_two_names_is_hashed_once_and_is_twice_in_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p1.csv").write_text("a\n1\n")
    (tmp_path / "p2.csv").symlink_to(tmp_path / "p1.csv")
    monkeypatch.setattr(sources, "RECENT", 0)
    prints, glob = Fingerprints(), Source("p*.csv", directory=tmp_path)
    first = prints.look(glob)
    monkeypatch.setattr(fingerprints, "_file_hash", lambda path: pytest.fail("the file was read again"))
    assert prints.look(glob) == first
    assert prints.look(glob).state == first.state
    assert first.is_current()
    assert len(first.traces) == 2
    assert first.fingerprint != prints.look(Source("p1.csv", directory=tmp_path)).fingerprint


def test_only_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RECENT", 0)
    for name in ("p1.csv", "p2.csv"):
        (tmp_path / name).write_text(f"a\n{name}\n")
    prints, glob, paths_read = Fingerprints(), Source("p*.csv", directory=tmp_path), []
    real = fingerprints._file_hash
    monkeypatch.setattr(fingerprints, "_file_hash", lambda path: paths_read.append(Path(path).name) or real(path))
    prints.look(glob)
    (tmp_path / "p3.csv").write_text("a\n3\n")
    assert prints.of(glob) == Fingerprints().of(glob)
    assert paths_read == ["p1.csv", "p2.csv", "p3.csv", "p1.csv", "p2.csv", "p3.csv"]


def test_the_snapshot_of_a_file_written_just_before_it_is_read_is_not_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long reading takes: a second write within the same clock tick would leave the same traces."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    paths_read, real = [], fingerprints._file_hash

    def read_slowly(path: str) -> str:
        monkeypatch.setattr(sources, "RECENT", 0)  # as if reading took a while
        paths_read.append(path)
        return real(path)

    monkeypatch.setattr(fingerprints, "_file_hash", read_slowly)
    snapshot = Fingerprints().look(source(path))
    assert not snapshot.certain
    assert snapshot.state != snapshot.state
    assert len(paths_read) == 1
    assert snapshot.is_current()
    assert len(paths_read) == 2, "traces alone are not enough"


def test_a_snapshot_is_current_until_its_files_are_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the same bytes are written again: a reader may have seen other bytes in between."""
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
    assert glob.is_current(), "a snapshot has only the files listed when it was taken"
    path.write_text("a\n2\n")
    path.write_text("a\n1\n")
    assert not file.is_current()
    assert not glob.is_current()
    (tmp_path / "a.duckdb.wal").write_bytes(b"more rows")
    assert not table.is_current()
    path.unlink()
    with pytest.raises(EngineError, match="a file no longer exists"):
        file.is_current()


def test_a_snapshot_of_a_frame_is_current_until_its_values_change() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    snapshot = Fingerprints().look(Source(frame=frame))
    assert snapshot.is_current()
    assert snapshot.state == Fingerprints().look(Source(frame=frame.copy())).state
    frame.loc[0, "a"] = 7
    assert not snapshot.is_current()


def test_two_tables_of_a_database_have_different_fingerprints(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert Fingerprints().of(source(path, table="t")) != Fingerprints().of(source(path, table="u"))


def test_all_spellings_of_a_table_name_have_the_same_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    same = {Fingerprints().of(source(path, table=table)) for table in ("t", "T", "main.t", "Main.T")}
    assert same == {
        Secret("of these tests").make_keyed_hash(
            hashlib.sha256(f"t{hashlib.sha256(path.read_bytes()).hexdigest()}".encode()).hexdigest()
        )
    }
    others = {Fingerprints().of(source(path, table=table)) for table in ("t", "other.t", "é", "É")}
    assert len(others) == 4, "DuckDB ignores case in ASCII only"


def test_a_file_without_tables_has_the_fingerprint_of_its_bytes(tmp_path: Path) -> None:
    """As in earlier versions, so that recorded answers are found."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    bytes_alone = Secret("of these tests").make_keyed_hash(
        hashlib.sha256(hashlib.sha256(path.read_bytes()).hexdigest().encode()).hexdigest()
    )
    for table in (None, "x"):
        assert Fingerprints().of(source(path, table=table)) == bytes_alone


def test_the_write_ahead_log_of_a_database_changes_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS a")
    before = Fingerprints().of(source(path, table="t"))
    (tmp_path / "a.duckdb.wal").write_bytes(b"more rows")
    assert Fingerprints().of(source(path, table="t")) != before


def test_missing_files_are_engine_errors(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="matches no file"):
        Fingerprints().of(Source("none.csv", directory=tmp_path))
    with pytest.raises(EngineError, match="a file no longer exists"):
        sources.read_trace(str(tmp_path / "none"))


DATA = {"a": [1, 2, 3], "b": ["x", None, "ž"], "c": [0.5, float("nan"), -0.0]}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_hash_of_a_frame_depends_on_its_names_and_values(kind: type) -> None:
    first = frame_hash(kind(DATA))
    assert frame_hash(kind(DATA)) == first
    for name, values in (("a", [1, 2, 4]), ("b", ["x", "", "ž"]), ("c", [0.5, 1.0, -0.0])):
        assert frame_hash(kind({**DATA, name: values})) != first
    assert frame_hash(kind({"z": DATA["a"], **{k: DATA[k] for k in ("b", "c")}})) != first


def test_slices_and_chunks_do_not_change_the_hash_of_a_frame() -> None:
    whole = pa.table(DATA)
    assert frame_hash(whole.slice(1, 2)) == frame_hash(pa.table({k: v[1:] for k, v in DATA.items()}))
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    assert frame_hash(chunked) == frame_hash(whole)
