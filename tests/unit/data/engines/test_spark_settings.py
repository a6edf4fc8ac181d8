"""The settings with which our statements run, and the files of a session that we start."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path
from typing import Any

import pytest

from countveil.data.engines.spark_session import (
    COPIED,
    SETTINGS,
    STORING,
    WINDOWS,
    plain_session,
    session_of,
    user_session,
)
from countveil.errors import EngineError
from tests.support.servers import spark

LOOKED_AT = Path(__file__).with_name("spark_settings.txt")
OF_THE_CONTEXT = {
    "no statement of ours reads it": """
        spark.python.sql.dataFrameDebugging.enabled spark.sql.artifact.copyFromLocalToFs.allowDestLocal
        spark.sql.avro.schemaUrlAllowedSchemes spark.sql.cache.serializer spark.sql.hive.thriftServer.singleSession
        spark.sql.hive.thriftServer.http.sniHostCheckEnabled spark.sql.kafka.disallowedOptions
        spark.sql.legacy.hive.thriftServer.allowSettingSystemProperties spark.sql.reflect.allowList
        spark.sql.restrictedMode.enabled spark.sql.sources.disabledJdbcConnProviderList
        spark.sql.streaming.streamingQueryListeners spark.sql.streaming.ui.enabled
        spark.sql.streaming.ui.enabledCustomMetricList spark.sql.streaming.ui.retainedProgressUpdates
        spark.sql.streaming.ui.retainedQueries spark.sql.ui.retainedExecutions spark.sql.event.truncate.length
        spark.sql.defaultUrlStreamHandlerFactory.enabled spark.sql.debug""",
    "it says how fast, not what": """
        spark.sql.broadcastExchange.maxThreadThreshold spark.sql.codegen.cache.maxEntries spark.sql.codegen.comments
        spark.sql.resultQueryStage.maxThreadThreshold spark.sql.shuffleExchange.maxThreadThreshold
        spark.sql.subquery.maxThreadThreshold spark.sql.sources.schemaStringLengthThreshold
        spark.sql.filesourceTableRelationCacheSize spark.sql.metadataCacheTTLSeconds""",
    "it says which catalogue there is; a table is asked for by its full name": """
        spark.sql.catalog.spark_catalog.defaultDatabase spark.sql.catalogImplementation spark.sql.globalTempDatabase
        spark.sql.hive.metastore.barrierPrefixes spark.sql.hive.metastore.jars spark.sql.hive.metastore.jars.path
        spark.sql.hive.metastore.sharedPrefixes spark.sql.hive.metastore.version spark.sql.hive.version
        spark.sql.warehouse.dir""",
    "it says whether the context's settings begin a session, and ours are taken back": """
        spark.sql.legacy.sessionInitWithConfigDefaults""",
    "refused, in session_of": """
        spark.sql.extensions spark.sql.queryExecutionListeners""",
    "it says whether Spark's own tests find extensions": """
        spark.sql.extensions.test.loadFromCp""",
}


def entries() -> dict[str, Any]:
    """Every setting of this version of Spark, internal ones included."""
    shown = {row.key for row in spark().sql("SET -v").collect()}  # which also loads those of Hive
    found = getattr(getattr(spark()._jvm, "org.apache.spark.sql.internal.SQLConf$"), "MODULE$").getConfigEntries()
    known = {entry.key(): entry for entry in found.toArray()}
    assert {key for key in shown if key.startswith("spark.sql.")} <= set(known)
    assert len(known) > 800
    return known


def test_every_setting_of_this_spark_was_reviewed() -> None:
    """A setting that a new version of Spark adds makes this test fail until somebody has reviewed its default."""
    user, known = spark(), entries()
    of_sessions = {key for key in known if user.conf.isModifiable(key)}
    looked_at = {line for line in LOOKED_AT.read_text().splitlines() if not line.startswith("#")}
    assert of_sessions - looked_at == set()
    assert set(known) - of_sessions - {key for keys in OF_THE_CONTEXT.values() for key in keys.split()} == set()


def other(default: str) -> str | None:
    """A value that is not the default."""
    flipped = {"true": "false", "false": "true", "CORRECTED": "LEGACY"}.get(default)
    return str(int(default) + 1) if default.isdigit() else flipped


def test_the_settings_of_a_user_have_no_effect_on_our_statements() -> None:
    """Every setting of the session has Spark's default or our value, except those that only divide the work."""
    user = spark().newSession()
    changed = {}
    for key, entry in entries().items():
        value = other(entry.defaultValueString())
        if value is not None and user.conf.isModifiable(key):
            try:
                user.conf.set(key, value)
            except Exception:  # a setting that Spark has taken away
                continue
            changed[key] = value
    assert len(changed) > 500
    assert set(SETTINGS) - set(changed) <= {"spark.sql.session.timeZone"}
    made = plain_session(user)
    given = {key: value for key, value in made.conf.getAll.items() if made.conf.isModifiable(key)}
    assert given == {**{key: user.conf.get(key) for key in COPIED}, **SETTINGS}
    storing = user_session(user)
    for key, value in changed.items():
        assert storing.conf.get(key) == STORING.get(key, value)


def test_dates_are_read_and_written_in_the_same_calendar() -> None:
    for kind in ("datetime", "int96"):
        for way in ("Read", "Write"):
            assert SETTINGS[f"spark.sql.parquet.{kind}RebaseModeIn{way}"] == "CORRECTED"


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("spark.metrics.conf", "spark.metrics.conf"),
        ("spark.metrics.conf.*.sink.csv.class", "spark.metrics.conf"),
        ("spark.plugins", "spark.plugins"),
    ],
)
def test_sessions_with_metrics_sinks_or_plugins_are_refused(
    key: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = spark()
    frame = user.range(1)
    assert session_of(frame, shown=False) is user
    monkeypatch.setattr(user.sparkContext, "_conf", user.sparkContext.getConf().set(key, "org.example.Sink"))
    with pytest.raises(EngineError, match=f"the Spark session has {named} on, so others can see row counts"):
        session_of(frame, shown=False)
    assert session_of(frame, shown=True) is user


def test_local_files_of_a_started_session_are_private_and_encrypted() -> None:
    session = spark()
    conf = session.sparkContext.getConf()
    assert [conf.get(key) for key in WINDOWS] == ["false", "false", None, None, None, None]
    assert conf.get("spark.io.encryption.enabled") == "true"
    folder = Path(conf.get("spark.local.dir"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    word = f"needle{uuid.uuid4().hex}"
    before = set(folder.rglob("shuffle_*.data"))
    kept = session.sql(f"SELECT concat('{word}', id) AS word, rand() AS x FROM range(50)").repartition(2, "x").cache()
    try:
        assert kept.count() == 50
        shuffled = set(folder.rglob("shuffle_*.data")) - before
        assert shuffled  # they are where they should be
        assert not any(word.encode()[:12] in file.read_bytes() for file in shuffled)
    finally:
        kept.unpersist()
