"""The application: routes, what surrounds them, and what is opened when it starts and closed when it ends."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

import countveil
from countveil.config import Config, load
from countveil.curator import Curator
from countveil.durable_files import create_private
from countveil.errors import CountveilError
from countveil.keys import Keyring
from countveil.problem_kinds import Kind
from countveil.sampling.entropy import token
from countveil.service.clients import Rates
from countveil.service.guard import Guard
from countveil.service.models import WORDS
from countveil.service.page.sessions import LoginNeededError, wanted
from countveil.service.page.views import page, refusal
from countveil.service.problems import Problem, internal, problem
from countveil.service.routes import plain, v1
from countveil.service.work import Workshop

ENVIRONMENT = "COUNTVEIL_SERVICE"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """How the service runs. `hosts` are the names it answers to, none for any; `rate` is a minute's for one worker."""

    config: str | None = None
    open_design: bool = True
    hosts: tuple[str, ...] = LOOPBACK
    tls: bool = False
    rate: float = 600.0
    secure: bool = False
    """Cookies only over TLS, ours or a proxy's."""
    supervised: bool = False
    """One of several workers, which end when the process that started them is gone."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For is believed."""
    folder: str | None = None
    """The private folder of this run: the configuration as it was checked when the run began, and the secret."""

    @property
    def document(self) -> Path | None:
        return None if self.folder is None else Path(self.folder) / "countveil.toml"

    def text(self) -> str:
        return json.dumps(asdict(self))


def make_folder(config: Config) -> str:
    """A private folder for one run: what its workers share, and what has no place in their environment."""
    folder = tempfile.mkdtemp(prefix="countveil-serve-")  # of mode 0700
    for name, text in (("countveil.toml", config.text), ("secret", token(32))):
        with open(create_private(Path(folder) / name), "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def from_environment() -> FastAPI:
    """The application of a worker process."""
    found = json.loads(os.environ[ENVIRONMENT])
    if found.get("supervised"):
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    return create_app(Settings(**{**found, "hosts": tuple(found["hosts"]), "proxies": tuple(found["proxies"])}))


def _end_with(parent: int) -> None:
    """Finish what is under way and end, once the parent is gone: nobody could stop a worker without one by its name."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def create_app(settings: Settings) -> FastAPI:
    """The application; the curator's configuration is read and its ledger checked when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        config = bounded(load(settings.config, copy=settings.document))
        app.state.curator, app.state.keyring = Curator.open(config), Keyring(config.service.keys)
        app.state.workshop = Workshop()
        app.state.key_rates, app.state.client_rates = Rates(settings.rate), Rates(settings.rate)
        try:
            yield
        finally:
            app.state.workshop.close()
            app.state.curator.close()

    app = FastAPI(
        title="countveil",
        version=countveil.__version__,
        summary="Counts that protect the people counted.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.proxies = tuple(ip_network(each) for each in settings.proxies)
    app.state.secret = token(32) if settings.folder is None else (Path(settings.folder) / "secret").read_text()
    app.include_router(v1)
    app.include_router(plain)
    app.include_router(page)
    app.add_middleware(Guard, hosts=settings.hosts, tls=settings.tls)
    app.add_exception_handler(Problem, _refused)
    app.add_exception_handler(CountveilError, _failed)
    app.add_exception_handler(LoginNeededError, _to_login)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _elsewhere)
    _secure(app)
    return app


def bounded(config: Config) -> Config:
    """The configuration with no more cells in an answer than the service gives."""
    most = config.service.max_cells
    datasets = {
        name: replace(each, schema=replace(each.schema, max_cells=min(most, each.schema.max_cells)))
        for name, each in config.datasets.items()
    }
    return replace(config, datasets=datasets)


async def _refused(request: Request, error: Exception) -> Response:
    found = error if isinstance(error, Problem) else internal()
    found.note(request)
    return refusal(request, found)


async def _failed(request: Request, error: Exception) -> Response:
    return await _refused(request, problem(error) if isinstance(error, CountveilError) else internal())


async def _to_login(request: Request, error: Exception) -> Response:
    """Log in, then come back; a part of a page asks for the whole of it."""
    asked = error.to if isinstance(error, LoginNeededError) else ""
    to = "/login?" + urlencode({"to": asked or wanted(request)})
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": to})
    return RedirectResponse(to, 303)


async def _invalid(request: Request, error: Exception) -> Response:
    """Which member, and what is wrong with it; never what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    pattern = first.get("ctx", {}).get("pattern")
    words = f"give {WORDS[pattern]}" if pattern in WORDS else str(first["msg"])
    return Problem(Kind.BAD_PARAMETER, f"{place[:200]}: {words[:200]}").response()


async def _elsewhere(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds: dict[int, tuple[Kind, str]] = {
        404: (Kind.NOT_FOUND, "see /openapi.json for what there is"),
        405: (Kind.METHOD_NOT_ALLOWED, "see /openapi.json for what this address takes"),
    }
    kind, words = kinds.get(error.status_code, (Kind.BAD_REQUEST, "the request could not be read"))
    return refusal(request, Problem(kind, words, error.headers))


def _secure(app: FastAPI) -> None:
    """Say in the OpenAPI document where keys go."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        schemes = document["components"].setdefault("securitySchemes", {})
        if not schemes:
            schemes["key"] = {"type": "http", "scheme": "bearer", "description": "A key that the curator gave out."}
            for path, methods in document["paths"].items():
                for operation in methods.values():
                    if path.startswith("/v1/") or path == "/metrics":
                        optional = path in ("/v1/design", "/v1/compare") and app.state.settings.open_design
                        operation["security"] = [{"key": []}, *([{}] if optional else [])]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
