"""One database: its schema, the state of its failovers, and the numbers of nodes and workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from random import uniform
from secrets import randbelow, randbits
from time import monotonic, sleep, time_ns
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar

from allocator import __version__
from allocator.database.connection import Runner
from allocator.database.dialect import Dialect
from allocator.database.schema import inspection, upgrade
from allocator.database.verbs import moves, node_rows, shard_row, start, worker_number_rows
from allocator.database.verbs.start import Start
from allocator.errors import (
    DatabaseUnavailable,
    SchemaOutOfDate,
)
from allocator.runtime.forks import this_process
from allocator.schemes.failover import moved, skipped
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import ARGUMENT, Shard, check_word
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import (
    NumberClaim,
    NumberLease,
    Space,
    check_clock,
    check_moved,
    choose,
    lost,
    spaces_of,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("allocator")

ATTEMPTS = 20
"""Tries before the call fails: each one lost a race with another process, or met a failover."""
MOVING_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds that a process waits at most while another one notes a failover, the first time and later ones: hundreds may
be waiting, and it needs the database."""
UNSTEADY = "the database keeps failing over, several servers answer in turn, or a client that notes it hangs; retry"


class Current(NamedTuple):
    """The rows of a `Start` that are of the server run which the shard's row names."""

    tag: Tag | None
    shard: Shard
    at: int


class Registry(Runner):
    """A database whose schema is checked, and whose slot and failovers are known before it numbers anything."""

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        super().__init__(database, timeout)
        self._schema_seen = self._was_told = False
        self.may_create = self.address.word is None  # a file of a fleet was there

    def check_schema(self) -> None:
        """Once: the tables have the revision that is needed, or `SchemaOutOfDate` is raised."""
        if not self._schema_seen:
            self.start()

    def start(self, name: str = "") -> Start:
        """Fetch the rows, with that of the tag `name`.

        Looks at the schema if a table is missing, or at another revision. An embedded database makes its tables.
        """
        asked = self.address.shown, name
        try:
            found = self.run(start.fetch, *asked, not self._schema_seen)
        except SchemaOutOfDate:
            found = self.run(start.fetch, *asked, self._has_revision())
        self._schema_seen = True
        return found

    def on_tables(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for a verb that may be the first one: looks at the schema as `start` does."""
        try:
            return self.run(verb, *args, **kwargs)
        except SchemaOutOfDate:
            self._has_revision()
            return self.run(verb, *args, **kwargs)

    def _has_revision(self) -> bool:
        """Whether a revision says that the tables are there, which a host application may have made without one.

        Raises `SchemaOutOfDate` if they are missing. An embedded database makes them.
        """
        try:
            return self.run(inspection.check, self.address.shown)
        except SchemaOutOfDate:
            if not self.dialect.embedded:
                raise
        self.upgrade_schema()
        return True

    def read_row(self) -> Shard:
        """The shard's row, whatever server wrote it; one that says nothing where it was not made yet."""
        return self.on_tables(shard_row.fetch) or Shard()

    def check_slot(self, row: Shard | None) -> None:
        if self.address.word:
            check_word(self.address.shown, self.address.word, row or Shard())

    def check_owner(self) -> None:
        """Raise where this user may not write the shard's row, or the server does not say which one it is."""
        self.on_tables(shard_row.check_owner)

    def upgrade_schema(self) -> None:
        self.run(upgrade.upgrade, self.address.shown, self.timeout)
        # Before the first id: else a failover could forget the row with the ids.
        self.run(shard_row.begin_alone, self.address.shown)
        self.current()

    def current(self, name: str = "") -> Current:
        """The rows on the server run that they name. If the database has moved, the move is noted first.

        Raises `ShardMisconfigured` where the database is not the slot that its URL says.
        """
        end, pause = monotonic() + self.timeout, MOVING_PAUSE
        for _ in range(ATTEMPTS):
            start = self.start(name)
            if start.shard is None:
                self.run(shard_row.begin_alone, self.address.shown)
            elif start.shard.move.run == start.run:
                self.check_slot(start.shard)
                self._tell(start.shard, start.numbering)
                return Current(start.tag, start.shard, start.at)
            elif not self.note(start, start.shard):
                if monotonic() + pause > end:
                    break
                sleep(uniform(0.0, pause))  # noqa: S311  # no secret
                pause = min(2 * pause, LONGEST_PAUSE)
        raise DatabaseUnavailable(UNSTEADY)

    def mark_restored(self) -> None:
        """Move the database as after a failover: an operator knows of forgotten ids that nothing else shows."""
        for _ in range(ATTEMPTS):
            start = self.start()
            if start.shard is None:
                raise shard_row.missing(self.address.shown)
            if self.note(start, start.shard, waits=True):
                return
        raise DatabaseUnavailable(UNSTEADY)

    def note(self, start: Start, before: Shard, *, waits: bool = False) -> bool:
        """Write a move; False if another process did, or does."""
        after = moved(before.move, before.residue, start.run, randbits(63), start.at, time_ns() // 1_000_000)
        if not self.run(moves.move, before, after, skipped(start.at, before.residue), waits):
            return False
        log.warning(
            "%s moved to another server (a promoted standby, or a MariaDB in a new container without a fixed "
            "hostname), or was restored: each tag skips ids that may already be in use; the server was %s and is %s",
            self.address.shown,
            before.move.run,
            after.run,
        )
        return True

    def register_node(self) -> int:
        """A new node number, for this process."""
        now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        for _ in range(ATTEMPTS):
            shard = self.current().shard
            number = self.run(node_rows.register, *this_process(), __version__, now, shard)
            if number is not None:
                return number
        raise DatabaseUnavailable(UNSTEADY)

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease a free number of a space. Raises `NodeIdsExhausted`, and `InvalidSetting` by settings or clock."""
        for attempt in range(ATTEMPTS):
            shard = self.current().shard
            at, rows = self.run(worker_number_rows.fetch, claim.space)
            check_clock(claim, at)
            check_moved(shard.move.at, claim, at)
            chosen = choose(rows, claim, shard.residue, at, 1 << min(attempt, 10), randbelow(1 << 16))
            if self.run(worker_number_rows.take, chosen, claim, shard):
                number = chosen if isinstance(chosen, int) else chosen.number
                return NumberLease(claim.space, number, claim.holder, claim.length_ms)
        raise DatabaseUnavailable(f"every free number of space {claim.space!r} was taken by another process first")

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        """Raises `LeaseLost` if another process holds the number, or if the lease has ended."""
        if not self.run(worker_number_rows.renew, lease, wall_ms):
            raise lost(lease)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        """Give a number back. `used_ms` is the last millisecond of the wall clock in which it may have been used."""
        if not self.run(worker_number_rows.release, lease, used_ms):
            raise lost(lease)

    def worker_spaces(self) -> list[Space]:
        """Who holds which number."""
        at, rows = self.on_tables(worker_number_rows.fetch_all)
        return spaces_of(rows, self.read_row().residue, at)

    def _tell(self, shard: Shard, server: Residue) -> None:
        """Log, once, what an operator should change, though nothing is wrong yet."""
        if self._was_told:
            return
        self._was_told = True
        if shard.fleet and not self.address.word:
            log.warning(
                "%s is slot %s, and its URL does not say so: add ?%s=%s, so that no copy or older state is used in its "
                "place",
                *(self.address.shown, shard.word, ARGUMENT, shard.word),
            )
        if shard.residue.step == 1 and server.step > 1:
            log.warning(
                "%s has auto_increment_offset = %d and auto_increment_increment = %d, as one of %d servers: each gives "
                "the same ids, unless all are slots of one fleet; see: allocator shards make --help",
                *(self.address.shown, *server, server.step),
            )
