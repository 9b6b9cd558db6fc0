"""What a forked child does before it gives an id."""

from __future__ import annotations

import os
from weakref import WeakSet

import pytest

from allocator.errors import ForkedUnseen
from allocator.runtime import forks


class Thing:
    """Fails each step as long as it has an error."""

    def __init__(self, done: list[str], error: BaseException | None = None) -> None:
        self.done, self.error = done, error

    def _supplies(self) -> list[Thing]:
        return [self]

    def _forget(self) -> None:
        self.does("forget")

    def after_fork(self) -> None:
        self.does("renew")

    def does(self, step: str) -> None:
        self.done.append(step)
        if self.error:
            raise self.error


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """The steps in their order, in a process that is not the one that was seen last."""
    done: list[str] = []
    monkeypatch.setattr(forks, "process", 0)
    monkeypatch.setattr(forks, "callbacks", [lambda: done.append("call")])
    return done


def test_all_ids_are_forgotten_before_anything_is_renewed(done, monkeypatch):
    things = [Thing(done) for _ in range(3)]
    monkeypatch.setattr(forks, "alive", WeakSet(things))
    forks.renew_all()

    assert done == ["forget"] * 3 + ["call"] + ["renew"] * 3
    assert not forks.catch_up()


@pytest.mark.parametrize("error", [RuntimeError("not well"), KeyboardInterrupt("not well")])
def test_a_failure_stops_no_other_step_and_the_process_gives_no_ids_until_all_succeed(done, monkeypatch, error):
    things = [Thing(done, error), Thing(done, error)]
    monkeypatch.setattr(forks, "alive", WeakSet(things))
    refusal = ForkedUnseen if isinstance(error, Exception) else type(error)
    with pytest.raises(type(error), match="not well"):
        forks.renew_all()
    for _ in range(2):
        with pytest.raises(refusal, match="not well"):
            forks.catch_up()

    assert done == (["forget"] * 2 + ["call"] + ["renew"] * 2) * 3
    for thing in things:
        thing.error = None
    assert forks.catch_up()
    assert forks.process == os.getpid()
