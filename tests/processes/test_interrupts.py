"""Signal handlers that raise, draw or fork in the middle of a call: at each step of our code, and by real signals."""

import ctypes
import gc
import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text
from support.distinct import distinct, none_twice
from support.faults.call_steps import Interrupted, Steps, acting, every_step
from support.kit import ON_SERVERS, database_of, output
from support.memory.database import Source
from support.processes.patience import until
from support.servers.administrator import SEEN_EACH, waits

from allocator import Allocator, Meteor, ObjectId, Snowflake
from allocator.errors import DatabaseUnavailable, ReentrantCall
from allocator.runtime.forks import reentrant_call
from allocator.schemes.shared.retry_pace import Pace

STRIDE = 11
"""Of the steps at which something is drawn; the long runs take each."""


def interrupt(found: Interrupted) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_at_any_step_burns_and_never_repeats_and_the_next_call_works():
    """At all places where the interpreter lets a signal raise."""
    steps = list(every_step(interrupt, raising=True))

    assert len(steps) > 300
    none_twice(found.at for found in steps if len(set(found.all)) < len(found.all))
    assert [found.at for found in steps if found.all != sorted(found.all)] == []
    assert max(len(found.source.claims) for found in steps) <= 8  # six are needed, one is burnt, one is in advance


def test_control_where_an_interrupted_claim_counts_as_under_way_the_tag_is_blocked(monkeypatch):
    monkeypatch.setattr(Pace, "withdraw", lambda _: None)
    with pytest.raises(DatabaseUnavailable):
        list(every_step(interrupt, raising=True, timeout=0.05))


@pytest.mark.parametrize("count", [1, 15])
def test_a_handler_that_draws_of_the_same_tag_gets_an_id_or_a_refusal(count):
    steps = list(every_step(lambda found: found.inside.extend(found.ids.next_ids(count)), stride=STRIDE))

    none_twice(found.at for found in steps if len(set(found.all)) < len(found.all))
    assert {found.refused for found in steps} == {True, False}
    assert all(found.refused or len(found.inside) == count for found in steps)


def test_a_handler_that_reserves_of_the_same_tag_gets_a_block_or_a_refusal():
    steps = list(every_step(lambda found: found.inside.extend(found.ids.reserve(3)), stride=STRIDE))

    none_twice(found.at for found in steps if len(set(found.all)) < len(found.all))
    assert {found.refused for found in steps} == {True, False}


def test_control_without_the_refusal_a_handler_waits_for_itself(monkeypatch):
    monkeypatch.setattr("allocator.runtime.forks.enter", lambda thing: None)
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        list(every_step(lambda found: found.inside.append(found.ids.next_id()), timeout=0.05, stride=3))


def test_a_destructor_that_draws_is_refused_and_does_not_wait_for_itself(monkeypatch):
    """The garbage collector may run it anywhere, also while the lock is held."""
    said: list[object] = []
    ids = Allocator(Source(), timeout=60.0).sequence("order")  # a collection may take long

    class Thing:
        def __del__(self) -> None:
            try:
                said.append(ids.next_id())
            except ReentrantCall as error:
                said.append(str(error))

    def collected(self):
        thing = Thing()
        thing.itself = thing
        del thing
        gc.collect()

    monkeypatch.setattr(type(ids), "_check_usable", collected)
    assert ids.next_id() == 1

    assert set(said) == {str(reentrant_call("tag 'order'"))}


@pytest.mark.parametrize("make", [lambda: Meteor(1), lambda: Snowflake(1, 1)], ids=["meteor", "snowflake"])
def test_generators_that_stand_alone_refuse_too(make):
    ids, drawn, refused, at = make(), [], 0, 0

    def draw() -> None:
        nonlocal refused
        try:
            drawn.append(ids.next_id())
        except ReentrantCall:
            refused += 1

    while True:
        steps = Steps(at, draw)
        ids._values = iter(())
        with acting(steps):
            drawn.append(ids.next_id())
        if not steps.acted:
            break
        at += 1

    assert refused > 10
    assert distinct(drawn) > at


def test_an_object_id_can_be_made_at_any_step_of_another():
    """It promises to need nothing: where it would wait for itself, it is made as by another process."""
    drawn: list[ObjectId] = []
    at = 0
    while True:
        steps = Steps(at, lambda: drawn.append(ObjectId()))
        with acting(steps):
            drawn.extend(ObjectId() for _ in range(300))
        if not steps.acted:
            break
        at += 1 + 50 * (at > 100)

    assert at > 100
    assert distinct(drawn)


IN_A_CHILD = """
import concurrent.futures.thread, json, logging, os, random, signal, sys
# After the hooks of these modules and before ours.
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGUSR1))
from allocator import Allocator, Meteor, ObjectId
from allocator.runtime import forks

class Raised(Exception):
    pass

class Killing:
    def send(self):
        os.kill(os.getpid(), signal.SIGUSR2)

    _forget = after_fork = send

    def _supplies(self):
        return [self]

def handler(number, _):
    told.append([signal.Signals(number).name, forks.process == os.getpid()])
    handled.append(ids.next_id("order"))
    raise Raised

def draw():
    return [ids.next_id("order"), ids.meteor(), ids.snowflake(), str(ObjectId())]

told, handled, killing, ids = [], [], Killing(), Allocator("sqlite:///" + sys.argv[1])
forks.register(killing)
drawn = draw()
for number in signal.SIGUSR1, signal.SIGUSR2:
    signal.signal(number, handler)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
if (child := os.fork()) == 0:
    print(json.dumps([told, handled + draw(), *map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([told, drawn + draw(), *map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))]))
"""


def test_no_handler_raises_in_the_middle_of_the_renewal_of_a_child(tmp_path: Path):
    """Of a signal before it, and of signals at each of its stages, which are handled after it, and draw."""
    said = output(IN_A_CHILD, tmp_path / "ids.db").splitlines()
    (in_child, theirs, *held), (in_parent, ours, *held_here) = map(json.loads, said)

    assert sorted(in_child) == [["SIGUSR1", True], ["SIGUSR2", True]]
    assert in_parent == []
    assert held == held_here == [signal.SIGALRM]
    assert distinct([*theirs, *ours]) == 14


STORM = """
import json, signal, sys, time
from allocator import Allocator
from allocator.errors import AllocatorError
ids, drawn, tickets, done = Allocator("sqlite:///" + sys.argv[1], step=20, max_step=20), [], [], {}
awaited = False  # an interrupt is raised only where it is caught

def is_going_on():
    return time.monotonic() < end or done.get("drawn", 0) < 5 or not done.get("interrupted")

def count(word):
    done[word] = done.get(word, 0) + 1

def handler(*_):
    global awaited
    turn = done["signals"] = done.get("signals", 0) + 1
    try:
        if turn % 4 == 0: drawn.append(ids.next_id("order"))
        if turn % 4 == 1: drawn.extend(ids.reserve("order", 2))
        if turn % 4 == 2: tickets.append(ids.ticket("order"))
        count("drawn")
    except AllocatorError as error:
        count(type(error).__name__)
    finally:
        if is_going_on(): signal.setitimer(signal.ITIMER_REAL, 0.0003 + turn % 7 * 0.0002)
    if turn % 5 == 0 and awaited:
        awaited = False
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, handler)
drawn.append(ids.next_id("order")), tickets.append(ids.ticket("order"))
end = time.monotonic() + 1.0
signal.setitimer(signal.ITIMER_REAL, 0.001)
while is_going_on():
    try:
        awaited = True
        for _ in range(7): drawn.append(ids.next_id("order"))
        tickets.append(ids.ticket("order"))
        awaited = False
    except KeyboardInterrupt:
        count("interrupted")
drawn += ids.next_ids("order", 100)
repeated = len(drawn) - len(set(drawn)) + len(tickets) - len(set(tickets))
print(json.dumps(done | {"repeated": repeated, "ids": len(drawn), "tickets": len(tickets)}))
"""


def test_a_storm_of_signals_repeats_nothing_and_stops_nothing(tmp_path: Path):
    said = json.loads(output(STORM, tmp_path / "ids.db"))

    none_twice(said.pop("repeated"))
    assert said["interrupted"] >= 1
    assert said["drawn"] >= 5
    assert set(said) <= {"signals", "drawn", "interrupted", "ReentrantCall", "ids", "tickets"}


class TooLate(Exception):
    """As a task queue raises it at a soft time limit."""


def too_late(*_: object) -> None:
    raise TooLate


class Held:
    """A tag whose row somebody else has locked, so that a statement waits until something is done to its thread."""

    def __init__(self, stack: ExitStack, kind: str, url: str, tag: str) -> None:
        self.kind, self.tag, self.thread = kind, tag, 0
        self.ids = stack.enter_context(Allocator(url, timeout=20))
        self.drawn = [*self.ids.reserve(tag, 1)]
        engine = create_engine(url)
        stack.callback(engine.dispose)
        self.holder, self.watcher = stack.enter_context(engine.connect()), stack.enter_context(engine.connect())
        self.pool = stack.enter_context(ThreadPoolExecutor(1))
        event.listen(database_of(self.ids).engine, "checkout", self.note)

    def note(self, *_: object) -> None:
        self.thread = threading.get_ident()

    def lock(self) -> None:
        # Else MariaDB still tells of the wait before, and the wrong thread is interrupted.
        assert until(lambda: not waits(self.kind, self.watcher), every=SEEN_EACH)
        self.holder.execute(text("UPDATE allocator_segment SET step = step + 1 WHERE tag = :tag"), {"tag": self.tag})

    def when_it_waits(self, act: Callable[[], object]) -> None:
        assert until(lambda: waits(self.kind, self.watcher), every=SEEN_EACH)
        act()

    def draw(self) -> None:
        """On several connections, of which none may have a statement under way."""
        self.holder.rollback()
        self.ids.tags.list()
        self.drawn += [*self.ids.reserve(self.tag, 1), self.ids.next_id(self.tag)]


@pytest.fixture
def held(kind: str, url: str, tag: str):
    with ExitStack() as stack:
        yield Held(stack, kind, url, tag)


@ON_SERVERS
def test_a_handler_that_raises_in_the_middle_of_a_statement_stops_no_later_one(held):
    before = signal.signal(signal.SIGALRM, too_late)
    try:
        for _ in range(2):
            held.lock()
            alarm = held.pool.submit(
                held.when_it_waits, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            )
            with pytest.raises(TooLate):
                held.ids.tags.set(held.tag, step=7)
            alarm.result(60)
            held.draw()
    finally:
        signal.signal(signal.SIGALRM, before)

    assert distinct(held.drawn) == 5


@ON_SERVERS
def test_an_exception_in_the_middle_of_a_claim_stops_no_later_one(held):
    """Set from outside, in a thread of the pool; it is raised when the answer comes, or psycopg looks for one."""
    for error in (TooLate, MemoryError, KeyboardInterrupt):
        held.lock()
        claim = held.pool.submit(held.ids.reserve, held.tag, 1)

        def interrupt(error: type[BaseException] = error) -> None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(held.thread), ctypes.py_object(error))

        held.when_it_waits(interrupt)
        held.holder.rollback()
        with pytest.raises(error):
            claim.result(60)
        held.draw()

    assert distinct(held.drawn) == 7
