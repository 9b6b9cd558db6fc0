"""What a failover may have forgotten beside the claims of tags: nodes, leases, tickets, and tags that were new.

One row says for all of them which server run was here last. Another run skips node numbers and tickets, begins leases
behind those that may be forgotten, and begins new tags above those that may have been made and forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from allocator.rules.failover import FLOOR, Here, floor_of, gap, reach_of
from allocator.schemes.tag import Tag

NODES_SKIPPED = 256
"""More than the starts of processes that a failover or a restore may have forgotten, and one part in 4096 of all."""

TICKETS_SKIPPED = 1 << 17
"""More than a database draws in half a minute, one round trip each."""

SECONDS = 1024
"""Skip 256 + (now mod 1024) node numbers, so two servers that continue from the same row rarely pick the same ones. Of
tickets, skip a 1024th more for each second likewise."""

LEASES_SKIPPED_MS = 300_000
"""Five of the usual leases; the clock of who leases one later is set forward by what is left of this."""

LEASES = 5
"""So many of the longer ones that a process may have."""


class Failover(NamedTuple):
    """The row of `allocator_failover`.

    server_run: where it was written.
    first_value: tags that are made by their first use begin above this.
    leases_from_ms: leases begin at this moment at the earliest, in milliseconds since 1970.
    leases_ahead_ms: the clock of whoever leases one is ahead of the wall's by so much at the most.
    """

    server_run: str
    first_value: int = 0
    leases_from_ms: int = 0
    leases_ahead_ms: int = 0


class Skipped(NamedTuple):
    """How many numbers a database skips that moved."""

    nodes: int
    tickets: int


NOTHING = Skipped(0, 0)


def skipped(at: int) -> Skipped:
    """At this moment, in milliseconds since 1970, so that two servers that go on from one row do not meet.

    They may where both move in one second of 17 minutes, or register more than a node a second in between.
    """
    second = at // 1000 % SECONDS
    return Skipped(NODES_SKIPPED + second, TICKETS_SKIPPED + TICKETS_SKIPPED * second // SECONDS)


def beginning(template: Tag, first_value: int, is_alone: bool) -> Tag:
    """A tag that is made by its first use: above what one of its name may have given that is forgotten.

    One with a low limit begins lower, as its gaps would be smaller, and with half of its range left at least. Of
    several shards none does: `first_value` may be how far ids went on another.
    """
    if is_alone:
        first_value = min(first_value * floor_of(template) // FLOOR, template.limit // 2)
    return replace(template, max_value=min(template.limit, max(template.max_value, first_value)))


def begin_of_lease(state: Failover, now_ms: int, until_ms: int) -> int:
    """The first millisecond of a lease that is asked for from now until then."""
    return max(now_ms, state.leases_from_ms + further(until_ms - now_ms) if state.leases_from_ms else 0)


def further(span_ms: int) -> int:
    """How much later leases of this length begin, beside the usual ones."""
    return max(0, LEASES * span_ms - LEASES_SKIPPED_MS)


def most_ahead(state: Failover, span_ms: int) -> int:
    """How far ahead of the clock a process may be that leases for so long here, in milliseconds."""
    return state.leases_ahead_ms + further(span_ms) if state.leases_from_ms else 0


def moved(before: Failover, here: Here, now_ms: int, leased_until_ms: int = 0) -> Failover:
    """The row as it should be on this run; the same where nothing has changed.

    leased_until_ms: the end of the latest lease that is known. Whoever leased since the last move is ahead of the
        clock, and a lease of theirs that is forgotten is as well.
    """
    if here.same:
        return before._replace(server_run=here.run)
    new = Tag("new", before.first_value, skipped=before.first_value)
    first_value = before.first_value + gap(new, reach_of(new), now_ms)
    latest = max(leased_until_ms, now_ms + before.leases_ahead_ms)
    leases_from = max(before.leases_from_ms, latest + LEASES_SKIPPED_MS)
    return Failover(here.run, first_value, leases_from, leases_from - now_ms)
