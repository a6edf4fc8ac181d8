"""What an answer counts, in words: rows or people, within which bounds. It depends only on the question and the schema.

A person counts in at most `cells_per_person` cells, with at most `rows_per_person` rows in each. Further rows are left
out before noise is added. So the interval beside an answer is for the count within these bounds, which can be less than
the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from countveil.query.schema import Schema

WITHIN = "interval for the count within these bounds"
PLAIN = "interval for the count"


@dataclass(frozen=True)
class Truth:
    """What is counted, who is protected, and the bounds on what one person adds.

    >>> from countveil.query.schema import Schema
    >>> truth_of(Schema("visits", (), "patient", 3, 2), people=False, cells=8).text
    'rows of people; at most 3 rows each in a cell, 2 cells each'
    """

    text: str = field(metadata={"description": "What is counted, and the bounds on what one person adds."})
    interval: str = field(metadata={"description": "What the 95 % interval of a count is for."})
    counted: str = field(metadata={"description": "rows, or people."})
    unit: str = field(metadata={"description": 'The column that identifies a person, or "row": every row is one.'})
    rows_per_person: int
    cells_per_person: int
    bounded: bool = field(metadata={"description": "Whether the bounds can leave rows or people out of a cell."})

    @property
    def sentence(self) -> str:
        """What is counted, in words. If the bounds can leave rows out, the text also says what the interval is for."""
        return f"{self.text}; {self.interval}" if self.bounded else self.text

    @property
    def statement(self) -> str:
        """The sentence, with the column that identifies a person: all that a receipt or a file says of its counts.

        >>> from countveil.query.schema import Schema
        >>> truth_of(Schema("visits", (), "patient"), people=True, cells=8).statement
        'people; at most 1 row each in a cell, 1 cell each; interval for the count within these bounds; a person is \
all rows with one value of patient'
        """
        who = "" if self.unit == "row" else f"; a person is all rows with one value of {self.unit}"
        return f"{self.sentence}{who}"

    def describe_sum(self, cells: int) -> str:
        """What the sum of so many cells counts, if a question for their total counts something else; else empty.

        >>> from countveil.query.schema import Schema
        >>> truth_of(Schema("visits", (), "patient", 3, 2), people=True, cells=8).describe_sum(8)
        'the sum counts a person once in each of up to 2 cells; a question for the total counts a person once: these \
are different numbers'
        """
        most = min(self.cells_per_person, cells)
        if most <= 1:
            return ""
        rows = f"up to {_many(self.rows_per_person, 'row')} of a person"
        once = "a person once" if self.counted == "people" else rows
        parts = f"the sum counts {once} in each of up to {most:,} cells"
        return f"{parts}; a question for the total counts {once}: these are different numbers"


def truth_of(schema: Schema, people: bool, cells: int) -> Truth:
    """Describe what a question counts: people or rows of a dataset with this schema, in a table with so many cells."""
    rows, most = schema.rows_per_person, schema.cells_per_person
    bounded = not schema.unit_is_row and (not people or rows == 1 or cells > most)
    if schema.unit_is_row:
        text = "rows; every row is one person"
    elif people and rows > 1:
        text = f"people; each once in a cell, at most {_many(most, 'cell')} each"
    else:
        who = "people" if people else "rows of people"
        text = f"{who}; at most {_many(rows, 'row')} each in a cell, {_many(most, 'cell')} each"
    counted = "people" if people and not schema.unit_is_row else "rows"
    return Truth(text, WITHIN if bounded else PLAIN, counted, schema.unit, rows, most, bounded)


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
