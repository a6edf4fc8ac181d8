"""Years, quarters, months, ISO weeks, days and weekdays: where they begin, and what they are called.

Time zones come from the package tzdata, never from the machine or a database. pyproject.toml pins its version exactly,
so periods are the same on every machine. The instant at which a period begins is computed here once; databases only
compare instants.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Literal, get_args
from zoneinfo import ZoneInfo

Period = Literal["year", "quarter", "month", "week", "weekday", "day"]
PERIODS: tuple[Period, ...] = get_args(Period)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DAY = datetime.timedelta(1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)  # noqa: UP017
_FORMS = (
    ("year", r"([0-9]{4})"),
    ("quarter", r"([0-9]{4})-Q([1-4])"),
    ("month", r"([0-9]{4})-([0-9]{2})"),
    ("week", r"([0-9]{4})-W([0-9]{2})"),
)


def start_of(day: datetime.date, by: Period) -> datetime.date:
    """The first day of the period that a day belongs to.

    >>> start_of(datetime.date(2024, 12, 31), "week"), start_of(datetime.date(2024, 12, 31), "quarter")
    (datetime.date(2024, 12, 30), datetime.date(2024, 10, 1))
    """
    match by:
        case "year":
            return day.replace(month=1, day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            return day.replace(day=1)
        case "week":
            return day - day.weekday() * DAY
        case _:
            return day


def end_of(day: datetime.date, by: Period) -> datetime.date:
    """The first day after the period that a day belongs to."""
    start = start_of(day, by)
    longest = {"year": 366, "quarter": 92, "month": 31, "week": 7}.get(by, 1)
    return start_of(start + longest * DAY, by)


def name_of(day: datetime.date, by: Period) -> str:
    """What the period of a day is called.

    >>> [name_of(datetime.date(2024, 12, 31), by) for by in PERIODS]
    ['2024', '2024-Q4', '2024-12', '2025-W01', 'Tuesday', '2024-12-31']
    """
    year, week, _ = day.isocalendar()
    return {
        "year": f"{day.year:04}",
        "quarter": f"{day.year:04}-Q{(day.month + 2) // 3}",
        "month": f"{day.year:04}-{day.month:02}",
        "week": f"{year:04}-W{week:02}",
        "weekday": WEEKDAYS[day.weekday()],
        "day": day.isoformat(),
    }[by]


def periods(by: Period, low: datetime.date, high: datetime.date) -> Iterator[tuple[datetime.date, str]]:
    """The first day and the name of each period, from the period of the day `low` to that of the day `high`."""
    start, end = start_of(low, by), end_of(high, by)
    while start < end:
        yield start, name_of(start, by)
        start = end_of(start, by)


def read_day(written: object, *, last: bool = False) -> datetime.date | None:
    """The first day, or the last one, of a period written as 2024, 2024-Q3, 2024-07, 2024-W27 or 2024-07-01.

    >>> read_day("2024-02", last=True), read_day("2024-W01"), read_day("24-01")
    (datetime.date(2024, 2, 29), datetime.date(2024, 1, 1), None)
    """
    if isinstance(written, datetime.date) and not isinstance(written, datetime.datetime):
        return written
    text = str(written) if isinstance(written, str | int) and not isinstance(written, bool) else ""
    try:
        for form, pattern in _FORMS:
            parts = re.fullmatch(pattern, text)
            if parts is None:
                continue
            year, number = int(parts[1]), int(parts[2]) if len(parts.groups()) > 1 else 1
            if form == "week":
                start = datetime.date.fromisocalendar(year, number, 1)
            else:
                start = datetime.date(year, number * 3 - 2 if form == "quarter" else number, 1)
            try:
                return end_of(start, form) - DAY if last else start  # type: ignore[arg-type]
            except OverflowError:  # the period ends after the year 9999
                return datetime.date.max
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    return None


@lru_cache(maxsize=64)
def load_zone(name: str) -> ZoneInfo | None:
    """A zone of the package tzdata, None if it has no such zone."""
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", name):
        return None
    file = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    try:
        with file.open("rb") as opened:
            return ZoneInfo.from_file(opened, key=name)
    except (OSError, ValueError):
        return None


def instant_of(day: datetime.date, zone: ZoneInfo) -> int:
    """The moment, in seconds since 1970 in UTC, at which the date in this time zone first reaches `day`.

    In a zone whose clocks skip midnight, the day begins later than at midnight. A day that the zone skips entirely
    begins with the next day. A day that is left and reached again, because clocks go back just after midnight, begins
    when it is first reached.

    >>> instant_of(datetime.date(2024, 3, 31), load_zone("Europe/Berlin"))
    1711839600
    """
    midnight = datetime.datetime.combine(day, datetime.time(), zone)
    late = int((midnight - EPOCH).total_seconds())
    early = late - 2 * 86_400

    def is_reached(second: int) -> bool:
        return (EPOCH + datetime.timedelta(seconds=second)).astimezone(zone).date() >= day

    if is_reached(late) and not is_reached(late - 1):
        return late
    late += 86_400
    while late - early > 1:
        middle = (early + late) // 2
        early, late = (early, middle) if is_reached(middle) else (middle, late)
    return late
