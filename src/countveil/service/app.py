"""The application: routes, middleware, error handlers, and what it opens at start and closes at shutdown."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

import countveil
from countveil.config.configuration import Config, load
from countveil.curator.curator import Curator
from countveil.errors import CountveilError, ProblemKind
from countveil.files.durable_files import create_private
from countveil.sampling.randomness import token
from countveil.service.api_keys import Keyring
from countveil.service.design_worker import Workshop
from countveil.service.middleware import Guard
from countveil.service.problem_json import Problem, internal_problem, to_problem
from countveil.service.rate_limits import Rates
from countveil.service.routes import plain, v1
from countveil.service.schemas import WORDS
from countveil.service.web.sessions import LoginNeededError, return_address
from countveil.service.web.views import page, render_refusal

ENVIRONMENT = "COUNTVEIL_SERVICE"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """How the service runs. `hosts` has the accepted host names; if it is empty, any name is accepted.

    `rate` is the number of requests per minute that each worker process allows each key, and each client without a key.
    """

    config: str | None = None
    open_design: bool = True
    hosts: tuple[str, ...] = LOOPBACK
    tls: bool = False
    rate: float = 600.0
    secure: bool = False
    """Whether cookies are sent only over TLS, which this server or a proxy provides."""
    supervised: bool = False
    """Whether this process is one of several workers. A worker exits when its parent process is gone."""
    proxies: tuple[str, ...] = ()
    """The addresses and networks of proxies whose X-Forwarded-For header is trusted."""
    folder: str | None = None
    """The private folder of this run, with the configuration as checked at start and the secret that signs sessions."""

    @property
    def document(self) -> Path | None:
        return None if self.folder is None else Path(self.folder) / "countveil.toml"

    def text(self) -> str:
        return json.dumps(asdict(self))


def make_folder(config: Config) -> str:
    """Create the private folder of a run, for what workers share and what must not be in their environment."""
    folder = tempfile.mkdtemp(prefix="countveil-serve-")  # of mode 0700
    for name, text in (("countveil.toml", config.text), ("secret", token(32))):
        with open(create_private(Path(folder) / name), "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def from_environment() -> FastAPI:
    """Create the application of a worker process, from the settings in its environment."""
    given = json.loads(os.environ[ENVIRONMENT])
    if given.get("supervised"):
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    return create_app(Settings(**{**given, "hosts": tuple(given["hosts"]), "proxies": tuple(given["proxies"])}))


def _end_with(parent: int) -> None:
    """Shut down this worker when its parent process is gone, because nothing else would stop it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def create_app(settings: Settings) -> FastAPI:
    """Create the application. When it starts, it reads the configuration and checks the ledger."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        config = load(settings.config, copy=settings.document)
        app.state.curator, app.state.keyring = Curator.open(config), Keyring(config.service.keys)
        app.state.curator.most_cells = config.service.max_cells
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
    app.add_exception_handler(Problem, _respond_to_problem)
    app.add_exception_handler(CountveilError, _respond_to_error)
    app.add_exception_handler(LoginNeededError, _redirect_to_login)
    app.add_exception_handler(RequestValidationError, _respond_to_invalid_request)
    app.add_exception_handler(HTTPException, _respond_to_http_error)
    _document_keys(app)
    return app


async def _respond_to_problem(request: Request, error: Exception) -> Response:
    problem = error if isinstance(error, Problem) else internal_problem()
    problem.note(request)
    return render_refusal(request, problem)


async def _respond_to_error(request: Request, error: Exception) -> Response:
    return await _respond_to_problem(
        request, to_problem(error) if isinstance(error, CountveilError) else internal_problem()
    )


async def _redirect_to_login(request: Request, error: Exception) -> Response:
    """Redirect to the log-in page, which leads back to the requested address after the log-in.

    If a script has requested a part of a page, the browser loads the log-in page in place of the whole page.
    """
    asked = error.to if isinstance(error, LoginNeededError) else ""
    to = "/login?" + urlencode({"to": asked or return_address(request)})
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": to})
    return RedirectResponse(to, 303)


async def _respond_to_invalid_request(request: Request, error: Exception) -> Response:
    """Say which member of the request is invalid and what is allowed. The message never quotes what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    pattern = first.get("ctx", {}).get("pattern")
    words = f"give {WORDS[pattern]}" if pattern in WORDS else str(first["msg"])
    return Problem(ProblemKind.BAD_PARAMETER, f"{place[:200]}: {words[:200]}").response()


async def _respond_to_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds: dict[int, tuple[ProblemKind, str]] = {
        404: (ProblemKind.NOT_FOUND, "see /openapi.json for the addresses of this service"),
        405: (ProblemKind.METHOD_NOT_ALLOWED, "see /openapi.json for the methods of this address"),
    }
    kind, words = kinds.get(error.status_code, (ProblemKind.BAD_REQUEST, "the request could not be read"))
    return render_refusal(request, Problem(kind, words, error.headers))


def _document_keys(app: FastAPI) -> None:
    """Describe in the OpenAPI document how a request carries an API key."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        schemes = document["components"].setdefault("securitySchemes", {})
        if not schemes:
            schemes["key"] = {"type": "http", "scheme": "bearer", "description": "A key from the curator."}
            for path, methods in document["paths"].items():
                for operation in methods.values():
                    if path.startswith("/v1/") or path == "/metrics":
                        optional = path in ("/v1/design", "/v1/compare") and app.state.settings.open_design
                        operation["security"] = [{"key": []}, *([{}] if optional else [])]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
