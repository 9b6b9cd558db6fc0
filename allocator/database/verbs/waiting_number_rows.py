"""Rows of the application that wait for a number without gaps, in transactions of our own.

The counter's row is locked first, so one transaction at a time numbers the rows of a group. Only then are they read,
so nobody else has numbered them. The read takes no lock: it neither waits for rows that are not committed nor locks the
gap that MySQL's writers insert into. Each row is then locked by its key, which settles its scope and date.

Plain numbers, without a scope, period or format, are written by one statement for all rows, which leaves those that
others hold.

Each group takes a transaction of its own: nobody holds two counters, so no order of scopes can deadlock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import tzinfo
from threading import Event
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import Engine, Executable, Integer, select

from allocator.database.caller import Caller, own_transaction
from allocator.database.django.transaction import own_atomic
from allocator.database.verbs.gapless_number_rows import Row, draw, translated
from allocator.database.verbs.waiting_columns import WaitingColumns, scope_in
from allocator.errors import (
    AllocatorError,
    DatabaseUnavailable,
    Exhausted,
    InvalidArgument,
    InvalidDatabase,
    InvalidSetting,
    NumberBusy,
    NumberConflict,
)
from allocator.runtime.turns import Turns
from allocator.schemes.gapless_numbers import Group, Number, NumberRule, place
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.shared.retry_pace import RETRY_PAUSE
from allocator.schemes.waiting_numbers import Due, Key, WaitingRow, in_groups, numbered

T = TypeVar("T")
log = logging.getLogger("allocator")

ATTEMPTS = 3
"""Runs of a transaction that others disturb."""
HELD = 3
"""Groups that others hold, each for a lock timeout, before a call gives up."""
in_use: WeakValueDictionary[object, Turns] = WeakValueDictionary()
"""For each process, object, engine and scope. Else its threads would queue at the counter to find nothing."""
MEND_PAUSE = 10.0
"""Seconds of a follower after an error that lasts until somebody mends its cause."""
STATEMENT = 100
"""Rows of one statement: SQLite refuses an expression of a thousand parts."""


def own(given: Any) -> AbstractContextManager[Caller]:
    """A transaction of our own, of SQLAlchemy or Django."""
    operations = getattr(given, "ops", None)
    return own_transaction(given) if operations is None else own_atomic(operations.connection)


def fetch(caller: Caller, statement: Executable) -> list[WaitingRow]:
    return [WaitingRow(tuple(key), scope, at) for *key, scope, at in caller.select(statement)]


class NothingWaits(Exception):
    """Rolls back a transaction that has drawn a number and found no row for it."""


def in_parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as one statement may name."""
    return (rows[start : start + STATEMENT] for start in range(0, len(rows), STATEMENT))


@dataclass(frozen=True, slots=True)
class WaitingNumbers:
    """What `Numbers.waiting` returns: numbers the rows that wait, in short transactions of its own. Thread-safe."""

    rule: NumberRule
    zone: tzinfo | None
    columns: WaitingColumns
    at_once: int
    leaves_held: bool = False
    """Leave plain rows that other transactions hold to a later call, and wait for none."""

    @property
    def is_plain(self) -> bool:
        """Whether the numbers are integers of one counter."""
        rule, columns = self.rule, self.columns
        is_one = rule.format.is_bare and rule.reset == "never" and columns.scope is columns.at is None
        return is_one and isinstance(columns.number.type, Integer)

    def follow(self, engine: Engine, stop: Event | None = None, every: float = 0.1) -> int:
        """Number rows as they are committed, until `stop` is set, and return how many this call has numbered.

        It looks each `every` seconds. Errors are logged, and tried again. Several may run at once, in threads and
        processes.
        """
        done, stop, free = 0, stop or Event(), replace(self, leaves_held=True)
        while not stop.is_set():
            try:
                done += (numbered := free.assign(engine))
                if not numbered:
                    stop.wait(every)
            except InvalidDatabase:  # what was given here
                raise
            except AllocatorError as error:
                log.warning("numbers of %r wait: %s", self.rule.name, str(error).partition("; roll back")[0])
                passes = isinstance(error, DatabaseUnavailable | NumberConflict)
                stop.wait(RETRY_PAUSE if passes else MEND_PAUSE)
        return done

    def assign(self, source: Any, scope: object = None) -> int:
        """Number the rows that wait, of a scope or of all, and return how many this call has numbered.

        Each row that was committed before has its number afterwards, from this call or from another one: calls
        on this object with the same Engine and scope, that wait while one runs, share the next run.

        source: an Engine, a sessionmaker, or a Session or Connection in no transaction; with asyncio, `await
            session.run_sync(waiting.assign, scope)`; or `django.db.connection`.

        Raises, after all other rows have their numbers, `InvalidArgument` for a row whose scope or date no number can
            have, `NumberBusy` if others hold a counter or a row until the lock timeout, and what else stops a group. At
            the fourth that others hold it raises at once: the groups behind wait for another call.
        """
        if scope is not None:
            if self.columns.scope is None:
                rows = self.columns.table.name
                raise InvalidArgument(f"the rows of {rows} are all of one scope, got {quoted(scope)}")
            self.rule.check_scope(scope)
            scope = scope_in(self.columns.scope, scope)
        if not isinstance(source, Engine) or source.dialect.is_async:  # whose tasks share a thread, which must not wait
            return self._assign(source, scope)
        turns = in_use.setdefault((os.getpid(), id(self), source, type(scope), str(scope)), Turns())
        return turns.run(lambda: self._assign(source, scope)) or 0

    def _assign(self, source: Any, scope: object) -> int:
        done, most, before = 0, self.at_once, None
        if self.is_plain:
            done = self._number_free(source)
            if self.leaves_held:
                return done
        failed: dict[Group, AllocatorError] = {}
        while True:
            with own(source) as caller:
                rows = fetch(caller, self.columns.waiting(scope, most))
            groups, wrong = in_groups(self.rule, self.zone, rows)
            done += sum(self._number(source, found, most, failed) for found in groups.values())
            if len(rows) < most or rows == before:
                break
            before = rows
            most = self.at_once + len(wrong) + sum(len(groups.get(group, ())) for group in failed)
        for error in (*failed.values(), *wrong):
            raise error
        return done

    def _number_free(self, source: Any) -> int:
        """Number plain rows that wait and that nobody holds, `at_once` in a transaction."""
        with own(source) as caller:
            if not fetch(caller, self.columns.waiting(None, 1)):
                return 0
        # In another transaction: one that has read waits for no other writer of SQLite, and fails at once.
        done, count = 0, self.at_once
        with suppress(NothingWaits):
            while count == self.at_once:
                with own(source) as caller:
                    count = self._run_free(caller, self._row(Group("", "")))
                done += count
        return done

    def _run_free(self, caller: Caller, row: Row) -> int:
        """The same in this transaction. Raises `NothingWaits` if others hold all rows."""
        first = draw(caller, self.rule, row, 1)  # locks the counter before the rows are read
        statement = self.columns.number_free(first - 1, self.at_once, caller.numbers.by_key)
        try:
            count = translated(caller, row, lambda: caller.update(statement))
        except Exhausted as error:  # the column's numbers, not the counter's
            raise self._no_room(f"numbers above {first - 1}") from error
        if not count:
            raise NothingWaits
        last = draw(caller, self.rule, row, count - 1) if count > 1 else first
        if caller.numbers.cuts_down and not caller.select(self.columns.holding(last)):
            raise self._no_room(f"numbers above {first - 1}")
        return count

    def _number(self, source: Any, found: list[Due], most: int, failed: dict[Group, AllocatorError]) -> int:
        """Number rows of a group. Its error is kept: it holds up no other group, unless the database has ended."""
        group, attempts = found[0].group, 0
        while group not in failed:
            attempts += 1
            try:
                with own(source) as caller:
                    return self._run(caller, found[0], most)
            except NothingWaits:  # another call has numbered them
                break
            except AllocatorError as error:
                busy, held = isinstance(error, NumberBusy), sum(isinstance(one, NumberBusy) for one in failed.values())
                if isinstance(error, DatabaseUnavailable) or (busy and held >= HELD):
                    raise
                if busy or not isinstance(error, NumberConflict) or attempts == ATTEMPTS:
                    failed[group] = error
        return 0

    def _run(self, caller: Caller, first: Due, most: int) -> int:
        """Number rows of the group of this one, among the first of its scope. Raises `NothingWaits` if none waits."""
        row = self._row(first.group)
        last = draw(caller, self.rule, row, 1)  # locks the counter before the rows are read
        try:
            rows = translated(caller, row, lambda: self._locked(caller, first, most))
        except NumberBusy as error:
            raise NumberBusy(f"another transaction changes a row that waits for a number of {place(**row)}") from error
        if not rows:
            raise NothingWaits
        if len(rows) > 1:
            last = draw(caller, self.rule, row, len(rows) - 1)
        numbers = numbered(self.rule, rows, last)
        try:
            return translated(caller, row, lambda: self._write(caller, numbers))
        except Exhausted as error:  # the column's numbers, not the counter's
            raise self._no_room(numbers[-1][1]) from error

    def _row(self, group: Group) -> Row:
        return Row(name=self.rule.name, scope=group.scope, period=group.period)

    def _locked(self, caller: Caller, first: Due, most: int) -> list[Due]:
        """The rows of the group, each read again under its lock: until then it may change its scope or date."""
        seen = fetch(caller, self.columns.waiting(first.row.scope, most))
        keys = [one.row.key for one in self._of_group(first.group, seen)]
        hint = caller.numbers.by_key
        again = [row for part in in_parts(keys) for row in fetch(caller, self.columns.lock(part, hint))]
        if keys and not again:  # it was changed meanwhile, unless that repeats
            raise NumberConflict(f"a row of {self.columns.table.name} waits, but its key {keys[0]} does not find it")
        return self._of_group(first.group, again)

    def _of_group(self, group: Group, rows: Iterable[WaitingRow]) -> list[Due]:
        """Of the group alone: the `=` of a column may find other scopes, as those in capital letters."""
        return in_groups(self.rule, self.zone, rows).groups.get(group, [])

    def _write(self, caller: Caller, numbers: Sequence[tuple[Key, Number]]) -> int:
        """Write all of them, or raise."""
        parts = (self.columns.update(part, caller.numbers.by_key) for part in in_parts(numbers))
        written = sum(map(caller.update, parts))
        if written != len(numbers):
            _, one = numbers[0]
            raise NumberConflict(
                f"{len(numbers)} rows waited for a number of {place(self.rule.name, one.scope, one.period)}, and only "
                f"{written} took it; nothing was written, run it again"
            )
        if caller.numbers.cuts_down:
            key, greatest = numbers[-1]  # and its text is the longest of the group
            ((found,),) = caller.select(select(self.columns.number).where(self.columns.same(key)))
            if found != greatest.n and str(found).rstrip() != greatest.text.rstrip():
                raise self._no_room(greatest)
        return written

    def _no_room(self, number: object) -> InvalidSetting:
        return InvalidSetting(f"{self.columns.number} has no room for {number}; nothing was written, widen the column")
