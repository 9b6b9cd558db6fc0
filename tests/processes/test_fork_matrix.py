"""Children of every kind that inherit an allocator which has drawn, and forks while a lock is held."""

import gc
import json
import multiprocessing
import os
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from support.distinct import distinct
from support.kit import ON_POSTGRES, ON_SERVERS, ON_TWO, SQLITE, database_of, python
from support.processes.children import PATIENCE, found_in_child, in_child, said_by
from support.rules import rule
from support.servers.databases import with_schema

from allocator import Allocator, Meteor, ObjectId
from allocator.database import fork_gate
from allocator.errors import ForkedUnseen, NotCopyable
from allocator.runtime import forks
from allocator.runtime.threads import Background
from allocator.schemes.meteor import METEOR, MeteorBlocks
from allocator.schemes.objectid import ObjectIdBlocks
from allocator.schemes.segment_refill import Segments
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.snowflake import SNOWFLAKE

inherited: Allocator


def draw(tag: str, count: int) -> tuple[int, list]:
    drawn = [*inherited.next_ids(tag, count), inherited.sequence(tag).next_id(), *inherited.reserve(tag, 2)]
    return os.getpid(), [*drawn, inherited.meteor(), inherited.snowflake(), str(ObjectId())]


@pytest.fixture
def drawn_before(url, tag):
    """An allocator that has drawn of everything, where the children look for it."""
    global inherited
    with Allocator(url) as inherited:
        yield draw(tag, 5)[1]


@rule(11)
@SQLITE
@pytest.mark.parametrize("what", ["tag", "ObjectId", "Meteor"])
def test_a_handler_that_forks_in_the_middle_of_a_decision_shares_no_id_with_the_child(url, tag, monkeypatch, what):
    """Between the ids that a core takes out of its memory and the moment when all threads are served from them."""
    reader, writer = os.pipe()
    drawn: list[object] = []
    children: list[int] = []

    def taken(blocks, *given, **named):
        values = take(blocks, *given, **named)
        if drawn and not children and not isinstance(values, Wait) and values:
            children.append(os.fork())
            if children == [0]:
                drawn.clear()
        return values

    with Allocator(url) as ids:
        core, call = {
            "tag": (Segments, lambda: ids.next_id(tag)),
            "ObjectId": (ObjectIdBlocks, lambda: str(ObjectId())),
            "Meteor": (MeteorBlocks, Meteor(7).next_id),
        }[what]
        take = core.take
        monkeypatch.setattr(core, "take", taken)
        with suppress(NotCopyable):
            while len(drawn) < 40 or not children:
                drawn.append(call())
        if children != [0]:
            drawn += [call() for _ in range(40)]  # what the child may hold
        else:
            os.write(writer, json.dumps(drawn).encode())
            os._exit(0)
    os.close(writer)
    theirs = json.loads(said_by(reader, time.monotonic() + PATIENCE))
    os.waitpid(children[0], 0)

    assert distinct([*drawn, *theirs])
    assert len(theirs) == (0 if what == "Meteor" else 40)


@rule(11)
@SQLITE
def test_a_pool_of_forked_workers(drawn_before, tag):
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.starmap(draw, [(tag, 40)] * 12)
        pool.close()  # else the end of the block may fork a worker that nobody ends
        pool.join()
    found += [(os.getpid(), drawn_before), draw(tag, 40)]
    processes: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for process, ids in found:
        processes["node", METEOR.unpack(ids[-3])["node"]].add(process)
        processes["worker", SNOWFLAKE.unpack(ids[-2])["worker"]].add(process)

    assert distinct(one for _, ids in found for one in ids)
    assert {len(each) for each in processes.values()} == {1}


@rule(11)
def test_children_and_their_children(drawn_before, tag):
    def family(depth: int) -> list:
        mine = draw(tag, 20)[1]
        theirs = found_in_child(lambda: family(depth - 1)) if depth else []
        return mine + theirs + draw(tag, 20)[1]

    everything = drawn_before + family(3)

    assert distinct(everything)


@ON_SERVERS
def test_the_parents_connection_survives_the_child_which_opens_its_own(url, tag):
    with Allocator(url) as ids:
        ids.reserve(tag, 1)
        before = backend(ids)
        assert in_child(lambda: backend(ids)) != str(before)
        for _ in range(3):
            in_child(lambda: ids.reserve(tag, 1))
        in_child(ids.close)

        assert ids.reserve(tag, 1) == range(5, 6)
        assert backend(ids) == before


def backend(ids: Allocator) -> object:
    """The server's name for our connection."""
    ask = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
    question = ask[database_of(ids).dialect.name]
    return database_of(ids).run(lambda connection, _: connection.exec_driver_sql(question).scalar())


@rule(11)
@SQLITE
def test_control_without_the_hook_a_child_repeats_the_parents_ids(url, tag):
    with Allocator(url) as ids:
        ids.next_id(tag)
        forks.alive.discard(ids)  # the rule, broken
        theirs = in_child(lambda: ids.next_id(tag))

        assert theirs == str(ids.next_id(tag))


@SQLITE
def test_a_loop_whose_allocator_was_let_go_gives_a_child_ids_of_its_own(url, tag):
    endless = iter(Allocator(url).sequence(tag))
    mine = [next(endless)]
    gc.collect()
    theirs = found_in_child(lambda: [next(endless) for _ in range(3)])
    endless.close()

    assert (mine, theirs) == ([1], [11, 12, 13])


def test_a_database_in_memory_is_refused_in_a_child():
    def refused(ids: Allocator) -> list[str]:
        found = []
        for call in (lambda: ids.next_id("order"), ids.meteor, ids.worker("space").__enter__, ids.tags.list):
            try:
                call()
            except NotCopyable as error:
                found.append(str(error))
        return found

    with Allocator("sqlite://") as ids, ids.worker("space"):
        ids.meteor()
        found = found_in_child(lambda: refused(ids))
    assert len(found) == 4
    assert all("a database in memory cannot be used after a fork" in words for words in found)


@SQLITE
@pytest.mark.parametrize("error", [RuntimeError("not well"), KeyboardInterrupt("not well")])
def test_a_child_of_which_a_part_is_not_renewed_gives_nothing_until_it_is(drawn_before, tag, monkeypatch, error):
    after_fork, parent, is_well = Background.after_fork, os.getpid(), threading.Event()

    def fail(background: Background) -> None:
        if not is_well.is_set() and os.getpid() != parent:
            raise error
        after_fork(background)

    def family() -> list:
        for call in (lambda: draw(tag, 1), inherited.meteor, inherited.snowflake, ObjectId):
            with pytest.raises((ForkedUnseen, KeyboardInterrupt), match="not well"):
                call()
        is_well.set()
        return draw(tag, 1500)[1]

    monkeypatch.setattr(Background, "after_fork", fail)
    theirs = found_in_child(family)

    assert distinct([*theirs, *drawn_before, *draw(tag, 1500)[1]])


def locks_of_ours() -> list[Any]:
    """Every lock that a module or an object of the package has, but for the one that forks wait for."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("allocator.")]
    found = [one for module in modules for one in vars(module).values()]
    objects = [one for one in [*gc.get_objects(), *found] if str(type(one).__module__).startswith("allocator.")]
    found += [one for thing in objects for one in gc.get_referents(thing, getattr(thing, "__dict__", {}))]
    kinds = (type(threading.Lock()), type(threading.RLock()))
    return [*{id(one): one for one in found if issubclass(type(one), kinds) and one is not fork_gate.lock}.values()]


@ON_TWO
def test_a_fork_while_another_thread_holds_every_lock(drawn_before, url, tag):
    holding, forked = threading.Event(), threading.Event()
    locks = locks_of_ours()
    if not url.startswith("sqlite"):  # whose pool has none
        locks.append(database_of(inherited).engine.pool._pool.mutex)

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            holding.set()
            forked.wait(30)

    def work() -> list:
        with Allocator(url) as fresh:
            database_of(fresh).upgrade_schema()
        return [*draw(tag, 1500)[1], inherited.ticket(tag)]

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert holding.wait(5)
    theirs = found_in_child(work)
    forked.set()
    thread.join()

    assert len(locks) >= 6  # of a tag, the meteor, the snowflake, the database, Alembic, ObjectIds
    assert distinct([*theirs[:-1], *drawn_before, *draw(tag, 10)[1]])


@ON_POSTGRES
def test_a_fork_while_another_thread_opens_a_connection_of_the_given_engine(url, tag):
    """SQLAlchemy holds a lock of the pool meanwhile, which nobody would give back in the child."""
    opening, forked, parent = threading.Event(), threading.Event(), os.getpid()
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def hold(*_: object) -> None:
        if os.getpid() == parent:
            opening.set()
            forked.wait(30)

    with Allocator(engine, timeout=5) as ids, ThreadPoolExecutor(1) as pool:
        mine = pool.submit(ids.next_id, tag)
        assert opening.wait(5)
        try:
            theirs = found_in_child(lambda: ids.next_id(tag))
        finally:
            forked.set()

        assert distinct([theirs, mine.result(30)]) == 2


def drawn_after_a_fork_within(ids: Allocator, tag: str, words: str) -> int:
    """By a child that is forked while another thread is in the middle of a transaction."""
    inside = threading.Event()

    def verb(connection, dialect) -> None:
        connection.exec_driver_sql(words)
        inside.set()
        time.sleep(0.3)
        connection.exec_driver_sql("COMMIT")

    thread = threading.Thread(target=database_of(ids).run, args=(verb,), daemon=True)
    thread.start()
    assert inside.wait(5)
    try:
        return found_in_child(lambda: ids.reserve(tag, 1)[0])
    finally:
        thread.join()


def test_a_fork_in_the_middle_of_a_statement_leaves_no_file_locked(fresh_file, tag):
    with Allocator(fresh_file, timeout=5) as ids:
        first = ids.reserve(tag, 1)[0]
        theirs = [drawn_after_a_fork_within(ids, tag, words) for words in ("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE")]

        assert [first, *theirs, ids.reserve(tag, 1)[0]] == [1, 2, 3, 4]


@pytest.fixture
def fresh_file(new_database):
    return with_schema(new_database("sqlite"))


IMPORTING = """
import os, sys, threading, warnings

warnings.simplefilter("ignore")  # of a fork beside threads

from allocator import Allocator
from allocator.database import fork_gate

URL = "mysql+pymysql://root@127.0.0.1:1/ids"
importing, goes_on = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "pymysql.cursors":
            importing.set()
            goes_on.wait(30)

sys.meta_path.insert(0, Slow())
os.register_at_fork(before=goes_on.set)  # runs before the hook that waits, which was registered earlier
first = threading.Thread(target=Allocator, args=[URL])
first.start()
importing.wait(30)
if os.fork() == 0:
    Allocator(URL).close()
    os._exit(0)
first.join()
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fork_in_the_middle_of_the_import_of_a_driver():
    """Its child would find a module that nobody completes."""
    assert python(IMPORTING) == (0, "", "")
