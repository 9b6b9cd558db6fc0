"""The smallest world, and everything that can happen in it: two processes, two claims each.

A claim has three steps: it is decided, it is carried out by the database, its answer comes. They interleave in every
order; each claim ends well, fails, or is committed while nobody learns it; and each process may crash after any step,
which is a world in which it has no further one. The rules are the real ones of `Segments` and `settle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import comb

from allocator.database.verbs.claims import Terms
from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.rules.failover import Move
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.residues import ALL, mark
from allocator.schemes.tag import settle
from simulation.statement import Row, Rules, claimed
from simulation.violation import Violation

CLAIMS, STEPS, SIZE = 2, 3, 2
HERE = Move("run", key=1)
TERMS = Terms(ALL, HERE.key, HERE.key, HERE.run)
UNKNOWN = DatabaseUnavailable("nobody knows")
RULES = Rules()


class End(Enum):
    OK, FAILED, UNKNOWN = range(3)


@dataclass
class Actor:
    """One process: its rules, and the claim that is under way."""

    core: Segments = field(default_factory=Segments)
    steps: int = 0
    claim: Claim | None = None
    end: End = End.OK
    found: range | AllocatorError | None = None

    def copy(self) -> Actor:
        return Actor(copied(self.core), self.steps, self.claim, self.end, self.found)

    @property
    def is_done(self) -> bool:
        return self.steps == CLAIMS * STEPS


def copied(thing: Segments) -> Segments:
    made = Segments.__new__(Segments)
    for name in Segments.__slots__:
        setattr(made, name, getattr(thing, name))
    made.seen = dict(thing.seen)
    made.pace = type(thing.pace).__new__(type(thing.pace))
    for name in type(thing.pace).__slots__:
        setattr(made.pace, name, getattr(thing.pace, name))
    return made


class Worlds:
    """Every one is visited once; `given` are the ids that were given out on the way to the present one."""

    def __init__(self) -> None:
        self.visited = 0
        self.ended = 0
        self.given: set[int] = set()

    def visit(self, row: Row, actors: tuple[Actor, ...], now: float) -> None:
        self.visited += 1
        if all(actor.is_done for actor in actors):
            self.ended += 1
        for number, actor in enumerate(actors):
            if actor.is_done:
                continue
            for end in self._ends(actor):
                ours = actor.copy()
                ours.end = end
                after, served = self.step(row, ours, now)
                self._give(served)
                others = (*actors[:number], ours, *actors[number + 1 :])
                self.visit(after, others, now + 2.0)
                self.given.difference_update(served)

    def _ends(self, actor: Actor) -> Iterator[End]:
        """How the claim ends is decided when it is carried out."""
        return iter(End if actor.steps % STEPS == 1 else [actor.end])

    def _give(self, served: list[int]) -> None:
        if self.given & set(served):
            raise Violation(f"{self.given & set(served)} given twice")
        self.given.update(served)

    # -- the three steps of a claim

    def step(self, row: Row, actor: Actor, now: float) -> tuple[Row, list[int]]:
        """The row afterwards, and the ids that were given out."""
        number = actor.steps % STEPS
        actor.steps += 1
        if number == 0:
            return self.decide(row, actor, now), []
        if number == 1:
            return self.carry_out(row, actor), []
        return row, self.answer(row, actor, now)

    def decide(self, row: Row, actor: Actor, now: float) -> Row:
        want = actor.core.want(now)
        assert isinstance(want, Claim), want
        actor.claim = want
        return row

    def carry_out(self, row: Row, actor: Actor) -> Row:
        assert actor.claim is not None
        if actor.end is End.FAILED:
            actor.found = UNKNOWN
            return row
        size = actor.claim.size
        try:
            while (after := claimed(row, HERE, HERE.run, size, TERMS, mark(actor.claim.seen, ALL), RULES)) is None:
                size = settle(row.tag("tag"), "tag", size, actor.claim.seen)
        except AllocatorError as error:
            actor.found = error
            return row
        actor.found = ALL.ids(after.max_value, size) if actor.end is End.OK else UNKNOWN
        return after

    def answer(self, row: Row, actor: Actor, now: float) -> list[int]:
        assert actor.claim is not None
        if isinstance(actor.found, range):
            actor.core.committed(actor.claim, actor.found, now)
        else:
            assert actor.found is not None
            actor.core.failed(actor.claim, actor.found, now)
        return serve(actor.core)


def serve(core: Segments) -> list[int]:
    served: list[int] = []
    while piece := core.take():
        served += piece
    return served


def all_of(worlds: Worlds, limit: int) -> Worlds:
    """From the beginning, of a tag that ends there."""
    row = Row(0, SIZE, SIZE, limit, ALL, 0, move=HERE.key)
    actors = (Actor(), Actor())
    for actor in actors:
        actor.core.configure(SIZE, SIZE)
    worlds.visit(row, actors, 0.0)
    return worlds


def how_many() -> tuple[int, int]:
    """Worlds, and those in which nobody crashes: orders of i and j steps, times three ends of each claim begun."""
    last = CLAIMS * STEPS
    carried_out = [sum(step <= steps for step in range(2, last + 1, STEPS)) for steps in range(last + 1)]
    pairs = [(i, j) for i in range(last + 1) for j in range(last + 1)]
    count = {(i, j): comb(i + j, i) * 3 ** (carried_out[i] + carried_out[j]) for i, j in pairs}
    return sum(count.values()), count[last, last]
