"""Which modules of countveil run on the way of a design, a count and a POST: the files that a reader visits.

    python -m tests.support.walks

A module counts if one of its functions runs; what runs while modules are imported does not.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import countveil
from countveil import cli
from tests.support.curated import config_text, people, with_plan, written
from tests.support.serving import SOME

ROOT = Path(countveil.__file__).parent
QUESTION = "SELECT region, count(*) FROM people WHERE age >= 20 GROUP BY region"


class Walk:
    """The files of countveil whose functions are called, in the order of the first call, in every thread that starts
    while the walk is open."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self._walking = False

    def __enter__(self) -> Walk:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def take(self, task: Callable[[], None]) -> list[str]:
        """The files that a task visits."""
        self._walking = True
        task()
        self._walking = False
        return list(self.files)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._walking or event != "call" or not frame.f_code.co_flags & CO_OPTIMIZED:
            return
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and not _importing(frame):
            self.files.setdefault(str(file.relative_to(ROOT)))


def _importing(frame: FrameType | None) -> bool:
    """Whether the frame runs because a module is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(ROOT)):
            return True
        frame = frame.f_back
    return False


def _run(*words: str) -> None:
    sys.argv = ["countveil", *words]
    out, err = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with out, err, contextlib.suppress(SystemExit):
        cli.main()


def _folder(path: Path) -> Path:
    people(path)
    config = written(path, config_text(budget=SOME))
    with_plan(config)
    return config


def walk_design() -> list[str]:
    """`countveil design --epsilon 1 --delta 1e-6`."""
    with Walk() as walk:
        return walk.take(lambda: _run("design", "--epsilon", "1", "--delta", "1e-6"))


def walk_count() -> list[str]:
    """`countveil count`, of a pool whose plan is on record."""
    with tempfile.TemporaryDirectory() as folder, Walk() as walk:
        config = _folder(Path(folder))
        return walk.take(lambda: _run("count", QUESTION, "--config", str(config)))


def walk_post() -> list[str]:
    """`POST /v1/count` in a service that has started."""
    from starlette.testclient import TestClient

    from countveil.config import load
    from countveil.keys import Keyring
    from countveil.service.app import Settings, create_app

    with tempfile.TemporaryDirectory() as folder, Walk() as walk:
        config = _folder(Path(folder))
        _, key = Keyring(load(config, {}).service.keys).add("ann")
        with TestClient(create_app(Settings(str(config))), base_url="http://localhost") as client:
            headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "walk"}

            def post() -> None:
                reply = client.post("/v1/count", json={"sql": QUESTION}, headers=headers)
                assert reply.status_code == 200, reply.text

            return walk.take(post)


WALKS = {"countveil design": walk_design, "countveil count": walk_count, "POST /v1/count": walk_post}

if __name__ == "__main__":
    for name, walk in WALKS.items():
        files = walk()
        print(f"{name}: {len(files)} files")
        for file in files:
            print(f"  {file}")
