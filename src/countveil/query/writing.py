"""Writes typed conditions as text in the query language; parsing the text gives the same condition.

A test is written on its own column or, if that is shorter, on a column derived from it. A source that is not declared
cannot be named in a query. Tests on such a source are written as tests on the columns derived from it, joined by AND
and OR.
"""

from __future__ import annotations

from collections.abc import Sequence

from countveil.query.condition import All, Effort, Membership, Typed, domain_of, null_of
from countveil.query.points import Points, contains, difference, intersection, set_of, size, union_all
from countveil.query.schema import Column, Schema
from countveil.query.tokens import literal, quote_name


def text(condition: Typed, schema: Schema, effort: Effort | None = None) -> str:
    """Write a condition as text in the query language."""
    effort = effort or Effort()
    if isinstance(condition, Membership):
        return " OR ".join(_write(condition, schema, effort))
    joint = " AND " if isinstance(condition, All) else " OR "
    return joint.join(_inside(part, isinstance(condition, All), schema, effort) for part in condition.parts)


def _inside(part: Typed, conjunction: bool, schema: Schema, effort: Effort) -> str:
    if isinstance(part, Membership):
        return _join(_write(part, schema, effort), conjunction)
    return f"({text(part, schema, effort)})"


def _join(tests: Sequence[str], conjunction: bool = True) -> str:
    """Join alternative tests by OR, in parentheses if the result will stand beside AND."""
    inner = " OR ".join(tests)
    return f"({inner})" if conjunction and len(tests) > 1 else inner


def restate(member: Membership, column: Column) -> tuple[Column, Points] | None:
    """Restate a test on a source as a test on a column derived from it; None if no set of the column's values is
    equivalent."""
    if column.source is None:
        return column, member.points
    inside = intersection(member.points, domain_of(member.column))
    chosen = [i for i, covered in cover(column, inside).items() if covered == column.block_sizes[i]]
    if sum(column.block_sizes[i] for i in chosen) != size(inside):
        return None
    return column, set_of([*([-1] if inside != member.points else []), *chosen])


def cover(column: Column, points: Points) -> dict[int, int]:
    """For each label of a derived column, how many of the given points have it; labels of no point are left out."""
    covered: dict[int, int] = {}
    runs, i = column.runs, 0
    for low, high in points:
        while i < len(runs) and runs[i][1] < low:
            i += 1
        k = i
        while k < len(runs) and runs[k][0] <= high:
            first, last, label = runs[k]
            covered[label] = covered.get(label, 0) + min(last, high) - max(first, low) + 1
            k += 1
        i = max(i, k - 1)
    return covered


def _write(member: Membership, schema: Schema, effort: Effort) -> list[str]:
    """Write one test on a source as one or more texts, to be joined by OR."""
    columns = schema.columns_of[member.column.name]
    effort.spend(sum(len(column.runs) + len(member.points) for column in columns if column.source is not None))
    views = [view for column in columns if (view := restate(member, column)) is not None]
    if views:
        return min((_tests(*view) for view in views), key=lambda tests: sum(map(len, tests)))
    inside = intersection(member.points, domain_of(member.column))
    nulls = [f"{quote_name(columns[0].name)} IS NULL"] if inside != member.points else []
    return nulls + _Source(columns, effort).write(inside)


class _Source:
    """Writes tests on a source that is not declared as tests on the columns derived from it."""

    def __init__(self, columns: Sequence[Column], effort: Effort) -> None:
        self.columns, self.effort = columns, effort

    def write(self, inside: Points) -> list[str]:
        """Write a set of points as alternatives, to be joined by OR.

        A single conjunction is used if one is enough. Otherwise the alternatives are all labels whose points all lie in
        the set, and conjunctions for the remaining points.
        """
        whole = self.conjunction(inside, inside)
        if whole is not None:
            return [whole]
        alternatives: list[str] = []
        left = inside
        for column in self.columns:
            within = [i for i, n in self.cover(column, inside).items() if n == column.block_sizes[i]]
            points = column.pull_back(set_of(within))
            if intersection(points, left):
                alternatives += _tests(column, set_of(within))
                left = difference(left, points)
        if left:
            rest = self.conjunction(left, inside)
            alternatives += [rest] if rest is not None else self.slices(left, inside)
        return alternatives

    def cover(self, column: Column, points: Points) -> dict[int, int]:
        self.effort.spend(len(column.runs) + len(points))
        return cover(column, points)

    def conjunction(self, points: Points, within: Points) -> str | None:
        """Tests joined by AND that are true for all of `points` and for no point outside `within`; None if there
        are no such tests."""
        hulls: list[tuple[Column, Points, Points]] = []
        for column in self.columns:
            labels = self.cover(column, points)
            if sum(labels.values()) == size(points):
                own = set_of(labels)
                hulls.append((column, own, column.pull_back(own)))
        if not hulls or not contains(within, _common(hulls)):
            return None
        for hull in list(hulls):
            others = [other for other in hulls if other is not hull]
            if others and contains(within, _common(others)):
                hulls = others
        return _conjoin([_join(_tests(column, own)) for column, own, _ in hulls])

    def slices(self, left: Points, within: Points) -> list[str]:
        """Write the points in `left` as alternatives, none of which is true outside `within`.

        The columns are tried one after the other. Each label of a column gets one alternative, if there are tests for
        it; labels that need the same tests on the other columns share it.
        """
        alternatives: list[str] = []
        for column in self.columns:
            joint: dict[tuple[Points, ...], list[tuple[int, Points]]] = {}
            for label in sorted(self.cover(column, left)):
                part = intersection(left, column.blocks[label])
                others = tuple(set_of(self.cover(other, part)) for other in self.columns if other is not column)
                joint.setdefault(others, []).append((label, part))
            for parts in joint.values():
                points = union_all(piece for _, part in parts for piece in part)
                tests = self.conjunction(points, within)
                if tests is not None and intersection(points, left):
                    alternatives.append(tests)
                    left = difference(left, points)
        while left:  # every point lies in blocks whose common points are in the set
            point = ((left[0][0], left[0][0]),)
            labels = [(column, set_of(self.cover(column, point))) for column in self.columns]
            known = [(column, own, column.pull_back(own)) for column, own in labels if own]
            alternatives.append(_conjoin([_join(_tests(column, own)) for column, own, _ in known]))
            left = difference(left, _common(known))
        return alternatives


def _common(hulls: Sequence[tuple[Column, Points, Points]]) -> Points:
    common = hulls[0][2]
    for *_, points in hulls[1:]:
        common = intersection(common, points)
    return common


def _conjoin(tests: Sequence[str]) -> str:
    return tests[0] if len(tests) == 1 else f"({' AND '.join(tests)})"


# -- tests on one column -----------------------------------------------------------------------------------------------


def _tests(column: Column, points: Points) -> list[str]:
    """Write a set of points as tests on one column: IS NULL, =, <>, IN, NOT IN, >=, <= or BETWEEN."""
    name = quote_name(column.name)
    null, domain = null_of(column), domain_of(column)
    tests = [f"{name} IS NULL"] if contains(points, null) else []
    inside = intersection(points, domain)
    missing = difference(domain, inside)
    if not inside:
        return tests
    if not missing:
        return [*tests, f"{name} IS NOT NULL"]
    if size(missing) < (size(inside) if column.is_listed else len(inside)):
        return [*tests, _listing(name, column, missing, "<>", "NOT IN")]
    alone = tuple(piece for piece in inside if _is_short(piece, column))
    for low, high in inside:
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
    """Whether an interval of points reads better as a list of its values than as BETWEEN."""
    return column.is_listed or piece[1] - piece[0] < 1


def _listing(name: str, column: Column, members: Points, one: str, many: str) -> str:
    listed = [literal(column.value(point)) for low, high in members for point in range(low, high + 1)]
    return f"{name} {one} {listed[0]}" if len(listed) == 1 else f"{name} {many} ({', '.join(listed)})"
