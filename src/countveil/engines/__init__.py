"""Engines count; they never draw noise and never see an analyst's text.

    source              where the rows are, and a snapshot of them
    engine              the base class, how an engine is opened, the pool of those that are open
    sql                 question -> one statement, and how it reads a column as declared
    duckdb, csv_files   files, databases and frames in this process
    frames              pandas, polars and pyarrow as DuckDB reads them
    postgres, postgres_sql, postgres_checks
                        tables of a server
    spark, spark_sql, spark_session, spark_storage, spark_release, labels
                        tables past one machine
    survey              what a curator sees of a source

An engine of a third party is a subclass of `Engine`, named by the entry point `countveil.engines`.
"""

from countveil.engines.engine import ENGINES, Engine, EnginePool, SqlEngine, open_engine
from countveil.engines.source import Snapshot, Source

__all__ = ["ENGINES", "Engine", "EnginePool", "Snapshot", "Source", "SqlEngine", "open_engine"]
