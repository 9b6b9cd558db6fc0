"""The failover rule for nodes, leases, tickets and new tags, which a new server may lack too.

One row holds the last server run for all of them. A new run skips node numbers and tickets, starts leases after any
lease that may be lost, and starts new tags above ids that a lost tag of the same name may have issued.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from allocator.rules.failover import FLOOR, Here, floor_of, gap, reach_of
from allocator.schemes.tag import Tag

NODES_SKIPPED = 256
"""More than the process starts that a failover or restore may lose; 1/4096 of all node numbers."""

TICKETS_SKIPPED = 1 << 17
"""More than a database draws in half a minute, one round trip each."""

SECONDS = 1024
"""Skip 256 + (now mod 1024) node numbers, so two servers that continue from the same row rarely pick the same ones.
Skip 1/1024 more tickets for each second likewise."""

LEASES_SKIPPED_MS = 300_000
"""Five default leases. A process that leases earlier than that sets its clock forward by the rest."""

LEASES = 5
"""A process with longer leases than the default waits for five of its own."""


class Failover(NamedTuple):
    """The row of `allocator_failover`.

    server_run: the run that wrote it.
    first_value: tags created on first use start above this.
    leases_from_ms: the earliest start of a lease, in milliseconds since 1970.
    leases_ahead_ms: how far the clock of a leasing process may be ahead of the wall clock.
    """

    server_run: str
    first_value: int = 0
    leases_from_ms: int = 0
    leases_ahead_ms: int = 0

    @property
    def moved_at_ms(self) -> int:
        """The last move, by the later of two clocks: the server's, and that of the process that saw it."""
        return self.leases_from_ms - self.leases_ahead_ms


class Skipped(NamedTuple):
    """The numbers that a database skips after a move."""

    nodes: int
    tickets: int


NOTHING = Skipped(0, 0)


def skipped(at: int) -> Skipped:
    """The numbers to skip at the time `at`, in milliseconds since 1970.

    Two servers that continue from one row skip to different numbers, unless both move in the same second modulo 17
    minutes, or register more than one node a second in between.
    """
    second = at // 1000 % SECONDS
    return Skipped(NODES_SKIPPED + second, TICKETS_SKIPPED + TICKETS_SKIPPED * second // SECONDS)


def beginning(template: Tag, first_value: int, is_alone: bool) -> Tag:
    """The start of a tag created on first use: above the ids of a tag of its name that may be lost.

    A tag with a low limit starts lower, as its gaps are smaller, and keeps at least half of its range. With several
    shards, `first_value` does not apply: it may stem from the ids of another shard.
    """
    if is_alone:
        first_value = min(first_value * floor_of(template) // FLOOR, template.limit // 2)
    return replace(template, max_value=min(template.limit, max(template.max_value, first_value)))


def begin_of_lease(state: Failover, now_ms: int, until_ms: int) -> int:
    """The first millisecond of a lease requested for `now_ms` to `until_ms`."""
    return max(now_ms, state.leases_from_ms + further(until_ms - now_ms) if state.leases_from_ms else 0)


def further(span_ms: int) -> int:
    """The extra delay of leases of this length, in milliseconds; 0 for those of default length."""
    return max(0, LEASES * span_ms - LEASES_SKIPPED_MS)


def most_ahead(state: Failover, span_ms: int) -> int:
    """How far ahead of the wall clock a process with leases of this length may be, in milliseconds."""
    return state.leases_ahead_ms + further(span_ms) if state.leases_from_ms else 0


def moved(before: Failover, here: Here, now_ms: int, leased_until_ms: int = 0) -> Failover:
    """The row for this run; unchanged on the same run.

    leased_until_ms: the end of the latest known lease. Processes that leased since the last move are ahead of the wall
        clock, and so may be a lost lease of theirs.
    """
    if here.same:
        return before._replace(server_run=here.run)
    new = Tag("new", before.first_value, skipped=before.first_value)
    first_value = before.first_value + gap(new, reach_of(new), now_ms)
    latest = max(leased_until_ms, now_ms + before.leases_ahead_ms)
    leases_from = max(before.leases_from_ms, latest + LEASES_SKIPPED_MS)
    return Failover(here.run, first_value, leases_from, leases_from - now_ms)
