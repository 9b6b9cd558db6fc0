"""One database: its schema, the state of its failovers, and the numbers of nodes and workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from secrets import randbelow, randbits
from time import time_ns
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
    ShardMisconfigured,
)
from allocator.rules.failover import moved, skipped
from allocator.rules.fleet_consistency import Shard
from allocator.rules.fleet_growth_protocol import LEAD
from allocator.runtime.forks import this_process
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
UNSTEADY = "the database keeps failing over, or several servers answer in turn; retry"


class Current(NamedTuple):
    """The rows of a `Start` that are of the server run which the shard's row names."""

    tag: Tag | None
    shard: Shard
    at: int


class Registry(Runner):
    """A database whose schema is checked, and whose failovers are known before it numbers nodes and leases workers."""

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        super().__init__(database, timeout)
        self._schema_seen = False

    @property
    def was_used(self) -> bool:
        """Whether this process has found its tables."""
        return self._schema_seen

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

    def has_siblings(self) -> bool:
        """Whether this is one of several shards."""
        row = self.on_tables(shard_row.fetch)
        return row is not None and len(row.members) > 1

    def upgrade_schema(self) -> None:
        self.run(upgrade.upgrade, self.address.shown, self.timeout)
        # Before the first id: else a failover could forget the row with the ids.
        self.run(shard_row.begin_alone, self.address.shown, self.address.public_url)
        self.current()

    def current(self, name: str = "", start: Start | None = None) -> Current:
        """The rows on the server run that they name. If the database has moved, the move is noted first.

        start: rows that were just fetched.
        """
        for _ in range(ATTEMPTS):
            start = start or self.start(name)
            if start.shard is None:
                self.run(shard_row.begin_alone, self.address.shown, self.address.public_url)
            elif start.shard.move.run == start.run:
                return Current(start.tag, start.shard, start.at)
            else:
                self.note(start, start.shard)
            start = None
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
        """Write a move; False if another process did."""
        after = moved(before.move, start.run, randbits(63), start.at, time_ns() // 1_000_000)
        if not self.run(moves.move, before, after, skipped(start.at), waits):
            return False
        log.warning(
            "%s moved to another server (a promoted standby, or a MariaDB in a new container without a fixed "
            "hostname), or was restored: each tag skips ids that may already be in use; the server was %s and is %s",
            self.address.shown,
            before.move.run,
            after.run,
        )
        return True

    def begin_above(self, value: int) -> None:
        """Let tags that are made on first use begin above `value`, as on the other shards of the fleet."""
        self.current()
        self.run(moves.begin_above, value)

    def register_node(self) -> int:
        """A new node number, for this process."""
        now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        for _ in range(ATTEMPTS):
            shard = self.current().shard
            self._check_numbers(shard)
            number = self.run(node_rows.register, *this_process(), __version__, now, shard)
            if number is not None:
                return number
        raise DatabaseUnavailable(UNSTEADY)

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease a free number of a space. Raises `NodeIdsExhausted`, and `InvalidSetting` by settings or clock."""
        for attempt in range(ATTEMPTS):
            shard = self.current().shard
            self._check_numbers(shard)
            at, rows = self.run(worker_number_rows.fetch, claim.space)
            check_clock(claim, at)
            check_moved(shard.move.at, claim, at)
            chosen = choose(rows, claim, at, 1 << min(attempt, 10), randbelow(1 << 16))
            if self.run(worker_number_rows.take, chosen, claim, shard.move):
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
        return spaces_of(rows, at)

    def _check_numbers(self, row: Shard) -> None:
        """Raise on any shard but the lead, which alone numbers nodes and workers."""
        if not row.joining and row.numbering.offset != LEAD:
            lead = next((member.url for member in row.members if member.offset == LEAD), "")
            raise ShardMisconfigured(
                f"{self.address.shown} is shard {row.numbering.offset} of a fleet, and nodes and workers are numbered "
                f"by shard {LEAD} alone; use {lead}, or give all shards"
            )
