"""Statements and forks of one process keep out of each other's way."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.database.sqlite import dialect, fork_gate


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
def gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_gate, "PATIENCE", 5.0)
    monkeypatch.setattr(fork_gate, "lock", threading.RLock())


def test_a_fork_waits_for_what_is_under_way() -> None:
    statement = Statement()
    statement.is_under_way.wait(5)
    forked = threading.Event()
    fork = begun(lambda: (fork_gate.close(), forked.set(), None)[2])

    assert not forked.wait(0.02)
    statement.end()
    assert forked.wait(5)
    fork.join()


def test_what_comes_next_waits_for_the_fork() -> None:
    fork_gate.close()
    statement = Statement()

    assert not statement.is_under_way.wait(0.02)
    fork_gate.leave()
    assert statement.is_under_way.wait(5)
    statement.end()


def test_a_fork_does_not_wait_for_ever_and_opens_nothing_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_gate, "PATIENCE", 0.01)
    statement = Statement()
    statement.is_under_way.wait(5)
    fork_gate.close()
    fork_gate.leave()
    other = Statement()

    assert not other.is_under_way.wait(0.02)
    statement.end(), other.end()


def test_a_statement_may_fork() -> None:
    with fork_gate.lock:
        fork_gate.close()
        fork_gate.leave()
        other = Statement()
        assert not other.is_under_way.wait(0.02)
    other.end()


def test_in_the_child_nothing_is_under_way() -> None:
    statement = Statement()
    statement.is_under_way.wait(5)
    fork_gate.renew()
    fork_gate.close()
    fork_gate.leave()
    statement.end()


def test_who_waits_for_the_file_of_another_process_does_not_hold_the_gate(tmp_path: Path) -> None:
    def wait() -> None:
        with suppress(PoolTimeout), dialect.SQLite().alone(f"{tmp_path}/ids.db", monotonic() + 0.3):
            pass

    with (tmp_path / "ids.db-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting, before = begun(wait), monotonic()
        waiting.join(0.05)
        fork_gate.close()
        assert monotonic() - before < 0.25
        fork_gate.leave()
        assert waiting.is_alive()
        waiting.join()
