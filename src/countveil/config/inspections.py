"""The record of earlier inspections, with which `countveil inspect --since` finds what changed since the last one.

The record contains true counts and column names, so it is as secret as the data. Only its owner can read it.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from countveil.config.profile import Inspection
from countveil.errors import ConfigError, shorten
from countveil.files.durable_files import replace_private

VERSION = 1
Facts = Mapping[str, Any]
"""What is recorded about one inspection, as plain JSON values."""


def record_path(ledger: Path) -> Path:
    """The path of the record: a file beside the ledger."""
    return ledger.with_name(f"{ledger.name}.inspected")


def read_inspections(path: Path) -> dict[str, Facts]:
    """The last recorded inspection of each dataset; empty if there is no record."""
    advice = "is not a record of inspections; move it away to start a new one"
    try:
        record = json.loads(path.read_bytes())
        datasets = record["datasets"]
        for facts in datasets.values():
            _check(facts)
    except FileNotFoundError:
        return {}
    except OSError:
        raise ConfigError(shorten(str(path), 200), "cannot be read; it belongs to whoever inspected last") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(shorten(str(path), 200), advice) from None
    if record.get("schema_version") != VERSION:
        raise ConfigError(shorten(str(path), 200), advice)
    return dict(datasets)


def write_inspections(path: Path, inspections: Sequence[Inspection], earlier: Mapping[str, Facts]) -> None:
    """Record these inspections as the last ones. Datasets that were not inspected keep their earlier inspection."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    datasets = {**earlier, **{each.dataset: {"inspected": when, **_facts(each)} for each in inspections}}
    try:
        replace_private(path, json.dumps({"schema_version": VERSION, "datasets": datasets}, indent=1).encode())
    except OSError as error:
        raise ConfigError(shorten(str(path), 200), f"cannot be written ({error.strerror})") from None


def list_changes(inspection: Inspection, earlier: Facts | None) -> list[str]:
    """What changed since an earlier inspection, one line of text for each change; for the curator only."""
    if earlier is None:
        return ["no earlier inspection is recorded; the next one is compared with this one"]
    now = _facts(inspection)
    lines = [f"{what}: {old:,} -> {new:,}" for what, old, new in _numbers(earlier, now) if old != new]
    for what in ("columns", "undeclared"):
        words = {"columns": "declared column", "undeclared": "column that is not declared"}[what]
        lines += [f"new {words}: {_plain(name)}" for name in now[what] if name not in earlier[what]]
        lines += [f"no longer a {words}: {_plain(name)}" for name in earlier[what] if name not in now[what]]
    for name, column in now["columns"].items():
        old = earlier["columns"].get(name, column)
        lines += [
            f"{_plain(name)}: {old[key]} -> {column[key]}" for key in ("declared", "held") if old[key] != column[key]
        ]
    since = f"since {earlier['inspected']}"
    return [f"{since}: {line}" for line in lines] or [f"{since}: nothing changed"]


def _numbers(old: Facts, new: Facts) -> list[tuple[str, int, int]]:
    """The counts that two inspections have in common, as (name, old value, new value)."""
    pairs = [("rows", old["rows"], new["rows"])]
    if old["people"] and new["people"]:
        words = {"people": "people", "unnamed": "rows without a person", "over": "people over the bounds"}
        pairs += [(text, old["people"][key], new["people"][key]) for key, text in words.items()]
    if old.get("impossible") is not None and new["impossible"] is not None:
        pairs.append(("rows in no possible cell", old["impossible"], new["impossible"]))
    for name in (name for name in new["columns"] if name in old["columns"]):
        words = {"inside": "in domain", "null": "NULL", "outside": "outside"}
        both = old["columns"][name], new["columns"][name]
        pairs += [(f"{_plain(name)}, {text}", both[0][key], both[1][key]) for key, text in words.items()]
    return pairs


def _facts(inspection: Inspection) -> dict[str, Any]:
    people = inspection.people
    return {
        "rows": inspection.rows,
        "people": None if people is None else {"people": people.people, "unnamed": people.unnamed, "over": people.over},
        "columns": {
            each.name: {
                "declared": each.declared,
                "held": each.held,
                "inside": each.inside,
                "null": each.null,
                "outside": each.outside,
            }
            for each in inspection.columns
        },
        "undeclared": list(inspection.undeclared),
        "impossible": inspection.impossible,
    }


def _check(facts: Facts) -> None:
    """Raise ValueError, KeyError or TypeError if `facts` is not the record of an inspection."""
    datetime.datetime.fromisoformat(facts["inspected"])
    numbers = [facts["rows"], *(facts["people"] or {"people": 0, "unnamed": 0, "over": 0}).values()]
    numbers.append(facts.get("impossible") or 0)
    if facts["people"]:
        numbers += [facts["people"][key] for key in ("people", "unnamed", "over")]
    for column in facts["columns"].values():
        numbers += [column[key] for key in ("inside", "null", "outside")]
    texts = [
        *facts["undeclared"],
        *(column[key] for column in facts["columns"].values() for key in ("declared", "held")),
    ]
    if not all(type(number) is int for number in numbers) or not all(isinstance(text, str) for text in texts):
        raise ValueError("the values of a record have other types")


def _plain(name: str) -> str:
    return name if name.isprintable() else ascii(name)
