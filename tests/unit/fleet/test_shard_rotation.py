"""The shards of a fleet in one process, in memory."""

from __future__ import annotations

from time import monotonic

import pytest
from support.memory.fleet import MemoryShard

from allocator.errors import DatabaseUnavailable
from allocator.fleet.fleet_backend import Fleet
from allocator.fleet.shard_rotation import Handle
from allocator.rules.fleet_consistency import Shard
from allocator.runtime.thread_pool import Background
from allocator.schemes.shared.residues import ALL
from allocator.schemes.ticket import ShardNumbering


def test_a_draw_while_no_shard_answers_leaves_the_pause_to_its_caller():
    """The threads of the pool also serve segments, which may be sound where tickets fail."""
    for count in (1, 2):
        databases: dict[str, MemoryShard] = {}
        shards = [MemoryShard(f"db://{number}", databases) for number in range(count)]
        fleet = Fleet(shards, Background(), None, 5.0)
        assert fleet.ticket("invoice", monotonic() + 5.0) == 1, count
        for shard in shards:
            shard.down = True

        with pytest.raises(DatabaseUnavailable, match="is down") as found:
            fleet.ticket("invoice", monotonic() + 5.0)
        assert 0 < found.value.pause <= 0.5, count


def test_an_exception_of_a_hook_while_one_shard_is_probed_leaves_the_other_to_the_next_call(monkeypatch):
    class Surprise(BaseException):
        pass

    def surprise() -> None:
        raise Surprise

    databases: dict[str, MemoryShard] = {}
    shards = [MemoryShard(f"db://{number}", databases) for number in range(2)]
    fleet = Fleet(shards, Background(), None, 5.0)
    fleet.ticket("invoice", monotonic() + 5.0)
    for handle in fleet._shards.handles:
        fleet._shards.fail(handle, DatabaseUnavailable("down"))
    for state in fleet._shards.rotation.states:
        state.probe_at = 0.0
    monkeypatch.setattr(shards[0], "start", surprise)

    with pytest.raises(Surprise):
        fleet.ticket("invoice", monotonic() + 5.0)
    assert fleet.ticket("invoice", monotonic() + 5.0) > 0


def test_a_thread_that_is_late_with_a_lower_ticket_leaves_the_greater_one_known():
    handle = Handle(0, MemoryShard("db://0", {}))  # type: ignore[arg-type]
    handle.row = Shard("main", "key", True, 1, ShardNumbering(), 1, ())
    answers = iter([5, 6])

    def ticket(*_: object) -> int:
        drawn = next(answers)
        if drawn == 5:
            handle.draw("job", lambda *_: None)  # by another thread, meanwhile
        return drawn

    handle.database.ticket = ticket  # type: ignore[method-assign]

    assert handle.draw("job", lambda *_: None) == 5
    assert handle.seen["job"] == {ALL: 6}
