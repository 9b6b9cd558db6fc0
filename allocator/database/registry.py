"""One database: its schema, the state of its failovers, and the numbers of nodes and workers."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from secrets import randbelow, token_hex
from time import time_ns

from allocator.database import schema
from allocator.database.connection import Runner
from allocator.database.tables import SERVING
from allocator.database.verbs import failover, nodes, segments, shards, start
from allocator.database.verbs.start import Start, damage
from allocator.errors import (
    DatabaseUnavailable,
    LeaseLost,
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
)
from allocator.rules.fleet import Shard
from allocator.rules.fleet_growth import LEAD
from allocator.rules.node_failover import NOTHING, Failover, begin_of_lease, moved, skipped
from allocator.schemes.layout import Layout
from allocator.schemes.leases import Worker, check_same, choose_worker
from allocator.schemes.snowflake import Lease, LeaseClaim

ATTEMPTS = 20
"""How often a number may be lost to another process, or to a failover."""


def identity() -> tuple[str, int]:
    """Host and process id, for the operator who reads the tables."""
    return platform.node() or "unknown", os.getpid()


@cache
def our_version() -> str:
    try:
        return version("segment-allocator")
    except PackageNotFoundError:  # run from a folder, or frozen into one file
        return "unknown"


class Numbers(Runner):
    """See `Runner`."""

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        super().__init__(database, timeout)
        self._schema_seen = self._is_sound = False
        self._has_revision = True

    # -- schema

    def check_schema(self) -> None:
        """Once: the tables have the revision that is needed, or `SchemaOutOfDate` is raised."""
        if not self._schema_seen:
            self.start()

    def start(self, name: str = "", *, with_nodes: bool = False, with_workers: bool = False) -> Start:
        """Fetch the current rows, with that of the tag `name`.

        If the tables do not fit, inspect them for the reason. An embedded database makes and upgrades its tables.
        """
        for was_looked_at in (False, True):
            try:
                found = self.run(start.fetch, name, with_nodes, with_workers, self._has_revision)
                if not self._schema_seen and self._has_revision and found.revision not in SERVING:
                    raise schema.unlike(found.revision, self.address.shown)
            except (SchemaDamaged, SchemaOutOfDate):
                if was_looked_at:  # yet sound: a second revision, or two servers that answer in turn
                    raise
                self._is_sound = False  # it may have been
                self.check_sound()
            else:
                self._schema_seen = True
                return found
        raise AssertionError("unreachable")

    def check_sound(self) -> None:
        """Once: each column and key is there, or `SchemaOutOfDate` or `SchemaDamaged` is raised."""
        if self._is_sound:
            return
        try:
            self._has_revision = self.run(schema.check_sound, self.address.shown)
        except SchemaOutOfDate:
            if not self.dialect.embedded:
                raise
            self.upgrade_schema()
        self._is_sound = True

    def has_siblings(self) -> bool:
        """Whether this is one of several shards."""
        self.check_sound()
        row = self.run(shards.fetch)
        return row is not None and len(row.members) > 1

    def upgrade_schema(self) -> None:
        self.run(schema.upgrade, self.address.shown, self.timeout)
        self.run(shards.begin_alone, self.address.public_url)
        self.failover()  # before the first id: else a failover could forget the row with the ids
        self.run(segments.begin_run)

    # -- what may be forgotten

    def failover(self, start: Start | None = None) -> Failover:
        """The failover state. If the database moved since the state was written, write the new state first.

        start: rows that were just fetched.
        """
        for _ in range(ATTEMPTS):
            start = start or self.start()
            found, here, is_alone = start.failover, start.here, start.is_alone
            start = None
            if found is None:
                self.run(failover.add, Failover(here.run))
                continue
            fresh = moved(found, here, time_ns() // 1_000_000, 0 if here.same else self._leased_until())
            if fresh == found:
                return found
            skip = NOTHING if here.same else skipped(here.at)
            self.run(failover.move, found, fresh, skip if is_alone else skip._replace(tickets=0))
        raise DatabaseUnavailable("the database moves from server to server, or answers from several; try again")

    def begin_above(self, value: int) -> None:
        """Let tags that are made on first use begin above `value`, as on the other shards of the fleet."""
        while (state := self.failover()).first_value < value:
            self.run(failover.move, state, state._replace(first_value=value))

    def _leased_until(self) -> int:
        return max((worker.until for worker in self.run(nodes.fetch_workers)), default=0)

    # -- nodes and workers

    def register_node(self) -> int:
        """A new node number, for this process."""
        now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        for _ in range(ATTEMPTS):
            start = self.start(with_nodes=True)
            self._check_numbers(start.shard)
            state = self.failover(start)
            number = self.run(nodes.register, *identity(), our_version(), now)
            if self.failover() == state:  # else the number may be below those of the server that was read
                return nodes.check_new(number, start.last_node)
        raise DatabaseUnavailable("the database moved from server to server while a node was registered; try again")

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        """Lease a worker until a later moment, or renew `claim.lease`; raises `LeaseLost` if another process has it."""
        if claim.lease is not None:
            self.check_schema()
            return self._renewed(claim.lease, claim.until)
        for _ in range(ATTEMPTS):
            start = self.start(with_workers=True)
            self._check_numbers(start.shard)
            state = self.failover(start)
            begin = begin_of_lease(state, claim.now, claim.until)
            chosen = choose_worker(start.workers, layout, epoch, claim.now, randbelow(1 << 16))
            number = chosen if isinstance(chosen, int) else chosen.number
            until = begin + claim.until - claim.now
            fresh = Worker(number, str(layout), epoch, token_hex(16), until, *identity())
            if isinstance(chosen, int):
                ours = self.run(nodes.add_worker, fresh)
            else:
                ours = self.run(nodes.take_worker, chosen, fresh)
            if ours and self.failover(after := self.start(with_workers=True)) == state:
                if {one.holder: one.until for one in after.workers}.get(fresh.holder, until) != until:
                    raise damage(f"the end of a lease is rounded, {until} was written")
                check_same(after.workers, layout, epoch)  # two processes may lease with two layouts at once
                return Lease(number, fresh.holder, begin, until)  # a worker is chosen only after its last lease ended
        raise DatabaseUnavailable("every worker that was free was leased by another process first; try again")

    def _renewed(self, lease: Lease, until: int) -> Lease:
        """Renew a lease. One from before a failover may be another process's: the failover may have forgotten that."""
        if not self.run(nodes.renew_worker, lease.number, lease.holder, until):
            raise LeaseLost(f"worker {lease.number} was leased by another process meanwhile")
        if lease.since < self.failover().leases_from_ms:  # checked afterwards: a failover may happen during the renewal
            raise LeaseLost(f"worker {lease.number} may have been leased by another process before the database moved")
        return replace(lease, until=until)

    def _check_numbers(self, row: Shard | None) -> None:
        """Raise on any shard but the lead, which alone numbers nodes and workers."""
        if row is not None and not row.joining and row.numbering.offset != LEAD:
            lead = next((member.url for member in row.members if member.offset == LEAD), "")
            raise ShardMisconfigured(
                f"{self.address.shown} is shard {row.numbering.offset} of a fleet, and nodes and workers are numbered "
                f"by shard {LEAD} alone; use {lead}, or give all shards"
            )
