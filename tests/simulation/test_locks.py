"""Rule 12 in worlds of faults: whatever happens, no statement is sent by a thread that holds a lock."""

from __future__ import annotations

from collections import Counter
from typing import Any

from support.rules import rule

from simulation.network import Connection
from simulation.run import worlds
from simulation.scheduler import current
from simulation.threads import RLock

enter, leave, perform = RLock.__enter__, RLock.__exit__, Connection.perform


@rule(12)
def test_in_no_world_a_statement_is_sent_under_a_lock(monkeypatch):
    held, sent = Counter[object](), Counter[bool]()

    def entering(lock: RLock) -> bool:
        entered = enter(lock)
        held[current()] += 1
        return entered

    def leaving(lock: RLock, *error: object) -> None:
        held[current()] -= 1
        leave(lock, *error)

    def performing(connection: Connection, act: Any) -> Any:
        sent[held[current()] > 0] += 1
        return perform(connection, act)

    for owner, name, value in (
        (RLock, "__enter__", entering),
        (RLock, "__exit__", leaving),
        (Connection, "perform", performing),
    ):
        monkeypatch.setattr(owner, name, value)
    worlds(range(5))

    assert held.total() >= 0
    assert sent.keys() == {False}
