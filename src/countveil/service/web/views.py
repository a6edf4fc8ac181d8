"""The routes of the web pages: explore, ask, budget, publications, log in, and the documentation of the API.

Everything works with links and forms alone. A request by the page's JavaScript uses the same address and gets only the
part of the page that changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from countveil.curator.table_files import to_csv, to_json
from countveil.errors import CountveilError, ProblemKind
from countveil.publication.layout import PUBLISH
from countveil.service.api_keys import Key
from countveil.service.auth import limit_client, limit_key
from countveil.service.design_worker import BusyError, RefusedError, Stop, TooLongError
from countveil.service.problem_json import Problem
from countveil.service.publications import send_file
from countveil.service.strict_json import StrictRequest
from countveil.service.web import agency, ask_page, budget_page, explore_page, pictures, sessions

page = APIRouter(include_in_schema=False)
_templates = Environment(loader=PackageLoader("countveil.service.web"), autoescape=True, trim_blocks=True)
_templates.filters["number"] = lambda value: f"{value:,}"
_templates.tests["publication"] = lambda charge: charge.text.startswith(PUBLISH)
_templates.globals["picture"] = lambda name, *rows: Markup(getattr(pictures, name)(*rows))
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
STATIC = {
    entry.name: entry.read_bytes()
    for entry in files("countveil.service.web").joinpath("static").iterdir()
    if entry.name.rpartition(".")[2] in _TYPES
}


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a page, or the part of a page that a script has requested."""
    state = request.app.state
    text = _templates.get_template(template).render(
        who=sessions.current_key(request),
        path=request.url.path,
        open_design=state.settings.open_design,
        publishes=bool(state.curator.config.publications),
        **values,
    )
    return Response(text, status, media_type="text/html; charset=utf-8")


async def read_form(request: Request) -> FormData:
    """Read a form, which must have been sent by a page of this site."""
    if not sessions.is_own_page(request):
        raise Problem(
            ProblemKind.FORBIDDEN,
            "this form was sent from another site; open the page of this service and send it there",
        )
    body = await StrictRequest(request.scope, request.receive).body()
    try:
        return FormData([*parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=5000)])
    except ValueError:
        raise Problem(ProblemKind.FORBIDDEN, "this form could not be read; reload the page and send it again") from None


def is_part(request: Request) -> bool:
    """Whether a script has requested only the part of the page that changes."""
    return request.headers.get("hx-request") == "true"


def render_refusal(request: Request, problem: Problem) -> Response:
    """Render a refusal: for browsers as a page or a part of one, for programs as a problem document."""
    is_browser = is_part(request) or "text/html" in request.headers.get("accept", "")
    if not is_browser or request.url.path.startswith("/v1/"):
        return problem.response()
    template = "_problem.html" if is_part(request) else "problem.html"
    try:
        shown = render(request, template, problem.kind.status, title=problem.kind.title, words=problem.detail)
    except CountveilError:  # the keys cannot be read, so no page can be rendered
        return problem.response()
    shown.headers.update(problem.headers or {})
    if request.headers.get("hx-target") == "asking":  # keep what the user typed
        shown.headers["HX-Retarget"] = "#outcome"
    return shown


@page.get("/static/{name}")
def static(name: str) -> Response:
    if name not in STATIC:
        raise Problem(ProblemKind.NOT_FOUND, "there is no file with this name")
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(STATIC[name], media_type=kind, headers={"Cache-Control": "public, max-age=3600"})


# -- explore -----------------------------------------------------------------------------------------------------------


@page.get("/")
def home(request: Request) -> Response:
    return RedirectResponse("/explore" if request.app.state.settings.open_design else "/ask", 303)


@page.get("/explore")
async def show_explore_page(request: Request) -> Response:
    """The page to explore designs. With ?words=agency it uses the parameters of statistical offices."""
    _require_designer(request)
    office = request.query_params.get("words") == "agency"
    fields = _read_fields(request, agency if office else explore_page)
    outcome = await _run_task(request, "agency" if office else "explore", fields)
    values = {"fields": fields, "office": office, "link": _link(fields, office), **outcome}
    response = render(request, "_view.html" if is_part(request) else "explore.html", **values)
    if is_part(request):
        response.headers["HX-Replace-Url"] = f"/explore?{_link(fields, office)}"
    return response


@page.get("/explore/more")
async def show_more(request: Request) -> Response:
    """The pictures of the explore page that take longer: the guarantee and the comparison."""
    _require_designer(request)
    fields = _read_fields(request, explore_page)
    followed = await _run_task(request, "explore-followed", fields)
    beside = await _run_task(request, "explore-beside", fields) if "error" not in followed else {}
    values: dict[str, Any] = {
        "followed": followed.get("result"),
        "beside": beside.get("result"),
        "error": followed.get("error"),
    }
    return render(request, "_more.html" if is_part(request) else "more.html", link=_link(fields, False), **values)


@page.get("/explore/{name}")
async def download(request: Request, name: str) -> Response:
    """A file of the explore page: mechanism.json, ptable.csv, noise.svg or small-counts.svg."""
    _require_designer(request)
    office = request.query_params.get("words") == "agency"
    fields = _read_fields(request, agency if office else explore_page)
    tasks = {"mechanism.json": "explore-document", "ptable.csv": "agency-file" if office else "explore-ptable"}
    drawn = {"noise.svg", "small-counts.svg"}
    if name not in tasks and name not in drawn:
        raise Problem(ProblemKind.NOT_FOUND, "there is no file with this name")
    outcome = await _run_task(request, tasks.get(name, "agency" if office else "explore"), fields)
    if "error" in outcome:
        return render(request, "problem.html", 422, title="This could not be computed", **outcome["error"])
    result = outcome["result"]
    if name in drawn:
        facts = result["facts"]
        margin = facts.get("typical_margin_95", max(abs(row["z"]) for row in result["noise"] if row["within"]))
        eta = facts.get("eta_percent", facts.get("last_stay"))
        shown = pictures.noise(result["noise"], facts["D"], margin, eta)
        text = pictures.standalone(shown if name == "noise.svg" else pictures.heat(result["small"]))
    else:
        text = result["text"]
    kind = {"json": "application/json", "csv": "text/csv", "svg": "image/svg+xml"}[name.rpartition(".")[2]]
    return Response(text, media_type=kind, headers=_attachment_headers(name))


def _require_designer(request: Request) -> None:
    """Require a log-in, unless designs are open to everyone."""
    if _find_visitor(request) is None and not request.app.state.settings.open_design:
        raise sessions.LoginNeededError


def _read_fields(request: Request, form: ModuleType) -> dict[str, str]:
    """The fields of the form given in the address, in a fixed order for the permalink; the defaults if it has none."""
    given = {name: request.query_params.get(name, "").strip()[:40] for name in form.FIELDS}
    return {name: value for name, value in given.items() if value} or dict(form.DEFAULTS)


def _link(fields: Mapping[str, str], office: bool) -> str:
    return urlencode({**({"words": "agency"} if office else {}), **fields})


async def _run_task(request: Request, task: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Run a task in the helper process and return its result or its error. The task is cancelled if the browser
    disconnects."""
    stop = Stop()
    run = partial(request.app.state.workshop.run, task, fields, stop, client=request.state.client)
    running = asyncio.create_task(run_in_threadpool(run))
    while not running.done():
        await asyncio.wait({running}, timeout=0.25)
        stop.given = stop.given or (not running.done() and await request.is_disconnected())
    try:
        return {"result": running.result()}
    except RefusedError as error:
        return {"error": {"words": str(error), "argument": error.argument}}
    except TooLongError:
        words = "this takes too long for the service; run the command below on your machine"
        return {
            "error": {
                "words": words,
                "command": (agency if task.startswith("agency") else explore_page).write_command(fields),
            }
        }
    except BusyError:
        return {"error": {"words": "too many designs are waiting; try again in a moment"}}


# -- ask ---------------------------------------------------------------------------------------------------------------


@page.get("/ask")
async def show_ask_page(request: Request) -> Response:
    """The page to ask, filled in from its address. Opening an address never asks the question."""
    key = _require_holder(request)
    form = FormData([(name, value) for name, value in request.query_params.multi_items() if name != "do"])
    values = await _build_ask_page(request, key, form)
    return render(request, "ask.html", **values)


@page.post("/ask")
async def ask_form(request: Request) -> Response:
    """Do what the pressed button says: convert fields to SQL or SQL to fields, make a dry run, or ask the question."""
    key = _find_visitor(request)
    if key is None:  # keep the typed SQL during the log-in
        raise sessions.LoginNeededError(await _ask_address(request))
    form = await read_form(request)
    values = await _build_ask_page(request, key, form)
    return render(request, "_asking.html" if is_part(request) else "ask.html", values.pop("status", 200), **values)


async def _build_ask_page(request: Request, key: Key, form: FormData) -> dict[str, Any]:
    """The values that the page to ask shows for a form. Problems that the curator must resolve are also logged."""
    values = await run_in_threadpool(ask_page.build_page, request.app.state.curator, key, form)
    if "problem" in values:
        values.pop("problem").note(request)
    return values


@page.get("/ask/{receipt}.{ending}")
async def download_table(request: Request, receipt: str, ending: str) -> Response:
    """A recorded answer as a file."""
    key = _require_holder(request)
    question = request.query_params.get("question", "")
    answer = await run_in_threadpool(ask_page.find_recorded, request.app.state.curator, key, receipt, question)
    if answer is None or ending not in ("csv", "json"):
        raise Problem(ProblemKind.NOT_FOUND, "you have no such answer; see the budget page for yours")
    text = await run_in_threadpool(to_json if ending == "json" else to_csv, answer)
    kind = "application/json" if ending == "json" else "text/csv"
    return Response(text, media_type=kind, headers=_attachment_headers(f"{receipt}.{ending}"))


async def _ask_address(request: Request) -> str:
    try:
        form = await read_form(request)
    except Problem:
        return "/ask"
    return sessions.ask_address(str(form.get("sql", "")).strip())


def _find_visitor(request: Request) -> Key | None:
    """The key of the session, or None. The rate limit of the key, or else of the client's address, is applied."""
    key = sessions.current_key(request)
    if key is None:
        limit_client(request, "page")
        return None
    return limit_key(request, key)


def _require_holder(request: Request) -> Key:
    key = _find_visitor(request)
    if key is None:
        raise sessions.LoginNeededError
    return key


def _attachment_headers(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


# -- budget ------------------------------------------------------------------------------------------------------------


@page.get("/budget")
async def show_budget_page(request: Request) -> Response:
    key = _require_holder(request)
    verify = "verify" in request.query_params
    if verify and key.role != "curator":
        raise Problem(ProblemKind.FORBIDDEN, "only curators may verify the ledger")
    values = await run_in_threadpool(budget_page.build_page, request.app.state.curator, key, verify)
    if values["broken"] is not None:
        values["broken"].note(request)
    return render(request, "_chain.html" if is_part(request) else "budget.html", **values)


# -- publications ------------------------------------------------------------------------------------------------------


@page.get("/publications")
def show_publications(request: Request) -> Response:
    """The publications and their editions, with links to their files."""
    _require_holder(request)
    return render(request, "publications.html", publications=request.app.state.curator.publications())


@page.get("/publications/{name}/{edition}/{file:path}")
def show_published_file(request: Request, name: str, edition: str, file: str) -> Response:
    """A file of an edition, at an address like its path in the folder, so that links between files work."""
    _require_holder(request)
    number = int(edition) if edition.isascii() and edition.isdecimal() and len(edition) < 7 else 0
    return send_file(request.app.state.curator, name, number, file)


# -- log in ------------------------------------------------------------------------------------------------------------


@page.get("/login")
def show_login_page(request: Request) -> Response:
    limit_client(request, "login")
    return render(request, "login.html", to=sessions.local_address(request.query_params.get("to", "")), wrong=False)


@page.post("/login")
async def login(request: Request) -> Response:
    limit_client(request, "login")
    form = await read_form(request)
    key = request.app.state.keyring.recognise(str(form.get("key", "")).strip())
    to = sessions.local_address(str(form.get("to", "")))
    if key is None:
        return render(request, "login.html", 401, to=to, wrong=True)
    request.state.who = key.name
    response = RedirectResponse(to, 303)
    sessions.begin(request, response, key)
    return response


@page.post("/logout")
async def logout(request: Request) -> Response:
    _find_visitor(request)
    await read_form(request)
    response = RedirectResponse("/", 303)
    sessions.end(response)
    return response


@page.get("/docs")
def show_docs(request: Request) -> Response:
    """A page that documents the API, made from its OpenAPI document."""
    _find_visitor(request)
    return render(request, "docs.html", api=request.app.openapi(), operations=_operations(request.app.openapi()))


def _operations(api: Mapping[str, Any]) -> list[dict[str, Any]]:
    operations = []
    for path, methods in api["paths"].items():
        for method, about in methods.items():
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            name = body.get("$ref", "").rpartition("/")[2]
            members = api["components"]["schemas"].get(name, {}).get("properties", {})
            operations.append({"path": path, "method": method.upper(), "about": about, "members": members})
    return operations
