"""`countveil ptable`: audit, design and write p-tables, the tables of the cell-key method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from countveil.cli.output import (
    JSON,
    Group,
    clip,
    make_table,
    plot_option,
    print_json,
    print_notes,
    print_rich,
    show_spinner,
)

if TYPE_CHECKING:
    from countveil.ptables import Audit, PTable

READING_WORDS = {
    "designed": "all rows as they are",
    "zero_frozen": "zero frozen, as applied",
    "from_n0": "counts >= {n0}",
    "last_row": "last row",
}
FORMAT_HELP = "tau-argus, sas, cellkey or ons"
SHOWN_ROWS = 12


@click.group(cls=Group, short_help="Audit, design and write p-tables of the cell-key method.")
def ptable() -> None:
    """Audit, design and write p-tables, the tables of the cell-key method.

    \b
    Examples:
      countveil ptable audit ptable.txt --epsilon 1
      countveil ptable design --against ptable.txt --epsilon 1 -o better.txt
      countveil ptable export mechanism.json --format cellkey -o ptable.yaml
    """


@ptable.command(short_help="Compute the exact delta of a p-table.")
@click.argument("file")
@click.option(
    "--epsilon",
    "epsilons",
    multiple=True,
    metavar="E",
    help="Compute delta at this epsilon (may repeat; default: 0.5, 1, 2).",
)
@click.option(
    "--from", "n0", default="1", show_default=True, metavar="N", help="n0 of the third reading, counts >= n0."
)
@click.option("--format", "format_", metavar="F", help=f"{FORMAT_HELP} (default: detected from the content).")
@click.option("--rows", "all_rows", is_flag=True, help="Show every row, not only the first and the last.")
@plot_option("Draw the audit to this file (.svg, .png or .html).", "OUT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the whole curve.")
def audit(
    file: str,
    epsilons: tuple[str, ...],
    n0: str,
    format_: str | None,
    all_rows: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Compute the exact delta(epsilon) of the p-table in FILE, and describe each row.

    Delta is stated in four readings: all rows as they are; row 0 replaced by 0 -> 0, as all tools that apply p-tables
    do; counts >= n0 only; and the last row alone, which all larger counts use. Each holds for one person more or
    less in one published cell.

    \b
    Examples:
      countveil ptable audit ptable.txt
      countveil ptable audit ptable.txt --epsilon 0.5 --epsilon 1 --json
      countveil ptable audit ptable.csv --format ons --plot ptable.html
    """
    from countveil.numeric.exact_numbers import integer
    from countveil.ptables import audit as library_audit
    from countveil.ptables.audit import BREAKS, EPSILONS, meaning
    from countveil.ptables.formats import read
    from countveil.ptables.lines import LARGEST_COUNT

    with show_spinner("measuring"):
        table, fmt = read(file, format_)
        start = integer("from", n0, 0, LARGEST_COUNT)
        measured = library_audit(table, epsilons=epsilons or EPSILONS, n0=start, curve=as_json or plot is not None)
    if plot is not None:
        from countveil.plots.chart_files import save
        from countveil.plots.ptable import ptable_chart

        with show_spinner("drawing"):
            save(ptable_chart(measured, file.replace("\\", "/").rsplit("/", 1)[-1]), plot)
        click.echo(f"plots saved to {plot}", err=True)
    described = measured.describe()
    if as_json:
        words = {"meaning": meaning(measured), "limits": list(BREAKS)}
        print_json({"schema_version": 1, "file": file, "format": fmt.NAME, **described, **words})
        return
    last = f"last row {table.last}" if table.repeat == 1 else f"rows up to {table.last}, the last {table.repeat} repeat"
    click.echo(f"{fmt.WORDS}: D {table.D}, {last}" + (f", {table.keys} keys" if table.keys else ""))
    _print_readings([("", measured)])
    _print_rows(described["rows"], all_rows)
    _print_notes("What this means", [*meaning(measured), *table.notes])
    _print_notes("What it rests on", BREAKS)


@ptable.command(short_help="Design the p-table of least delta at one epsilon.")
@click.option("-D", "--D", "D", metavar="N", help="Noise bound: |j - i| <= D.")
@click.option("--V", "--max-variance", "V", metavar="V", help="The largest variance of a row.")
@click.option("--pstay", "--eta", "pstay", metavar="P", help="Probability that a count stays as it is (default: free).")
@click.option("--js", metavar="N", help="Never publish 1..js (default: 0, or as in --against).")
@click.option("--epsilon", default="1", show_default=True, metavar="E", help="Minimise delta at this epsilon.")
@click.option("--freeze-zero/--no-freeze-zero", default=True, show_default=True, help="Always publish 0 as 0.")
@click.option("--unbiased-from", default="1", show_default=True, metavar="N0", help="Zero bias from this count on.")
@click.option("--unimodal", is_flag=True, help="In every row, probabilities never decrease towards the true count.")
@click.option(
    "--objective",
    default="delta",
    show_default=True,
    help="delta: the least delta. entropy: as R's ptable (largest entropy, variance V).",
)
@click.option("--against", metavar="FILE", help="An existing p-table to improve on; supplies D, V and js if not given.")
@click.option("--format", default="tau-argus", show_default=True, metavar="F", help=f"{FORMAT_HELP}.")
@click.option("--keys", metavar="K", help="With --format ons: the number of cell keys, 256 or 4096 (default).")
@click.option("-o", "--output", metavar="FILE", help="Write the table.")
@JSON
def design(epsilon: str, against: str | None, output: str | None, as_json: bool, **asked: Any) -> None:
    """Design the p-table of least delta at one epsilon: noise at most D, variance at most V, unbiased rows.

    Every printed figure is measured on the rounded table that is written. With --against, the figures of the existing
    table are printed beside it, and where possible no reading has a larger delta than in that table.

    \b
    Examples:
      countveil ptable design --D 7 --V 4 --js 2 --epsilon 1 -o better.txt
      countveil ptable design --D 5 --V 3 --pstay 0.5 --format ons --keys 4096 -o ptable.csv
      countveil ptable design --against ptable.txt -o better.txt
      countveil ptable design --D 7 --max-variance 4 --no-freeze-zero --json
    """
    from countveil.ptables import audit as library_audit, design as library_design, read
    from countveil.ptables.formats import save

    with show_spinner("designing"):
        incumbent = None if against is None else read(against)
        designed = library_design(epsilon=epsilon, against=incumbent, **asked)
        audits = [("this table", library_audit(designed.table, epsilons=[epsilon]))]
        name = str(against).replace("\\", "/").rsplit("/", 1)[-1]
        if incumbent is not None:
            audits.append((name, library_audit(incumbent, epsilons=[epsilon])))
    if output is not None:
        save(designed.table, output, designed.format)
    if as_json:
        other = {"against": {"file": against, **audits[1][1].describe()}} if incumbent is not None else {}
        described = {**designed.describe(), **audits[0][1].describe(), "notes": list(designed.notes)}
        print_json({"schema_version": 1, "file": output, **described, **other})
        return
    rounded = f"rounded to 1/{designed.table.total}; every figure is measured on the rounded table"
    click.echo(f"{designed.format.WORDS}, {rounded}")
    _print_readings(audits)
    _print_spread("this table", designed.table)
    if incumbent is not None:
        _print_spread(name, incumbent)
    _print_rows(audits[0][1].describe()["rows"], False)
    _print_notes("Notes", designed.notes)
    if output is not None:
        click.echo(f"saved to {output}; measure it again with: countveil ptable audit {output}", err=True)


@ptable.command(short_help="Write a mechanism as a p-table.")
@click.argument("mechanism")
@click.option("--format", "format_", default="tau-argus", show_default=True, metavar="F", help=f"{FORMAT_HELP}.")
@click.option("--keys", metavar="K", help="With --format ons: the number of cell keys, 256 or 4096 (default).")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write the table.")
@JSON
def export(mechanism: str, format_: str, keys: str | None, output: str, as_json: bool) -> None:
    """Write the mechanism in the file MECHANISM as a p-table, and print the delta of the written table.

    Probabilities are rounded to eight decimals, or to multiples of 1/K with --format ons; sums stay exactly 1 and zero
    bias stays exactly zero. Delta is measured on the rounded table: with all its rows, and with 0 always published as
    0, as the tools do.

    \b
    Examples:
      countveil ptable export mechanism.json -o ptable.txt
      countveil ptable export mechanism.json --format ons --keys 4096 -o ptable.csv
    """
    from countveil.mechanism.mechanism import Mechanism
    from countveil.numeric.exact_numbers import decimal_text
    from countveil.ptables import audit as library_audit, export as library_export
    from countveil.ptables.formats import save

    with show_spinner("writing"):
        exported = library_export(Mechanism.load(mechanism), format_, keys=keys)
        measured = library_audit(exported.table, epsilons=[exported.epsilon])
        save(exported.table, output, exported.format)
    before = decimal_text(exported.delta_before, rounding="up")
    if as_json:
        head = {"schema_version": 1, "file": output, "format": exported.format.NAME, "units": exported.table.total}
        facts = {"delta_before_rounding": before, **measured.describe(), "notes": list(exported.notes)}
        print_json({**head, **facts})
        return
    click.echo(f"{exported.format.WORDS}: the mechanism has delta {clip(before, 6, 'up')}; the rounded table has")
    _print_readings([("", measured)])
    _print_notes("Notes", exported.notes)
    click.echo(f"saved to {output}; measure it again with: countveil ptable audit {output}", err=True)


def _print_readings(audits: Sequence[tuple[str, Audit]]) -> None:
    """Print delta by epsilon and reading: one p-table with its worst pairs, or several p-tables side by side."""
    table = make_table("epsilon", title="Exact delta", pad_edge=False)
    table.add_column("reading", no_wrap=True)
    for name, _ in audits:
        table.add_column(name or "delta", justify="right", min_width=9, overflow="fold")
        if len(audits) == 1:
            table.add_column("worst pair", justify="right", no_wrap=True)
    described: list[Any] = [audit.describe() for _, audit in audits]
    for epsilon in described[0]["readings"][0]["delta"]:
        for place, readings in enumerate(zip(*(each["readings"] for each in described), strict=True)):
            cells = [clip(reading["delta"][epsilon], 4, "up") for reading in readings]
            if len(audits) == 1:
                cells.append("{}, {}".format(*readings[0]["worst_pair"][epsilon]))
            words = READING_WORDS[readings[0]["reading"]].format(n0=described[0]["n0"])
            table.add_row(epsilon if not place else "", words, *cells)
    print_rich(table)


def _print_rows(rows: Any, everything: bool) -> None:
    heads = ("true count", "P(stay)", "variance", "bias", "published as")
    table = make_table(*heads, title="The rows", pad_edge=False)
    hidden = 0 if everything else max(0, len(rows) - SHOWN_ROWS)
    shown = rows if not hidden else [*rows[: SHOWN_ROWS - 1], rows[-1]]
    for place, row in enumerate(shown):
        if hidden and place == len(shown) - 1:
            table.add_row("...", "", "", "", "")
        low, high = row["support"]
        gaps = "" if row["outcomes"] == high - low + 1 else f" ({row['outcomes']} of them)"
        figures = (clip(row["stay"]), clip(row["variance"]), clip(row["bias"], 2))
        table.add_row(str(row["count"]), *figures, f"{low}..{high}{gaps}")
    print_rich(table)


def _print_spread(name: str, table: PTable) -> None:
    from countveil.numeric.exact_numbers import decimal_text

    last = table.rows[-1]
    figures = (max(row.variance for row in table.rows), last.variance, last.stay)
    largest, variance, stay = (decimal_text(figure, 4) for figure in figures)
    click.echo(
        f"{name}: D {table.D}, variance at most {largest}, in the last row {variance}; counts of the last "
        f"row stay as they are with probability {stay}"
    )


def _print_notes(title: str, notes: Sequence[str]) -> None:
    if notes:
        print_rich(title, "bold")
        print_notes(notes, "")
