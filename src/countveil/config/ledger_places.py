"""Which ledgers were used with the configurations of a folder: their places, in a small file beside them.

A new ledger knows nothing of what was answered before, so in place of another one it would give that one's budget back.
The file is private. It is a memory aid of one folder, not a proof: whoever removes it, or cannot write to the folder,
is not reminded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from countveil.files.durable_files import replace_private

MEMORY = "countveil.used-ledgers"


def read_places(folder: Path) -> list[str]:
    """The places of the ledgers that were used; if the file cannot be read, its own name, because there was one."""
    try:
        places = json.loads((folder / MEMORY).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError):
        return [MEMORY]
    return [str(place) for place in places] if isinstance(places, list) else [MEMORY]


def remember_place(folder: Path, places: Sequence[str]) -> None:
    """Replace the remembered places. A folder that cannot be written remembers nothing."""
    with suppress(OSError):
        replace_private(folder / MEMORY, json.dumps(places, indent=1).encode())


def describe_place(folder: Path, ledger: Path) -> str:
    """The place of a ledger's file: relative to the folder if it is inside."""
    file = ledger.resolve()
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)
