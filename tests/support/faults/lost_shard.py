"""A growth in which a shard is lost for good: it dies at one step, an operator goes on without it, it may come back."""

from __future__ import annotations

import random

from allocator.errors import AllocatorError, DatabaseUnavailable, ShardMisconfigured
from allocator.fleet.fleet_backend import Fleet
from allocator.fleet.grow import Growth
from allocator.schemes.shared.residues import Residue, is_outgrown
from allocator.schemes.ticket import REPLACE
from allocator.testing.allocators import SynchronousBackground
from support.memory.fleet import MemoryShard

TAGS = ("order", "user", "rare")
ROOM = 120
"""What an operator adds: processes that slept through the loss may still draw so much if the shard comes back."""

DEEPEST = 2
"""How many commands an operator may begin in the middle of others."""


class Killed(BaseException):
    """The command ends here."""


class LossWorld:
    """Three shards, a fourth that is added, and three clients that draw between any two acts of a command.

    The shard `lost` dies at the act `dies`; a command of the operator is killed at `killed`, the shard is back at
    `back`, each counted from the begin of the growth. None: not at all.
    """

    def __init__(
        self,
        rnd: random.Random,
        dies: int,
        killed: int | None = None,
        back: int | None = None,
        tickets: str = REPLACE,
    ) -> None:
        self.rnd, self.dies, self.killed, self.back = rnd, dies, killed, back
        self.databases: dict[str, MemoryShard] = {}
        self.names = [f"db://{number}" for number in range(3)]
        fleet = [MemoryShard(name, self.databases, tickets) for name in self.names]
        self.lost = fleet[rnd.choice([1, 2])]
        self.tickets: list[tuple[str, int]] = []
        self.ids: list[tuple[str, int]] = []
        self.residues: dict[tuple[int, str, str], Residue] = {}
        self.seen: list[dict[str, dict[Residue, int]]] = [{tag: {} for tag in TAGS} for _ in range(3)]
        self.acts = 0
        self.busy = False
        self.nested = 0
        self.awake = [0, *(number for number in (1, 2) if rnd.random() < 0.6)]
        """The others sleep until the lost shard is back, with what they knew before."""
        self.clients = [Fleet(fleet, SynchronousBackground(), None, 0.0) for _ in range(3)]
        for _ in range(3):
            self.draw(0)
        self.use_most(self.lost)
        for client in range(3):
            self.draw(client)

    def use_most(self, shard: MemoryShard) -> None:
        """The shard that will be lost is far ahead, and the only one that knows a tag."""
        assert shard.row is not None
        for _ in range(100):
            ticket = shard.ticket("invoice", shard.row, {})
            assert ticket is not None
            self.tickets.append(("invoice", ticket))
        for _ in range(30):
            for tag in TAGS[1:]:
                self.take(0, shard, tag)

    # -- clients

    def draw(self, number: int) -> None:
        kind = self.rnd.choice(["order", "invoice"])
        try:
            ticket = self.clients[number].ticket(kind, 0.0)
        except AllocatorError:
            return
        self.tickets.append((kind, ticket))

    def claim(self, number: int) -> None:
        shards = self.clients[number]._shards
        used = [handle for handle in shards.handles if not shards.rotation.states[handle.number].error]
        if not used:
            return
        chosen = self.rnd.choice(used)
        shard = chosen.database
        assert isinstance(shard, MemoryShard)
        if shard.down:
            shards.fail(chosen, DatabaseUnavailable("down"))
        elif shard.row is not None:
            self.take(number, shard, self.rnd.choice(TAGS))

    def take(self, number: int, shard: MemoryShard, tag: str) -> None:
        """As `Database.claim_segment`, but for what the marks refuse: the rows alone must keep the ids apart."""
        place, seen = (number, shard.address.public_url, tag), self.seen[number][tag]
        residue = self.residues.get(place, shard.residue())
        found = None if is_outgrown(residue, seen) else shard.claim(tag, self.rnd.randint(1, 4), residue)
        if found is None:
            self.residues[place] = shard.rows[tag].residue if tag in shard.rows else shard.residue()
            return
        self.residues[place] = residue
        seen[residue] = max(seen.get(residue, 0), found[-1])
        self.ids += [(tag, one) for one in found]

    def probe(self) -> None:
        for shards in (self.clients[number]._shards for number in self.awake):
            for handle in list(shards.handles):
                if shards.rotation.states[handle.number].error and self.rnd.random() < 0.5:
                    shards._probe(handle)

    # -- commands

    def act(self) -> None:
        if self.busy:
            return
        self.busy = True
        self.acts += 1
        try:
            for _ in range(self.rnd.randint(0, 2)):
                self.draw(self.rnd.choice(self.awake))
                self.claim(self.rnd.choice(self.awake))
            if self.acts == self.dies:
                self.lost.down = True
            if self.acts == self.back:
                self.lost.down = False
            if self.acts == self.killed:
                raise Killed
            if self.rnd.random() < 0.2:
                self.probe()
        finally:
            self.busy = False
        if self.nested < DEEPEST and self.rnd.random() < 0.01:
            self.nested += 1
            self.rnd.choice([self.grow, self.take_back])(self.lost.down)
            self.nested -= 1

    def growth(self, *lost: MemoryShard) -> Growth:
        growth = Growth([self.databases["db://0"]])  # type: ignore[list-item]
        growth.leave_out(lost)  # type: ignore[arg-type]
        return growth

    def how_far(self) -> int:
        """What a careful operator says of the shard that is gone."""
        return max(self.lost.counter, *(tag.max_value for tag in self.lost.rows.values())) + ROOM

    def grow(self, without: bool) -> str:
        """One command as an operator types it; what it says if it is refused."""
        growth = self.growth(*([self.lost] if without else []))
        try:
            try:
                growth.grow(5)
            except ShardMisconfigured as error:
                if not without or "--above N" not in str(error):
                    raise
                growth.grow(5, above=self.how_far())
        except (Killed, AllocatorError) as error:
            return str(error) or "killed"
        return ""

    def take_back(self, without: bool) -> str:
        try:
            self.growth(*([self.lost] if without else [])).take_back()
        except (Killed, AllocatorError) as error:
            return str(error) or "killed"
        return ""

    def begin(self) -> None:
        """Plan to grow by one shard."""
        self.growth().add(MemoryShard("db://3", self.databases, self.lost.tickets))  # type: ignore[arg-type]
        for shard in self.databases.values():
            shard.before = self.act

    def run(self, act: str) -> str:
        """Returns what the last command says if it was refused."""
        said = self.grow(False)
        while not self.lost.down and self.acts < self.dies:
            self.act()
        for _ in range(3):  # killed at most once
            said = self.take_back(True) if act == "take back" else self.grow(True)
            if said != "killed":
                break
        self.killed = None
        for _ in range(20):
            self.act()
        return said

    def come_back(self) -> None:
        """At the latest now, and an operator tries what seems to fit."""
        self.lost.down, self.awake = False, [0, 1, 2]
        commands = [lambda: self.grow(False), lambda: self.take_back(False), lambda: self.grow(True)]
        for command in self.rnd.sample(commands, 3):
            for _ in range(60):
                self.act()
                self.probe()
            command()
        for _ in range(60):
            self.act()
            self.probe()

    def twice(self) -> int:
        return len(self.tickets) - len({*self.tickets}) + len(self.ids) - len({*self.ids})
