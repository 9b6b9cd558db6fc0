"""One database: claims segments of its tags, and changes their rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import ParamSpec, TypeVar

from allocator.database.address import host_of, place_of
from allocator.database.columns import column_types
from allocator.database.registry import ATTEMPTS, UNSTEADY, Current, Registry
from allocator.database.verbs import claims, segments, shard_row, tickets
from allocator.database.verbs.claims import Terms
from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting, UnknownTag
from allocator.rules.failover import beginning, crossing, repaired
from allocator.rules.fleet_consistency import Shard
from allocator.rules.hosts import Hosts, is_named
from allocator.schemes.shared.residues import Seen, is_outgrown, mark
from allocator.schemes.tag import FailoverGap, Tag, damaged, named, settle, unknown
from allocator.schemes.ticket import REPLACE, RESERVED

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("allocator")
claims_log = logging.getLogger("allocator.claims")
"""Logs a record per claim at the level DEBUG."""

SKIPPED = "%s: skipped %s ids that may already be in use, since the database moved to another server, next id %s"
CLAIM_ATTEMPTS = 20
"""How often a claim close to the limit may lose the race for the remaining ids."""


class Database(Registry):
    """One database, by its verbs."""

    def __init__(self, database: object, timeout: float = 5.0, shard_hosts: Hosts = ()) -> None:
        super().__init__(database, timeout)
        self.shard_hosts = shard_hosts
        self._terms: dict[str, Terms] = {}
        """Of each tag, as if its gap were skipped: the next claim's statement checks all of it again."""

    def ping(self) -> None:
        self.start()

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """Fetch the row of a tag. A missing one is made from `template` where `create` allows it."""
        now = self.current(template.name)
        if now.tag is None and create:
            now = self._made(template, now)[1]
        tag = now.tag
        if tag is None:
            raise unknown(template.name)
        if tag.move == now.shard.move.key:
            self._terms[tag.name] = terms_of(tag, now)
        return tag

    def _made(self, template: Tag, now: Current | None, *, has_start: bool = False) -> tuple[bool, Current]:
        """Make a tag, unless `has_start` above ids that a failover may have forgotten. Returns whether it is new.

        A start that somebody chose is refused after a failover meanwhile: they knew another database.
        """
        first = None
        for _ in range(ATTEMPTS):
            now = now or self.current(template.name)
            if now.tag:
                return False, now
            shard = now.shard
            first = first or shard.move
            if has_start and shard.move != first:
                raise DatabaseUnavailable(
                    f"the database moved to another server, and tag {template.name!r} was not made; it may have given "
                    "ids that are forgotten: look where they ended, and try again"
                )
            begun = template if has_start else beginning(template, shard.move.first_value, shard.numbering.step == 1)
            if self.insert_tag(begun, shard):
                return True, now._replace(tag=replace(begun, residue=shard.residue, move=shard.move.key))
            last, now = shard.move, None
        if last != first:
            raise DatabaseUnavailable(UNSTEADY)
        raise damaged(template.name, f"no row can be made with max_value {begun.max_value} and limit {begun.limit}")

    def insert_tag(self, tag: Tag, shard: Shard) -> bool:
        return self.run(segments.create, tag, shard)

    def has_opened(self, name: str) -> bool:
        return name in self._terms

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """Claim `size` ids above those `seen`; fewer, if no more remain and they need not be `exact`."""
        began, terms = perf_counter(), self._terms.get(name)
        for _ in range(CLAIM_ATTEMPTS):
            # Step 0 means that the fleet was growing when the row was read.
            if terms and terms.residue.step and not is_outgrown(terms.residue, seen):
                low = mark(seen, terms.residue)
                last = self.run(claims.claim, name, size, terms, low)
                if last is not None:
                    found = terms.residue.ids(last, size)
                    if found[0] <= low:
                        raise damaged(name, f"a claim of {size} ids above {low} returned {last}")
                    if terms.skip:
                        log.warning(SKIPPED, named(name), f"{terms.skip:,}", f"{found[0]:,}")
                    if claims_log.isEnabledFor(logging.DEBUG):
                        log_claim(name, found, began)
                    return found
            now = self.current(name)
            tag, terms = now.tag, None
            if tag is not None:
                terms = terms_of(tag, now)
                tag = replace(tag, max_value=tag.max_value + terms.skip)
                self._terms[name] = terms._replace(was=terms.now, skip=0)
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
        if name not in self._terms:
            self._terms[name] = Terms(row.residue, row.move.key, row.move.key, row.move.run)
        for _ in range(ATTEMPTS):
            with suppress(UnknownTag):
                claimed = self.claim_segment(name, 1, seen)
                return claimed[0] if claimed.step == row.numbering.step else None
            now = self.current(name)
            if now.shard != row:
                return None
            self._made(Tag(name, row.numbering.floor - 1, step=1, max_step=1), now)
        raise DatabaseUnavailable(UNSTEADY)

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        """Raise a tag, and write the key of the last move into its row."""
        for _ in range(ATTEMPTS):
            now = self.current(tag.name)
            if now.tag and self.run(segments.repair, now.tag, repaired(now.tag, above, now.at), now.shard.move):
                return
        raise InvalidSetting(f"tag {tag.name!r} was changed meanwhile; look at it and try again")

    def cross_all(self) -> None:
        """Let every tag skip its gap, as its next claim would. Raises `ServerReplaced`."""
        now = self.current()
        for tag in self.run(segments.fetch_all):
            if tag.move != now.shard.move.key:
                crossing(tag, now.at)
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
        now = self.current(tag.name)
        tag = now.tag or tag
        return tag.max_value + terms_of(tag, now).skip

    def change_tag(self, name: str, changes: Mapping[str, FailoverGap]) -> bool:
        return self.run(segments.change, name, changes)

    def remove_tag(self, tag: Tag) -> bool:
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


def terms_of(tag: Tag, now: Current) -> Terms:
    """How a tag's next claim goes on. Raises `ServerReplaced` if it may not."""
    move = now.shard.move
    skip = 0 if tag.move == move.key else crossing(tag, now.at)
    return Terms(tag.residue, tag.move, move.key, move.run, skip)


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
