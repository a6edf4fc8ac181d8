"""Lists published editions of a service and downloads them; each file must have the SHA-256 in the manifest."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from countveil.client.responses import make_record
from countveil.errors import ConfigError, RequestError, ServiceError, shorten
from countveil.publication.editions import (
    EditionSummary,
    Guarantee,
    PublicationSummary,
    TableSummary,
    choose_edition,
)
from countveil.publication.folder import (
    MANIFEST,
    find_published,
    list_hashes,
    new_folder,
    read_manifest,
    read_target,
    write_file,
)
from countveil.publication.manifest import check_form
from countveil.publication.publication import Publication
from countveil.publication.verification import check_hashes


def read_publications(body: dict[str, Any]) -> list[PublicationSummary]:
    """Read the publications from a response."""
    return [
        make_record(
            PublicationSummary,
            {
                **each,
                "editions": tuple(map(_read_edition, each["editions"])),
                "unreadable": tuple(each.get("unreadable", ())),
            },
        )
        for each in body["publications"]
    ]


def _read_edition(body: dict[str, Any]) -> EditionSummary:
    if type(body["edition"]) is not int:
        raise ValueError
    tables = tuple(make_record(TableSummary, {**each, "by": tuple(each["by"])}) for each in body["tables"])
    return make_record(
        EditionSummary, {**body, "guarantee": make_record(Guarantee, body["guarantee"]), "tables": tables}
    )


def find_edition(publications: list[PublicationSummary], name: str, edition: int | None) -> int:
    """The number of an edition of a publication, by default of the newest."""
    named = {each.name: each for each in publications}
    if name not in named:
        known = shorten(", ".join(named), 100) or "none"
        raise ConfigError("publication", f"{shorten(name)} is not declared at this service; declared: {known}")
    return choose_edition(named[name], edition).edition


def download(
    fetch: Callable[[str], bytes], address: object, name: str, edition: int, output: str | Path | None
) -> Publication:
    """Download the files of an edition into the folder `output`, or a temporary one that lasts as long as the result.

    `fetch` returns the content at a path of the service at `address`. If `output` already has this edition, its files
    are checked and not downloaded again.
    """
    path = f"/v1/publications/{name}/{edition}"
    text = fetch(path)
    try:
        manifest = read_manifest(text)
        if any(check_form(manifest)) or (manifest["name"], manifest["edition"]) != (name, edition):
            raise ValueError
    except ValueError:
        raise ServiceError(
            f"{address} sent a manifest that this version of countveil cannot read; update countveil"
        ) from None
    if output is not None:
        target = read_target(output)
        known = find_published(target, manifest["receipts"])
        if known is not None:
            changed = next(check_hashes(known), None)
            if changed is not None:
                raise RequestError(f"{shorten(str(target), 200)} has this edition, but {changed}; give a new folder")
            return Publication(known)
        return _save(fetch, address, path, text, target)
    place = Path(tempfile.mkdtemp(prefix="countveil-"))
    try:
        publication = _save(fetch, address, path, text, place / f"{name}-{edition}")
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(publication, shutil.rmtree, place, ignore_errors=True)
    return publication


def _save(fetch: Callable[[str], bytes], address: object, path: str, manifest: bytes, target: Path) -> Publication:
    """Fetch all files that a manifest names into a new folder, which appears when all of them are there and correct."""
    with new_folder(target, "make room or give another folder, and ask again") as part:
        for file, stated in list_hashes(read_manifest(manifest)).items():
            content = fetch(f"{path}/{file}")
            if hashlib.sha256(content).hexdigest() != stated:
                raise ServiceError(
                    f"{address} sent {file} with another SHA-256 than the manifest states; nothing was kept; the "
                    "curator of the service can check the folder with: countveil publish verify FOLDER"
                )
            write_file(part / file, content)
        write_file(part / MANIFEST, manifest)
    return Publication.open(target)
