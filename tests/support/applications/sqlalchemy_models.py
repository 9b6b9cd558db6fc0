"""What SQLAlchemy maps in the tests of defaults: a parent, its children, and a table without a class."""

from typing import Any

from sqlalchemy import BigInteger, Column, Engine, ForeignKey, MetaData, String, Table, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from allocator.integrations.sqlalchemy import primary_key

ROWS = [{"name": name} for name in "abc"]


def models(ids: Any) -> Any:
    """A class with a child; the ids of each come from the tag named like its table."""

    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "item"
        id: Mapped[int] = primary_key(ids)
        order_id: Mapped[int] = mapped_column(ForeignKey("order.id"))

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[int] = primary_key(ids)
        name: Mapped[str | None] = mapped_column(String(20))
        items: Mapped[list[Item]] = relationship()

    Base.Order, Base.Item = Order, Item  # type: ignore[attr-defined]
    return Base


def table_of(ids: Any, engine: Engine) -> Table:
    """A table with the plain default."""
    table = Table(
        "plain",
        MetaData(),
        Column("id", BigInteger, primary_key=True, autoincrement=False, default=ids.sequence("plain").next_id),
        Column("name", String(20)),
    )
    table.create(engine)
    return table


def keys(engine: Engine, table: Table) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.id).order_by(table.c.id)))
