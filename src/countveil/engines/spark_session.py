"""Spark's sessions: whose it is, what it says aloud, and with which settings our statements run.

A session that is already running is used; otherwise one is started, with the Python of this process for its workers and
its log switched off. Statements of ours run in a session beside the user's, with the same context and its own settings:
what the user has set for queries of theirs changes no count, and nothing of theirs is changed.

While a statement of ours runs, Spark's log and Python's loggers of it are silent: what they say of a failed task can
quote the data. Machines of a cluster write logs of their own, which only their owner can silence.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from countveil.errors import EngineError, MissingExtraError

JAVA = "Spark needs Java 17 or later; install it, and set JAVA_HOME if it is not on the path"
SETTINGS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
}
"""What statements of ours mean, whatever the user has set."""
QUOTING = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of pyspark that print what an error quotes."""
LINGER = 0.5
"""Seconds of silence after a failure: other tasks of the same job may fail too."""

_LOCK = threading.Lock()
_ACTIVE = threading.Lock()
"""Held while another session than the user's may be the active one."""
_OURS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_LOGS: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()
_silent = 0
_restore: list[Callable[[], None]] = []


def session() -> Any:
    """The Spark session of this process, started if there is none; one that runs is left as it is."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    with _ACTIVE:
        running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if SparkContext._active_spark_context is not None:  # a thread in which no session was used yet
        return SparkSession.builder.getOrCreate()
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise EngineError(JAVA)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        started = (
            SparkSession.builder.appName("countveil")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        started.sparkContext.setLogLevel("OFF")
    except Exception:
        raise EngineError(JAVA) from None
    return started


def ours(base: Any) -> Any:
    """A session of the same context for statements of ours: the user's settings of today, and `SETTINGS` over them."""
    with _LOCK:
        found = _OURS.get(base)
        if found is None:
            found = _OURS[base] = _beside(base)
        return found


def _beside(base: Any) -> Any:
    from pyspark import RDD

    bound = RDD.toDF  # which pyspark binds to the newest session
    try:
        made = base.newSession()
    finally:
        RDD.toDF = bound  # type: ignore[method-assign]
    wanted = {key: value for key, value in base.conf.getAll.items() if base.conf.isModifiable(key)}
    for key, value in {**wanted, **SETTINGS}.items():
        if made.conf.get(key, None) != value:  # to set some of them warns
            made.conf.set(key, value)
    return made


def alive(session: Any) -> bool:
    """The session was not stopped."""
    try:
        context = session.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except Exception:
        return False


@contextmanager
def quiet(session: Any) -> Iterator[None]:
    """Neither Spark in this process nor pyspark prints anything; everything speaks again afterwards."""
    global _silent
    with _LOCK:
        if not _silent:
            _restore.extend(_silenced(session))
        _silent += 1
    try:
        yield
    except BaseException:
        time.sleep(LINGER)
        raise
    finally:
        with _LOCK:
            _silent -= 1
            while _restore and not _silent:
                with suppress(Exception):  # the session may be gone
                    _restore.pop()()


def _silenced(session: Any) -> Iterator[Callable[[], None]]:
    from pyspark.logger import PySparkLogger

    for name in QUOTING:
        logger: logging.Logger = PySparkLogger.getLogger(name)
        yield lambda logger=logger, before=logger.disabled: setattr(logger, "disabled", before)  # type: ignore[misc]
        logger.disabled = True
    with suppress(Exception):  # another log than log4j
        log, nothing = _log(session.sparkContext)
        spoken = log.getConfiguration()
        spoken.addFilter(nothing)
        yield lambda: spoken.removeFilter(nothing)


def _log(context: Any) -> tuple[Any, Any]:
    """The log of Spark's process, and a filter that lets nothing pass."""
    if context not in _LOGS:
        log4j = context._jvm.org.apache.logging.log4j
        _LOGS[context] = log4j.LogManager.getContext(False), log4j.core.filter.DenyAllFilter.newBuilder().build()
    return _LOGS[context]


def local(session: Any, table: Any) -> Any:
    """A frame of an Arrow table that joins without a job of its own; the user's active session stays the active one."""
    from pyspark.sql import SparkSession

    sessions = SparkSession._get_j_spark_session_class(session.sparkContext._jvm)
    with _ACTIVE:
        shown, active = SparkSession._activeSession, sessions.getActiveSession()
        try:
            return session.createDataFrame(table)
        finally:
            SparkSession._activeSession = shown
            sessions.setActiveSession(active.get()) if active.isDefined() else sessions.clearActiveSession()


def noted(frame: Any) -> tuple[Any, Callable[[], tuple[int, int]]]:
    """A frame of counts n, and after it was written once: how many there were, and their sum."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    observed = frame.observe(seen, f.count(f.lit(1)).alias("rows"), f.sum("n").alias("total"))
    return observed, lambda: (int(seen.get.get("rows") or 0), int(seen.get.get("total") or 0))


def plain(path: str) -> str:
    """A path that Spark takes as it is: it would open wildcards."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
