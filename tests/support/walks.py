"""The walks in CONTRIBUTING.md: the modules of countveil that run during a design, a count and a POST.

    python -m tests.support.walks      writes them into CONTRIBUTING.md

A module belongs to a walk if one of its functions runs; functions that run during an import do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import tempfile
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from fastapi import FastAPI

import countveil
from countveil import cli
from countveil.config.configuration import load
from countveil.service.api_keys import Keyring
from countveil.service.app import Settings, create_app
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

    def begin(self) -> None:
        self._walking = True

    def end(self) -> list[str]:
        """The files that were visited since `begin`."""
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
        walk.begin()
        _run("design", "--epsilon", "1", "--delta", "1e-6")
        return walk.end()


def walk_count() -> list[str]:
    """`countveil count`, from a pool whose plan is in the ledger."""
    with tempfile.TemporaryDirectory() as folder, Walk() as walk:
        config = _folder(Path(folder))
        walk.begin()
        _run("count", QUESTION, "--config", str(config))
        return walk.end()


def walk_post() -> list[str]:
    """`POST /v1/count` in a service that has started."""
    with tempfile.TemporaryDirectory() as folder, Walk() as walk:
        config = _folder(Path(folder))
        _, key = Keyring(load(config, {}).service.keys).add("ann")
        return asyncio.run(_post(walk, create_app(Settings(str(config))), key))


async def _post(walk: Walk, app: FastAPI, key: str) -> list[str]:
    transport = httpx.ASGITransport(app=app)
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "walk"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client,
    ):
        walk.begin()
        reply = await client.post("/v1/count", json={"sql": QUESTION})
        files = walk.end()
    assert reply.status_code == 200, reply.text
    return files


WALKS = {"countveil design": walk_design, "countveil count": walk_count, "POST /v1/count": walk_post}
PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
BEGIN, END = "<!-- walks: python -m tests.support.walks -->\n", "<!-- end of walks -->"


def render_walks() -> str:
    """Run the three walks, and return their text for CONTRIBUTING.md."""
    lines = []
    for name, walk in WALKS.items():
        files = [file.removesuffix(".py") for file in walk()]
        lines.append(f"- `{name}`, {len(files)} files: {', '.join(files)}")
    return "\n".join(lines) + "\n"


def read_walks() -> str:
    """The text of the three walks that CONTRIBUTING.md has now."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page.replace(read_walks(), render_walks()))
    print(read_walks(), end="")
