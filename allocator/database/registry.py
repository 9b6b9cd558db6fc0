"""One database: its schema, the state of its failovers, and the numbers of nodes and workers."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from secrets import randbelow
from time import time_ns
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from allocator import __version__
from allocator.database.connection import Runner
from allocator.database.dialect import Dialect
from allocator.database.schema import inspection, upgrade
from allocator.database.verbs import (
    failover_row,
    node_and_snowflake_rows,
    segments,
    servers,
    shard_row,
    start,
    worker_number_rows,
)
from allocator.database.verbs.start import Start
from allocator.errors import (
    DatabaseUnavailable,
    SchemaOutOfDate,
    ShardMisconfigured,
)
from allocator.rules.failover import NOTHING, Failover, Here, moved, skipped
from allocator.rules.fleet_consistency import Shard
from allocator.rules.fleet_growth_protocol import LEAD
from allocator.schemes.ticket import CLAIM
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

ATTEMPTS = 20
"""Tries before the call fails: each one lost a race with another process, or met a failover."""
UNSTEADY = "the database keeps failing over, or several servers answer in turn; retry"


def identity() -> tuple[str, int]:
    """Host and process id, for the operator who reads the tables."""
    return platform.node() or "unknown", os.getpid()


class Registry(Runner):
    """A database whose schema is checked, and whose failovers are known before it numbers nodes and leases workers."""

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        super().__init__(database, timeout)
        self._schema_seen = False
        self._rows_are_ours = False

    @property
    def was_used(self) -> bool:
        """Whether this process has found its tables."""
        return self._schema_seen

    def check_schema(self) -> None:
        """Once: the tables have the revision that is needed, or `SchemaOutOfDate` is raised."""
        if not self._schema_seen:
            self.start()

    def start(self, name: str = "", *, with_nodes: bool = False) -> Start:
        """Fetch the current rows, with that of the tag `name`.

        Looks at the schema if a table is missing, or at another revision. An embedded database makes its tables.
        """
        asked = self.address.shown, name, with_nodes
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
        self.run(shard_row.begin_alone, self.address.public_url)
        self.failover()  # before the first id: else a failover could forget the row with the ids
        self.run(segments.begin_run)

    def failover(self, start: Start | None = None) -> Failover:
        """The failover state. If the database moved since the state was written, write the new state first.

        start: rows that were just fetched.
        """
        for _ in range(ATTEMPTS):
            start = start or self.start()
            found, here, is_alone = start.failover, start.here, start.is_alone
            claims = start.shard is not None and start.shard.tickets == CLAIM
            start = None
            if found is None:
                self.run(failover_row.add, Failover(here.run))
                continue
            here = here._replace(same=here.same and not self._has_strangers(found, here))
            fresh = moved(found, here, time_ns() // 1_000_000, not is_alone)
            if fresh == found:
                return found
            skip = NOTHING if here.same else skipped(here.at)
            skip = skip if is_alone and not claims else skip._replace(tickets=0)
            if here.is_failover:
                self._leave_most(fresh.run)
            self.run(failover_row.move, found, fresh, skip, here.is_failover)
        raise DatabaseUnavailable(UNSTEADY)

    def _leave_most(self, run: str) -> None:
        """Mark most rows that other runs have written, each part for itself; the move marks the last ones."""
        after: str | None = ""
        while after is not None:
            after = self.run(failover_row.leave_part, run, after)

    def has_moved(self) -> bool:
        """Whether there was a failover that was not noted; it is, from here on."""
        start = self.start()
        return self.failover(start) != start.failover

    def _has_strangers(self, state: Failover, here: Here) -> bool:
        """Whether a tag's row is of another run, though this database never moved; not asked again once all are ours.

        Then the rows came from elsewhere, without the row that says so: a dump was loaded into tables that had theirs.
        """
        if state.first_value or self._rows_are_ours:
            return False
        runs = self.run(segments.fetch_runs)
        is_strange = any(not self.run(servers.fetch_run, run).same for run in runs if run not in {"", here.run})
        self._rows_are_ours = bool(runs) and not is_strange  # a dump may yet be loaded into empty tables
        return is_strange

    def noted(self, name: str) -> Start:
        """The current rows. A failover that they show is written first: a claim or repair of the tag would hide it."""
        start = self.start(name)
        if start.here_of_tag.same:
            return start
        if start.here.same:
            self._rows_are_ours = False
        return start if self.failover(start) == start.failover else self.start(name)

    def begin_above(self, value: int) -> None:
        """Let tags that are made on first use begin above `value`, as on the other shards of the fleet."""
        while (state := self.failover()).first_value < value:
            self.run(failover_row.move, state, state._replace(first_value=value))

    def register_node(self) -> int:
        """A new node number, for this process."""
        now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        for _ in range(ATTEMPTS):
            start = self.start(with_nodes=True)
            self._check_numbers(start.shard)
            state = self.failover(start)
            number = self.run(node_and_snowflake_rows.register, *identity(), __version__, now)
            # After a failover in between, the old server may have given this number too.
            if self.failover(after := self.start(with_nodes=True)) == state and after.last_node >= number:
                return node_and_snowflake_rows.check_new(number, start.last_node)
        raise DatabaseUnavailable(
            "the database failed over to another server while a node was registered, or a trigger changed the node; "
            "retry, then run allocator db check"
        )

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease a free number of a space. Raises `NodeIdsExhausted`, and `InvalidSetting` by settings or clock."""
        for attempt in range(ATTEMPTS):
            start = self.start()
            self._check_numbers(start.shard)
            state = self.failover(start)
            at, rows = self.run(worker_number_rows.fetch, claim.space)
            check_clock(claim, at)
            check_moved(state.moved_at_ms, claim, at)
            chosen = choose(rows, claim, at, 1 << min(attempt, 10), randbelow(1 << 16))
            if self.run(worker_number_rows.take, chosen, claim, state):
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

    def _check_numbers(self, row: Shard | None) -> None:
        """Raise on any shard but the lead, which alone numbers nodes and workers."""
        if row is not None and not row.joining and row.numbering.offset != LEAD:
            lead = next((member.url for member in row.members if member.offset == LEAD), "")
            raise ShardMisconfigured(
                f"{self.address.shown} is shard {row.numbering.offset} of a fleet, and nodes and workers are numbered "
                f"by shard {LEAD} alone; use {lead}, or give all shards"
            )
