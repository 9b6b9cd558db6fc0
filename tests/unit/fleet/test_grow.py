"""Growth, interrupted anywhere: the real commands on shards in memory, and clients that draw between any two steps."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle

import pytest
from support.distinct import distinct, none_twice
from support.faults.lost_shard import DEEPEST, Killed, LossWorld
from support.memory.fleet import MemoryShard

from allocator.errors import AllocatorError, DatabaseUnavailable, Exhausted, ShardMisconfigured
from allocator.fleet.fleet_backend import Fleet
from allocator.fleet.grow import Growth
from allocator.fleet.shard_rotation import Handle
from allocator.rules import fleet_growth_protocol as rules
from allocator.rules.fleet_consistency import Member, Shard, Target
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import Residue
from allocator.schemes.ticket import CLAIM, REPLACE, ShardNumbering
from allocator.testing.allocators import SynchronousBackground


@pytest.fixture(autouse=True)
def named_databases(monkeypatch) -> None:
    monkeypatch.setattr("allocator.fleet.discovery.sibling", named)
    monkeypatch.setattr("allocator.fleet.shard_rotation.sibling", named)


def named(known, url: str):
    return known[0].world[url]


class World:
    """Shards, clients that hold what they know for as long as they like, and commands that come and go."""

    def __init__(self, rnd: random.Random, shards: int, *tickets: str) -> None:
        """tickets: how the shards draw them, in turn."""
        self.rnd = rnd
        self.databases: dict[str, MemoryShard] = {}
        self.names = [f"db://{number}" for number in range(shards)]
        self.kinds = cycle(tickets)
        for _ in self.names:
            self.newcomer()
        self.tickets: list[int] = []
        self.ids: list[int] = []
        self.refused = 0
        self.depth = 0
        self.drawing = False
        fleet = [self.databases[name] for name in self.names]
        self.clients = [Fleet(fleet, SynchronousBackground(), None, 0.0) for _ in range(3)]
        for client in self.clients:
            self.draw(client)
        self.residues: dict[tuple[int, str], Residue] = {}

    def draw(self, client: Fleet) -> None:
        self.drawing = True
        try:
            self.tickets.append(client.ticket("order", 0.0))
        except DatabaseUnavailable:
            self.refused += 1
        finally:
            self.drawing = False

    def claim(self) -> None:
        """By a client that may know a residue from long ago, and reads the row anew after a refusal."""
        client, name = self.rnd.randrange(3), self.rnd.choice(list(self.databases))
        shard = self.databases[name]
        if shard.row is None:
            return
        residue = self.residues.get((client, name), shard.residue())
        found = shard.claim("tag", self.rnd.randint(1, 4), residue)
        if found is None:
            self.residues[client, name] = shard.rows["tag"].residue
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
        act = self.rnd.choice(["grow", "grow", "grow", "add", "take back"])
        try:
            if act == "add" and len(self.databases) < 6:
                fresh = self.newcomer()
                fresh.before = self.step
                growth.add(fresh)  # type: ignore[arg-type]
            elif act == "grow":
                growth.grow(self.rnd.choice([1, 5, 50]))
            elif act == "take back":
                growth.take_back()
        except (Killed, AllocatorError):
            pass
        finally:
            self.depth -= 1

    def newcomer(self) -> MemoryShard:
        name = f"db://{len(self.databases)}"
        return MemoryShard(name, self.databases, next(self.kinds))

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


WAYS = [REPLACE], [CLAIM], [REPLACE, CLAIM], [CLAIM, CLAIM, REPLACE]


def test_no_id_twice_however_growth_is_interrupted() -> None:
    for seed in range(60):
        world = World(random.Random(seed), 1 + seed % 3, *WAYS[seed % len(WAYS)])
        world.run(12)
        world.finish()
        drawn = len(world.tickets)
        for client in world.clients:
            for state in client._shards.rotation.states:
                state.probe_at = 0.0
            for _ in range(3):
                world.draw(client)

        none_twice(len(world.tickets) - len({*world.tickets}), seed)
        none_twice(len(world.ids) - len({*world.ids}), seed)
        assert len(world.tickets) > drawn, f"nobody can draw any more: seed {seed}"


def grown(rnd: random.Random) -> tuple[int, int]:
    world = World(rnd, 2, REPLACE)
    world.run(12)
    return len(world.tickets) - len(set(world.tickets)), len(world.ids) - len(set(world.ids))


def test_control_without_the_ceiling_ids_come_twice(monkeypatch):
    """The rule broken: the old generation does not end at the floor of the new one."""
    monkeypatch.setattr(rules, "fenced", lambda shard, target, greatest: None)
    monkeypatch.setattr(rules, "levelled", lambda shard, target: None)

    assert any(sum(grown(random.Random(seed))) for seed in range(40))


def test_control_without_the_fence_ids_come_twice(monkeypatch):
    """The rule broken: every second draw goes by what its process knows of the shard."""
    fenced = MemoryShard.tickets_draw

    def unfenced(self, connection, kind, known):
        if self.counter % 2:
            return fenced(self, connection, kind, known)
        self.counter = known.numbering.following(self.counter)
        return self.counter

    monkeypatch.setattr(MemoryShard, "tickets_draw", unfenced)

    assert any(sum(grown(random.Random(seed))) for seed in range(40))


def test_growth_by_one_at_a_time():
    for shards in [1, 2, 3]:
        world = World(random.Random(1), shards, REPLACE)
        growth = Growth([world.databases[name] for name in world.names])  # type: ignore[arg-type]
        for _ in range(3):
            growth.add(world.newcomer())  # type: ignore[arg-type]
            growth.grow(10)
            for client in world.clients:
                for _ in range(10):
                    world.draw(client)
        rows = [shard.row for shard in world.databases.values()]

        assert [row.numbering.offset for row in rows if row] == list(range(1, shards + 4)), shards
        assert {row.numbering.step for row in rows if row} == {shards + 3}, shards
        assert distinct(world.tickets), shards
        assert world.refused == 0, shards
        assert all(len(client._shards.handles) == shards + 3 for client in world.clients), shards


@pytest.mark.parametrize("by", ["a command", "a process that starts"])
def test_rows_of_two_moments_of_a_growth_are_read_again(by):
    """It ends between two reads: the first row is of the old generation, without a plan, the last one of the new."""
    world = World(random.Random(1), 2, REPLACE)
    known, last = [world.databases[name] for name in world.names], world.newcomer()
    Growth(known).add(last)  # type: ignore[arg-type]

    def grow() -> None:
        last.before = lambda: None
        Growth(known).grow(5)  # type: ignore[arg-type]

    last.before = grow
    if by == "a command":
        Growth(known).shards()  # type: ignore[arg-type]
    else:
        world.draw(Fleet([*known, last], SynchronousBackground(), None, 0.0))

    assert {shard.row.generation for shard in [*known, last] if shard.row} == {2}
    distinct(world.tickets)


# -- a shard that is lost for good


@pytest.fixture(scope="module")
def steps() -> int:
    """How many acts a growth by one shard takes."""
    world = LossWorld(random.Random(0), dies=10**9)
    world.nested = DEEPEST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("allocator.fleet.discovery.sibling", named)
        patch.setattr("allocator.fleet.shard_rotation.sibling", named)
        world.begin()
        assert world.grow(without=False) == ""
    return world.acts


def lost_at(dies: int, seed: int) -> tuple[LossWorld, str]:
    """A world in which a shard dies at this act, and what the last command said if it was refused."""
    rnd = random.Random(seed)
    killed = rnd.choice([None, dies + rnd.randint(1, 150)])
    back = rnd.choice([None, None, dies + rnd.randint(1, 200)])
    world = LossWorld(rnd, dies, killed, back, rnd.choice([REPLACE, CLAIM]))
    world.begin()
    return world, world.run(rnd.choice(["grow", "grow", "take back"]))


ENDS = ["", "no growth is planned", "answers, so it is not lost", "can no longer be undone"]
"""Done; or done by another command, or there is nothing to do without, or it is too late for that."""


@pytest.mark.parametrize("seed", [0, pytest.param(4, marks=pytest.mark.nightly)])
def test_no_id_twice_when_a_shard_is_lost_at_any_step(steps, seed):
    """It dies at each act of a growth; a command without it is killed at any act, and done again; it comes back."""
    done = 0
    for dies in range(1, steps + 10):
        world, said = lost_at(dies, 1000 * seed + dies)
        assert any(end in said for end in ENDS[1:]) or said == "", said
        others = [shard for shard in world.databases.values() if shard is not world.lost]
        if said == "" and world.lost.down:
            rows = [shard.row for shard in others if shard.row and not shard.row.joining]
            assert len({row.generation for row in rows}) == 1
            assert all(row.target is None and row.numbering.ceiling is None for row in rows)
            drawn = len(world.tickets), len(world.ids)
            for _ in range(20):
                world.act()
            assert (len(world.tickets), len(world.ids)) > drawn
            done += 1
        none_twice(world.twice(), (dies, seed))
        world.come_back()
        none_twice(world.twice(), (dies, seed))
    assert done > steps / 2


def twice_where_a_shard_is_lost(steps: int) -> bool:
    for dies in range(1, steps + 10):
        world, _ = lost_at(dies, dies)
        world.come_back()
        if world.twice():
            return True
    return False


def test_control_with_a_floor_below_what_the_lost_shard_gave_ids_come_twice(steps, monkeypatch):
    """The rule broken: what the operator says of it does not count."""
    turn = Growth._turn
    monkeypatch.setattr(Growth, "_turn", lambda *words: turn(*words[:-1], 0))

    assert twice_where_a_shard_is_lost(steps)


def test_control_without_levelling_ids_of_a_shard_lost_after_the_turn_come_twice(steps, monkeypatch):
    monkeypatch.setattr(rules, "levelled", lambda shard, target: None)

    assert twice_where_a_shard_is_lost(steps)


def test_control_a_lost_shard_that_clients_keep_gives_ids_of_others(steps, monkeypatch):
    """The rule broken: one that was left out is used again when it is back."""
    monkeypatch.setattr("allocator.fleet.shard_rotation.newer_place", lambda shard, by: None)

    assert twice_where_a_shard_is_lost(steps)


def test_a_growth_in_one_go_needs_no_operator_after_the_turn():
    """Only before it may the others not know how far the lost shard went."""
    for turned in (False, True):
        world = LossWorld(random.Random(1), dies=10**9)
        world.nested = DEEPEST
        world.begin()
        with pytest.MonkeyPatch.context() as patch:
            verb = "entered" if turned else "turning"
            patch.setattr(rules, verb, lambda *words: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                world.growth().grow(5)
        world.lost.down = True
        growth = world.growth(world.lost)
        if not turned:
            with pytest.raises(ShardMisconfigured, match="pass --above N, a number above every ticket and id"):
                growth.grow(5)
        lead = growth.grow(5, above=None if turned else world.how_far())

        assert (lead.generation, lead.numbering.step) == (2, 4)
        world.lost.down = False
        left = [member.epoch for member in lead.members if member.url == world.lost.address.public_url]
        assert left == [0 if turned else 1]
        if turned:  # it was held below the floor before it was lost, and follows
            world.growth().grow(5)
            assert world.lost.row.generation == 2
        else:
            with pytest.raises(ShardMisconfigured, match="or removed from its fleet"):
                world.growth().grow(5)


def test_what_cannot_be_left_out_is_refused(subtests):
    for lost, sentence in [
        ("db://0", "cannot remove db://0: it is shard 1, which alone numbers nodes"),
        ("db://1", "answers, so it is not lost"),
        ("db://3", "was only being added and gave no ids"),
        ("db://9", "is no shard; there are db://0, db://1, db://2, db://3"),
    ]:
        with subtests.test(lost=lost):
            world = LossWorld(random.Random(1), dies=10**9)
            world.nested = DEEPEST
            world.begin()
            shard = world.databases.get(lost) or MemoryShard(lost, {})
            shard.down = lost == "db://3"
            known = Growth([world.databases["db://2"]])  # type: ignore[list-item]
            known.leave_out([shard])  # type: ignore[list-item]
            with pytest.raises(ShardMisconfigured, match=sentence):
                known.grow(5, above=10**6)


# -- the rules alone

MEMBERS = (Member("one", 1, "db://0"), Member("two", 2, "db://1"))
TARGET = Target("key", 2, 1, MEMBERS, floor=100)
SECOND = Shard("main", "two", True, 1, ShardNumbering(2, 2), 5, MEMBERS, tickets=REPLACE)


def test_a_shard_that_has_passed_the_floor_is_not_fenced():
    with pytest.raises(rules.TooLow):
        rules.fenced(SECOND, TARGET, 100)

    assert rules.fenced(SECOND, TARGET, 99).numbering.ceiling == 100


def test_a_ceiling_is_never_raised():
    lower = replace(SECOND, numbering=ShardNumbering(2, 2, ceiling=50))

    assert rules.fenced(lower, TARGET, 10).numbering.ceiling == 50


def test_no_shard_enters_before_the_fleet_turns():
    with pytest.raises(rules.Again):
        rules.entered(SECOND, TARGET)

    assert rules.entered(SECOND, replace(TARGET, turning=True)).numbering == ShardNumbering(2, 2, 100)


def test_a_floor_leaves_a_ticket_to_each_shard():
    lead, last = replace(SECOND, key="one", numbering=ShardNumbering(1, 2), target=TARGET), MAX_ID - 2
    decided = rules.decided(lead, TARGET.key, last)

    assert decided.target.floor == last
    assert rules.trusted(SECOND, last).numbering.following(0) <= MAX_ID
    for floor in (MAX_ID - 1, 2**80):
        sentence = f"tickets would continue from {floor} in steps of 2, above the greatest id, {MAX_ID}"
        with pytest.raises(Exhausted, match=sentence):
            rules.decided(lead, TARGET.key, floor)
        with pytest.raises(Exhausted, match=sentence):
            rules.trusted(SECOND, floor)


def test_a_ticket_drawn_at_the_ceiling_is_burnt_whatever_the_row_says_next(monkeypatch):
    shard = MemoryShard("db://0", {})
    shard.counter, shard.row = 20, replace(SECOND, numbering=ShardNumbering(ceiling=10))
    handle = Handle(0, shard)  # type: ignore[arg-type]
    handle.row = shard.row

    def grown() -> Shard:
        shard.row = replace(shard.row, revision=6, numbering=ShardNumbering(floor=15))
        return shard.row

    monkeypatch.setattr(handle, "look", grown)

    assert handle.draw("order", lambda handle, row: setattr(handle, "row", row)) == 22
