"""The rows of `allocator_number` and `allocator_number_void`, in the transaction of a caller.

A row is raised by one statement and stays locked until that transaction ends: its ROLLBACK takes the number back, and
nobody was given a later one meanwhile. That is why there are no gaps, and why one writer at a time has a scope.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TypedDict, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from allocator.database.caller import Caller
from allocator.database.driver_errors import is_held, translate_drawn
from allocator.database.number_dialects import KEY
from allocator.schemes.numbering import MAX_NUMBER, Number, out_of_numbers, place

T = TypeVar("T")

PEEK = f"SELECT n FROM allocator_number WHERE {KEY}"


class Row(TypedDict):
    """Which row is meant."""

    name: str
    scope: str
    period: str


def draw(caller: Caller, row: Row, count: int, start: int, wait: float | None) -> int:
    """Raise the row by `count`: the last of the numbers that are the caller's now. Raises `Exhausted`."""
    first, last = start - 1 + count, None
    if first <= MAX_NUMBER:
        last = translated(caller, row, lambda: caller.numbers.draw(caller, row, first, count, wait))
    if last is None:
        raise out_of_numbers(place(**row))
    return last


def fetch_last(caller: Caller, row: Row) -> int | None:
    """The newest number, as this transaction sees it; None before the first one."""
    rows = translated(caller, row, lambda: caller.fetch(PEEK, row))
    return int(rows[0][0]) if rows else None


def raise_to(caller: Caller, row: Row, n: int) -> int:
    """Raise the newest number to `n` unless it is greater: what it is now."""
    return translated(caller, row, lambda: caller.numbers.raise_to(caller, row, n))


def void(caller: Caller, row: Row, number: Number, reason: str) -> bool:
    """Keep that a number is void; False where that is kept already."""
    statement = caller.numbers.voids.format(n=number.n)
    parameters = {**row, "written": number.text, "reason": reason}
    return translated(caller, row, lambda: caller.run(statement, parameters)).rowcount == 1


def translated(caller: Caller, row: Row, act: Callable[[], T]) -> T:
    began = monotonic()
    try:
        return act()
    except SQLAlchemyError as error:
        passed, holder, dialect = monotonic() - began, "", caller.numbers.dialect
        if is_held(error, dialect):
            with suppress(SQLAlchemyError):
                holder = caller.numbers.fetch_holder(caller, row)
        raise translate_drawn(error, dialect, caller.where, place(**row), passed, holder) from error
