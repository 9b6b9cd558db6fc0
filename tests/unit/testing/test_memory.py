"""`allocator.testing`: the allocator in memory, the same in every run, and in trouble when a test wants it."""

import asyncio
import copy
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.distinct import distinct
from support.kit import output
from support.processes.children import in_child
from support.processes.threads import draw_on_threads

from allocator import (
    Allocator,
    AsyncAllocator,
    Layout,
    MeteorSettings,
    SnowflakeSettings,
    inspect_id,
)
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseUnavailable,
    InvalidDatabase,
    InvalidSetting,
    NodeIdsExhausted,
    NotCopyable,
)
from allocator.generators.backend_protocol import Backend
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.argument_checks import check_count
from allocator.testing import MemoryAllocator, MemoryBackend, SynchronousBackground

AWAY = DatabaseUnavailable("the server is being moved")


ELSEWHERE = """
import asyncio, sys, threading
from allocator import AsyncAllocator
from allocator.testing import MemoryAllocator
ids = MemoryAllocator()
print([ids.next_id('a') for _ in range(150)][-1], ids.reserve('a', 5), ids.meteor(), ids.snowflake())
ids.ticket('a'), ids.tags.create('b'), ids.tags.set('b', step=5), ids.next_ids('a', 2000)
print({'sqlalchemy', 'sqlite3', 'psycopg', 'pymysql', 'http.client', 'pytest', 'allocator.database'} & {*sys.modules})
asyncio.run(AsyncAllocator(ids).next_id('a')), ids.close()
print(threading.active_count())
"""


def test_every_process_gives_the_same_ids_and_needs_no_database_and_no_thread():
    environment = {**os.environ, "PYTHONHASHSEED": "9", "TZ": "Asia/Tokyo"}
    ids, modules, threads = output(ELSEWHERE, env=environment).splitlines()

    assert ids == "150 range(151, 156) 2743061608975581193 2006515713438646272"
    assert (modules, threads) == ("set()", "1")


def test_meteors_and_snowflakes_begin_at_a_fixed_moment_and_increase():
    """In formats of one's own too."""
    short = Layout(sign=1, timestamp=20, datacenter=5, worker=26, sequence=12)
    ids = MemoryAllocator()
    for scheme, draw, fields in [
        ("meteor", ids.meteor, {"node": 1, "sequence": 1}),
        ("snowflake", ids.snowflake, {"worker": 0, "sequence": 0}),
    ]:
        drawn = [draw() for _ in range(10_000)]
        (first,) = inspect_id(drawn[0], scheme=scheme).readings

        assert distinct(drawn)
        assert sorted(drawn) == drawn
        assert (str(first.time), first.likely) == ("2026-01-01 00:00:00+00:00", True)
        assert fields.items() <= first.fields.items()
    own = MemoryAllocator(snowflake=SnowflakeSettings(layout=short), meteor=MeteorSettings(epoch=1_768_225_599))
    assert short.unpack(own.snowflake())["timestamp"] == 1
    assert inspect_id(own.meteor(), scheme="meteor", epoch=1_768_225_599).readings[0].fields["second"] == 1


def draws(ids: MemoryAllocator):
    return {
        "next_id": lambda: ids.next_id("order"),
        "next_ids of a new tag": lambda: ids.next_ids("new", 3),
        "a loop": lambda: next(iter(ids.sequence("order"))),
        "reserve": lambda: ids.reserve("order", 3),
        "ticket": lambda: ids.ticket("a"),
        "meteor": ids.meteor,
        "snowflake": ids.snowflake,
        "tags": ids.tags.list,
    }


def test_every_call_fails_as_a_test_wants_it_until_its_block_ends_and_nothing_is_lost(subtests):
    for name in draws(MemoryAllocator()):
        with subtests.test(name):
            ids, never_failed = MemoryAllocator(), MemoryAllocator()
            for one in (ids, never_failed):
                [draws(one)[each]() for each in ("next_id", "meteor", "snowflake")]
            with pytest.raises(ZeroDivisionError), ids.fail(AWAY):
                for _ in range(2):
                    with pytest.raises(DatabaseUnavailable, match=str(AWAY)) as raised:
                        draws(ids)[name]()
                    assert raised.value is not AWAY
                raise ZeroDivisionError

            assert draws(ids)[name]() == draws(never_failed)[name]()
    with pytest.raises(InvalidSetting, match=r"fail\(\) needs an AllocatorError"):
        MemoryAllocator().fail(DatabaseUnavailable).__enter__()


def test_what_it_has_no_use_for_is_refused_with_one_sentence():
    assert MemoryAllocator(shards=None, runway=30, timeout=1).next_id("order") == 1
    with pytest.raises(InvalidDatabase) as refused:
        MemoryAllocator("postgresql://me:secret@host/ids")
    assert "secret" not in str(refused.value)
    for made, words in (
        (lambda: MemoryAllocator(token="x"), "takes no token, since it has no database"),
        (lambda: MemoryAllocator(step=0), "step must be"),
        (lambda: AsyncAllocator(MemoryAllocator(), step=5), "has its settings already; pass step to it"),
    ):
        with pytest.raises(InvalidSetting, match=words):
            made()


def test_after_the_end_nothing_is_given():
    with MemoryAllocator() as ids:
        sequence = ids.sequence("order")
        loop = iter(sequence)
        assert [next(loop), sequence.next_id(), ids.snowflake()][:2] == [1, 2]

    for draw in (lambda: ids.next_id("order"), lambda: next(loop), ids.snowflake, ids.meteor, lambda: ids.ticket("a")):
        with pytest.raises(AllocatorClosed):
            draw()


def test_it_is_neither_copied_nor_used_in_a_forked_child():
    ids = MemoryAllocator()
    ids.next_id("order"), ids.meteor(), ids.snowflake()

    with pytest.raises(NotCopyable):
        copy.copy(ids)
    for draw in (lambda: ids.next_id("order"), ids.meteor, ids.snowflake):
        assert in_child(draw).startswith("NotCopyable: a MemoryAllocator cannot be used after a fork")
    assert ids.next_id("order") == 2


def test_threads_get_no_id_twice():
    drawn = draw_on_threads(partial(MemoryAllocator(step=3).next_id, "order"), threads=4, each=500)

    assert distinct(sum(drawn, [])) == 2000


def test_asyncio_has_the_same_names_and_the_same_ids_and_may_share_them():
    async def told(memory: MemoryAllocator) -> list[object]:
        async with AsyncAllocator(memory) as ids:
            await ids.tags.create("cart", limit=2)
            found = [await ids.next_id("cart"), await ids.next_ids("order", 15), await ids.reserve("order", 4)]
            with memory.fail(AWAY), pytest.raises(DatabaseUnavailable):
                await ids.next_id("order")
            found += [await ids.ticket("a"), await ids.meteor(), await ids.snowflake(), await ids.next_id("order")]
            with memory.fail(AWAY), pytest.raises(DatabaseUnavailable):
                await ids.worker("pods").__aenter__()
            async with ids.worker("pods") as worker:
                return [*found, worker.number, worker.lost]

    ids, other = MemoryAllocator(step=10), MemoryAllocator(step=10)
    assert asyncio.run(told(ids)) == asyncio.run(told(MemoryAllocator(step=10)))
    other.tags.create("cart", limit=2)
    assert (other.next_id("cart"), other.next_ids("order", 20)[-1]) == (1, 20)
    assert (other.next_id("order"), ids.next_id("order")) == (21, 21)
    assert isinstance(MemoryBackend(), Backend)


# -- worker numbers


def test_worker_numbers_are_the_smallest_that_are_free_and_never_end():
    before = set(threading.enumerate())
    with MemoryAllocator() as ids:
        with ids.worker("pods", bits=1, seconds=1) as one, ids.worker("pods", bits=1, seconds=1) as two:
            assert (one.number, two.number, one.lost, one.left()) == (0, 1, False, 1.0)
            with pytest.raises(NodeIdsExhausted, match="all 2 numbers of space 'pods' are held"):
                ids.worker("pods", bits=1, seconds=1).__enter__()
        assert one.lost
        with ids.worker("pods", bits=1, seconds=1) as again:
            assert again.number == 0
        assert set(threading.enumerate()) <= before


# -- one story in memory and on a database, word for word


class AtOnceAllocator(Allocator):
    """On a database, with each id claimed by itself and where it is asked for."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._terms.background = SynchronousBackground()

    def next_id(self, tag: str) -> int:
        return self.reserve(tag, 1)[0]

    def next_ids(self, tag: str, count: int) -> list[int]:
        return [self.next_id(tag) for _ in range(check_count(count))]


Call = Callable[[Allocator], Any]

names = st.sampled_from(["a", "b"])
small = st.integers(1, 40)
numbers = st.one_of(small, st.sampled_from([0, -1, 10**4, 10**9]))


def called(method: str, *args: st.SearchStrategy[Any], **given_: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(method), st.tuples(*args), st.fixed_dictionaries({}, optional=given_))


calls = st.lists(
    st.one_of(
        called("next_id", names),
        called("next_ids", names, numbers),
        called("reserve", names, numbers),
        called("ticket", names),
        called("tags.create", names, step=numbers, limit=numbers, start_after=numbers, max_step=numbers),
        called("tags.set", names, step=numbers, limit=numbers, start_after=numbers, failover_gap=numbers),
        called("tags.repair", names, above=numbers.filter(lambda number: number > 0)).filter(lambda call: call[2]),
        called("tags.get", names),
        called("tags.list"),
        called("meteor"),
    ),
    min_size=5,
    max_size=30,
)


def answer(ids: Allocator, method: str, args: tuple[Any, ...], given_: dict[str, Any]) -> str:
    target: Any = ids
    for part in method.split("."):
        target = getattr(target, part)
    try:
        found = target(*args, **given_)
        if method == "meteor":  # its second and its random field are not those of another run
            found = [METEOR.unpack(found)[field] for field in ("node", "sequence")]
        return repr(found).partition(", skipped=")[0]
    except AllocatorError as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=25)
@given(calls, st.booleans())
def test_a_story_is_told_alike_in_memory_and_on_a_database(story, create_missing: bool):
    rules = {"create_missing": create_missing, "step": 7, "max_step": 30}
    with AtOnceAllocator("sqlite://", **rules) as real, MemoryAllocator(**rules) as memory:
        for call in story:
            assert answer(memory, *call) == answer(real, *call), call


# -- `Allocator.use`: an allocator of the application, on another database for the time of a test


NOWHERE = "postgresql+psycopg://127.0.0.1:9/production"


def test_ids_of_every_kind_come_from_there():
    ids, awaited, memory = Allocator(NOWHERE), AsyncAllocator(NOWHERE), MemoryAllocator()
    with ids.use(memory), awaited.use(AsyncAllocator(MemoryAllocator())):
        assert asyncio.run(awaited.next_id("order")) == 1
        drawn = ids.next_id("order"), ids.ticket("job"), ids.reserve("block", 5), ids.meteor(), ids.snowflake()
        ids.ping()

        assert drawn[:3] == (1, 1, range(1, 6))
        assert {tag.name for tag in ids.tags.list()} == {tag.name for tag in memory.tags.list()} == {"block", "order"}


def test_afterwards_it_claims_from_its_own_database_again(tmp_path):
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        handle = ids.sequence("order")
        assert [ids.next_id("order"), handle.next_id()] == [1, 2]
        with pytest.raises(ZeroDivisionError), ids.use(MemoryAllocator(limit=100)):
            assert [ids.next_id("order"), handle.next_id(), ids.sequence("order").next_id()] == [1, 2, 3]
            ids.next_id("other")
            raise ZeroDivisionError
        after = ids.next_id("order")

        assert 2 < after <= 1001
        assert handle.next_id() == after + 1
        assert [tag.name for tag in ids.tags.list()] == ["order"]
