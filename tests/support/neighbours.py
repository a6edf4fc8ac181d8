"""Questions, a dataset of people, and persons with hostile values that might be visible in more than the counts."""

from __future__ import annotations

import datetime
import random
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = Path(__file__).parents[1] / "hostile" / "queries.txt"
COLUMNS = (
    'region = ["North", "South", "East", "West"]\nage = { min = 0, max = 119, step = 10 }\n'
    "ok = { type = 'boolean' }\nday = { min = 2026-01-01, max = 2026-03-01, step = 20 }\ncode = [7, 3, 12]\n"
)
NAMES = ["person", "region", "age", "ok", "day", "code"]
Row = dict[str, Any]
ALL = "SELECT count(*) FROM people"


# Questions


def literal(rng: random.Random, column: str) -> str:
    return {
        "region": lambda: rng.choice(["'North'", "'South'", "'East'", "'West'"]),
        "age": lambda: str(rng.randint(-10, 130)),
        "ok": lambda: rng.choice(["TRUE", "FALSE"]),
        "day": lambda: f"DATE '2026-0{rng.randint(1, 3)}-{rng.randint(1, 28):02d}'",
        "code": lambda: str(rng.choice([7, 3, 12, 99])),
    }[column]()


def condition(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.5:
        parts = [condition(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        joined = rng.choice([" AND ", " OR "]).join(f"({part})" for part in parts)
        return f"NOT ({joined})" if rng.random() < 0.3 else joined
    column = rng.choice(NAMES[1:])
    test = rng.choice(["=", "<>", "<", ">=", "in", "between", "null"])
    if test == "null":
        return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
    if test == "in":
        return f"{column} IN ({', '.join(literal(rng, column) for _ in range(rng.randint(1, 4)))})"
    if column == "ok":
        return f"ok = {literal(rng, 'ok')}"
    if test == "between":
        return f"{column} BETWEEN {literal(rng, column)} AND {literal(rng, column)}"
    return f"{column} {test} {literal(rng, column)}"


def question(rng: random.Random) -> str:
    by = rng.sample(NAMES[1:], rng.choice([0, 1, 1, 2]))
    shown = ", ".join([*by, rng.choice(["count(*)", "count(*) AS n", "count(DISTINCT person)"])])
    where = f" WHERE {condition(rng)}" if rng.random() < 0.8 else ""
    return f"SELECT {shown} FROM people{where}" + (f" GROUP BY {', '.join(by)}" if by else "")


BREAKS = [
    "error('x')",
    "1/0",
    "CAST(age AS INT)",
    "sum(age)",
    ";",
    "'",
    '"',
    "--",
    "(",
    ")",
    "HAVING count(*) > 5",
    "LIMIT 1",
]
BREAKS += [
    "UNION SELECT 1",
    "age + 1",
    "nobody",
    "person = 3",
    "10000000000000000000000",
    "LIKE 'N%'",
    "\x00",
    "ORDER BY 1",
]


def broken(rng: random.Random) -> str:
    words = question(rng).split(" ")
    place = rng.randrange(len(words))
    if rng.random() < 0.4:
        del words[place]
    else:
        words.insert(place, rng.choice(BREAKS))
    return " ".join(words)


@cache
def corpus() -> tuple[str, ...]:
    """Fuzzed questions, every third of them broken, and a sample of the hostile ones."""
    rng = random.Random(20261116)
    found = [question(rng) if i % 3 else broken(rng) for i in range(210)]
    hostile = [line for line in HOSTILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return tuple(dict.fromkeys(found + rng.sample(hostile, min(40, len(hostile)))))


# Datasets


def crowd() -> list[Row]:
    rng = random.Random(7)
    first = datetime.date(2026, 1, 1)
    return [
        {
            "person": i,
            "region": rng.choice(["North", "South", "East", "West", None]),
            "age": rng.randint(0, 119),
            "ok": rng.choice([True, False, None]),
            "day": first + datetime.timedelta(days=rng.randint(0, 59)),
            "code": rng.choice([7, 3, 12]),
        }
        for i in range(60)
    ]


def csv_line(row: Row) -> bytes:
    return ",".join("" if row[name] is None else str(row[name]) for name in NAMES).encode() + b"\n"


def csv_file(folder: Path, extra: bytes) -> str:
    """Write the people as CSV, with the extra record in the middle."""
    lines, place = [csv_line(row) for row in crowd()], 30
    (folder / "people.csv").write_bytes(
        ",".join(NAMES).encode() + b"\n" + b"".join([*lines[:place], extra, *lines[place:]])
    )
    return "people.csv"


KINDS: dict[str, Any] = {
    "person": pa.int64(),
    "region": pa.string(),
    "age": pa.int64(),
    "ok": pa.bool_(),
    "day": pa.date32(),
    "code": pa.int64(),
}


def parquet_file(folder: Path, extra: Row | None, **kinds: Any) -> str:
    rows = [*crowd(), *([extra] if extra else [])]
    table = {}
    for name in NAMES:
        kind = kinds.get(name, KINDS[name])
        plain = pa.array([row[name] for row in rows[:60]], KINDS[name]).cast(kind)
        last = [pa.array([extra[name]], kind)] if extra else []
        table[name] = pa.chunked_array([plain, *last])
    pq.write_table(pa.table(table), folder / "people.parquet")
    return "people.parquet"


PERSON: Row = {"person": 1000, "region": "West", "age": 44, "ok": True, "day": datetime.date(2026, 2, 2), "code": 12}
ORDINARY = csv_line(PERSON)
AWKWARD_ROWS = {
    "ordinary": ORDINARY,
    "a hundred rows": ORDINARY * 100,
    "another type": b"1000,South,old,perhaps,yesterday,x\n",
    "overflow": b"1000,West," + b"9" * 400 + b",1,99999-01-01,-9223372036854775809\n",
    "not a number": b"1000,West,nan,inf,2026-02-30,1e400\n",
    "short": b"1000,West\n",
    "long": b"1000,West,44,true,2026-02-02,12,more,and,more\n",
    "empty": b"\n",
    "not UTF-8": b"1000,W\xe9st\xff,44,true,2026-02-02,12\n",
    "NUL": b"1000,West\x00,4\x004,true,2026-02-02,12\n",
    "quotes": b'1000,"We""st","44",true,"2026-02-02","12"\n',
    "quoted line ends": b'"1000","West\r\n1000,West,44,true,2026-02-02,12\n",44,"true\r",2026-02-02,12\r\n',
    "quotes beyond the header": b'1000,West,44,true,2026-02-02,12,"more\n1000,West,44,true,2026-02-02,12"\n',
    "huge": b"1000," + b"x" * 3_000_000 + b",44,true,2026-02-02,12\n",
    "CRLF": b"1000,West,44,true,2026-02-02,12\r\n",
    "injection": b"1000,'; DROP TABLE people; --,44,true,2026-02-02,12\n",
}
FAR = datetime.date(9999, 12, 31)
AWKWARD_VALUES: dict[str, tuple[Row, dict[str, Any]]] = {
    "overflow": ({"age": 2**63 - 1, "code": -(2**63), "day": FAR}, {}),
    "unsigned": ({"age": 2**64 - 1, "code": 0}, {"age": pa.uint64(), "code": pa.uint8()}),
    "floats": ({"age": float("inf"), "code": 1e300}, {"age": pa.float64(), "code": pa.float64()}),
    "NaN": ({"age": float("nan"), "code": -0.0}, {"age": pa.float64(), "code": pa.float32()}),
    "text": ({"age": "9" * 400, "day": "9999999-99-99"}, {"age": pa.string(), "day": pa.string()}),
    "NULL": (dict.fromkeys(NAMES), {}),
    "no person": ({"person": None}, {}),
    "time stamps": ({"day": 2**62}, {"day": pa.timestamp("us")}),
    "NUL": ({"region": "West\x00"}, {}),
}
