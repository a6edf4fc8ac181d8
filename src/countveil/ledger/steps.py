"""Work that stops where it needs a change of the ledger: many such works share one thread, one transaction, one sync.

A work is a generator. It yields each change that must be on disk before it goes on, and is resumed with what came of
it; it yields None where what follows may take long, so that nobody has to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from countveil.ledger.grouping import Waiting

T = TypeVar("T")


class Change(NamedTuple):
    """A change of the ledger; `anchored` if what it allows goes out at once."""

    name: str
    make: Callable[[], Any]
    anchored: bool = True


Steps = Generator[Change | None, Any, T]


class Changing(Protocol):
    """What makes changes durable."""

    def made(self, changes: Sequence[Change]) -> list[Waiting[Any]]:
        """Make changes, in one transaction as far as can be; what came of each."""
        ...


class Done(NamedTuple):
    """How the n-th work ended: with a value, or an error, or, where it is slow, not yet."""

    number: int
    value: Any = None
    error: Exception | None = None
    slow: bool = False


def alone(ledger: Changing, steps: Steps[T]) -> T:
    """The value of a work."""
    came: Waiting[Any] | None = None
    try:
        while True:
            change = _resumed(steps, came)
            came = None if change is None else ledger.made([change])[0]
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


def together(ledger: Changing, works: Sequence[Steps[Any]]) -> Iterator[list[Done]]:
    """Works side by side in this thread: the changes that they want at the same time are made together.

    Yields those that have ended, as soon as they have. One that says it is slow is left where it is.
    """
    going: list[tuple[int, Waiting[Any] | None]] = [(number, None) for number in range(len(works))]
    try:
        while going:
            done, wanting, changes = [], [], []
            for number, came in going:
                try:
                    change = _resumed(works[number], came)
                except StopIteration as end:
                    done.append(Done(number, end.value))
                except Exception as error:
                    done.append(Done(number, error=error))
                else:
                    if change is None:
                        done.append(Done(number, slow=True))
                    else:
                        wanting.append(number)
                        changes.append(change)
            going = [(number, None) for number in wanting]
            if done:
                yield done
            going = list(zip(wanting, ledger.made(changes), strict=True)) if changes else []
    finally:  # here, and not wherever the memory of a work is freed
        for number, _ in going:
            with suppress(Exception):
                works[number].close()


def _resumed(steps: Steps[Any], came: Waiting[Any] | None) -> Change | None:
    """The next change that a work wants, after what came of the last."""
    if came is None:
        return next(steps)
    try:
        found = came.outcome()
    except Exception as error:
        return steps.throw(error)
    return steps.send(found)
