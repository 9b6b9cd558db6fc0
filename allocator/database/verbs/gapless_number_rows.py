"""The rows of `allocator_number` and `allocator_number_void`, in the transaction of a caller.

One statement raises a row, which stays locked until that transaction ends. A ROLLBACK returns the number, and nobody
has drawn a later one meanwhile. So there are no gaps, and a scope has one writer at a time.
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
from allocator.schemes.gapless_numbers import MAX_NUMBER, Number, out_of_numbers, place

T = TypeVar("T")

PEEK = f"SELECT n FROM allocator_number WHERE {KEY}"


class Row(TypedDict):
    """The key of a row of `allocator_number`."""

    name: str
    scope: str
    period: str


def draw(caller: Caller, row: Row, count: int, start: int, wait: float | None) -> int:
    """Raise the row by `count`, and return the last number drawn. Raises `Exhausted`."""
    first, last = start - 1 + count, None
    if first <= MAX_NUMBER:
        last = translated(caller, row, lambda: caller.numbers.draw(caller, row, first, count, wait))
    if last is None:
        raise out_of_numbers(place(**row))
    return last


def fetch_last(caller: Caller, row: Row) -> int | None:
    """The newest number that this transaction sees; None before the first one."""
    rows = translated(caller, row, lambda: caller.fetch(PEEK, row))
    return int(rows[0][0]) if rows else None


def raise_to(caller: Caller, row: Row, n: int) -> int:
    """Raise the newest number to `n` unless it is greater, and return it."""
    return translated(caller, row, lambda: caller.numbers.raise_to(caller, row, n))


def void(caller: Caller, row: Row, number: Number, reason: str) -> bool:
    """Write down that a number is void; False if that was done before."""
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
