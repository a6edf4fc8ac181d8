"""Typed conditions: tests on columns, joined by AND and OR.

SQL's logic has three values, and a row is counted when its condition is *true*. NOT has been applied to the single
tests, so only AND and OR join statements of one form: "the column's value is in the set S". S contains points (integers
that stand for values, see `schema`) and perhaps NULL. A value *outside* the declared domain is in no set, so no test on
it is true, not even a negated one.

`simplify` gives an equivalent, deterministic form whose text reads well. `diagram` decides exactly which questions are
*equal*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from countveil.errors import QueryError
from countveil.query.points import (
    Points,
    contains,
    intersection,
    union,
)
from countveil.query.schema import Column

MAX_EFFORT = 2_000_000


class Effort:
    """A limit on the work that one question may cause, counted in steps. A question that needs more steps is refused.

    The code that does the work reports its steps; each takes less than a microsecond. Whether a question is refused
    therefore depends on the question and the schema alone, never on the speed of the machine or on the data.
    """

    __slots__ = ("left",)

    def __init__(self, limit: int | None = None) -> None:
        self.left = MAX_EFFORT if limit is None else limit

    def spend(self, steps: int) -> None:
        """Count this many steps; refuse the question when the limit is exceeded."""
        self.left -= steps
        if self.left < 0:
            raise QueryError("a condition that is too complex", "write a simpler one, or ask several questions")


# -- conditions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Membership:
    """The test "the value of `column` is in `points`". A test on a derived column is stored as a test on its source."""

    column: Column
    points: Points


@dataclass(frozen=True, slots=True)
class All:
    """A conjunction: true if every part is true. Without parts it is always true."""

    parts: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """A disjunction: true if some part is true. Without parts it is never true."""

    parts: tuple[Typed, ...]


Typed = Membership | All | Any

ALWAYS = All(())
NEVER = Any(())


def null_of(column: Column) -> Points:
    """The set that contains only NULL. NULL is represented by the integer just before the first value of the domain."""
    return ((column.first - 1, column.first - 1),)


def domain_of(column: Column) -> Points:
    """The set of all values of the column's domain, without NULL."""
    return ((column.first, column.last),)


def known_of(columns: Iterable[Column]) -> dict[str, Membership]:
    """What grouping by these columns implies: a row is counted only if each column has a value in its domain.

    The result maps the name of each source to this test, stated for values of the source.
    """
    known: dict[str, Membership] = {}
    for column in columns:
        root = column.root
        before = known.get(root.name)
        points = column.inside if before is None else intersection(before.points, column.inside)
        known[root.name] = Membership(root, points)
    return known


def simplify(condition: Typed, effort: Effort | None = None) -> Typed:
    """An equivalent, flattened condition with one test per column where one is enough.

    Guarantee: the result is true for exactly the same rows. Simplifying the result again does not change it.
    """
    simplifier = _Simplifier(effort or Effort())
    while (simpler := simplifier.simplify_once(condition)) != condition:
        condition = simpler
    return condition


class _Simplifier:
    """Simplifies a condition in repeated passes and reports the steps that this takes."""

    def __init__(self, effort: Effort) -> None:
        self.spend = effort.spend

    def simplify_once(self, condition: Typed) -> Typed:
        if isinstance(condition, Membership):
            self.spend(10)
            return condition if condition.points else NEVER
        conjunction = isinstance(condition, All)
        absorbing, neutral = (NEVER, ALWAYS) if conjunction else (ALWAYS, NEVER)
        by_column: dict[str, list[Membership]] = {}
        others: dict[Typed, None] = {}
        for part in _flat(condition):
            simple = self.simplify_once(part)
            if simple == absorbing:
                return absorbing
            if simple == neutral:
                continue
            if isinstance(simple, Membership):
                by_column.setdefault(simple.column.name, []).append(simple)
            else:
                others[simple] = None
        merged = {name: self.merge(members, conjunction) for name, members in by_column.items()}
        if conjunction:
            if any(not member.points for member in merged.values()):
                return NEVER
            kept = [self.restrict(other, merged) for other in others]
        else:
            kept = [other for other in others if not self.is_implied(other, merged)]
        parts = sorted([*merged.values(), *dict.fromkeys(kept)], key=self.order)
        if len(parts) == 1:
            return parts[0]
        return All(tuple(parts)) if conjunction else Any(tuple(parts))

    def merge(self, members: list[Membership], conjunction: bool) -> Membership:
        """Join several tests on one column into one test. They are joined in pairs, so that long lists stay cheap."""
        join = intersection if conjunction else union
        sets = [member.points for member in members]
        while len(sets) > 1:
            self.spend(sum(map(len, sets)) + 5 * len(sets))
            pairs = [join(a, b) for a, b in zip(sets[::2], sets[1::2], strict=False)]
            sets = pairs + sets[2 * len(pairs) :]
        return Membership(members[0].column, sets[0])

    def restrict(self, condition: Typed, known: dict[str, Membership]) -> Typed:
        """The condition, simplified for rows that pass all tests in `known` (one test for each column name)."""
        if isinstance(condition, Membership):
            limit = known.get(condition.column.name)
            if limit is None:
                return condition
            self.spend(20 + 2 * (len(condition.points) + len(limit.points)))
            if contains(condition.points, limit.points):
                return ALWAYS
            return Membership(condition.column, intersection(condition.points, limit.points))
        parts = tuple(self.restrict(part, known) for part in condition.parts)
        return All(parts) if isinstance(condition, All) else Any(parts)

    def is_implied(self, condition: Typed, alternatives: dict[str, Membership]) -> bool:
        """Whether the condition is a conjunction that implies one of the alternatives, so that OR does not need it."""
        if not isinstance(condition, All):
            return False
        for part in condition.parts:
            enough = alternatives.get(part.column.name) if isinstance(part, Membership) else None
            if enough is not None and isinstance(part, Membership):
                self.spend(10 + len(enough.points) + len(part.points))
                if contains(enough.points, part.points):
                    return True
        return False

    def order(self, condition: Typed) -> tuple[object, ...]:
        """A sort key for conditions: first tests, by the name of their column, then AND and OR, by their parts."""
        if isinstance(condition, Membership):
            self.spend(10 + len(condition.points))
            return (0, condition.column.name, condition.points)
        return (1, isinstance(condition, All), tuple(self.order(part) for part in condition.parts))


def _flat(condition: All | Any) -> list[Typed]:
    """The parts of a condition; parts of the same kind (AND in AND, OR in OR) are replaced by their own parts."""
    flat: list[Typed] = []
    for part in condition.parts:
        if isinstance(part, type(condition)) and not isinstance(part, Membership):
            flat += _flat(part)
        else:
            flat.append(part)
    return flat


def tests(condition: Typed) -> int:
    """How many comparisons an engine makes for each row. A list of values counts as one, and so does an interval."""
    if not isinstance(condition, Membership):
        return sum(tests(part) for part in condition.parts)
    if condition.column.is_listed:
        return 1
    long = sum(1 for low, high in condition.points if low < high)
    return long + (long < len(condition.points))
