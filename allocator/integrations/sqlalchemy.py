"""Primary keys of mapped classes: tags named after tables, and flushes as fast as with explicit keys.

    key = Annotated[int, primary_key(ids)]

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[key]

Any other column takes `default=ids.sequence("order").next_id`, which needs nothing of this module. The import adds one
listener, for mapped classes. It finds the tag of a key by its table, and sets the keys of objects before a flush:
without that, SQLAlchemy would make the database return each key, although the default supplies it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnDefault, Connection, Table, event
from sqlalchemy.engine import ExecutionContext
from sqlalchemy.orm import InstanceState, MappedColumn, Mapper, mapped_column
from sqlalchemy.sql.visitors import iterate

from allocator.aio import AsyncAllocator
from allocator.errors import InvalidDatabase, InvalidSetting, InvalidTag
from allocator.schemes.shared.argument_checks import check_tag
from allocator.sync import Allocator

Ids = Allocator | AsyncAllocator


class KeyDefault:
    """The default of a key: the ids of a tag.

    A column gets the bound method `of_row`: an object with `__call__` takes twice as long for each row.
    """

    def __init__(self, ids: Ids, tag: str) -> None:
        allocator = ids._allocator if isinstance(ids, AsyncAllocator) else ids  # which awaits in an AsyncSession
        self.sequence = allocator.sequence(tag)
        self._passed = object()  # the last statement that was checked: none yet

    def of_row(self, context: Any, /) -> int:
        """Draw a key: SQLAlchemy passes the context of the statement, other tools None or the object."""
        if getattr(context, "compiled", None) is self._passed:  # checked for an earlier row
            for id_ in self.sequence._values:
                return id_
        if not isinstance(context, ExecutionContext):
            return self.draw(None)
        if is_one_call_for_all_rows(context):
            raise InvalidSetting(
                f"tag {self.sequence.tag!r}: all rows of this statement would get the same id, since they come from a "
                "query; insert them one by one, or number them in the query, from the start of a block of reserve()"
            )
        key = self.draw(context.root_connection)
        self._passed = context.compiled
        return key

    def draw(self, connection: Connection | None) -> int:
        """Draw a key for a row that this connection inserts, if it is known."""
        try:
            return next(self.sequence._values)
        except StopIteration:
            if connection is not None:
                self._check_not_held(connection)
            return self.sequence.next_id()

    def _check_not_held(self, connection: Connection) -> None:
        """Raise `InvalidDatabase` if a claim would wait for the transaction of this connection.

        SQLite has one writer at a time, and a claim uses its own connection.
        """
        files, database = getattr(self.sequence._terms.backend, "files", ()), connection.engine.url.database
        if not files or not database:
            return
        driver = connection.connection.driver_connection
        # With autocommit=False (Python 3.12) a transaction is always open, and whether it has a lock cannot be known.
        begun = getattr(driver, "in_transaction", False) and getattr(driver, "autocommit", None) is not False
        if begun and Path(database).resolve() in {Path(file).resolve() for file in files}:
            raise InvalidDatabase(
                f"tag {self.sequence.tag!r}: no ids are in memory, and a claim would wait for this transaction, which "
                f"locks {database} until it ends; use a separate file for the allocator, or draw the ids before the "
                "first change"
            )


def is_one_call_for_all_rows(context: Any) -> bool:
    """Tell whether SQLAlchemy calls a column default once for all rows of the statement of this context.

    It does so for an INSERT from a SELECT, also where that is a common table of another statement.
    """
    compiled = context.compiled
    common = [element.element for element in getattr(compiled, "ctes", None) or ()]
    return any(
        getattr(statement, "is_insert", False) and statement.select is not None
        for statement in (compiled.statement, *common)
    )


class TableDefault:
    """The default of a key whose tag is the name of its table, until its class is mapped."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def of_row(self, _: object, /) -> int:
        raise InvalidSetting("a key outside of a mapped class needs a tag: primary_key(ids, tag='order')")

    def of(self, table: Table) -> KeyDefault:
        """The default for this table. Raises `InvalidTag` if its name cannot be a tag."""
        try:
            return KeyDefault(self._ids, check_tag(str(table.fullname)))
        except InvalidTag as error:
            raise InvalidTag(
                f"the name of table {table.fullname!r} cannot be a tag: {error}; name a tag, as in "
                "primary_key(ids, tag='order')"
            ) from None


def primary_key(ids: Ids, *, tag: str | None = None, **options: Any) -> MappedColumn[int]:
    """Define a 64-bit primary key whose ids come from `tag`, or from the tag named like its table.

    options: of `mapped_column`, such as `name`, `init` and `sort_order`.

    The key of a joined subclass draws no ids, nor does one that is another row's by a foreign key.

    When the class is mapped, raises `InvalidTag` if the name of the table cannot be a tag, and `InvalidSetting` if the
    database generates ids for the column too.
    """
    if isinstance(ids, type) or not hasattr(ids, "sequence"):
        raise InvalidSetting("primary_key takes an allocator; write: primary_key(Allocator('sqlite:///ids.db'))")
    default = TableDefault(ids) if tag is None else KeyDefault(ids, tag)
    return mapped_column(BigInteger(), primary_key=True, autoincrement=False, insert_default=default.of_row, **options)


@event.listens_for(Mapper, "after_mapper_constructed")
def take_keys(mapper: Mapper[Any], _: type) -> None:
    """Settle the defaults of the keys of a class, and set the keys of its objects before they are inserted."""
    for local in mapper.local_table.c:
        settle(local, is_other_row(local, mapper))
    for column in mapper.primary_key:
        if isinstance(default := default_of(column), KeyDefault):
            setter = key_setter(mapper.get_property_by_column(column).key, default)
            event.listen(mapper, "before_insert", setter, raw=True)


def default_of(column: Any) -> Any:
    """The object whose method is the default of a column: a `KeyDefault` or `TableDefault`, if it is ours."""
    return getattr(getattr(getattr(column, "default", None), "arg", None), "__self__", None)


def is_other_row(column: Any, mapper: Mapper[Any]) -> bool:
    """Whether a key is that of another row: of a joined parent, or all of a foreign key is in the primary key."""
    if mapper.inherit_condition is not None and column in set(iterate(mapper.inherit_condition)):
        return True
    return any(all(own.primary_key for own in key.constraint.columns) for key in column.foreign_keys)


def settle(column: Any, draws_nothing: bool) -> None:
    """Find the tag of a key by its table, or take the default from one that draws nothing."""
    default = default_of(column)
    if isinstance(default, KeyDefault | TableDefault) and draws_nothing:
        column.default = default = None
    if isinstance(default, TableDefault):
        default = default.of(column.table)
        column.default = ColumnDefault(default.of_row)
    if isinstance(default, KeyDefault) and (other := own_generator(column)):
        raise InvalidSetting(
            f"{column} has two generators, which would issue the same ids: tag {default.sequence.tag!r} and {other}; "
            "set autoincrement=False, and remove Identity() and server_default"
        )


def own_generator(column: Column[Any]) -> str | None:
    """The setting by which the database generates the values of a column; None if it does not."""
    if column.autoincrement:
        return f"autoincrement={column.autoincrement!r}"
    if column.identity is not None:
        return "Identity()"
    default = str(getattr(column.server_default, "arg", ""))
    return f"server_default={default}" if re.search(r"(?i)next[ _]?(sequence )?val", default) else None


def key_setter(key: str, default: KeyDefault) -> Any:
    def set_key(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        values = state.dict
        if values.get(key) is None:
            values[key] = default.draw(connection)

    return set_key
