"""`Allocator.use`: an allocator of the application, on another database for the time of a test."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert, select

from allocator import Allocator, AsyncAllocator
from allocator.testing import MemoryAllocator

NOWHERE = "postgresql+psycopg://127.0.0.1:9/production"


def test_columns_that_hold_a_sequence_take_its_ids():
    ids = Allocator(NOWHERE)
    order = Table("o", MetaData(), Column("id", Integer, primary_key=True, default=ids.sequence("order").next_id))
    engine = create_engine("sqlite://")
    order.create(engine)
    with ids.use(MemoryAllocator()), engine.begin() as connection:
        connection.execute(insert(order), [{}, {}])
        found = connection.scalars(select(order.c.id)).all()
    engine.dispose()

    assert found == [1, 2]


def test_ids_of_every_kind_come_from_there():
    ids, memory = Allocator(NOWHERE), MemoryAllocator()
    with ids.use(memory):
        drawn = ids.next_id("order"), ids.ticket("job"), ids.reserve("block", 5), ids.meteor(), ids.snowflake()
        ids.ping()

        assert drawn[:3] == (1, 1, range(1, 6))
        assert [tag.name for tag in ids.tags.list()] == ["block", "order"]
    assert {tag.name for tag in memory.tags.list()} == {"block", "order"}


def test_afterwards_it_claims_from_its_own_database_again(tmp_path):
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        handle = ids.sequence("order")
        before = [ids.next_id("order"), handle.next_id()]
        with ids.use(MemoryAllocator(limit=100)):
            within = [ids.next_id("order"), handle.next_id(), ids.sequence("order").next_id()]
        after = [ids.next_id("order"), handle.next_id()]

        assert (before, within) == ([1, 2], [1, 2, 3])
        assert 2 < after[0] <= 1001
        assert after[1] == after[0] + 1


def test_what_raises_in_the_block_ends_it(tmp_path):
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        with pytest.raises(ZeroDivisionError), ids.use(MemoryAllocator()):
            ids.next_id("other")
            raise ZeroDivisionError
        assert ids.next_id("order") == 1
        assert [tag.name for tag in ids.tags.list()] == ["order"]


def test_asyncio():
    async def story() -> list[int]:
        ids = AsyncAllocator(NOWHERE)
        handle = ids.sequence("order")
        with ids.use(MemoryAllocator()):
            return [await ids.next_id("order"), await handle.next_id(), await ids.ticket("job")]

    assert asyncio.run(story()) == [1, 2, 1]


def test_another_database_serves_as_well(tmp_path):
    with Allocator(NOWHERE) as ids, Allocator(f"sqlite:///{tmp_path}/test.db") as other, ids.use(other):
        assert ids.next_id("order") == 1
        assert other.next_id("order") > 1
