"""Engines count; they never draw noise and never see an analyst's text.

    engine            the base classes, how an engine is opened, the pool of open engines
    families          the types that sources have, and how each can be read
    sql               question -> one statement, and how it reads columns
    bounding          the part of the statement that bounds what each person contributes
    steps             how derived columns are read in SQL: the place of a value between cuts
    duckdb            files, databases and frames in this process
    duckdb_sql        DuckDB's SQL dialect
    postgres          tables of a PostgreSQL server
    postgres_sql      how PostgreSQL reads a column as declared
    postgres_checks   whether a table of PostgreSQL may be counted
    spark             files, tables and DataFrames that are too large for one machine
    spark_sql         Spark's SQL dialect
    spark_session     Spark's sessions and their settings
    spark_storage     rows that are stored before they are counted
    spark_release     noise drawn by Spark's workers, written once

A third-party engine is a subclass of `Engine` that its package registers under the entry point `countveil.engines`.
"""

from countveil.data.engines.engine import ENGINES, Engine, EnginePool, SqlEngine, open_engine
from countveil.data.source import Snapshot, Source

__all__ = ["ENGINES", "Engine", "EnginePool", "Snapshot", "Source", "SqlEngine", "open_engine"]
