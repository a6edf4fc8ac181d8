"""The base class of engines, third-party engines, and the pool of open engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from countveil.config.draft import propose
from countveil.config.profile import inspect
from countveil.data.engines import Engine, EnginePool, Snapshot, Source, engine, open_engine
from countveil.data.engines.families import Family
from countveil.data.fingerprints import Fingerprints
from countveil.errors import EngineError
from countveil.ledger.records import Keyed, Secret
from countveil.query import Question, ask
from countveil.query.schema import Column, Schema

SCHEMA = Schema("people", (Column("x", "integer", low=0, high=2),))
OTHER = replace(SCHEMA, name="others")


class Abacus(Engine):
    """An engine with only the methods that every engine must have."""

    def __init__(self, source: Source, schema: Schema | None = None) -> None:
        self.closed = 0
        self.here = True

    def columns(self) -> Mapping[str, Family]:
        return {"x": "integer"}

    def count(self, question: Question, *, salt: bytes) -> Any:
        return np.arange(question.cells)

    def close(self) -> None:
        self.closed += 1

    def alive(self) -> bool:
        return self.here


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The engines that are installed, by name."""
    found: dict[str, Any] = {"abacus": Abacus}
    entries = lambda group: [SimpleNamespace(name=name, load=lambda made=made: made) for name, made in found.items()]  # noqa: E731
    monkeypatch.setattr(engine, "entry_points", entries)
    return found


def seen(fingerprint: str = "a", *, certain: bool = True, now: str | None = None) -> Snapshot:
    return Snapshot(
        Source("rows.csv", engine="abacus"), Keyed(fingerprint), (), certain, lambda: Keyed(now or fingerprint)
    )


@pytest.mark.usefixtures("installed")
def test_a_third_party_engine_needs_only_the_required_methods() -> None:
    opened = open_engine(Source("rows.csv", engine="abacus"), SCHEMA)
    assert opened.count(ask(SCHEMA, by=["x"]), salt=b"").tolist() == [0, 1, 2]
    assert opened.alive()
    assert not opened.writes_files
    with pytest.raises(EngineError, match="this engine cannot tell whether the data has changed"):
        opened.fingerprint()


def test_an_engine_that_is_not_a_subclass_is_refused(installed: dict[str, Any]) -> None:
    installed["abacus"] = lambda source, schema: object()
    with pytest.raises(EngineError, match=r"engine abacus is not a subclass of countveil\.data\.engines\.Engine"):
        open_engine(Source("rows.csv", engine="abacus"))
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Engine,), {"count": None})()


@pytest.mark.usefixtures("installed")
def test_an_engine_without_sql_cannot_be_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset: Any = SimpleNamespace(schema=SCHEMA, source=Source("rows.csv", engine="abacus"))
    with pytest.raises(EngineError, match="this engine cannot be inspected"):
        inspect(dataset)
    monkeypatch.setitem(engine.ENGINES, "csv", "abacus")
    with pytest.raises(EngineError, match=r"cannot be inspected; write countveil\.toml by hand"):
        propose(Source("rows.csv"))


@pytest.mark.usefixtures("installed")
def test_the_configured_engine_of_a_server_is_asked_for_its_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Abacus, "fingerprint", lambda self: "beads")
    known = Fingerprints(Secret("of these tests").make_keyed_hash)
    server = Source("abacus://somewhere", table="t", engine="abacus")
    assert known.look(server).fingerprint == known.look(server).fingerprint
    known.close()
    with pytest.raises(EngineError, match="no engine for abacus:// is installed"):
        known.look(replace(server, engine=None))


@pytest.mark.usefixtures("installed")
def test_an_engine_that_cannot_detect_changed_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.ENGINES, "abacus", "abacus")
    known = Fingerprints(Secret("of these tests").make_keyed_hash)
    for _ in range(2):
        with pytest.raises(EngineError, match="this engine cannot tell whether the data has changed"):
            known.look(Source("abacus://somewhere", table="t"))
    known.close()


# -- the pool ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("installed")
def test_an_engine_is_opened_once_for_each_state_of_the_source_and_closed_after_its_last_question() -> None:
    pool = EnginePool()
    with pool.use(seen(), SCHEMA) as first, pool.use(seen(), SCHEMA) as same:
        assert same is first
        with pool.use(seen("b"), SCHEMA) as second, pool.use(seen("b"), OTHER) as other:
            assert len({id(each) for each in (first, second, other)}) == 3, "one for each dataset"
        assert (first.closed, second.closed) == (0, 0)  # type: ignore[attr-defined]
    assert (first.closed, second.closed) == (1, 0)  # type: ignore[attr-defined]
    pool.close()
    assert (first.closed, second.closed, other.closed) == (1, 1, 1)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("installed")
def test_an_engine_is_reopened_if_its_session_ended_or_its_state_is_uncertain() -> None:
    pool = EnginePool()
    with pool.use(seen(), SCHEMA) as first:
        first.here = False  # type: ignore[attr-defined]
    with pool.use(seen(), SCHEMA) as second:
        assert first.closed == 1  # type: ignore[attr-defined]
    unsure = seen(certain=False)
    with pool.use(unsure, SCHEMA) as third, pool.use(unsure, SCHEMA) as fourth:
        assert len({id(each) for each in (first, second, third, fourth)}) == 4
    pool.close()


@pytest.mark.usefixtures("installed")
def test_a_kept_engine_stays_open_until_the_pool_is_closed() -> None:
    pool = EnginePool()
    with pool.use(seen(), SCHEMA, keep=True) as first:
        pass
    with pool.use(seen("b"), SCHEMA):
        assert first.closed == 0  # type: ignore[attr-defined]
    pool.close()
    assert first.closed == 1  # type: ignore[attr-defined]


def test_an_engine_is_closed_if_its_data_changed_while_it_was_opened(installed: dict[str, Any]) -> None:
    made: list[Abacus] = []

    def opening(source: Source, schema: Schema | None) -> Abacus:
        made.append(Abacus(source))
        return made[-1]

    installed["abacus"] = opening
    pool = EnginePool()
    refused = pytest.raises(EngineError, match="the data changed while it was opened; nothing was charged; ask again")
    with refused, pool.use(seen(now="b"), SCHEMA):
        pytest.fail("nothing is counted")
    assert [each.closed for each in made] == [1]
    pool.close()
    assert [each.closed for each in made] == [1]
