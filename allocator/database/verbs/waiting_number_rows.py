"""Rows of the application that wait for a number without gaps, in transactions of our own.

The counter's row is locked first, so one transaction at a time numbers the rows of a group. Only then are they read,
so nobody else has numbered them. The read takes no lock: it neither waits for rows that are not committed nor locks the
gap that MySQL's writers insert into. Each row is then locked by its key, which settles its scope and date.

Groups whose counters and rows nobody holds are numbered together. Each other one takes a transaction of its own: who
holds many counters waits for no other and for no row, so no order of scopes can deadlock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Engine,
    Executable,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    and_,
    case,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.types import NULLTYPE

from allocator.database.caller import Caller, own_transaction
from allocator.database.django.transaction import own_atomic
from allocator.database.verbs.gapless_number_rows import Row, draw, translated
from allocator.errors import (
    AllocatorError,
    DatabaseUnavailable,
    Exhausted,
    InvalidArgument,
    InvalidSetting,
    NumberBusy,
    NumberConflict,
)
from allocator.runtime.turns import Turns
from allocator.schemes.gapless_numbers import Group, Number, NumberRule, place
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.waiting_numbers import Due, Key, WaitingRow, in_groups, numbered

T = TypeVar("T")

ATTEMPTS = 3
"""Runs of a transaction that others disturb."""
in_use: WeakValueDictionary[object, Turns] = WeakValueDictionary()
"""For each process, engine and scope. Else the threads of a scope would queue at its counter to find nothing."""
STATEMENT = 100
"""Rows or groups of one statement: SQLite refuses an expression of a thousand parts."""


@dataclass(frozen=True, slots=True)
class WaitingColumns:
    """The columns of a table whose rows wait; scope, at: None if there is no such column."""

    table: Table
    number: Column[Any]
    order: Column[Any]
    scope: Column[Any] | None = None
    at: Column[Any] | None = None

    @property
    def key(self) -> list[Column[Any]]:
        return list(self.table.primary_key.columns)

    @property
    def waits(self) -> ColumnElement[bool]:
        filled = [one.is_not(None) for one in (self.scope, self.at) if one is not None]
        return and_(self.number.is_(None), *filled)

    def select(self, *where: ColumnElement[bool]) -> Select[Any]:
        """Select rows in their order."""
        beside = [null() if one is None else one for one in (self.scope, self.at)]
        return select(*self.key, *beside).where(*where).order_by(*dict.fromkeys([self.order, *self.key]))

    def waiting(self, scope: object, most: int) -> Select[Any]:
        """Select the first rows that wait, of a scope or, for None, of all."""
        if self.scope is None or scope is None:
            return self.select(self.waits).limit(most)
        if isinstance(self.scope.type, String):  # an int or a UUID is a scope by its text
            scope = str(scope)
        return self.select(self.waits, self.scope == scope).limit(most)

    def among(self, keys: Iterable[Key]) -> ColumnElement[bool]:
        if len(self.key) == 1:
            return self.key[0].in_([key for (key,) in keys])
        return or_(*map(self.same, keys))

    def same(self, key: Key) -> ColumnElement[bool]:
        return and_(*(column == value for column, value in zip(self.key, key, strict=True)))

    def still_waiting(self, keys: Iterable[Key]) -> ColumnElement[bool]:
        """These rows, if they wait: by CASE, since planners would else find them by an index of all that wait."""
        return and_(self.among(keys), case((self.waits, 1), else_=0) == 1)

    def lock(self, keys: Iterable[Key], hint: str, *, free: bool) -> Executable:
        """Select those of these rows that still wait, and lock them; free: only those that nobody holds."""
        locked = self.select(self.still_waiting(keys)).with_for_update(skip_locked=free)
        return locked.with_hint(self.table, hint) if hint else locked

    def update(self, numbers: Sequence[tuple[Key, Number]], hint: str) -> Executable:
        """Write the numbers into rows that have none."""
        whens = [(self.same(key), literal(self.value(number), self.number.type)) for key, number in numbers]
        waiting = self.still_waiting(key for key, _ in numbers)
        statement = update(self.table).where(waiting).values({self.number: case(*whens, else_=self.number)})
        return statement.with_hint(hint) if hint else statement

    def size(self, number: Number) -> int:
        """What grows until the column has no room for it."""
        value = self.value(number)
        return value if isinstance(value, int) else len(value)

    def value(self, number: Number) -> int | str:
        """What the column takes. MySQL without its strict mode would cut off what is too long."""
        if isinstance(self.number.type, Integer):
            return number.n
        room = getattr(self.number.type, "length", None)
        if room and len(number.text) > room:
            raise InvalidSetting(f"{self.number} has room for {room} characters, and {number.text!r} has more")
        return number.text


def columns_of(model: Any, number: object, order_by: object, scope: object, at: object) -> WaitingColumns:
    """The columns of a mapped class, a Table or a model of Django. Raises `InvalidSetting`."""
    table = table_of(model)
    found = WaitingColumns(
        table,
        column_in(table, number),
        column_in(table, order_by),
        None if scope is None else column_in(table, scope),
        None if at is None else column_in(table, at),
    )
    if not found.key:
        raise InvalidSetting(f"the table {table.name} has no primary key, by which a row that waits could be found")
    if not found.number.nullable:
        raise InvalidSetting(f"rows wait with NULL as their number, but {found.number} is NOT NULL")
    return found


def table_of(model: Any) -> Table:
    table = getattr(model, "__table__", model)
    if isinstance(table, Table):
        return table
    if (fields := getattr(model, "_meta", None)) is None:
        raise InvalidSetting(f"rows wait in a mapped class, a Table or a model of Django, got {quoted(model)}")
    return Table(fields.db_table, MetaData(), *map(column_of, fields.concrete_fields))


def column_of(field: Any) -> Column[Any]:
    """The column of a field of Django. `DjangoCaller` sees to values of other types."""
    kind = field.get_internal_type()
    holds: Any = String(field.max_length) if kind == "CharField" else NULLTYPE
    if "Integer" in kind or "AutoField" in kind:
        holds = BigInteger()
    key, info = field.primary_key, {"field": field}
    return Column(field.column, holds, primary_key=key, nullable=field.null, key=field.attname, info=info)


def column_in(table: Table, named: Any) -> Column[Any]:
    """A column by its name, or by itself, as an attribute of a mapped class too."""
    name = named if isinstance(named, str) else getattr(getattr(named, "expression", None), "key", None)
    found = table.columns.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidSetting(f"{quoted(named)} is no column of the table {table.name}")
    return found


def own(given: Any) -> AbstractContextManager[Caller]:
    """A transaction of our own, of SQLAlchemy or Django."""
    operations = getattr(given, "ops", None)
    return own_transaction(given) if operations is None else own_atomic(operations.connection)


def lock_free(caller: Caller, name: str, groups: Iterable[Group]) -> set[Group]:
    """Lock the counters of these groups that are there and that nobody holds."""
    if caller.numbers.locks_all:
        caller.run(caller.numbers.locks_all, {})
        return set(groups)
    keys = dict(enumerate(groups))
    either = " OR ".join(f"name = :name AND scope = :scope{n} AND period = :period{n}" for n in keys)
    values = {f"{column}{n}": value for n, key in keys.items() for column, value in key._asdict().items()}
    statement = f"SELECT scope, period FROM allocator_number WHERE {either} FOR UPDATE SKIP LOCKED"
    return {Group(*found) for found in caller.fetch(statement, {"name": name, **values})}


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

    def assign(self, source: Any, scope: object = None) -> int:
        """Number the rows that wait, of a scope or of all, and return how many this call has numbered.

        Each row that was committed before has its number afterwards, from this call or from another one: calls of
        threads with the same Engine and scope, that wait while one runs, share the next run.

        source: an Engine, a sessionmaker, or a Session or Connection in no transaction; with asyncio, `await
            session.run_sync(waiting.assign, scope)`; or `django.db.connection`.

        Raises, after all other rows have their numbers, `InvalidArgument` for a row whose scope or date no number can
            have, `NumberBusy` if others hold a counter or a row until the lock timeout, and what else stops a group.
        """
        if scope is not None and self.columns.scope is None:
            raise InvalidArgument(f"the rows of {self.columns.table.name} are all of one scope, got {quoted(scope)}")
        if not isinstance(source, Engine) or source.dialect.is_async:  # whose tasks share a thread, which must not wait
            return self._assign(source, scope)
        turns = in_use.setdefault((os.getpid(), id(self), source, type(scope), str(scope)), Turns())
        return turns.run(turns.call(), lambda: self._assign(source, scope)) or 0

    def _assign(self, source: Any, scope: object) -> int:
        done, most, before = 0, self.at_once, None
        failed: dict[Group, AllocatorError] = {}
        while True:
            with own(source) as caller:
                rows = fetch(caller, self.columns.waiting(scope, most))
            groups, wrong = in_groups(self.rule, self.zone, rows)
            for part in in_parts([(group, found) for group, found in groups.items() if group not in failed]):
                together = self._number_together(source, part)
                alone = (found for group, found in part if group not in together)
                done += sum(map(len, together.values())) + sum(self._number(source, one, most, failed) for one in alone)
            if len(rows) < most or rows == before:
                break
            before = rows
            most = self.at_once + len(wrong) + sum(len(groups.get(group, ())) for group in failed)
        for error in (*failed.values(), *wrong):
            raise error
        return done

    def _number_together(self, source: Any, groups: Sequence[tuple[Group, list[Due]]]) -> dict[Group, list[Due]]:
        """Number the rows of groups, in one transaction; returns those of which nobody holds counter or row."""
        if len(groups) == 1:
            return {}
        try:
            with own(source) as caller:
                return self._run_together(caller, dict(groups))
        except DatabaseUnavailable:
            raise
        except NumberConflict:  # who is alone waits, or tries again
            return {}
        except AllocatorError:  # of one of them, which is told when it is alone
            half = len(groups) // 2
            return self._number_together(source, groups[:half]) | self._number_together(source, groups[half:])

    def _run_together(self, caller: Caller, groups: dict[Group, list[Due]]) -> dict[Group, list[Due]]:
        row = self._row(next(iter(groups)))
        free = translated(caller, row, lambda: lock_free(caller, self.rule.name, groups))
        keys = [one.row.key for group in groups if group in free for one in groups[group]]
        again = in_groups(self.rule, self.zone, translated(caller, row, lambda: self._lock(caller, keys, free=True)))
        found = {group: rows for group, rows in again.groups.items() if rows == groups.get(group)}
        numbers: list[tuple[Key, Number]] = []
        for group, rows in found.items():
            last = draw(caller, self._row(group), len(rows), self.rule.start)
            numbers += numbered(self.rule, rows, last)
        translated(caller, row, lambda: self._write(caller, numbers))
        return found

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
                busy = isinstance(error, NumberBusy)
                if isinstance(error, DatabaseUnavailable) or (busy and len(failed) >= ATTEMPTS):
                    raise
                if busy or not isinstance(error, NumberConflict) or attempts == ATTEMPTS:
                    failed[group] = error
        return 0

    def _run(self, caller: Caller, first: Due, most: int) -> int:
        """Number rows of the group of this one, among the first of its scope. Raises `NothingWaits` if none waits."""
        row = self._row(first.group)
        last = draw(caller, row, 1, self.rule.start)  # locks the counter before the rows are read
        try:
            rows = translated(caller, row, lambda: self._locked(caller, first, most))
        except NumberBusy as error:
            raise NumberBusy(f"another transaction changes a row that waits for a number of {place(**row)}") from error
        if not rows:
            raise NothingWaits
        if len(rows) > 1:
            last = draw(caller, row, len(rows) - 1, self.rule.start)
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
        again = self._lock(caller, keys, free=False)
        if keys and not again:  # it was changed meanwhile, unless that repeats
            raise NumberConflict(f"a row of {self.columns.table.name} waits, but its key {keys[0]} does not find it")
        return self._of_group(first.group, again)

    def _of_group(self, group: Group, rows: Iterable[WaitingRow]) -> list[Due]:
        """Of the group alone: the `=` of a column may find other scopes, as those in capital letters."""
        return in_groups(self.rule, self.zone, rows).groups.get(group, [])

    def _lock(self, caller: Caller, keys: Sequence[Key], *, free: bool) -> list[WaitingRow]:
        hint = caller.numbers.by_key
        return [row for part in in_parts(keys) for row in fetch(caller, self.columns.lock(part, hint, free=free))]

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
        if caller.numbers.cuts_down and numbers:
            key, greatest = max(numbers, key=lambda one: (self.columns.size(one[1]), one[1].n))
            ((found,),) = caller.select(select(self.columns.number).where(self.columns.same(key)))
            if found != greatest.n and str(found).rstrip() != greatest.text.rstrip():
                raise self._no_room(greatest)
        return written

    def _no_room(self, number: Number) -> InvalidSetting:
        return InvalidSetting(f"{self.columns.number} has no room for {number}; nothing was written, widen the column")
