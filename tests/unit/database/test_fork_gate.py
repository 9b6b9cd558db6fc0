"""Statements and forks of one process keep out of each other's way."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic

import pytest
from support.faults.call_steps import Steps, acting
from support.kit import output

from allocator.database import fork_gate
from allocator.database.sqlite import SQLite
from allocator.runtime.forks import is_held_here
from allocator.runtime.threads import Work


def begun(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


class Statement:
    """On a thread of its own, under way until it is told to end."""

    def __init__(self) -> None:
        self.is_under_way, self.may_end = threading.Event(), threading.Event()
        self.thread = begun(self.run)

    def run(self) -> None:
        with fork_gate.lock:
            self.is_under_way.set()
            self.may_end.wait(5)

    def end(self) -> None:
        self.may_end.set()
        self.thread.join()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def wait_at_most(seconds: float) -> None:
        monkeypatch.setitem(fork_gate.close.keywords, "timeout", seconds)

    wait_at_most(5.0)
    return wait_at_most


@pytest.fixture
def statement() -> Iterator[Statement]:
    """One that is under way; the next one comes after it."""
    made = Statement()
    assert made.is_under_way.wait(5)
    yield made
    made.end()


@contextmanager
def next_one_waits() -> Iterator[Statement]:
    """A statement that has to wait, and ends with the block."""
    other = Statement()
    assert not other.is_under_way.wait(0.02)
    yield other
    other.end()


def test_a_fork_waits_for_what_is_under_way(statement) -> None:
    forked = threading.Event()
    fork = begun(lambda: (fork_gate.close(), forked.set(), fork_gate.leave())[2])

    assert not forked.wait(0.02)
    statement.end()
    assert forked.wait(5)
    fork.join()


def test_an_exception_at_any_step_leaves_no_file_taken(tmp_path: Path) -> None:
    """As one that is sent to a thread of the pool. Each is kept, as the last error of a tag is."""
    kept: list[Work[None]] = []

    def statement() -> None:
        with SQLite().alone(f"{tmp_path}/ids.db", monotonic() + 5):
            pass

    def interrupt() -> None:
        raise SystemExit

    for at in count():
        steps = Steps(at, interrupt, raising=True)
        kept.append(Work(statement))
        with suppress(SystemExit), acting(steps):
            kept[-1].run()
        assert not is_held_here(fork_gate.lock), steps.where
        if not steps.acted:
            break
    assert len(kept) > 10


def test_what_comes_next_waits_for_the_fork() -> None:
    fork_gate.close()
    with next_one_waits() as other:
        fork_gate.leave()
        assert other.is_under_way.wait(5)


def test_a_fork_does_not_wait_for_ever_and_opens_nothing_then(patience, statement) -> None:
    patience(0.01)
    fork_gate.close()
    with pytest.raises(RuntimeError):  # Python prints and ignores it
        fork_gate.leave()
    with next_one_waits():
        statement.end()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as `leave` says
def test_in_the_child_nothing_is_under_way(patience, statement) -> None:
    patience(0.01)
    if (child := os.fork()) == 0:  # without the lock, which the thread of the statement holds
        os._exit(not fork_gate.lock.acquire(timeout=0.01))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_statement_that_forks_goes_on_in_the_child() -> None:
    with fork_gate.lock:
        if (child := os.fork()) == 0:
            fork_gate.lock.release()
            os._exit(is_held_here(fork_gate.lock))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


INTERRUPTED = """
import os, signal
from ctypes import CDLL
from functools import partial

from allocator.runtime import forks

class Interrupt(Exception): ...

def interrupt(*_): raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
alarm = partial(CDLL(None)["raise"], signal.SIGALRM)  # checks no signals itself: the next step in Python does
os.register_at_fork(after_in_parent=alarm)

from allocator.database import fork_gate

for _ in range(3):
    try:
        if os.fork() == 0:
            os._exit(0)
    except Interrupt:
        pass
    os.wait()
print(forks.os.getpid() == forks.process, fork_gate.lock._is_owned())
"""


def test_a_handler_that_raises_in_the_middle_of_a_fork_leaves_nothing_locked() -> None:
    assert output(INTERRUPTED) == "True False\n"
