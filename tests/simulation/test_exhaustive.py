"""Two processes, two claims each: every order, every crash, every end of a claim."""

from __future__ import annotations

import pytest

from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import ALL
from simulation.exhaustive import SIZE, STEPS, Actor, End, Worlds, all_of, how_many
from simulation.statement import Row
from simulation.violation import Violation


@pytest.mark.parametrize("limit", [MAX_ID, 3 * SIZE - 1], ids=["far from the limit", "close to the limit"])
def test_no_id_comes_twice_in_any_of_all_worlds(limit: int):
    worlds = all_of(Worlds(), limit)

    assert (worlds.visited, worlds.ended) == how_many()
    assert worlds.given == set()


class ReadsFirst(Worlds):
    """SELECT when it is decided, UPDATE with what was read."""

    def decide(self, row: Row, actor: Actor, now: float) -> Row:
        super().decide(row, actor, now)
        actor.found = range(row.max_value, row.max_value)
        return row

    def carry_out(self, row: Row, actor: Actor) -> Row:
        assert isinstance(actor.found, range)
        read = row._replace(max_value=actor.found.start)
        after = super().carry_out(read, actor)
        return row if after is read else after


class ServesBeforeTheCommit(Worlds):
    """Takes the range that a statement returned, whose commit fails then."""

    def carry_out(self, row: Row, actor: Actor) -> Row:
        if actor.end is not End.FAILED:
            return super().carry_out(row, actor)
        actor.end = End.OK
        super().carry_out(row, actor)
        return row


class AdoptsTheUnknown(Worlds):
    """Looks at the row again, and takes what it says."""

    def answer(self, row: Row, actor: Actor, now: float) -> list[int]:
        if actor.end is End.UNKNOWN:
            actor.found = ALL.ids(row.max_value, SIZE)
        return super().answer(row, actor, now)


class GivesBack(Worlds):
    """Where nobody knows how a claim ended, lowers the row again."""

    def step(self, row: Row, actor: Actor, now: float):
        after, served = super().step(row, actor, now)
        if actor.steps % STEPS == 0 and actor.end is End.UNKNOWN:
            after = after._replace(max_value=max(0, after.max_value - SIZE))
        return after, served


@pytest.mark.parametrize("broken", [ReadsFirst, ServesBeforeTheCommit, AdoptsTheUnknown, GivesBack])
def test_a_broken_rule_shows_in_one_of_them(broken: type[Worlds]):
    with pytest.raises(Violation, match="given twice"):
        all_of(broken(), MAX_ID)
