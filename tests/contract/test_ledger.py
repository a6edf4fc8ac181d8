"""The contract of ledgers: one suite for every kind. For a ledger on another database, add a class at the end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from countveil.errors import BudgetError, CountveilError, LedgerError, RequestError
from countveil.ledger import Asked, Charge, Ledger, Most, Standing
from countveil.ledger.postgres import PostgresLedger
from countveil.ledger.records import charge_id
from countveil.ledger.sqlite import SqliteLedger
from countveil.ledger.verification import replay_entries
from tests.support.ledgers import database, plan

Open = Callable[[], Ledger]


class LedgerContract(ABC):
    """`reopen` is a function that opens the same ledger, empty at first, as another process would."""

    @abstractmethod
    def make_opener(self, folder: Path) -> Open: ...

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Open]:
        ledgers: list[Ledger] = []
        make = self.make_opener(tmp_path)

        def reopen() -> Ledger:
            ledgers.append(make())
            return ledgers[-1]

        yield reopen
        for ledger in ledgers:
            ledger.close()

    @pytest.fixture
    def ledger(self, reopen: Open) -> Ledger:
        ledger = reopen()
        ledger.open_plan(plan(3))
        return ledger

    @staticmethod
    def charge(ledger: Ledger, question: str, analyst: str = "ann", pool: str = "people", version: int = 1) -> Charge:
        return ledger.charge(pool, "people", version, question, f"text of {question}", analyst)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def test_a_second_plan_does_not_replace_the_first_plan_of_a_pool(self, ledger: Ledger, reopen: Open) -> None:
        other = reopen()
        other.open_plan(plan(1000))
        assert other.plan("people") == ledger.plan("people") == plan(3)
        assert other.plan("people").grades[0].document == plan(3).grades[0].document  # type: ignore[union-attr]
        assert ledger.standing("people") == Standing(3, 0)
        assert ledger.plan("nobody") is None
        assert ledger.standing("nobody") == Standing(0, 0)

    def test_a_charge_without_a_plan_is_refused(self, reopen: Open) -> None:
        ledger = reopen()
        with pytest.raises(BudgetError):
            self.charge(ledger, "a")
        assert [entry.kind for entry in ledger.entries()] == ["open"]

    # -- charges -------------------------------------------------------------------------------------------------------

    def test_a_pool_gives_exactly_the_planned_number_of_answers(self, ledger: Ledger) -> None:
        for question in "abc":
            assert self.charge(ledger, question).fresh
        with pytest.raises(BudgetError) as error:
            self.charge(ledger, "d")
        assert (error.value.pool, error.value.answers) == ("people", 3)
        assert ledger.standing("people") == Standing(3, 3)
        assert ledger.standing("people").left == 0
        assert [entry.kind for entry in ledger.entries()] == ["open", "plan", *["charge"] * 3]

    def test_a_question_is_charged_once(self, ledger: Ledger, reopen: Open) -> None:
        first = self.charge(ledger, "a")
        again = self.charge(reopen(), "a", analyst="bob")
        assert (again.id, again.fresh, again.analyst) == (first.id, False, "ann")
        assert ledger.standing("people").spent == 1

    def test_a_question_on_another_version_is_charged_again(self, ledger: Ledger) -> None:
        assert self.charge(ledger, "a", version=1).id != self.charge(ledger, "a", version=2).id
        assert ledger.standing("people").spent == 2

    def test_pools_have_separate_answers_and_the_datasets_of_a_pool_share_them(self, ledger: Ledger) -> None:
        ledger.open_plan(plan(1, "other"))
        self.charge(ledger, "a", pool="other")
        with pytest.raises(BudgetError):
            self.charge(ledger, "b", pool="other")
        for dataset in ("people", "households", "visits"):
            ledger.charge("people", dataset, 1, "a", "", "ann")
        with pytest.raises(BudgetError):
            ledger.charge("people", "more", 1, "a", "", "ann")

    def test_a_spent_pool_still_replays_its_answers(self, ledger: Ledger) -> None:
        for question in "abc":
            ledger.record(self.charge(ledger, question), question.encode())
        assert [self.charge(ledger, question).payload for question in "abc"] == [b"a", b"b", b"c"]

    def test_charge_ids_are_unique_and_recorded(self, ledger: Ledger) -> None:
        ids = [self.charge(ledger, question).id for question in "abc"]
        assert len(set(ids)) == 3
        assert all(len(id_) == 24 for id_ in ids)
        assert ids == [charge_id(entry) for entry in ledger.entries() if entry.kind == "charge"]

    # -- answers -------------------------------------------------------------------------------------------------------

    def test_the_first_answer_recorded_for_a_charge_is_kept(self, ledger: Ledger, reopen: Open) -> None:
        charge = self.charge(ledger, "a")
        assert charge.payload is None
        assert ledger.record(charge, b"first").payload == b"first"
        assert reopen().record(charge, b"second").payload == b"first"
        recorded = ledger.find("people", "people", 1, "a")
        assert recorded is not None
        assert (recorded.id, recorded.payload) == (charge.id, b"first")
        assert recorded.answered is not None
        assert [entry.kind for entry in ledger.entries()].count("answer") == 1

    def test_an_unanswered_charge_is_answered_after_reopening(self, ledger: Ledger, reopen: Open) -> None:
        charge = self.charge(ledger, "a")
        ledger.close()
        later = reopen()
        again = self.charge(later, "a")
        assert (again.id, again.fresh, again.payload) == (charge.id, False, None)
        later.record(again, b"x")
        assert later.standing("people").spent == 1

    def test_an_answer_without_its_charge_is_refused(self, ledger: Ledger) -> None:
        forged = Charge("0" * 24, "people", "people", 1, "a", "", "ann", "now")
        with pytest.raises(LedgerError, match="nothing was answered"):
            ledger.record(forged, b"x")
        self.charge(ledger, "a")
        with pytest.raises(LedgerError, match="nothing was answered"):
            ledger.record(forged, b"x")
        assert ledger.find("people", "people", 1, "a").payload is None  # type: ignore[union-attr]

    @pytest.mark.parametrize("payload", [b"", b"\x00" * 10, bytes(range(256)) * 4000])
    def test_answers_are_replayed_byte_for_byte(self, ledger: Ledger, reopen: Open, payload: bytes) -> None:
        ledger.record(self.charge(ledger, "a"), payload)
        assert self.charge(reopen(), "a").payload == payload

    # -- more answers --------------------------------------------------------------------------------------------------

    def test_a_new_plan_closes_the_previous_one_and_keeps_its_answers(self, ledger: Ledger, reopen: Open) -> None:
        ledger.set_share("people", "ann", 2)
        first = ledger.record(self.charge(ledger, "a"), b"x")
        unanswered = self.charge(ledger, "b")
        ledger.extend("people", 2, "1.5", "a second edition")
        before = ledger.plan("people")
        assert before is not None
        anew = replace(plan(4).grades[0], mechanism="e" * 64, document='{"b": 2}')
        further = replace(plan(4), grades=(anew,))
        ledger.replan(further, "2.5", "wider bounds", since=before)
        assert ledger.standing("people") == Standing(9, 5)  # the unused answers of the previous plan are spent
        assert ledger.standing("people", "ann") == Standing(2, 0)
        other = reopen()
        current = other.plan("people")
        assert current is not None
        assert current == further
        assert (current.grades[0].document, current.opened_epsilon, current.total_answers) == ('{"b": 2}', "2.5", 9)
        (closed,) = current.earlier
        assert (closed, closed.grades[0].document, closed.more) == (plan(3), '{"a": 1}', ((2, "1.5"),))
        again = self.charge(other, "a")
        assert (again.id, again.payload) == (first.id, b"x")
        assert other.plan_of(again) == closed
        second = self.charge(other, "b")  # the unanswered charge is void: no answer uses the old mechanism
        assert (second.fresh, second.id != unanswered.id) == (True, True)
        assert other.plan_of(second) == current
        with pytest.raises(LedgerError, match="nothing was answered"):
            ledger.record(unanswered, b"y")
        assert other.verify() == len(list(other.entries()))
        other.extend("people", 1, "2.75", "more of it")
        assert other.plan("people").opened_epsilon == "2.75"  # type: ignore[union-attr]
        assert reopen().verify() > 0

    def test_a_charge_prepared_under_a_previous_plan_is_refused(self, ledger: Ledger, reopen: Open) -> None:
        before = ledger.plan("people")
        assert before is not None
        reopen().replan(plan(4), "2", "the same again", since=before)
        question = Asked("people", "people", 1, "a", "text", "ann")
        with pytest.raises(RequestError, match="a new plan in the meantime; nothing was charged"):
            ledger.charge(*question, plan=before)
        charge = ledger.charge(*question, plan=ledger.plan("people"))
        with pytest.raises(
            RequestError, match="a new plan in the meantime"
        ):  # an existing charge is not answered either
            ledger.charge(*question, plan=before)
        ledger.record(charge, b"x")
        assert ledger.charge(*question, plan=before).payload == b"x"
        with pytest.raises(RequestError, match="changed in the meantime"):
            ledger.replan(plan(4), "3", "late", since=before)
        assert ledger.standing("people") == Standing(7, 4)
        assert ledger.verify() > 0

    def test_every_extension_of_a_pool_is_recorded(self, ledger: Ledger, reopen: Open) -> None:
        ledger.extend("people", 2, "1.5", "a second edition")
        ledger.extend("people", 1, "1.7", "a third")
        extended = reopen().plan("people")
        assert extended is not None
        assert extended.more == ((2, "1.5"), (1, "1.7"))
        assert (extended.answers, extended.total_answers, extended.opened_epsilon) == (3, 6, "1.7")
        assert ledger.standing("people") == Standing(6, 0)
        assert [entry.body["reason"] for entry in ledger.entries() if entry.kind == "extend"] == [
            "a second edition",
            "a third",
        ]

    def test_two_curators_cannot_extend_a_pool_from_the_same_state(self, ledger: Ledger, reopen: Open) -> None:
        """Both curators computed epsilon for 5 answers; with the second extension there would be 7."""
        before = ledger.plan("people")
        ledger.extend("people", 2, "1.5", "first", since=before)
        with pytest.raises(RequestError, match="it has 5 answers now"):
            reopen().extend("people", 2, "1.5", "second", since=before)
        assert ledger.standing("people").answers == 5

    @pytest.mark.parametrize("answers", [0, -1])
    def test_an_extension_by_no_or_negative_answers_is_refused(self, ledger: Ledger, answers: int) -> None:
        with pytest.raises(RequestError, match="never taken back"):
            ledger.extend("people", answers, "1", "why")
        assert len(list(ledger.entries())) == 2

    def test_a_pool_without_a_plan_cannot_be_extended_or_shared(self, ledger: Ledger) -> None:
        for change in (lambda: ledger.extend("nobody", 2, "1", "why"), lambda: ledger.set_share("nobody", "ann", 1)):
            with pytest.raises(RequestError, match="pool nobody has no plan yet"):
                change()
        assert len(list(ledger.entries())) == 2

    # -- shares --------------------------------------------------------------------------------------------------------

    def test_a_share_limits_an_analyst_but_reserves_nothing(self, ledger: Ledger) -> None:
        ledger.set_share("people", "ann", 1)
        ledger.set_share("people", "bob", 5)
        self.charge(ledger, "a", "ann")
        for analyst in ("ann", "eve"):
            with pytest.raises(BudgetError) as error:
                self.charge(ledger, "b", analyst)
            assert error.value.analyst == analyst
        self.charge(ledger, "b", "bob")
        self.charge(ledger, "c", "bob")
        with pytest.raises(BudgetError) as error:
            self.charge(ledger, "d", "bob")
        assert error.value.analyst is None, "a share is a limit, not a reservation: the pool is spent"
        assert ledger.shares("people") == {"ann": {"standard": Standing(1, 1)}, "bob": {"standard": Standing(5, 2)}}
        assert ledger.standing("people", "bob").left == 3
        assert not self.charge(ledger, "a", "eve").fresh, "a replay is free for every analyst"

    def test_an_unchanged_share_is_not_recorded_again(self, ledger: Ledger) -> None:
        for answers in (2, 2, 1, 1):
            ledger.set_share("people", "ann", answers)
        assert [entry.kind for entry in ledger.entries()].count("share") == 2

    def test_a_share_may_be_lowered_below_the_spent_answers(self, ledger: Ledger) -> None:
        ledger.set_share("people", "ann", 2)
        self.charge(ledger, "a")
        self.charge(ledger, "b")
        ledger.set_share("people", "ann", 1)
        with pytest.raises(BudgetError):
            self.charge(ledger, "c")
        assert ledger.verify() == 7 - 1

    # -- grades --------------------------------------------------------------------------------------------------------

    @pytest.fixture
    def graded(self, reopen: Open) -> Ledger:
        ledger = reopen()
        ledger.open_plan(plan(3, fine=1, coarse=2))
        return ledger

    @staticmethod
    def pay(ledger: Ledger, question: str, grade: str, analyst: str = "ann", most: Most | None = None) -> Charge:
        return ledger.charge("people", "people", 1, question, f"text of {question}", analyst, grade, most=most)

    def test_every_grade_gives_exactly_its_planned_number_of_answers(self, graded: Ledger, reopen: Open) -> None:
        for question, grade in (("a", "coarse"), ("b", "fine"), ("c", "standard"), ("d", "coarse"), ("e", "standard")):
            assert self.pay(graded, question, grade).grade == grade
        for grade, answers in (("fine", 1), ("coarse", 2)):
            with pytest.raises(BudgetError) as error:
                self.pay(graded, "more", grade)
            assert (error.value.grade, error.value.answers, error.value.others) == (grade, answers, {"standard": 1})
            assert f"the budget of grade {grade} of people is spent" in str(error.value)
        self.pay(graded, "f", "standard")
        other = reopen()
        expected = {"standard": Standing(3, 3), "fine": Standing(1, 1), "coarse": Standing(2, 2)}
        assert other.standings("people") == expected
        assert other.standing("people") == Standing(6, 6)
        assert [charge.grade for charge in other.charges()].count("standard") == 3
        assert other.verify() == 2 + 6

    def test_a_question_is_charged_once_in_each_grade(self, graded: Ledger, reopen: Open) -> None:
        rough = graded.record(self.pay(graded, "a", "coarse"), b"rough")
        fine = graded.record(self.pay(graded, "a", "fine"), b"fine")
        assert rough.id != fine.id
        other = reopen()
        assert self.pay(other, "a", "coarse", "bob").payload == b"rough"
        assert self.pay(other, "a", "fine", "bob").payload == b"fine"
        assert {each.grade: each.payload for each in other.find_all("people", "people", 1, "a")} == {
            "coarse": b"rough",
            "fine": b"fine",
        }
        assert other.find("people", "people", 1, "a", "standard") is None
        assert other.standing("people").spent == 2

    def test_a_question_in_an_unknown_grade_is_refused(self, graded: Ledger) -> None:
        with pytest.raises(BudgetError):
            self.pay(graded, "a", "finest")
        assert graded.standing("people").spent == 0
        for change in (
            lambda: graded.extend("people", 2, "1", "why", "finest"),
            lambda: graded.set_share("people", "ann", 1, "finest"),
        ):
            with pytest.raises(RequestError, match="the plan of pool people has no grade finest; name one of"):
                change()

    def test_a_share_limits_an_analyst_in_one_grade(self, graded: Ledger) -> None:
        graded.set_share("people", "ann", 2, "standard")
        graded.set_share("people", "bob", 1, "fine")
        self.pay(graded, "a", "standard")
        for analyst, grade in (("ann", "fine"), ("bob", "standard"), ("eve", "coarse")):
            with pytest.raises(BudgetError) as error:
                self.pay(graded, "b", grade, analyst)
            assert (error.value.analyst, error.value.grade, error.value.answers) == (analyst, grade, 0)
        self.pay(graded, "b", "fine", "bob")
        assert graded.shares("people") == {"ann": {"standard": Standing(2, 1)}, "bob": {"fine": Standing(1, 1)}}
        assert graded.verify() == 2 + 2 + 2

    def test_a_limit_may_be_one_number_for_all_grades_or_a_number_for_each_grade(self, graded: Ledger) -> None:
        self.pay(graded, "a", "standard", most=2)
        self.pay(graded, "b", "coarse", most=2)
        with pytest.raises(BudgetError) as error:
            self.pay(graded, "c", "fine", most=2)
        assert (error.value.analyst, error.value.answers) == ("ann", 2)
        with pytest.raises(BudgetError):
            self.pay(graded, "c", "fine", most={"standard": 5})
        with pytest.raises(BudgetError):
            self.pay(graded, "c", "coarse", most={"coarse": 1})
        self.pay(graded, "c", "fine", most={"fine": 1})

    def test_an_extension_adds_answers_to_one_grade_only(self, graded: Ledger, reopen: Open) -> None:
        self.pay(graded, "a", "fine")
        before = graded.plan("people")
        graded.extend("people", 2, "1.5", "a second edition", "fine", since=before)
        assert graded.standings("people")["fine"] == Standing(3, 1)
        record = reopen().plan("people")
        assert record is not None
        assert [(each.name, each.answers, each.more) for each in record.grades] == [
            ("standard", 3, 0),
            ("fine", 1, 2),
            ("coarse", 2, 0),
        ]
        assert (record.opened_epsilon, record.total_answers) == ("1.5", 8)
        with pytest.raises(RequestError, match="it has 8 answers now"):
            graded.extend("people", 2, "1.5", "a second edition", "coarse", since=before)

    def test_a_new_plan_closes_every_grade_of_the_previous_one(self, graded: Ledger, reopen: Open) -> None:
        rough = graded.record(self.pay(graded, "a", "coarse"), b"rough")
        self.pay(graded, "b", "fine")
        before = graded.plan("people")
        assert before is not None
        graded.replan(plan(2, fine=4), "3", "other accuracies", since=before)
        expected = {"standard": Standing(5, 3), "fine": Standing(5, 1), "coarse": Standing(2, 2)}
        assert graded.standings("people") == expected
        with pytest.raises(BudgetError):
            self.pay(graded, "c", "coarse")
        again = self.pay(reopen(), "a", "coarse")
        assert (again.id, again.payload, graded.plan_of(again)) == (rough.id, b"rough", before)
        assert self.pay(graded, "b", "fine").fresh, "the charge without an answer is void"
        with pytest.raises(RequestError, match="has no grade coarse"):
            graded.extend("people", 1, "4", "why", "coarse")
        assert graded.verify() == len(list(reopen().entries()))

    def test_concurrent_charges_never_exceed_any_grade(self, graded: Ledger) -> None:
        outcomes: list[object] = []

        def work(worker: int) -> None:
            for grade in ("fine", "coarse", "standard") if worker % 2 else ("standard", "coarse", "fine"):
                try:
                    outcomes.append(graded.record(self.pay(graded, f"{worker}", grade), b"x").grade)
                except CountveilError as error:
                    outcomes.append(type(error))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [outcomes.count(grade) for grade in ("fine", "coarse", "standard")] == [1, 2, 3]
        assert outcomes.count(BudgetError) == 24 - 6
        graded.verify()

    # -- versions ------------------------------------------------------------------------------------------------------

    def test_each_fingerprint_of_a_dataset_is_one_numbered_version(self, ledger: Ledger, reopen: Open) -> None:
        assert [ledger.version("people", fingerprint) for fingerprint in ("x", "y", "x", "z", "y")] == [1, 2, 1, 3, 2]
        assert reopen().version("households", "x") == 1
        assert [entry.kind for entry in ledger.entries()].count("version") == 4

    # -- reading and checking ------------------------------------------------------------------------------------------

    def test_charges_are_listed_in_order_and_filtered(self, ledger: Ledger) -> None:
        ledger.open_plan(plan(9, "other"))
        for question, analyst, pool in (("c", "ann", "people"), ("a", "bob", "other"), ("b", "ann", "other")):
            self.charge(ledger, question, analyst, pool)
        assert [charge.question for charge in ledger.charges()] == ["c", "a", "b"]
        assert [charge.question for charge in ledger.charges("other")] == ["a", "b"]
        assert [charge.question for charge in ledger.charges(analyst="ann")] == ["c", "b"]
        assert [charge.question for charge in ledger.charges("other", "ann")] == ["b"]

    def test_replaying_the_entries_gives_the_spent_budget(self, ledger: Ledger) -> None:
        ledger.set_share("people", "ann", 2)
        ledger.record(self.charge(ledger, "a"), b"x")
        self.charge(ledger, "b")
        state = replay_entries(ledger.entries())
        assert state.grades == {("people", "standard"): [3, 2]}
        assert state.shares == {("people", "ann", "standard"): [2, 2]}
        assert len(state.charges) == 2
        assert len(state.answers) == 1
        assert ledger.verify() == len(list(ledger.entries())) == 6

    def test_the_identity_of_a_ledger_does_not_change(self, ledger: Ledger, reopen: Open) -> None:
        assert reopen().identity == ledger.identity
        assert len(ledger.identity) >= 32

    @pytest.mark.parametrize(
        "text", ["", 'it\'s "quoted"; DROP TABLE charge; --', "größer ≤ 5 \U0001f600", "a\nb\x00c"]
    )
    def test_any_text_is_recorded_unchanged(self, ledger: Ledger, reopen: Open, text: str) -> None:
        ledger.charge("people", "people", 1, "a", text, text or "-")
        assert reopen().find("people", "people", 1, "a").text == text  # type: ignore[union-attr]
        ledger.verify()

    def test_concurrent_charges_never_exceed_the_plan(self, ledger: Ledger) -> None:
        ledger.extend("people", 7, "2", "ten in all")
        outcomes: list[object] = []

        def work(worker: int) -> None:
            for i in range(4):
                try:
                    outcomes.append(ledger.record(self.charge(ledger, f"{worker}.{i}"), b"x").payload)
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

    def test_a_closed_ledger_refuses_every_use(self, ledger: Ledger) -> None:
        ledger.close()
        ledger.close()
        for use in (lambda: self.charge(ledger, "a"), lambda: ledger.standing("people"), ledger.verify):
            with pytest.raises(LedgerError, match="the ledger is closed"):
                use()


class TestSqlite(LedgerContract):
    def make_opener(self, folder: Path) -> Open:
        return lambda: SqliteLedger(folder / "x.ledger", folder / "x.anchor")


@pytest.mark.postgres
class TestPostgres(LedgerContract):
    def make_opener(self, folder: Path) -> Open:
        location = database()
        return lambda: PostgresLedger(location, folder / "x.anchor")
