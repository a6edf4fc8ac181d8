"""Copies, older copies and lost files are refused, or settled so that nothing lost can be spent again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from countveil.errors import BudgetError, LedgerError, RequestError
from countveil.ledger import Standing
from countveil.ledger.anchor import Anchor
from countveil.ledger.restoration import EVERYTHING, restore
from countveil.ledger.sqlite import SqliteLedger
from tests.support.ledgers import answered, filled, opened, plan, seen


def put(folder: Path, copy: Path | None, **more: bool) -> int:
    return restore(copy, folder / "x.ledger", folder / "x.anchor", **more)


@pytest.fixture
def backed(tmp_path: Path) -> Path:
    """A ledger, a backup of it, and then three more answers (six entries)."""
    filled(tmp_path)
    ledger = opened(tmp_path)
    ledger.backup(tmp_path / "backup")
    for question in ("e", "f", "g"):
        answered(ledger, question)
    ledger.close()
    return tmp_path


def spent(folder: Path, pool: str = "people") -> tuple[int, int]:
    ledger = opened(folder, create=False)
    standing = ledger.standing(pool)
    ledger.close()
    return standing.spent, standing.answers


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_an_older_copy_is_refused(backed: Path) -> None:
    shutil.copy(backed / "backup", backed / "x.ledger")
    with pytest.raises(LedgerError, match=r"lost history: it ends at entry 15, but its anchor remembers 21; restore"):
        opened(backed)


def test_a_deleted_log_is_refused(tmp_path: Path) -> None:
    """After a crash, the log has the last charges; deleting it deletes them."""
    filled(tmp_path)
    ledger = opened(tmp_path)
    answered(ledger, "e")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("x.ledger", "x.ledger-wal", "x.anchor"):
        shutil.copy(tmp_path / name, crashed / name)
    ledger.close()
    whole = shutil.copytree(crashed, tmp_path / "whole")
    assert spent(whole) == (4, 15)
    (crashed / "x.ledger-wal").unlink()
    with pytest.raises(LedgerError, match="lost history"):
        opened(crashed)


def test_a_deleted_ledger_is_reported(backed: Path) -> None:
    (backed / "x.ledger").unlink()
    with pytest.raises(LedgerError, match=r"the ledger x.ledger is gone, but its anchor remembers 21 entries"):
        opened(backed)
    assert not (backed / "x.ledger").exists()


def test_an_emptied_ledger_is_refused(backed: Path) -> None:
    (backed / "x.ledger").write_bytes(b"")
    with pytest.raises(LedgerError, match="the ledger is empty, but it is not new"):
        opened(backed)


def test_a_deleted_anchor_is_reported(backed: Path) -> None:
    (backed / "x.anchor").unlink()
    with pytest.raises(LedgerError, match="the anchor is missing"):
        opened(backed)
    assert not (backed / "x.anchor").exists()


def test_an_anchor_of_another_ledger_is_refused(backed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    filled(other)
    shutil.copy(other / "x.anchor", backed / "x.anchor")
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        opened(backed)
    with pytest.raises(LedgerError, match="belongs to another ledger"):
        put(backed, backed / "backup", accept_loss=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"\xff\xfe",
        b'{"ledger": "x", "seq": "3", "hash": ""}',
        b'{"ledger": "x", "seq": 3.0, "hash": ""}',
        b'{"ledger": "x", "seq": true, "hash": ""}',
        b'{"ledger": "x", "seq": -1, "hash": ""}',
        b'{"ledger": "x", "seq": 1e999, "hash": ""}',
        b'{"ledger": "x", "seq": 0, "hash": "abc"}',
        b'{"ledger": "x", "seq": 3, "hash": ""}',
        b'{"ledger": 5, "seq": 0, "hash": ""}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_anchor_is_refused(backed: Path, content: bytes) -> None:
    (backed / "x.anchor").write_bytes(content)
    for attempt in (lambda: opened(backed), lambda: put(backed, backed / "backup", accept_loss=True)):
        with pytest.raises(LedgerError, match=r"the anchor x.anchor cannot be read; restore a copy of it"):
            attempt()
    (backed / "x.anchor").unlink()
    (backed / "x.anchor").mkdir()
    with pytest.raises(LedgerError, match=r"the anchor x.anchor cannot be read"):
        opened(backed)


# -- what is accepted --------------------------------------------------------------------------------------------------


def test_restoring_an_equal_copy_loses_nothing(backed: Path) -> None:
    ledger = opened(backed)
    ledger.backup(backed / "equal")
    ledger.close()
    before = seen(backed)
    (backed / "x.ledger").unlink()
    assert put(backed, backed / "equal") == 0
    after = seen(backed)
    assert after[0] == before[0] + 1  # type: ignore[index]
    assert after[3:] == before[3:]  # type: ignore[index]
    ledger = opened(backed)
    open_charge = ledger.charge("people", "people", 2, "c", "text of c", "bob")
    assert not open_charge.fresh, "an open charge of a copy that lost nothing can be completed"
    ledger.close()


def test_a_backup_is_one_file_that_may_be_read_only(backed: Path) -> None:
    assert sorted(file.name for file in backed.glob("*backup*")) == ["backup"]
    content = (backed / "backup").read_bytes()
    (backed / "backup").chmod(0o400)
    put(backed, backed / "backup", accept_loss=True)
    assert (backed / "backup").read_bytes() == content
    assert sorted(file.name for file in backed.glob("*backup*")) == ["backup"]


def test_a_copy_is_restored_with_its_log(tmp_path: Path) -> None:
    """Files copied from a crashed machine: the ledger and its log."""
    filled(tmp_path)
    ledger = opened(tmp_path)
    answered(ledger, "e")
    for ending in ("", "-wal"):
        shutil.copy(tmp_path / f"x.ledger{ending}", tmp_path / f"rescued{ending}")
    ledger.close()
    (tmp_path / "x.ledger").unlink()
    assert put(tmp_path, tmp_path / "rescued") == 0
    assert spent(tmp_path) == (4, 15)


def test_an_older_copy_is_settled(backed: Path) -> None:
    """Six entries are lost: every pool is charged six answers, open charges are void, and the ledger records this."""
    with pytest.raises(RequestError, match="6 entries would be lost; add --accept-loss"):
        put(backed, backed / "backup")
    assert spent(backed) == (6, 15)
    assert put(backed, backed / "backup", accept_loss=True) == 6
    assert spent(backed) == (3 + 6, 15)
    assert spent(backed, "other") == (3, 3)
    ledger = opened(backed)
    assert [entry.kind for entry in ledger.entries()][-1] == "restore"
    assert ledger.find("people", "people", 2, "c") is None
    paid = ledger.charge("people", "people", 2, "c", "text of c", "bob")
    assert paid.fresh, "what may have been answered is paid again, never completed"
    assert answered(ledger, "a").payload == b"answer to a"
    assert ledger.standing("people").spent == 10
    ledger.close()
    assert (backed / "x.ledger.replaced").is_file()


def test_a_pool_whose_plan_was_lost_does_not_get_its_answers_again(tmp_path: Path) -> None:
    """The copy does not contain the pool; planning it again must not give its answers again."""
    ledger = opened(tmp_path)
    ledger.backup(tmp_path / "backup")
    ledger.open_plan(plan(4))
    for question in "abcd":
        answered(ledger, question)
    ledger.close()
    assert put(tmp_path, tmp_path / "backup", accept_loss=True) == 9
    ledger = opened(tmp_path)
    ledger.open_plan(plan(4))
    with pytest.raises(BudgetError):
        answered(ledger, "a")
    ledger.open_plan(plan(12, "larger"))
    assert ledger.standing("larger").left == 3
    ledger.verify()
    ledger.close()


def test_the_losses_of_repeated_restores_add_up(backed: Path) -> None:
    """Restoring the same old backup repeatedly never gives answers back."""
    ledger = opened(backed)
    ledger.extend("people", 50, "3", "for this test")
    ledger.close()
    shown = [put(backed, backed / "backup", accept_loss=True) for _ in range(3)]
    assert shown == [7, 8, 9]
    ledger = opened(backed)
    ledger.verify()
    assert ledger.standing("people").spent == 3 + 9
    ledger.close()
    assert {file.name for file in backed.glob("*replaced*")} == {f"x.ledger.replaced{n}" for n in ("", 2, 3)}


def test_a_lost_entry_counts_against_every_grade(tmp_path: Path) -> None:
    """Any of the lost entries may have been a charge of any grade."""
    ledger = opened(tmp_path)
    ledger.open_plan(plan(6, fine=2, coarse=9))
    answered(ledger, "a", grade="fine")
    ledger.backup(tmp_path / "copy")
    for question in "bc":
        answered(ledger, question)
    ledger.close()
    assert put(tmp_path, tmp_path / "copy", accept_loss=True) == 4
    ledger = opened(tmp_path)
    expected = {"standard": Standing(6, 4), "fine": Standing(2, 2), "coarse": Standing(9, 4)}
    assert ledger.standings("people") == expected
    record = ledger.plan("people")
    assert record is not None
    assert {each.name: each.debt for each in record.grades} == {"standard": 0, "fine": 3, "coarse": 0}
    with pytest.raises(BudgetError):
        answered(ledger, "b", grade="fine")
    ledger.extend("people", 2, "1.5", "they pay the debt", "fine")
    assert ledger.standings("people")["fine"] == Standing(4, 4)
    ledger.extend("people", 5, "1.6", "one of them does", "fine")
    assert ledger.standings("people")["fine"] == Standing(9, 5)
    assert ledger.debt("people") == 0
    ledger.open_plan(plan(3, "other", coarse=5))  # planned after the loss, perhaps for the second time
    assert ledger.standings("other") == {"standard": Standing(3, 3), "coarse": Standing(5, 4)}
    ledger.replan(plan(5), "3", "after the fire", since=ledger.plan("people"))  # type: ignore[arg-type]
    assert ledger.standings("people")["standard"] == Standing(11, 10)
    assert ledger.standings("people")["coarse"].left == 0
    assert ledger.verify() == len(list(ledger.entries()))
    ledger.close()


def test_a_replaced_ledger_cannot_return_without_a_loss(backed: Path) -> None:
    """After the restore the anchor has moved on; restoring the replaced, longer history counts the settled entries as
    lost.
    """
    put(backed, backed / "backup", accept_loss=True)
    ledger = opened(backed)
    answered(ledger, "h")
    ledger.close()
    with pytest.raises(RequestError, match="3 entries would be lost"):
        put(backed, backed / "x.ledger.replaced")
    assert put(backed, backed / "x.ledger.replaced", accept_loss=True) == 3
    assert spent(backed) == (6 + 3, 15)


def test_without_an_anchor_every_answer_is_charged(backed: Path) -> None:
    (backed / "x.anchor").unlink()
    with pytest.raises(RequestError, match=r"the number of lost entries is unknown; add --accept-loss .* or --latest"):
        put(backed, None)
    assert put(backed, None, accept_loss=True) == EVERYTHING
    assert spent(backed) == (15, 15)
    assert put(backed, backed / "backup", accept_loss=True) > EVERYTHING, "and not less by bringing back an older copy"
    assert spent(backed) == (15, 15)
    ledger = opened(backed)
    ledger.open_plan(plan(1000, "planned later"))
    assert ledger.standing("planned later").left == 0
    assert answered(ledger, "a").payload == b"answer to a", "what was answered stays free"
    ledger.close()


def test_the_option_latest_restores_a_lost_anchor_without_a_charge(backed: Path) -> None:
    with pytest.raises(RequestError, match="--latest is for a lost anchor"):
        put(backed, None, latest=True)
    (backed / "x.anchor").unlink()
    assert put(backed, None, latest=True) == 0
    assert spent(backed) == (6, 15)
    ledger = opened(backed)
    assert dict(list(ledger.entries())[-1].body) == {"lost": 0, "anchor": None, "plan_lost": False}
    ledger.close()


def test_an_invalid_backup_is_refused_and_changes_nothing(backed: Path) -> None:
    before = seen(backed)
    with pytest.raises(RequestError, match="is not a file"):
        put(backed, backed / "nothing")
    (backed / "text").write_text("hello " * 1000)
    with pytest.raises(LedgerError, match="text is not a ledger, or it is damaged"):
        put(backed, backed / "text", accept_loss=True)
    content = bytearray((backed / "backup").read_bytes())
    content[content.index(b"text of a") + 3] ^= 1
    (backed / "backup").write_bytes(content)
    with pytest.raises(LedgerError, match=r"changed|damaged"):
        put(backed, backed / "backup", accept_loss=True)
    assert seen(backed) == before
    assert not list(backed.glob(".*restoring*"))


def test_a_process_with_the_old_ledger_open_cannot_answer(backed: Path) -> None:
    """What it charges in the old file would be lost."""
    behind = opened(backed)
    charge = behind.charge("people", "people", 1, "late", "", "ann")
    for copy, loss in ((backed / "x.ledger", False), (backed / "backup", True)):
        put(backed, copy, accept_loss=loss)
        with pytest.raises(LedgerError, match="removed or replaced while it was open; nothing was answered"):
            behind.record(charge, b"never sent")
        with pytest.raises(LedgerError, match="nothing was answered"):
            behind.charge("people", "people", 1, "later", "", "ann")
    behind.close()
    opened(backed).close()


def test_a_restore_waits_for_a_process_between_commit_and_anchor(backed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The restore waits until the anchor covers the committed change, and then counts this change as lost."""
    monkeypatch.setattr("countveil.ledger.anchor.WAIT", 0.1)
    refused: list[str] = []

    def step(name: str) -> None:
        if name == "answer:anchor" and not refused:
            with pytest.raises(LedgerError, match="busy with other processes") as error:
                put(backed, backed / "backup", accept_loss=True)
            refused.append(str(error.value))

    ledger = SqliteLedger(backed / "x.ledger", backed / "x.anchor", step=step)
    assert answered(ledger, "late").payload is not None
    ledger.close()
    assert len(refused) == 1
    assert put(backed, backed / "backup", accept_loss=True) == 6 + 2
    assert spent(backed) == (3 + 8, 15)


def test_a_restore_between_charge_and_answer_stops_the_answer(backed: Path) -> None:
    """The charge is not covered by the anchor, so the restore does not count it as lost; but it is never answered."""
    ledger = opened(backed)
    charge = ledger.charge("people", "people", 1, "late", "", "ann")
    assert put(backed, backed / "backup", accept_loss=True) == 6
    with pytest.raises(LedgerError, match="removed or replaced while it was open; nothing was answered"):
        ledger.record(charge, b"never sent")
    ledger.close()


def test_a_ledger_overwritten_between_charge_and_answer_is_refused(backed: Path) -> None:
    """The file has the same inode but older content, without the entry that its anchor remembers."""
    ledger = opened(backed)
    charge = ledger.charge("people", "people", 1, "late", "", "ann")
    ledger.close()
    (backed / "x.ledger").write_bytes((backed / "backup").read_bytes())
    with pytest.raises(LedgerError, match=r"lost history|damaged|is not the one"):
        opened(backed).record(charge, b"never sent")


def test_a_ledger_removed_while_it_is_open_cannot_answer(backed: Path) -> None:
    ledger = opened(backed)
    (backed / "x.ledger").unlink()
    with pytest.raises(LedgerError, match="removed or replaced while it was open"):
        answered(ledger, "late")
    ledger.close()


def test_a_backup_never_replaces_a_file(backed: Path) -> None:
    ledger = opened(backed)
    with pytest.raises(RequestError, match="exists; give the path of a new file"):
        ledger.backup(backed / "backup")
    with pytest.raises(RequestError, match="cannot be written"):
        ledger.backup(backed / "nowhere" / "backup")
    assert ledger.backup(backed / "second") == 21
    ledger.close()


def test_no_process_answers_during_a_restore(backed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore locks the anchor from reading it until moving it, so restores and answers wait for each other."""
    monkeypatch.setattr("countveil.ledger.anchor.WAIT", 0.05)
    before = seen(backed)
    with Anchor(backed / "x.anchor").lock(), pytest.raises(LedgerError, match="anchor is busy"):
        put(backed, backed / "backup", accept_loss=True)
    assert seen(backed) == before
