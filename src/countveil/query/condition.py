"""Typed conditions: sets of points joined by AND and OR.

SQL's logic has three values, and a row is counted when its condition is *true*. Pushing NOT down to the tests leaves
only AND and OR over statements "the column's value is in S", where S has points of the domain and perhaps NULL. A
value *outside* the domain is in no S, so no test on its column is true for it, negated or not.

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
    """The work that one question may cause, in steps; a question that needs more is refused.

    The code that does the work counts its steps, each less than a microsecond. So a refusal depends on the question and
    the schema alone, never on the machine or the data.
    """

    __slots__ = ("left",)

    def __init__(self, limit: int | None = None) -> None:
        self.left = MAX_EFFORT if limit is None else limit

    def spend(self, steps: int) -> None:
        """Count steps; refuse the question when none are left."""
        self.left -= steps
        if self.left < 0:
            raise QueryError("a condition that is too complex", "write a simpler one, or ask several questions")


# -- conditions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Membership:
    """The value of the column is in `points`; a test on a derived column is stated on its source."""

    column: Column
    points: Points


@dataclass(frozen=True, slots=True)
class All:
    """Every part is true; the empty All is always true."""

    parts: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Some part is true; the empty Any is never true."""

    parts: tuple[Typed, ...]


Typed = Membership | All | Any

ALWAYS = All(())
NEVER = Any(())


def null_of(column: Column) -> Points:
    """NULL as a set: the point just before the domain."""
    return ((column.first - 1, column.first - 1),)


def domain_of(column: Column) -> Points:
    """Every value of the domain, without NULL."""
    return ((column.first, column.last),)


def known_of(columns: Iterable[Column]) -> dict[str, Membership]:
    """By the name of each source, that its value is in the domains of all columns: what grouping by them implies."""
    known: dict[str, Membership] = {}
    for column in columns:
        root = column.root
        before = known.get(root.name)
        points = column.inside if before is None else intersection(before.points, column.inside)
        known[root.name] = Membership(root, points)
    return known


def simplify(condition: Typed, effort: Effort | None = None) -> Typed:
    """An equivalent condition, flattened, with one set per column where one is enough; simplifying it changes nothing.

    Guarantee: the result is true for exactly the same rows.
    """
    simplifier = _Simplifier(effort or Effort())
    while (simpler := simplifier.simplify_once(condition)) != condition:
        condition = simpler
    return condition


class _Simplifier:
    """Simplifies a condition in passes and counts the effort."""

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
        """The sets of one column joined into one, in pairs so that long lists stay cheap."""
        join = intersection if conjunction else union
        sets = [member.points for member in members]
        while len(sets) > 1:
            self.spend(sum(map(len, sets)) + 5 * len(sets))
            pairs = [join(a, b) for a, b in zip(sets[::2], sets[1::2], strict=False)]
            sets = pairs + sets[2 * len(pairs) :]
        return Membership(members[0].column, sets[0])

    def restrict(self, condition: Typed, known: dict[str, Membership]) -> Typed:
        """The condition, simplified for rows where each column in `known` lies in its set."""
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
        """Whether one of the alternatives is true wherever this conjunction is."""
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
        """A sort key: sets by their column first, then other conditions by their parts."""
        if isinstance(condition, Membership):
            self.spend(10 + len(condition.points))
            return (0, condition.column.name, condition.points)
        return (1, isinstance(condition, All), tuple(self.order(part) for part in condition.parts))


def _flat(condition: All | Any) -> list[Typed]:
    """The parts, with nested conditions of the same kind flattened."""
    flat: list[Typed] = []
    for part in condition.parts:
        if isinstance(part, type(condition)) and not isinstance(part, Membership):
            flat += _flat(part)
        else:
            flat.append(part)
    return flat


def tests(condition: Typed) -> int:
    """How many comparisons an engine makes for each row: a list of values is one, an interval is one."""
    if not isinstance(condition, Membership):
        return sum(tests(part) for part in condition.parts)
    if condition.column.is_listed:
        return 1
    long = sum(1 for low, high in condition.points if low < high)
    return long + (long < len(condition.points))
