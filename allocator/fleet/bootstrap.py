"""Open the shards of a fleet, and make a fleet of databases that are all new.

Several processes may make it at once, with the shards in different orders. So one shard decides, the first by identity:
the first process to write its row assigns the offsets, and the others complete that assignment. The row has revision 0
until all rows exist. A row that is missing later is lost, and never made again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from time import sleep
from typing import TypeVar

from allocator.database.store import Database
from allocator.database.verbs import servers, shard_row, tickets
from allocator.errors import AllocatorError, DatabaseUnavailable, ShardMisconfigured
from allocator.rules.fleet_consistency import (
    BEGUN,
    DEFAULT_FLEET,
    Member,
    Shard,
    check_fleet,
    check_usable,
    described,
    lost,
)
from allocator.schemes.ticket import ShardNumbering

log = logging.getLogger("allocator")

ATTEMPTS, PAUSE = 20, 0.05
"""How often, and how many seconds apart, to look again while another process makes the fleet."""


class Located:
    """A shard; `where` is its URL without credentials."""

    __slots__ = ()

    database: Database
    row: Shard | None

    @property
    def where(self) -> str:
        return self.database.address.shown


T = TypeVar("T", bound=Located)


def consistent(look: Callable[[], Sequence[T]], fleet: str | None = None) -> Sequence[T]:
    """Look at shards and check that they form one fleet.

    A growth may change rows between two reads: rows that disagree are read again, until a second look finds the same.
    """
    before = None
    for left in reversed(range(ATTEMPTS)):
        found = look()
        rows = [(one.where, one.row) for one in found if one.row]
        try:
            check_fleet(rows, fleet)
        except ShardMisconfigured:
            if rows == before or not left:
                raise
            before = rows
        else:
            break
    return found


@dataclass(slots=True, eq=False)
class Opened(Located):
    """One database and its row; `error` tells why it cannot be used now."""

    database: Database
    row: Shard | None = None
    server_numbering: ShardNumbering | None = None
    error: AllocatorError | None = None


class Opening:
    """Opens the databases of one fleet. Its name is optional."""

    def __init__(self, databases: Sequence[Database], fleet: str | None) -> None:
        self._fleet = fleet
        self._all = [Opened(database) for database in databases]
        self._is_alone = len(databases) == 1

    def open(self) -> list[Opened]:
        """Open all databases, with the row of each that answers."""
        for _ in range(ATTEMPTS):
            self._look()
            found = [one.row for one in self._all if one.row]
            missing = [one for one in self._all if not one.row and not one.error]
            if any(row.revision == 0 for row in found) or (missing and not found):
                if not self._make():
                    sleep(PAUSE)
                continue
            if missing:
                self._check_missing(missing)
                continue
            self._check_servers()
            self._warn_alone(found)
            return self._all
        self._look()
        self._raise_first()
        begun = next((one.row for one in self._all if one.row), None)
        raise DatabaseUnavailable(
            f"the fleet of {described(begun.members) if begun else 'these'} is being made by another process; if that "
            "process ended, open it once with exactly these shards"
        )

    def _raise_first(self) -> None:
        for one in self._all:
            if one.error:
                raise one.error

    def _look(self) -> None:
        """Look at all databases. Files are made only if all are missing and new: else one that is missing is away."""
        self._look_at(create=False)
        if not any(one.row for one in self._all) and all(is_new(one.database) for one in self._all):
            self._look_at(create=True)
        errors = [one.error for one in self._all if one.error]
        if len(errors) == len(self._all):
            raise errors[0]

    def _look_at(self, create: bool) -> None:
        for one in self._all:
            one.row = one.error = None
            try:
                one.database.may_create = create
                start = one.database.start()
                one.server_numbering = start.numbering
                one.row = self._row_of(one, one.database.current(start=start).shard if start.shard else None)
            except AllocatorError as error:
                one.error = error

    def _row_of(self, one: Opened, row: Shard | None = None) -> Shard | None:
        """The row of a database; None also for a row without draws that does not fit the wanted fleet.

        After a failover a row stays: this server may have forgotten tickets drawn under it."""
        row = row or one.database.run(shard_row.fetch)
        if row is None or (self._is_alone and (self._fleet in (None, row.fleet) or not row.is_trusted)):
            return row
        return one.database.run(shard_row.fetch_member, self._is_alone)

    def _check_missing(self, missing: Sequence[Opened]) -> None:
        """Raise unless another process has made the missing rows meanwhile."""
        for one in self._all:
            if one.row and one.row.is_alone:
                raise used_before(one.where)
        if not any(self._row_of(one) for one in missing):
            raise lost(missing[0].where)

    def _check_servers(self) -> None:
        for one in self._all:
            try:
                if one.row:
                    check_usable(one.where, one.row)
            except AllocatorError as error:
                one.error = error

    def _warn_alone(self, found: Sequence[Shard]) -> None:
        """Warn if the server is numbered as one of several (auto_increment_increment), and the fleet has one shard."""
        if not self._is_alone or any(row.numbering.step > 1 for row in found):
            return
        (one,) = self._all
        if numbering := one.server_numbering:
            log.warning(
                "%s has auto_increment_offset = %d and auto_increment_increment = %d, as one of %d servers, and no "
                "other is known here: each would give the same tickets. Make the others shards: "
                "allocator shards add URL",
                one.where,
                numbering.offset,
                numbering.step,
                numbering.step,
            )

    def _make(self) -> bool:
        """Write the rows; True when all exist."""
        if any(one.database.is_missing() for one in self._all):
            return False  # another process may be making the files
        self._raise_first()
        self._check_new()
        begun = [one for one in self._all if one.row and one.row.revision == 0]
        decider = begun[0] if begun else min(self._all, key=self._identity)
        if decider.row is None:
            members = tuple(
                Member(token_hex(16), offset, one.database.address.public_url)
                for offset, one in enumerate(self._all, 1)
            )
            self._write(decider, members, revision=BEGUN if self._is_alone else 0)
        # Read back: another process may have written it first, and its order of the shards holds.
        first = decider.database.run(shard_row.fetch)
        assert first is not None
        for one in self._all:
            if one.row or one is decider:
                continue
            if one.database.address.public_url not in {member.url for member in first.members}:
                return False  # known by another name, or unknown: wait for the process that began
            self._write(one, first.members, revision=BEGUN)
        rows = [(one.where, row) for one in self._all if (row := self._row_of(one))]
        if {row.key for _, row in rows} != {member.key for member in first.members}:
            return False  # another process began with more shards, which are needed too
        check_fleet(rows, self._fleet)
        # Last: until then revision 0 tells every process that rows are still missing.
        decider.database.run(shard_row.begin, first.key)
        return True

    def _check_new(self) -> None:
        known: dict[str, str] = {}
        urls: set[str] = set()
        for one in self._all:
            identity, url = self._identity(one), one.database.address.public_url
            if identity in known:
                raise ShardMisconfigured(
                    f"{known[identity]} and {one.where} are the same database under two URLs, or one is a copy; list "
                    "each database once"
                )
            if url in urls:
                raise ShardMisconfigured(f"{one.where} is listed twice, by URLs that differ in user or arguments alone")
            urls.add(url)
            known[identity] = one.where
            one.database.check_schema()
            if one.row is None:
                self._check_unused(one)

    def _check_unused(self, one: Opened) -> None:
        database = one.database
        database.run(shard_row.check_writer if self._is_alone else shard_row.check_owner)
        is_used = database.run(tickets.has_any if self._is_alone else shard_row.has_ids)
        if not is_used or self._row_of(one) is not None:
            return
        if not self._is_alone:
            raise used_before(one.where)
        raise ShardMisconfigured(f"{one.where} has given tickets, and its row of allocator_shard is lost; restore that")

    def _identity(self, one: Opened) -> str:
        database = one.database
        if not database.dialect.embedded:
            return database.run(servers.fetch_place)
        path = database.address.file
        return os.path.realpath(path) if path else f"memory {self._all.index(one)}"

    def _write(self, one: Opened, members: tuple[Member, ...], revision: int) -> None:
        ours = next(member for member in members if member.url == one.database.address.public_url)
        numbering = ShardNumbering(ours.offset, len(members))
        fresh = Shard(self._fleet or DEFAULT_FLEET, ours.key, True, 1, numbering, revision, members)
        one.database.run(shard_row.add, fresh, one.where)


def is_new(database: Database) -> bool:
    """Whether it is a file that is not there, and that this process has not used."""
    return database.is_missing() and not database.was_used


def used_before(where: str) -> ShardMisconfigured:
    return ShardMisconfigured(
        f"{where} has given ids before, and the others have not: begin with {where} alone, and add them with: "
        "allocator shards add URL"
    )
