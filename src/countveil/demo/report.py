"""Writes `report.html`: one page without scripts or network access, readable on all screens, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from countveil.display import svg
from countveil.files.durable_files import open_output
from countveil.mechanism.sum_bias import bias_of_sum

if TYPE_CHECKING:
    from countveil.curator.results import Table
    from countveil.demo import Demo, DemoQuestion

WIDTH = 600
"""The width of the pictures in pixels."""


def write_report(demo: Demo) -> None:
    """Write report.html into the folder of the demo."""
    with open_output(demo.report) as file:
        file.write(render_page(demo).encode())


def render_page(demo: Demo) -> str:
    """The HTML of the whole page, as text."""
    style = files("countveil.demo").joinpath("report.css").read_text(encoding="utf-8")
    budget, answered = demo.budget, next(asked.table for asked in demo.asked if asked.table is not None)
    facts = [
        (f"{demo.people:,}", "invented people in twelve towns"),
        (f"{budget.answers_left} of {budget.answers_total}", "answers left in the budget"),
        (f"epsilon {budget.epsilon}", f"delta {budget.delta}, all answers together"),
        (f"±{budget.margin_95}", "95 % margin of every count"),
        (f"±{answered.worst_error}", "no count is ever further from the truth"),
    ]
    body = [
        "<h1>Counts that protect the people counted</h1>",
        '<p class="soft">A synthetic census, four questions, and what each of them cost. The people are invented, so '
        "the true counts can be shown beside the released ones; with real people nobody sees them.</p>",
        '<div class="facts">'
        + "".join(f'<div class="fact"><b>{a}</b><span>{b}</span></div>' for a, b in facts)
        + "</div>",
        _budget_bar(budget.answers_total, budget.answers_left),
    ]
    body += [_question(i, asked) for i, asked in enumerate(demo.asked, start=1)]
    body += [_promise(answered)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>countveil: demo report</title>'
        f"<style>{style}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _budget_bar(total: int, left: int) -> str:
    wide, spent = WIDTH / total, total - left
    boxes = [svg.rect(i * wide + 2, 4, wide - 4, 14, "spent" if i < spent else "bar", rx=3) for i in range(total)]
    label = f"{spent} of {total} planned answers were spent"
    return f'{svg.draw(boxes, label, 22, WIDTH)}<p class="soft">{label}.</p>'


def _question(number: int, asked: DemoQuestion) -> str:
    head = f"<h2>{number}. {escape(asked.title)}</h2>"
    sql = f"<pre><code>{escape(asked.sql)}</code></pre>"
    if asked.table is None:
        tag = '<span class="tag refused">refused, nothing charged</span>'
        return f"<section>{head}{tag}{sql}<p>{escape(asked.refusal or '')}.</p></section>"
    if asked.table.replayed:
        tag = '<span class="tag free">replayed, free</span>'
        words = "It asks the same, so the recorded answer comes back, number for number. Nothing new is drawn or paid."
    else:
        tag = '<span class="tag paid">paid: one answer</span>'
        words = (
            "Every town is answered, small ones too; counts below ten margins are marked. The band is the 95 % "
            "interval, the cross the (invented) truth."
        )
    receipt, truth = asked.table.receipt, asked.table.truth
    words_of = f"receipt {receipt.id}, question {receipt.question[:12]}, data version {receipt.version}"
    words_of += "" if truth is None else f"; counts {truth.sentence}"
    paid = f'<p class="soft">{escape(words_of)}</p>'
    return f"<section>{head}{tag}{sql}<p>{words}</p>{_plot(asked)}{_table(asked)}{paid}</section>"


def _rows(asked: DemoQuestion) -> list[tuple[str, int, int, int, int]]:
    """For each cell of an answered question: (label, released count, low, high, true count)."""
    assert asked.table is not None
    rows = zip(asked.table.rows, asked.truth, strict=True)
    return [(str(label), y, low, high, n) for (label, y, low, high), n in rows]


def _table(asked: DemoQuestion) -> str:
    assert asked.table is not None
    useful = 10 * asked.table.margin_95
    lines = []
    for label, y, low, high, n in _rows(asked):
        off = f"{y - n:+d}" if y != n else "exact"
        cells = (escape(label), f"<b>{y:,}</b>", f"{low:,} to {high:,}", f"{n:,}", off)
        lines.append((' class="small"' if y < useful else "", cells))
    return _html_table(("town", "released", "95 % interval", "true (invented)", "off by"), lines)


def _html_table(heads: Sequence[str], lines: Iterable[tuple[str, Sequence[str]]]) -> str:
    """An HTML table. Each line is a pair: the HTML attributes of the row, and its cells."""
    head = "".join(f"<th>{words}</th>" for words in heads)
    body = "".join(f"<tr{row}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for row, cells in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _plot(asked: DemoQuestion) -> str:
    """A picture of every cell relative to its released count: the interval as a band, the true count as a cross."""
    rows = _rows(asked)
    reach = max(max(high - y, y - low, abs(n - y), 1) for _, y, low, high, n in rows)
    bottom, x = 26 * len(rows) + 4, svg.linear(-reach, reach, 225, 575)
    marks = [svg.line(x(0), 4, x(0), bottom, "axis")]
    for i, (label, y, low, high, n) in enumerate(rows):
        at, true = 26 * i + 16, x(n - y)
        marks += [
            svg.text(4, at + 4, label),
            svg.text(205, at + 4, f"{y:,}", "end"),
            svg.rect(x(low - y), at - 6, x(high - y) - x(low - y), 12, "band", rx=4),
            svg.circle(x(0), at, 4, "dot"),
            *(svg.line(true - 4, at + rise, true + 4, at - rise, "cross") for rise in (-4, 4)),
        ]
    for offset in (-reach, 0, reach):
        marks.append(svg.text(x(offset), bottom + 18, f"{offset:+d}" if offset else "released", "middle", "soft"))
    return svg.draw(marks, "released counts with intervals", bottom + 26, WIDTH)


def _promise(table: Table) -> str:
    m = table.mechanism
    small = [
        ("", (str(p.n), f"{float(p.exact):.3f}", f"{float(p.bias):+.3f}", f"{float(p.mse) ** 0.5:.2f}"))
        for p in m.profile()
        if p.n in (0, 1, 2, 5, 10, 20)
    ]
    words = (
        f"Every released number is a whole number, never negative, never more than {m.certificate.worst_error} from "
        f"the truth. All {table.receipt.answers} answers together are proved to be (epsilon {table.receipt.epsilon}, "
        f"delta {table.receipt.delta})-differentially private on the very integers that are sampled. "
        f"{bias_of_sum(m, table.cells).sentence} The numbers below belong to the mechanism, not to the data."
    )
    table_of = _html_table(("true count", "P(exact)", "bias", "typical error"), small)
    mark = f'<p class="soft">mechanism {m.hash[:16]}</p>'
    return f"<section><h2>What is promised</h2><p>{words}</p>{table_of}{mark}</section>"
