"""The verbs, run: each on a connection of our own, in a transaction of its own, with an end to every wait."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from secrets import randbelow, token_hex
from time import monotonic, sleep
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy.exc import SQLAlchemyError

from allocator.database import schema
from allocator.database.address import Address, address_of
from allocator.database.batch import Wanted
from allocator.database.failures import is_contended, is_stale, translate, unforeseen
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseUnavailable,
    LeaseLost,
    SchemaOutOfDate,
    ShardMisconfigured,
)
from allocator.schemes.growth import LEAD
from allocator.schemes.lane import ALL, NONE, Lane, Seen, is_outgrown, mark
from allocator.schemes.layout import Layout
from allocator.schemes.registry import Worker, check_same, choose_worker
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag, damaged, settle, unknown

P = ParamSpec("P")
T = TypeVar("T")

CONTENDED_PAUSE = 0.005
MAX_CONTENDED_PAUSE = 0.2
CLAIM_ATTEMPTS = 20
"""How often a claim close to the limit may lose the race for what remains."""

abandoned: list[Pool] = []
"""Connections inherited by a fork belong to the parent: kept to the end, so that nothing here closes them."""


def identity() -> tuple[str, int]:
    """Who we are, for the operator who reads the tables."""
    return platform.node() or "unknown", os.getpid()


def our_version() -> str:
    try:
        return version("allocator")
    except PackageNotFoundError:  # run from a folder, or frozen into one file
        return "unknown"


class Database:
    """One database, reached by connections that belong to the allocator alone.

    Safe to use from several threads. Nothing is opened before the first verb.
    """

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        self.address: Address = address_of(database)
        self.timeout = timeout
        self.dialect = self.address.dialect
        self.engine: Engine = self.address.engine(timeout)
        self._schema_seen = self._closed = False
        self.may_create = True
        """Whether a file that is not there may be made, as the embedded database does."""
        self._lanes: dict[str, Lane] = {}

    def __repr__(self) -> str:
        return f"<Database {self.address.shown}>"

    def run(self, verb: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `verb`, which must burn what it claimed when it is run again: a lost connection may hide a commit."""
        self._check_there()
        began, pause = monotonic(), CONTENDED_PAUSE
        for attempt in count():
            try:
                with self.engine.connect() as connection:
                    self.dialect.before(connection)
                    result = verb(connection, *args, **kwargs)
                    self.dialect.after(connection)
                    return result
            except SQLAlchemyError as error:
                passed = monotonic() - began
                if is_contended(error, self.dialect) and passed + pause < self.timeout:
                    sleep(pause)
                    pause = min(2 * pause, MAX_CONTENDED_PAUSE)
                # One that was lost at once had gone stale in the pool; one that took its time is a server in trouble.
                elif attempt or not is_stale(error) or passed > self.timeout / 2:
                    raise translate(error, self.dialect, self.address.shown) from error
            except AllocatorError:
                raise
            except Exception as error:
                raise unforeseen(error, self.address.shown) from error
        raise AssertionError("unreachable")

    def _check_there(self) -> None:
        if self._closed:
            raise AllocatorClosed
        if not self.may_create and self.is_missing():
            raise DatabaseUnavailable(f"there is no file {self.address.file}")

    # -- segments

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """The row of a tag, made from `template` if it is missing and may be made."""
        self.check_schema()
        tag = self.run(self.dialect.read_segment, template.name)
        if tag is None and create:
            self.run(self.dialect.create_segment, template)
            tag = self.run(self.dialect.read_segment, template.name)
        if tag is None:
            raise unknown(template.name)
        self._lanes[tag.name] = tag.lane
        return tag

    def has_opened(self, name: str) -> bool:
        return name in self._lanes

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """Claim `size` ids above those `seen`; fewer, if no more remain and they need not be `exact`."""
        for _ in range(CLAIM_ATTEMPTS):
            lane = self._lanes.get(name, ALL)
            low = mark(seen, lane)
            # A lane of step 0 is that of a fleet which grew when the row was read.
            usable = lane.step and not is_outgrown(lane, seen)
            last = self.run(self.dialect.claim_segment, name, size, lane, low) if usable else None
            if last is not None:
                found = lane.ids(last, size)
                if found[0] <= low:
                    raise damaged(name, f"a claim of {size} ids above {low} returned {last}")
                return found
            tag = self.run(self.dialect.read_segment, name)
            if tag is not None:
                self._lanes[name] = tag.lane  # another one, once the fleet has grown
            size = settle(tag, name, size, seen, exact)
        raise DatabaseUnavailable(f"tag {name!r} is close to its limit and every claim lost a race; try again")

    def open_segments(self, templates: Sequence[Tag], create: bool = False) -> list[Tag]:
        """The rows of those tags that are there; the others are for `open_segment`, which may make them."""
        self.check_schema()
        found = self.run(self.dialect.read_segments, [template.name for template in templates])
        self._lanes.update({tag.name: tag.lane for tag in found})
        return found

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        """Claim segments of several tags at once, as many as can be had so; the others are for `claim_segment`."""
        wanted = []
        for name, claim in claims.items():
            lane = self._lanes.get(name, NONE)  # one that was not opened here is for `claim_segment` too
            if lane.step and not is_outgrown(lane, claim.seen):
                wanted.append(Wanted(name, claim.size, lane, mark(claim.seen, lane)))
        if len(wanted) < self.dialect.least_batch:
            return {}
        ends = self.run(self.dialect.claim_segments, wanted)
        found = ((one, one.lane.ids(ends[one.name], one.size)) for one in wanted if one.name in ends)
        return {one.name: ids for one, ids in found if ids[0] > one.seen}

    # -- nodes and workers

    def register_node(self) -> int:
        """A new node number, for this process."""
        self._check_numbers()
        now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        return self.run(self.dialect.register_node, *identity(), our_version(), now)

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        """Write that a worker is ours until a later moment; raises `LeaseLost` if the one to renew is not any more."""
        self.check_schema()
        if claim.lease is not None:
            if not self.run(self.dialect.renew_worker, claim.lease.number, claim.lease.holder, claim.until):
                raise LeaseLost(f"worker {claim.lease.number} was leased by another process meanwhile")
            return replace(claim.lease, until=claim.until)
        self._check_numbers()
        for _ in range(CLAIM_ATTEMPTS):
            found = self.run(self.dialect.list_workers)
            chosen = choose_worker(found, layout, epoch, claim.now, randbelow(1 << 16))
            number = chosen if isinstance(chosen, int) else chosen.number
            fresh = Worker(number, str(layout), epoch, token_hex(16), claim.until, *identity())
            if isinstance(chosen, int):
                ours = self.run(self.dialect.add_worker, fresh)
            else:
                ours = self.run(self.dialect.take_worker, chosen, fresh)
            if ours:
                check_same(self.run(self.dialect.list_workers), layout, epoch)  # two formats may begin at one moment
                since = claim.now if isinstance(chosen, int) else max(claim.now, chosen.until + 1)
                return Lease(number, fresh.holder, since, claim.until)
        raise DatabaseUnavailable("every worker that was free was leased by another process first; try again")

    def _check_numbers(self) -> None:
        """Of the shards of a fleet, the first alone numbers nodes and workers."""
        self.check_schema()
        row = self.run(self.dialect.read_shard)
        if row is not None and not row.joining and row.numbering.offset != LEAD:
            lead = next((member.url for member in row.members if member.offset == LEAD), "")
            raise ShardMisconfigured(
                f"{self.address.shown} is shard {row.numbering.offset} of a fleet, and nodes and workers are numbered "
                f"by shard {LEAD} alone; use {lead}, or give all shards"
            )

    # -- schema

    def check_schema(self) -> None:
        """Once: the tables are as needed, or `SchemaOutOfDate` is raised. The embedded database makes them."""
        if self._schema_seen:
            return
        try:
            self.run(schema.check_sound, self.address.shown)
        except SchemaOutOfDate:
            if not self.dialect.embedded:
                raise
            self.upgrade_schema()
        self._schema_seen = True

    def is_missing(self) -> bool:
        return self.address.file is not None and not Path(self.address.file).exists()

    def has_siblings(self) -> bool:
        """Whether this is one of several shards."""
        self.check_schema()
        row = self.run(self.dialect.read_shard)
        return row is not None and len(row.members) > 1

    def upgrade_schema(self) -> None:
        self.run(schema.upgrade, self.dialect, self.address.shown, self.timeout)

    # -- life

    def close(self) -> None:
        self._closed = True
        self.engine.dispose()

    def abandon(self) -> None:
        """After a fork, in the child: forget every connection without a word to its server."""
        abandoned.append(self.engine.pool)
        self.engine = self.address.engine(self.timeout)  # of the old one, a connection may have been half opened


def sibling(known: Sequence[Database], url: str) -> Database:
    """Another shard of their fleet, of which only the URL was told, without password: with that of one like it."""
    alike = next((one for one in known if one.address.is_like(url)), known[0])
    fresh = Database(alike.address.sibling(url), alike.timeout)
    fresh.may_create = False
    return fresh
