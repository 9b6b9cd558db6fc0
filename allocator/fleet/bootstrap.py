"""Looking at the shards of a fleet for the first time, and making a fleet of databases that are all new.

Several processes may make it at once, with their lists in different orders. So one shard decides, the first by
identity: whoever writes its row first says who has which offset, and the others complete what that says. The row has
revision 0 until all are there; a row that is missing later is lost, and never made again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from secrets import token_hex
from time import sleep

from allocator.database.store import Database
from allocator.database.verbs import servers, shards, tickets
from allocator.errors import AllocatorError, DatabaseUnavailable, ShardMisconfigured
from allocator.rules.fleet import (
    BEGUN,
    DEFAULT_FLEET,
    REPLACE,
    Member,
    Shard,
    check_fleet,
    check_usable,
    described,
    lost,
)
from allocator.schemes.ticket import Numbering

log = logging.getLogger("allocator")

ATTEMPTS, PAUSE = 20, 0.05
"""While another process makes the fleet, which takes it a few statements."""


class Opening:
    """`errors` says, by the number of the shard, why it cannot be used now."""

    def __init__(self, databases: Sequence[Database], fleet: str | None, statement: str | None) -> None:
        self._databases = databases
        self._fleet = fleet
        self._statement = statement
        self.errors: dict[int, AllocatorError] = {}
        self._servers: dict[int, str] = {}

    def rows(self) -> list[Shard | None]:
        """The row of each shard that can be reached."""
        for _ in range(ATTEMPTS):
            rows = self._look()
            found = [row for row in rows if row]
            missing = [number for number, row in enumerate(rows) if row is None and number not in self.errors]
            if any(row.revision == 0 for row in found) or (missing and not found):
                if not self._make(rows):
                    sleep(PAUSE)
                continue
            if missing:
                self._check_used_alone(rows)
                self._check_lost(missing)
                continue
            for database in self._databases:
                database.may_create = False  # a file that is gone later is not made anew
            self._check_servers(rows)
            self._check_statement(rows)
            self._warn_alone(found)
            return rows
        begun = next((row for row in self._look() if row), None)
        raise DatabaseUnavailable(
            f"the fleet of {described(begun.members) if begun else 'these'} is being made by another process; if that "
            "ended, open it once with exactly these shards"
        )

    def _look(self) -> list[Shard | None]:
        """A file that is not there is made only where none of the others says that there is a fleet."""
        rows = self._look_at(create=False)
        if not any(rows) and any(database.is_missing() for database in self._databases):
            rows = self._look_at(create=True)
        if len(self.errors) == len(self._databases):
            raise self.errors[0]
        return rows

    def _look_at(self, create: bool) -> list[Shard | None]:
        rows: list[Shard | None] = []
        self.errors.clear()
        for number, database in enumerate(self._databases):
            row = None
            try:
                database.may_create = create
                database.check_schema()
                self._servers[number] = database.run(servers.fetch_identity)
                row = self._row_of(number)
            except AllocatorError as error:
                self.errors[number] = error
            rows.append(row)
        return rows

    def _check_used_alone(self, rows: list[Shard | None]) -> None:
        for database, row in zip(self._databases, rows, strict=True):
            if row and row.is_alone:
                raise used_before(database.address.shown)

    def _check_lost(self, missing: list[int]) -> None:
        """Raise unless the rows were made since they were looked for."""
        if any(self._row_of(number) for number in missing):
            return
        raise lost(self._databases[missing[0]].address.shown)

    def _check_servers(self, rows: list[Shard | None]) -> None:
        for number, row in enumerate(rows):
            try:
                if row:
                    check_usable(self._databases[number].address.shown, row, self._servers[number])
            except AllocatorError as error:
                self.errors[number] = error

    def _check_statement(self, rows: list[Shard | None]) -> None:
        wanted = self._statement
        for number, row in enumerate(rows):
            if not (wanted and row) or row.joining or row.statement == wanted:
                continue
            raise self.errors.get(number) or ShardMisconfigured(  # trust a shard first, then change its statement
                f"the fleet {row.fleet!r} draws tickets by the statement {row.statement!r}, and {wanted!r} is asked "
                f"for; leave that out, or change it for all with: allocator shards grow --statement {wanted}"
            )

    def _warn_alone(self, found: list[Shard]) -> None:
        """Where a server is set to be one of several, and is a fleet of one here."""
        if len(self._databases) > 1 or any(row.numbering.step > 1 for row in found):
            return
        (database,) = self._databases
        if told := database.run(servers.fetch_numbering):
            log.warning(
                "%s has auto_increment_offset = %d and auto_increment_increment = %d, as one of %d servers, and no "
                "other is known here: each would give the same tickets. Make the others shards: allocator shards add",
                database.address.shown,
                told.offset,
                told.step,
                told.step,
            )

    # -- a new fleet

    def _make(self, rows: list[Shard | None]) -> bool:
        """Write the rows; True when they are all there."""
        if self.errors:
            raise next(iter(self.errors.values()))
        self._check_new(rows)
        begun = [number for number, row in enumerate(rows) if row and row.revision == 0]
        decider = begun[0] if begun else min(range(len(rows)), key=self._identity)
        decided = self._databases[decider]
        if rows[decider] is None:
            self._write(decider, self._members(), revision=0 if len(rows) > 1 else BEGUN)
        first = decided.run(shards.fetch)
        assert first is not None
        for number, row in enumerate(rows):
            if row is None and number != decider and not self._complete(number, first):
                return False  # by another name, or not at all: wait for whoever began
        rows = [self._row_of(number) for number in range(len(self._databases))]
        if {row.key for row in rows if row} != {member.key for member in first.members}:
            return False  # it was begun with others: they are needed too
        named = zip(self._databases, rows, strict=True)
        check_fleet([(one.address.shown, row) for one, row in named if row], self._fleet)
        decided.run(shards.begin, first.key)
        return True

    def _complete(self, number: int, first: Shard) -> bool:
        if self._databases[number].address.told not in {member.url for member in first.members}:
            return False
        self._write(number, first.members, revision=BEGUN)
        return True

    def _check_new(self, rows: list[Shard | None]) -> None:
        known: dict[str, str] = {}
        told: set[str] = set()
        for number, database in enumerate(self._databases):
            where, identity = database.address.shown, self._identity(number)
            if identity in known:
                raise ShardMisconfigured(
                    f"{known[identity]} and {where} are one database under two URLs, or one server is a copy of the "
                    "other; list each database once"
                )
            if database.address.told in told:
                raise ShardMisconfigured(f"{where} is listed twice, by URLs that differ in user or arguments alone")
            told.add(database.address.told)
            known[identity] = where
            if rows[number] is None:
                database.run(shards.check_owner if len(rows) > 1 else shards.check_writer)
            if rows[number] is None and self._is_used(database) and self._row_of(number) is None:
                if len(rows) > 1:
                    raise used_before(where)
                raise ShardMisconfigured(
                    f"{where} has given tickets, and its row of allocator_shard is lost; restore that"
                )

    def _row_of(self, number: int) -> Shard | None:
        """None also where nothing was drawn under it, unless it is what is asked for.

        One that was written on another server stays: tickets that were drawn under it may be forgotten here."""
        database, alone = self._databases[number], len(self._databases) == 1
        row = database.run(shards.fetch)
        if row is None or (alone and (self._suits(row) or row.server != self._servers[number])):
            return row
        return database.run(shards.fetch_member, alone)

    def _suits(self, row: Shard) -> bool:
        return self._fleet in (None, row.fleet) and self._statement in (None, row.statement)

    def _is_used(self, database: Database) -> bool:
        several = len(self._databases) > 1
        return database.run(shards.has_ids if several else tickets.has_any)

    def _identity(self, number: int) -> str:
        database = self._databases[number]
        if not database.dialect.embedded:
            return database.run(servers.fetch_place)
        path = database.address.file
        return os.path.realpath(path) if path else f"memory {number}"

    def _members(self) -> tuple[Member, ...]:
        return tuple(
            Member(token_hex(16), offset, database.address.told)
            for offset, database in enumerate(self._databases, start=1)
        )

    def _write(self, number: int, members: tuple[Member, ...], revision: int) -> None:
        database = self._databases[number]
        ours = next(member for member in members if member.url == database.address.told)
        numbering = Numbering(ours.offset, len(members))
        fresh = Shard(
            self._fleet or DEFAULT_FLEET, ours.key, "", self._statement or REPLACE, 1, numbering, revision, members
        )
        database.run(shards.add, fresh)


def used_before(where: str) -> ShardMisconfigured:
    return ShardMisconfigured(
        f"{where} has given ids before, and the others have not: begin with {where} alone, and add them with: "
        "allocator shards add"
    )
