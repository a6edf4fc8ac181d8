"""The labels of cells as people read them: shortened, on one line, and cut to the room that a picture has."""

from __future__ import annotations

from unicodedata import east_asian_width

from countveil.errors import shorten
from countveil.publication.edition import Columns

LONGEST = 60
"""The most characters of one label."""
JOINED = " · "


def write_labels(columns: Columns, by: tuple[str, ...], row: int) -> str:
    """The labels of a cell in the columns `by`, joined; "total" for the cell of the total, which has no labels.

    >>> write_labels({"town": ["Ash", "Elm"], "sex": ["f", "f"]}, ("town", "sex"), 1)
    'Elm · f'
    """
    return JOINED.join(_write(columns[name][row]) for name in by) or "total"


def _write(label: object) -> str:
    return shorten(str(label).lower() if isinstance(label, bool) else str(label), LONGEST)


def cut_text(words: str, width: float, size: float = 12) -> str:
    """The beginning of a text that fits into a width, or "" if less than three characters would.

    The width of a letter is estimated, rather too large than too small.

    >>> cut_text("Aldermoor", 80), cut_text("Aldermoor", 50), cut_text("Aldermoor", 20)
    ('Aldermoor', 'Alder…', '')
    """
    room, end = width, 0
    for letter in words:
        wide = east_asian_width(letter) in "WF" or letter in "mwMW@%"
        room -= size * (1.0 if wide else 0.72 if letter.isupper() else 0.6)
        if room < 0:
            break
        end += 1
    if end == len(words):
        return words
    return words[: end - 1].rstrip() + "…" if end > 3 else ""
