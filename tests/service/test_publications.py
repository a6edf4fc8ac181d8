"""Publications over HTTP, in the client and on the pages: what the curator published, and no other file."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import countveil as cv
from countveil.client import transport
from countveil.client.publications import download
from countveil.publication.folder import MANIFEST, list_hashes
from countveil.publication.publication import Publication
from tests.support.curated import config_text, people, write_rows, written
from tests.support.editions import write_small
from tests.support.serving import ALL, BY_REGION, UNLIMITED, Answer, Server, serving

BUDGET = """epsilon = "3"
delta = "0.001"
answers = 1
"""
MORE = """
[publication.yearbook]
dataset = "people"
tables = [{ by = [] }, { by = ["region"] }]
[publication.places]
dataset = "visits"
tables = [{ by = ["place"] }]
output = "elsewhere"
[dataset.visits]
source = "visits.csv"
unit = "guest"
[dataset.visits.columns]
place = ["clinic", "hospital"]
[dataset.visits.budget]
epsilon = "10"
delta = "0.01"
"""
"""A pool that pays for questions and a publication, and one that pays for a publication only."""
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json", "html": "text/html; charset=utf-8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("published")
    people(folder)
    write_rows(folder / "visits.csv", ["guest", "place"], [(i, ("clinic", "hospital")[i % 3 == 0]) for i in range(90)])
    config = written(folder, UNLIMITED + config_text(budget=BUDGET) + MORE)
    with cv.Curator.open(config) as curator:
        curator.publish("yearbook")
    with serving(config) as running:
        yield running


@pytest.fixture(scope="module")
def ann(server: Server) -> str:
    return server.key("ann")


@pytest.fixture(scope="module")
def boss(server: Server) -> str:
    return server.key("boss", "curator")


@pytest.fixture
def curator(server: Server) -> Iterator[cv.Curator]:
    with cv.Curator.open(server.config) as opened:
        yield opened


@pytest.fixture
def service(server: Server, ann: str) -> Iterator[cv.Connection]:
    with cv.connect(server.url, ann) as connected:
        yield connected


@pytest.fixture
def edition(server: Server) -> Iterator[Path]:
    """The folder of the edition, restored after the test."""
    folder = server.folder / "publications" / "yearbook" / "edition-1"
    copy = shutil.copytree(folder, server.folder / "copy-of-edition")
    yield folder
    shutil.rmtree(folder.parent)
    folder.parent.mkdir()
    copy.rename(folder)


def manifest_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MANIFEST).read_bytes()))


def test_a_malformed_manifest_of_a_service_is_refused_in_one_line(tmp_path: Path) -> None:
    manifest = manifest_of(write_small(tmp_path / "out").path)
    for name in manifest:
        sent = json.dumps({**manifest, name: None} if name != "uniform" else {**manifest, name: 1}).encode()
        with pytest.raises(cv.ServiceError, match="sent a manifest that this version of countveil cannot read"):
            download(lambda path, sent=sent: sent, "here", "yearbook", 1, tmp_path / "copy")


# -- routes ------------------------------------------------------------------------------------------------------------


def test_the_list_of_publications_over_http_is_that_of_the_curator(
    server: Server, ann: str, curator: cv.Curator
) -> None:
    listed = server.get("/v1/publications", ann).json()
    assert listed["publications"] == json.loads(json.dumps([asdict(each) for each in curator.publications()]))
    yearbook, places = listed["publications"]
    assert (yearbook["name"], yearbook["dataset"], places["editions"]) == ("yearbook", "people", [])
    (only,) = yearbook["editions"]
    assert (only["edition"], [table["name"] for table in only["tables"]]) == (1, ["total", "region"])
    assert (only["guarantee"]["epsilon"], only["guarantee"]["pool"]) == ("3", "people")
    assert server.get("/v1/publications").problem == "unauthorized"


def test_only_complete_editions_in_folders_with_their_own_number_are_listed(
    server: Server, edition: Path, ann: str, curator: cv.Curator
) -> None:
    output = edition.parent
    (output / ".edition-2.0.part" / "edition").mkdir(parents=True)
    (output / "edition-2").mkdir()
    for name in ("edition-3", "edition-01", "edition-1.old", ".edition-1"):
        shutil.copytree(edition, output / name)
    (output / "edition-4").symlink_to(edition)
    (output / "edition-5").write_text("{}")
    other = shutil.copytree(edition, server.folder / "elsewhere" / "edition-1")
    try:
        listed = curator.publications()
        assert [(len(each.editions), each.unreadable) for each in listed] == [(1, ("edition-2", "edition-5")), (0, ())]
        with cv.connect(server.url, ann) as service:
            assert service.publications() == listed
        headers = {"Cookie": log_in(server, ann), "Accept": "text/html"}
        page = server.ask("GET", "/publications", headers=headers).body.decode()
        assert "Cannot be read: edition-2, edition-5." in page
        for number in (2, 3, 4, 5):
            assert server.get(f"/v1/publications/yearbook/{number}", ann).problem == "not-found"
        assert server.get("/v1/publications/places/1", ann).problem == "not-found"
        (edition / MANIFEST).write_text("[" * 100_000)
        assert [len(each.editions) for each in curator.publications()] == [0, 0]
        assert server.get("/v1/publications", ann).status == 200
    finally:
        shutil.rmtree(other.parent)


def test_the_files_that_a_manifest_names_are_served_unchanged(server: Server, edition: Path, ann: str) -> None:
    place, manifest = "/v1/publications/yearbook/1", manifest_of(edition)
    files = list_hashes(manifest)
    assert {"tables/0-total.csv", "tables/1-region.csv", "report.html", "deployment.json"} < set(files)
    whole = server.get(place, ann)
    assert (whole.body, whole.header("content-type")) == ((edition / MANIFEST).read_bytes(), "application/json")
    for file in files:
        answer = server.get(f"{place}/{file}", ann)
        assert (answer.status, answer.body) == (200, (edition / file).read_bytes())
        assert answer.header("content-type") == TYPES[file.rpartition(".")[2]]
        assert answer.header("x-content-type-options") == "nosniff"
        assert server.get(f"{place}/{file}").problem == "unauthorized"
    policy = server.get(f"{place}/report.html", ann).header("content-security-policy") or ""
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script" not in policy
    assert server.ask("HEAD", f"{place}/report.html", key=ann).body == b""


def test_files_that_the_manifest_does_not_name_are_not_served(server: Server, edition: Path, ann: str) -> None:
    secret = edition / "secret.csv"
    secret.write_text("region,count\n")
    place, law = "/v1/publications/yearbook/1", manifest_of(edition)["tables"][1]["law"]["file"]
    (edition / law).unlink()
    (edition / law).symlink_to(secret)
    (edition / "tables" / "1-region.csv").unlink()
    shutil.move(edition / "tables", server.folder / "tables")
    (edition / "tables").symlink_to(server.folder / "tables")
    try:
        for file in ("secret.csv", law, "tables/1-region.csv", "tables/0-total.csv", "nothing.csv"):
            assert server.get(f"{place}/{file}", ann).problem == "not-found", file
        up = (
            "../../../countveil.toml",
            "tables/../secret.csv",
            "..%2f..%2f..%2fcountveil.toml",
            "%2e%2e/x",
            "/etc/passwd",
        )
        for file in (*up, "tables/", "tables//0-total.csv", "manifest.json%00", "a/b/c", ""):
            assert server.get(f"{place}/{file}", ann).status in (404, 422), file
    finally:
        shutil.rmtree(server.folder / "tables")
    for path in ("nothing/1", "yearbook/2", "yearbook/1/x.csv", "people/1/manifest.json"):
        assert server.get(f"/v1/publications/{path}", ann).problem == "not-found", path
    for path in ("yearbook/0", "yearbook/one", "YEARBOOK/1", "yearbook/1000000"):
        assert server.get(f"/v1/publications/{path}", ann).problem == "bad-parameter", path


def test_the_openapi_document_describes_published_files_and_editions(server: Server) -> None:
    document = server.get("/openapi.json").json()
    file = document["paths"]["/v1/publications/{name}/{edition}/{file}"]["get"]
    assert set(file["responses"]["200"]["content"]) == {kind.partition(";")[0] for kind in TYPES.values()} | {
        "application/vnd.apache.parquet"
    }
    assert {"401", "404", "422"} < set(file["responses"])
    members = document["components"]["schemas"]["EditionSummary"]["properties"]
    assert set(members) == {"edition", "time", "data_version", "guarantee", "tables"}


# -- client ------------------------------------------------------------------------------------------------------------


def test_a_connection_reads_the_same_publications_as_a_curator(
    service: cv.Connection, curator: cv.Curator, tmp_path: Path
) -> None:
    assert service.publications() == curator.publications()
    there, here = service.publication("yearbook", output=tmp_path / "copy"), curator.publication("yearbook")
    assert there.manifest == here.manifest
    assert there.path == tmp_path / "copy"
    for kind in ("pandas", "polars", "pyarrow"):
        assert there.to("region", kind).equals(here.to("region", kind))
    assert there.verify() == []
    again = service.publication("yearbook", 1, output=tmp_path / "copy")
    assert again.manifest == here.manifest
    (again.path / "report.html").write_text("another")
    with pytest.raises(cv.RequestError, match=r"has this edition, but report\.html: was changed"):
        service.publication("yearbook", output=tmp_path / "copy")
    with pytest.raises(cv.ParameterError, match="output: got"):
        service.publication("yearbook", output=tmp_path)


def test_the_temporary_folder_of_a_publication_lasts_as_long_as_the_object(service: cv.Connection) -> None:
    publication: Publication | None = service.publication("yearbook")
    assert publication is not None
    place = publication.path
    assert publication["region"]["count"].sum() == publication["total"]["count"][0]
    publication = None
    gc.collect()
    assert not place.parent.exists()


def test_missing_publications_and_editions_are_refused_with_the_errors_of_a_curator(
    service: cv.Connection, curator: cv.Curator
) -> None:
    for source in (service, curator):
        with pytest.raises(cv.ConfigError, match="almanac is not declared"):
            source.publication("almanac")
        with pytest.raises(cv.RequestError, match="publication places has no edition yet; countveil publish makes one"):
            source.publication("places")
        for wrong in (2, 0, "1", True):
            with pytest.raises(cv.ParameterError, match=rf"edition: got '?{wrong}'?, allowed is one of 1"):
                source.publication("yearbook", wrong)


def test_a_download_with_a_changed_or_missing_file_leaves_no_folder(
    service: cv.Connection, edition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = edition / "tables" / "1-region.csv"
    table.write_bytes(table.read_bytes().replace(b"North", b"Nort"))
    with pytest.raises(cv.ServiceError, match=r"sent tables/1-region\.csv with another SHA-256 than the manifest"):
        service.publication("yearbook", output=tmp_path / "changed")
    table.unlink()
    with pytest.raises(cv.ServiceError, match="names no such file"):
        service.publication("yearbook", output=tmp_path / "missing")
    monkeypatch.setattr(transport, "MOST_BYTES", 2000)
    with pytest.raises(cv.ServiceError, match="its response has more than 2,000 bytes"):
        service.publication("yearbook", output=tmp_path / "large")
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_leads_out_of_the_folder_is_refused(
    service: cv.Connection, tmp_path: Path, edition: Path
) -> None:
    from countveil.client.publications import download

    manifest = manifest_of(edition)
    for file in ("../out.csv", "/tmp/out.csv", "a/../../out.csv", "manifest.json", ".hidden", "tables/x/y.csv", 7):
        changed = {**manifest, "tables": [{**manifest["tables"][0], "file": file}]}
        with pytest.raises(cv.ServiceError, match="a manifest that this version of countveil cannot read"):
            download(lambda path, text=changed: json.dumps(text).encode(), "here", "yearbook", 1, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# -- pages -------------------------------------------------------------------------------------------------------------


def post(server: Server, path: str, form: dict[str, str], cookie: str = "") -> Answer:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url, "Cookie": cookie}
    return server.ask("POST", path, urlencode(form).encode(), headers=headers)


def log_in(server: Server, key: str) -> str:
    return (post(server, "/login", {"key": key, "to": "/ask"}).header("set-cookie") or "").partition(";")[0]


def test_the_page_links_to_reports_tables_and_manifests(server: Server, ann: str) -> None:
    headers = {"Cookie": log_in(server, ann), "Accept": "text/html"}
    page = server.ask("GET", "/publications", headers=headers).body.decode()
    assert "Not published yet." in page
    place = "/publications/yearbook/1"
    for file in ("report.html", "manifest.json", "deployment.json", "tables/0-total.csv", "tables/1-region.csv"):
        assert f'href="{place}/{file}"' in page
        assert server.ask("GET", f"{place}/{file}", headers=headers).status == 200
    for wrong in (f"{place}/secret.csv", "/publications/yearbook/x/report.html", "/publications/no/1/report.html"):
        refused = server.ask("GET", wrong, headers=headers)
        assert (refused.status, refused.header("content-type")) == (404, "text/html; charset=utf-8")
    away = server.ask("GET", f"{place}/report.html", headers={"Accept": "text/html"})
    assert (away.status, away.header("location")) == (303, "/login?to=" + quote(f"{place}/report.html", safe=""))


def test_charges_of_publications_have_receipts_but_no_table(
    server: Server, boss: str, ann: str, curator: cv.Curator
) -> None:
    asked = server.get("/v1/asked", boss).json()["asked"]
    entries = [each for each in asked if each["text"].startswith("PUBLISH ")]
    assert [(each["analyst"], each["text"]) for each in entries] == [("curator", "PUBLISH yearbook: region")]
    assert entries[0] not in server.get("/v1/asked", ann).json()["asked"]
    cookie = log_in(server, boss)
    page = unescape(server.ask("GET", "/budget", headers={"Cookie": cookie}).body.decode())
    for each in entries:
        receipt = server.get(f"/v1/receipts/{each['id']}", boss).json()["receipt"]
        assert receipt["truth"] == curator.question(BY_REGION).truth.statement
        assert (receipt["grade"], receipt["text"]) == (each["grade"], each["text"])
        assert each["text"] in page
        assert f"/ask/{each['id']}.csv" not in page
        for ending in ("csv", "json"):
            assert server.ask("GET", f"/ask/{each['id']}.{ending}", headers={"Cookie": cookie}).status == 404
    assert '<a href="/publications">published</a>' in page
    assert "publication yearbook" in page
    assert "for publications only" in page


def test_budgets_list_the_grades_of_publications_but_add_up_answers_for_questions_only(
    server: Server, boss: str
) -> None:
    bert = server.key("bert")
    people_, visits = server.get("/v1/budget", bert).json()["pools"]
    grades = {each["name"]: each["answers_left"] for each in people_["grades"]}
    assert {"standard", "yearbook-2"} <= set(grades)
    assert grades["yearbook-2"] == 0
    assert people_["answers_left"] == grades["standard"]
    assert (visits["answers_left"], [each["name"] for each in visits["grades"]]) == (0, ["places-1"])
    cookie = log_in(server, boss)
    assert "yearbook-2" not in server.ask("GET", "/ask", headers={"Cookie": cookie}).body.decode()


def test_a_dataset_that_pays_for_publications_only_is_listed_but_takes_no_questions(server: Server, ann: str) -> None:
    listed = {each["name"]: each for each in server.get("/v1/datasets", ann).json()["datasets"]}
    assert [each["name"] for each in listed["visits"]["grades"]] == ["places-1"]
    cookie = log_in(server, ann)
    assert "<option>visits</option>" not in server.ask("GET", "/ask", headers={"Cookie": cookie}).body.decode()
    question = "SELECT place, count(*) FROM visits GROUP BY place"
    for path in ("/v1/dry-run", "/v1/count"):
        refused = server.ask("POST", path, {"sql": question}, key=ann)
        assert (refused.status, refused.problem) == (422, "bad-parameter")
        assert "pays for publications only" in refused.json()["detail"]
        wrong = server.ask("POST", path, {"sql": ALL, "grade": "yearbook-2"}, key=ann)
        assert (wrong.status, wrong.problem) == (422, "bad-parameter")
    page = post(server, "/ask", {"sql": question, "do": "plan"}, cookie)
    assert (page.status, "pays for publications only" in page.body.decode()) == (422, True)


def test_the_refusal_of_a_spent_budget_names_no_grade_of_a_publication(server: Server, ann: str) -> None:
    carl = server.key("carl")
    statuses = [server.count(f"{ALL} WHERE age > {age}", carl).status for age in (10, 20)]
    assert statuses[-1] == 402
    for path in ("/v1/count", "/v1/dry-run"):
        again = server.ask("POST", path, {"sql": f"{ALL} WHERE age < 7"}, key=ann)
        assert again.status == 402
        assert "yearbook" not in again.json()["detail"]
