"""Broken files: one line that names the file, the line and what is wrong, quickly and in little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import yaml

from countveil import ptables
from countveil.ptables.lines import LARGEST_LINES
from tests.support.effort import within

HEAD = "i;j;p;v;p_ub\n"
GOOD = "0;0;1;0;1\n1;0;0.5;-1;0.5\n1;2;0.5;1;1\n"
YAML = "params:\n  ptable:\n    i: [0, 1]\n    j: [0, 1]\n    ub: [1, 1]\n"
KEYS = "pcv,ckey,pvalue\n"

BROKEN: dict[str, tuple[str | bytes, int | None, str]] = {
    "gap in i": (HEAD + GOOD + "3;3;1;0;1\n", 5, "no gaps"),
    "first row": (HEAD + "1;1;1;0;1\n", 2, "start at i = 0"),
    "row torn apart": (HEAD + GOOD + "0;0;1;0;1\n", 5, "must be consecutive"),
    "last bound": (HEAD + "0;0;1;0;1\n1;1;0.99999999;0;0.99999999\n2;2;1;0;1\n", 3, "not exactly 1"),
    "last bound at the end": (HEAD + "0;0;0.9;0;0.9\n", 2, "not exactly 1"),
    "negative j": (HEAD + "0;0;1;0;1\n1;-1;1;-2;1\n", 3, "negative"),
    "mass off": (HEAD + "0;0;1;0;1\n1;0;0.4;-1;0.5\n1;2;0.5;1;1\n", 3, "the bounds give 0.5"),
    "v off": (HEAD + "0;0;1;5;1\n", 2, "j - i is 0"),
    "non-numeric": (HEAD + "0;0;1;0;1\n1;x;1;0;1\n", 3, "not a whole number"),
    "non-numeric bound": (HEAD + "0;0;1;0;one\n", 2, "not a number"),
    "not finite": (HEAD + "0;0;1;0;nan\n", 2, "not a number"),
    "above 1": (HEAD + "0;0;1;0;1e400\n", 2, "not a probability"),
    "thousands of digits": (HEAD + f"0;0;1;0;0.{'3' * 6000}\n", 2, "not a number"),
    "too fine": (HEAD + "0;0;1;0;1e-300\n", 2, "more than 40 decimals"),
    "falling bounds": (HEAD + "0;0;1;0;1\n1;0;0.5;-1;0.5\n1;2;0;1;0.4\n", 4, "below the previous bound"),
    "no header": (GOOD, 1, "the header is missing"),
    "header only": (HEAD, None, "no rows"),
    "few fields": (HEAD + "0;0;1;0\n", 2, "4 fields"),
    "blank line": (HEAD + "0;0;1;0;1\n\n1;1;1;0;1\n", 3, "a blank line"),
    "empty": ("", None, "empty"),
    "binary": (b"\x89PNG\r\n\x1a\n\x00\xff", 1, "not a UTF-8 text"),
    "other text": ("Dear office,\nwhere is the table?\n", 1, "not a p-table"),
    "json": ('{"params": 1}', 1, "not a p-table"),
    "wide rows": (
        HEAD + "".join(f"{i};0;0.5;-{i};0.5\n{i};999999;0.5;{999999 - i};1\n" for i in range(300)),
        5,
        "span",
    ),
    "sas lower bound": ("i;j;p;v;lb;ub\n0;0;1;0;0;1\n1;0;1;-1;0.5;1\n", 3, "lower bound"),
    "yaml gap": (YAML.replace("i: [0, 1]", "i: [0, 2]"), 3, "no gaps (item 2 of the lists)"),
    "yaml last bound": (YAML.replace("ub: [1, 1]", "ub: [1, 0.5]"), 5, "not exactly 1"),
    "yaml negative": (YAML.replace("j: [0, 1]", "j: [0, -1]"), 4, "negative"),
    "yaml uneven": (YAML.replace("j: [0, 1]", "j: [0]"), 4, "has 1 items"),
    "yaml open": ("params:\n  ptable:\n    i: [0, 1\n", 3, "not closed"),
    "yaml comma": (YAML.replace("i: [0, 1]", "i: [0\n      1]"), 4, "comma is missing"),
    "yaml nested": (YAML.replace("i: [0, 1]", "i: [0, [1]]"), 3, "list inside a list"),
    "yaml twice": (YAML + "    i: [0, 1]\n", 6, "occurs twice"),
    "yaml missing": (YAML.replace("    ub: [1, 1]\n", ""), 2, "ub is missing"),
    "yaml no table": ("params:\n  other: 1\n", 1, "ptable is missing"),
    "yaml magnitudes": (YAML + "type: nums\n", 6, "only tables of counts"),
    "yaml parity": (YAML + "    type: [even, all]\n", 6, "only type all"),
    "yaml deep": ("params:\n" + "".join(" " * k + f"a{k}:\n" for k in range(1, 30)), 10, "deeper"),
    "yaml stray": (YAML + "what is this\n", 6, "not valid YAML"),
    "yaml anchor": (YAML.replace("i: [0, 1]", "i: &a [0, 1]"), 3, "anchor, alias or tag"),
    "yaml anchored item": (YAML.replace("i: [0, 1]", "i: [0, &a 1]"), 3, "anchor, alias or tag"),
    "yaml alias": (YAML.replace("j: [0, 1]", "j: *i"), 4, "anchor, alias or tag"),
    "yaml merge": (YAML + "    <<: *all\n", 6, "anchor, alias or tag"),
    "yaml tag": (YAML.replace("ub: [1, 1]", "ub: [1, !!float 1]"), 5, "anchor, alias or tag"),
    "yaml object": (YAML + "x: !!python/object/apply:os.getcwd []\n", 6, "anchor, alias or tag"),
    "yaml tagged mapping": ("params: !r\n  ptable:\n", 1, "anchor, alias or tag"),
    "yaml twice at the top": (YAML + "params: 1\n", 6, "params occurs twice"),
    "yaml twice in quotes": (YAML + '    "i": [0, 1]\n', 6, "i occurs twice"),
    "yaml two documents": (YAML + "---\nparams: 1\n", 6, "a second YAML document"),
    "yaml key": (YAML + "? [a]\n: 1\n", 6, "a YAML key is not text"),
    "yaml mapping in a list": (YAML.replace("j: [0, 1]", "j: [0, {a: 1}]"), 4, "list inside a list"),
    "yaml octal": (YAML.replace("j: [0, 1]", "j: [0, 0x1]"), 4, "not a whole number"),
    "yaml truth": (YAML.replace("j: [0, 1]", "j: [0, true]"), 4, "not a whole number"),
    "yaml infinity": (YAML.replace("ub: [1, 1]", "ub: [1, .inf]"), 5, "not a number"),
    "yaml escapes": (YAML.replace("ub: [1, 1]", 'ub: [1, "\\n\\e[31m"]'), 5, "not a number"),
    "yaml escaped type": (YAML + 'type: "a\\nb"\n', 6, "only tables of counts"),
    "yaml tab": (YAML + "\tx: 1\n", 6, "not valid YAML"),
    "yaml control": (YAML + "x: a\x07\n", None, "does not allow"),
    "yaml empty item": (YAML.replace("i: [0, 1]", "i: [0, , 1]"), 3, "not valid YAML"),
    "yaml deep in braces": ("params: " + "{a: " * 30, 1, "deeper"),
    "yaml deep in brackets": ("params: " + "[" * 100_000, 1, "list inside a list"),
    "yaml null column": (YAML.replace("i: [0, 1]", "i:"), 4, "j has 2 items, but i has 1"),
    "keys non-numeric": (KEYS + "1,0,0\n1,1,x\n", 3, "not a whole number"),
    "keys half": (KEYS + "1,0,0.5\n", 2, "not a whole number"),
    "keys fields": (KEYS + "1,0\n", 2, "2 fields"),
    "keys blank": (KEYS + "1,0,0\n\n2,0,0\n", 3, "1 fields"),
    "keys zero": (KEYS + "0,0,0\n", 2, "pcv is below 1"),
    "keys above": (KEYS + "751,0,0\n", 2, "pcv is above 750"),
    "keys negative": (KEYS + "1,-1,0\n", 2, "ckey is below 0"),
    "keys huge": (KEYS + "1,99999999999999999999,0\n", 2, "not a whole number"),
    "keys negative count": (KEYS + "1,0,0\n1,1,-2\n", 3, "negative"),
    "keys twice": (KEYS + "1,0,0\n1,1,0\n1,0,0\n", 4, "occurs twice"),
    "keys gap": (KEYS + "1,0,0\n3,0,0\n", 3, "pcv 2 is missing"),
    "keys short": (KEYS + "1,0,0\n2,0,0\n", 3, "not 750"),
    "keys none": (KEYS, 2, "no rows"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_its_line_and_fault(name: str, tmp_path: Path) -> None:
    content, line, says = BROKEN[name]
    path = tmp_path / "table"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ptables.PTableError) as found:
        ptables.read(path)
    message = str(found.value)
    assert says in message
    assert "\n" not in message
    assert str(path) in message
    assert found.value.line == line
    assert (line is None) or f"line {line}:" in message
    assert found.value.exit_code == 2


@pytest.mark.parametrize("name", [name for name in BROKEN if name.startswith("yaml")])
def test_the_pure_python_yaml_parser_refuses_the_same_broken_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    test_a_broken_file_is_refused_with_its_line_and_fault(name, tmp_path)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("escape", ["uD800", "UFFFFFFFF", "U7FFFFFFF"])
def test_escapes_beyond_unicode_are_refused(
    escape: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.delattr(yaml, "CSafeLoader")
    path = tmp_path / "table"
    path.write_text(YAML.replace("ub: [1, 1]", f'ub: [1, "\\{escape}"]'))
    with pytest.raises(ptables.PTableError) as found:
        ptables.read(path)
    assert str(found.value).isprintable()


@pytest.mark.parametrize("head", [HEAD, KEYS, "params:\n  ptable:\n    i:\n"])
def test_ten_million_lines_are_refused_with_little_work(head: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    with path.open("w") as file:
        file.write(head)
        for _ in range(100):
            file.write("0;0;1;0;1\n" * 100_000)
    with within(5_000), pytest.raises(ptables.PTableError, match="lines") as found:
        ptables.read(path)
    assert found.value.line == LARGEST_LINES + 1
    path.unlink()


@pytest.mark.parametrize(
    "content",
    [
        HEAD + "0;0;1;0;1\n" * 400_000,
        "params:\n  ptable:\n    i: [" + "0, " * 3_000_000 + "0]\n",
        "params:\n  ptable:\n    " + "a " * 1_000_000 + "\n",
        HEAD + "0" * 4_000_000 + "\n",
        "\r" * 5_000_000,
    ],
    ids=["lines", "items", "long key", "long field", "carriage returns"],
)
def test_large_files_are_refused_with_little_work_and_memory(content: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(content.encode())
    with within(5_000):
        tracemalloc.start()
        with pytest.raises(ptables.PTableError) as found:
            ptables.read(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 200 << 20
    assert len(str(found.value)) < 400


def test_a_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, "\0"):
        with pytest.raises(ptables.PTableError, match="cannot be read"):
            ptables.read(path)
