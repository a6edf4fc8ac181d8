"""How the files in this folder were made: `python make.py`, with countveil as it was when ledgers had format 2 first.

Made once, and not again: tests show that files and ledgers of that version are accepted by every later one.

    mechanisms/      a mechanism of every method, policy and kind of promise
    countveil.*      a ledger with its anchor and configuration: shares, answers of two plans, of two versions of the
                     data, and with an idempotency key, a charge without an answer, and more answers opened
    expected.json    what a reader must find: hashes and claims, receipts and released numbers, budgets, hashes of
                     questions
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import countveil as cv
from countveil.ledger import Request

HERE = Path(__file__).parent
DESIGNS: dict[str, dict[str, Any]] = {
    "paper-signed": {"epsilon": "2.18", "eta": "0.8", "D": 6, "policy": "signed", "method": "paper"},
    "paper": {"epsilon": "1", "eta": "0.3", "D": 4, "method": "paper", "counts": "4:"},
    "paper-floor": {"epsilon": "1", "eta": "0.3", "D": 4, "method": "paper", "policy": "floor"},
    "optimal-signed": {"epsilon": "1", "delta": "1e-6", "policy": "signed"},
    "optimal": {"epsilon": "1", "delta": "1e-4", "method": "optimal", "counts": "50:"},
    "program": {"epsilon": "1", "delta": "1e-3", "D": 7, "method": "program"},
    "program-variance": {"epsilon": "1", "delta": "1e-2", "eta": "0.3", "D": 6, "objective": "variance"},
    "remap": {"epsilon": "0.5", "delta": "1e-4", "method": "remap"},
    "floor": {"epsilon": "1", "delta": "1e-4", "policy": "floor"},
    "promise": {"epsilon": "1", "eta": "0.5", "D": 2, "counts": "1:3", "objective": "singleton"},
    "promise-from": {"epsilon": "1", "delta": "1e-4", "counts": "100:"},
    "capped": {"epsilon": "1", "delta": "1e-2", "counts": "0:20", "cap": True},
    "sensitivity": {"epsilon": "2", "delta": "1e-2", "sensitivity": 2},
    "sensitivity-signed": {"epsilon": "1", "delta": "1e-4", "sensitivity": 2, "policy": "signed"},
    "bits": {"epsilon": "1", "delta": "1e-3", "bits": 128, "policy": "signed"},
}
GROUPED = "SELECT region, count(*) FROM people GROUP BY region"
TOTAL = "SELECT count(*) FROM people"
FIRST_PLAN = (
    ("curator", GROUPED, None),
    ("ann", "SELECT count(*) FROM people WHERE age >= 40", "ab"),
    ("ann", TOTAL, None),
)
SECOND_PLAN = (
    (
        "ann",
        "SELECT member, age, count(*) AS \"all\" FROM people WHERE joined < DATE '2023-05-01' GROUP BY age, member",
        "cd",
    ),
)
UNANSWERED = "SELECT count(*) FROM people WHERE age < 20"
QUESTIONS = (
    "SELECT count(DISTINCT person) FROM people",
    "SELECT count(*) FROM \"people\" WHERE NOT (age < 65 OR region IN ('North', 'East'))",
    "SELECT count(*) FROM people WHERE age BETWEEN 20 AND 39 AND NOT age = 30 AND region <> 'West'",
    "SELECT count(*) FROM people WHERE region IS NULL OR age IS NOT NULL",
    "SELECT count(*) FROM people WHERE age > 200",
    "SELECT count(*) FROM people WHERE age NOT BETWEEN 0 AND 119",
    "SELECT count(*) FROM people WHERE (age = 1 OR age = 3 OR 7 >= age) AND (member = TRUE OR age > 5)",
    "SELECT region, member, count(*) AS n FROM people WHERE joined >= DATE '2021-02-28' GROUP BY region, member",
    "SELECT joined, count(*) FROM people GROUP BY joined",
    "SELECT age, count(*) FROM people WHERE NOT (region = 'North' AND NOT (age <> 5 OR member = FALSE)) GROUP BY age",
    "SELECT count(*) FROM people WHERE region = 'North' AND age < 10 OR region = 'South' AND age < 20",
    "SELECT count(*) FROM people WHERE region NOT IN ('North', 'South', 'East', 'West')",
)


def make_mechanisms() -> dict[str, Any]:
    """Save a mechanism of every kind; what each says of itself when it is loaded again."""
    from countveil.design.unsigned import gaussian  # where it was then

    made = {name: cv.design(**terms) for name, terms in DESIGNS.items()}
    made["gaussian"] = gaussian("2", epsilon="1", D=12)
    made["gaussian-nonnegative"] = cv.nonnegative(made["gaussian"], unbiased_from=5)
    made["nonnegative"] = cv.nonnegative(made["optimal-signed"])
    for name, mechanism in made.items():
        mechanism.save(HERE / "mechanisms" / f"{name}.json")
    return {name: cv.Mechanism.load(HERE / "mechanisms" / f"{name}.json").describe() for name in made}


def describe(analyst: str, sql: str, key: str | None, table: Any) -> dict[str, Any]:
    return {"analyst": analyst, "sql": sql, "key": key, **table.describe()}


def fill_ledger(folder: Path) -> dict[str, Any]:
    """Charge and answer in a ledger, and say what was answered."""
    people, config = folder / "people.csv", folder / "countveil.toml"
    content, terms, answers = people.read_text(), config.read_text(), []
    config.write_text(terms.replace("answers = 6", "answers = 4"))
    with cv.Curator.open(config) as curator:
        for analyst, sql, key in FIRST_PLAN:
            request = None if key is None else Request(key * 32, "0" * 64)
            answers.append(describe(analyst, sql, key, curator.count(sql, analyst=analyst, request=request)))
        people.write_text(content + "99,West,44,true,2022-02-02\n")
        second = describe("curator", TOTAL, None, curator.count(TOTAL))
        people.write_text(content)
        curator.open_budget("people", 2, "a second edition")
    config.write_text(terms)
    with cv.Curator.open(config) as curator:
        curator.replan_budget("people", "more questions than were expected")
        for analyst, sql, key in SECOND_PLAN:
            request = None if key is None else Request(key * 32, "0" * 64)
            answers.append(describe(analyst, sql, key, curator.count(sql, analyst=analyst, request=request)))
        question = curator.question(UNANSWERED)
        charge = curator.ledger.charge("people", "people", 1, question.sha256, question.text, "ann")
        curator.open_budget("people", 1, "a third edition")
        (budget,) = curator.budget()
        asked = [curator.question(sql) for sql in QUESTIONS]
    return {
        "answers": answers,
        "second": second,
        "unanswered": {"sql": UNANSWERED, "id": charge.id},
        "budget": {**vars(budget), "shares": {who: [s.answers, s.spent] for who, s in budget.shares.items()}},
        "questions": [[sql, q.text, q.sha256, q.cells] for sql, q in zip(QUESTIONS, asked, strict=True)],
    }


if __name__ == "__main__":
    expected: dict[str, Any] = {"mechanisms": make_mechanisms()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("people.csv", "countveil.toml"):
            shutil.copy(HERE / file, folder / file)
        expected["ledger"] = fill_ledger(folder)
        shutil.copy(folder / "countveil.ledger.anchor", HERE)
        packed = gzip.compress((folder / "countveil.ledger").read_bytes(), 9, mtime=0)
        (HERE / "countveil.ledger.gz").write_bytes(packed)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
