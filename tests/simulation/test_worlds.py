"""No promise is broken in any world, everything that can happen has happened, and each broken rule is found."""

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
from support.rules import rule

from allocator.errors import MaxValueWentBack
from simulation import workers
from simulation.between import ENDS, OPERATORS
from simulation.controls import CONTROLS, Control, broken, out
from simulation.moves import MOVES
from simulation.network import Connection
from simulation.operators import GAPS, REFUSES
from simulation.plan import FATES, LOSSES, PROCESSES, SERVERS
from simulation.process import FOR_GOOD
from simulation.rows import NODES, TICKETS
from simulation.scheduler import current
from simulation.threads import RLock
from simulation.workers import FAULTS, FEW, LENGTH, PODS, overlaps
from simulation.world import PLANS

SEEDS = 300
"""Every broken rule shows within so many worlds; the one in which it is known to show is tried before them."""
EACH = 25
PARTS = range(10)
OF_PLANS = {
    *({*PROCESSES, *SERVERS, *LOSSES} - {"clock", "interrupt", "stall", "start"}),  # which are counted by what they do
    *(f"a statement was {fate}" for fate in FATES),
    *(f"ended with {kind.__name__}" for kind in FOR_GOOD if kind is not MaxValueWentBack),
    "blocks",
    "burnt by their reason",
    "claims committed",
    "claims that ended late",
    "clocks set back",
    "clocks set forward",
    "commits forgotten",
    "gaps skipped",
    "interrupted between calls",
    "interrupted in a call",
    "meteors",
    "snowflake alones",
    "snowflakes",
    "tags repaired",
    "threads stalled",
    "went on",
    "AllocatorClosed",
    "ClockWentBack",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "Exhausted",
    "InvalidCount",
    "MaxValueWentBack",
    "NodeIdsExhausted",
    "ServerReplaced",
}
"""Each of these must have been reached a few times, in all worlds together."""
OF_MOVES = {
    GAPS,
    REFUSES,
    NODES,
    TICKETS,
    "add",
    "copies of a member",
    "databases not used",
    "delete",
    "failovers",
    "from a second member",
    "from an old primary",
    "gaps",
    "lists refused",
    "lost",
    "make",
    "moves",
    "refused after a failover",
    "start after",
}
OF_ENDS = {
    *(operator.__name__ for operator in OPERATORS),
    "DatabaseUnavailable",
    "LeaseLost",
    "failovers",
    "kills",
    "made by a migration",
    "migrations refused",
    "node",
    "number",
    "restores",
    "ticket a",
    "worker",
}
OF_PODS = {
    *FAULTS,
    "answers lost",
    "asked an old server",
    "commits forgotten",
    "DatabaseUnavailable",
    "InvalidSetting",
    "leased",
    "lost by its clocks",
    "lost by the database",
    "NodeIdsExhausted",
    "took over",
}


def rare(counts: Counter[str], must: set[str], times: int) -> dict[str, int]:
    return {what: counts[what] for what in must if counts[what] < times}


@cache
def worlds(part: int) -> Counter[str]:
    return PLANS.worlds(range(part * EACH, (part + 1) * EACH))


@rule(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
@pytest.mark.parametrize("part", PARTS)
def test_no_world_breaks_a_promise(part: int):
    assert worlds(part)


def test_every_fault_was_reached():
    assert rare(sum(map(worlds, PARTS), Counter[str]()), OF_PLANS, 3) == {}


@rule(8)
def test_no_number_comes_twice_whatever_forgets_lags_or_is_added():
    assert rare(MOVES.worlds(range(1000)), OF_MOVES, 20) == {}


def test_no_id_comes_twice_wherever_a_server_or_process_ends():
    assert rare(ENDS.worlds(range(60)), OF_ENDS, 1) == {}


def test_no_number_is_held_by_two_and_no_second_is_used_twice():
    assert rare(FEW.worlds(range(100)), OF_PODS, 100) == {}
    assert PODS.worlds(range(2))["leased"] > 1000


def test_nor_where_the_clock_of_the_server_alone_is_wrong_by_any_time():
    with broken(out("a clock on the wall may be wrong") | {(workers, "LONGEST_STEP"): 50 * LENGTH}):
        assert FEW.worlds(range(100))["took over"] > 100


@pytest.mark.parametrize("control", CONTROLS, ids=lambda one: f"{one.engine.name}, {one.name}")
def test_control_a_broken_rule_is_found(control: Control):
    """And the world in which it is known to show ends well without it."""
    assert control.engine.failure([control.seed]) is None
    with broken(control.how):
        found = control.engine.failure([control.seed, *range(SEEDS)])

    assert re.search(control.shows, str(found)), found


def test_control_overlaps_are_counted():
    spans = [
        ([(0, 5, "a"), (5, 9, "b")], 0),
        ([(0, 5, "a"), (4, 9, "b")], 1),
        ([(0, 9, "a"), (1, 2, "a"), (5, 6, "b")], 1),
        ([(0, 9, "a"), (1, 2, "b"), (3, 4, "a"), (8, 10, "c")], 2),
        ([(0, 3, "a"), (2, 2, "b"), (3, 4, "a")], 0),
    ]
    assert [(one, overlaps(one)) for one, _ in spans] == spans


@rule(12)
def test_in_no_world_a_statement_is_sent_under_a_lock(monkeypatch):
    held, entered, sent = Counter[object](), Counter[object](), Counter[bool]()
    enter, leave, perform = RLock.__enter__, RLock.__exit__, Connection.perform

    def entering(lock: RLock) -> bool:
        taken = enter(lock)
        held[current()] += 1
        entered[current()] += 1
        return taken

    def leaving(lock: RLock, *error: object) -> None:
        held[current()] -= 1
        leave(lock, *error)

    def performing(connection: Connection, act: Any) -> Any:
        sent[held[current()] > 0] += 1
        return perform(connection, act)

    monkeypatch.setattr(RLock, "__enter__", entering)
    monkeypatch.setattr(RLock, "__exit__", leaving)
    monkeypatch.setattr(Connection, "perform", performing)
    PLANS.worlds(range(5))

    assert entered.total() > 0
    assert held.total() == 0
    assert sent.keys() == {False}
