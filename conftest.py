"""Names that the examples in docstrings use: a `curator` of invented people, and a `service` that serves them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def census(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the census of the demo and a ledger that has its plan."""
    from countveil.curator.curator import Curator
    from countveil.demo import census

    folder = tmp_path_factory.mktemp("examples") / "census"
    folder.mkdir()
    census.write(folder)
    Curator.open(folder / "countveil.toml").close()
    return folder


@pytest.fixture(scope="session")
def served(census: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    from countveil.client.connection import Connection
    from countveil.curator.curator import Curator
    from tests.support.serving import Server

    folder = shutil.copytree(census, tmp_path_factory.mktemp("service") / "census")
    with Curator.open(folder / "countveil.toml") as curator:
        for name in curator.config.publications:
            curator.publish(name)
    server = Server(folder / "countveil.toml")
    key = server.key("ann")
    with Connection(server.url, key) as service:
        yield {"url": server.url, "key": key, "service": service}
    server.stop()


@pytest.fixture(autouse=True)
def example_names(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the examples of `curator` and `client` their names; the curator is a new one for each docstring."""
    test = getattr(request.node, "dtest", None)
    folder = request.path.parent.name
    if test is None or folder not in ("curator", "client"):
        yield
        return
    if folder == "client":
        test.globs.update(request.getfixturevalue("served"))
        yield
        return
    here, monkeypatch = request.getfixturevalue("tmp_path"), request.getfixturevalue("monkeypatch")
    from countveil.curator.curator import Curator

    copy = shutil.copytree(request.getfixturevalue("census"), here / "census")
    monkeypatch.chdir(here)
    with Curator.open(copy / "countveil.toml") as curator:
        test.globs["curator"] = curator
        yield
