"""Find the shards of a fleet: those given, and those that their rows name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.database.store import Database, sibling
from allocator.database.verbs import servers, shard_row, tickets
from allocator.errors import AllocatorError, ShardMisconfigured
from allocator.fleet.bootstrap import Located, consistent
from allocator.rules import fleet_growth_protocol
from allocator.rules.fleet_consistency import Member, Shard, Target, check_usable, listed
from allocator.rules.fleet_growth_protocol import LEAD, Again
from allocator.schemes.tag import Tag


@dataclass(frozen=True, slots=True)
class Found(Located):
    """A shard as found; `error` tells why it was not reached.

    `last` is the greatest ticket in its tables; `place` identifies its current server.
    """

    database: Database
    row: Shard | None = None
    last: int = 0
    place: str = ""
    error: AllocatorError | None = None

    @property
    def url(self) -> str:
        return self.database.address.public_url

    @property
    def is_well(self) -> bool:
        """Whether the shard serves, or will with its first ticket."""
        row = self.row
        serves = row is None or (not row.joining and row.is_trusted and row.numbering.ceiling is None)
        return self.error is None and serves

    def change(self, decide: Callable[..., Shard | None], *args: Any, tags: Sequence[Tag] = ()) -> Shard:
        """Change the row by a step of `fleet_growth_protocol`. Returns the row; raises `Again` if it has changed."""
        return self.database.run(shard_row.change, lambda row, _: decide(row, *args), tags)

    def note_failover(self) -> None:
        """Raises `Again` after a failover: the greatest ticket is another one now, or the shard must be trusted."""
        if self.row and self.database.current().shard.move.key != self.row.move.key:
            raise Again

    def fence(self, target: Target) -> None:
        """End the old generation below the floor of `target`. Raises `TooLow`."""
        self.database.run(shard_row.change, lambda row, greatest: fleet_growth_protocol.fenced(row, target, greatest))

    def greatest(self) -> int:
        """The greatest id that the shard may have given."""
        known: list[int] = []
        self.database.run(shard_row.change, lambda _, greatest: known.append(greatest))
        return known[-1]


class Discovery:
    """The shards of the fleet of `databases`. Others are reached with the credentials of these."""

    def __init__(self, databases: Sequence[Database]) -> None:
        self._given = list(databases)
        for database in databases:
            database.may_create = False  # discovery creates no file
        self._opened: list[Database] = []
        self._without: dict[str, Database] = {}
        """Shards that are lost permanently, by URL: not looked at."""

    def close(self) -> None:
        for database in [*self._given, *self._opened, *self._without.values()]:
            database.close()

    def shards(self) -> list[Found]:
        """All given shards, and all that their rows name, members and added ones.

        Given shards are looked at first: their URLs may differ from those in the rows.
        """
        found = consistent(self._look)
        return sorted(found, key=lambda one: one.row.numbering.offset if one.row else 0)

    def _look(self) -> list[Found]:
        databases = {database.address.public_url: database for database in [*self._given, *self._opened]}
        found = [look(one, len(databases) > 1) for url, one in databases.items() if url not in self._without]
        while member := unknown(found, self._without):
            found.append(look(self._sibling(member.url)))
        return found

    def _sibling(self, url: str) -> Database:
        known = [*self._given, *self._opened]
        fresh = next((one for one in known if one.address.public_url == url), None) or sibling(known, url)
        if fresh not in known:
            self._opened.append(fresh)
        return fresh

    def reached(self, newcomers: bool = True) -> dict[str, Found]:
        """All shards by key. Raises if one is missing; newcomers may be missing unless `newcomers`."""
        found = self.shards()
        rows = {one.row.key: one for one in found if one.row}
        needed = {member.url for one in rows.values() if one.row for member in one.row.members} - {*self._without}
        for one in found:
            if one.row is not None and not one.row.joining:
                check_usable(one.where, one.row)
            if one.row is None and (newcomers or not rows or one.url in needed):
                raise one.error or ShardMisconfigured(
                    f"{one.where} is no shard; if it was one, its row of allocator_shard is lost: restore "
                    "it; if not, add a database to it or draw a ticket from it first"
                )
        return rows


def state_of(one: Found) -> str:
    """The state of a shard for an operator, with the command to run if there is one."""
    row = one.row
    if one.error:
        return f"not reached: {one.error}"
    if row is None:
        return "no shard yet: nothing has drawn a ticket there"
    if row.joining:
        return "joining: run allocator shards grow"
    if not row.is_trusted:
        return f"its server was replaced: run allocator shards trust {one.where}"
    if row.numbering.ceiling is not None:
        return f"growing: ends below {row.numbering.ceiling}; run allocator shards grow"
    return "serving"


def look(database: Database, several: bool = False) -> Found:
    """Look at a database. With `several` shards, a row without draws counts as none."""
    try:
        row = database.on_tables(shard_row.fetch_member if several else shard_row.fetch)
        return Found(database, row, database.run(tickets.fetch_last), database.run(servers.fetch_place))
    except AllocatorError as error:
        return Found(database, error=error)


def unknown(found: Sequence[Found], without: Collection[str]) -> Member | None:
    """A member that a row names and that was not looked at."""
    known = {one.row.key for one in found if one.row} | {one.url for one in found} | {*without}
    named = (member for one in found for member in listed(one.row))
    return next((member for member in named if not {member.key, member.url} & known), None)


def lead_of(found: dict[str, Found]) -> Found:
    for one in found.values():
        if one.row and not one.row.joining and one.row.numbering.offset == LEAD:
            return one
    raise ShardMisconfigured(f"the shard with offset {LEAD} is not among those that were given, nor named by them")
