"""Spark's sessions: which one is used, what it logs, and with which settings our statements run.

If a session is already running, it is used. Otherwise one is started: its workers use the Python of this process, its
log, UI and event log are switched off, and its local files are encrypted in a folder that only the owner can read.

Our statements run in a separate session of the same context. **Guarantee.** Every `spark.sql` setting of that session
has Spark's default or the value in `SETTINGS`; only the settings in `COPIED`, which say how work is divided and not
what a row is, have the user's values. So the user's settings change no count, and the user's session is not modified. A
frame is evaluated once, before it is counted, with the user's settings, except for those in `STORING`.

The UI, the event log, listeners, plugins and metrics sinks receive row counts or the text of every statement. A session
that has one of them is refused, unless the curator allows it. Extensions are refused too, except those that are known
to leave plain queries unchanged.

While our statements run, Spark's log and pyspark's loggers are silent, because messages about a failed task can quote
the data. The machines of a cluster write their own logs, which only their owner can silence.
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

from countveil.errors import CountveilError, EngineError, MissingExtraError, shorten

JAVA = "Spark needs Java 17 or later; install it, and set JAVA_HOME if it is not on the path"
STORING: Mapping[str, str] = {
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
"""Settings with which a user's frame is written to files. The frame itself is evaluated with the user's settings."""
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
"""Settings of the session in which our statements run: neither the user nor a later Spark can change them."""
COPIED = (
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.shuffle.partitions",
)
"""Settings that are copied from the user's session: they say how work is divided and change no result."""
WINDOWS = {
    "spark.ui.enabled": "true",
    "spark.eventLog.enabled": "false",
    "spark.extraListeners": "",
    "spark.sql.queryExecutionListeners": "",
    "spark.plugins": "",
    "spark.plugins.defaultList": "",
}
"""Settings, with Spark's defaults, that can let others see what is counted."""
METRICS = "spark.metrics.conf"
"""The setting, or prefix of settings, for metrics sinks. They receive the numbers of records read, which are true
counts."""
EXTENSIONS = {
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
"""Extensions that are allowed: they only add commands and tables, and leave queries of Parquet files unchanged."""
STOPPED = "source: the Spark session of this DataFrame was stopped; give a frame of a running session"
CONNECT = "source: a DataFrame of Spark Connect cannot be counted; give one of a session in this process, or files"
QUOTING = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of pyspark whose messages quote the text of a statement."""
LINGER = 0.5
"""How many seconds the logs stay silent after a failure, because other tasks of the same job may fail too."""

_LOCK = threading.Lock()
_ACTIVE = threading.Lock()
"""A lock, held while another session than the user's may be the active one."""
_OURS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_LOGS: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()
_silent = 0
_restore: list[Callable[[], None]] = []


def session() -> Any:
    """The running Spark session of this process, left as it is; if there is none, a new one."""
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
    """Start a session without UI and event log. Spark's local files are encrypted, in a folder that only the owner can
    read."""
    before = os.environ.get("SPARK_LOCAL_DIRS")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.io.encryption.enabled": "true",
        "spark.local.dir": str(_private_local_folder().path),
        "spark.sql.session.timeZone": "UTC",
    }
    os.environ["SPARK_LOCAL_DIRS"] = settings["spark.local.dir"]  # Spark prefers it to spark.local.dir
    try:
        started = builder.config(map=settings).getOrCreate()
    finally:
        os.environ.pop("SPARK_LOCAL_DIRS") if before is None else os.environ.update(SPARK_LOCAL_DIRS=before)
    started.sparkContext.setLogLevel("OFF")
    return started


@cache
def _private_local_folder() -> PrivateFolder:
    """The folder for the shuffle files of sessions that this process starts; it is removed when the process ends."""
    return PrivateFolder("countveil-spark-", os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None)


class PrivateFolder:
    """A folder that only its owner can read. `remove` deletes it; so does the end of this object or of the process."""

    def __init__(self, prefix: str, place: str | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self.remove = finalize(self, _remove, self.path, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked process has the object, but does not own the folder
        shutil.rmtree(folder, ignore_errors=True)


def session_of(frame: Any, *, shown: bool) -> Any:
    """The session of a frame, or the session of this process if there is no frame.

    A session that lets others see what is counted is refused, unless `shown`.
    """
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise EngineError(CONNECT)
    user = session() if frame is None else frame.sparkSession
    if not alive(user):
        raise EngineError(STOPPED)
    conf = user.sparkContext.getConf()
    windows = _windows(user.sparkContext, conf)
    if windows and not shown:
        raise EngineError(
            f"source: the Spark session has {' and '.join(windows)} on, so others can see row counts and the values "
            "of conditions; start it without, or set allow_spark_ui = true for the dataset"
        )
    unknown = {name.strip() for name in conf.get("spark.sql.extensions", "").split(",")} - EXTENSIONS - {""}
    if unknown:
        raise EngineError(
            f"source: the Spark session has spark.sql.extensions={shorten(min(unknown), 80)}, which can change what is "
            "counted; start it without"
        )
    return user


def _windows(context: Any, conf: Any) -> list[str]:
    """Names of the settings through which others see what is counted; the UI is included if it runs despite its
    setting."""
    windows = [key for key, usual in WINDOWS.items() if conf.get(key, usual).strip().lower() not in ("", "false")]
    if any(key == METRICS or key.startswith(f"{METRICS}.") for key, _ in conf.getAll()):
        windows.append(METRICS)
    if context.uiWebUrl is not None and "spark.ui.enabled" not in windows:
        windows.insert(0, "spark.ui.enabled")
    return windows


def ours(base: Any) -> Any:
    """The session in which we count: it shares the context of the user's session `base`, but not its settings."""
    with _LOCK:
        if base not in _OURS:
            _OURS[base] = plain_session(base)
        return _OURS[base]


def plain_session(base: Any) -> Any:
    """A new session in the context of `base`, with an empty cache and Spark's defaults.

    Exceptions are the values in `SETTINGS`, and the settings in `COPIED`, which are taken from `base`.
    """
    session = _new_session(base)
    for key in session.conf.getAll:  # settings that the context was started with
        if key.startswith("spark.sql."):
            with suppress(Exception):  # a setting of the context cannot be unset in a session
                session.conf.unset(key)
    _apply(session, {**{key: base.conf.get(key) for key in COPIED}, **SETTINGS})
    return session


def user_session(base: Any) -> Any:
    """A new session in the context of `base`, with the settings of `base`, except for the values in `STORING`."""
    session = _new_session(base)
    settings = {key: value for key, value in base.conf.getAll.items() if base.conf.isModifiable(key)}
    _apply(session, {**settings, **STORING})
    return session


def _new_session(base: Any) -> Any:
    from pyspark import RDD

    bound = RDD.toDF  # pyspark binds it to the newest session
    try:
        return base.newSession()
    finally:
        RDD.toDF = bound  # type: ignore[method-assign]


def _apply(session: Any, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        if session.conf.get(key, None) != value:  # setting some of them prints a warning
            session.conf.set(key, value)


def alive(session: Any) -> bool:
    """Whether the session is still running."""
    try:
        context = session.sparkContext._jsc
        return context is not None and not context.sc().isStopped()
    except Exception:
        return False


@contextmanager
def quiet(session: Any, fault: str | None = None) -> Iterator[None]:
    """Within this block, silence the logs of Spark in this process and of pyspark.

    With `fault`, an error that is not ours becomes an EngineError with that text, because its message can quote the
    data.
    """
    global _silent
    with _LOCK:
        if not _silent:
            _restore.extend(_silence(session))
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
                with suppress(Exception):  # the session may have been stopped
                    _restore.pop()()


def _silence(session: Any) -> Iterator[Callable[[], None]]:
    from pyspark.logger import PySparkLogger

    for name in QUOTING:
        logger: logging.Logger = PySparkLogger.getLogger(name)
        yield lambda logger=logger, before=logger.disabled: setattr(logger, "disabled", before)  # type: ignore[misc]
        logger.disabled = True
    with suppress(Exception):  # Spark may log by another library than log4j
        log, deny_all = _log(session.sparkContext)
        configuration = log.getConfiguration()
        configuration.addFilter(deny_all)
        yield lambda: configuration.removeFilter(deny_all)


def _log(context: Any) -> tuple[Any, Any]:
    """The log4j context of Spark's process, and a filter that drops every message."""
    if context not in _LOGS:
        log4j = context._jvm.org.apache.logging.log4j
        _LOGS[context] = log4j.LogManager.getContext(False), log4j.core.filter.DenyAllFilter.newBuilder().build()
    return _LOGS[context]


def local(session: Any, table: Any) -> Any:
    """Turn a small Arrow table into a frame that is joined without an additional job; the active session does not
    change."""
    from pyspark.sql import SparkSession

    sessions = SparkSession._get_j_spark_session_class(session.sparkContext._jvm)
    with _ACTIVE:
        shown, active = SparkSession._activeSession, sessions.getActiveSession()
        try:
            return session.createDataFrame(table)
        finally:
            SparkSession._activeSession = shown
            sessions.setActiveSession(active.get()) if active.isDefined() else sessions.clearActiveSession()


def observe(frame: Any, sums: Sequence[str]) -> tuple[Any, Callable[[], list[Any]]]:
    """Compute sums of a frame while it is written.

    Returns the frame to write, and a function that returns the values of the sums once it is written.
    """
    from pyspark.sql import Observation, functions as f

    observation = Observation()
    observed_frame = frame.observe(observation, *map(f.expr, sums))
    return observed_frame, lambda: [observation.get.get(each.rpartition(" AS ")[2]) for each in sums]


def plain(path: str) -> str:
    """A path whose wildcards are escaped, so that Spark does not expand them."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
