"""Servers that fail over, and processes that end, between any two statements of one verb.

The verbs and their statements are the real ones, on SQLite in memory. Before each statement that is outside of a
transaction another process may go on, this one may end, or a server goes on that lacks the newest commits. No id,
ticket or node comes to two, and no worker or number is of two at one time.

Given up, and so left out: a server that forgets the move of the one before, since leases wait from the last one known.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

import allocator.database.store
from allocator.database.address import address_of
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import translate
from allocator.database.sqlite import SQLite
from allocator.database.store import Database
from allocator.database.verbs import shard_row
from allocator.errors import AllocatorError, LeaseLost, MaxValueWentBack, ServerReplaced, UnknownTag
from allocator.fleet import commands
from allocator.fleet.tag_administration import Tags
from allocator.schemes import worker_number_lease
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.shared.residues import Residue, residue_of
from allocator.schemes.snowflake import LeaseClaim, LeasedSnowflake, SnowflakeSettings
from allocator.schemes.tag import Tag
from allocator.schemes.ticket import REPLACE
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease, Renewal, Tenure
from simulation.seeds import Engine, Holders, Violation

BEGIN = 1_800_000_000_000
LENGTH = 4000
"""Of a lease of a worker, in milliseconds."""
LAYOUT = Layout(sign=1, timestamp=57, datacenter=1, worker=1, sequence=4)
SETTINGS = SnowflakeSettings(BEGIN - 5000, LAYOUT, LENGTH / 1000)
WAIT = 300
"""Milliseconds of a process that has nothing to do."""
SPACE, BITS, HOLD = "pods", 1, 15_000
"""Of worker numbers: few, and held for longer than a failover takes."""
NAMES = ("a", "b", "c", "d")
"""Of tags, and of types of tickets."""
VERBS = (("ids",), ("ids",), ("ids", "ticket", "node"), ("ticket",), ("node",), ("worker",), ("number",))
"""What the processes of a world do: a few things each, so that they meet."""
STEPS, MANY = 100, 300
"""Of a world of tags, and of one without: there an operator has nothing to do."""
PROCESSES = (3, 6)
LOST = (4, 10, 40)
"""Commits, of which a server may lack some."""


class Killed(BaseException):
    """Ends the greenlet of a process."""


class InMemory(SQLite):
    """Asks the world for the server run and its clock. Draws tickets by REPLACE, as MySQL does, until a claim does."""

    words = SQLite.words._replace(clock="allocator_now()")
    tickets = REPLACE

    def server_runs(self, connection: Connection) -> Iterator[tuple[str, Dialect]]:
        yield "allocator_run()", self


DIALECT = InMemory()


class Lasting(sqlite3.Connection):
    """SQLAlchemy closes a connection on which a process ended."""

    def close(self) -> None:
        pass


class Server:
    """Whichever serves now: one connection of SQLite's, whose content is another after a failover."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.raw = sqlite3.connect(":memory:", isolation_level=None, factory=Lasting)
        self.raw.create_function("allocator_now", 0, lambda: self.world.now if self.world else BEGIN)
        self.raw.create_function("allocator_run", 0, lambda: self.world.run if self.world else "server 0")
        self.engine = create_engine(
            "sqlite://", creator=lambda: self.raw, poolclass=StaticPool, isolation_level="AUTOCOMMIT"
        )
        event.listen(self.engine, "before_cursor_execute", self._before)
        Client(self).upgrade_schema()
        self.empty = self.raw.serialize()
        Client(self).transact(shard_row.claim_tickets, "simulated")
        self.claiming = self.raw.serialize()

    def begin(self, image: bytes) -> None:
        """With what was committed there. `deserialize` would pull it from under statements that are prepared."""
        with closing(sqlite3.connect(":memory:")) as kept:
            kept.deserialize(image)
            kept.backup(self.raw)

    def _before(self, *_: object) -> None:
        if self.world and not self.raw.in_transaction:
            self.world.between()

    def state(self) -> object:
        return self.raw.execute("SELECT server_run, move, new_tags_above, moved_at FROM allocator_shard").fetchall()

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            connection.info.update(allocator_run="allocator_run()", path="memory")
            yield connection


class Client(Database):
    """The database as one process knows it."""

    def __init__(self, server: Server) -> None:
        super().__init__("sqlite://")
        self.dialect, self._server = DIALECT, server

    def run(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            with self._server.connected() as connection:
                return verb(connection, self.dialect, *args, **kwargs)
        except SQLAlchemyError as error:
            raise translate(error, self.dialect, "simulated", 0.0) from error


@cache
def server() -> Server:
    return Server()


class Process:
    """Draws ids of each scheme, with what it keeps in memory."""

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, world.random
        self.database = Client(world.server)
        self.opened: set[str] = set()
        self.seen: dict[str, dict[Residue, int]] = defaultdict(dict)
        self.snowflake = LeasedSnowflake(SETTINGS, self.clocks)
        self.held: tuple[NumberLease, Tenure] | None = None
        self.verbs = [getattr(self, name) for name in world.verbs]

    def life(self) -> None:
        while True:
            try:
                self.dice.choice(self.verbs)()
            except (MaxValueWentBack, UnknownTag):  # the server that knew better is gone: a program starts anew
                self.__init__(self.world)  # type: ignore[misc]
            except AllocatorError as error:
                self.world.counts[type(error).__name__] += 1
                self.world.now += WAIT
            self.world.between()

    def ids(self) -> None:
        name = self.dice.choice(self.world.names)
        if name not in self.opened:
            self.database.open_segment(Tag(name), create=True)
            self.opened.add(name)
        found = self.database.claim_segment(name, self.dice.randint(1, 20), self.seen[name])
        self.seen[name][residue_of(found)] = found[-1]
        self.world.gave(name, found)

    def ticket(self) -> None:
        kind = self.dice.choice(self.world.names)
        ticket = self.database.ticket(kind, 0.0)
        assert self.database._shard
        self.world.counts[f"tickets by {self.database._shard.tickets}"] += 1
        self.world.gave(f"ticket {kind}", [ticket])

    def node(self) -> None:
        self.world.gave("node", [self.database.register_node()])
        self.world.now += 1000

    def worker(self) -> None:
        core = self.snowflake
        claim = core.want(self.clocks().own)
        if not isinstance(claim, LeaseClaim):
            self.world.now += WAIT
            return
        since = claim.asked.wall_ms
        try:
            if claim.lease:
                lease = claim.lease
                self.database.renew_number(lease, since)
            else:
                holder = self.dice.randbytes(8).hex()
                lease = self.database.lease_number(SETTINGS.claim(since, holder, "host", 1))
        except AllocatorError as error:
            core.failed(claim, error, self.clocks().own)
            raise
        core.committed(claim, lease, self.clocks().own)
        self.world.held(f"worker {lease.number}", lease.holder, since, since + LENGTH)

    def clocks(self) -> Clocks:
        return Clocks(self.world.now / 1000, self.world.now)

    def number(self) -> None:
        if self.held is None:
            self._lease()
            return
        lease, tenure = self.held
        asked = tenure.want(self.clocks())
        if asked is None:
            self.held = None
        elif isinstance(asked, Renewal):
            try:
                self.database.renew_number(lease, asked.asked.wall_ms)
            except LeaseLost as error:
                tenure.failed(error)
                raise
            tenure.renewed(asked.asked, self.clocks())
            if tenure.left(self.clocks()) > 0:
                self._uses(lease, asked.asked)
        elif self.dice.random() < 0.2:
            self.held = None
            self.world.holders.ends(f"number {lease.number}", lease.holder, self.world.now)
            self.database.release_number(lease, tenure.used_ms)
        else:
            self.world.now += WAIT

    def _lease(self) -> None:
        asked = self.clocks()
        claim = NumberClaim(SPACE, BITS, HOLD, asked.wall_ms, self.dice.randbytes(8).hex())
        lease = self.database.lease_number(claim)
        tenure = Tenure(HOLD, asked)
        if tenure.left(self.clocks()) > 0:
            self.held = lease, tenure
            self._uses(lease, asked)

    def _uses(self, lease: NumberLease, asked: Clocks) -> None:
        self.world.held(f"number {lease.number}", lease.holder, self.world.now, asked.wall_ms + HOLD - 1)


# -- what an operator does, each by a process of its own


def create_above(world: World) -> None:
    """What is in use is looked up when the command begins, which is before its first look at the database."""
    name = world.random.choice(world.names)
    database = Client(world.server)
    world.stays = 1
    Tags(lambda: [database], Tag(name)).create(name, start_after=world.greatest[name])


def set_tag(world: World) -> None:
    name, database = world.random.choice(world.names), Client(world.server)
    tags = Tags(lambda: [database], Tag(name))
    tags.set(name, start_after=tags.get(name).max_value + world.random.randrange(10))


def repair(world: World) -> None:
    """As a failover does, or above what was claimed until the command begins."""
    name, database = world.random.choice(world.names), Client(world.server)
    is_said = world.now % 2 == 1
    world.stays = int(is_said)
    Tags(lambda: [database], Tag(name)).repair(name, above=world.claimed[name] if is_said else None)


def remove(world: World) -> None:
    """A tag that was never used: whoever deletes another one says where the next of its name begins."""
    name, database = world.random.choice(world.names), Client(world.server)
    tags = Tags(lambda: [database], Tag(name))
    if tags.last_claimed(name) == 0:
        tags.delete(name, 0)
        world.counts["deleted"] += 1


def make(world: World) -> None:
    """`shards make`, while others draw. Refused in a fleet, unless a failover has forgotten it."""
    commands.make(Client(world.server), 2)


def upgrade(world: World) -> None:
    Client(world.server).upgrade_schema()


def claim_tickets(world: World) -> None:
    """`allocator db upgrade --tickets claim`, while others draw. Refused after the first ticket."""
    Client(world.server).transact(shard_row.claim_tickets, "simulated")
    world.counts["began to claim tickets"] += 1


def migrate(world: World) -> None:
    """A migration makes a tag, behind a proxy that reconnects; refused, what it names is run, and it again."""
    tag = Tag(world.random.choice(world.names))
    try:
        with world.server.connected() as connection:
            database = Database(replace(address_of("sqlite://"), dialect=DIALECT), lent=connection)
            made = database.create_tag(tag)
    except ServerReplaced:
        world.counts["migrations refused"] += 1
        Client(world.server).upgrade_schema()
        migrate(world)
    else:
        world.counts["made by a migration"] += made is not None


def restored(world: World) -> None:
    """`allocator db mark-restored`, before anybody draws; one that ended in the middle is run again."""
    Client(world.server).mark_restored()
    world.restoring = None


OPERATORS = (create_above, set_tag, repair, remove, make, upgrade, migrate, migrate)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"between {seed}")
        self.server = server()
        self.now, self.number = BEGIN, 0
        self.verbs = self.random.choice(VERBS)
        self.pace = self.random.choice((30, 200, 1500))
        """The most milliseconds between two statements."""
        self.often = self.random.choice((0.05, 0.1, 0.2) if "ids" in self.verbs else (0.02, 0.05))
        """How often a server fails over: rarely where each failover stops leases for a while."""
        self.stays_with = self.random.choice((0.3, 0.8))
        """How often the same process goes on: another one waits while this does much."""
        self.names = NAMES[: self.random.randint(1, len(NAMES))]
        self.counts: Counter[str] = Counter()
        self.greatest: Counter[str] = Counter()
        self.claimed: Counter[str] = Counter()
        self.stays = 0
        """Statements before which nothing else happens."""
        self.restoring: greenlet | None = None
        """Whoever runs alone, after a restore."""
        self._given: set[tuple[str, int]] = set()
        self.holders = Holders()
        self._images = [self.random.choice((self.server.empty, self.server.claiming))]
        self._state: object = None
        """Of the last move."""
        self._hub = getcurrent()
        self._alive: list[greenlet] = []
        self._latest: greenlet | None = None

    @property
    def run(self) -> str:
        return f"server {self.number}"

    def live(self) -> Counter[str]:
        server, raw = self.server, self.server.raw
        server.begin(self._images[0])
        self._changes = raw.total_changes
        server.world = self
        try:
            for _ in range(self.random.choice(PROCESSES)):
                self._start(Process(self).life)
            for _ in range(self.random.choice((0, 1, 3)) if "ticket" in self.verbs else 0):
                self._start(lambda: claim_tickets(self))
            for _ in range(STEPS if "ids" in self.verbs else MANY):
                self._step()
        finally:
            for one in self._alive:
                self._end(one)
            server.world = None
        return self.counts

    def _start(self, call: Callable[[], None]) -> greenlet:
        def run() -> None:
            with suppress(Killed, AllocatorError):
                call()

        self._alive.append(greenlet(run))
        return self._alive[-1]

    def _step(self) -> None:
        dice = self.random
        self.now += dice.randint(1, self.pace)
        self._keep()
        draw = dice.random()
        if draw < self.often:
            self._fail_over(dice.randrange(dice.choice(LOST)))
        elif draw < self.often + 0.01 and self.restoring is None:
            self._restore(dice.randrange(dice.choice(LOST)))
        elif draw < self.often + 0.03:
            self._kill()
        elif draw < self.often + 0.08 and "ids" in self.verbs:
            operator = dice.choice(OPERATORS)
            self.counts[operator.__name__] += 1
            self._start(lambda: operator(self))
        one = self._latest if self._latest and dice.random() < self.stays_with else dice.choice(self._alive)
        if self.restoring is not None:  # one that has not begun is false
            one = self.restoring
        self._latest = one
        one.switch()
        if one.dead:
            self._alive.remove(one)

    def _keep(self) -> None:
        """What was committed is in the log, from which a server may begin."""
        raw = self.server.raw
        if raw.total_changes != self._changes:
            self._images.append(raw.serialize())
            self.claimed |= Counter(dict(raw.execute("SELECT tag, max_value FROM allocator_segment")))
            self._changes = raw.total_changes
            if (state := self.server.state()) != self._state:
                self._state, self._images = state, self._images[-1:]

    def _go_back(self, lost: int) -> None:
        self._images = self._images[: max(1, len(self._images) - lost)]
        self.server.begin(self._images[-1])
        self._changes = self.server.raw.total_changes

    def _fail_over(self, lost: int) -> None:
        self.counts["failovers"] += 1
        self._go_back(lost)
        self.number += 1
        self.now += self.random.randint(1000, 6000)
        if "ids" in self.verbs:  # the deployment that was under way is run again
            self._start(lambda: migrate(self))

    def _restore(self, lost: int) -> None:
        self.counts["restores"] += 1
        self._go_back(lost)
        self.now += self.random.randint(1000, 6000)
        self.restoring = self._start(lambda: restored(self))

    def _kill(self) -> None:
        self.counts["kills"] += 1
        one = self.random.choice(self._alive)
        self._alive.remove(one)
        self._end(one)
        if one is self.restoring:
            self.restoring = self._start(lambda: restored(self))
        self._start(Process(self).life)

    @staticmethod
    def _end(one: greenlet) -> None:
        if one:
            one.throw(Killed)

    # -- what processes say

    def between(self) -> None:
        """Before a statement, and after a verb."""
        if self.stays:
            self.stays -= 1
        else:
            self._hub.switch()

    def gave(self, what: str, found: Iterable[int]) -> None:
        for value in found:
            if (what, value) in self._given:
                raise Violation(f"{value} of {what} came twice")
            self._given.add((what, value))
            self.greatest[what] = max(self.greatest[what], value)
            self.counts[what] += 1

    def held(self, what: str, holder: str, since: int, until: int) -> None:
        self.holders.held(what, holder, holder, since, until)
        self.counts[what.split(maxsplit=1)[0]] += 1


NUMBERS = {
    "randbits": lambda bits: int(current().random.getrandbits(bits)),
    "randbelow": lambda limit: int(current().random.random() * limit),
    "time_ns": lambda: current().now * 1_000_000,
    "this_process": lambda: ("simulated", 1),
}


def current() -> World:
    world = server().world
    assert world is not None
    return world


@contextmanager
def faces() -> Iterator[None]:
    with ExitStack() as stack:
        server()
        stack.enter_context(patch.multiple(allocator.database.store, **NUMBERS))
        stack.enter_context(patch.multiple(worker_number_lease, SECONDS=HOLD / 1000, SNOWFLAKE_SECONDS=LENGTH / 1000))
        stack.enter_context(patch.object(allocator.database.store.log, "disabled", new=True))
        yield


def play(seed: int) -> Counter[str]:
    return World(seed).live()


ENDS = Engine("ends", play, faces)
