"""More than 10,000 requests that schemathesis makes from the OpenAPI document, to a real server: no 5xx, no
undocumented status or content type, no response that violates its schema, no invalid request accepted.

Hypothesis draws from a fixed seed. The texts of questions are drawn without the document's pattern and shorter than it
allows, because drawing from a pattern of a hundred thousand letters is slow. So NUL, which the pattern forbids, is sent
as well; the greatest lengths are among the boundaries, all of which are tested.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.support.curated import COLUMNS, MANY, charged, write_rows
from tests.support.serving import Server, place, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
    allow_header_conformance,
]
CASES = {
    ("POST", "/v1/count"): (1600, 500),
    ("POST", "/v1/dry-run"): (1300, 350),
    ("POST", "/v1/plan"): (100, 50),
    ("GET", "/v1/receipts/{id}"): (1600, 500),
    ("GET", "/v1/datasets"): (1300, 500),
    ("GET", "/v1/budget"): (500, 200),
    ("GET", "/v1/asked"): (300, 200),
    ("GET", "/v1/publications"): (100, 50),
    ("GET", "/v1/publications/{name}/{edition}"): (200, 50),
    ("GET", "/v1/publications/{name}/{edition}/{file}"): (200, 50),
    ("GET", "/v1/verify"): (100, 100),
    ("GET", "/metrics"): (200, 100),
    ("GET", "/healthz"): (50, 50),
    ("POST", "/v1/design"): (80, 80),
    ("POST", "/v1/compare"): (40, 40),
}
"""Numbers of cases with and without a key, half of them valid and half invalid. A design can take a second of CPU, so
there are few."""
OPEN = {"/v1/design", "/v1/compare", "/healthz"}
FRAMING = {"connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"}
"""Headers that delimit or route a request: with an invalid one the request reaches no operation."""
SEEN: Counter[tuple[str, str, bool, int]] = Counter()
"""Responses by method, route, whether a key was sent, and status."""


# -- questions ---------------------------------------------------------------------------------------------------------

REGIONS = ["North", "South", "East", "West"]
LITERALS = {
    "region": st.sampled_from([f"'{region}'" for region in REGIONS]),
    "age": st.sampled_from(["0", "7", "65", "119", "-1", "9223372036854775807"]),
    "born": st.sampled_from(["DATE '2000-01-01'", "'2000-06-15'", "DATE '1900-01-01'", "'2000-12-31'"]),
    "member": st.sampled_from(["TRUE", "false"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """One test on one column."""
    column = draw(st.sampled_from(sorted(LITERALS)))
    value = LITERALS[column]
    shapes = ["{c} = {v}", "{c} <> {v}", "{c} IN ({v}, {w})", "{c} IS NULL", "{c} IS NOT NULL"]
    if column in ("age", "born"):
        shapes += ["{c} < {v}", "{c} >= {v}", "{c} BETWEEN {v} AND {w}"]
    return draw(st.sampled_from(shapes)).format(c=column, v=draw(value), w=draw(value))


CONDITIONS = st.recursive(
    comparisons(),
    lambda part: st.one_of(
        st.tuples(part, part).map(lambda two: f"({two[0]} AND {two[1]})"),
        st.tuples(part, part).map(lambda two: f"({two[0]} OR {two[1]})"),
        part.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=3,
)


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """A valid question as SQL or as members; sometimes with inserted characters."""
    by = draw(st.lists(st.sampled_from(sorted(LITERALS)), unique=True, max_size=2))
    where = draw(st.none() | CONDITIONS)
    if draw(st.booleans()):
        return {"dataset": "people", "by": by, "where": where, "people": draw(st.booleans())}
    sql = f"SELECT {', '.join([*by, 'count(*)'])} FROM people"
    sql += f" WHERE {where}" if where else ""
    sql += f" GROUP BY {', '.join(by)}" if by else ""
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(sql)))
        sql = sql[:place] + draw(st.text(max_size=3)) + sql[place:]
    return {"sql": sql}


HEADERS = st.dictionaries(
    st.sampled_from(["Accept", "Origin", "Referer", "Cookie", "X-Forwarded-For", "X-Forwarded-Host", "Range"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20),
    max_size=2,
)
QUERIES = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2)


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzz")
    columns = COLUMNS + 'born = { min = "2000-01-01", max = "2000-12-31", step = 61 }\nmember = [false, true]\n'
    rows = [(i, REGIONS[i % 4], i % 120, f"2000-{i % 12 + 1:02d}-15", i % 3 == 0) for i in range(200)]
    write_rows(folder / "people.csv", ["person", "region", "age", "born", "member"], rows)
    with serving(place(folder, source="people.csv", columns=columns, budget=MANY)) as started:
        yield started


@pytest.fixture(scope="module")
def key(server: Server) -> str:
    return server.key("boss", "curator")


def config() -> SchemathesisConfig:
    """Invalid requests may also be refused as too large."""
    rejected = [400, 401, 402, 404, 405, 409, 413, 415, 422]
    return SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": rejected}}})


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    document = server.get("/openapi.json").json()
    return schemathesis.openapi.from_dict(document, config=config())


@pytest.fixture(scope="module")
def loose(server: Server) -> Any:
    """The same document with other bounds on the texts of questions."""
    document = copy.deepcopy(server.get("/openapi.json").json())
    for member in document["components"]["schemas"]["Ask"]["properties"].values():
        for each in member.get("anyOf", [member]):
            for text in (each, each.get("items", {})):
                if "pattern" in text:
                    del text["pattern"]
                    text["maxLength"] = 300
    return schemathesis.openapi.from_dict(document, config=config())


@pytest.fixture(scope="module", autouse=True)
def tally(server: Server, key: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """After all tests of this file, in any order: every expected status has occurred, and the ledger is valid."""
    yield
    mine = [item for item in request.session.items if item.path == request.path]
    if len(mine) < 2 * len(CASES) + 3 or request.session.testsfailed:
        return
    statuses: Counter[int] = Counter()
    for (*_, status), number in SEEN.items():
        statuses[status] += number
    assert not [status for status in statuses if status >= 500]
    assert {200, 400, 401, 404, 405, 415, 422} <= set(statuses)
    for path in ("/v1/count", "/v1/dry-run"):
        assert SEEN["POST", path, True, 200] > 200
    assert sum(SEEN.values()) >= 10_000
    assert server.get("/v1/verify", key).json()["holds"]
    assert 50 < charged(server.config) <= 1000
    assert not [line for line in server.lines() if "error" in line or "server" in line]


class Sender:
    """Sends cases on one connection, checks and counts the responses."""

    def __init__(self, server: Server, path: str, key: str | None) -> None:
        self.server, self.path, self.key = server, path, key
        self.session = requests.Session()
        self.session.trust_env = False

    def send(self, case: Any, headers: dict[str, str], query: dict[str, str]) -> None:
        if self.key is not None:
            headers = {**headers, "Authorization": f"Bearer {self.key}"}
        for name in [name for name in case.headers if name.lower() in FRAMING]:
            del case.headers[name]
        response = case.call(base_url=self.server.url, session=self.session, headers=headers, params=query)
        SEEN[case.method, self.path, self.key is not None, response.status_code] += 1
        case.validate_response(response, checks=CHECKS, headers=headers)
        if self.key is None and self.path not in OPEN:
            assert response.status_code in (400, 401, 405), "without a key everything is refused"


def test_the_table_of_numbers_of_requests_has_every_operation(schema: Any) -> None:
    assert set(CASES) == {(result.ok().method.upper(), result.ok().path) for result in schema.get_all_operations()}


@pytest.mark.parametrize("with_key", [True, False], ids=["key", "no key"])
@pytest.mark.parametrize(("method", "path"), CASES, ids=[f"{method} {path}" for method, path in CASES])
def test_random_requests_get_documented_responses(
    method: str, path: str, with_key: bool, loose: Any, server: Server, key: str
) -> None:
    wanted = CASES[method, path][0 if with_key else 1]
    operation = loose[path][method]
    asking = path in ("/v1/count", "/v1/dry-run")
    sender = Sender(server, path, key if with_key else None)
    before = sum(SEEN.values())
    headers_, queries = (HEADERS, QUERIES) if method == "GET" else (st.just({}), st.just({}))
    for mode in GenerationMode:
        asked = st.none() | questions() if asking and mode.is_positive else st.none()

        @settings(
            max_examples=wanted // 2,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), asked=asked, headers=headers_, query=queries)
        def one(case: Any, asked: Any, headers: dict[str, str], query: dict[str, str]) -> None:
            if asked is not None:
                case.body = asked
            sender.send(case, headers, query)

        try:
            one()
        except Unsatisfiable:
            assert path == "/healthz", "only an operation without parameters has no invalid requests"
    assert sum(SEEN.values()) - before >= (wanted // 2 if path == "/healthz" else wanted)


@pytest.mark.parametrize("with_key", [True, False], ids=["key", "no key"])
def test_requests_at_every_boundary_of_the_document_get_documented_responses(
    with_key: bool, schema: Any, server: Server, key: str
) -> None:
    """The coverage cases of schemathesis: every limit, type, member and method."""
    before = sum(SEEN.values())
    for result in schema.get_all_operations():
        operation = result.ok()
        sender = Sender(server, operation.path, key if with_key else None)
        generation = schema.config.generation_for(operation=operation, phase="coverage")
        for case in schema.iter_coverage_cases(
            operation, generation_modes=list(GenerationMode), generation_config=generation
        ):
            sender.send(case, {}, {})
    assert sum(SEEN.values()) - before >= 400
