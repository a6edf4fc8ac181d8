"""`countveil demo`: a first look. Design a mechanism, prove it, release a few counts."""

from __future__ import annotations

import click

from countveil.cli.output import busy, print_json, print_mechanism

TOWNS = (("Ash Hollow", 0), ("Brook", 3), ("Cairn", 17), ("Dunmore", 92), ("Elmstead", 1204), ("Fairhaven", 48310))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(as_json: bool) -> None:
    """Design a mechanism for epsilon 1, delta 1e-6 and release the (invented) counts of six towns.

    \b
    Example:
      countveil demo
    """
    from countveil.design import design

    with busy("designing a mechanism for epsilon 1, delta 1e-6"):
        mechanism = design(epsilon="1", delta="1e-6")
    released = {town: mechanism.release(n) for town, n in TOWNS}
    if as_json:
        print_json({"schema_version": 1, "mechanism": mechanism.describe(), "released": released})
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print("[bold]A mechanism for epsilon 1, delta 1e-6[/bold]  (countveil design --epsilon 1 --delta 1e-6)\n")
    print_mechanism(mechanism.describe())
    margin = mechanism.certificate.margin_95
    table = Table(
        box=box.SIMPLE_HEAD, title="People over 65 in six invented towns", title_justify="left", title_style="bold"
    )
    for head in ("town", "true (kept)", "released", "95 % margin", "certainly in"):
        table.add_column(head, justify="left" if head == "town" else "right")
    for town, n in TOWNS:
        y = released[town]
        sure = f"{max(0, y - mechanism.D)}..{y + mechanism.D}"
        table.add_row(town, str(n), str(y), f"±{margin}", sure)
    console.print()
    console.print(table)
    console.print("Run it again: the released column changes, the guarantee does not.", style="dim")
