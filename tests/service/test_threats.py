"""Bad input, faults and accidents over HTTP: every row of the table of threats that a client can reach.

Each is refused or answered as the table says, with the same message for all data; refusals are not charged, and the
server keeps running.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.config.configuration import load
from countveil.curator.recorded_counts import pack_counts
from countveil.data.fingerprints import Fingerprints
from countveil.ledger.sqlite import SqliteLedger
from countveil.query import ask
from tests.support.curated import QUICK, charged, people, runner, with_plan, write_rows, written as configured
from tests.support.servers import wait_until
from tests.support.serving import ALL, BY_REGION, SOME, UNLIMITED, WAIT, Answer, Client, Server, place, raw, serving

COLUMNS = """
age = { min = 0, max = 120 }
born = { min = "1900-01-01", max = "2026-01-01" }
small = [1, 2, 3]
region = ["North", "South", "it's", 'a "b"']
ok = [false, true]
"""
HEADER = ["person", "age", "born", "small", "region", "ok"]
ROWS = [(i, i % 121, f"19{i % 90 + 10}-05-05", i % 3 + 1, ["North", "South", "it's"][i % 3], i % 2) for i in range(50)]
HOSTILE = [
    line
    for line in (Path(__file__).parents[1] / "hostile" / "queries.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]
START = "SELECT count(*) FROM people WHERE "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("threats")
    write_rows(folder / "people.csv", HEADER, ROWS)
    with serving(place(folder, source="people.csv", columns=COLUMNS)) as started:
        yield started


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same configuration without rows."""
    folder = tmp_path_factory.mktemp("nobody")
    write_rows(folder / "people.csv", HEADER, [])
    with serving(place(folder, source="people.csv", columns=COLUMNS)) as started:
        yield started


@pytest.fixture(scope="module")
def ann(server: Server) -> str:
    return server.key("ann")


@pytest.fixture(scope="module")
def bob(other: Server) -> str:
    return other.key("ann")


def refused(answer: Answer, status: int, name: str) -> str:
    """Check a refusal and return its message, which is one short line."""
    assert (answer.status, answer.problem) == (status, name), answer
    words = str(answer.json()["detail"])
    assert words.isprintable()
    assert 10 < len(words) < 500
    return words


# -- designs -----------------------------------------------------------------------------------------------------------

NOT_NUMBERS: list[Any] = [True, False, [], ["1"], {}, "", " ", "one", "NaN", "inf", "-inf", "0x1", "1/2", "1_0", "١"]
BAD: dict[str, list[Any]] = {
    "epsilon": ["-1", "1e-400", "1e999", 0, -1, 1.5, 10**400, *NOT_NUMBERS],
    "delta": ["0", "-1", "1e-400", "1", "2", "1e999", 0, 1.5, *NOT_NUMBERS],
    "eta": ["0", "1", "-0.5", "1.5", "1e999", 0, 0.5, *NOT_NUMBERS],
    "D": [0, -1, 10**9, 2.5, 10**400, "3", *NOT_NUMBERS],
}
GIVEN = {
    "epsilon": {"eta": "0.5", "D": 3},
    "delta": {"eta": "0.5", "D": 3},
    "eta": {"epsilon": "1", "D": 3},
    "D": {"epsilon": "1", "eta": "0.5"},
}


@pytest.mark.parametrize("path", ["/v1/design", "/v1/compare"])
@pytest.mark.parametrize("argument", BAD)
def test_a_refusal_names_the_invalid_parameter(argument: str, path: str, server: Server) -> None:
    before = charged(server.config)
    zero = (
        ["0", "0.0"] if (argument, path) == ("epsilon", "/v1/compare") else []
    )  # design allows epsilon 0: the least delta at 0
    for value in BAD[argument] + zero:
        words = refused(server.ask("POST", path, {**GIVEN[argument], argument: value}), 422, "bad-parameter")
        assert words.split(":")[0].removeprefix("body.") == argument, (value, words)
    for token in ("NaN", "Infinity", "-Infinity"):
        body = json.dumps({**GIVEN[argument], argument: "?"}).replace('"?"', token).encode()
        assert token.lstrip("-") in refused(server.ask("POST", path, body), 422, "bad-parameter")
    for literal in ("1e400", "-1e400", "1" + "0" * 5000):
        body = json.dumps({**GIVEN[argument], argument: "?"}).replace('"?"', literal).encode()
        answer = server.ask("POST", path, body)
        assert answer.status in (400, 422), literal
    assert charged(server.config) == before


def test_designs_with_valid_parameters_are_accepted(server: Server) -> None:
    """This shows that each refusal above is caused by its one invalid argument."""
    for argument, good in (("epsilon", "1"), ("delta", "0.01"), ("eta", "0.5"), ("D", 3)):
        answer = server.ask("POST", "/v1/design", {**GIVEN[argument], argument: good})
        assert answer.status == 200, answer
        assert answer.json()["schema_version"] == 1


def test_unknown_members_are_refused(server: Server, ann: str) -> None:
    for path, body in (("/v1/design", {"eps": "1"}), ("/v1/compare", {"eps": "1"}), ("/v1/dry-run", {"SQL": ALL})):
        (name,) = body
        assert name in refused(server.ask("POST", path, body, key=ann), 422, "bad-parameter")
    assert "give" in refused(server.ask("POST", "/v1/design", {}), 422, "bad-parameter")


def test_waiting_designs_never_delay_answers(server: Server, ann: str) -> None:
    """While the helper is stopped, more design requests than there are threads do not block answers."""
    assert server.ask("POST", "/v1/design", GIVEN["D"] | {"D": 2}).status == 200
    (helper,) = [
        pid for pid in server.family() if b"service.design_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    responses: list[Answer] = []
    os.kill(helper, signal.SIGSTOP)
    try:
        wanted = [{"epsilon": f"1.{i:02d}1", "eta": "0.5", "D": 1} for i in range(60)]
        threads = [
            threading.Thread(target=lambda body=body: responses.append(server.ask("POST", "/v1/design", body)))
            for body in wanted
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(responses) >= 40, WAIT)
        assert {answer.status for answer in responses[:40]} == {429}
        assert {answer.header("retry-after") for answer in responses[:40]} == {"5"}
        assert server.ask("POST", "/v1/dry-run", {"sql": ALL}, key=ann).status == 200
        assert server.get("/healthz").status == 200
    finally:
        os.kill(helper, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert len(responses) == 60
    assert {answer.status for answer in responses} <= {200, 422, 429}
    assert server.ask("POST", "/v1/design", wanted[0]).status == 200


# -- hostile text ------------------------------------------------------------------------------------------------------


def test_hostile_sql_is_refused_in_the_same_words_whatever_the_data(
    server: Server, other: Server, ann: str, bob: str
) -> None:
    assert len(HOSTILE) > 300
    data = (server.folder / "people.csv").read_bytes()
    before = charged(server.config), charged(other.config)
    here, there = Client(server, ann), Client(other, bob)
    for i, sql in enumerate(HOSTILE):
        path = "/v1/count" if i % 4 else "/v1/dry-run"
        answer = here.ask("POST", path, {"sql": sql})
        refused(answer, 422, "query-not-allowed")
        assert 1 <= answer.json()["error"]["position"] <= len(sql) + 1
        same = there.ask("POST", path, {"sql": sql})
        assert (same.status, same.body) == (answer.status, answer.body)
    here.close()
    there.close()
    assert (charged(server.config), charged(other.config)) == before
    assert (server.folder / "people.csv").read_bytes() == data


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("region = 'North''; DROP TABLE people; --'", 422),
        ("region = '''; ATTACH ''/etc/passwd'' AS x; --'", 422),
        ("region = 'it''s'", 200),
        ("region = 'a \"b\"'", 200),
        ("region = '$1' OR region = '?' OR region = '{0}'", 422),
        ("region = '%s'", 422),
        ("\"region\" = 'North'", 200),
        ('"region""; DROP TABLE people; --" = \'North\'', 422),
        ("\"Region\" = 'North'", 422),
        ("rеgion = 'North'", 422),  # a Cyrillic letter
        ("\"rеgion\" = 'North'", 422),
        ("ｒegion = 'North'", 422),
        ("region = 'Nοrth'", 422),  # a Greek letter
        ("region = 'North\u0000'", 422),
        ("region = 'North\u200b'", 422),
        ("region = '\u202ehtroN'", 422),
        ("age = 9223372036854775807", 200),
        ("age < 9223372036854775808", 422),
        ("age > -9223372036854775809", 422),
        ("age = 1" + "0" * 400, 422),
        ("age = -1" + "0" * 400, 422),
        ("age = 1e400", 422),
        ("age = 1.0", 422),
        ("age = 0x41", 422),
        ("age = '1'", 422),
        ("age = 1; DROP TABLE people", 422),
        ("age = 1 -- x", 422),
        ("born = DATE '2000-02-30'", 422),
        ("born = DATE '0001-01-01'", 200),
        ("ok = 1", 422),
        ("person = 1", 422),
        ("rowid = 1", 422),
    ],
)
def test_literals_and_names_are_never_run_as_sql(
    where: str, status: int, server: Server, other: Server, ann: str, bob: str
) -> None:
    """As SQL and as a member; the refusals are the same for both datasets."""
    data = (server.folder / "people.csv").read_bytes()
    for body in ({"sql": START + where}, {"dataset": "people", "where": where}):
        answers = [s.ask("POST", "/v1/dry-run", body, key=key) for s, key in ((server, ann), (other, bob))]
        assert [answer.status for answer in answers] == [status, status], answers[0]
        if status == 422:
            assert answers[0].body == answers[1].body
            assert answers[0].problem in ("query-not-allowed", "bad-parameter")
    assert (server.folder / "people.csv").read_bytes() == data


@pytest.mark.parametrize("name", ["x\u0000", 'x"; DROP TABLE people; --', "\x1b[2J", "count", "é" * 201, "region"])
def test_hostile_dataset_column_and_count_names_are_refused(name: str, server: Server, ann: str) -> None:
    for member in ("dataset", "name"):
        body = {"dataset": "people", "by": ["region"], member: name}
        answer = server.ask("POST", "/v1/dry-run", body, key=ann)
        allowed = member == "name" and name in ("count", 'x"; DROP TABLE people; --')  # what a column is called
        assert answer.status == (200 if allowed else 422), (member, answer)
    if name != "region":
        answer = server.ask("POST", "/v1/dry-run", {"dataset": "people", "by": [name]}, key=ann)
        assert answer.status == 422
        assert answer.json()["detail"].isprintable()


def test_undeclared_columns_are_refused_and_declared_values_absent_from_the_data_have_a_row(
    server: Server, ann: str
) -> None:
    for column in ("person", "nothing", "*", "count(*)", '"region '):
        sql = f"SELECT {column}, count(*) FROM people GROUP BY {column}"
        for body in ({"sql": sql}, {"dataset": "people", "by": [column]}):
            refused(server.ask("POST", "/v1/count", body, key=ann), 422, "query-not-allowed")
    answer = server.count(BY_REGION, ann).json()
    assert [row[0] for row in answer["rows"]] == ["North", "South", "it's", 'a "b"'], "in the declared order"
    truth = [sum(row[4] == region for row in ROWS) for region in ("North", "South", "it's", 'a "b"')]
    assert truth[3] == 0
    for row, n in zip(answer["rows"], truth, strict=True):
        assert abs(row[1] - n) <= answer["worst_error"]
        assert row[2] <= row[1] <= row[3]
    assert max(truth) > 2 * answer["worst_error"], "so that answers of another dataset would differ"


# -- hostile JSON ------------------------------------------------------------------------------------------------------


def body_with(sql: str) -> bytes:
    return b'{"sql": ' + sql.encode() + b"}"


JSON_BODIES = {
    "depth 10k of lists": (b'{"sql": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 422),
    "depth 10k of objects": (b'{"sql": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}", 422),
    "100k open brackets": (b"[" * 100_000, 422),
    "100k closing brackets": (b"]" * 100_000, 400),
    "duplicate names": (b'{"sql": "SELECT count(*) FROM people", "sql": "SELECT count(*) FROM people"}', 422),
    "duplicate names, escaped": (b'{"sql": "a", "\\u0073ql": "b"}', 422),
    "duplicate names below": (b'{"sql": "a", "by": [{"a": 1, "a": 2}]}', 422),
    "lone surrogate of two": (body_with('"\\ud800"'), 422),
    "lone surrogate, the other half": (body_with('"x\\udfff"'), 422),
    "surrogates the wrong way round": (body_with('"\\udc00\\ud800"'), 422),
    "lone surrogate in a name": (b'{"\\ud800": 1}', 422),
    "lone surrogate in a list": (b'{"dataset": "people", "by": ["\\ud800"]}', 422),
    "half a pair deeper": (b'{"dataset": "people", "by": [["\\ud800"]]}', 422),
    "half a pair alone": (b'"\\ud800"', 422),
    "NaN": (b'{"sql": NaN}', 422),
    "Infinity": (b'{"sql": Infinity}', 422),
    "minus Infinity": (b'{"people": -Infinity}', 422),
    "1e400": (b'{"people": 1e400}', 422),
    "a number of 5,000 digits": (b'{"people": ' + b"9" * 5000 + b"}", 400),
    "a number of 200,000 digits": (b'{"people": ' + b"9" * 200_000 + b"}", 400),
    "nothing": (b"", 422),
    "blanks": (b" \n\t", 400),
    "a list": (b"[]", 422),
    "a text": (b'"SELECT count(*) FROM people"', 422),
    "null": (b"null", 422),
    "a number": (b"1", 422),
    "an empty question": (b'{"sql": ""}', 422),
    "half a body": (b'{"sql": "SELECT', 400),
    "something after it": (b'{"sql": "a"} {"sql": "b"}', 400),
    "a comma too many": (b'{"sql": "a",}', 400),
    "single quotes": (b"{'sql': 'a'}", 400),
    "a comment": (b'{"sql": "a" /* x */}', 400),
    "a line end in a text": (b'{"sql": "a\nb"}', 400),
    "NUL in a text": (body_with('"a\\u0000b"'), 422),
    "NUL in the body": (b'{"sql": "a\x00b"}', 400),
    "not UTF-8": (b'{"sql": "\xff"}', 400),
    "overlong UTF-8": (b'{"sql": "\xc0\x80"}', 400),
    "half a pair in UTF-8": (b'{"sql": "\xed\xa0\x80"}', 400),
    "UTF-16": ('{"sql": "a"}'.encode("utf-16"), 400),
    "a byte order mark": (b'\xef\xbb\xbf{"sql": "a"}', 400),
    "wrong types": (b'{"sql": 1}', 422),
    "people as a number": (b'{"dataset": "people", "people": 1}', 422),
    "people as a text": (b'{"dataset": "people", "people": "true"}', 422),
    "by as a number": (b'{"dataset": "people", "by": 7}', 422),
    "by as an empty text": (b'{"dataset": "people", "by": ""}', 422),
    "65 columns": (json.dumps({"dataset": "people", "by": ["region"] * 65}).encode(), 422),
    "sql and more": (json.dumps({"sql": ALL, "dataset": "people"}).encode(), 422),
    "IN list of 10^6": (json.dumps({"sql": START + f"age IN ({', '.join(['1'] * 10**6)})"}).encode(), 413),
    "IN list of 10^5": (json.dumps({"sql": START + f"age IN ({','.join(['1'] * 10**5)})"}).encode(), 422),
    "IN list of 10,001": (json.dumps({"sql": START + f"age IN ({', '.join(['1'] * 10_001)})"}).encode(), 422),
    "IN list of 40,000": (json.dumps({"sql": START + f"age IN ({','.join(['1'] * 40_000)})"}).encode(), 422),
    "20k parentheses": (json.dumps({"sql": START + "(" * 20_000 + "age = 1" + ")" * 20_000}).encode(), 422),
    "10k NOT": (json.dumps({"sql": START + "NOT " * 10_000 + "age = 1"}).encode(), 422),
    "a text of 100,001": (json.dumps({"sql": "x" * 100_001}).encode(), 422),
    "a text of 250,000 escapes": (b'{"sql": "' + b"\\\\" * 125_000 + b'"}', 422),
}


MESSAGES = {
    "depth": "32 deep",
    "duplicate": "twice",
    "surrogate ": "surrogate",
    "NaN": "NaN",
    "IN list of 10^6": "262144",
}
"""Part of the message for bodies with these names."""


def cpu_seconds(server: Server) -> float:
    """CPU seconds that a server has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_memory(server: Server) -> int:
    """The peak memory of a server in bytes."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("name", JSON_BODIES)
def test_hostile_json_is_refused_with_little_work(name: str, server: Server, ann: str) -> None:
    body, status = JSON_BODIES[name]
    before, work = charged(server.config), cpu_seconds(server)
    for path in ("/v1/dry-run", "/v1/count"):
        answer = server.ask("POST", path, body, key=ann)
        assert answer.status == status, answer
        assert answer.problem
        assert answer.json()["detail"].isprintable()
        assert len(answer.body) < 1000
        for word, message in MESSAGES.items():
            assert word not in name or message in answer.json()["detail"]
    assert cpu_seconds(server) - work < 4
    assert charged(server.config) == before


def test_json_like_the_refused_bodies_but_harmless_is_accepted(server: Server, ann: str) -> None:
    """This shows that each refusal above is caused by its hostile part."""
    for body in (
        b'{"sql": "SELECT count(*) FROM people"}',
        b"{}",  # there is one dataset, so this is its total
        b'\n{"dataset": "people", "by": ["region"], "where": "small IN (1, 2)", "people": true, "name": "\\u006e"}\t',
        b'{"sql": "SELECT count(*) FROM people WHERE region = \'North\'", "by": []}',
        '{"dataset": "people", "name": "\\ud83d\\ude00 é"}'.encode(),
    ):
        assert server.ask("POST", "/v1/dry-run", body, key=ann).status == 200, body


def test_a_body_of_100_mb_is_refused_and_not_stored(server: Server, ann: str) -> None:
    """With a Content-Length it is refused before it is sent; without, it is not stored."""
    before = most_memory(server)
    head = (
        f"POST /v1/count HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {ann}\r\nConnection: close\r\n"
    )
    with socket.create_connection((server.host, server.port), WAIT) as connection:
        connection.sendall(f"{head}Content-Length: {100 * 2**20}\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
    megabyte = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    with socket.create_connection((server.host, server.port), WAIT) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(100):
                connection.sendall(megabyte)
            connection.sendall(b"0\r\n\r\n")
        except ConnectionError:
            pass  # the server closed the connection, which is also fine
        else:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
    assert most_memory(server) - before < 50 * 2**20
    assert server.get("/healthz").status == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: \xb2\r\n\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_malformed_http_gets_no_5xx(request_: bytes, server: Server) -> None:
    reply = raw(server, request_)
    assert b"HTTP/1.1 5" not in reply.replace(b"501", b""), reply
    assert b"Traceback" not in reply
    assert server.get("/healthz").status == 200


# -- unusual data ------------------------------------------------------------------------------------------------------


def tables(folder: Path) -> dict[str, list[int]]:
    """Write files with unusual content; returns for each how many rows have `n` 0, 1, 2, 3."""
    write_rows(folder / "empty.csv", ["person", "n"], [])
    write_rows(folder / "one.csv", ["person", "n"], [(1, 2)])
    write_rows(folder / "nulls.csv", ["person", "n"], [(i, "") for i in range(9)] + [(10, 1)])
    write_rows(folder / "words.csv", ["person", "n"], [(i, "two") for i in range(9)] + [(10, "1e0"), (11, " 3")])
    ids = pa.array(range(40), pa.int64())
    floats = [math.nan] * 10 + [-0.0] * 10 + [math.inf, -math.inf, 1.5, 2.0] + [1e300] * 6 + [3.0] * 10
    pq.write_table(pa.table({"person": ids, "n": pa.array(floats, pa.float64())}), folder / "floats.parquet")
    pq.write_table(pa.table({"person": ids, "n": pa.array([None] * 40, pa.int32())}), folder / "none.parquet")
    pq.write_table(pa.table({"person": ids, "n": pa.array([2**63 - 1] * 40, pa.uint64())}), folder / "large.parquet")
    pq.write_table(pa.table({"person": pa.array([None] * 40, pa.int64()), "n": [1] * 40}), folder / "nobody.parquet")
    return {
        "empty.csv": [0, 0, 0, 0],
        "one.csv": [0, 0, 1, 0],
        "nulls.csv": [0, 1, 0, 0],
        "words.csv": [0, 0, 0, 0],
        "floats.parquet": [10, 0, 1, 10],
        "none.parquet": [0, 0, 0, 0],
        "large.parquet": [0, 0, 0, 0],
        "nobody.parquet": [0, 0, 0, 0],
    }


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, dict[str, list[int]]]]:
    folder = tmp_path_factory.mktemp("unusual")
    truth = tables(folder)
    zoned = pa.array([datetime(2026, 1, 1, 23, 59, tzinfo=UTC)] * 3, pa.timestamp("us", "Europe/Berlin"))
    pq.write_table(pa.table({"person": [1, 2, 3], "day": zoned}), folder / "zoned.parquet")
    naive = pa.array([datetime(2026, 1, 1, 23, 59)] * 20 + [datetime(2026, 1, 2)], pa.timestamp("us"))
    pq.write_table(pa.table({"person": range(21), "day": naive}), folder / "naive.parquet")
    pq.write_table(pa.table({"person": [1], "other": [1]}), folder / "missing.parquet")
    (folder / "inside.csv").write_bytes(b'person,n\n1,1\n9001,No"rth,"50\n2,2\n')
    (folder / "after.csv").write_bytes(b"person,n\n" + b"1,1\n" * 50 + b'9002,"North"1\n2,2\n')
    unfit = ("missing.parquet", "inside.csv", "after.csv")
    columns = dict.fromkeys((*truth, *unfit), "n = { min = 0, max = 3 }\n")
    columns |= dict.fromkeys(("zoned.parquet", "naive.parquet"), 'day = { min = "2026-01-01", max = "2026-01-02" }\n')
    text = "".join(
        f'[dataset.{name.partition(".")[0]}]\nsource = "{name}"\nunit = "person"\n'
        f"[dataset.{name.partition('.')[0]}.columns]\n{declared}"
        f'[dataset.{name.partition(".")[0]}.budget]\npool = "all"\n{SOME}'
        for name, declared in columns.items()
    )
    config = configured(folder, text + UNLIMITED)
    with_plan(config)
    with serving(config) as server:
        yield server, server.key("ann"), truth


def test_unusual_data_gets_an_ordinary_answer(unusual: tuple[Server, str, dict[str, list[int]]]) -> None:
    server, key, truth = unusual
    for name, counts in truth.items():
        dataset = name.partition(".")[0]
        answer = server.count(f"SELECT n, count(*) FROM {dataset} GROUP BY n", key)
        assert answer.status == 200, (name, answer)
        table = answer.json()
        assert [row[0] for row in table["rows"]] == [0, 1, 2, 3]
        for row, n in zip(table["rows"], counts, strict=True):
            assert type(row[1]) is int
            assert row[1] >= 0
            assert abs(row[1] - n) <= table["worst_error"], (name, table["rows"], counts)
    assert table["worst_error"] < 5, "so that an error of ten rows would be detected"


def test_timestamps_are_counted_by_their_day(unusual: tuple[Server, str, dict[str, list[int]]]) -> None:
    server, key, _ = unusual
    table = server.count("SELECT day, count(*) FROM naive GROUP BY day", key).json()
    assert [row[0] for row in table["rows"]] == ["2026-01-01", "2026-01-02"]
    assert table["kinds"][0] == "date"
    assert abs(table["rows"][0][1] - 20) <= table["worst_error"]


def test_data_that_does_not_fit_its_schema_is_refused_without_a_charge(
    unusual: tuple[Server, str, dict[str, list[int]]],
) -> None:
    """A time with a zone has no unique day, a column is missing, or records of a broken CSV file have no clear end. The
    refusal comes before any charge, with the same message for every cause."""
    server, key, _ = unusual
    before = charged(server.config)
    bodies = set()
    for dataset in ("zoned", "missing", "inside", "after"):
        answer = server.count(f"SELECT count(*) FROM {dataset}", key)
        refused(answer, 503, "data-does-not-fit")
        bodies.add(answer.body)
    assert len(bodies) == 1
    assert charged(server.config) == before


# -- the same request again --------------------------------------------------------------------------------------------


def test_one_idempotency_key_a_thousand_times_is_charged_once(tmp_path: Path) -> None:
    with serving(place(tmp_path), "--workers", "2") as server:
        ann, bob = server.key("ann"), server.key("bob")
        headers = {"Idempotency-Key": "monday-1"}

        def many(_: int) -> list[Answer]:
            client = Client(server, ann)
            batch = [client.ask("POST", "/v1/count", {"sql": BY_REGION}, headers) for _ in range(125)]
            client.close()
            return batch

        with ThreadPoolExecutor(8) as pool:
            answers = [answer for batch in pool.map(many, range(8)) for answer in batch]
        assert len(answers) == 1000
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body.replace(b'"replayed": false', b'"replayed": true') for answer in answers}) == 1
        assert charged(server.config) == 1
        first = answers[0].json()

        for body in ({"sql": ALL}, {"sql": BY_REGION + " "}, {"dataset": "people", "by": ["region"]}):
            refused(server.ask("POST", "/v1/count", body, key=ann, headers=headers), 409, "conflict")
        assert charged(server.config) == 1
        assert (server.get("/v1/budget", ann).json()["pools"][0]["answers_left"]) == 19

        theirs = server.ask("POST", "/v1/count", {"sql": ALL}, key=bob, headers=headers)
        assert theirs.status == 200, "every key has its own idempotency keys"
        assert charged(server.config) == 2
        again = server.ask("POST", "/v1/count", {"sql": BY_REGION}, key=ann, headers=headers).json()
        assert again["rows"] == first["rows"]
        assert again["receipt"]["id"] == first["receipt"]["id"]


@pytest.mark.parametrize("name", ["", "x" * 201, "two words", "\xe9", "\t"])
def test_invalid_idempotency_keys_are_refused(name: str, server: Server, ann: str) -> None:
    before = charged(server.config)
    answer = server.ask("POST", "/v1/count", {"sql": ALL}, key=ann, headers={"Idempotency-Key": name})
    assert "idempotency" in refused(answer, 422, "bad-parameter")
    assert charged(server.config) == before


def test_one_of_64_clients_of_two_servers_gets_the_last_answer(tmp_path: Path) -> None:
    config = place(tmp_path, budget=QUICK)
    with serving(config) as one, serving(config) as two:
        key = one.key("ann")
        assert [one.count(f"{START}age < {10 * i}", key).status for i in (1, 2, 3)] == [200] * 3
        regions = ("North", "South", "East", "West")
        questions = [f"{START}age = {i} AND region = '{region}'" for i in range(16) for region in regions]
        with ThreadPoolExecutor(64) as pool:
            asked = [(one, sql) if i % 2 else (two, sql) for i, sql in enumerate(questions)]
            answers = list(pool.map(lambda pair: pair[0].count(pair[1], key), asked))
        statuses = [answer.status for answer in answers]
        assert (statuses.count(200), statuses.count(402)) == (1, 63)
        assert charged(config) == 4
        assert [server.get("/v1/budget", key).json()["pools"][0]["answers_left"] for server in (one, two)] == [0, 0]


# -- large counts ------------------------------------------------------------------------------------------------------


def test_counts_near_the_end_of_64_bits_stay_whole_numbers(tmp_path: Path) -> None:
    """No test data is so large, so the counts are recorded in the ledger directly."""
    large = [2**31, 2**53 + 1, 2**63 - 1, 2**63 - 2]
    config = place(tmp_path)
    loaded = load(config, {})
    question = ask(loaded.schemas, BY_REGION)
    ledger = SqliteLedger(loaded.ledger, loaded.anchor)
    fingerprint = Fingerprints(ledger.make_keyed_hash).look(loaded.dataset("people").source).fingerprint
    ledger.bind("people", "people", "person", fingerprint)
    version = ledger.version("people", fingerprint)
    charge = ledger.charge("people", "people", version, question.sha256, question.text, "ann")
    ledger.record(charge, pack_counts(np.array(large)))
    ledger.close()
    with serving(config) as server:
        answer = server.count(BY_REGION, server.key("ann"))
    assert answer.status == 200
    table = answer.json()
    assert [row[1] for row in table["rows"]] == large
    for number in large:
        assert b"%d" % number in answer.body, "all digits, not rounded"
    for _, y, low, high in table["rows"]:
        assert type(low) is type(high) is int
        assert low <= y <= high
        assert high - low <= 4 * table["worst_error"]
    assert table["total"]["value"] == sum(large)
    assert table["replayed"] is True
    assert charged(config) == 1


# -- changing data, failing engines ------------------------------------------------------------------------------------


def test_data_replaced_while_it_is_served_is_a_new_version(tmp_path: Path) -> None:
    config = place(tmp_path, regions="N" * 60)
    first_content = (tmp_path / "people.csv").read_bytes()
    with serving(config) as server:
        key = server.key("ann")
        first = server.count(BY_REGION, key, "first").json()
        assert (first["receipt"]["version"], first["receipt"]["answers_left"]) == (1, 19)
        people(tmp_path, "S" * 60, name="new.csv")
        os.replace(tmp_path / "new.csv", tmp_path / "people.csv")
        assert server.ask("POST", "/v1/dry-run", {"sql": BY_REGION}, key=key).json()["cost"] == 1
        second = server.count(BY_REGION, key, "second").json()
        assert (second["receipt"]["version"], second["replayed"]) == (2, False)
        assert second["receipt"]["answers_left"] == 18, "the budget continues"
        assert first["rows"][0][1] > 50 > 10 > second["rows"][0][1]
        assert second["rows"][1][1] > 50 > 10 > first["rows"][1][1]
        again = server.count(BY_REGION, key, "first").json()
        assert (again["rows"], again["receipt"]["id"]) == (first["rows"], first["receipt"]["id"])
        assert again["replayed"] is True
        refused(server.count(ALL, key, "first"), 409, "conflict")
        (tmp_path / "old.csv").write_bytes(first_content)
        os.replace(tmp_path / "old.csv", tmp_path / "people.csv")
        back = server.count(BY_REGION, key).json()
        assert (back["rows"], back["receipt"]["id"], back["replayed"]) == (first["rows"], first["receipt"]["id"], True)
        assert charged(config) == 2


def test_a_missing_source_is_refused_without_a_charge(tmp_path: Path) -> None:
    with serving(place(tmp_path)) as server:
        key = server.key("ann")
        first = server.count(BY_REGION, key, "first").json()
        shutil.move(tmp_path / "people.csv", tmp_path / "away.csv")
        bodies = set()
        for _ in range(2):
            for path in ("/v1/count", "/v1/dry-run"):
                answer = server.ask("POST", path, {"sql": ALL}, key=key)
                refused(answer, 503, "engine")
                bodies.add(answer.body)
        assert len(bodies) == 1
        assert b"people.csv" not in bodies.pop()
        assert charged(server.config) == 1, "refused questions were not charged"
        again = server.count(BY_REGION, key, "first").json()
        assert (again["rows"], again["receipt"]["id"]) == (first["rows"], first["receipt"]["id"])
        assert server.get("/v1/budget", key).status == server.get("/v1/datasets", key).status == 200
        shutil.move(tmp_path / "away.csv", tmp_path / "people.csv")
        assert server.count(ALL, key).status == 200
        assert charged(server.config) == 2


def test_an_engine_that_fails_while_counting_is_charged_once(tmp_path: Path) -> None:
    """The file can be opened but its rows cannot be read: charged once, and not answered."""
    whole = pa.table({"person": range(600_000), "region": ["North", "South"] * 300_000, "age": list(range(100)) * 6000})
    pq.write_table(whole, tmp_path / "people.parquet", use_dictionary=False)
    content = bytearray((tmp_path / "people.parquet").read_bytes())
    content[4:300] = b"\xff" * 296  # the header of the first page; the schema is at the end of the file
    (tmp_path / "people.parquet").write_bytes(content)
    with serving(place(tmp_path, source="people.parquet")) as server:
        key = server.key("ann")
        answers = [server.count(ALL, key, name) for name in ("a", "a", None, "b")]
        assert {answer.body for answer in answers} == {answers[0].body}
        words = refused(answers[0], 503, "engine")
        assert "what was charged stays charged" in words
        for secret in (b"TProtocol", b"parquet", b"Error", b"people", str(tmp_path).encode()):
            assert secret not in answers[0].body
        assert charged(server.config) == 1
        (asked,) = history(server, key)
        assert asked["answered"] is None
        receipt = server.get(f"/v1/receipts/{asked['id']}", key).json()
        assert receipt["answered"] is False
        assert server.get("/v1/budget", key).json()["pools"][0]["answers_left"] == 19
        assert server.get("/healthz").status == 200
        for line in server.lines():
            assert "error" not in line, "this is a refusal, not an internal error"


def test_a_damaged_anchor_stops_answers_until_it_is_restored(tmp_path: Path) -> None:
    config = place(tmp_path)
    anchor = tmp_path / "countveil.ledger.anchor"
    with serving(config) as server:
        key = server.key("ann")
        assert server.count(BY_REGION, key).status == 200
        good = anchor.read_bytes()
        anchor.write_bytes(b"{")
        answer = server.count(ALL, key, "once")
        words = refused(answer, 503, "ledger")
        assert "anchor" not in words
        assert "nothing was answered" in words
        anchor.write_bytes(good)
        again = server.count(ALL, key, "once")
        assert again.status == 200
        assert charged(config) == 2


def test_a_ledger_that_lost_history_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = place(tmp_path)
    ledger = tmp_path / "countveil.ledger"
    older = ledger.read_bytes()
    with serving(config) as server:
        assert server.count(ALL, server.key("ann")).status == 200
    newer = ledger.read_bytes()
    assert newer != older
    edited = newer.replace(b'"analyst":"ann"', b'"analyst":"bob"')
    assert edited != newer
    run = runner(monkeypatch, capsys, "serve")
    for content in (older, edited):
        for log in tmp_path.glob("countveil.ledger-*"):
            log.unlink()
        ledger.write_bytes(content)
        code, out, err = run("-c", config, "--port", 0)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("countveil: ")
        assert "serves at" not in err


# -- clients that disconnect -------------------------------------------------------------------------------------------


def make_request(server: Server, key: str, sql: str, name: str) -> bytes:
    body = json.dumps({"sql": sql}).encode()
    head = (
        f"POST /v1/count HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nIdempotency-Key: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def history(server: Server, key: str) -> list[dict[str, Any]]:
    charges: list[dict[str, Any]] = server.get("/v1/asked", key).json()["asked"]
    return charges


def test_clients_that_disconnect_leave_no_charge_without_an_answer(tmp_path: Path) -> None:
    """After a disconnect there is no charge, or a charge with its recorded answer, which a retry gets."""
    config = place(tmp_path)
    with serving(config) as server:
        key, boss = server.key("ann"), server.key("boss", "curator")
        questions = [f"{START}age >= {10 * i}" for i in range(1, 12)]
        for i, sql in enumerate(questions):
            request = make_request(server, key, sql, f"n{i}")
            with socket.create_connection((server.host, server.port), WAIT) as connection:
                connection.sendall(request[: len(request) - i] if i < 4 else request)

        def count_handled() -> int:
            text = server.get("/metrics", boss).body.decode()
            lines = [line for line in text.splitlines() if line.startswith("countveil_requests_total")]
            return int(sum(float(line.split()[-1]) for line in lines if 'route="/v1/count"' in line))

        wait_until(lambda: count_handled() == len(questions), WAIT)
        asked = history(server, key)
        assert len(asked) <= len(questions) - 3, "the first request is complete, the next three are not"
        assert all(each["answered"] is not None for each in asked)
        charged_ids = {each["id"] for each in asked}
        retried = [server.count(sql, key, f"n{i}") for i, sql in enumerate(questions)]
        assert {answer.status for answer in retried} == {200}
        receipts = [answer.json()["receipt"]["id"] for answer in retried]
        assert charged_ids <= set(receipts)
        assert sum(answer.json()["replayed"] for answer in retried) == len(charged_ids)
        assert charged(config) == len(set(receipts)) == len(questions)
        assert not [line for line in server.lines() if "error" in line or line.get("status", 0) >= 500]


def test_an_unread_answer_is_returned_to_the_retry(tmp_path: Path) -> None:
    config = place(tmp_path)
    with serving(config) as server:
        key = server.key("ann")
        with socket.create_connection((server.host, server.port), WAIT) as connection:
            connection.sendall(make_request(server, key, BY_REGION, "once"))
            wait_until(lambda: any(each["answered"] for each in history(server, key)), WAIT)
        (asked,) = history(server, key)
        answer = server.count(BY_REGION, key, "once").json()
        assert answer["receipt"]["id"] == asked["id"]
        assert answer["replayed"] is True
        assert charged(config) == 1
