"""One database as its clients see it: whichever server serves it now, and the network before that."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard, Word
from simulation.clocks import BEGIN
from simulation.dialect import SEGMENT, SHARD
from simulation.fates import Fate
from simulation.network import Engine
from simulation.statement import Row
from simulation.store import Entry, Rows, Server

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.world import World


class Place:
    """Stands for an `allocator.database.address.Address`; slot `offset` of so many."""

    file = pool = None
    is_in_memory = False

    def __init__(self, world: World, offset: int, shards: int) -> None:
        self.name = self.shown = f"shard{offset}"
        self.word = Word("f1ee7000", offset) if shards > 1 else None
        self.world, self.scheduler, self.account = world, world.scheduler, world.account
        self.dialect = world.variant.dialect(world.variant.rules)
        self.fates: deque[tuple[Fate, int]] = deque()
        """Of the next statements, and of whose."""
        self.cut_off: set[int] = set()
        """The processes whose packets are swallowed."""
        self.behind: dict[int, Server] = {}
        """The processes that still reach a server which was replaced."""
        self._starts: set[int] = set()
        self.names = [f"{self.name}a"]
        """Of the servers, the newest last."""
        self.server = self._server(self.names[0], [])
        self.server.commit_first(self._first(Residue(offset, shards)))

    def _first(self, residue: Residue) -> Rows:
        move = Move(self.server.run, key=1)
        fleet = self.word.fleet if self.word else ""
        row = Shard(fleet, residue, tuple(range(1, residue.step + 1)), move.key, move=move)
        rows: Rows = {(SHARD, 1): row}
        for name, tag in zip(self.world.tags, self.world.plan.tags, strict=True):
            if tag.is_new:
                continue
            of_tag = Row(0, tag.step, tag.max_step, tag.limit, residue, tag.failover_gap)
            rows[SEGMENT, name] = of_tag._replace(move=move.key)
        return rows

    def now(self) -> int:
        """What the clock of the database shows, in milliseconds since 1970."""
        return int((BEGIN + self.scheduler.now + self.world.database_off) * 1000)

    def engine(self, timeout: float) -> Engine:
        return Engine(self, timeout)

    def latency(self) -> float:
        """Of one way, or of a commit, in seconds."""
        return 0.0002 + 0.001 * self.scheduler.random.random()

    def fate(self, process: Process) -> Fate:
        for number, (fate, who) in enumerate(self.fates):
            if who % len(self.world.processes) == process.number % len(self.world.processes):
                del self.fates[number]
                self.account.counts[f"a statement was {fate}"] += 1
                return fate
        return Fate.WELL

    def is_cut_off(self, process: Process) -> bool:
        return process.number in self.cut_off

    def server_for(self, process: Process) -> Server:
        old = self.behind.get(process.number)
        return old if old is not None and old.is_up else self.server

    def next_name(self) -> str:
        """The name of the server before, which is copied anew; a new one where nobody noted that this one serves."""
        if len(self.names) > 1 and self.server.rows[SHARD, 1].move.run == self.server.run:
            self.names.append(self.names.pop(-2))
            self.world.count("servers that came back")
        else:
            self.names.append(f"{self.name}{chr(ord('a') + len(self.names))}")
        return self.names[-1]

    def _server(self, name: str, log: list[Entry]) -> Server:
        tells_starts = self.world.variant.restarts_count or not self.world.plan.durable
        # Given up: a server that is not durable, and starts in the same moment of a clock that was set back meanwhile.
        started = next(moment for moment in count(self.now()) if moment not in self._starts)
        self._starts.add(started)
        return Server(name, started, log, not tells_starts)

    def replace(self, name: str, log: list[Entry], *, is_restart: bool = False) -> None:
        """A server serves from now on, which may be the same after a restart."""
        if not is_restart:
            self.world.has_moved = True
        self.server = self._server(name, log)
