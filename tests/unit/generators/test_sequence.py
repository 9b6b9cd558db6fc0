"""The tags that an allocator serves: one sequence of each, however it is asked for."""

from __future__ import annotations

import gc
import sqlite3
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar

import pytest
from support.memory.database import MemorySource, sequence
from support.processes.patience import until

from allocator import Allocator
from allocator.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidCount,
    InvalidSetting,
    ReentrantCall,
    SchemaOutOfDate,
    UnknownTag,
)
from allocator.testing import MemoryAllocator


def test_a_handle_stays_the_same_and_works_once_the_tag_is_there(tmp_path):
    with Allocator(f"sqlite:///{tmp_path}/ids.db", create_missing=False) as ids:
        ids.tags.create("other")
        handle = ids.sequence("order")
        with pytest.raises(UnknownTag):
            handle.next_id()
        assert ids.sequence("order") is handle

        ids.tags.create("order")
        assert [handle.next_id(), ids.next_id("order"), handle.next_id()] == [1, 2, 3]


class Caller:
    """What an application keeps in a context variable, as the request that it answers."""


@pytest.mark.parametrize("has_threads", [True, False])
def test_a_tag_whose_claim_failed_does_not_keep_what_its_caller_was_doing(monkeypatch, tmp_path, has_threads):
    current: ContextVar[Caller] = ContextVar("current")
    if not has_threads:
        monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    url = f"sqlite:///{tmp_path}/ids.db"
    with Allocator(url) as first:
        first.create_tables()
    with Allocator(url, timeout=0.1) as ids:
        with closing(sqlite3.connect(f"{tmp_path}/ids.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            caller = Caller()
            kept = weakref.ref(caller)
            token = current.set(caller)
            with pytest.raises(DatabaseUnavailable):
                ids.next_id("customer")
            current.reset(token)
        del caller, token
        assert until(lambda: gc.collect() >= 0 and kept() is None)


def refuse_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_name_that_failed_is_not_asked_for_again_before_its_retry(monkeypatch: pytest.MonkeyPatch):
    """By next_id and by reserve, whatever the failure was."""
    monkeypatch.setattr("allocator.generators.supply.monotonic", lambda: 100.0)
    monkeypatch.setattr("allocator.generators.sequence.monotonic", lambda: 100.0)
    for failure in (DatabaseRefused("no"), SchemaOutOfDate("no tables")):
        for calls in (("next_id", "reserve"), ("reserve", "reserve", "next_id")):
            source = MemorySource()
            source.failure = failure
            ids = sequence(source)
            for call in calls:
                with pytest.raises(type(failure)):
                    getattr(ids, call)(*([1] if call == "reserve" else []))
            assert source.attempts == 1, (failure, calls)


def test_a_block_that_is_too_large_stops_no_smaller_one_and_no_id():
    for failure in (
        InvalidCount("at most 5"),
        Exhausted("5 left"),
        InvalidSetting("size must be at most 9"),
    ):
        source = MemorySource()
        source.failure = failure
        ids = sequence(source)
        with pytest.raises(type(failure)):
            ids.reserve(10)
        source.failure = None
        assert [ids.next_id(), len(ids.reserve(1))] == [1, 1]


def test_a_child_renews_what_is_held_and_close_ends_it(tmp_path):
    ids = Allocator(f"sqlite:///{tmp_path}/ids.db")
    held = ids.sequence("order")
    core = held._core
    ids.after_fork()
    assert held._core is not core
    ids.close()
    assert held in ids._supplies()


def test_threads_that_want_one_new_tag_at_one_moment_get_one_sequence():
    with MemoryAllocator() as ids, ThreadPoolExecutor(8) as threads:
        for number in range(50):
            handles = list(threads.map(ids.sequence, [f"order{number}"] * 8))
            assert len(set(handles)) == 1


def test_a_signal_handler_makes_no_second_sequence_of_the_tag_that_is_being_made():
    """Nobody would renew the second one in a forked child: it would repeat what its parent gives."""
    with MemoryAllocator() as ids:
        make = ids._sequences._make

        def interrupted(tag: str):
            for name in ("order", "other"):
                with pytest.raises(ReentrantCall):
                    ids.sequence(name)
            return make(tag)

        ids._sequences._make = interrupted
        handle = ids.sequence("order")
        assert ids.sequence("order") is handle
        assert list(ids._sequences.values()) == [handle]


def test_a_tag_can_be_made_again_after_an_interrupt():
    def interrupt(tag: str):
        raise KeyboardInterrupt

    with MemoryAllocator() as ids:
        make, ids._sequences._make = ids._sequences._make, interrupt
        with pytest.raises(KeyboardInterrupt):
            ids.sequence("order")
        ids._sequences._make = make
        assert ids.next_id("order") == 1
