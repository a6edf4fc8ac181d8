"""Files of published editions, for programs and for browsers: the manifest and the files that it names, nothing else.

The service publishes nothing. It shows what the curator published into the declared folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from starlette.responses import Response, StreamingResponse

from countveil.curator.curator import Curator
from countveil.errors import ProblemKind
from countveil.publication.editions import find_editions
from countveil.publication.folder import FILE
from countveil.service.problem_json import Problem

NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,27}$"
FILE_PATTERN = f"^{FILE}$"
MOST_EDITION = 999_999
PIECE = 1 << 20
TYPES = {
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}
"""Content types by the end of a file's name; other files are sent as bytes."""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy of reports. Style and pictures are inside: nothing is loaded, no script runs."""


def send_file(curator: Curator, name: str, edition: int, file: str) -> Response:
    """A file of an edition, read while it is sent."""
    declared = curator.config.publications.get(name)
    folder = None if declared is None else find_editions(declared).get(edition)
    if folder is None:
        raise Problem(ProblemKind.NOT_FOUND, "there is no such edition of a publication; see /v1/publications")
    place = folder.find_file(file)
    try:
        opened = None if place is None else place.open("rb")
    except OSError:
        opened = None
    if opened is None:
        raise Problem(ProblemKind.NOT_FOUND, "the manifest of this edition names no such file, or the file is missing")
    ending = file.rpartition(".")[2]
    headers = {"Content-Length": str(os.fstat(opened.fileno()).st_size)}
    if ending == "html":
        headers["Content-Security-Policy"] = POLICY
    elif ending != "json":
        saved = f"{name}-{edition}-{file.rpartition('/')[2]}"
        headers["Content-Disposition"] = f'attachment; filename="{saved}"'
    return StreamingResponse(_read(opened), media_type=TYPES.get(ending, "application/octet-stream"), headers=headers)


def _read(opened: BinaryIO) -> Iterator[bytes]:
    with opened:
        while piece := opened.read(PIECE):
            yield piece
