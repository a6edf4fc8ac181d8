"""What every ledger keeps. One suite; a ledger on another database is one more class at the end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from countveil.errors import BudgetError, CountveilError, LedgerError, RequestError
from countveil.ledger import Asked, Charge, Ledger, Standing
from countveil.ledger.checking import replayed
from countveil.ledger.postgres import PostgresLedger
from countveil.ledger.records import charge_id
from countveil.ledger.sqlite import SqliteLedger
from tests.support.ledgers import database, plan

Open = Callable[[], Ledger]


class LedgerContract(ABC):
    """`place` gives a function that opens the same, at first empty, ledger anew, as another process would."""

    @abstractmethod
    def opener(self, folder: Path) -> Open: ...

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Open]:
        opened: list[Ledger] = []
        make = self.opener(tmp_path)

        def remember() -> Ledger:
            opened.append(make())
            return opened[-1]

        yield remember
        for each in opened:
            each.close()

    @pytest.fixture
    def ledger(self, place: Open) -> Ledger:
        found = place()
        found.open_plan(plan(3))
        return found

    @staticmethod
    def pay(ledger: Ledger, question: str, analyst: str = "ann", pool: str = "people", version: int = 1) -> Charge:
        return ledger.charge(pool, "people", version, question, f"text of {question}", analyst)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def test_a_pool_has_one_plan(self, ledger: Ledger, place: Open) -> None:
        other = place()
        other.open_plan(plan(1000))
        assert other.plan("people") == ledger.plan("people") == plan(3)
        assert other.plan("people").document == plan(3).document  # type: ignore[union-attr]
        assert ledger.standing("people") == Standing(3, 0)
        assert ledger.plan("nobody") is None
        assert ledger.standing("nobody") == Standing(0, 0)

    def test_no_plan_no_answers(self, place: Open) -> None:
        ledger = place()
        with pytest.raises(BudgetError):
            self.pay(ledger, "a")
        assert [entry.kind for entry in ledger.entries()] == ["open"]

    # -- charges -------------------------------------------------------------------------------------------------------

    def test_exactly_as_many_answers_as_planned(self, ledger: Ledger) -> None:
        for question in "abc":
            assert self.pay(ledger, question).fresh
        with pytest.raises(BudgetError) as error:
            self.pay(ledger, "d")
        assert (error.value.pool, error.value.answers) == ("people", 3)
        assert ledger.standing("people") == Standing(3, 3)
        assert ledger.standing("people").left == 0
        assert [entry.kind for entry in ledger.entries()] == ["open", "plan", *["charge"] * 3]

    def test_a_question_is_paid_once(self, ledger: Ledger, place: Open) -> None:
        first = self.pay(ledger, "a")
        again = self.pay(place(), "a", analyst="bob")
        assert (again.id, again.fresh, again.analyst) == (first.id, False, "ann")
        assert ledger.standing("people").spent == 1

    def test_another_version_is_another_question(self, ledger: Ledger) -> None:
        assert self.pay(ledger, "a", version=1).id != self.pay(ledger, "a", version=2).id
        assert ledger.standing("people").spent == 2

    def test_pools_are_separate_and_datasets_share_one(self, ledger: Ledger) -> None:
        ledger.open_plan(plan(1, "other"))
        self.pay(ledger, "a", pool="other")
        with pytest.raises(BudgetError):
            self.pay(ledger, "b", pool="other")
        for dataset in ("people", "households", "visits"):
            ledger.charge("people", dataset, 1, "a", "", "ann")
        with pytest.raises(BudgetError):
            ledger.charge("people", "more", 1, "a", "", "ann")

    def test_a_spent_pool_still_replays(self, ledger: Ledger) -> None:
        for question in "abc":
            ledger.record(self.pay(ledger, question), question.encode())
        assert [self.pay(ledger, question).payload for question in "abc"] == [b"a", b"b", b"c"]

    def test_names_of_charges_say_nothing(self, ledger: Ledger) -> None:
        names = [self.pay(ledger, question).id for question in "abc"]
        assert len(set(names)) == 3
        assert all(len(name) == 24 for name in names)
        assert names == [charge_id(entry) for entry in ledger.entries() if entry.kind == "charge"]

    # -- answers -------------------------------------------------------------------------------------------------------

    def test_the_first_answer_is_the_answer(self, ledger: Ledger, place: Open) -> None:
        charge = self.pay(ledger, "a")
        assert charge.payload is None
        assert ledger.record(charge, b"first").payload == b"first"
        assert place().record(charge, b"second").payload == b"first"
        found = ledger.find("people", "people", 1, "a")
        assert found is not None
        assert (found.id, found.payload) == (charge.id, b"first")
        assert found.answered is not None
        assert [entry.kind for entry in ledger.entries()].count("answer") == 1

    def test_an_open_charge_is_completed_later(self, ledger: Ledger, place: Open) -> None:
        charge = self.pay(ledger, "a")
        ledger.close()
        later = place()
        found = self.pay(later, "a")
        assert (found.id, found.fresh, found.payload) == (charge.id, False, None)
        later.record(found, b"x")
        assert later.standing("people").spent == 1

    def test_an_answer_needs_its_charge(self, ledger: Ledger) -> None:
        forged = Charge("0" * 24, "people", "people", 1, "a", "", "ann", "now")
        with pytest.raises(LedgerError, match="nothing was answered"):
            ledger.record(forged, b"x")
        self.pay(ledger, "a")
        with pytest.raises(LedgerError, match="nothing was answered"):
            ledger.record(forged, b"x")
        assert ledger.find("people", "people", 1, "a").payload is None  # type: ignore[union-attr]

    @pytest.mark.parametrize("payload", [b"", b"\x00" * 10, bytes(range(256)) * 4000])
    def test_answers_come_back_byte_for_byte(self, ledger: Ledger, place: Open, payload: bytes) -> None:
        ledger.record(self.pay(ledger, "a"), payload)
        assert self.pay(place(), "a").payload == payload

    # -- opening more --------------------------------------------------------------------------------------------------

    def test_a_further_plan_closes_the_one_before_and_keeps_its_answers(self, ledger: Ledger, place: Open) -> None:
        ledger.set_share("people", "ann", 2)
        first = ledger.record(self.pay(ledger, "a"), b"x")
        unanswered = self.pay(ledger, "b")
        ledger.extend("people", 2, "1.5", "a second edition")
        before = ledger.plan("people")
        assert before is not None
        further = replace(plan(4), mechanism="e" * 64, document='{"b": 2}')
        ledger.replan(further, "2.5", "wider bounds", since=before)
        assert ledger.standing("people") == Standing(9, 5)  # what was left of the plan before is spent
        assert ledger.standing("people", "ann") == Standing(2, 0)
        other = place()
        found = other.plan("people")
        assert found is not None
        assert found == further
        assert (found.document, found.opened_epsilon, found.total_answers) == ('{"b": 2}', "2.5", 9)
        (closed,) = found.earlier
        assert (closed, closed.document, closed.more) == (plan(3), plan(3).document, ((2, "1.5"),))
        again = self.pay(other, "a")
        assert (again.id, again.payload) == (first.id, b"x")
        assert other.plan_of(again) == closed
        anew = self.pay(other, "b")  # what was paid and not answered is void: nobody draws from the old mechanism
        assert (anew.fresh, anew.id != unanswered.id) == (True, True)
        assert other.plan_of(anew) == found
        with pytest.raises(LedgerError, match="nothing was answered"):
            ledger.record(unanswered, b"y")
        assert other.verify() == len(list(other.entries()))
        other.extend("people", 1, "2.75", "more of it")
        assert other.plan("people").opened_epsilon == "2.75"  # type: ignore[union-attr]
        assert place().verify() > 0

    def test_a_charge_that_was_prepared_under_another_plan_is_refused(self, ledger: Ledger, place: Open) -> None:
        before = ledger.plan("people")
        assert before is not None
        place().replan(plan(4), "2", "the same again", since=before)
        asked = Asked("people", "people", 1, "a", "text", "ann")
        with pytest.raises(RequestError, match="a new plan meanwhile; nothing was charged"):
            ledger.charge(*asked, plan=before)
        opened = ledger.charge(*asked, plan=ledger.plan("people"))
        with pytest.raises(RequestError, match="a new plan meanwhile"):  # nor is what another one paid completed
            ledger.charge(*asked, plan=before)
        ledger.record(opened, b"x")
        assert ledger.charge(*asked, plan=before).payload == b"x"
        with pytest.raises(RequestError, match="was changed meanwhile"):
            ledger.replan(plan(4), "3", "late", since=before)
        assert ledger.standing("people") == Standing(7, 4)
        assert ledger.verify() > 0

    def test_opening_more_stays_on_the_record(self, ledger: Ledger, place: Open) -> None:
        ledger.extend("people", 2, "1.5", "a second edition")
        ledger.extend("people", 1, "1.7", "a third")
        found = place().plan("people")
        assert found is not None
        assert found.more == ((2, "1.5"), (1, "1.7"))
        assert (found.answers, found.total_answers, found.opened_epsilon) == (3, 6, "1.7")
        assert ledger.standing("people") == Standing(6, 0)
        assert [entry.body["reason"] for entry in ledger.entries() if entry.kind == "extend"] == [
            "a second edition",
            "a third",
        ]

    def test_two_curators_cannot_open_the_same_answers_twice(self, ledger: Ledger, place: Open) -> None:
        """Each worked out the epsilon of 5 answers together; the second would make it 7."""
        ledger.extend("people", 2, "1.5", "first", since=3)
        with pytest.raises(RequestError, match="opened to 5 answers meanwhile"):
            place().extend("people", 2, "1.5", "second", since=3)
        assert ledger.standing("people").answers == 5

    @pytest.mark.parametrize("answers", [0, -1])
    def test_answers_are_never_taken_back(self, ledger: Ledger, answers: int) -> None:
        with pytest.raises(RequestError, match="never taken back"):
            ledger.extend("people", answers, "1", "why")
        assert len(list(ledger.entries())) == 2

    def test_only_a_planned_pool_is_opened_or_shared(self, ledger: Ledger) -> None:
        for change in (lambda: ledger.extend("nobody", 2, "1", "why"), lambda: ledger.set_share("nobody", "ann", 1)):
            with pytest.raises(RequestError, match="there is no plan for pool nobody"):
                change()
        assert len(list(ledger.entries())) == 2

    # -- shares --------------------------------------------------------------------------------------------------------

    def test_shares(self, ledger: Ledger) -> None:
        ledger.set_share("people", "ann", 1)
        ledger.set_share("people", "bob", 5)
        self.pay(ledger, "a", "ann")
        for analyst in ("ann", "eve"):
            with pytest.raises(BudgetError) as error:
                self.pay(ledger, "b", analyst)
            assert error.value.analyst == analyst
        self.pay(ledger, "b", "bob")
        self.pay(ledger, "c", "bob")
        with pytest.raises(BudgetError) as error:
            self.pay(ledger, "d", "bob")
        assert error.value.analyst is None, "a share is a limit, not a right: the pool is spent"
        assert ledger.shares("people") == {"ann": Standing(1, 1), "bob": Standing(5, 2)}
        assert ledger.standing("people", "bob").left == 3
        assert not self.pay(ledger, "a", "eve").fresh, "a replay is free for all"

    def test_a_share_that_stays_is_not_recorded_again(self, ledger: Ledger) -> None:
        for answers in (2, 2, 1, 1):
            ledger.set_share("people", "ann", answers)
        assert [entry.kind for entry in ledger.entries()].count("share") == 2

    def test_a_share_may_fall_below_what_is_spent(self, ledger: Ledger) -> None:
        ledger.set_share("people", "ann", 2)
        self.pay(ledger, "a")
        self.pay(ledger, "b")
        ledger.set_share("people", "ann", 1)
        with pytest.raises(BudgetError):
            self.pay(ledger, "c")
        assert ledger.verify() == 7 - 1

    # -- versions ------------------------------------------------------------------------------------------------------

    def test_versions(self, ledger: Ledger, place: Open) -> None:
        assert [ledger.version("people", mark) for mark in ("x", "y", "x", "z", "y")] == [1, 2, 1, 3, 2]
        assert place().version("households", "x") == 1
        assert [entry.kind for entry in ledger.entries()].count("version") == 4

    # -- reading and checking ------------------------------------------------------------------------------------------

    def test_charges_in_order(self, ledger: Ledger) -> None:
        ledger.open_plan(plan(9, "other"))
        for question, analyst, pool in (("c", "ann", "people"), ("a", "bob", "other"), ("b", "ann", "other")):
            self.pay(ledger, question, analyst, pool)
        assert [charge.question for charge in ledger.charges()] == ["c", "a", "b"]
        assert [charge.question for charge in ledger.charges("other")] == ["a", "b"]
        assert [charge.question for charge in ledger.charges(analyst="ann")] == ["c", "b"]
        assert [charge.question for charge in ledger.charges("other", "ann")] == ["b"]

    def test_what_is_spent_follows_from_the_entries(self, ledger: Ledger) -> None:
        ledger.set_share("people", "ann", 2)
        ledger.record(self.pay(ledger, "a"), b"x")
        self.pay(ledger, "b")
        state = replayed(ledger.entries())
        assert state.pools == {"people": [3, 2]}
        assert state.shares == {("people", "ann"): [2, 2]}
        assert len(state.charges) == 2
        assert len(state.answers) == 1
        assert ledger.verify() == len(list(ledger.entries())) == 6

    def test_a_ledger_has_one_name(self, ledger: Ledger, place: Open) -> None:
        assert place().identity == ledger.identity
        assert len(ledger.identity) >= 32

    @pytest.mark.parametrize(
        "text", ["", 'it\'s "quoted"; DROP TABLE charge; --', "größer ≤ 5 \U0001f600", "a\nb\x00c"]
    )
    def test_any_text(self, ledger: Ledger, place: Open, text: str) -> None:
        ledger.charge("people", "people", 1, "a", text, text or "-")
        assert place().find("people", "people", 1, "a").text == text  # type: ignore[union-attr]
        ledger.verify()

    def test_threads(self, ledger: Ledger) -> None:
        ledger.extend("people", 7, "2", "ten in all")
        outcomes: list[object] = []

        def work(me: int) -> None:
            for i in range(4):
                try:
                    outcomes.append(ledger.record(self.pay(ledger, f"{me}.{i}"), b"x").payload)
                except CountveilError as error:
                    outcomes.append(type(error))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes.count(b"x") == 10
        assert outcomes.count(BudgetError) == 22
        ledger.verify()

    def test_a_closed_ledger_says_so(self, ledger: Ledger) -> None:
        ledger.close()
        ledger.close()
        for use in (lambda: self.pay(ledger, "a"), lambda: ledger.standing("people"), ledger.verify):
            with pytest.raises(LedgerError, match="the ledger is closed"):
                use()


class TestSqlite(LedgerContract):
    def opener(self, folder: Path) -> Open:
        return lambda: SqliteLedger(folder / "x.ledger", folder / "x.anchor")


@pytest.mark.postgres
class TestPostgres(LedgerContract):
    def opener(self, folder: Path) -> Open:
        location = database()
        return lambda: PostgresLedger(location, folder / "x.anchor")
