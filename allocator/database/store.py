"""One database: claims segments of its tags, draws tickets, and changes their rows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import ParamSpec, TypeVar

from allocator.database.columns import column_types
from allocator.database.registry import ATTEMPTS, UNSTEADY, Current, Registry
from allocator.database.verbs import claims, segments, tickets
from allocator.database.verbs.claims import Terms
from allocator.errors import DatabaseUnavailable, InvalidSetting, MaxValueWentBack, UnknownTag
from allocator.schemes.failover import beginning, crossing, repaired
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Residue, Seen, mark
from allocator.schemes.slots import Shard
from allocator.schemes.tag import FailoverGap, Tag, damaged, named, settle, unknown
from allocator.schemes.ticket import REPLACE, RESERVED, check_ticket

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

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        super().__init__(database, timeout)
        self._terms: dict[str, Terms] = {}
        """Of each tag, as if its gap were skipped: the next claim's statement checks all of it again."""
        self._shard: Shard | None = None
        """The row as a ticket needs it: the next one's statement checks it again."""
        self._tickets: dict[str, dict[Residue, int]] = {}
        """The greatest ticket of each type and residue. What is in it is replaced, and not changed."""
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        return self.address.shown

    def abandon(self) -> None:
        self._lock = threading.Lock()
        super().abandon()

    def ping(self) -> None:
        self.check_slot(self.start().shard)

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
            begun = template if has_start else beginning(template, shard.move.first_value, shard.residue.step == 1)
            if self.transact(segments.make, begun, shard):
                return True, now._replace(tag=replace(begun, residue=shard.residue, move=shard.move.key))
            last, now = shard.move, None
        if last != first:
            raise DatabaseUnavailable(UNSTEADY)
        raise damaged(template.name, f"no row can be made with max_value {begun.max_value} and limit {begun.limit}")

    def has_opened(self, name: str) -> bool:
        return name in self._terms

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """Claim `size` ids above those `seen`; fewer, if no more remain and they need not be `exact`."""
        began, terms = perf_counter(), self._terms.get(name)
        for _ in range(CLAIM_ATTEMPTS):
            # Step 0: the row was closed when it was read.
            if terms and terms.residue.step:
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

    def ticket(self, kind: str, end: float) -> int:
        """Draw the next ticket of a type, above those that this process has seen."""
        for _ in range(ATTEMPTS):
            known = self._shard or self.current().shard
            seen = self._tickets.get(kind, {})
            drawn = self._ticket(check_tag(kind), known, seen)
            self._shard = None if drawn is None else known
            if drawn is not None:
                with self._lock:  # another thread may have seen a greater one
                    seen = self._tickets.get(kind, {})
                    self._tickets[kind] = {**seen, known.residue: max(drawn, seen.get(known.residue, 0))}
                return drawn
        raise DatabaseUnavailable(UNSTEADY)

    def _ticket(self, kind: str, known: Shard, seen: Seen) -> int | None:
        """Draw a ticket; None if the shard's row is not as `known`. A ticket that was drawn is burnt then."""
        if known.tickets == REPLACE:
            drawn = self.run(tickets.draw, kind, known)
            return None if drawn is None else check_ticket(drawn, known.residue, max(seen.values(), default=0))
        name = RESERVED + kind
        if name not in self._terms:
            self._terms[name] = Terms(known.residue, known.move.key, known.move.key, known.move.run)
        try:
            claimed = self.claim_segment(name, 1, seen)
            return claimed[0] if claimed.step == known.residue.step else None
        except UnknownTag:
            pass
        except MaxValueWentBack:
            # A row that is forgotten is made again only by a move since, and above all that this process saw.
            now, move = self.current(name), self._terms[name].now
            if now.tag or move == now.shard.move.key or now.shard.move.first_value < max(seen.values()):
                raise
        self._made(Tag(name, step=1, max_step=1), None)
        return None

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        """Raise a tag, and write the key of the last move into its row."""
        for _ in range(ATTEMPTS):
            now = self.current(tag.name)
            if now.tag and self.run(segments.repair, now.tag, repaired(now.tag, above, now.at), now.shard):
                return
        raise InvalidSetting(f"tag {tag.name!r} was changed meanwhile; look at it and try again")

    def fetch_tag(self, name: str) -> Tag | None:
        found = self.start(name)
        self.check_slot(found.shard)
        return found.tag

    def read_shard(self) -> Shard:
        return self.current().shard

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        return self.on_tables(segments.fetch_page, after, most)

    def create_tag(self, tag: Tag, *, has_start: bool) -> Shard | None:
        """Make a tag; without a start of its own, above ids that it may have given. Returns the row that lists the
        slots, as at this moment; None if there is such a tag."""
        is_new, now = self._made(tag, None, has_start=has_start)
        return now.shard if is_new else None

    def last_given(self, tag: Tag) -> int:
        """The greatest id that a tag may have given, whatever a failover has forgotten. Raises `ServerReplaced`."""
        if tag.max_value >= tag.limit:
            return tag.max_value
        now = self.current(tag.name)
        tag = now.tag or tag
        return tag.max_value + terms_of(tag, now).skip

    def change_tag(self, name: str, changes: Mapping[str, FailoverGap]) -> bool:
        return self.run(segments.change, name, changes)

    def start_tag(self, fresh: Tag, changes: Mapping[str, FailoverGap]) -> Shard | None:
        """Change a tag, or make it where it is missing. Returns the row that lists the slots, as at this moment; None
        if the change is not valid any more."""
        return self._of_slot(lambda shard: self.transact(segments.start, fresh, changes, shard))

    def close_tag(self, tag: Tag) -> Shard | None:
        """Close a tag, which gave nothing above its `max_value`; None if it gave more."""
        return self._of_slot(lambda shard: self.transact(segments.close, tag, shard))

    def reopen_tag(self, tag: Tag) -> Shard | None:
        return self._of_slot(lambda shard: self.transact(segments.reopen, tag, shard))

    def _of_slot(self, change: Callable[[Shard], bool]) -> Shard | None:
        """Make a change under the shard's row; None if it is refused though that row stays as it is."""
        shard = self.current().shard
        for _ in range(ATTEMPTS):
            if change(shard):
                return shard
            before, shard = shard, self.current().shard
            if shard == before:
                return None
        raise DatabaseUnavailable(UNSTEADY)

    def remove_tag(self, name: str) -> bool:
        """Remove a tag that is closed; False if it is open again."""
        return self.run(segments.remove, name)

    def read_column(self, table: str, column: str) -> tuple[object, str, int]:
        return self.run(column_types.read, table, column)


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
