"""Primary keys of mapped classes: tags named after tables, and flushes as fast as with explicit keys.

    key = Annotated[int, primary_key(ids)]

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[key]

A column with `default=ids.sequence("order"), autoincrement=False` does not need this module. The import adds two
listeners. One sets the tag of a default when its column is attached to a table. The other sets the keys of objects
before a flush: without it, SQLAlchemy would make the database return each key, although the default supplies it.
"""

from __future__ import annotations

from typing import Any, overload

from sqlalchemy import BigInteger, Column, ColumnDefault, Connection, Dialect, Table, TypeDecorator, event
from sqlalchemy.orm import InstanceState, MappedColumn, Mapper, mapped_column

from allocator.aio import AsyncAllocator, AsyncSequence
from allocator.errors import InvalidTag
from allocator.generators.column_default import sequence_of, take_column, watch_columns
from allocator.generators.sequence import Sequence
from allocator.public_ids import PublicIds
from allocator.schemes.shared.argument_checks import check_tag
from allocator.sync import Allocator

Ids = Allocator | AsyncAllocator

watch_columns()  # now, since SQLAlchemy accepts no new listener while it calls those of a column


class FromTable:
    """A column default that draws from the tag named like its table, or `schema.table` in a schema.

    Works in `Column`, `mapped_column`, `Annotated`, mixins and abstract bases; each table has its own tag. A column
    with a foreign key, such as the key of a joined subclass, draws no ids: it copies those of the other table.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def sequence(self, table: Table) -> Sequence | AsyncSequence:
        """The sequence of a table. Raises `InvalidTag` if its name cannot be a tag."""
        try:
            return self._ids.sequence(check_tag(str(table.fullname)))
        except InvalidTag as error:
            raise InvalidTag(
                f"the name of table {table.fullname!r} cannot be a tag: {error}; name a tag, as in "
                "primary_key(ids, tag='order')"
            ) from None

    def __call__(self, context: Any, /) -> int:
        """Draw an id for a column that `set_default` has not seen, such as an earlier copy."""
        return self.sequence(context.current_column.table)._of_row(context)


class PublicId(TypeDecorator[str]):
    """A column type for public ids: BIGINT in the table, the text `public.encode(id)` in Python.

    A default that draws ids yields their texts. A text that `public` cannot decode raises SQLAlchemy's
    `StatementError` with an `InvalidId` as `orig`.
    """

    impl = BigInteger
    cache_ok = True

    def __init__(self, public: PublicIds) -> None:
        super().__init__()
        self.public = public
        self.__module__ = "sa"  # Alembic writes module and repr: migrations get sa.BigInteger(), without the key

    def __repr__(self) -> str:
        return "BigInteger()"

    def process_bind_param(self, value: str | None, _: Dialect) -> int | None:
        return None if value is None else self.public.decode(value)

    def process_result_value(self, value: int | None, _: Dialect) -> str | None:
        return None if value is None else self.public.encode(value)


class TextFromIds:
    """A column default that yields public texts of the ids of a sequence."""

    def __init__(self, sequence: Sequence | AsyncSequence, public: PublicIds) -> None:
        self._sequence = sequence
        self._public = public

    def __call__(self, context: Any, /) -> str:
        return self._public.encode(self._sequence._of_row(context))

    def _next_in(self, connection: Any, column: Any) -> str:
        return self._public.encode(self._sequence._next_in(connection, column))


@overload
def primary_key(ids: Ids, *, tag: str | None = None, public: PublicIds, **options: Any) -> MappedColumn[str]: ...
@overload
def primary_key(ids: Ids, *, tag: str | None = None, **options: Any) -> MappedColumn[int]: ...
def primary_key(
    ids: Ids, *, tag: str | None = None, public: PublicIds | None = None, **options: Any
) -> MappedColumn[Any]:
    """Define a 64-bit primary key whose ids come from `tag`, or from the tag named like its table.

    public: makes the key a text in Python, see `PublicId`.
    options: of `mapped_column`, such as `name`, `init` and `sort_order`.

    Raises `InvalidTag` when the class is mapped, if the name of the table cannot be a tag.
    """
    kind = BigInteger() if public is None else PublicId(public)
    default = FromTable(ids) if tag is None else ids.sequence(tag)
    return mapped_column(kind, primary_key=True, autoincrement=False, insert_default=default, **options)


@event.listens_for(Column, "after_parent_attach")
def set_default(column: Column[Any], table: Table) -> None:
    """Set the tag of a `FromTable` default, and make the default of a `PublicId` column yield texts."""
    default = getattr(column.default, "arg", None)
    if isinstance(default, FromTable):
        column.default = None
        if column.foreign_keys:
            return
        ColumnDefault(default.sequence(table))._set_parent_with_dispatch(column)
        take_column(column, table)
    sequence = sequence_of(column)
    if sequence is not None and isinstance(column.type, PublicId):
        column.default = None
        ColumnDefault(TextFromIds(sequence, column.type.public))._set_parent_with_dispatch(column)


@event.listens_for(Mapper, "after_mapper_constructed")
def set_keys_before_flush(mapper: Mapper[Any], _: type) -> None:
    for column in mapper.primary_key:
        default = getattr(column.default, "arg", None)
        source = default if isinstance(default, TextFromIds) else sequence_of(column)
        if source is not None:
            setter = key_setter(mapper.get_property_by_column(column).key, column, source)
            event.listen(mapper, "before_insert", setter, raw=True)


def key_setter(key: str, column: Any, source: Sequence | AsyncSequence | TextFromIds) -> Any:
    def set_key(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        values = state.dict
        if values.get(key) is None:
            values[key] = source._next_in(connection, column)

    return set_key
