"""Over HTTP, datasets that differ by one person differ only in noisy numbers; true counts appear nowhere.

Two servers get the same questions in the same order: one has every dataset without a person, the other with. The person
has awkward values. People and questions are those of tests/property/test_neighbours.py, which tests the library itself.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from countveil.config.configuration import load
from countveil.ledger.sqlite import SqliteLedger
from tests.support.curated import MANY, config_text, with_plan, written
from tests.support.neighbours import (
    AWKWARD_ROWS,
    AWKWARD_VALUES,
    COLUMNS,
    HOSTILE,
    NAMES,
    ORDINARY,
    PERSON,
    broken,
    condition,
    crowd,
    csv_file,
    csv_line,
    parquet_file,
    question,
)
from tests.support.servers import wait_until
from tests.support.serving import UNLIMITED, Answer, Server, serving

ID, TIME = re.compile("[0-9a-f]{24}"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\+00:00")
CREATED = re.compile(r"^(countveil_[a-z]+_created\{.*\}) [0-9.e+]+$", re.MULTILINE)
NUMBERS = ("y", "low", "high")


# -- pairs of datasets -------------------------------------------------------------------------------------------------


def of_records(extra: bytes) -> Callable[[Path, bool], str]:
    return lambda folder, more: csv_file(folder, extra if more else b"")


def of_values(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> Callable[[Path, bool], str]:
    return lambda folder, more: parquet_file(folder, {**PERSON, **values} if more else None, **kinds)


def lines_of(rows: list[bytes]) -> Callable[[Path, bool], str]:
    """A file with these people and, if `more`, an ordinary one."""

    def write(folder: Path, more: bool) -> str:
        whole = [",".join(NAMES).encode() + b"\n", *rows, *([ORDINARY] if more else [])]
        (folder / "people.csv").write_bytes(b"".join(whole))
        return "people.csv"

    return write


EASTERN = [csv_line({**row, "region": "East", "age": row["age"] % 40}) for row in crowd()]
PAIRS: dict[str, Callable[[Path, bool], str]] = {
    # a file with an unpaired quote is refused when it is opened, whatever the question
    **{f"record: {name}": of_records(extra) for name, extra in AWKWARD_ROWS.items() if b'"' not in extra},
    **{f"values: {name}": of_values(*pair) for name, pair in AWKWARD_VALUES.items()},
    "the only person": lines_of([]),
    "alone in a cell": lines_of(EASTERN),
}
TABLES = {f"d{i}": name for i, name in enumerate(PAIRS)}


def make_config(folder: Path, more: bool) -> Path:
    """All datasets in one configuration and one pool, each with or without its person."""
    text = ""
    for table, name in TABLES.items():
        (folder / table).mkdir(parents=True)
        source = f"{table}/{PAIRS[name](folder / table, more)}"
        section = config_text(source=source, columns=COLUMNS, budget=MANY + 'pool = "people"\n')
        text += section.replace("dataset.people", f"dataset.{table}")
    config = written(folder, text + UNLIMITED)
    with_plan(config)
    return config


# -- requests ----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A request. `key` names its holder; {receipt} in a path is replaced by the last charge of the same server."""

    method: str
    path: str
    body: object = None
    key: str | None = "ann"
    headers: tuple[tuple[str, str], ...] = ()


def make_case(rng: random.Random, body: object) -> Case:
    return Case("POST", rng.choice(["/v1/count", "/v1/count", "/v1/dry-run"]), body)


def of_table(sql: str, table: str) -> str:
    return sql.replace("FROM people", f"FROM {table}")


def form(rng: random.Random, table: str) -> dict[str, Any]:
    """A question as members: mostly valid, sometimes with an invalid member."""
    members: dict[str, Any] = {"dataset": table, "by": rng.sample(NAMES[1:], rng.choice([0, 1, 2]))}
    if rng.random() < 0.7:
        members["where"] = condition(rng)
    if rng.random() < 0.3:
        members["people"] = True
    if rng.random() < 0.4:
        wrong = [("by", ["nobody"]), ("by", "region"), ("where", "1/0"), ("people", 1), ("name", ""), ("x", 1)]
        members.update([rng.choice([*wrong, ("dataset", "nowhere"), ("dataset", None), ("by", ["region"] * 2)])])
    return members


def by_all_tables(rng: random.Random) -> Iterator[Case]:
    """Each dataset by each column and in total, with a dry run before and a repeat after one of them."""
    for table in TABLES:
        whole = [f"SELECT {c}, count(*) FROM {table} GROUP BY {c}" for c in NAMES[1:]]
        whole.append(f"SELECT count(*) FROM {table}")
        again = rng.choice(whole)
        yield Case("POST", "/v1/dry-run", {"sql": again})
        yield from (Case("POST", "/v1/count", {"sql": sql}) for sql in whole)
        yield Case("POST", "/v1/count", {"sql": again}, "bob")
        yield Case("GET", "/v1/receipts/{receipt}")


def random_cases(rng: random.Random) -> Iterator[Case]:
    for i in range(150):
        table = rng.choice(sorted(TABLES))
        sql = of_table(question(rng) if i % 3 else broken(rng), table)
        yield make_case(rng, form(rng, table) if i % 5 == 0 else {"sql": sql})
    hostile = [line for line in HOSTILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("# ")]
    for line in rng.sample(hostile, 40):
        yield make_case(rng, {"sql": of_table(line, "d0")})
    for _ in range(30):  # valid bodies with a few bytes replaced
        text = json.dumps({"sql": of_table(question(rng), "d1")}).encode()
        place = rng.randrange(len(text))
        yield make_case(rng, text[:place] + bytes(rng.choices(string.printable.encode(), k=3)) + text[place + 2 :])


TOTAL = {"sql": "SELECT count(*) FROM d0 WHERE age < 77"}
LARGE = {"sql": "SELECT count(*) FROM d0 WHERE " + " OR ".join(f"age = {i % 120}" for i in range(30_000))}
BODIES: list[object] = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"sql": NaN}',
    b'{"sql": "SELECT count(*) FROM d0", "sql": "SELECT count(*) FROM d1"}',
    b'{"sql": "\\ud800"}',
    b"[" * 10_000,
    {"sql": None},
    {"sql": 7},
    {"sql": "x" * 100_001},
    {"sql": TOTAL["sql"], "dataset": "d0"},
    LARGE,
]


def route_cases() -> Iterator[Case]:
    """Every route, with every role; refusals of every kind."""
    yield from (Case("POST", path, body) for body in BODIES for path in ("/v1/count", "/v1/dry-run"))
    gets = ["/v1/datasets", "/v1/budget", "/v1/asked", "/v1/verify", "/metrics", "/openapi.json", "/healthz", "/docs"]
    gets += ["/v1/receipts/{receipt}", f"/v1/receipts/{'0' * 24}", "/v1/receipts/x", "/v1/nothing", "/login", "/ask"]
    for key in ("ann", "bob", "office", "wrong", "malformed", "revoked", None):
        yield from (Case("GET", path, key=key) for path in gets)
        yield from (Case("POST", path, TOTAL, key) for path in ("/v1/count", "/v1/dry-run"))
    yield from (Case(method, path) for method in ("PUT", "DELETE", "OPTIONS") for path in ("/v1/count", "/v1/budget"))
    yield Case("GET", "/v1/count")
    yield Case("GET", "/v1/budget?key=cvk_0123456789_" + "a" * 64)
    yield Case("GET", "/" + "x" * 9_000)
    yield Case("GET", "/v1/budget", headers=(("Host", "elsewhere.example"),))
    yield Case("POST", "/v1/count", TOTAL, headers=(("Content-Type", "text/plain"),))
    for name in ("one", "one", "two", "x" * 200, "x" * 201, "a b"):
        yield Case("POST", "/v1/count", TOTAL, headers=(("Idempotency-Key", name),))
    for age in (77, 78):  # an idempotency key that paid is refused for another question
        paid = {"sql": f"SELECT count(*) FROM d1 WHERE age < {age}"}
        yield Case("POST", "/v1/count", paid, headers=(("Idempotency-Key", "paid"),))
    for i in range(5):  # the key may pay for three of them
        yield Case("POST", "/v1/count", {"sql": f"SELECT count(*) FROM d1 WHERE age > {20 + i}"}, "small")
    yield Case("POST", "/v1/dry-run", {"sql": "SELECT count(*) FROM d1 WHERE age > 90"}, "small")
    yield Case("POST", "/v1/design", {"epsilon": "1", "delta": "1e-3"}, None)
    yield Case("POST", "/v1/design", {"epsilon": "-1"})
    yield Case("POST", "/v1/compare", {"epsilon": "1", "delta": "2"})


def corpus() -> list[Case]:
    rng = random.Random(20261116)
    return [
        *by_all_tables(rng),
        *random_cases(rng),
        *route_cases(),
        Case("GET", "/v1/verify", key="office"),
        Case("GET", "/metrics"),
    ]


# -- comparison without the numbers ------------------------------------------------------------------------------------


def mask(response: Any) -> Any:
    """Hide ids of charges and times, which do not depend on the data."""
    if isinstance(response, list):
        return [mask(each) for each in response]
    if isinstance(response, dict):
        hidden = {}
        for name, value in response.items():
            if name == "id" and isinstance(value, str) and ID.fullmatch(value):
                value = "id"
            elif name in ("time", "answered") and isinstance(value, str) and TIME.fullmatch(value):
                value = "time"
            hidden[name] = mask(value)
        return hidden
    return response


class Shape(NamedTuple):
    """A response without its noisy numbers."""

    status: int
    headers: list[tuple[str, str]]
    body: str
    numbers: list[tuple[int, int, int]]


def hide_length(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, "" if name == "content-length" else value) for name, value in headers]


def shape(answer: Answer) -> Shape:
    """Remove the noisy numbers of a response, and the length, which depends on their digits."""
    kind, numbers = answer.header("content-type") or "", []
    headers = [(name, value) for name, value in answer.headers if name != "date"]
    if "json" not in kind:  # metrics state when each counter was created
        text, created = CREATED.subn(r"\1 time", answer.body.decode())
        return Shape(answer.status, hide_length(headers) if created else headers, text, [])
    body = answer.json()
    if isinstance(body, dict) and "rows" in body and answer.status == 200:
        assert body["total"]["value"] == sum(row[-3] for row in body["rows"])
        body["total"]["value"] = "sum"
        for row in body["rows"]:
            numbers.append(tuple(row[-3:]))
            row[-3:] = NUMBERS
        headers = hide_length(headers)
    return Shape(answer.status, headers, json.dumps(mask(body)), numbers)


class Visitor:
    """Sends requests to one server and reduces the responses to their shapes."""

    def __init__(self, server: Server) -> None:
        self.server, self.receipt = server, "0" * 24
        self.keys = {"ann": server.key("ann"), "bob": server.key("bob"), "office": server.key("office", "curator")}
        self.keys |= {"small": server.key("small", answers=3), "revoked": server.key("gone")}
        self.keys |= {"wrong": f"cvk_0123456789_{'a' * 64}", "malformed": "let me in"}
        server.keyring.revoke("gone")

    def ask(self, case: Case) -> Shape:
        path = case.path.replace("{receipt}", self.receipt)
        key = None if case.key is None else self.keys[case.key]
        answer = self.server.ask(case.method, path, case.body, key=key, headers=dict(case.headers))
        if case.path == "/v1/count" and answer.status == 200:
            self.receipt = answer.json()["receipt"]["id"]
        return shape(answer)

    def log(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in line.items() if name != "time"} for line in self.server.lines()]


def test_one_person_changes_nothing_but_the_noisy_numbers(tmp_path: Path) -> None:
    cases = corpus()
    assert len(cases) >= 400
    with (
        serving(make_config(tmp_path / "without", False)) as first,
        serving(make_config(tmp_path / "with", True)) as second,
    ):
        one, two = Visitor(first), Visitor(second)
        seen: Counter[int] = Counter()
        released: list[tuple[Any, Any]] = []
        ends: dict[int, tuple[int, int]] = {}
        for case in cases:
            a, b = one.ask(case), two.ask(case)
            assert a[:3] == b[:3], case
            seen[a.status] += 1
            released.append((a.numbers, b.numbers))
            for y, low, high in (*a.numbers, *b.numbers):
                assert ends.setdefault(y, (low, high)) == (low, high), "an interval is a function of y"
        wait_until(lambda: len(one.log()) >= len(cases) <= len(two.log()))  # a line is written after its response
        assert one.log() == two.log()
        assert len(one.log()) == len(cases)
    assert set(seen) >= {200, 303, 400, 401, 402, 403, 404, 405, 409, 413, 415, 421, 422}, seen
    assert not any(status >= 500 for status in seen)
    assert seen[200] > 300
    assert seen.total() - seen[200] > 150
    assert sum(a != b for a, b in released) > 150, "the noise is fresh: the comparison could fail"


def test_the_comparison_detects_differences() -> None:
    body = {
        "rows": [["North", 5, 1, 9], ["South", 0, 0, 4]],
        "total": {"value": 5},
        "receipt": {"id": "a" * 24, "time": "2026-11-16T12:00:00+00:00", "version": 1},
    }
    headers = [("date", "now"), ("content-type", "application/json"), ("content-length", "10")]

    def of(changes: Mapping[str, Any], **more: Any) -> Any:
        content = {**body, **changes}
        answer = Answer(200, headers, json.dumps(content).encode())
        return shape(answer._replace(**more))[:3]

    same = [["North", 12345, 12340, 12350], ["South", 3, 0, 7]]
    assert of({}) == of({"rows": same, "total": {"value": 12348}})
    assert of({}) == of({"receipt": {**body["receipt"], "id": "b" * 24, "time": "2027-01-01T00:00:00+00:00"}})
    assert of({}) == of({}, headers=[("date", "later"), *headers[1:2], ("content-length", "11")])
    assert of({}) != of({"rows": body["rows"][:1], "total": {"value": 5}})
    assert of({}) != of({"rows": [["North", 5, 1, 9], ["West", 0, 0, 4]]})
    assert of({}) != of({"receipt": {**body["receipt"], "version": 2}})
    assert of({}) != of({"receipt": {**body["receipt"], "id": "a" * 23}})
    assert of({}) != of({"more": 1})
    assert of({}) != of({}, status=201)
    assert of({}) != of({}, headers=[*headers, ("x-rows", "61")])


# -- canaries ----------------------------------------------------------------------------------------------------------

REGIONS, HALVES = ("North", "South", "East", "West"), (1, 2)
CANARIES = 'region = ["North", "South", "East", "West"]\nhalf = { min = 1, max = 2 }\n'
FINE = 'epsilon = "1"\ndelta = "1e-6"\nanswers = 200\n'
"""So many answers need much noise: less than one in a hundred released counts is the true one."""


def prime(least: int) -> int:
    """The smallest prime that is at least this."""
    while any(least % d == 0 for d in range(2, int(least**0.5) + 1)):
        least += 1
    return least


def true_counts() -> dict[tuple[str, int], int]:
    """Different primes of seven digits, one for each cell."""
    cells = [(region, half) for region in REGIONS for half in HALVES]
    return {cell: prime(1_000_000 + 123_457 * i) for i, cell in enumerate(cells)}


def write_cells(folder: Path, cells: Mapping[tuple[str, int], int]) -> str:
    """Write a file with so many rows of each cell; runs of equal values take little space."""
    kinds = pa.schema([("region", pa.string()), ("half", pa.int64())])
    with pq.ParquetWriter(folder / "people.parquet", kinds) as file:
        for (region, half), n in cells.items():
            file.write_table(pa.table({"region": pa.repeat(region, n), "half": pa.repeat(half, n)}, kinds))
    return "people.parquet"


class QuestionWithCounts(NamedTuple):
    """A question and its true counts, in the order of its cells."""

    body: dict[str, Any]
    counts: list[int]


def questions_with_counts(cells: Mapping[tuple[str, int], int]) -> list[QuestionWithCounts]:
    def total(regions: tuple[str, ...] = REGIONS, halves: tuple[int, ...] = HALVES) -> int:
        return sum(cells[region, half] for region in regions for half in halves)

    by_region, by_half = [total((r,)) for r in REGIONS], [total(halves=(h,)) for h in HALVES]
    cases = [
        QuestionWithCounts({"sql": "SELECT count(*) FROM people"}, [total()]),
        QuestionWithCounts({"sql": "SELECT region, count(*) FROM people GROUP BY region"}, by_region),
        QuestionWithCounts({"sql": "SELECT half, count(*) FROM people GROUP BY half"}, by_half),
        QuestionWithCounts({"dataset": "people", "by": ["region", "half"]}, list(cells.values())),
        QuestionWithCounts(
            {"dataset": "people", "by": ["half"], "where": "region = 'East'"}, [cells["East", h] for h in HALVES]
        ),
    ]
    for (region, half), n in cells.items():
        cases.append(QuestionWithCounts({"dataset": "people", "where": f"region = '{region}' AND half = {half}"}, [n]))
        rest = total() - n
        cases.append(
            QuestionWithCounts({"dataset": "people", "where": f"NOT (region = '{region}' AND half = {half})"}, [rest])
        )
    return cases


def ways(n: int) -> list[str]:
    """Ways to write a number."""
    return [str(n), f"{n:,}", f"{n:_}", f"{n:,}".replace(",", " "), f"{n:x}", f"{n:.6e}", f"{n / 1e6:.6f}"]


def times(n: int, text: str) -> int:
    """How often a text contains a number, in any notation."""
    shown = "|".join(re.escape(way) for way in ways(n))
    return len(re.findall(rf"(?<![0-9a-f])(?:{shown})(?![0-9a-f])", text.lower()))


def test_no_true_count_appears_anywhere(tmp_path: Path) -> None:
    """A released number, an end of its interval or a sum may equal a true count by chance. These occurrences are
    counted and expected; any further one fails."""
    cells = true_counts()
    source = write_cells(tmp_path, cells)
    config = written(tmp_path, config_text(source=source, unit="row", columns=CANARIES, budget=FINE) + UNLIMITED)
    with_plan(config)
    canaries = {n for case in questions_with_counts(cells) for n in case.counts}
    assert min(canaries) >= 10**6
    texts, expected, off = [], Counter[int](), []
    with serving(config) as server:
        ann, office = server.key("ann"), server.key("office", "curator")

        def ask(method: str, path: str, body: object = None, key: str | None = ann) -> Any:
            answer = server.ask(method, path, body, key=key)
            texts.append("\n".join(f"{name}: {value}" for name, value in answer.headers))
            texts.append(answer.body.decode())
            return answer.json() if "json" in (answer.header("content-type") or "") else None

        for case in questions_with_counts(cells):
            ask("POST", "/v1/dry-run", case.body)
            for key in (ann, office):
                table = ask("POST", "/v1/count", case.body, key)
                shown = [n for row in table["rows"] for n in row[-3:]] + [table["total"]["value"]]
                expected.update(n for n in shown if n in canaries)
                off += [row[-3] - n for row, n in zip(table["rows"], case.counts, strict=True)]
            ask("GET", f"/v1/receipts/{table['receipt']['id']}")
            ask("POST", "/v1/count", {**case.body, "people": 1})
        for path in ("/v1/datasets", "/v1/budget", "/v1/asked", "/v1/verify", "/metrics", "/openapi.json", "/healthz"):
            ask("GET", path, key=office)
        (tmp_path / "people.parquet").write_bytes(b"PAR1 and then nothing")  # failures reveal nothing either
        assert ask("POST", "/v1/count", {"sql": "SELECT count(*) FROM people"})["status"] == 503
        (tmp_path / "people.parquet").unlink()
        assert ask("POST", "/v1/dry-run", {"sql": "SELECT count(*) FROM people"})["status"] == 503
        texts.append(server.log)
    ledger = SqliteLedger(load(config, {}).ledger, load(config, {}).anchor, create=False)
    texts += [json.dumps(entry.body) for entry in ledger.entries()]
    ledger.close()
    whole = "\n".join(texts)
    assert {n: times(n, whole) for n in canaries} == {n: expected[n] for n in canaries}
    assert sum(error != 0 for error in off) > 0.8 * len(off), "the noise is on"
    assert max(map(abs, off)) < 10**4, "these are the counts of the questions"


def test_the_search_finds_a_true_count() -> None:
    n = 1_299_709
    for text in ("n=1299709", '"count": 1299709}', "1,299,709 people", "[1299709.0]", "1.299709e+06", "0x13D4FD and"):
        assert times(n, text if "0x" not in text else text.replace("0x", " ")) == 1, text
    assert times(n, "12997091 a1299709 13d4fda 129970") == 0
    assert times(n, "1299709, 1299709") == 2
