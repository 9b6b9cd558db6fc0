"""What is kept clear when a database goes on elsewhere, or was restored, and may have forgotten its newest rows.

Claims of tags have their own epoch. Beside these, a node number is never given twice: so many are left out. A lease
that was forgotten reaches into the future: new ones begin behind it. And a tag that was forgotten would begin at 1
again when it is next used.
"""

from __future__ import annotations

from typing import NamedTuple

from allocator.rules.failover import Here, left_out
from allocator.schemes.tag import DEFAULT_MARGIN, Tag

NODES_LEFT_OUT = 256
"""More than the starts of processes that a failover or a restore may have forgotten, and one part in 4096 of all."""

SECONDS = 1024
"""Skip 256 + (now mod 1024) node numbers, so two servers that continue from the same row rarely pick the same ones."""

LEASES_LEFT_OUT_MS = 300_000
"""Five of the usual leases; the clock of who leases one later is set forward by what is left of this."""

LEASES = 5
"""So many of the longer ones that a process may have."""


class Failover(NamedTuple):
    """The row of `allocator_epoch`.

    server, run: where it was written; a run ends with a restart, a server stays the same.
    first_value: tags that are made by their first use go on above this.
    leases_from_ms: leases begin at this moment at the earliest, in milliseconds since 1970.
    leases_ahead_ms: the clock of whoever leases one is ahead of the wall's by so much at the most.
    """

    server: str
    run: str
    first_value: int = 0
    leases_from_ms: int = 0
    leases_ahead_ms: int = 0


def nodes_left_out(at: int) -> int:
    """How many node numbers are left out at this second, so that two servers that go on from one row do not meet.

    They may where both move in one second of 17 minutes, or register more than a node a second in between.
    """
    return NODES_LEFT_OUT + at % SECONDS


def begin_of_lease(state: Failover, now_ms: int, until_ms: int) -> int:
    """The first millisecond of a lease that is asked for from now until then."""
    return max(now_ms, state.leases_from_ms + further(until_ms - now_ms) if state.leases_from_ms else 0)


def further(span_ms: int) -> int:
    """How much later leases of this length begin, beside the usual ones."""
    return max(0, LEASES * span_ms - LEASES_LEFT_OUT_MS)


def most_ahead(state: Failover, span_ms: int) -> int:
    """How far ahead of the clock a process may be that leases for so long here, in milliseconds."""
    return state.leases_ahead_ms + further(span_ms) if state.leases_from_ms else 0


def has_moved(before: Failover, server: str, here: Here) -> bool:
    """Whether the newest nodes and leases may be forgotten here."""
    return not here.same or server != before.server


def moved(before: Failover, server: str, here: Here, now_ms: int, leased_until_ms: int = 0) -> Failover:
    """The row as it should be here; the same where nothing has changed.

    leased_until_ms: the end of the latest lease that is known. Whoever leased since the last move is ahead of the
        clock, and a lease of theirs that is forgotten is as well.

    A restart forgets no tag that was there before; only a disk that was restored does, which nobody can tell from one.
    """
    first_value = before.first_value
    if server != before.server:
        row = Tag("first", first_value, margin=DEFAULT_MARGIN)
        first_value += left_out(row, DEFAULT_MARGIN, now_ms // 1000)
    if not has_moved(before, server, here):
        return Failover(server, here.epoch, first_value, before.leases_from_ms, before.leases_ahead_ms)
    latest = max(leased_until_ms, now_ms + before.leases_ahead_ms)
    leases_from = max(before.leases_from_ms, latest + LEASES_LEFT_OUT_MS)
    return Failover(server, here.epoch, first_value, leases_from, leases_from - now_ms)
