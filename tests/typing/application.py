"""What users write beside `examples/fastapi_app`, for mypy --strict alone: `make lint` checks both.

Each `type: ignore` is a mistake that a user's type checker must find: mypy complains of one that is not needed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, assert_type

from sqlalchemy import BigInteger, Column, ForeignKey, MetaData, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

import allocator
from allocator import Allocator, AsyncAllocator, AsyncSequence, PublicIds, Sequence, Tag
from allocator import inspect_id as inspect
from allocator.integrations.alembic import metadata
from allocator.integrations.sqlalchemy import primary_key
from allocator.testing import MemoryAllocator

ids = AsyncAllocator("sqlite:///ids.db")
orders = PublicIds(PublicIds.new_key(), prefix="ord_")
Key = Annotated[int, primary_key(ids)]


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[Key]


class Order(Base):
    __tablename__ = "order"
    id: Mapped[int] = primary_key(ids)
    number: Mapped[int] = mapped_column(BigInteger, autoincrement=False, default=ids.sequence("number").next_id)
    items: Mapped[list[Item]] = relationship()


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = primary_key(ids, tag="line-item")
    order_id: Mapped[int] = mapped_column(ForeignKey("order.id"))
    wrong: Mapped[str] = primary_key(ids)  # type: ignore[assignment]


def keys() -> None:
    assert_type(Customer().id, int)
    assert_type(Order().id, int)
    Table("plain", MetaData(), Column("id", BigInteger, default=ids.sequence("plain").next_id, autoincrement=False))
    assert_type(metadata, MetaData)


async def awaited() -> None:
    AsyncAllocator("sqlite:///ids.db", steps=100)  # type: ignore[call-arg]
    async with AsyncAllocator(Allocator("sqlite:///ids.db")) as shared:
        await shared.ping()
        await shared.create_tables()
        assert_type(await shared.next_ids("order", 3), list[int])
        assert_type(await shared.reserve("order", 3), range)
        assert_type(shared.sequence("order"), AsyncSequence)
        assert_type(await shared.sequence("order").next_id(), int)
        assert_type(await shared.tags.get("order"), Tag)
        assert_type([await shared.ticket("case"), await shared.meteor(), await shared.snowflake()], list[int])
        shared.next_id("order") + 1  # type: ignore[operator]
        async with shared.worker("pods", bits=5) as worker:
            assert_type(worker.number, int)


def blocking() -> None:
    with Allocator("sqlite:///ids.db", failover_gap="refuse") as one:
        assert_type(one, Allocator)
        assert_type(one.sequence("order"), Sequence)
        assert_type(one.next_id("order"), int)
        assert_type(one.tags.create("order", start_after=5), Tag)
        with one.worker("pods", on_lost=lambda: print("lost")) as worker:
            assert_type((worker.number, worker.until, worker.left(), worker.lost), tuple[int, datetime, float, bool])
        assert_type(inspect("5016762319896585").readings[0].fields, dict[str, int | str])
    Allocator("sqlite:///ids.db", failover_gap="never")  # type: ignore[arg-type]
    assert_type(orders.decode(orders.encode(1)), int)
    assert_type(allocator.errors.TooManyRequests("", 2).retry_after, float)
    allocator.TooManyRequests  # type: ignore[attr-defined]  # noqa: B018


def in_tests(memory_allocator: MemoryAllocator) -> None:
    with Allocator("sqlite:///ids.db") as one, one.use(memory_allocator):
        assert_type(one.next_id("order"), int)
    AsyncAllocator(memory_allocator)
