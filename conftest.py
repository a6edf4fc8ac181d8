"""Names that the examples in docstrings use: a `curator` of invented people, and a `service` that serves them.

The examples of publications use the curator of the demo's publication.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
def yearbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the visitors of the demo, their publication, and a ledger that has its plan."""
    from countveil.curator.curator import Curator
    from countveil.demo import visitors

    folder = tmp_path_factory.mktemp("examples") / "visitors"
    visitors.write(folder)
    with Curator.open(folder / "countveil.toml") as curator:
        curator._plans.of(curator.config.dataset("visitors"), opened=True)
    return folder


@pytest.fixture(scope="session")
def served(census: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with serve(census, tmp_path_factory.mktemp("service")) as names:
        yield names


@pytest.fixture(scope="session")
def served_yearbook(yearbook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with serve(yearbook, tmp_path_factory.mktemp("service")) as names:
        yield names


@contextmanager
def serve(place: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """A service of a copy of a folder, with its publications."""
    from countveil.client.connection import Connection
    from countveil.curator.curator import Curator
    from tests.support.serving import Server

    config = shutil.copytree(place, folder / "place") / "countveil.toml"
    with Curator.open(config) as curator:
        for name in curator.config.publications:
            curator.publish(name)
    server = Server(config)
    key = server.key("ann")
    with Connection(server.url, key) as service:
        yield {"url": server.url, "key": key, "service": service}
    server.stop()


@pytest.fixture(autouse=True)
def example_names(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the examples of `curator` and `client` their names; the curator is a new one for each docstring."""
    test = getattr(request.node, "dtest", None)
    folder = request.path.parent.name
    if test is None or folder not in ("curator", "client", "publication"):
        yield
        return
    if folder == "client":
        test.globs.update(request.getfixturevalue("served_yearbook" if "publication" in test.name else "served"))
        yield
        return
    here, monkeypatch = request.getfixturevalue("tmp_path"), request.getfixturevalue("monkeypatch")
    from countveil.curator.curator import Curator

    published = folder == "publication" or request.path.stem == "publishing" or "publication" in test.name
    copy = shutil.copytree(request.getfixturevalue("yearbook" if published else "census"), here / "census")
    monkeypatch.chdir(here)
    with Curator.open(copy / "countveil.toml") as curator:
        test.globs["curator"] = curator
        yield
