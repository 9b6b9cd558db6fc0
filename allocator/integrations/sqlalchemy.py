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

from typing import Any, overload

from sqlalchemy import BigInteger, Column, ColumnDefault, Connection, Dialect, Table, TypeDecorator, event, inspect
from sqlalchemy.orm import MappedColumn, Mapper, mapped_column
from sqlalchemy.orm.attributes import set_committed_value

from allocator.aio import AsyncAllocator, AsyncSequence
from allocator.errors import InvalidTag
from allocator.generators.column_default import check_only_generator, watch_columns
from allocator.generators.sequence import Sequence
from allocator.public_ids import PublicIds
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


class PublicId(TypeDecorator[str]):
    """The type of a column of ids that are texts in Python: BIGINT in the table, `public.encode(id)` for the user.

    A default that draws ids gives their texts. What is no text of `public` is refused, as `InvalidId` in the `orig` of
    SQLAlchemy's `StatementError`.
    """

    impl = BigInteger
    cache_ok = True

    def __init__(self, public: PublicIds) -> None:
        super().__init__()
        self.public = public
        self.__module__ = "sa"  # Alembic writes this and the repr: a migration says sa.BigInteger(), and no key

    def __repr__(self) -> str:
        return "BigInteger()"

    def process_bind_param(self, value: str | None, _: Dialect) -> int | None:
        return None if value is None else self.public.decode(value)

    def process_result_value(self, value: int | None, _: Dialect) -> str | None:
        return None if value is None else self.public.encode(value)


class TextFromIds:
    """A default that gives the texts of the ids of a sequence."""

    def __init__(self, sequence: Sequence | AsyncSequence, public: PublicIds) -> None:
        self._sequence = sequence
        self._public = public

    def __call__(self, context: Any, /) -> str:
        return self._public.encode(self._sequence(context))

    def _next_in(self, connection: Any, column: Any) -> str:
        return self._public.encode(self._sequence._next_in(connection, column))


@overload
def primary_key(ids: Ids, *, tag: str | None = None, public: PublicIds, **options: Any) -> MappedColumn[str]: ...
@overload
def primary_key(ids: Ids, *, tag: str | None = None, **options: Any) -> MappedColumn[int]: ...
def primary_key(
    ids: Ids, *, tag: str | None = None, public: PublicIds | None = None, **options: Any
) -> MappedColumn[Any]:
    """A 64-bit key whose ids come from the tag that is named as its table, or from `tag`.

    public: has the key be text in Python, see `PublicId`.
    options: of `mapped_column`, as `name`, `init` and `sort_order`. Raises `InvalidTag` when the class is mapped.
    """
    kind = BigInteger() if public is None else PublicId(public)
    default = FromTable(ids) if tag is None else ids.sequence(tag)
    return mapped_column(kind, primary_key=True, autoincrement=False, insert_default=default, **options)


@event.listens_for(Column, "after_parent_attach")
def set_default(column: Column[Any], table: Table) -> None:
    """Give a default its tag, and the column that a `PublicId` is in its texts."""
    default = getattr(column.default, "arg", None)
    if isinstance(default, FromTable):
        column.default = None
        if column.foreign_keys:
            return
        default = default.sequence(table)
        ColumnDefault(default)._set_parent_with_dispatch(column)
        check_only_generator(column, table)
    if isinstance(default, Sequence | AsyncSequence) and isinstance(column.type, PublicId):
        column.default = None
        ColumnDefault(TextFromIds(default, column.type.public))._set_parent_with_dispatch(column)


@event.listens_for(Mapper, "after_mapper_constructed")
def set_keys_before_flush(mapper: Mapper[Any], _: type) -> None:
    for column in mapper.primary_key:
        default = getattr(column.default, "arg", None)
        if isinstance(default, Sequence | AsyncSequence | TextFromIds):
            setter = key_setter(mapper.get_property_by_column(column).key, column, default)
            event.listen(mapper, "before_insert", setter)


def key_setter(key: str, column: Any, sequence: Sequence | AsyncSequence | TextFromIds) -> Any:
    def set_key(_: Mapper[Any], connection: Connection, target: object) -> None:
        if inspect(target).dict.get(key) is None:
            set_committed_value(target, key, sequence._next_in(connection, column))

    return set_key
