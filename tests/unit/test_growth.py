"""Growth, interrupted anywhere: the real commands on shards in memory, and clients that draw between any two steps."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig.fleet import MemoryShard

from allocator.background import Background
from allocator.errors import AllocatorError, DatabaseUnavailable, Exhausted, ShardMisconfigured
from allocator.growth import Growth
from allocator.schemes import growth as rules
from allocator.schemes.lane import Lane
from allocator.schemes.limits import MAX_ID
from allocator.schemes.shard import Member, Shard, Target
from allocator.schemes.ticket import Numbering
from allocator.shard import Handle
from allocator.shards import Fleet


@pytest.fixture(autouse=True)
def named_databases(monkeypatch) -> None:
    monkeypatch.setattr("allocator.roster.sibling", named)
    monkeypatch.setattr("allocator.shards.sibling", named)


def named(known, url: str):
    return known[0].world[url]


class Killed(BaseException):
    """The command ends here."""


class World:
    """Shards, clients that hold what they know for as long as they like, and commands that come and go."""

    def __init__(self, rnd: random.Random, shards: int, statement: str) -> None:
        self.rnd = rnd
        self.databases: dict[str, MemoryShard] = {}
        self.names = [f"db://{number}" for number in range(shards)]
        for name in self.names:
            MemoryShard(name, self.databases)
        self.tickets: list[int] = []
        self.ids: list[int] = []
        self.refused = 0
        self.depth = 0
        self.drawing = False
        fleet = [self.databases[name] for name in self.names]
        self.clients = [Fleet(fleet, Background(), None, statement, 0.0) for _ in range(3)]
        for client in self.clients:
            self.draw(client)
        self.lanes: dict[tuple[int, str], Lane] = {}

    def draw(self, client: Fleet) -> None:
        self.drawing = True
        try:
            self.tickets.append(client.ticket("order", 0.0))
        except DatabaseUnavailable:
            self.refused += 1
        finally:
            self.drawing = False

    def claim(self) -> None:
        """By a client that may know a lane from long ago, and reads the row anew after a refusal."""
        client, name = self.rnd.randrange(3), self.rnd.choice(list(self.databases))
        shard = self.databases[name]
        if shard.row is None:
            return
        lane = self.lanes.get((client, name), shard.lane())
        found = shard.claim("tag", self.rnd.randint(1, 4), lane)
        if found is None:
            self.lanes[client, name] = shard.rows["tag"].lane
        else:
            self.ids += found

    def step(self) -> None:
        """Before each act of a command: clients draw, it is killed, or another command runs."""
        if self.drawing:
            return
        for _ in range(self.rnd.randint(0, 3)):
            self.draw(self.rnd.choice(self.clients))
            self.claim()
        chance = self.rnd.random()
        if chance < 0.04:
            raise Killed
        if chance < 0.10 and self.depth < 3:
            self.command()

    def command(self) -> None:
        self.depth += 1
        known = [self.databases[name] for name in self.names[:2]]
        growth = Growth(known)  # type: ignore[arg-type]
        act = self.rnd.choice(["grow", "grow", "grow", "add", "take back", "statement"])
        try:
            if act == "add" and len(self.databases) < 6:
                fresh = self.newcomer()
                fresh.before = self.step
                growth.add(fresh)  # type: ignore[arg-type]
            elif act == "grow":
                growth.grow(self.rnd.choice([1, 5, 50]))
            elif act == "statement":
                growth.grow(5, self.rnd.choice(["replace", "count"]))
            elif act == "take back":
                growth.take_back()
        except (Killed, AllocatorError):
            pass
        finally:
            self.depth -= 1

    def newcomer(self) -> MemoryShard:
        name = f"db://{len(self.databases)}"
        return MemoryShard(name, self.databases)

    def run(self, commands: int) -> None:
        for shard in self.databases.values():
            shard.before = self.step
        for _ in range(commands):
            self.command()
        for shard in self.databases.values():
            shard.before = lambda: None

    def finish(self) -> None:
        """Whatever was interrupted is run again, and then all is well."""
        known = [self.databases[name] for name in self.names]
        growth = Growth(known)  # type: ignore[arg-type]
        if any(shard.row and shard.row.target for shard in self.databases.values()):
            try:
                growth.grow(5)
            except ShardMisconfigured:
                growth.take_back()


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 3), st.sampled_from(["replace", "count"]))
def test_no_id_twice_however_growth_is_interrupted(rnd: random.Random, shards: int, statement: str) -> None:
    world = World(rnd, shards, statement)
    world.run(12)
    world.finish()
    drawn = len(world.tickets)
    for client in world.clients:
        for state in client._turns.states:
            state.probe_at, state.error = 0.0, None
        for _ in range(3):
            world.draw(client)

    assert len(set(world.tickets)) == len(world.tickets)
    assert len(set(world.ids)) == len(world.ids)
    assert len(world.tickets) > drawn, "nobody can draw any more"


def grown(rnd: random.Random) -> tuple[int, int]:
    world = World(rnd, 2, "replace")
    world.run(12)
    return len(world.tickets) - len(set(world.tickets)), len(world.ids) - len(set(world.ids))


def test_control_without_the_ceiling_ids_come_twice(monkeypatch):
    """The rule broken: the old generation does not end at the floor of the new one."""
    monkeypatch.setattr(rules, "fenced", lambda shard, target, greatest: None)

    assert any(sum(grown(random.Random(seed))) for seed in range(40))


def test_control_without_the_fence_ids_come_twice(monkeypatch):
    """The rule broken: every second draw goes by what its process knows of the shard."""
    fenced = MemoryShard.draw_ticket

    def unfenced(self, connection, kind, known):
        if self.counter % 2:
            return fenced(self, connection, kind, known)
        self.counter = known.numbering.following(self.counter)
        return self.counter

    monkeypatch.setattr(MemoryShard, "draw_ticket", unfenced)

    assert any(sum(grown(random.Random(seed))) for seed in range(40))


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_growth_by_one_at_a_time(shards):
    world = World(random.Random(1), shards, "replace")
    growth = Growth([world.databases[name] for name in world.names])  # type: ignore[arg-type]
    for _ in range(3):
        growth.add(world.newcomer())  # type: ignore[arg-type]
        growth.grow(10)
        for client in world.clients:
            for _ in range(10):
                world.draw(client)
    rows = [shard.row for shard in world.databases.values()]

    assert [row.numbering.offset for row in rows if row] == list(range(1, shards + 4))
    assert {row.numbering.step for row in rows if row} == {shards + 3}
    assert len(set(world.tickets)) == len(world.tickets)
    assert world.refused == 0
    assert all(len(client._handles) == shards + 3 for client in world.clients)


# -- the rules alone

MEMBERS = (Member("one", 1, "db://0"), Member("two", 2, "db://1"))
TARGET = Target("key", 2, 1, "replace", MEMBERS, floor=100)
SECOND = Shard("main", "two", "server", "replace", 1, Numbering(2, 2), 5, MEMBERS)


def test_a_shard_that_has_passed_the_floor_is_not_fenced():
    with pytest.raises(rules.TooLow):
        rules.fenced(SECOND, TARGET, 100)

    assert rules.fenced(SECOND, TARGET, 99).numbering.ceiling == 100


def test_a_ceiling_is_never_raised():
    lower = replace(SECOND, numbering=Numbering(2, 2, ceiling=50))

    assert rules.fenced(lower, TARGET, 10).numbering.ceiling == 50


def test_no_shard_enters_before_the_fleet_turns():
    with pytest.raises(rules.Again):
        rules.entered(SECOND, TARGET)

    assert rules.entered(SECOND, replace(TARGET, turning=True)).numbering == Numbering(2, 2, 100)


@pytest.mark.parametrize("floor", [MAX_ID - 1, 2**80])
def test_a_floor_leaves_a_ticket_to_each_shard(floor):
    lead, last = replace(SECOND, key="one", numbering=Numbering(1, 2), target=TARGET), MAX_ID - 2
    decided = rules.decided(lead, TARGET.key, last)

    assert decided.target.floor == last
    assert rules.adopted(SECOND, last).numbering.following(0) <= MAX_ID
    for ask in (lambda: rules.decided(lead, TARGET.key, floor), lambda: rules.adopted(SECOND, floor)):
        with pytest.raises(Exhausted, match=f"tickets in steps of 2 would go on from {floor}, and end at {MAX_ID}"):
            ask()


def test_a_ticket_drawn_at_the_ceiling_is_burnt_whatever_the_row_says_next(monkeypatch):
    shard = MemoryShard("db://0", {})
    shard.counter, shard.row = 20, replace(SECOND, server=shard.server, numbering=Numbering(ceiling=10))
    handle = Handle(shard)  # type: ignore[arg-type]
    handle.row = shard.row

    def grown() -> Shard:
        shard.row = replace(shard.row, revision=6, numbering=Numbering(floor=15))
        return shard.row

    monkeypatch.setattr(handle, "look", grown)

    assert handle.draw("order", lambda row: setattr(handle, "row", row)) == 22
