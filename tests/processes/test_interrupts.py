"""Signal handlers that raise, draw or fork in the middle of a call: at each step of our code, and by real signals."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from support.distinct import distinct, none_twice
from support.faults.call_steps import Interrupted, Steps, acting, every_step
from support.kit import ON_SERVERS, SERVERS, output
from support.processes.patience import until
from support.servers.administrator import SEEN_EACH, opened, waits

from allocator import Allocator, Meteor, ObjectId, Snowflake
from allocator.errors import DatabaseUnavailable, ReentrantCall
from allocator.generators.sequence import Sequence
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


@pytest.mark.parametrize(
    ("draw", "count"),
    [(Sequence.next_ids, 1), (Sequence.next_ids, 15), (Sequence.reserve, 3)],
    ids=["one", "many", "reserved"],
)
def test_a_handler_that_draws_of_the_same_tag_gets_ids_or_a_refusal(draw, count):
    steps = list(every_step(lambda found: found.inside.extend(draw(found.ids, count)), stride=STRIDE))

    none_twice(found.at for found in steps if len(set(found.all)) < len(found.all))
    assert {found.refused for found in steps} == {True, False}
    assert all(found.refused or len(found.inside) == count for found in steps)


def test_control_without_the_refusal_a_handler_waits_for_itself(monkeypatch):
    monkeypatch.setattr("allocator.runtime.forks.enter", lambda thing: None)
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        list(every_step(lambda found: found.inside.append(found.ids.next_id()), timeout=0.05, stride=3))


def acted_at_each_step(draw: Callable[[], object], act: Callable[[], object], stride: Callable[[int], int]) -> int:
    """At how many steps of `draw` one may act."""
    at = 0
    while True:
        steps = Steps(at, act)
        with acting(steps):
            draw()
        if not steps.acted:
            return at
        at += stride(at)


@pytest.mark.parametrize("make", [lambda: Meteor(1), lambda: Snowflake(1, 1)], ids=["meteor", "snowflake"])
def test_generators_that_stand_alone_refuse_too(make):
    ids, drawn, refused = make(), [], []

    def draw() -> None:
        ids._values = iter(())
        drawn.append(ids.next_id())

    def act() -> None:
        try:
            drawn.append(ids.next_id())
        except ReentrantCall as error:
            refused.append(error)

    steps = acted_at_each_step(draw, act, lambda at: 1)
    assert len(refused) > 10
    assert distinct(drawn) > steps


def test_an_object_id_can_be_made_at_any_step_of_another():
    """It promises to need nothing: where it would wait for itself, it is made as by another process."""
    drawn: list[ObjectId] = []
    steps = acted_at_each_step(
        lambda: drawn.extend(ObjectId() for _ in range(300)),
        lambda: drawn.append(ObjectId()),
        lambda at: 1 + 50 * (at > 100),
    )
    assert steps > 100
    assert distinct(drawn)


IN_A_CHILD = """
import concurrent.futures.thread, json, logging, os, random, signal, sys, _signal
from functools import partial
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
for number in signal.SIGUSR1, signal.SIGUSR2, signal.SIGVTALRM:
    signal.signal(number, handler)
if len(sys.argv) == 3:  # before our hooks, and in C: the handler raises in the first of ours that is Python
    os.register_at_fork(before=partial(sum, range(5_000_000)))
    os.register_at_fork(before=partial(_signal.setitimer, signal.ITIMER_VIRTUAL, 0.001))
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
if (child := os.fork()) == 0:
    print(json.dumps([told, handled + draw(), *map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([told, drawn + draw(), *map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))]))
"""


@pytest.mark.parametrize("more", [(), ("one that raises before the fork",)])
def test_no_handler_raises_in_the_middle_of_the_renewal_of_a_child(tmp_path: Path, more):
    """Of a signal before it, and of signals at each of its stages, which are handled after it, and draw."""
    said = output(IN_A_CHILD, tmp_path / "ids.db", *more).splitlines()
    (in_child, theirs, *held), (in_parent, ours, *held_here) = map(json.loads, said)

    assert in_parent == [["SIGVTALRM", True]] * len(more)
    assert sorted(in_child) == [["SIGUSR1", True], ["SIGUSR2", True], *in_parent]
    assert held == held_here == [signal.SIGALRM] * (not more)
    assert distinct([*theirs, *ours]) == 14 + len(more)


STORM = """
import ctypes, json, os, random, signal, sys, threading, time
from collections import Counter
from allocator import Allocator
from allocator.errors import AllocatorError
class Soft(Exception): pass
class Hard(BaseException): pass

url, tag, seconds, hits_threads = sys.argv[1], sys.argv[2], float(sys.argv[3]), len(sys.argv) > 4
kinds = [Soft, Hard, KeyboardInterrupt, TimeoutError, MemoryError]
threading.excepthook = sys.unraisablehook = lambda _: None  # of a thread that a Hard has ended; another follows it
ids, drawn, tickets, said, slowest = Allocator(url, timeout=5, step=20), [], [], Counter(), 0.0
acts = [
    lambda: drawn.append(ids.next_id(tag)),
    lambda: drawn.extend(ids.next_ids(tag, 700)),
    lambda: drawn.extend(ids.reserve(tag, 20)),
    lambda: tickets.append(ids.ticket(tag)),
    lambda: ids.tags.set(tag, step=random.randint(500, 900)),
]
def once():
    random.choice(acts)()
def handler(_, frame):
    try:
        random.choice(acts[:4])()
        said["drawn"] += 1
    except BaseException as error:  # that of a claim whose thread was hit, too
        said[type(error).__name__] += 1
    while frame and frame.f_code is not once.__code__:
        frame = frame.f_back
    if frame:  # only where that is caught
        raise random.choice(kinds)
def send():
    while time.monotonic() < end:
        time.sleep(0.02)
        if victims := [one for one in threading.enumerate() if one.name == "allocator" and one.ident]:
            victim = ctypes.c_ulong(random.choice(victims).ident)
            said["sent"] += ctypes.pythonapi.PyThreadState_SetAsyncExc(victim, ctypes.py_object(random.choice(kinds)))

for act in acts: act()
signal.signal(signal.SIGALRM, handler)
end = time.monotonic() + seconds
if hits_threads: threading.Thread(target=send, daemon=True).start()
while time.monotonic() < end or said["drawn"] < 5 or not said["interrupted"]:
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.random() ** 2 * 0.03 + 1e-5)
        once()
    except AllocatorError as error:
        said[type(error).__name__] += 1
    except BaseException:
        said["interrupted"] += 1
    slowest = max(slowest, time.monotonic() - began)
time.sleep(0.1)
for act in acts: act()
repeated = len(drawn) - len(set(drawn)) + len(tickets) - len(set(tickets))
print(json.dumps([repeated, slowest, said]), flush=True)
os._exit(0)
"""
STORMS = [("sqlite", 1), *(pytest.param(kind, 60, marks=pytest.mark.nightly) for kind in ("sqlite", *SERVERS))]


@pytest.mark.parametrize(("kind", "seconds"), STORMS, indirect=["kind"])
def test_a_storm_of_signals_repeats_nothing_and_stops_nothing(url, tag, seconds):
    """Of handlers that draw and raise, and in the long form of exceptions sent to the threads of the pool."""
    is_long = seconds > 1
    command = [sys.executable, "-c", STORM, url, tag, str(seconds), *["threads"] * is_long]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    assert done.returncode == 0, done.stderr
    repeated, slowest, said = json.loads(done.stdout)
    none_twice(repeated)
    if is_long:
        assert min(said["interrupted"], said["sent"]) > 100
        assert slowest < 6
    else:
        assert set(said) <= {"drawn", "interrupted", "ReentrantCall"}


class TooLate(Exception):
    """As a task queue raises it at a soft time limit."""


def too_late(*_: object) -> None:
    raise TooLate


@ON_SERVERS
def test_a_handler_that_raises_in_the_middle_of_a_statement_stops_no_later_one(kind, url, tag):
    """Of a tag whose row somebody else has locked, so that the statement waits."""
    lock = text("UPDATE allocator_segment SET step = step + 1 WHERE tag = :tag")
    before, main = signal.signal(signal.SIGALRM, too_late), threading.main_thread().ident or 0
    with (
        Allocator(url, timeout=20) as ids,
        opened(url) as engine,
        engine.connect() as holder,
        engine.connect() as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        drawn = [*ids.reserve(tag, 1)]

        def raise_when_it_waits() -> None:
            assert until(lambda: waits(kind, watcher), every=SEEN_EACH)
            signal.pthread_kill(main, signal.SIGALRM)

        try:
            for _ in range(2):
                holder.execute(lock, {"tag": tag})
                alarm = pool.submit(raise_when_it_waits)
                with pytest.raises(TooLate):
                    ids.tags.set(tag, step=7)
                alarm.result(60)
                holder.rollback()
                ids.tags.list()  # on several connections, of which none may have a statement under way
                drawn += [*ids.reserve(tag, 1), ids.next_id(tag)]
                # Else MariaDB still tells of the wait before.
                assert until(lambda: not waits(kind, watcher), every=SEEN_EACH)
        finally:
            signal.signal(signal.SIGALRM, before)

    assert distinct(drawn) == 5
