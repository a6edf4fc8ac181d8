"""Real servers for tests, started from Debian's packages in a private folder, on a private port, without privileges."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import need


class Postgres:
    """A private cluster: `url` is for a role that can only connect and read, `admin` for the owner of everything."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.user = _unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="countveil-postgres-"))
        self.port = _free_port()
        os.chmod(self.folder, 0o755)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if self.user:
            shutil.chown(self.data, self.user)
            shutil.chown(self.folder, self.user)
        self._run(
            "initdb", "-D", self.data, "-U", "owner", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"
        )
        self.start()
        self.sql("CREATE ROLE reader LOGIN")
        self.sql("CREATE ROLE writer LOGIN")
        self.sql("CREATE DATABASE ledgers OWNER writer")

    @property
    def admin(self) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/postgres"

    @property
    def url(self) -> str:
        return f"postgresql://reader@127.0.0.1:{self.port}/postgres"

    @property
    def ledgers(self) -> str:
        return f"postgresql://writer@127.0.0.1:{self.port}/ledgers"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200"
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop", check=False)

    def sql(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.admin, autocommit=True) as connection:
            connection.execute(statement)

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *words: object, check: bool = True) -> None:
        command = [str(self.programs / program), *map(str, words)]
        done = subprocess.run(
            command,
            user=self.user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )
        if check and done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")


def postgres() -> Postgres:
    """The cluster of this worker; if a package is missing, the test is skipped with its name."""
    return _cluster(need("initdb").parent)


@cache
def _cluster(programs: Path) -> Postgres:
    pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'countveil[postgres]'")
    server = Postgres(programs)
    atexit.register(server.remove)
    return server


def spark() -> Any:
    """The Spark session of this worker, on two cores of this machine."""
    need("java")
    return _session()


@cache
def _session() -> Any:
    pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'countveil[spark]'")
    from countveil.data.engines.spark import session

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault(
        "PYSPARK_SUBMIT_ARGS", "--master local[2] --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = session()
    started.conf.set("spark.sql.shuffle.partitions", "2")
    started.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")  # naive times of Arrow stay naive
    atexit.register(started.stop)
    return started


def _unprivileged() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: object, seconds: float = 30) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
