"""Statements and forks of one process keep out of each other's way, and nobody waits for ever."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.database.sqlite import dialect, fork_gate
from allocator.database.sqlite.fork_gate import Gate


def begun(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


class Statement:
    """On a thread of its own, under way until it is told to end."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.is_under_way, self.may_end = gate, threading.Event(), threading.Event()
        self.thread = begun(self.run)

    def run(self) -> None:
        with self.gate.statement():
            self.is_under_way.set()
            self.may_end.wait(5)

    def end(self) -> None:
        self.may_end.set()
        self.thread.join()


@pytest.fixture
def gate(monkeypatch):
    monkeypatch.setattr(fork_gate, "PATIENCE", 5.0)
    return Gate()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(fork_gate, "PATIENCE", 0.01)
    return Gate()


def test_a_fork_waits_for_what_is_under_way(gate):
    statement = Statement(gate)
    statement.is_under_way.wait(5)
    forked = threading.Event()
    fork = begun(lambda: (gate.enter(), forked.set()))

    assert not forked.wait(0.02)
    statement.end()
    assert forked.wait(5)
    fork.join()


def test_what_comes_next_waits_for_the_fork(gate):
    gate.enter()
    statement = Statement(gate)

    assert not statement.is_under_way.wait(0.02)
    gate.leave()
    assert statement.is_under_way.wait(5)
    statement.end()


def test_neither_waits_for_ever(impatient):
    statement = Statement(impatient)
    statement.is_under_way.wait(5)
    impatient.enter()
    other = Statement(impatient)

    assert other.is_under_way.wait(5)
    statement.end(), other.end()


def test_a_thread_does_not_wait_for_itself(gate):
    with gate.statement():
        gate.enter()
        with gate.statement():  # another database, in the middle of the first
            gate.leave()
        other = begun(gate.enter)
        other.join(0.02)
        assert other.is_alive()  # the inner one has not ended the outer one
    other.join(5)

    assert not other.is_alive()


def test_a_statement_that_fails_is_not_waited_for(gate):
    with pytest.raises(ZeroDivisionError), gate.statement():
        _ = 1 / 0
    gate.enter()


def test_a_fork_that_was_interrupted_before_it_took_the_lock_leaves_nothing_behind(gate):
    gate.leave()
    gate.enter()
    statement = Statement(gate)

    assert not statement.is_under_way.wait(0.02)
    gate.leave()
    assert statement.is_under_way.wait(5)
    statement.end()


def test_in_the_child_nothing_is_under_way(gate):
    statement = Statement(gate)
    statement.is_under_way.wait(5)
    gate.renew()
    gate.enter()
    gate.leave()
    statement.end()


def test_who_waits_for_the_file_of_another_process_does_not_hold_the_gate(gate, monkeypatch, tmp_path):
    monkeypatch.setattr(dialect, "GATE", gate)
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)

    def wait() -> None:
        with suppress(PoolTimeout), dialect.SQLite().alone(f"{tmp_path}/ids.db", monotonic() + 0.3):
            pass

    waiting, before = begun(wait), monotonic()
    waiting.join(0.05)
    gate.enter()
    assert monotonic() - before < 0.25
    assert waiting.is_alive()
    waiting.join()
    os.close(folder)
