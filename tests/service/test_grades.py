"""Grades over HTTP: a real service with two grades, and clients with limits of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

import pytest

import countveil as cv
from countveil.curator.curator import Curator
from countveil.errors import BudgetError, ParameterError, RequestError
from tests.support.curated import config_text, people, with_plan, written
from tests.support.serving import ALL, BY_REGION, UNLIMITED, Client, Server, serving

GRADED = """epsilon = "50"
delta = "0.1"
[dataset.people.budget.grades]
fine = { answers = 3, weight = 4 }
standard = { answers = 8 }
"""


def start_server(folder: Path) -> AbstractContextManager[Server]:
    people(folder)
    config = written(folder, UNLIMITED + config_text(budget=GRADED))
    with_plan(config)
    return serving(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("graded")) as started:
        yield started


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server for a test that spends all answers."""
    with start_server(tmp_path) as started:
        yield started


def test_a_connection_answers_in_each_grade_as_a_curator_does(server: Server) -> None:
    _, key = server.keyring.add("boss", "curator")
    with cv.connect(server.url, key) as service, Curator.open(server.config) as curator:
        for grade in (None, "fine"):
            assert service.dry_run(ALL, grade=grade) == curator.dry_run(ALL, grade=grade)
        table = service.count(ALL, grade="fine")
        assert (table.receipt.grade, table.margin_95) == ("fine", curator.mechanism("people", "fine").margin_95)
        assert service.count(ALL).receipt == service.receipt(table.receipt.id) == curator.receipt(table.receipt.id)
        assert service.count(ALL).released.tolist() == table.released.tolist()
        assert service.budget() == curator.budget()
        assert service.datasets()[0].grades == curator.datasets()[0].grades == service.budget()[0].grades
        assert [entry.grade for entry in service.history()] == [entry.grade for entry in curator.history()]
        for wrong in (service, curator):
            with pytest.raises(
                (ParameterError, RequestError), match="grade: got finest, allowed is a grade of pool people"
            ):
                wrong.count(BY_REGION, grade="finest")


def test_a_key_may_be_limited_in_each_grade(server: Server) -> None:
    _, key = server.keyring.add("ann", answers={"fine": 1})
    with cv.connect(server.url, key) as service:
        left = [(each.name, each.answers_left) for each in service.budget()[0].grades]
        assert left == [("fine", 1), ("standard", 0)]
        question = f"{ALL} WHERE age > 30"
        with pytest.raises(BudgetError, match="has no share in the budget of grade standard of people") as error:
            service.count(question)
        assert (error.value.pool, error.value.grade) == ("people", "standard")
        assert service.count(question, grade="fine").receipt.grade == "fine"
        with pytest.raises(BudgetError, match="the share of this key in grade fine of people is spent, its one answer"):
            service.count(f"{ALL} WHERE age > 40", grade="fine")
        assert service.count(question).replayed
        assert [entry.grade for entry in service.history()] == ["fine"]
    with pytest.raises(ParameterError):
        server.keyring.add("bob", answers={"fine": 0})


def test_an_idempotency_key_belongs_to_one_question_in_one_grade(own_server: Server) -> None:
    _, key = own_server.keyring.add("carl")
    client, headers = Client(own_server, key), {"Idempotency-Key": "a-report"}
    question = {"sql": f"{ALL} WHERE age > 50", "grade": "standard"}
    first = client.ask("POST", "/v1/count", question, headers)
    assert (first.status, first.json()["receipt"]["grade"]) == (200, "standard")
    again = client.ask("POST", "/v1/count", question, headers)
    assert (again.json()["replayed"], again.json()["rows"]) == (True, first.json()["rows"])
    assert client.ask("POST", "/v1/count", {**question, "grade": "fine"}, headers).problem == "conflict"
    spent = 0
    while (
        refused := client.ask("POST", "/v1/count", {"sql": f"{ALL} WHERE age > {60 + spent}", "grade": "fine"})
    ).status == 200:
        spent += 1
    assert (refused.status, refused.json()["error"]["grade"]) == (402, "fine")
    assert "other grades have answers left (" in refused.json()["detail"]
    assert "--extend" not in refused.json()["detail"]
    client.close()


def test_a_response_of_an_earlier_version_is_read(server: Server) -> None:
    """The response states no grades, so there is one."""
    from countveil.client.responses import read_dry_run, read_pools, read_receipt

    with Curator.open(server.config) as curator:
        dry = {name: value for name, value in asdict(curator.dry_run(ALL)).items() if name not in ("grade", "grades")}
        assert (read_dry_run(dry).grade, read_dry_run(dry).grades) == ("standard", ())
        (pool,) = curator.budget()
        body = {name: value for name, value in asdict(pool).items() if name not in ("grades", "default_grade")}
        (read,) = read_pools({"pools": [{**body, "shares": {"ann": {"answers": 5, "left": 2}}}]})
        assert (read.grades, read.shares["ann"].left, read.shares["ann"].grades) == ((), 2, {})
        receipt = asdict(curator.count(ALL, grade="fine").receipt)
        old = {name: value for name, value in receipt.items() if name not in ("grade", "grades")}
        assert read_receipt({"receipt": old}).grade == "standard"
