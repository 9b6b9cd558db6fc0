"""A fork by C code runs no hook of Python's: at most one piece repeats, and then somebody is told."""

import asyncio
import json
import os
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from support.distinct import distinct
from support.kit import SQLITE, output
from support.processes.children import fork_in_c, found_in_child, in_child
from support.processes.threads import draw_on_threads
from support.rules import rule

from allocator import Allocator, AsyncAllocator, Meteor, ObjectId, Snowflake
from allocator.database.store import Database
from allocator.errors import AllocatorError, ForkedUnseen
from allocator.generators.sequence import Sequence
from allocator.runtime import forks
from allocator.runtime.threads import THREADS
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import SNOWFLAKE, Space

TESTS = str(Path(__file__).parent.parent)


@pytest.fixture
def ids(url):
    with Allocator(url, timeout=20) as made:
        yield made


def drawn_until_refused(draw) -> tuple[list, list[str]]:
    """What comes before the first error; and what is said twice then."""
    drawn: list = []
    said: list[str] = []
    while len(drawn) < 20_000 and len(said) < 2:
        try:
            drawn.append(draw())
        except AllocatorError as error:
            said.append(f"{type(error).__name__}: {error}")
    return drawn, said


@SQLITE
def test_a_tag_repeats_at_most_one_piece_and_refuses_then_for_good(url, tag):
    with Allocator(url, step=1000) as ids:
        first = ids.next_id(tag)
        repeated, said = found_in_child(lambda: drawn_until_refused(lambda: ids.next_id(tag)), fork_in_c)
        assert repeated == list(range(first + 1, first + 500))
        assert len(said) == 2
        assert said[0] == said[1]
        for words in (
            f"ForkedUnseen: tag '{tag}': C code forked this process while it held ids",
            "lazy-apps = true",
            "py-call-uwsgi-fork-hooks = true",
        ):
            assert words in said[0]
        assert ids.next_ids(tag, 5) == [2, 3, 4, 5, 6]  # the parent has nothing to fear
        assert found_in_child(lambda: [ids.next_id(f"{tag}-other"), ids.ticket(tag)], fork_in_c)


@rule(11)
@SQLITE
def test_control_without_comparing_the_process_a_child_repeats_all_that_is_in_memory(url, tag):
    def blindly() -> tuple[list, list[str]]:
        forks.process = os.getpid()  # the rule, broken
        return drawn_until_refused(lambda: ids.next_id(tag))

    with Allocator(url, step=1000, timeout=2) as ids:
        first = ids.next_id(tag)
        repeated, said = found_in_child(blindly, fork_in_c)

    assert repeated[:999] == list(range(first + 1, first + 1000))
    assert "ForkedUnseen" not in str(said)


def test_what_had_drawn_nothing_goes_on_in_the_child(ids, tag):
    """The usual case: made where it is imported, used after the fork."""

    def draw() -> list[int]:
        return [*handle.next_ids(200), *ids.reserve(tag, 5)]

    handle = ids.sequence(tag)
    ids.reserve(tag, 10)  # has threads and a connection now
    theirs = [found_in_child(draw, fork_in_c) for _ in range(3)]

    assert distinct([*draw(), *theirs[0], *theirs[1], *theirs[2]]) == 4 * 205


@SQLITE
def test_a_child_waits_for_no_thread_that_made_a_tag_while_it_was_forked(ids, tag, monkeypatch):
    inside, done = Event(), Event()

    def made_slowly(template: Tag, *more: Any) -> Sequence:
        if template.name == "slow":
            inside.set()
            done.wait()
        return Sequence(template, *more)

    monkeypatch.setattr("allocator.sync.Sequence", made_slowly)
    thread = Thread(target=ids.sequence, args=("slow",), daemon=True)
    thread.start()
    inside.wait()
    first = found_in_child(lambda: ids.next_id(tag), fork_in_c)
    done.set()
    thread.join()
    assert first != ids.next_id(tag)


def test_the_parents_connection_and_threads_are_left_alone(ids, tag):
    def blocks() -> list[int]:
        return [ids.reserve(tag, 1)[0] for _ in range(3)]

    found = blocks()
    for _ in range(2):
        found += found_in_child(blocks, fork_in_c)
        found += blocks()

    assert sorted(found) == list(range(1, 16))


@SQLITE
def test_nodes_and_leases_are_not_inherited_and_generators_that_stand_alone_refuse(ids):
    ways = {ids.meteor: "ForkedUnseen", ids.snowflake: "ForkedUnseen"}
    ways |= {Meteor(1).next_id: "NotCopyable", Snowflake(1, 1).next_id: "NotCopyable"}
    for draw, error in ways.items():
        draw()
        repeated, said = found_in_child(lambda: drawn_until_refused(draw), fork_in_c)  # noqa: B023 - run at once
        assert said[0].startswith(error), draw
        assert len(repeated) <= 4096  # a second of a meteor's, a millisecond of a snowflake's


@rule(11)
@SQLITE
def test_a_child_that_closes_what_it_inherited_gives_back_no_worker(url):
    def held() -> list[Space]:
        """Other tests lease numbers of their own spaces."""
        return [space for space in database.worker_spaces() if space.name == SNOWFLAKE]

    with Allocator(url) as ids, closing(Database(url)) as database:
        ids.snowflake()
        before = held()
        found_in_child(ids.close, fork_in_c)
        assert before[0].held
        assert held() == before


def test_object_ids_are_of_another_process_after_one_block():
    mine = {str(ObjectId()) for _ in range(10)}
    theirs = found_in_child(lambda: [str(ObjectId()) for _ in range(2000)], fork_in_c)
    mine |= {str(ObjectId()) for _ in range(2000)}

    assert len(mine & set(theirs)) <= 256


@SQLITE
def test_two_threads_of_the_child_find_out_together(ids, tag):
    theirs = found_in_child(lambda: draw_on_threads(lambda: ids.next_id(tag), threads=4, each=150), fork_in_c)

    assert distinct(sum(theirs, [])) == 600


@SQLITE
def test_the_tags_of_the_asyncio_face_are_not_awaited_for_ever(ids, tag):
    """The parent has started as many threads as it may, and none of them is there in the child."""
    tags = AsyncAllocator(ids).tags
    asyncio.run(tags.create(tag, step=7))
    together = Barrier(THREADS)
    for work in [ids._terms.background.submit(together.wait) for _ in range(THREADS)]:
        work.result(10)
    assert found_in_child(lambda: asyncio.run(tags.get(tag)).step, fork_in_c) == 7


@SQLITE
def test_a_child_of_a_child_that_was_refused_is_refused_too(ids, tag):
    def grandchild() -> str:
        found = in_child(lambda: ids.next_ids(tag, 200))
        with pytest.raises(ForkedUnseen):
            ids.next_ids(tag, 200)
        return found + in_child(lambda: ids.next_ids(tag, 200))

    ids.next_id(tag)
    before, after = found_in_child(lambda: grandchild().split("]"), fork_in_c)

    assert json.loads(f"{before}]") == list(range(11, 211))  # Python's hooks ran in it before anybody found out
    assert after.startswith("ForkedUnseen")


UWSGI = """
import sys, types
uwsgi = sys.modules["uwsgi"] = types.ModuleType("uwsgi")
calls = []
{setting}
sys.path.insert(0, {tests!r})
from support.processes.children import fork_in_c, in_child
from allocator import Allocator
ids = Allocator("sqlite:///" + sys.argv[1])
ids.next_id("order")
print(in_child(lambda: (uwsgi.post_fork_hook(), calls, ids.next_id("order"))[1:], fork_in_c), ids.next_id("order"))
"""

SETTINGS = {
    "nothing": "",
    "hook of the user's": "uwsgi.post_fork_hook = lambda: calls.append('theirs')",
    "decorators": "uwsgi.masterpid = lambda: 1\n"
    "decorators = sys.modules['uwsgidecorators'] = types.ModuleType('uwsgidecorators')\n"
    "decorators.postfork = lambda call: setattr(uwsgi, 'post_fork_hook', call)",
}
SAID = {"nothing": "([], 11) 2", "hook of the user's": "(['theirs'], 11) 2", "decorators": "([], 11) 2"}


@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_uwsgi_tells_us(name, said, tmp_path):
    """By its hook, with its decorators or without; uWSGI itself is in the long runs."""
    assert output(UWSGI.format(setting=SETTINGS[name], tests=TESTS), tmp_path / "ids.db").strip() == said
