"""How the ledgers in this folder were made, with countveil as it was before fingerprints were keyed (format 1).

    python make.py FOLDER                   # countveil.ledger.gz, countveil.ledger.anchor
    python make.py FOLDER postgresql://...  # postgres.json: the rows of the tables of a ledger on a server

Both hold a plan, shares, two versions of the data, answers with and without an idempotency key, a
charge without an answer, and more answers opened. expected.json has what was answered: replays must give it again. It
runs with that version only; tests read the files.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from countveil import Curator
from countveil.ledger import Request

HERE = Path(__file__).parent
QUESTIONS = (
    ("curator", "SELECT region, count(*) FROM people GROUP BY region", None),
    ("ann", "SELECT count(*) FROM people WHERE age >= 40", Request("a" * 64, "b" * 64)),
    ("ann", "SELECT count(*) FROM people", None),
)
OPEN = "SELECT count(*) FROM people WHERE age < 20"
TABLES = ("pool", "plan", "share", "version", "charge", "request", "answer")


def fill(folder: Path, server: str | None) -> dict[str, Any]:
    for name in ("people.csv", "countveil.toml"):
        shutil.copy(HERE / name, folder / name)
    if server:
        os.environ["COUNTVEIL_LEDGER"] = server
    with Curator.open(folder / "countveil.toml") as curator:
        answers = []
        for analyst, sql, request in QUESTIONS:
            table = curator.count(sql, analyst=analyst, request=request)
            answers.append({"analyst": analyst, "sql": sql, "id": table.receipt.id, "counts": table.released.tolist()})
        content = (folder / "people.csv").read_text()
        (folder / "people.csv").write_text(content + "99,West,44\n")
        table = curator.count(QUESTIONS[2][1])
        second = {"sql": QUESTIONS[2][1], "id": table.receipt.id, "counts": table.released.tolist()}
        (folder / "people.csv").write_text(content)
        curator.open_budget("people", 2, "a second edition")
        question = curator.question(OPEN)
        charge = curator.ledger.charge("people", "people", 1, question.sha256, question.text, "ann")
        (budget,) = curator.budget()
        return {
            "answers": answers,
            "second": second,
            "open": {"sql": OPEN, "id": charge.id},
            "budget": [budget.answers_total, budget.answers_left, budget.epsilon],
        }


if __name__ == "__main__":
    folder, server = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    expected = fill(folder, server)
    name = "postgres" if server else "sqlite"
    if server:
        import psycopg

        rows: dict[str, Any] = {}
        with psycopg.connect(server) as db:
            for table in ("entry", *TABLES):
                found = db.execute(f"SELECT * FROM countveil.{table}")
                rows[table] = [
                    row[:9] for row in found
                ]  # without the order of charges, which is made when they are read
        (HERE / "postgres.json").write_text(json.dumps(rows, default=bytes.hex, indent=0) + "\n")
        shutil.copy(folder / "countveil.ledger.anchor", HERE / "postgres.anchor")
    else:
        (HERE / "countveil.ledger.gz").write_bytes(
            gzip.compress((folder / "countveil.ledger").read_bytes(), 9, mtime=0)
        )
        shutil.copy(folder / "countveil.ledger.anchor", HERE / "countveil.ledger.anchor")
    known = json.loads((HERE / "expected.json").read_text()) if (HERE / "expected.json").exists() else {}
    (HERE / "expected.json").write_text(json.dumps({**known, name: expected}, indent=1) + "\n")
