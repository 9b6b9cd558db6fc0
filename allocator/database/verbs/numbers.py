"""The rows of `allocator_number` and `allocator_number_void`, in the transaction of a caller.

A row is raised by one statement and stays locked until that transaction ends: its ROLLBACK takes the number back, and
nobody was given a later one meanwhile. That is why there are no gaps, and why one writer at a time has a scope.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from allocator.database.caller import Caller
from allocator.database.driver_errors import is_held, translate_drawn
from allocator.database.number_dialects import KEY
from allocator.schemes.numbering import MAX_NUMBER, Number, place

T = TypeVar("T")

PEEK = f"SELECT n FROM allocator_number WHERE {KEY}"
IS_VOID = f"SELECT reason FROM allocator_number_void WHERE {KEY} AND n = :n"


class Row(NamedTuple):
    """Which row is meant."""

    name: str
    scope: str
    period: str


def draw(caller: Caller, row: Row, count: int, start: int, wait: float | None) -> int | None:
    """Raise the row by `count`: the last of the numbers that are the caller's now; None where fewer are left."""
    first = start - 1 + count
    parameters = {**row._asdict(), "first": first, "count": count, "most": MAX_NUMBER - count}
    if first > MAX_NUMBER:
        return None
    return translated(caller, row, lambda: caller.numbers.draw(caller, parameters, wait))


def fetch_last(caller: Caller, row: Row) -> int | None:
    """The newest number, as this transaction sees it; None before the first one."""
    rows = translated(caller, row, lambda: caller.run(PEEK, row._asdict()).rows)
    return int(rows[0][0]) if rows else None


def raise_to(caller: Caller, row: Row, n: int) -> int:
    """Raise the newest number to `n` unless it is greater: what it is now."""
    return translated(caller, row, lambda: caller.numbers.raise_to(caller, {**row._asdict(), "n": n}))


def void(caller: Caller, name: str, number: Number, reason: str) -> bool:
    """Keep that a number is void; False where that is kept already."""
    row = Row(name, number.scope, number.period)
    parameters = {**row._asdict(), "n": number.n, "written": number.text, "reason": reason}
    return translated(caller, row, lambda: caller.run(caller.numbers.voids, parameters)).rowcount == 1


def translated(caller: Caller, row: Row, act: Callable[[], T]) -> T:
    began = monotonic()
    try:
        return act()
    except SQLAlchemyError as error:
        passed, holder = monotonic() - began, ""
        if is_held(error, caller.dialect):
            with suppress(SQLAlchemyError):
                holder = caller.numbers.fetch_holder(caller, row._asdict())
        raise translate_drawn(error, caller.dialect, caller.where, place(*row), passed, holder) from error
