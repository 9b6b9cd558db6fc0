"""THE FAILOVER RULE: what a tag skips when another server goes on with it.

A restart of a durable server forgets nothing and skips nothing. A promoted standby, a restored dump and a crash of a
server that is not durable may have forgotten the newest claims, whose ids are in use. So each row keeps the *server
run* that wrote it last, and a claim matches only where the row was written on the run that carries it out. Elsewhere
the claim crosses: it skips a gap, or refuses, as the tag's `failover_gap` says.

    reach = what the tag ever gave, without its gaps, and at least 4,194,304 ids or four of its greatest claims;
            at most an eighth of what is left below its limit
    gap   = reach + reach * (time since the last claim, modulo 1024 seconds) / 1024 seconds

1. The gap covers the forgotten claims while the tag gave fewer ids in the forgotten time than in all time before.
2. Gaps do not add up to more gaps: `given` leaves them out. After n failovers a tag stands at most 2 n reaches above
   what it gave.
3. Two servers that go on from one row, as after a second failover that forgot the first, land apart: the later one
   skips a 1024th of the reach more for each second between them.
4. A tag whose gap would be smaller than one of its claims refuses. So does a gap that an operator fixed and that does
   not fit below the limit.

On a cluster, where several servers commit together, the row keeps the runs of all of them, separated by commas: they
may take turns without a gap, and only one that is new adds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from allocator.errors import InvalidSetting, ServerReplaced
from allocator.schemes.checks import MAX_ID, check_whole, quoted
from allocator.schemes.tag import AUTO, REFUSE, Tag

FailoverGap = int | Literal["auto", "refuse"]

FLOOR = 1 << 22
"""Ids that a gap reaches over at least: the claims of the last seconds, of a tag that has given few so far."""
CLAIMS = 4
"""The floor has room for so many of the greatest claims."""
FLOORS_BELOW_LIMIT = 512
"""A tag with a low limit has a lower floor: 512 of them fit below the limit."""
PART_OF_REST = 8
"""A gap reaches over an eighth of what is left at most, so that a tag survives failovers close to its limit."""
PERIOD_MS = 1024 * 1000
"""After so long without a claim the moment counts from 0 again."""

MAX_RUNS = 8
"""So many servers of a cluster are kept in a row."""


class Here(NamedTuple):
    """Where a row would be written now, compared with where it `was` written last.

    server: what the database must still say of itself when the row is written.
    run: what the row says from then on.
    same: it was written on this run, or never.
    at: the clock of the server, in milliseconds since 1970.
    """

    was: str
    server: str
    run: str
    same: bool
    at: int = 0


class Crossing(NamedTuple):
    """A claim that takes a row to the run that is `here`, and skips so many numbers."""

    here: Here
    skip: int


def gap_of(value: object) -> int:
    """The column's value for what a caller gave; None means "auto"."""
    if value is None or value == "auto":
        return AUTO
    if value == "refuse":
        return REFUSE
    if isinstance(value, str):
        raise InvalidSetting(f'failover_gap must be "auto", "refuse" or a number of ids, got {quoted(value)}')
    return check_whole("failover_gap", value, 0, MAX_ID)


def public_gap(gap: int) -> FailoverGap:
    if gap == AUTO:
        return "auto"
    return "refuse" if gap == REFUSE else gap


# -- is it the same run?


def plain(was: str, run: str, at: int = 0) -> Here:
    """On a server that writes alone."""
    return Here(was, run, run, was in {"", run}, at)


def one_of_several(was: str, run: str, since: int, several: bool, at: int = 0) -> Here:
    """Where a run is a server, `A1B2C3D4`, and its start in seconds if it is not durable, `A1B2C3D4-1763750000`.

    since: the start in truth; what a run says drifts upwards, so that it may be later, and never earlier.
    several: servers commit together, and the row keeps the runs of them all.
    """
    server = run.partition("-")[0]
    before = [other for other in was.split(",") if other]
    if several and run in before:
        return Here(was, server, was, same=True, at=at)
    same = not was or any(other == run or began_between(other, server, since, start_of(run)) for other in before)
    others = [other for other in before if several and other.partition("-")[0] != server]
    return Here(was, server, ",".join([*others, run][-MAX_RUNS:]), same, at)


def began_between(run: str, server: str, since: int, latest: int) -> bool:
    return run.startswith(f"{server}-") and since <= start_of(run) <= latest


def start_of(run: str) -> int:
    start = run.partition("-")[2]
    return int(start) if start.isdecimal() else 0


# -- how far to skip


def cross(tag: Tag, here: Here) -> Crossing:
    """How a tag goes on here. Raises `ServerReplaced` where it must not, or cannot."""
    if here.same:
        return Crossing(here, 0)
    if tag.failover_gap == REFUSE:
        raise replaced(tag, here, "the tag refuses to skip them by itself")
    reach = reach_of(tag)
    if not has_room(tag, reach):
        raise replaced(tag, here, f"only {tag.limit - tag.max_value} ids are left below its limit")
    return Crossing(here, gap(tag, reach, here.at))


def reach_of(tag: Tag) -> int:
    """The numbers that the tag may have given on another server since this row was written."""
    each = max(1, tag.lane.step)
    if tag.failover_gap >= 0:
        return tag.failover_gap * each
    given = tag.max_value - tag.skipped
    return min(max(floor_of(tag) * each, given), (tag.limit - tag.max_value) // PART_OF_REST)


def floor_of(tag: Tag) -> int:
    """The ids that a gap reaches over at least."""
    return max(min(FLOOR, tag.limit // FLOORS_BELOW_LIMIT), CLAIMS * tag.max_step)


def has_room(tag: Tag, reach: int) -> bool:
    least = tag.max_step * max(1, tag.lane.step) if tag.failover_gap == AUTO else 0
    return least <= reach <= tag.limit - tag.max_value


def gap(tag: Tag, reach: int, at: int) -> int:
    """The numbers to skip at this moment, as far as they fit below the limit."""
    moment = (at - tag.claimed_at) % PERIOD_MS if at > tag.claimed_at else 0
    further = reach * moment // PERIOD_MS
    return reach + further if reach + further <= tag.limit - tag.max_value else reach


def repaired(tag: Tag, above: int | None, here: Here) -> int:
    """From where on a tag goes on that an operator takes here: `above`, or as it would cross with the usual gap."""
    if above is not None:
        return check_whole("above", above, tag.max_value, tag.limit, hint=f" for tag {tag.name!r}")
    usual = tag if tag.failover_gap > 0 else replace(tag, failover_gap=AUTO)
    reach = reach_of(usual)
    if not has_room(usual, reach):
        raise InvalidSetting(
            f"tag {tag.name!r} has {tag.limit - tag.max_value} ids left, too few to skip {reach} of them; "
            "say where it goes on, above every id in use: --above N"
        )
    return tag.max_value + gap(usual, reach, here.at)


def replaced(tag: Tag, here: Here, why: str) -> ServerReplaced:
    return ServerReplaced(
        f"tag {tag.name!r}: the database moved to another server ({tag.server_run} → {here.run}), which may have "
        f"forgotten ids above {tag.max_value}, and {why}; when nothing uses the old server any more: "
        f"allocator tags repair {tag.name}"
    )
