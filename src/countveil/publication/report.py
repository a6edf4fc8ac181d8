"""A page for people about an edition: what it contains, how accurate it is, and where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from countveil.publication.edition import PublishedMargin, PublishedTable


def write_report(
    manifest: Mapping[str, Any], tables: Sequence[PublishedTable], margins: Sequence[PublishedMargin]
) -> str:
    """The page of an edition as one HTML file that loads nothing."""
    return f"<!doctype html><title>{escape(manifest['name'])}</title>"
