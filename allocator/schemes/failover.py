"""THE FAILOVER RULE: how many ids a tag skips when the database server changes.

A restart of a durable server that can be identified skips nothing. A promoted standby, a restored dump, or a server
that crashed without durable writes may lack the latest claims, whose ids are in use. So the row of `allocator_shard`
names the *server run* that wrote it last. Whoever finds another one there notes the failover in that row: a *move*,
with a random key that never returns, as a server may. Each tag's row has the key of the last move whose gap it has; a
claim from a row with another key skips a gap, or fails, as the tag's `failover_gap` says.

    reach = the ids that the tag ever issued, without its gaps, and at least 4,194,304 ids (1/512 of its limit where
            that is less) or four of its greatest claims; at most an eighth of the numbers left below its limit
    gap   = reach + reach * (time since the last claim, modulo 1024 seconds) / 1024 seconds

1. The gap covers the lost claims if the tag issued fewer ids in the lost time than in all the time before, and skipped
   no gap in it; and near its limit, if they are at most an eighth of what was left.
2. Gaps do not compound: `issued` excludes them. After n failovers a tag is at most 2 n reaches above the ids it issued.
3. Two servers that continue from one row, as when a second failover loses the first, rarely skip to the same ids: the
   time between changes the gap, unless both clocks are behind the last claim or 1024 seconds have passed.
4. A claim fails if the gap would be smaller than the tag's greatest claim, or if a fixed gap exceeds the limit.

A new server may lack nodes, leases, tickets and new tags too. A move skips node numbers and tickets, and starts new
tags above ids that a lost tag of the same name may have issued. Who takes a worker number waits: see
`worker_number_lease`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from allocator.errors import InvalidSetting, ServerReplaced
from allocator.schemes.shared.argument_checks import check_whole
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import AUTO, REFUSE, Tag

FLOOR = 1 << 22
"""The least reach of a gap: a young tag may lose the claims of several seconds."""
CLAIMS = 4
"""The floor is at least 4 claims of `max_step` ids."""
FLOORS_BELOW_LIMIT = 512
"""`FLOOR` is lowered to 1/512 of the limit where that is less."""
PART_OF_REST = 8
"""A gap reaches over at most an eighth of the ids left, so that a tag near its limit survives failovers."""
SECONDS = 1024
"""The time modulo this period enters each gap, so two servers that continue from one row rarely skip to one number."""
PERIOD_MS = 1000 * SECONDS


class Move(NamedTuple):
    """What a failover changes in the row of `allocator_shard`.

    run: the server run that wrote the row last.
    key: random, of the last move.
    first_value: tags created on first use start above this.
    at: the time of the last move in milliseconds since 1970, by the later of two clocks: the server's, and that of the
        process that saw it. 0 before the first.
    """

    run: str = ""
    key: int = 0
    first_value: int = 0
    at: int = 0


UNMOVED = Move()
CLUSTER = "."
"""Ends the name of a cluster in a run."""


def is_run(run: str, known: Move, since: int) -> bool:
    """Whether a server's `run` is the one that the row names, though its start may be told otherwise there.

    A server that is not durable has its start in its run, in seconds: `A1B2C3D4-1763750000`. A start drifts upwards: it
    may be later than the true one, `since`, and never earlier. Members of a cluster, `E5F6A7B8.-1763750000`, tell
    their own starts; one that is up since before the last move has forgotten nothing since.
    """
    name, _, start = run.partition("-")
    known_name, _, known_start = known.run.partition("-")
    if name != known_name or not (start.isdecimal() and known_start.isdecimal()):
        return run == known.run
    return since <= int(known_start) <= int(start) or (is_of_cluster(run) and 1000 * since < known.at)


def is_of_cluster(run: str) -> bool:
    """Whether several servers of this run write."""
    return run.partition("-")[0].endswith(CLUSTER)


def crossing(tag: Tag, at: int) -> int:
    """How many numbers a tag skips that lacks the gap of the last move. Raises `ServerReplaced` if it may not go on."""
    if tag.failover_gap == REFUSE:
        raise replaced(tag, "its failover_gap is 'refuse'")
    reach = reach_of(tag)
    if not has_room(tag, reach):
        raise replaced(tag, f"only {tag.limit - tag.max_value} ids are left below its limit, too few to skip")
    return gap(tag, reach, at)


def reach_of(tag: Tag) -> int:
    """The numbers that the tag may have issued on another server after this row was written."""
    each = max(1, tag.residue.step)
    if isinstance(tag.failover_gap, int):
        return tag.failover_gap * each
    issued = tag.max_value - tag.skipped
    return min(max(floor_of(tag) * each, issued), (tag.limit - tag.max_value) // PART_OF_REST)


def floor_of(tag: Tag) -> int:
    """The least number of ids that a gap reaches over."""
    return max(min(FLOOR, tag.limit // FLOORS_BELOW_LIMIT), CLAIMS * tag.max_step)


def has_room(tag: Tag, reach: int) -> bool:
    least = tag.max_step * max(1, tag.residue.step) if tag.failover_gap == AUTO else 0
    return least <= reach <= tag.limit - tag.max_value


def gap(tag: Tag, reach: int, at: int) -> int:
    """The numbers to skip now: the reach, and the part for the time if that fits below the limit."""
    # A clock that is behind the last claim counts as 0. By its distance, a server whose clock catches up would choose a
    # smaller gap than the one before it, and give the same ids.
    moment = (at - tag.claimed_at) % PERIOD_MS if at > tag.claimed_at else 0
    further = reach * moment // PERIOD_MS
    return reach + further if reach + further <= tag.limit - tag.max_value else reach


def repaired(tag: Tag, above: int | None, at: int) -> int:
    """The new `max_value` of a tag that an operator repairs: `above`, or the present value plus the usual gap."""
    if above is not None:
        return check_whole("above", above, tag.max_value, tag.limit, hint=f" for tag {tag.name!r}")
    usual = tag if tag.failover_gap not in (REFUSE, 0) else replace(tag, failover_gap=AUTO)
    reach = reach_of(usual)
    if not has_room(usual, reach):
        raise InvalidSetting(
            f"tag {tag.name!r} has only {tag.limit - tag.max_value} ids left, too few to skip {reach} of them; "
            "name a number above every id in use with --above N"
        )
    return tag.max_value + gap(usual, reach, at)


def replaced(tag: Tag, why: str) -> ServerReplaced:
    return ServerReplaced(
        f"tag {tag.name!r}: the database server changed, or an older copy was restored, and it may lack ids above "
        f"{tag.max_value}; the tag is stopped, since {why}. When nothing uses the old server any more: "
        f"allocator tags repair {tag.name}"
    )


NODES_SKIPPED = 256
"""More than the process starts that a failover or restore may lose; the time adds up to 1023, see `skipped`."""

TICKETS_SKIPPED = 1 << 17
"""Of those by REPLACE: more than a database draws in half a minute, one round trip each."""

AHEAD_MS = 20_000
"""How far a process may date a move ahead of the database's clock: by a lease of snowflakes."""


class Skipped(NamedTuple):
    """What a database skips after a move: its own nodes, and numbers of tickets."""

    nodes: int
    tickets: int


def skipped(at: int, residue: Residue) -> Skipped:
    """What to skip at the time `at`, in milliseconds since 1970. A ticket of one slot of S is S numbers.

    Two servers that continue from one row skip to different numbers, unless both move in the same second modulo 17
    minutes, or register more than one node a second in between.
    """
    second = at // 1000 % SECONDS
    tickets = TICKETS_SKIPPED + TICKETS_SKIPPED * second // SECONDS
    return Skipped(NODES_SKIPPED + second, tickets * residue.step)


def beginning(template: Tag, first_value: int, is_alone: bool) -> Tag:
    """The start of a tag created on first use: above the ids of a tag of its name that may be lost.

    With large claims in the `template` it starts higher. With a low limit it starts lower, as its gaps are smaller, and
    keeps at least half of its range. In a fleet `first_value` applies in full: it may be of ids of another slot.
    """
    scaled = first_value * floor_of(template) // FLOOR
    first_value = min(scaled, template.limit // 2) if is_alone else max(first_value, scaled)
    return replace(template, max_value=min(template.limit, max(template.max_value, first_value)))


def moved(before: Move, residue: Residue, run: str, key: int, at: int, wall_ms: int) -> Move:
    """The move to `run` with a new `key`.

    residue: of the database: one of S slots skips S numbers for each id that may be lost.
    at: the clock of the server, in milliseconds since 1970; wall_ms: that of this process.
    """
    # A server whose clock is behind must shorten no wait; one process whose clock is years ahead must not prolong all.
    now_ms = max(at, min(wall_ms, at + AHEAD_MS))
    new = Tag("new", before.first_value, residue=residue, skipped=before.first_value)
    return Move(run, key, before.first_value + gap(new, reach_of(new), now_ms), now_ms)
