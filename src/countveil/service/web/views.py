"""The addresses of the page: explore, ask, budget, log in, and the API's documentation.

Everything works by links and forms; with scripts, the same addresses give the part of the page that changes.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
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

from countveil.errors import CountveilError
from countveil.keys import Key
from countveil.problem_kinds import Kind
from countveil.service.access import limit_client, limited
from countveil.service.bodies import StrictRequest
from countveil.service.page import agency, asking, budgets, explore, pictures, sessions
from countveil.service.problems import Problem
from countveil.service.work import BusyError, RefusedError, Stop, TooLongError

page = APIRouter(include_in_schema=False)
_templates = Environment(loader=PackageLoader("countveil.service.page"), autoescape=True, trim_blocks=True)
_templates.filters["number"] = lambda value: f"{value:,}"
_templates.globals["picture"] = lambda name, *rows: Markup(getattr(pictures, name)(*rows))
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
STATIC = {
    entry.name: entry.read_bytes()
    for entry in files("countveil.service.page").joinpath("static").iterdir()
    if entry.name.rpartition(".")[2] in _TYPES
}


def rendered(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page, or a part of one."""
    who = sessions.current(request)
    text = _templates.get_template(template).render(
        who=who, path=request.url.path, open_design=request.app.state.settings.open_design, **values
    )
    return Response(text, status, media_type="text/html; charset=utf-8")


async def form_of(request: Request) -> FormData:
    """The fields of a form of ours."""
    if not sessions.own_page(request):
        raise Problem(Kind.FORBIDDEN, "this form was sent from another site")
    body = await StrictRequest(request.scope, request.receive).body()
    try:
        return FormData([*parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=5000)])
    except ValueError:
        raise Problem(Kind.FORBIDDEN, "this form could not be read") from None


def part(request: Request) -> bool:
    """A script asks for the part of the page that changes."""
    return request.headers.get("hx-request") == "true"


def refusal(request: Request, problem: Problem) -> Response:
    """A refusal: a page or a part of one for who reads pages, a document for programs."""
    reads = part(request) or "text/html" in request.headers.get("accept", "")
    if not reads or request.url.path.startswith("/v1/"):
        return problem.response()
    template = "_problem.html" if part(request) else "problem.html"
    try:
        shown = rendered(request, template, problem.kind.status, title=problem.kind.title, words=problem.detail)
    except CountveilError:  # the keys cannot be read: there is no page to show
        return problem.response()
    shown.headers.update(problem.headers or {})
    if request.headers.get("hx-target") == "asking":  # what was typed stays
        shown.headers["HX-Retarget"] = "#outcome"
    return shown


@page.get("/static/{name}")
def static(name: str) -> Response:
    if name not in STATIC:
        raise Problem(Kind.NOT_FOUND, "there is no such file")
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(STATIC[name], media_type=kind, headers={"Cache-Control": "public, max-age=3600"})


# -- explore -----------------------------------------------------------------------------------------------------------


@page.get("/")
def home(request: Request) -> Response:
    return RedirectResponse("/explore" if request.app.state.settings.open_design else "/ask", 303)


@page.get("/explore")
async def exploring(request: Request) -> Response:
    """The design explorer; with ?words=agency in the words of statistical offices."""
    _designer(request)
    office = request.query_params.get("words") == "agency"
    fields = _said(request, agency if office else explore)
    found = await _worked(request, "agency" if office else "explore", fields)
    values = {"fields": fields, "office": office, "link": _link(fields, office), **found}
    response = rendered(request, "_view.html" if part(request) else "explore.html", **values)
    if part(request):
        response.headers["HX-Replace-Url"] = f"/explore?{_link(fields, office)}"
    return response


@page.get("/explore/more")
async def more(request: Request) -> Response:
    """The pictures that may come a moment later."""
    _designer(request)
    fields = _said(request, explore)
    followed = await _worked(request, "explore-followed", fields)
    beside = await _worked(request, "explore-beside", fields) if "error" not in followed else {}
    values: dict[str, Any] = {
        "followed": followed.get("result"),
        "beside": beside.get("result"),
        "error": followed.get("error"),
    }
    return rendered(request, "_more.html" if part(request) else "more.html", link=_link(fields, False), **values)


@page.get("/explore/{name}")
async def download(request: Request, name: str) -> Response:
    """mechanism.json, ptable.csv, noise.svg, small-counts.svg."""
    _designer(request)
    office = request.query_params.get("words") == "agency"
    fields = _said(request, agency if office else explore)
    tasks = {"mechanism.json": "explore-document", "ptable.csv": "agency-file" if office else "explore-ptable"}
    drawn = {"noise.svg", "small-counts.svg"}
    if name not in tasks and name not in drawn:
        raise Problem(Kind.NOT_FOUND, "there is no such file")
    found = await _worked(request, tasks.get(name, "agency" if office else "explore"), fields)
    if "error" in found:
        return rendered(request, "problem.html", 422, title="This could not be made", **found["error"])
    result = found["result"]
    if name in drawn:
        facts = result["facts"]
        margin = facts.get("typical_margin_95", max(abs(row["z"]) for row in result["noise"] if row["within"]))
        eta = facts.get("eta_percent", facts.get("last_stay"))
        shown = pictures.noise(result["noise"], facts["D"], margin, eta)
        text = pictures.standalone(shown if name == "noise.svg" else pictures.heat(result["small"]))
    else:
        text = result["text"]
    kind = {"json": "application/json", "csv": "text/csv", "svg": "image/svg+xml"}[name.rpartition(".")[2]]
    return Response(text, media_type=kind, headers=_attached(name))


def _designer(request: Request) -> None:
    """Whoever may design: anyone where that is open, otherwise whoever is logged in."""
    if _visitor(request) is None and not request.app.state.settings.open_design:
        raise sessions.LoginNeededError


def _said(request: Request, form: ModuleType) -> dict[str, str]:
    """The fields of a form that the address says something of, in one order: the permalink."""
    found = {name: request.query_params.get(name, "").strip()[:40] for name in form.FIELDS}
    return {name: value for name, value in found.items() if value} or dict(form.DEFAULTS)


def _link(fields: Mapping[str, str], office: bool) -> str:
    return urlencode({**({"words": "agency"} if office else {}), **fields})


async def _worked(request: Request, task: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """What the helper makes of a task; stopped when the browser no longer waits for it."""
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
        words = "this takes too long here; the command below does it on your machine"
        return {
            "error": {"words": words, "command": (agency if task.startswith("agency") else explore).command(fields)}
        }
    except BusyError:
        return {"error": {"words": "others are designing; try again in a moment"}}


# -- ask ---------------------------------------------------------------------------------------------------------------


@page.get("/ask")
async def ask_page(request: Request) -> Response:
    """The page, filled in by its address if that says something; an address alone never asks."""
    key = _holder(request)
    form = FormData([(name, value) for name, value in request.query_params.multi_items() if name != "do"])
    values = await _asked(request, key, form)
    return rendered(request, "ask.html", **values)


@page.post("/ask")
async def ask_form(request: Request) -> Response:
    """Fields to SQL, SQL to fields, the dry run, and the question itself: what the button that was pressed says."""
    key = _visitor(request)
    if key is None:  # what was typed is still there after logging in
        raise sessions.LoginNeededError(await _typed(request))
    form = await form_of(request)
    values = await _asked(request, key, form)
    return rendered(request, "_asking.html" if part(request) else "ask.html", values.pop("status", 200), **values)


async def _asked(request: Request, key: Key, form: FormData) -> dict[str, Any]:
    """What the page shows for a form; what is wrong with the service is also said in the log."""
    values = await run_in_threadpool(asking.page, request.app.state.curator, key, form)
    if "problem" in values:
        values.pop("problem").note(request)
    return values


@page.get("/ask/{receipt}.{ending}")
async def table(request: Request, receipt: str, ending: str) -> Response:
    """An answer that was given, as a file."""
    key = _holder(request)
    question = request.query_params.get("question", "")
    found = await run_in_threadpool(asking.recorded, request.app.state.curator, key, receipt, question)
    if found is None or ending not in ("csv", "json"):
        raise Problem(Kind.NOT_FOUND, "there is no such answer of yours")
    if ending == "json":
        text = await run_in_threadpool(lambda: json.dumps(found.describe(), indent=1))
        return Response(text, media_type="application/json", headers=_attached(f"{receipt}.json"))
    lines = io.StringIO()
    csv.writer(lines).writerows([found.columns, *found.rows])
    return Response(lines.getvalue(), media_type="text/csv", headers=_attached(f"{receipt}.csv"))


async def _typed(request: Request) -> str:
    try:
        form = await form_of(request)
    except Problem:
        return "/ask"
    return sessions.typed(str(form.get("sql", "")).strip())


def _visitor(request: Request) -> Key | None:
    """The key of whoever is logged in; they, or else the client's address, have not asked too often."""
    key = sessions.current(request)
    if key is None:
        limit_client(request, "page")
        return None
    return limited(request, key)


def _holder(request: Request) -> Key:
    key = _visitor(request)
    if key is None:
        raise sessions.LoginNeededError
    return key


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


# -- budget ------------------------------------------------------------------------------------------------------------


@page.get("/budget")
async def budget(request: Request) -> Response:
    key = _holder(request)
    verify = "verify" in request.query_params
    if verify and key.role != "curator":
        raise Problem(Kind.FORBIDDEN, "to verify the ledger is for curators")
    values = await run_in_threadpool(budgets.page, request.app.state.curator, key, verify)
    if values["broken"] is not None:
        values["broken"].note(request)
    return rendered(request, "_chain.html" if part(request) else "budget.html", **values)


# -- log in ------------------------------------------------------------------------------------------------------------


@page.get("/login")
def login_page(request: Request) -> Response:
    limit_client(request, "login")
    return rendered(request, "login.html", to=sessions.local(request.query_params.get("to", "")), wrong=False)


@page.post("/login")
async def login(request: Request) -> Response:
    limit_client(request, "login")
    form = await form_of(request)
    key = request.app.state.keyring.recognised(str(form.get("key", "")).strip())
    to = sessions.local(str(form.get("to", "")))
    if key is None:
        return rendered(request, "login.html", 401, to=to, wrong=True)
    request.state.who = key.name
    response = RedirectResponse(to, 303)
    sessions.begin(request, response, key)
    return response


@page.post("/logout")
async def logout(request: Request) -> Response:
    _visitor(request)
    await form_of(request)
    response = RedirectResponse("/", 303)
    sessions.end(response)
    return response


@page.get("/docs")
def documentation(request: Request) -> Response:
    """The API, from its own OpenAPI document."""
    _visitor(request)
    return rendered(request, "docs.html", api=request.app.openapi(), operations=_operations(request.app.openapi()))


def _operations(api: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for path, methods in api["paths"].items():
        for method, about in methods.items():
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            name = body.get("$ref", "").rpartition("/")[2]
            members = api["components"]["schemas"].get(name, {}).get("properties", {})
            found.append({"path": path, "method": method.upper(), "about": about, "members": members})
    return found
