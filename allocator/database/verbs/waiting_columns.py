"""The columns of the application in which rows wait for a number without gaps, and the statements on them.

They are read from a mapped class, a Table, or a model of Django.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Executable,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    TypeDecorator,
    Uuid,
    and_,
    case,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.dml import Update
from sqlalchemy.types import NULLTYPE

from allocator.errors import InvalidArgument, InvalidSetting
from allocator.schemes.gapless_numbers import Number
from allocator.schemes.shared.argument_checks import integer, quoted
from allocator.schemes.waiting_numbers import Key


class Moment(TypeDecorator[datetime]):
    """Datetimes, which SQLite, MySQL and MariaDB return without a time zone: of `zone`, or refused without one."""

    impl = DateTime
    cache_ok = True

    def __init__(self, column: str, zone: tzinfo | None = None) -> None:
        super().__init__(timezone=zone is None)
        self.column, self.zone = column, zone

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value
        if self.zone is None:
            raise InvalidSetting(
                f"{self.column} is declared with timezone=True, but {dialect.name} returned {value} without one, so "
                "its day is unknown; declare it as DateTime(), and store local time of the numbers' time zone in it"
            )
        return value.replace(tzinfo=self.zone)


class HintedUpdate(Update):
    """An UPDATE of a join, with a hint on its right table, for which SQLAlchemy has no call."""

    inherit_cache = False
    hint: str


@compiles(HintedUpdate)
def with_hint(statement: Any, compiler: Any, **options: Any) -> str:
    return str(compiler.visit_update(statement, fromhints={statement.table.right: statement.hint}, **options))


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
        return self.select(self.waits, self.scope == scope).limit(most)

    def number_free(self, base: int, most: int, hint: str) -> Executable:
        """Number the first rows that wait and that nobody holds, from `base` + 1 on.

        hint: of MySQL and MariaDB, to look each row up by its key, after the outer join's left side. They may scan a
            small table else, and wait for the rows that others hold.
        """
        by = list(dict.fromkeys([self.order, *self.key]))
        first = select(*by).where(self.waits).order_by(*by).limit(most)
        free = first.with_for_update(skip_locked=True).subquery("free")
        place = func.row_number().over(order_by=[free.c[one.key] for one in by])
        number = (place + literal(base, BigInteger)).label("due_number")
        due = select(*(free.c[one.key] for one in self.key), number).subquery("due")
        found = and_(*(one == due.c[one.key] for one in self.key))
        if not hint:
            return update(self.table).where(found).values({self.number: due.c.due_number})
        joined = HintedUpdate(due.outerjoin(self.table, found)).values({self.number: due.c.due_number})
        joined.hint = hint
        return joined

    def holding(self, number: int) -> Select[Any]:
        """Select this number, if a row has it."""
        return select(self.number).where(self.number == literal(number, BigInteger)).limit(1)

    def among(self, keys: Iterable[Key]) -> ColumnElement[bool]:
        if len(self.key) == 1:
            return self.key[0].in_([key for (key,) in keys])
        return or_(*map(self.same, keys))

    def same(self, key: Key) -> ColumnElement[bool]:
        return and_(*(column == value for column, value in zip(self.key, key, strict=True)))

    def still_waiting(self, keys: Iterable[Key]) -> ColumnElement[bool]:
        """These rows, if they wait: by CASE, since planners would else find them by an index of all that wait."""
        return and_(self.among(keys), case((self.waits, 1), else_=0) == 1)

    def lock(self, keys: Iterable[Key], hint: str) -> Executable:
        """Select those of these rows that still wait, and lock them."""
        locked = self.select(self.still_waiting(keys)).with_for_update()
        return locked.with_hint(self.table, hint) if hint else locked

    def update(self, numbers: Sequence[tuple[Key, Number]], hint: str) -> Executable:
        """Write the numbers into rows that have none."""
        whens = [(self.same(key), literal(self.value(number), self.number.type)) for key, number in numbers]
        waiting = self.still_waiting(key for key, _ in numbers)
        statement = update(self.table).where(waiting).values({self.number: case(*whens, else_=self.number)})
        return statement.with_hint(hint) if hint else statement

    def value(self, number: Number) -> int | str:
        """What the column takes. MySQL without its strict mode would cut off what is too long."""
        if isinstance(self.number.type, Integer):
            return number.n
        room = getattr(self.number.type, "length", None)
        if room and len(number.text) > room:
            raise InvalidSetting(f"{self.number} has room for {room} characters, and {number.text!r} has more")
        return number.text


def scope_in(column: Column[Any], scope: object) -> object:
    """A caller's scope as its column holds it: one of a path or a form is text. Raises `InvalidArgument`."""
    field, text = column.info.get("field"), str(integer(scope))
    try:
        if field is not None:
            return field.get_prep_value(scope)
        if isinstance(column.type, Integer):
            return int(text)
        if isinstance(column.type, Uuid):
            return UUID(text) if column.type.as_uuid else text
    except Exception as error:  # of Python or Django
        raise InvalidArgument(f"the scope {quoted(scope)} is none that {column} can hold") from error
    return text if isinstance(column.type, String) else scope


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
    return Table(fields.db_table, MetaData(), *map(column_of, fields.concrete_model._meta.local_concrete_fields))


def column_of(field: Any) -> Column[Any]:
    """The column of a field of Django. `DjangoCaller` sees to values of other types."""
    kind = field.get_internal_type()
    holds: Any = String(field.max_length) if kind == "CharField" else NULLTYPE
    if "Integer" in kind or "AutoField" in kind:
        holds = BigInteger()
    key, info = field.primary_key, {"field": field}
    return Column(field.column, holds, primary_key=key, nullable=field.null, key=field.attname, info=info)


def column_in(table: Table, named: Any) -> Column[Any]:
    """A column by its name, that of its field in Django, or by itself, as an attribute of a mapped class too."""
    if isinstance(named, str):
        fields = {one.info["field"].name: one for one in table.columns if "field" in one.info}
        known: dict[str, Column[Any]] = fields | dict(table.columns)
        if named in known:
            return known[named]
        raise InvalidSetting(f"{quoted(named)} is no column of the table {table.name}; there are {', '.join(known)}")
    column = getattr(named, "expression", None)
    found = table.columns.get(getattr(column, "key", ""))
    if found is None or getattr(column, "table", table).name != table.name:
        raise InvalidSetting(f"{quoted(named, form=str)} is no column of the table {table.name}; give one, or its name")
    return found
