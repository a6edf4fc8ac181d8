"""What a question will cost and give, worked out before it is asked, from the plan and the record alone."""

from __future__ import annotations

from countveil.answers import DryRun
from countveil.exact import decimal_text
from countveil.intervals import Intervals
from countveil.ledger import Charge, PlanRecord
from countveil.query import Question
from countveil.releases import MOST_COLLECTED
from countveil.sum_bias import bias_of_sum


def foretold(question: Question, record: PlanRecord, intervals: Intervals, found: Charge | None, left: int) -> DryRun:
    """The dry run of a question, given its charge if it was asked before and the answers that are left."""
    mechanism = intervals.mechanism
    worst, useful = mechanism.certificate.worst_error, max(1, 10 * mechanism.margin_95)
    sums = bias_of_sum(mechanism, question.cells)
    notes = [
        f"within {mechanism.margin_95} of the truth in 95 % of releases, never more than {worst} away",
        f"counts from about {useful} people on are right to 10 %",
    ]
    if question.cells > 1:
        margin = min(intervals.of_sum(question.cells), question.cells * worst)
        notes.append(f"the sum of all cells is free, and within {margin} of the truth in 95 % of releases")
        notes.append(sums.note)
    if found is not None:
        ready = "the answer is on the record" if found.payload is not None else "it is paid for, not yet answered"
        notes.append(f"asked before: {ready}, and free")
    if question.cells > MOST_COLLECTED:
        notes.append("too large to collect: release(..., output=...) writes it to files")
    if question.never:
        notes.append("no declared value satisfies the condition: the answer would be noise around zero")
    return DryRun(
        question.sha256,
        question.text,
        question.schema.name,
        record.pool,
        question.cells,
        0 if found is not None else 1,
        left,
        mechanism.margin_95,
        worst,
        decimal_text(mechanism.eta, 6),
        useful,
        decimal_text(sums.largest, 6, "up"),
        tuple(notes),
    )
