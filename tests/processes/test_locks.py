"""Rule 12: nothing is slept, logged, called or read under a lock.

Watched are the locks that the package makes meanwhile. Those that it makes at import are not: ObjectId's, the one of
forks (`fork_gate.lock`, under which SQLite's statements run by design, as under the lock of the file that
`SQLite.alone` holds) and that of migrations (`alembic_lock`).
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, create_engine, event
from support.kit import ON_TWO, SQLITE, backend_of
from support.rules import rule

import allocator
from allocator import Allocator, AsyncAllocator, Meteor, Numbers, Snowflake
from allocator.database import store
from allocator.errors import AllocatorError, SchemaOutOfDate
from allocator.schemes.segment_refill import Segments

really_sleep = time.sleep
PACKAGE = Path(allocator.__file__).parent
WAITING = ("open", "sqlite3.connect", "socket.connect", "subprocess.Popen", "os.listdir", "os.rename")
"""Python's audit events that read, wait or ask."""

held = threading.local()
watching: set[tuple[str, str]] | None = None
"""What was done under which lock, while `watched`."""
done: set[str] = set()
"""What was done at all, since the last `watched` began; "lock" where one was taken."""


def note(what: str) -> None:
    done.add(what)
    for place in getattr(held, "places", ()):
        if watching is not None:
            watching.add((place, what))


class Watched:
    """A lock that its thread remembers. `place`: the file that made it."""

    def __init__(self, lock: Any, place: str) -> None:
        self._lock, self._place = lock, place

    def acquire(self, *how: Any, **settings: Any) -> bool:
        taken = bool(self._lock.acquire(*how, **settings))
        if taken:
            done.add("lock")
            held.places = [*getattr(held, "places", ()), self._place]
        return taken

    def release(self) -> None:
        held.places.remove(self._place)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def by_us(make: Any) -> Any:
    """Makes locks that are watched where the package makes them."""

    def made() -> Any:
        place = Path(sys._getframe(1).f_code.co_filename)
        return Watched(make(), str(place.relative_to(PACKAGE))) if place.is_relative_to(PACKAGE) else make()

    return made


class Noting(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note("log")


def audit(name: str, _: Any) -> None:
    if watching is not None and name in WAITING:
        note(name)


sys.addaudithook(audit)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """What is done under the locks that the package makes meanwhile, as pairs of its file and what was done."""
    global watching
    found: set[tuple[str, str]] = set()
    handler, logger = Noting(), logging.getLogger("allocator")

    def statement(*_: Any) -> None:
        note("statement")

    def sleep(seconds: float) -> None:
        note("sleep")
        really_sleep(seconds)

    with monkeypatch.context() as patched:
        for name in ("Lock", "RLock"):
            patched.setattr(threading, name, by_us(getattr(threading, name)))
        for module in [one for name, one in sys.modules.items() if name == "time" or name.startswith("allocator.")]:
            if vars(module).get("sleep") is really_sleep:
                patched.setattr(module, "sleep", sleep)
        patched.setitem(Snowflake.__init__.__kwdefaults__, "sleep", sleep)
        done.clear()
        logger.addHandler(handler)
        event.listen(Engine, "before_cursor_execute", statement)
        watching = found
        try:
            yield found
        finally:
            watching = None
            event.remove(Engine, "before_cursor_execute", statement)
            logger.removeHandler(handler)


def everything(ids: Allocator) -> None:
    """Draw ids by each way, fail, lease and go on."""
    for _ in range(5):
        ids.next_id("order"), ids.next_ids("order", 5), ids.reserve("order", 3)
        ids.ticket("order"), ids.meteor(), ids.snowflake()
    asyncio.run(AsyncAllocator(ids).next_ids("order", 50))
    ids.tags.create("small", limit=3)
    for call in (lambda: ids.next_ids("small", 9), lambda: ids.next_id("small"), lambda: ids.reserve("small", 9)):
        with pytest.raises(AllocatorError):
            call()
    with ids.worker("pods"):
        Meteor(1).next_id()
    for _ in range(9):
        Snowflake(1, 1).next_id()  # sleeps, unless a millisecond ends just then


@rule(12)
@ON_TWO
def test_nothing_is_done_under_a_lock(fresh, monkeypatch, caplog):
    with watched(monkeypatch) as found:
        with Allocator(fresh, step=2, max_step=2) as ids:
            everything(ids)
        with monkeypatch.context() as ending, Allocator(fresh) as ids:
            ending.setattr("allocator.runtime.threads.start_thread", lambda *pool: False)
            ids.next_id("last")  # its claim is made in here
        with Allocator(fresh, step=100, max_step=100) as ids:
            ids.next_ids("late", 49)
            monkeypatch.setattr(type(backend_of(ids)), "claim_segment", missing)
            ids.next_ids("late", 51)

    assert found == set()
    assert done >= {"lock", "log", "sleep", "statement"}
    assert [record.message for record in caplog.records if "a claim failed" in record.message]


def missing(*_: object, **__: object) -> None:
    raise SchemaOutOfDate("no tables")


@rule(12)
@SQLITE
def test_rows_that_wait_are_numbered_without_a_lock(fresh, monkeypatch):
    engine, bill = create_engine(fresh), Table("bill", MetaData(), Column("id", Integer, primary_key=True))
    bill.append_column(Column("n", BigInteger))
    bill.create(engine)
    with watched(monkeypatch):
        Numbers("bill").waiting(bill, number="n", order_by="id").assign(engine)
    engine.dispose()

    assert "statement" in done
    assert "lock" not in done


ACTS = {
    "log": lambda: logging.getLogger("allocator").info("drawn"),
    "open": lambda: open("/dev/null").close(),  # noqa: PTH123
    "sleep": lambda: store.sleep(0),
}


@rule(12)
@pytest.mark.parametrize("act", ACTS)
def test_control_what_is_done_under_a_lock_is_found(act, monkeypatch):
    take = Segments.take
    monkeypatch.setattr(Segments, "take", lambda core: (ACTS[act](), take(core))[1])
    with watched(monkeypatch) as found, Allocator("sqlite://") as ids:
        ids.next_id("order")

    assert found == {("generators/supply.py", act)}
