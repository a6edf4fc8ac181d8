"""Spark's sessions: whose it is, what it says aloud, and with which settings our statements run.

A session that is already running is used; otherwise one is started, with the Python of this process for its workers,
with its log, UI and event log switched off, and with its local files encrypted in a folder of mode 700.

Statements of ours run in a session beside the user's, in the same context. **Guarantee.** Every `spark.sql` setting of
a session has Spark's default there, or the value in `SETTINGS`; only those in `COPIED`, which say how work is divided
and not what a row is, are the user's. So what the user has set changes no count, and nothing of theirs is changed. A
frame of the user's is evaluated once, before it is counted, with the user's settings and those in `STORING` over them.

The UI, the event log, listeners, plugins and sinks of metrics are shown row counts or the text of every statement: a
session that has one is refused, unless the curator allows it. So are extensions that are not known to leave plain
queries alone.

While a statement of ours runs, Spark's log and Python's loggers of it are silent: what they say of a failed task can
quote the data. Machines of a cluster write logs of their own, which only their owner can silence.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, finalize

from countveil.errors import CountveilError, EngineError, MissingExtraError, shortened

JAVA = "Spark needs Java 17 or later; install it, and set JAVA_HOME if it is not on the path"
STORING: Mapping[str, str] = {
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""How a frame of the user's is written; what it is, is the user's own, files that it reads with the user's settings."""
SETTINGS: Mapping[str, str] = {
    **STORING,
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
}
"""What all other statements of ours mean, whatever the user has set and whatever becomes Spark's default."""
COPIED = (
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.shuffle.partitions",
)
"""What the user has set for how work is divided."""
WINDOWS = {
    "spark.ui.enabled": "true",
    "spark.eventLog.enabled": "false",
    "spark.extraListeners": "",
    "spark.sql.queryExecutionListeners": "",
    "spark.plugins": "",
    "spark.plugins.defaultList": "",
}
"""Settings of a context that show others what is counted, and what they are if nobody has set them."""
METRICS = "spark.metrics.conf"
"""Where Spark's metrics go, in settings of this name or under it: records read and written are true counts."""
EXTENSIONS = {
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
"""Extensions that add commands and tables of their own, and leave queries of Parquet files as they are."""
STOPPED = "source: the Spark session of this DataFrame was stopped; give a frame of one that is running"
CONNECT = "source: a DataFrame of Spark Connect cannot be counted; give one of a session in this process, or files"
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
        return _start(SparkSession.builder.appName("countveil"))
    except Exception:
        raise EngineError(JAVA) from None


def _start(builder: Any) -> Any:
    """A session that shows nobody anything; what Spark puts on this disk is encrypted, in a folder of mode 700."""
    before = os.environ.get("SPARK_LOCAL_DIRS")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.io.encryption.enabled": "true",
        "spark.local.dir": str(_private_local_folder().path),
        "spark.sql.session.timeZone": "UTC",
    }
    os.environ["SPARK_LOCAL_DIRS"] = settings["spark.local.dir"]  # which Spark prefers to its own setting
    try:
        started = builder.config(map=settings).getOrCreate()
    finally:
        os.environ.pop("SPARK_LOCAL_DIRS") if before is None else os.environ.update(SPARK_LOCAL_DIRS=before)
    started.sparkContext.setLogLevel("OFF")
    return started


@cache
def _private_local_folder() -> PrivateFolder:
    """Where sessions that this process starts keep shuffle files, until it ends."""
    return PrivateFolder("countveil-spark-", os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None)


class PrivateFolder:
    """A folder of mode 700, removed with its last user, by `remove`, or when this process ends."""

    def __init__(self, prefix: str, place: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self.remove = finalize(self, _remove, self.path, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a fork has the object, but not the folder
        shutil.rmtree(folder, ignore_errors=True)


def session_of(frame: Any, *, shown: bool) -> Any:
    """The session of a frame, or of this process, if it may be used; `shown`: others may see what it counts."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise EngineError(CONNECT)
    user = session() if frame is None else frame.sparkSession
    if not alive(user):
        raise EngineError(STOPPED)
    conf = user.sparkContext.getConf()
    seen = _windows(user.sparkContext, conf)
    if seen and not shown:
        raise EngineError(
            f"source: the Spark session has {' and '.join(seen)} on, which shows row counts and the values of "
            "conditions to whoever can look; start it without, or set allow_spark_ui = true for the dataset"
        )
    added = {name.strip() for name in conf.get("spark.sql.extensions", "").split(",")} - EXTENSIONS - {""}
    if added:
        raise EngineError(
            f"source: the Spark session has spark.sql.extensions={shortened(min(added), 80)}, which can change what is "
            "counted; start it without"
        )
    return user


def _windows(context: Any, conf: Any) -> list[str]:
    """What shows others what is counted, by the settings; the UI also where it runs whatever they say."""
    seen = [key for key, usual in WINDOWS.items() if conf.get(key, usual).strip().lower() not in ("", "false")]
    if any(key == METRICS or key.startswith(f"{METRICS}.") for key, _ in conf.getAll()):
        seen.append(METRICS)
    if context.uiWebUrl is not None and "spark.ui.enabled" not in seen:
        seen.insert(0, "spark.ui.enabled")
    return seen


def ours(base: Any) -> Any:
    """The session of the same context in which we count."""
    with _LOCK:
        if base not in _OURS:
            _OURS[base] = plain_session(base)
        return _OURS[base]


def plain_session(base: Any) -> Any:
    """A new session of the same context with Spark's defaults, `SETTINGS` and `COPIED`; it has cached nothing."""
    made = _new_session(base)
    for key in made.conf.getAll:  # what the context was started with
        if key.startswith("spark.sql."):
            with suppress(Exception):  # of the context, and not of any session
                made.conf.unset(key)
    _apply(made, {**{key: base.conf.get(key) for key in COPIED}, **SETTINGS})
    return made


def user_session(base: Any) -> Any:
    """A new session of the same context with all that the user has set, and `STORING` over it."""
    made = _new_session(base)
    wanted = {key: value for key, value in base.conf.getAll.items() if base.conf.isModifiable(key)}
    _apply(made, {**wanted, **STORING})
    return made


def _new_session(base: Any) -> Any:
    from pyspark import RDD

    bound = RDD.toDF  # which pyspark binds to the newest session
    try:
        return base.newSession()
    finally:
        RDD.toDF = bound  # type: ignore[method-assign]


def _apply(session: Any, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        if session.conf.get(key, None) != value:  # to set some of them warns
            session.conf.set(key, value)


def alive(session: Any) -> bool:
    """The session was not stopped."""
    try:
        context = session.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except Exception:
        return False


@contextmanager
def quiet(session: Any, fault: str | None = None) -> Iterator[None]:
    """Neither Spark in this process nor pyspark prints anything; everything speaks again afterwards.

    An error that is not ours becomes an EngineError that says `fault` and nothing else: its words can quote the data.
    """
    global _silent
    with _LOCK:
        if not _silent:
            _restore.extend(_silenced(session))
        _silent += 1
    try:
        yield
    except BaseException as error:
        time.sleep(LINGER)
        if fault is None or isinstance(error, CountveilError) or not isinstance(error, Exception):
            raise
        raise EngineError(fault) from None
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


def noted(frame: Any, sums: Sequence[str]) -> tuple[Any, Callable[[], list[Any]]]:
    """A frame, and after it was written once: what these aggregates with names came to."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    observed = frame.observe(seen, *map(f.expr, sums))
    return observed, lambda: [seen.get.get(each.rpartition(" AS ")[2]) for each in sums]


def plain(path: str) -> str:
    """A path that Spark takes as it is: it would open wildcards."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
