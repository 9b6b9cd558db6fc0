"""Ids as defaults of columns under an event loop, which never waits for a claim."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import create_engine, insert, select
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from support.applications.sqlalchemy_models import ROWS, keys, models, table_of
from support.kit import ON_TWO, SQLITE, backend_of

from allocator import Allocator, AsyncAllocator
from allocator.errors import DatabaseUnavailable, InvalidDatabase


class Stalled:
    """Holds claims up until the event loop lets them go: one that is blocked never does."""

    def __init__(self, ids: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: list[bool] = []
        self.held: list[threading.Event] = []
        claim = backend_of(ids).claim_segment

        def hold(*args: Any, **kwargs: Any) -> range:
            self.passed.append(self.wait())
            return claim(*args, **kwargs)

        monkeypatch.setattr(backend_of(ids), "claim_segment", hold)

    def wait(self) -> bool:
        go = threading.Event()
        self.held.append(go)
        try:
            self.loop.call_soon_threadsafe(self.loop.call_later, 0.01, go.set)
        except RuntimeError:  # it is over, and this claim was in advance
            return True
        return go.wait(3)

    def run(self, main: Any) -> Any:
        async def noted() -> Any:
            self.loop = asyncio.get_running_loop()
            return await main

        try:
            return asyncio.run(noted())
        finally:
            for go in self.held:
                go.set()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    yield engine
    await engine.dispose()


@pytest.fixture(params=["Allocator", "AsyncAllocator"])
def either(request, ids):
    """An allocator of either face; the database behind it is that of `ids`."""
    return ids if request.param == "Allocator" else AsyncAllocator(ids)


@ON_TWO
def test_an_async_session_draws_without_blocking_the_loop(kind, engine, rows, ids, either, monkeypatch):
    stalled = Stalled(ids, monkeypatch)
    base = models(either)
    base.metadata.create_all(engine)
    ids.tags.create("order", step=10, max_step=10)

    async def main() -> tuple[list[int], list[int]]:
        async with opened(rows) as engine, AsyncSession(engine) as session:
            session.add_all(base.Order(name=name, items=[base.Item(), base.Item()]) for name in "abc")
            await session.flush()
            await session.execute(insert(base.Order.__table__), [{"name": str(number)} for number in range(50)])
            await session.execute(insert(base.Order).values(ROWS))
            await session.commit()
            found = [sorted(await session.scalars(select(model.id))) for model in (base.Order, base.Item)]
        return found[0], found[1]

    assert stalled.run(main()) == (list(range(1, 57)), list(range(1, 7)))
    assert len(stalled.passed) >= 6
    assert all(stalled.passed)


@ON_TWO
def test_other_calls_in_a_session_do_not_block_the_loop_either(kind, rows, ids, monkeypatch):
    """A hook of the application draws with the blocking face."""
    stalled = Stalled(ids, monkeypatch)

    async def main() -> Any:
        async with opened(rows) as engine, AsyncSession(engine) as session:
            return await session.run_sync(lambda _: (ids.next_id("a"), ids.next_ids("b", 3), ids.reserve("c", 2)))

    assert stalled.run(main()) == (1, [1, 2, 3], range(1, 3))
    assert len(stalled.passed) >= 3
    assert all(stalled.passed)


@SQLITE
def test_a_database_that_does_not_answer_is_an_error_in_time_and_a_wait_can_be_cancelled(rows, fresh):
    engine = create_engine(rows)
    with Allocator(fresh, timeout=0.2) as ids:
        table = table_of(ids, engine)
        holder = create_engine(fresh)

        async def main() -> None:
            async with opened(rows) as engine:
                async with engine.connect() as connection:
                    with pytest.raises(StatementError) as failed:
                        await connection.execute(insert(table), ROWS)
                    assert isinstance(failed.value.orig, DatabaseUnavailable)
                async with engine.connect() as connection:
                    asked = asyncio.ensure_future(connection.execute(insert(table), ROWS))
                    await asyncio.sleep(0.05)
                    asked.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asked

        with holder.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            asyncio.run(main())
            connection.rollback()
        holder.dispose()
    with Allocator(fresh) as ids:
        assert ids.next_id("plain") > 0
    assert keys(engine, table) == []
    engine.dispose()


@SQLITE
def test_one_file_is_refused_under_an_event_loop_too(fresh, ids):
    engine = create_engine(fresh)
    base = models(ids)
    base.metadata.create_all(engine)
    engine.dispose()

    async def main() -> None:
        async with opened(fresh) as engine, AsyncSession(engine) as session:
            session.add(base.Order(name="a", items=[base.Item()]))
            with pytest.raises(InvalidDatabase, match="use a separate file for the allocator"):
                await session.commit()

    asyncio.run(main())


@SQLITE
def test_the_keys_of_an_async_allocator_work_in_a_blocking_session_too(engine, ids):
    base = models(AsyncAllocator(ids))
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(base.Order(name="a"))
        session.commit()
        session.execute(insert(base.Order), ROWS)

        assert session.scalars(select(base.Order.id)).all() == [1, 2, 3, 4]
    assert base.Order.__table__.c.id.default.arg(None) == 5
