"""Keys of mapped tables: the tag out of the table's name, and flushes at the cost of keys that are given by hand.

    key = Annotated[int, primary_key(ids)]

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[key]

A column with `default=ids.sequence("order"), autoincrement=False` needs nothing of this. Two listeners are added when
this is imported. One gives the default of a column its tag when the column comes to its table. The other
gives objects their keys before a flush: SQLAlchemy asks the database for keys that it does not know by then, though it
will get them out of the default.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, ColumnDefault, Connection, Table, event, inspect
from sqlalchemy.orm import MappedColumn, Mapper, mapped_column
from sqlalchemy.orm.attributes import set_committed_value

from allocator.aio import AsyncAllocator, AsyncSequence
from allocator.errors import InvalidTag
from allocator.generators.column_default import check_only_generator, watch_columns
from allocator.generators.sequence import Sequence
from allocator.schemes.checks import check_tag
from allocator.sync import Allocator

Ids = Allocator | AsyncAllocator

watch_columns()  # before a table is made: SQLAlchemy takes no new listener while it calls those of a column


class FromTable:
    """A default that draws from the tag which is named as the table, `schema.table` where it has a schema.

    For `Column` and `mapped_column`, also in `Annotated`, mixins and abstract bases: each table has its own tag. A
    column that refers to another table, as the key of a joined subclass does, gets no ids: it holds those of the other.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def sequence(self, table: Table) -> Sequence | AsyncSequence:
        """Raises `InvalidTag` where a table's name is none."""
        try:
            return self._ids.sequence(check_tag(str(table.fullname)))
        except InvalidTag as error:
            raise InvalidTag(
                f"table {table.fullname!r} cannot name its tag: {error}; name one yourself, as in "
                "primary_key(ids, tag='order')"
            ) from None

    def __call__(self, context: Any, /) -> int:
        """Only before the column has come to a table, or in a copy that was made before."""
        return self.sequence(context.current_column.table)(context)


def primary_key(ids: Ids, *, tag: str | None = None, **options: Any) -> MappedColumn[int]:
    """A 64-bit key whose ids come from the tag that is named as its table, or from `tag`.

    options: of `mapped_column`, as `name`, `init` and `sort_order`. Raises `InvalidTag` when the class is mapped.
    """
    default = FromTable(ids) if tag is None else ids.sequence(tag)
    return mapped_column(BigInteger, primary_key=True, autoincrement=False, insert_default=default, **options)


@event.listens_for(Column, "after_parent_attach")
def set_tag_from_table(column: Column[Any], table: Table) -> None:
    default = getattr(column.default, "arg", None)
    if not isinstance(default, FromTable):
        return
    column.default = None
    if not column.foreign_keys:
        ColumnDefault(default.sequence(table))._set_parent_with_dispatch(column)
        check_only_generator(column, table)


@event.listens_for(Mapper, "after_mapper_constructed")
def set_keys_before_flush(mapper: Mapper[Any], _: type) -> None:
    for column in mapper.primary_key:
        default = getattr(column.default, "arg", None)
        if isinstance(default, Sequence | AsyncSequence):
            setter = key_setter(mapper.get_property_by_column(column).key, column, default)
            event.listen(mapper, "before_insert", setter)


def key_setter(key: str, column: Any, sequence: Sequence | AsyncSequence) -> Any:
    def set_key(_: Mapper[Any], connection: Connection, target: object) -> None:
        if inspect(target).dict.get(key) is None:
            set_committed_value(target, key, sequence._next_in(connection, column))

    return set_key
