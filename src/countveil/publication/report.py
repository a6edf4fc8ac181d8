"""A page for people about an edition: what it contains, how accurate it is, and where it is not.

**Guarantee.** The page is one file without scripts that loads nothing; every label on it is escaped. Its size does not
grow with the number of cells: pictures and tables show samples that are chosen by rank. Equal editions have equal
pages, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.errors import shorten
from countveil.numeric.exact_numbers import decimal_text, exp_bounds
from countveil.publication.charts import choose_series, count_marks, draw_errors, draw_shares, spread_ranks
from countveil.publication.edition import QUALITY, PublishedMargin, PublishedTable
from countveil.publication.labels import write_labels
from countveil.publication.treemap import MOST, choose_chain, draw_treemap, find_areas

DESK, PHONE = (880.0, 520.0), (360.0, 560.0)
"""Width and height of the treemap on wide and on narrow screens."""
SMALL_TABLES, SMALL_CELLS = 8, 24
"""The most tables from which small cells are shown, and the most of these cells."""
MARGIN_ROWS, MARGINS_ROWS = 12, 60
"""The most rows of one margin, and of all margins together."""
NEIGHBOURS = {
    "add-remove": "If any one person is added to the data or removed",
    "replace": "If any one person's data is replaced by anything else",
}
ESTIMATES = {
    "nearest": "Counts are whole numbers and never negative, and all tables add up.",
    "unbiased": "Counts are whole numbers, right on average, and can be negative; all tables add up.",
}
QUALITIES = {**{mark: f"up to {100 * limit:.0f} %" for mark, limit in QUALITY}, "D": "above"}
GAPS = {
    "nearest": "It is larger where many cells are truly empty, because no count is below 0: the gap estimates by how "
    "much.",
    "unbiased": "It is right on average too; the gap comes from rounding alone.",
}


def write_report(
    manifest: Mapping[str, Any], tables: Sequence[PublishedTable], margins: Sequence[PublishedMargin]
) -> str:
    """The page of an edition as one HTML file that loads nothing."""
    style = files("countveil.publication").joinpath("report.css").read_text(encoding="utf-8")
    name = _text(manifest["name"])
    body = [
        _write_head(manifest, tables),
        _write_guarantee(manifest),
        _write_tables(manifest),
        _write_treemap(tables),
        _write_errors(tables),
        _write_quality(manifest, tables),
        _write_small_cells(tables),
        _write_margins(manifest, margins),
        _write_verification(manifest),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>'
        f"<style>{style}</style></head><body>\n{''.join(body)}</body></html>\n"
    )


def _write_head(manifest: Mapping[str, Any], tables: Sequence[PublishedTable]) -> str:
    guarantee, cells = manifest["guarantee"], sum(map(len, tables))
    finest = max(tables, key=len)
    margins = [table.margin_published for table in tables]
    spread = f"±{min(margins):,}" if min(margins) == max(margins) else f"±{min(margins):,} to ±{max(margins):,}"
    facts = [
        (f"{cells:,}", f"published counts in {_count(len(tables), 'table')}"),
        (f"{int(tables[0].columns['count'][0]):,}", f"{manifest['truth']['counted']} in total"),
        (spread, "95 % margin, by table"),
        (f"epsilon {guarantee['epsilon']}", f"delta {guarantee['delta']}, everything together"),
    ]
    shown = "".join(f'<div class="fact"><b>{_text(a)}</b><span>{_text(b)}</span></div>' for a, b in facts)
    data = f"<b>{_text(manifest['dataset'])}</b>, version {manifest['data_version']} of the data"
    return (
        f"<h1>{_text(manifest['name'])}</h1>"
        f'<p class="quiet">Edition {manifest["edition"]}, {_text(manifest["time"][:10])}: {data}</p>'
        f"<p>Counts down to {_name(finest)}, protected by noise. {ESTIMATES[manifest['estimate']]} "
        "Every count has an interval that contains the true one with probability 95 %, and bounds that always do."
        f'</p><div class="facts">{shown}</div>'
    )


def _write_guarantee(manifest: Mapping[str, Any]) -> str:
    guarantee, truth = manifest["guarantee"], manifest["truth"]
    epsilon, delta = guarantee["epsilon"], guarantee["delta"]
    person = "every row is one person" if truth["unit"] == "row" else f"all rows with the same {truth['unit']}"
    terms = [
        ("In figures", f"epsilon = {epsilon}, delta = {delta}"),
        ("A person is", person),
        ("It covers", f"{guarantee['covers']}: {guarantee['answers']} answers of pool {guarantee['pool']}"),
        ("Counted", truth["text"]),
        ("Intervals", f"{truth['interval']}; {manifest['intervals']}"),
    ]
    shown = "".join(f"<dt>{term}</dt><dd>{_text(words)}</dd>" for term, words in terms)
    return (
        f'<section class="guarantee"><h2>What is guaranteed</h2><p>{_explain(guarantee)}</p><dl>{shown}</dl></section>'
    )


def _explain(guarantee: Mapping[str, Any]) -> str:
    """The guarantee as a sentence; the factor e^epsilon is rounded up."""
    if guarantee["epsilon"].startswith("unknown"):
        return "A part of the record of what was answered was lost, so no number is stated for all answers together."
    factor = decimal_text(exp_bounds(Fraction(guarantee["epsilon"]))[1], 3, "up")
    return (
        f"What these tables tell about a person is bounded. {NEIGHBOURS[guarantee['neighbours']]}, the probability of "
        f"any result grows at most by a factor of {factor}, plus {_text(guarantee['delta'])}: whoever that person is, "
        "whatever is known about everybody else, and for all numbers together."
    )


def _write_tables(manifest: Mapping[str, Any]) -> str:
    rows = []
    for entry in manifest["tables"]:
        law = entry["law"]
        rows.append((
            f'<a href="{escape(entry["file"])}">{_name(entry)}</a>',
            f"{entry['rows']:,}",
            "–" if law is None else f"±{law['margin_95']:,}",
            f"±{entry['margin_published']:,}",
            "" if law is None else f"{law['D']:,}",
        ))  # fmt: skip
    heads = ("table", "cells", "measured", "published", "noise at most")
    return (
        "<section><h2>The tables</h2><p>Tables were measured with noise of their own (– if not), and the measurements "
        "were combined, so published counts can be more accurate than their measurement. Margins are for 95 %; the "
        "published one is the widest of its table.</p>"
        f"{_write_table(heads, rows)}</section>"
    )


def _write_treemap(tables: Sequence[PublishedTable]) -> str:
    chain = choose_chain(tables)
    areas = find_areas(chain)
    if not any(area.count > 0 for area in areas):
        return ""
    names = " and ".join(f"<b>{_name(table)}</b>" for table in chain)
    noun = "Table" if len(chain) == 1 else "Tables"
    cut = f" The {MOST} largest cells are shown." if len(chain[0]) > MOST else ""
    marks = "".join(f"<li>{_mark(mark)} {words}</li>" for mark, words in QUALITIES.items())
    return (
        f"<section><h2>Where the counts are</h2><p>{noun} {names}: areas are published counts, and colours say how "
        f"accurate they are relative to their size.{cut}</p>"
        f'<div class="map desk">{draw_treemap(areas, *DESK)}</div>'
        f'<div class="map phone">{draw_treemap(areas, *PHONE)}</div><ul class="key">{marks}</ul></section>'
    )


def _write_errors(tables: Sequence[PublishedTable]) -> str:
    series = choose_series(tables)
    dot = '<svg viewBox="0 0 12 12"><path class="dots s{}" d="M6 6h0"/></svg>'
    key = "".join(f"<li>{dot.format(i)}{_name(table)}</li>" for i, table in enumerate(series))
    cut = " The largest tables are shown." if len(series) < len(tables) else ""
    return (
        "<section><h2>How accurate a count is, by its size</h2><p>Half the width of the 95 % interval, for cells of "
        "all sizes. Noise does not grow with the count, so large counts are accurate in percent and small ones are "
        f"not. Dashed: the limits of the quality marks.{cut}</p>"
        f'<div class="chart">{draw_errors(series)}<ul class="key">{key}</ul></div></section>'
    )


def _write_quality(manifest: Mapping[str, Any], tables: Sequence[PublishedTable]) -> str:
    rows, bars = [], []
    for table in tables:
        marks = count_marks(table)
        bars.append(draw_shares(marks))
        rows.append((_name(table), bars[-1], *(f"{number:,}" for number in marks.values())))
    heads = ("table", "", *map(_mark, QUALITIES))
    return (
        f"<section><h2>Quality marks</h2><p>Every cell has a mark by a rule: {_text(manifest['quality'])}. "
        "A mark says how much of the count the noise can hide; it depends on published numbers alone.</p>"
        f"{_write_table(heads, rows, bar=1)}</section>"
    )


def _write_small_cells(tables: Sequence[PublishedTable]) -> str:
    weak = {table.name: _find_weakest(table) for table in tables if table.coarser is not None}
    chosen = sorted((name for name in weak if len(weak[name])), key=lambda name: -len(weak[name]))[:SMALL_TABLES]
    rows: list[tuple[str, ...]] = []
    for table in tables:
        if table.name not in chosen:
            continue
        numbers, own = table.columns, weak[table.name]
        rows.append((_name(table),))
        for rank in spread_ranks(len(own), SMALL_CELLS // len(chosen)):
            row = int(own[rank])
            count, low, high = (int(numbers[name][row]) for name in ("count", "low", "high"))
            label, mark = _text(write_labels(numbers, table.by, row)), _mark(str(numbers["quality"][row]))
            rows.append((label, f"{count:,}", f"{low:,} to {high:,}", mark))
    if not rows:
        return ""
    return (
        "<section><h2>Small areas</h2><p>Small counts are published too, with their noise. These are cells with "
        "the weakest mark of each table, evenly chosen from the smallest to the largest.</p>"
        f"{_write_table(('cell', 'count', '95 % interval', 'quality'), rows)}</section>"
    )


def _find_weakest(table: PublishedTable) -> NDArray[np.int64]:
    """The rows of a table with its weakest mark, from the smallest count to the largest; none if all are marked A."""
    weakest = max(mark for mark, number in count_marks(table).items() if number)
    rows = np.flatnonzero((table.columns["quality"] == weakest) & (weakest != "A"))
    return rows[np.argsort(table.columns["count"][rows], kind="stable")]


def _write_margins(manifest: Mapping[str, Any], margins: Sequence[PublishedMargin]) -> str:
    if not margins:
        return ""
    most = max(2, min(MARGIN_ROWS, MARGINS_ROWS // len(margins)))
    parts = []
    for margin, entry in zip(margins, manifest["margins"], strict=True):
        numbers = margin.columns
        rows = np.argsort(-numbers["estimate"], kind="stable")[:most] if entry["rows"] > most else range(entry["rows"])
        shown = []
        for row in map(int, rows):
            estimate, low, high, cells, gap = (
                int(numbers[name][row]) for name in ("estimate", "low", "high", "sum_of_cells", "gap")
            )
            label = _text(write_labels(numbers, margin.by, row))
            shown.append((label, f"{estimate:,}", f"{low:,} to {high:,}", f"{cells:,}", f"{gap:+,}" if gap else "0"))
        cut = f", the {most} largest of {entry['rows']:,}" if entry["rows"] > most else ""
        heads = (_text(" · ".join(margin.by)), "estimate", "95 % interval", "sum", "gap")
        link = f'<a href="{escape(entry["file"])}">{_name(margin)}</a>'
        parts.append(f"<h3>{link}{cut}</h3>{_write_table(heads, shown)}")
    return (
        "<section><h2>Sums across the tables</h2><p>These sums are no table of the publication. The estimate is right "
        f"on average. The sum is that of published cells. {GAPS[manifest['estimate']]}</p>{''.join(parts)}</section>"
    )


def _write_verification(manifest: Mapping[str, Any]) -> str:
    receipts = ", ".join(f"<code>{_text(each)}</code>" for each in manifest["receipts"])
    return (
        "<section><h2>Check it yourself</h2><p>This command checks from the files alone that nothing was changed, that "
        "the laws of the noise are as stated, and that all tables add up and are within their bounds:</p>"
        "<pre><code>countveil publish verify FOLDER</code></pre>"
        "<p>What it cannot check is who made the files, and the draw: that the noise came from these laws. Compare the "
        "SHA-256 of <code>manifest.json</code>, which it prints, with the one that the publisher states: the manifest "
        "has the SHA-256 of every other file. <code>laws/</code> has the exact probabilities of the noise.</p>"
        f'<p class="quiet">Receipts: {receipts}. Layout <code>{_text(manifest["digest"][:16])}</code>. '
        f"Made with {_text(manifest['made_with'])}.</p></section>\n"
    )


def _write_table(heads: Sequence[str], rows: Iterable[Sequence[str]], bar: int | None = None) -> str:
    """An HTML table of cells that are HTML already. A row of one cell is a heading; column `bar` has pictures."""
    head = "".join(f"<th>{words}</th>" for words in heads)
    body = "".join(
        f"<tr>{''.join(_write_cells(cells, bar))}</tr>"
        if len(cells) > 1
        else f'<tr><th class="part" colspan="{len(heads)}">{cells[0]}</th></tr>'
        for cells in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _write_cells(cells: Sequence[str], bar: int | None) -> Iterator[str]:
    for i, cell in enumerate(cells):
        yield f'<td class="bar">{cell}</td>' if i == bar else f"<td>{cell}</td>"


def _mark(mark: str) -> str:
    return f'<span class="mark m{mark}">{mark}</span>'


def _text(words: object) -> str:
    """Any text, escaped, on one line and not too long."""
    return escape(shorten(str(words), 200))


def _name(table: PublishedTable | PublishedMargin | Mapping[str, Any]) -> str:
    """The name of a table as HTML, in which a browser may break the line after every *."""
    name = table["name"] if isinstance(table, Mapping) else table.name
    return _text(name).replace("*", "*<wbr>")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
