"""One database: claims segments of its tags, and changes their rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from allocator.database.address import host_of, place_of
from allocator.database.columns import column_types
from allocator.database.registry import ATTEMPTS, UNSTEADY, Registry
from allocator.database.verbs import claims, failover_row, segments, servers, shard_row, tickets
from allocator.database.verbs.start import Start
from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting, UnknownTag
from allocator.rules.failover import Crossing, beginning, cross, repaired
from allocator.rules.fleet_consistency import Shard
from allocator.rules.hosts import Hosts, is_named
from allocator.schemes.shared.residues import ALL, Residue, Seen, is_outgrown, mark
from allocator.schemes.tag import FailoverGap, Tag, damaged, named, settle, unknown
from allocator.schemes.ticket import REPLACE, RESERVED

if TYPE_CHECKING:
    pass

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("allocator")
claims_log = logging.getLogger("allocator.claims")
"""Logs a record per claim at the level DEBUG."""

CLAIM_ATTEMPTS = 20
"""How often a claim close to the limit may lose the race for the remaining ids."""


class Database(Registry):
    """One database, by its verbs."""

    def __init__(self, database: object, timeout: float = 5.0, shard_hosts: Hosts = ()) -> None:
        super().__init__(database, timeout)
        self.shard_hosts = shard_hosts
        self._residues: dict[str, Residue] = {}

    def ping(self) -> None:
        self.start()

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """Fetch the row of a tag. A missing one is made from `template` where `create` allows it."""
        start = None if self._schema_seen else self.start(template.name)
        tag = start.tag if start else self.run(segments.fetch, template.name)
        if tag is None and create:
            _, tag = self._made(template, start)
        if tag is None:
            raise unknown(template.name)
        self._residues[tag.name] = tag.residue
        return tag

    def _made(self, template: Tag, start: Start | None, *, has_start: bool = False) -> tuple[bool, Tag]:
        """Make a tag, unless `has_start` above ids that a failover may have forgotten. Returns whether it is new.

        A start that somebody chose is refused after a failover meanwhile: they knew another database.
        """
        first, state, begun = None, None, template
        for _ in range(ATTEMPTS):
            start = start or self.start(template.name)
            if start.tag:
                return False, start.tag
            state = self.failover(start)
            first = first or state
            if has_start and state != first:
                raise DatabaseUnavailable(
                    f"the database moved to another server, and tag {template.name!r} was not made; it may have given "
                    "ids that are forgotten: look where they ended, and try again"
                )
            begun = template if has_start else beginning(template, state.first_value, start.is_alone)
            if self.run(segments.create, begun, state):
                return True, replace(begun, residue=start.shard.residue if start.shard else ALL)
            start = None
        if state != first:
            raise DatabaseUnavailable(UNSTEADY)
        raise damaged(template.name, f"no row can be made with max_value {begun.max_value} and limit {begun.limit}")

    def has_opened(self, name: str) -> bool:
        return name in self._residues

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """Claim `size` ids above those `seen`; fewer, if no more remain and they need not be `exact`."""
        began, crossing = perf_counter(), None
        for _ in range(CLAIM_ATTEMPTS):
            residue = self._residues.get(name, ALL)
            low = mark(seen, residue)
            # Step 0 means that the fleet was growing when the row was read.
            usable = residue.step and not is_outgrown(residue, seen)
            last = self.run(claims.claim, name, size, residue, low, crossing) if usable else None
            if last is not None:
                found = residue.ids(last, size)
                if found[0] <= low:
                    raise damaged(name, f"a claim of {size} ids above {low} returned {last}")
                if crossing and crossing.skip:
                    tell(name, crossing, found[0])
                if claims_log.isEnabledFor(logging.DEBUG):
                    log_claim(name, found, began)
                return found
            start = self.noted(name)
            tag, here = start.tag, start.here_of_tag
            if tag is not None:
                self._residues[name] = tag.residue  # it changes when the fleet grows
                crossing = None if tag.server_run == here.run else cross(tag, here)
                if crossing:
                    tag = replace(tag, max_value=tag.max_value + crossing.skip)
            size = settle(tag, name, size, seen, exact)
        raise DatabaseUnavailable(f"tag {name!r} is close to its limit and every claim lost a race; try again")

    def ticket(self, kind: str, row: Shard, seen: Seen) -> int | None:
        """Draw a ticket of a type, above those in `seen`.

        row: the shard's row, as the caller knows it. None if it is another one now; a ticket that was drawn is burnt.
        """
        if row.tickets == REPLACE:
            drawn = self.run(tickets.draw, kind, row)
            return drawn if drawn is not None and row.numbering.judge(drawn, max(seen.values(), default=0)) else None
        name = RESERVED + kind
        if name not in self._residues:
            self._residues[name] = row.residue
        for _ in range(ATTEMPTS):
            with suppress(UnknownTag):
                claimed = self.claim_segment(name, 1, seen)
                return claimed[0] if claimed.step == row.numbering.step else None
            start = self.start(name)
            if start.shard != row:
                return None
            self._made(Tag(name, row.numbering.floor - 1, step=1, max_step=1), start)
        raise DatabaseUnavailable(UNSTEADY)

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        """Raise a tag, and mark its row as written on the current server run."""
        here = self.noted(tag.name).here_of_tag
        if not self.run(segments.repair, tag.name, repaired(tag, above, here), here.run):
            raise InvalidSetting(f"tag {tag.name!r} was changed meanwhile; look at it and try again")

    def forget_run(self) -> None:
        """Let every scheme skip ids on its next use, as after a failover."""
        self.on_tables(failover_row.end_run)
        shard = self.fetch_shard()
        if shard and shard.numbering.step > 1:
            self.run(shard_row.end_run)

    def cross_all(self) -> None:
        """Move every tag to the current server run, as its next claim would. Raises `ServerReplaced`."""
        for tag in self.run(segments.fetch_all):
            here = self.run(servers.fetch_run, tag.server_run)
            if not here.same:
                cross(tag, here)
                self.repair_segment(tag, None)

    def fetch_tag(self, name: str) -> Tag | None:
        return self.run(segments.fetch, name)

    def fetch_tags(self) -> list[Tag]:
        return self.run(segments.fetch_all)

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        return self.run(segments.fetch_page, after, most)

    def create_tag(self, tag: Tag, *, has_start: bool) -> bool:
        """Make a tag; without a start of its own, above ids that it may have given. False if there is one."""
        return self._made(tag, None, has_start=has_start)[0]

    def last_given(self, tag: Tag) -> int:
        """The greatest id that a tag may have given, whatever a failover has forgotten. Raises `ServerReplaced`."""
        if tag.max_value >= tag.limit:
            return tag.max_value
        return tag.max_value + cross(tag, self.run(servers.fetch_run, tag.server_run)).skip

    def change_tag(self, name: str, changes: Mapping[str, FailoverGap]) -> bool:
        return self.run(segments.change, name, changes)

    def remove_tag(self, tag: Tag) -> bool:
        self.noted(tag.name)
        return self.run(segments.remove, tag)

    def read_column(self, table: str, column: str) -> tuple[object, str, int]:
        return self.run(column_types.read, table, column)

    def fetch_shard(self) -> Shard | None:
        return self.run(shard_row.fetch)


def log_claim(name: str, ids: range, began: float) -> None:
    with suppress(Exception):  # a failing handler of the user's must not burn the claim
        about = {"tag": name, "size": len(ids), "ms": 1000 * (perf_counter() - began)}
        text = "claimed tag=%s first=%d last=%d step=%d"
        claims_log.debug(text, name, ids[0], ids[-1], ids.step, extra=about)


def tell(name: str, crossing: Crossing, first: int) -> None:
    log.warning(
        "%s: the database moved to another server (a promoted standby, or a MariaDB in "
        "a new container without a fixed hostname), or was restored; skipped %s ids that "
        "may already be in use, next id %s; the server was %s and is %s",
        named(name),
        f"{crossing.skip:,}",
        f"{first:,}",
        crossing.here.was,
        crossing.here.run,
    )


def sibling(known: Sequence[Database], url: str) -> Database:
    """Another shard of the fleet, named by a row; it gets the credentials of a known shard of the same kind.

    A row is data: its writer must not choose which host gets a password. So the host must occur in a given URL or in
    `shard_hosts`.
    """
    place = place_of(url)
    near = [one for one in known if one.address.names(place)]
    if not near and not is_named(host_of(place), known[0].shard_hosts):
        raise InvalidDatabase(
            f"the fleet names a shard at {place.render_as_string()}, a host that this process was not given, and gets "
            "no password; give that URL too, or its host by shard_hosts (ALLOCATOR_SHARD_HOSTS)"
        )
    alike = next((one for one in [*near, *known] if one.address.is_like(place)), known[0])
    fresh = Database(alike.address.sibling(place), alike.timeout, known[0].shard_hosts)
    fresh.may_create = False
    return fresh
