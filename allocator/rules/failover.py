"""THE FAILOVER RULE: how many ids a tag skips when the database server changes.

A restart of a durable server loses nothing and skips nothing. A promoted standby, a restored dump, or a server that
crashed without durable writes may lack the latest claims, whose ids are in use. So each row keeps the *server run* that
wrote it last, and a claim matches only a row of its own run. Otherwise the claim crosses to the new run: it skips a
gap, or fails, as the tag's `failover_gap` says.

    reach = the ids that the tag ever issued, without its gaps, and at least 4,194,304 ids or four of its greatest
            claims; at most an eighth of the numbers left below its limit
    gap   = reach + reach * (time since the last claim, modulo 1024 seconds) / 1024 seconds

1. The gap covers the lost claims if the tag issued fewer ids in the lost time than in all the time before.
2. Gaps do not compound: `issued` excludes them. After n failovers a tag is at most 2 n reaches above the ids it issued.
3. Two servers that continue from one row, as when a second failover loses the first, skip to different ids: the later
   one skips 1/1024 of the reach more for each second between them.
4. A claim fails if the gap would be smaller than the tag's greatest claim, or if a fixed gap exceeds the limit.

In a cluster, where several servers commit together, the row keeps the runs of all of them, separated by commas. They
may write in turn without a gap; only a new one causes a gap. Each run begins with the name of the cluster: a server of
another cluster is a failover.

A server may come back: an old primary that was copied anew, or a file that got the inode of one that was removed. So
the move to a new run marks the rows of all other runs, and no row is taken for one of a server that came back.

A new server may lack nodes, leases, tickets and new tags too. One row, `Failover`, holds the last server run for all of
them: a new run skips node numbers and tickets, and starts new tags above ids that a lost tag of the same name may have
issued. Who leases a worker number waits, see `worker_number_lease`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from allocator.errors import InvalidSetting, ServerReplaced
from allocator.schemes.shared.argument_checks import check_whole
from allocator.schemes.tag import AUTO, REFUSE, Tag

FLOOR = 1 << 22
"""The least reach of a gap: a young tag may lose the claims of several seconds."""
CLAIMS = 4
"""The floor is at least 4 claims of `max_step` ids."""
FLOORS_BELOW_LIMIT = 512
"""The floor is at most 1/512 of the limit."""
PART_OF_REST = 8
"""A gap reaches over at most an eighth of the ids left, so that a tag near its limit survives failovers."""
SECONDS = 1024
"""The time modulo this period enters each gap, so two servers that continue from one row rarely skip to one number."""
PERIOD_MS = 1000 * SECONDS

MAX_RUNS = 8
"""The most runs that a row keeps. In a larger cluster the oldest is dropped, and its server skips ids again."""

ONCE = "once "
"""Begins the run of a row that a failover left behind. No server has such a run, so the row's next claim crosses."""


class Here(NamedTuple):
    """The server run that would write a row now, compared with `was`, the run that wrote it last.

    server: the identity that the database must still report when it writes the row.
    run: the value that the row will hold.
    same: the row was written on this run, or never.
    at: the clock of the server, in milliseconds since 1970.
    akin: if it is another run, then another server of the same cluster, or another start of a server that tells too
        little to know a start from a failover. Tags skip a gap; the tickets of a fleet continue, and no row is left.
    """

    was: str
    server: str
    run: str
    same: bool
    at: int = 0
    akin: bool = False

    @property
    def is_failover(self) -> bool:
        """Whether all other runs end here: see `ONCE`."""
        return not (self.same or self.akin)


class Crossing(NamedTuple):
    """A claim that moves a row to the run `here`, and skips `skip` numbers."""

    here: Here
    skip: int


def plain(was: str, run: str, at: int = 0) -> Here:
    """Compare the run of a server that writes alone."""
    return Here(was, run, run, was in {"", run}, at)


def one_of_several(was: str, run: str, since: int, at: int = 0) -> Here:
    """Compare the run of a server of a cluster, or of one that may not be durable.

    A run names the server, `A1B2C3D4`, in a cluster after the cluster's name, `E5F6A7B8.A1B2C3D4`: there servers commit
    together, and the row keeps all their runs. If the server is not durable its start follows, in seconds:
    `A1B2C3D4-1763750000`.

    since: the true start. The start in a run drifts upwards: it may be later, never earlier.
    """
    member = run.partition("-")[0]
    cluster, several, server = member.rpartition(".")
    before = [other for other in was.split(",") if other]
    if several and run in before:
        return Here(was, server, was, same=True, at=at, akin=True)
    same = not was or any(other == run or began_between(other, member, since, start_of(run)) for other in before)
    kin = [other for other in before if other.startswith(f"{cluster}.")]
    others = [other for other in kin if other.partition("-")[0] != member]
    return Here(was, server, ",".join([*others, run][-MAX_RUNS:]), same, at, akin=bool(kin))


def began_between(run: str, member: str, since: int, latest: int) -> bool:
    return run.startswith(f"{member}-") and since <= start_of(run) <= latest


def start_of(run: str) -> int:
    start = run.partition("-")[2]
    return int(start) if start.isdecimal() else 0


def cross(tag: Tag, here: Here) -> Crossing:
    """How a tag continues on this run. Raises `ServerReplaced` if it may not, or has too few ids left."""
    if here.same:
        return Crossing(here, 0)
    if tag.failover_gap == REFUSE:
        raise replaced(tag, here, "its failover_gap is 'refuse'")
    reach = reach_of(tag)
    if not has_room(tag, reach):
        raise replaced(tag, here, f"only {tag.limit - tag.max_value} ids are left below its limit, too few to skip")
    return Crossing(here, gap(tag, reach, here.at))


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
    # A clock that is behind counts as 0. Its distance would put a server whose clock passes `claimed_at` below the one
    # before it, whose ids it would reach.
    moment = (at - tag.claimed_at) % PERIOD_MS if at > tag.claimed_at else 0
    further = reach * moment // PERIOD_MS
    return reach + further if reach + further <= tag.limit - tag.max_value else reach


def repaired(tag: Tag, above: int | None, here: Here) -> int:
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
    return tag.max_value + gap(usual, reach, here.at)


def replaced(tag: Tag, here: Here, why: str) -> ServerReplaced:
    return ServerReplaced(
        f"tag {tag.name!r}: the database server changed ({tag.server_run} → {here.run}) and may lack ids above "
        f"{tag.max_value}; the tag is stopped, since {why}. When nothing uses the old server any more: "
        f"allocator tags repair {tag.name}"
    )


NODES_SKIPPED = 256
"""More than the process starts that a failover or restore may lose; 1/4096 of all node numbers."""

TICKETS_SKIPPED = 1 << 17
"""More than a database draws in half a minute, one round trip each."""

AHEAD_MS = 20_000
"""A lease of snowflakes: how far a process may date a move after the database's clock."""


UNTRUSTED = " untrusted"
"""Follows the server run of a shard after a failover, until `shards trust`. No server has such a run, so its tickets
stop: it may have forgotten some, or how its fleet grew. Not in `allocator_shard`, which who draws may not write."""


class Failover(NamedTuple):
    """The row of `allocator_failover`.

    server_run: the run that wrote it, and perhaps `UNTRUSTED`.
    first_value: tags created on first use start above this.
    moved_at_ms: the last move, by the later of two clocks: the server's, and that of the process that saw it.
    """

    server_run: str
    first_value: int = 0
    moved_at_ms: int = 0

    @property
    def run(self) -> str:
        return self.server_run.removesuffix(UNTRUSTED)

    @property
    def is_trusted(self) -> bool:
        return not self.server_run.endswith(UNTRUSTED)


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
    shards, `first_value` applies in full: it may stem from the ids of another shard.
    """
    if is_alone:
        first_value = min(first_value * floor_of(template) // FLOOR, template.limit // 2)
    return replace(template, max_value=min(template.limit, max(template.max_value, first_value)))


def moved(before: Failover, here: Here, wall_ms: int, one_of_several: bool = False) -> Failover:
    """The row for this run; unchanged on the same run.

    wall_ms: the clock of this process.
    one_of_several: this is a shard, whose tickets stop until it is trusted.
    """
    stops = not before.is_trusted or (one_of_several and not here.same and not here.akin)
    run = here.run + (UNTRUSTED if stops else "")
    if here.same:
        return before._replace(server_run=run)
    # A server whose clock is behind must shorten no wait; one process whose clock is years ahead must not prolong all.
    now_ms = max(here.at, min(wall_ms, here.at + AHEAD_MS))
    new = Tag("new", before.first_value, skipped=before.first_value)
    first_value = before.first_value + gap(new, reach_of(new), now_ms)
    return Failover(run, first_value, now_ms)
