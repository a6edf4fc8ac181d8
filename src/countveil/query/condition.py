"""Typed conditions: sets of points joined by AND and OR, and nothing else.

SQL's logic has three values, and a row is counted when its condition is *true*. Pushing NOT down to the tests leaves
only AND and OR over statements "the column's value is in S", where S holds points of the domain and perhaps NULL. A
value *outside* the domain is in no S, so it makes every test on its column, negated or not, fall short of true.

`simplified` gives a deterministic form whose text reads well and means the same; which questions are *equal* is decided
by `diagram`, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from countveil.errors import QueryError
from countveil.query.tokens import literal, quoted
from countveil.schema import Column

MAX_EFFORT = 2_000_000


class Effort:
    """Steps left to spend on one question: what needs more is refused, not waited for.

    Steps are counted where the work is done, less than a microsecond each: a refusal depends on the question and the
    schema alone, never on the machine or the data.
    """

    __slots__ = ("left",)

    def __init__(self, limit: int | None = None) -> None:
        self.left = MAX_EFFORT if limit is None else limit

    def spend(self, steps: int) -> None:
        """Count steps, or refuse the question."""
        self.left -= steps
        if self.left < 0:
            raise QueryError("a condition too tangled to compare with others", "write it shorter, or ask in parts")


# -- sets of points ----------------------------------------------------------------------------------------------------


Points = tuple[tuple[int, int], ...]
"""Closed intervals (lo, hi), sorted, with a gap between neighbours, so that equal sets are equal tuples. NULL is the
point just before the domain, `column.first - 1`; *outside* is never a member of any set."""

EMPTY: Points = ()


def interval(low: int, high: int) -> Points:
    """The points low..high.

    >>> interval(1, 3), interval(3, 1)
    (((1, 3),), ())
    """
    return ((low, high),) if low <= high else EMPTY


def set_of(members: Iterable[int]) -> Points:
    """The set with these members.

    >>> set_of([3, 1, 2, 7])
    ((1, 3), (7, 7))
    """
    return union_all((member, member) for member in members)


def union_all(intervals: Iterable[tuple[int, int]]) -> Points:
    """The union of any intervals, overlapping or not."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1] + 1:
            if high > joined[-1][1]:
                joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def union(a: Points, b: Points) -> Points:
    return union_all((*a, *b))


def intersection(a: Points, b: Points) -> Points:
    """The common points, in one walk over both.

    >>> intersection(((0, 5), (8, 9)), ((4, 8),))
    ((4, 5), (8, 8))
    """
    common: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            common.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def difference(a: Points, b: Points) -> Points:
    """The points of a that are not in b.

    >>> difference(((0, 9),), ((2, 3), (9, 12)))
    ((0, 1), (4, 8))
    """
    left: list[tuple[int, int]] = []
    j = 0
    for first, high in a:
        low = first
        while j < len(b) and b[j][1] < low:
            j += 1
        k = j
        while k < len(b) and b[k][0] <= high:
            if low < b[k][0]:
                left.append((low, b[k][0] - 1))
            low = b[k][1] + 1
            k += 1
        if low <= high:
            left.append((low, high))
    return tuple(left)


def contains(a: Points, b: Points) -> bool:
    """Is every point of b in a?"""
    return not difference(b, a)


def size(a: Points) -> int:
    return sum(high - low + 1 for low, high in a)


# -- conditions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """The value of the column is in `points`."""

    column: Column
    points: Points


@dataclass(frozen=True, slots=True)
class All:
    """Every part is true; the empty All always is."""

    parts: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Some part is true; the empty Any never is."""

    parts: tuple[Typed, ...]


Typed = Member | All | Any

ALWAYS = All(())
NEVER = Any(())


def null_of(column: Column) -> Points:
    """NULL as a set: the point just before the domain."""
    return ((column.first - 1, column.first - 1),)


def domain_of(column: Column) -> Points:
    """Every value of the domain, NULL not among them."""
    return ((column.first, column.last),)


def simplified(condition: Typed, effort: Effort | None = None) -> Typed:
    """The same condition, flattened, with one set for a column wherever one is enough; a fixed point of itself.

    Guarantee: true for exactly the same rows.
    """
    simplify = _Simplifying(effort or Effort())
    while (simpler := simplify.once(condition)) != condition:
        condition = simpler
    return condition


class _Simplifying:
    """One pass after another, each counted."""

    def __init__(self, effort: Effort) -> None:
        self.spend = effort.spend

    def once(self, condition: Typed) -> Typed:
        if isinstance(condition, Member):
            self.spend(10)
            return condition if condition.points else NEVER
        conjunction = isinstance(condition, All)
        absorbing, neutral = (NEVER, ALWAYS) if conjunction else (ALWAYS, NEVER)
        found: dict[str, list[Member]] = {}
        others: dict[Typed, None] = {}
        for part in _flat(condition):
            simple = self.once(part)
            if simple == absorbing:
                return absorbing
            if simple == neutral:
                continue
            if isinstance(simple, Member):
                found.setdefault(simple.column.name, []).append(simple)
            else:
                others[simple] = None
        merged = {name: self.merged(members, conjunction) for name, members in found.items()}
        if conjunction:
            if any(not member.points for member in merged.values()):
                return NEVER
            kept = [self.restricted(other, merged) for other in others]
        else:
            kept = [other for other in others if not self.implied(other, merged)]
        parts = sorted([*merged.values(), *dict.fromkeys(kept)], key=self.order)
        if len(parts) == 1:
            return parts[0]
        return All(tuple(parts)) if conjunction else Any(tuple(parts))

    def merged(self, members: list[Member], conjunction: bool) -> Member:
        """The members of one column as one, joined in pairs so that long lists stay cheap."""
        join = intersection if conjunction else union
        found = [member.points for member in members]
        while len(found) > 1:
            self.spend(sum(map(len, found)) + 5 * len(found))
            pairs = [join(a, b) for a, b in zip(found[::2], found[1::2], strict=False)]
            found = pairs + found[2 * len(pairs) :]
        return Member(members[0].column, found[0])

    def restricted(self, condition: Typed, known: dict[str, Member]) -> Typed:
        """The condition where each column in `known` is known to lie in its set."""
        if isinstance(condition, Member):
            limit = known.get(condition.column.name)
            if limit is None:
                return condition
            self.spend(20 + 2 * (len(condition.points) + len(limit.points)))
            if contains(condition.points, limit.points):
                return ALWAYS
            return Member(condition.column, intersection(condition.points, limit.points))
        parts = tuple(self.restricted(part, known) for part in condition.parts)
        return All(parts) if isinstance(condition, All) else Any(parts)

    def implied(self, condition: Typed, alternatives: dict[str, Member]) -> bool:
        """Is a conjunction already covered by a set that is enough alone?"""
        if not isinstance(condition, All):
            return False
        for part in condition.parts:
            enough = alternatives.get(part.column.name) if isinstance(part, Member) else None
            if enough is not None and isinstance(part, Member):
                self.spend(10 + len(enough.points) + len(part.points))
                if contains(enough.points, part.points):
                    return True
        return False

    def order(self, condition: Typed) -> tuple[object, ...]:
        """Sets by their column, then the rest by what they hold."""
        if isinstance(condition, Member):
            self.spend(10 + len(condition.points))
            return (0, condition.column.name, condition.points)
        return (1, isinstance(condition, All), tuple(self.order(part) for part in condition.parts))


def _flat(condition: All | Any) -> list[Typed]:
    """The parts, with nested conditions of the same kind opened."""
    flat: list[Typed] = []
    for part in condition.parts:
        if isinstance(part, type(condition)) and not isinstance(part, Member):
            flat += _flat(part)
        else:
            flat.append(part)
    return flat


def tests(condition: Typed) -> int:
    """How many comparisons an engine makes for a row: a list of values is one, an interval is one."""
    if not isinstance(condition, Member):
        return sum(tests(part) for part in condition.parts)
    if condition.column.listed:
        return 1
    long = sum(1 for low, high in condition.points if low < high)
    return long + (long < len(condition.points))


# -- as SQL text -------------------------------------------------------------------------------------------------------


def text(condition: Typed) -> str:
    """The condition in the query language; parsing it gives the condition back."""
    if isinstance(condition, Member):
        return member_text(condition)
    joint = " AND " if isinstance(condition, All) else " OR "
    return joint.join(_inside(part, isinstance(condition, All)) for part in condition.parts)


def _inside(part: Typed, conjunction: bool) -> str:
    shown = text(part)
    several = isinstance(part, (All, Any)) or (conjunction and _alternatives(part) > 1)
    return f"({shown})" if several else shown


def member_text(member: Member) -> str:
    """One set as tests: IS NULL, =, <>, IN, NOT IN, >=, <=, BETWEEN, joined by OR where one is not enough."""
    return " OR ".join(_tests(member))


def _alternatives(member: Member) -> int:
    return len(_tests(member))


def _tests(member: Member) -> list[str]:
    column, name = member.column, quoted(member.column.name)
    null, domain = null_of(column), domain_of(column)
    tests = [f"{name} IS NULL"] if contains(member.points, null) else []
    found = intersection(member.points, domain)
    missing = difference(domain, found)
    if not found:
        return tests
    if not missing:
        return [*tests, f"{name} IS NOT NULL"]
    if size(missing) < (size(found) if column.listed else len(found)):
        return [*tests, _listing(name, column, missing, "<>", "NOT IN")]
    alone = tuple(piece for piece in found if _is_short(piece, column))
    for low, high in found:
        if _is_short((low, high), column):
            continue
        first, last = literal(column.value(low)), literal(column.value(high))
        if low == column.first:
            tests.append(f"{name} <= {last}")
        elif high == column.last:
            tests.append(f"{name} >= {first}")
        else:
            tests.append(f"{name} BETWEEN {first} AND {last}")
    if alone:
        tests.append(_listing(name, column, alone, "=", "IN"))
    return tests


def _is_short(piece: tuple[int, int], column: Column) -> bool:
    """Points that read better in a list than as an interval."""
    return column.listed or piece[1] - piece[0] < 1


def _listing(name: str, column: Column, members: Points, one: str, many: str) -> str:
    listed = [literal(column.value(point)) for low, high in members for point in range(low, high + 1)]
    return f"{name} {one} {listed[0]}" if len(listed) == 1 else f"{name} {many} ({', '.join(listed)})"
