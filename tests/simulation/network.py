"""Databases as their clients see them: which server serves, the network before it, and how a statement may end.

From a thread's statement to its answer: sent, carried out, committed, answered, each an event of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import OperationalError

from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard, Word
from simulation.dialect import AFTER_COMMIT, Dialect, Failure, Fate
from simulation.rows import Row
from simulation.scheduler import BEGIN, TIMED_OUT, Task, running
from simulation.seeds import is_out
from simulation.store import SEGMENT, SHARD, Act, Entry, Rows, Server, View

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.world import World

CONTENDED = "40001"
UNDONE_AFTER = 0.01
"""Seconds after which a connection ends whose transaction was left open."""


def failure(words: str, code: str = "", lost: bool = True) -> OperationalError:
    return OperationalError("", {}, Failure(words, code), connection_invalidated=lost)


class Statement:
    """One on its way. It goes on in the server whatever becomes of its client."""

    __slots__ = ("_act", "_claims", "_fate", "_number", "_place", "_server", "_task")

    def __init__(self, place: Place, server: Server, act: Act, fate: Fate, task: Task) -> None:
        self._place, self._server, self._act, self._fate = place, server, act, fate
        self._task, self._number = task, task.number + 1
        self._claims: list[tuple[str, range]] = []

    def send(self, seconds: float) -> None:
        scheduler, fate = self._place.scheduler, self._fate
        if fate in {Fate.REFUSED, Fate.STALE}:
            self._answer(failure("no connection", lost=fate is Fate.STALE))
        elif fate is not Fate.SWALLOWED:
            scheduler.after(seconds * 1.5 if fate is Fate.GHOST else self._place.latency(), self._arrive)

    def _arrive(self) -> None:
        server = self._server
        if not server.is_up:
            self._answer(failure("the server is gone"))
        elif server.is_frozen:
            self._place.scheduler.after(0.05, self._arrive)
        elif self._fate is Fate.DEADLOCK:
            self._answer(failure("deadlock found", CONTENDED, lost=False))
        else:
            self._begin()

    def _begin(self) -> None:
        begun = self._server.begin(self._act, self._again, self._place.now())
        if begun is not None:
            seconds = self._place.latency() * (40 if self._fate is Fate.SLOW else 1)
            self._place.scheduler.after(seconds if begun[0].written else 0.0, self._commit, *begun)

    def _again(self) -> None:
        """The lock that it waits for is free."""
        self._place.scheduler.after(0.0, self._arrive)

    def _commit(self, view: View, result: Any) -> None:
        server, fate = self._server, self._fate
        if not server.is_up:
            self._answer(failure("the server went away"))
            return
        if server.is_frozen:
            self._place.scheduler.after(0.05, self._commit, view, result)
            return
        if fate is Fate.ROLLED_BACK:
            server.unlock(view)
            self._answer(failure("the commit failed", lost=False))
            return
        if fate is Fate.OPEN:
            self._leave_open(view, result)
            return
        self._place.account.committing(server, view, self._task.process)
        server.commit(view)
        self._claims = view.claims
        if fate is Fate.CUT:
            self._answer(failure("connection lost"))
        elif fate is not Fate.UNKNOWN:
            self._answer(result)

    def _leave_open(self, view: View, result: Any) -> None:
        """Its locks are held until the connection ends, which is never with a commit."""
        self._place.scheduler.after(UNDONE_AFTER, self._server.unlock, view)
        self._answer(result)

    def _answer(self, value: Any) -> None:
        scheduler = self._place.scheduler
        if not self._place.is_cut_off(self._task.process):
            scheduler.after(self._place.latency(), self._arrived, value)

    def _arrived(self, value: Any) -> None:
        self._task.wake(self._number, (value, self._claims))


class Connection:
    """Of one server; `info` stays with it."""

    def __init__(self, place: Place, server: Server, timeout: float) -> None:
        self.place, self.server, self._timeout = place, server, timeout
        self.info: dict[str, Any] = {}
        self.connection = SimpleNamespace(dbapi_connection=self)
        self.begin()

    def begin(self) -> None:
        self.fate = Fate.WELL
        self.is_lost = False
        self.info["warnings"] = []

    def invalidate(self, error: BaseException | None = None) -> None:
        self.is_lost = True

    def perform(self, act: Act) -> Any:
        """Send it and wait for the answer."""
        task, place = running(), self.place
        self.fate = place.fate(task.process)
        self.info["warnings"] = place.dialect.warnings(self)
        statement = Statement(place, self.server, act, self.fate, task)
        if not place.is_cut_off(task.process):
            statement.send(self._timeout)
        found = task.park(self._timeout)
        if found is TIMED_OUT:
            self.is_lost = True
            raise failure("no answer in time")
        if task.process.stalls:
            seconds, task.process.stalls = task.process.stalls, 0.0
            place.account.counts["threads stalled"] += 1
            task.park(seconds)
        value, claims = found
        if isinstance(value, OperationalError):
            self.is_lost = value.connection_invalidated
            raise value
        if self.fate not in AFTER_COMMIT:
            place.account.answered(task.process, claims)
        return value


class Engine:
    """Connections of one process to one place, kept for the next statement as a pool keeps them."""

    pool = None

    def __init__(self, place: Place, timeout: float) -> None:
        self._place, self._timeout = place, timeout
        self._idle: list[Connection] = []

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        connection = self._idle.pop() if self._idle else self._open()
        connection.begin()
        try:
            yield connection
        finally:
            if not connection.is_lost:
                self._idle.append(connection)

    def _open(self) -> Connection:
        task = running()
        if self._place.is_cut_off(task.process):
            task.park(self._timeout)
            raise failure("no route", lost=False)
        server = self._place.server_for(task.process)
        if not server.is_up:
            task.park(self._place.latency())
            raise failure("connection refused", lost=False)
        return Connection(self._place, server, self._timeout)

    def dispose(self, close: bool = True) -> None:
        self._idle.clear()


class Place:
    """Stands for an `allocator.database.address.Address`; slot `offset` of so many."""

    file = pool = None
    is_in_memory = False

    def __init__(self, world: World, offset: int, shards: int) -> None:
        self.name = self.shown = f"shard{offset}"
        self.word = Word("f1ee7000", offset) if shards > 1 else None
        self.world, self.scheduler, self.account = world, world.scheduler, world.account
        self.dialect = Dialect()
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
        is_durable = self.world.plan.durable and not is_out("a restart is the same run")
        # Given up: a server that is not durable, and starts in the same moment of a clock that was set back meanwhile.
        started = next(moment for moment in count(self.now()) if moment not in self._starts)
        self._starts.add(started)
        return Server(name, started, log, is_durable)

    def replace(self, name: str, log: list[Entry], *, is_restart: bool = False) -> None:
        """A server serves from now on, which may be the same after a restart."""
        if not is_restart:
            self.world.has_moved = True
        self.server = self._server(name, log)
