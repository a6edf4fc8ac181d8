"""Every way to write the same table gives the same law; what is written is read back."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from countveil import ptables
from countveil.ptables import formats
from countveil.ptables.table import PTable, Row

ROWS = (
    Row.of({0: 100}, 100),
    Row.of({-1: 40, 0: 40, 1: 10, 3: 10}, 100),
    Row.of({-2: 5, -1: 20, 0: 50, 1: 20, 2: 5}, 100),
)
PLAIN = """i;j;p;v;p_int_ub
0;0;1;0;1
1;0;0.4;-1;0.4
1;1;0.4;0;0.8
1;2;0.1;1;0.9
1;4;0.1;3;1
2;0;0.05;-2;0.05
2;1;0.2;-1;0.25
2;2;0.5;0;0.75
2;3;0.2;1;0.95
2;4;0.05;2;1
"""
SHUFFLED = """i;j;p;v;p_int_ub
0;0;0.25;0;0.25
0;0;0.75;0;1
1;4;0.05;3;0.05
1;0;0.3;-1;0.35
1;1;0.4;0;0.75
1;4;0.05;3;0.8
1;2;0.1;1;0.9
1;0;0.1;-1;1
2;2;0.5;0;0.5
2;4;0.05;2;0.55
2;0;0.05;-2;0.6
2;3;0.2;1;0.8
2;1;0.2;-1;1
"""
QUOTED = PLAIN.replace("i;j;p;v;p_int_ub", '"i";"j";"p";"v";"p_ij_ub"')
PADDED = "\n".join("; ".join(f"  {field} " for field in line.split(";")) for line in PLAIN.splitlines())
COMMAS = PLAIN.replace(";", ",")
TABS = PLAIN.replace(";", "\t")
DECIMAL_COMMAS = PLAIN.replace(".", ",")
SCIENTIFIC = PLAIN.replace("0.05", "5.00E-02").replace(";1\n", ";1.00e+00\n").replace("0.4;", "4e-1;")
SAS = """i;j;p;v;p_int_lb;p_int_ub
0;0;1;0;0;1
1;0;0.4;-1;0;0.4
1;1;0.4;0;0.4;0.8
1;2;0.1;1;0.8;0.9
1;4;0.1;3;0.9;1
2;0;0.05;-2;0;0.05
2;1;0.2;-1;0.05;0.25
2;2;0.5;0;0.25;0.75
2;3;0.2;1;0.75;0.95
2;4;0.05;2;0.95;1
"""
FLOW = """params:
  ptable:
    i: [0, 1, 1, 1, 1,
        2, 2, 2, 2, 2]  # true counts
    j: [0, 0, 1, 2, 4, 0, 1, 2, 3, 4]
    p: [1.0, 0.4, 0.4, 0.1, 0.1, 0.05, 0.2, 0.5, 0.2, 0.05]
    v: [0, -1, 0, 1, 3, -2, -1, 0, 1, 2]
    lb: [0.0, 0.0, 0.4, 0.8, 0.9, 0.0, 0.05, 0.25, 0.75, 0.95]
    ub: [1.0, 0.4, 0.8, 0.9, 1.0, 0.05, 0.25, 0.75, 0.95, 1.0]
    type: [all, all, all, all, all, all, all, all, all, all]
type: cnts
version: 1.0.2
ptype: params_cnts
"""
BLOCK = (
    "---\n# as R writes it\ntype: cnts\nparams:\n  ptable:\n"
    + "".join(
        f"    {name}:\n" + "".join(f"    - {item}\n" for item in items.split())
        for name, items in (
            ("i", "0 1 1 1 1 2 2 2 2 2"),
            ("j", "0 0 1 2 4 0 1 2 3 4"),
            ("ub", "1.0 0.4 0.8 0.9 1.0 0.05 0.25 0.75 0.95 1.0"),
        )
    )
    + "  pstay: 0.5\nversion: '1.0.2'\n"
)
SAME = {
    "plain": (PLAIN, "tau-argus"),
    "shuffled": (SHUFFLED, "tau-argus"),
    "quoted header": (QUOTED, "tau-argus"),
    "padded": (PADDED, "tau-argus"),
    "commas": (COMMAS, "tau-argus"),
    "tabs": (TABS, "tau-argus"),
    "decimal commas": (DECIMAL_COMMAS, "tau-argus"),
    "scientific": (SCIENTIFIC, "tau-argus"),
    "windows": (PLAIN.replace("\n", "\r\n"), "tau-argus"),
    "mark and no end": ("\ufeff" + PLAIN.rstrip(), "tau-argus"),
    "blank lines at the end": (PLAIN + "\n  \n", "tau-argus"),
    "sas": (SAS, "sas"),
    "cellkey": (FLOW, "cellkey"),
    "cellkey in blocks": (BLOCK, "cellkey"),
}


@pytest.mark.parametrize("name", SAME)
def test_a_table_is_read_alike_from_every_format(name: str, tmp_path: Path) -> None:
    text, kind = SAME[name]
    path = tmp_path / "table"
    path.write_bytes(text.encode())
    table, fmt = formats.read(path)
    assert kind == fmt.NAME
    assert [[Fraction(w, row.total) for w in row.weights] for row in table.rows] == [
        [Fraction(w, 100) for w in row.weights] for row in ROWS
    ]
    assert [row.least for row in table.rows] == [row.least for row in ROWS]
    assert table.repeat == 1
    assert not table.notes


def test_yaml_numbers_are_read_as_exact_decimals(tmp_path: Path) -> None:
    """No float comes between the file and the law."""
    path = tmp_path / "table.yaml"
    third = "0.3333333333333333333333333333333333333333"
    path.write_text(f"params:\n  ptable: {{i: [0, 1, 1], j: [0, 0, '2'], ub: [1, {third}, 1.0]}}\n")
    assert ptables.read(path).rows[1].weight(-1) == int(third[2:])


def test_without_pyyaml_only_cellkey_files_are_refused(tmp_path: Path) -> None:
    """The command ends with exit code 6 and says what to install; other formats need no PyYAML."""
    (tmp_path / "yaml.py").write_text("raise ImportError('not here')\n")
    (tmp_path / "t.yaml").write_text(FLOW)
    (tmp_path / "t.txt").write_text(PLAIN)
    for name, code in (("t.yaml", 6), ("t.txt", 0)):
        words = [sys.executable, "-m", "countveil", "ptable", "audit", name]
        where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=where)
        assert done.returncode == code, done.stderr
        if code:
            missing = 'PyYAML, which reads cellKey files, is not installed; run: pip install "countveil[ptables]"'
            assert done.stderr == f"countveil: {missing}\n"


def test_bounds_of_intervals_take_precedence_over_the_printed_probability(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(PLAIN.replace("1;1;0.4;", "1;1;0.39999;"))
    table = ptables.read(path)
    assert table.rows[1].stay == Fraction(2, 5)
    assert "the bounds are used" in table.notes[0]


@pytest.mark.parametrize("kind", ["tau-argus", "sas", "cellkey"])
def test_a_written_table_is_read_back_unchanged(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    ptables.save(PTable(ROWS), path, kind)
    table, fmt = formats.read(path)
    assert kind == fmt.NAME
    assert table.rows == ROWS
    text = path.read_text()
    assert "e-" not in text.lower()


def integer_keys(keys: int = 4) -> str:
    """The lines of a table with the noise -1, 0, ..., 0, 1 for every count but 7, which has no noise."""
    noise = [-1, *[0] * (keys - 2), 1]
    rows = [f"{i},{k},{0 if i == 7 else v}" for i in range(1, 751) for k, v in enumerate(noise)]
    return '"pcv","ckey","pvalue"\n' + "\n".join(rows) + "\n"


def test_with_integer_keys_counts_above_750_reuse_the_last_250_rows(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text(integer_keys())
    table, fmt = formats.read(path)
    assert (fmt.NAME, table.keys, table.total, table.last, table.repeat) == ("ons", 4, 4, 750, 250)
    assert table.is_zero_frozen
    assert table.rows[1] == Row(-1, (1, 2, 1), 4)
    assert table.rows[7] == Row(0, (4,), 4)
    assert table.row(751) == table.rows[501]
    assert table.row(1000) == table.rows[750]
    assert table.row(1001) == table.rows[501]


def test_missing_pairs_mean_no_noise_and_the_order_of_lines_does_not_matter(tmp_path: Path) -> None:
    header, *lines = integer_keys().splitlines()
    kept = [line for line in lines if line != "3,1,0"]
    path = tmp_path / "keys.csv"
    path.write_text("\n".join([header.replace(",", ";"), *(line.replace(",", ";") for line in reversed(kept))]))
    table = ptables.read(path)
    assert table.rows[3] == Row(-1, (1, 2, 1), 4)
    assert "1 of 3000 pairs" in table.notes[0]


def test_columns_of_integer_keys_are_found_by_name(tmp_path: Path) -> None:
    header, *lines = integer_keys().splitlines()
    turned = [",".join(line.split(",")[k] for k in (2, 0, 1)) for line in lines]
    path = tmp_path / "keys.csv"
    path.write_text("pvalue,PCV,ckey\n" + "\n".join(turned))
    assert header == '"pcv","ckey","pvalue"'
    assert ptables.read(path).rows[1] == Row(-1, (1, 2, 1), 4)


def test_a_given_format_is_not_detected_again(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text(PLAIN)
    assert ptables.read(path, "tau-argus").last == 2
    with pytest.raises(ptables.PTableError, match="6: i;j;p;v;p_lb;p_ub"):
        ptables.read(path, "sas")
