"""Numbers without gaps, for people: drawn in the transaction that writes their row, and rolled back with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timezone, tzinfo
from threading import Event
from typing import Any, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import DateTime, Engine, Integer, type_coerce

from allocator.database.caller import Borrowed, Caller
from allocator.database.django.transaction import DjangoCaller
from allocator.database.verbs import gapless_number_rows as rows
from allocator.database.verbs.gapless_number_rows import Row
from allocator.database.verbs.waiting_columns import Moment, columns_of
from allocator.database.verbs.waiting_number_rows import WaitingNumbers
from allocator.errors import InvalidArgument, InvalidCount, InvalidId, InvalidSetting
from allocator.schemes.gapless_numbers import (
    CALENDAR,
    MAX_COUNT,
    MAX_NUMBER,
    MAX_REASON,
    Number,
    NumberFormat,
    NumberRule,
    Reset,
    day_of,
    place,
)
from allocator.schemes.shared.argument_checks import check_whole, integer, quoted
from allocator.schemes.waiting_numbers import AT_ONCE

Scope = object
"""A str, int or UUID; other types are refused."""
At = date | datetime | None

NO_DAY = date.min
"""Stands for the date of numbers whose format and reset need none, so that the clock is not read."""


class Numbers:
    """Numbers 1, 2, 3 … for each scope and period, without a gap and without a duplicate.

    name: what is numbered, as "invoice": 1 to 64 of the characters A-Z a-z 0-9 _ . : -
    format: how a number is written: any text with `{n}`, or `{n:05}` for at least five digits, and with `{year}`,
        `{yy}` (for 2000 to 2099), `{quarter}`, `{month}`, `{day}` and `{scope}` if wanted. No two numbers of a scope
        may have the same text: the format must hold the field that `reset` names, unless it is a bare `{n}`; `{yy}`
        names a year too.
    reset: "never", "year", "month" or "day": in each of these the numbers restart at `start`.
    year_starts: the first day of a fiscal year, as "04-01"; only with reset="year". `{year}`, `{yy}` and the period are
        the year in which it begins, `{end_yy}` is the next. `{quarter}` counts from its first day.
    start: the first number, 1 to 2**63 - 1.
    timezone: of the dates, as "Europe/Berlin" or a tzinfo; UTC by default. If it is given, a datetime without a tzinfo
        is local time of it, and else refused.
    clock: where the time in seconds since 1970 comes from.

    A number belongs to the caller's transaction: a ROLLBACK, also to a savepoint, returns it, and the next caller gets
    it. Until the transaction ends, other callers of the same scope wait, at most for the lock timeout of their session:
    draw the number last.
    An instance holds only these settings: make one for the whole process; it is thread-safe.
    """

    def __init__(
        self,
        name: str,
        *,
        format: str = "{n}",  # noqa: A002  the word that people know
        reset: Reset = "never",
        year_starts: str = CALENDAR,
        start: int = 1,
        timezone: str | tzinfo | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._zone = None if timezone is None else zone_of(timezone)
        self.rule = NumberRule(name, NumberFormat(format), reset, start, year_starts, name_of(self._zone))
        self._clock = clock
        self._has_dates = self.rule.has_dates

    def __repr__(self) -> str:
        return f"Numbers({self.rule.name!r}, format={self.rule.format.template!r}, reset={self.rule.reset!r})"

    @overload
    def next(self, session: Any, scope: Scope = "", at: At = None, count: None = None) -> Number: ...
    @overload
    def next(self, session: Any, scope: Scope = "", at: At = None, *, count: int) -> list[Number]: ...
    def next(self, session: Any, scope: Scope = "", at: At = None, count: int | None = None) -> Number | list[Number]:
        """Draw the next number of a scope, or a list of the next `count`, in the transaction of the caller.

        session: a `Session` or `Connection` of SQLAlchemy; with asyncio, `await session.run_sync(numbers.next, scope)`;
            or `django.db.connection`, inside of `atomic`.
        scope: whose numbers these are: a tenant, a shop, a journal; text as of a tag, an int or a UUID.
        at: the date of the number, or a datetime, with a tzinfo unless `timezone` was given; now by default.
        count: 1 to 10000.

        Raises `InvalidDatabase` outside of a transaction, `NumberBusy` or `NumberConflict` if the caller should retry
        the whole transaction, `Exhausted` above 2**63 - 1, `InvalidSetting` if its counters keep another
        format, reset, fiscal year or time zone, `SchemaOutOfDate` if the table is missing, and
        `DatabaseRefused` on a replica.
        """
        many = 1 if count is None else check_whole("count", integer(count), 1, MAX_COUNT, InvalidCount)
        caller, row, day = self._place(session, scope, at)
        last = rows.draw(caller, self.rule, row, many)
        if count is None:
            return self.rule.number(last, row["scope"], row["period"], day)
        return [self.rule.number(n, row["scope"], row["period"], day) for n in range(last - many + 1, last + 1)]

    def peek(self, session: Any, scope: Scope = "", at: At = None) -> Number | None:
        """The newest number that this transaction sees; None before the first. Others may draw at any time."""
        caller, row, day = self._place(session, scope, at)
        last = rows.fetch_last(caller, row)
        return None if last is None else self.rule.number(last, row["scope"], row["period"], day)

    def set(self, session: Any, n: int, *, scope: Scope = "", at: At = None) -> Number:
        """Continue after `n`, the newest number that another system issued; part of the caller's transaction.

        n: 1 to 2**63 - 1. Raises `InvalidArgument` if the counter is above it: it would repeat numbers.
        """
        check_whole("n", n, 1, MAX_NUMBER)
        caller, row, day = self._place(session, scope, at)
        last = rows.raise_to(caller, row, n)
        if last > n:
            raise InvalidArgument(
                f"{place(**row)} is at {last} already; lowered to {n}, it would issue {n + 1} to {last} again; "
                "numbers that no row has are accounted for by void()"
            )
        return self.rule.number(n, row["scope"], row["period"], day)

    def void(self, session: Any, number: Number, reason: str) -> bool:
        """Write down why a number is not used, so that an auditor can account for every number.

        number: as `next` or `parse` returned it. reason: 1 to 255 characters.
        Returns False if it was void before; the first reason stays. Raises `InvalidId` for a number not yet issued,
        and for one of another format.
        """
        caller = caller_of(session)
        if not isinstance(number, Number):
            raise InvalidArgument(f"number must be a Number, as of next() or parse(), got {quoted(number)}")
        if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
            raise InvalidArgument(f"a reason is 1 to {MAX_REASON} characters, got {quoted(reason)}")
        row = Row(name=self.rule.name, scope=number.scope, period=number.period)
        last = rows.fetch_last(caller, row)
        if last is None or number.n > last:
            raise InvalidId(
                f"{number.text} was not issued: the newest number of {place(**row)} is {last or 'none yet'}"
            )
        if self.parse(number.text, number.scope, number.period) != number:
            raise InvalidId(f"{number!r} is no number of {self!r}")
        return rows.void(caller, row, number, reason)

    def parse(self, text: str, scope: Scope = "", period: str = "") -> Number:
        """Parse a text. Pass scope and period if the format does not hold them.

        Raises `InvalidId` unless the text is exactly what the format writes.
        """
        return self.rule.parse(text, "" if scope == "" else self.rule.check_scope(scope), period)

    def waiting(
        self, model: Any, *, number: Any, order_by: Any, scope: Any = None, at: Any = None, at_once: int = AT_ONCE
    ) -> WaitingNumbers:
        """Number rows after their commit, so that no transaction waits for another one.

        A transaction writes its row with NULL as the number; it waits from its commit until `assign` numbers it.

        model: a mapped class, a Table with a primary key, or a model of Django. The other arguments are its columns.
        number: takes `n` if it holds integers, else the text.
        order_by: the order of the numbers among rows that wait at the same time.
        scope, at: as of `next`. A row with NULL in one of these does not wait.
        at_once: rows that one transaction numbers at most, 1 to 10000.
        """
        check_whole("at_once", at_once, 1, MAX_COUNT, InvalidCount)
        if (scope is None and "scope" in self.rule.format.fields) or (at is None and self._has_dates):
            raise InvalidSetting(f"{self!r} needs the columns that its format and reset name: scope=, at=")
        columns = columns_of(model, number, order_by, scope, at)
        if columns.at is not None and isinstance(columns.at.type, DateTime) and columns.at.type.timezone:
            moment: Any = type_coerce(columns.at, Moment(str(columns.at)))
            columns = replace(columns, at=moment)
        return WaitingNumbers(self.rule, self._zone, columns, at_once)

    def _day(self, at: At) -> date:
        if at is None and not self._has_dates:
            return NO_DAY
        now = datetime.fromtimestamp(self._clock(), UTC) if at is None else at
        return self.rule.counted_day(day_of(now, self._zone))

    def _place(self, session: Any, scope: Scope, at: At) -> tuple[Caller, Row, date]:
        """The caller's transaction, the counter that is drawn from, and the date that a number shows."""
        caller, day = caller_of(session), self._day(at)
        row = Row(name=self.rule.name, scope=self.rule.check_scope(scope), period=self.rule.period(day))
        return caller, row, day


class Feed:
    """The rows of a table in an order in which a reader that polls misses none: an outbox, a log of changes.

    A transaction writes its row with NULL as the position. `assign` numbers the rows that are committed 1, 2, 3 …,
    without a gap. Once a position is seen, no lower one appears: read `WHERE position > :last ORDER BY position`.

    model: a mapped class, a Table with a primary key, or a model of Django. The other arguments are its columns.
    position: of integers, NULL at first; with a unique index.
    order_by: the order among rows that wait at the same time.
    name: of the counter; by default table.position.
    at_once: rows that one transaction numbers at most, 1 to 10000.
    """

    def __init__(
        self, model: Any, *, position: Any, order_by: Any, name: str | None = None, at_once: int = AT_ONCE
    ) -> None:
        columns = columns_of(model, position, order_by, None, None)
        if not isinstance(columns.number.type, Integer):
            raise InvalidSetting(f"positions are integers, and {columns.number} is {columns.number.type}")
        self.name = name or str(columns.number)
        check_whole("at_once", at_once, 1, MAX_COUNT, InvalidCount)
        self._rows = WaitingNumbers(Numbers(self.name).rule, None, columns, at_once, leaves_held=True)

    def __repr__(self) -> str:
        return f"Feed({self.name!r})"

    def assign(self, source: Any) -> int:
        """Give a position to each committed row that no other transaction holds, and return how many got one here.

        source: as of `Numbers.waiting(…).assign`: an Engine, a sessionmaker, or `django.db.connection`.
        """
        return self._rows.assign(source)

    def follow(self, engine: Engine, stop: Event | None = None, every: float = 0.1) -> int:
        """Assign positions until `stop` is set, and return how many; for a thread, or a process of its own.

        It looks each `every` seconds. Errors are logged, and tried again. Several may run at once.
        """
        return self._rows.follow(engine, stop, every)


def caller_of(given: Any) -> Caller:
    # `django.db.connection` finds the connection of this thread at each access: once is enough.
    operations = getattr(given, "ops", None)
    return Borrowed(given) if operations is None else DjangoCaller(operations.connection)


def name_of(zone: tzinfo | None) -> str:
    """What a counter keeps of a time zone, and `zone_of` reads: its name or fixed offset; "-" of one with neither."""
    if zone is None or isinstance(zone, timezone):
        return str(timezone((zone or UTC).utcoffset(None)))
    return getattr(zone, "key", None) or "-"


def zone_of(timezone: object) -> tzinfo:
    if isinstance(timezone, tzinfo):
        return timezone
    if timezone == "UTC":  # also where a machine knows no time zones
        return UTC
    try:
        if str(timezone).startswith("UTC"):
            return datetime.strptime(str(timezone), "UTC%z").tzinfo or UTC
        return ZoneInfo(timezone)  # type: ignore[arg-type]
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidSetting(
            f"timezone must be a name as 'Europe/Berlin', or a tzinfo, got {quoted(timezone)}; a machine without time "
            "zones needs: pip install tzdata"
        ) from None
